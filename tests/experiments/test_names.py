"""The experiment on names counts correctly, on a table with known users of each name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.programs import experiment

names = experiment("names")


@pytest.mark.slow
def test_selected_items_are_counted() -> None:
    # 300 users have ten items each: far above every threshold, and there are no others.
    who = np.repeat(np.arange(300), 10)
    rows = pa.table({"user_id": who, "item": pa.array([f"i{i % 10}" for i in range(who.size)])})
    row = names.named(rows, 3.0, 1)
    assert (row.one, row.two, row.best) == (10.0, 10.0, 10.0)
    assert row.largest == (10.0, 10.0)


def test_it_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "out" / "names.png"
    rows = [
        names.Row("shop", epsilon, 8.0, 40.0, 20.0, 5, (1.0, 2.0), (8.0, 20.0), 3)
        for epsilon in names.EPSILONS
    ]
    names.draw(rows, path)
    assert path.stat().st_size > 10_000


def test_without_tables_it_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPGRAIN_DATA", raising=False)
    with pytest.raises(SystemExit, match="DPGRAIN_DATA is not set"):
        names.main([])
