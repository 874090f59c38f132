"""The page shows the recorded run of weights by records, and a cheap cell repeats it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.programs import experiment
from tests.real_data import needs

weights = experiment("record_weights")
PAGE = Path(__file__).parents[2] / "docs" / "papers" / "which-recipe.md"
BEGIN, END = "<!-- table of experiments/record_weights.json -->\n", "<!-- end of weights -->"


def test_the_page_shows_the_recorded_table() -> None:
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    shown, after = rest.split(END)
    table = "\n" + "\n".join(weights.table(weights.recorded())) + "\n\n"
    if os.environ.get("DPGRAIN_PAGES") == "write":
        PAGE.write_text(before + BEGIN + table + END + after, encoding="utf-8")
        return
    assert shown == table


def test_weights_estimate_the_average_record_on_every_table() -> None:
    cells = {(cell.table, cell.weights): cell for cell in weights.recorded()}
    for table in weights.TABLES:
        equal, own = cells[table, "users"], cells[table, "records"]
        assert own.mean_error < equal.mean_error
        assert own.gain > equal.gain


@needs("oulad_assessments.parquet")
@pytest.mark.slow
def test_a_cheap_cell_repeats_the_recorded_one() -> None:
    (recorded,) = (
        cell for cell in weights.recorded() if (cell.table, cell.weights) == ("students", "records")
    )
    again = weights.measured("students", "records", 3)
    assert again.max_records == recorded.max_records
    assert again.mean_error == pytest.approx(recorded.mean_error, rel=1e-6)
    assert again.gain == pytest.approx(recorded.gain, abs=1e-3)
