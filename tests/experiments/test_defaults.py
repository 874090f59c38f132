"""The experiment on defaults runs and measures correctly at a small size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.programs import experiment
from tests.real_data import needs

from dpgrain._files import data_folder

df = experiment("defaults")


def problem(name: str, n: int = 400) -> Any:
    return next(each for each in df.simulated(n) if each.name.startswith(name))


@pytest.mark.parametrize("name", ["skewed errors, 5", "heavy", "classes, 5"])
def test_nothing_has_less_loss_than_the_best(name: str) -> None:
    found, rng = problem(name), np.random.default_rng(0)
    for whom, best in found.best.items():
        assert found.gains[whom] > 0
        for _ in range(20):
            near = best + 0.05 * rng.normal(size=len(best))
            assert found.loss(near, whom) > found.loss(best, whom) - 1e-6


def test_people_and_records_differ_with_heavy_users() -> None:
    best = problem("heavy", 4000).best
    assert best["person"][0] == pytest.approx(-0.8, abs=0.02)
    assert best["record"][0] == pytest.approx((2 - 4.5) / 6.5, abs=0.02)


def test_a_row_has_three_figures_for_each_bound() -> None:
    row = df.measured(problem("skewed errors, 5"), 3.0, 1)
    assert list(row.figures) == ["default", "1", "median"]
    # Half the median leads to the median of the errors; the default does not.
    assert row.figures["default"][0] < row.figures["median"][0] / 2
    assert df.line(row).count("|") == df.HEADER.splitlines()[0].count("|")


def test_without_tables_the_simulated_users_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(df.problems(tmp_path, ())) == []
    assert "The tables are left out" in capsys.readouterr().out


@pytest.mark.slow
@needs("baseball_plate_appearances.parquet", "oulad_assessments.parquet", "fitbit_hourly.parquet")
def test_tables_become_problems() -> None:
    found = [(each.n, each.logistic) for each in df.real(data_folder())]
    assert found == [(1085, True), (23351, False), (23351, True), (33, False)]
