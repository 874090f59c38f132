"""Rows of experiments are written and shown unchanged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from tests.programs import experiment

results = experiment("results")


@dataclass(frozen=True)
class Row:
    name: str
    share: float


def test_rows_are_written_and_shown(tmp_path: Path) -> None:
    rows = [Row("one", 1 / 3), Row("other", math.nan)]
    assert results.show(rows).splitlines() == [" name   share", "  one  0.3333", "other       -"]
    results.write(tmp_path / "out", "some", rows)
    lines = (tmp_path / "out" / "some.csv").read_text().splitlines()
    assert lines == ["name,share", f"one,{1 / 3}", "other,nan"]
