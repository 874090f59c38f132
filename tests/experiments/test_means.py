"""The experiment on per-user means runs at a small size, with the expected table."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.programs import experiment

means = experiment("means")


@pytest.mark.slow
def test_the_table_at_a_small_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DPGRAIN_DATA", raising=False)
    means.main(["--quick", "--repeats", "1", "--out", str(tmp_path)])
    with (tmp_path / "means.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(means.LAWS) * (3 + 5)
    assert {row["data"] for row in rows} == set(means.LAWS)
    assert all(float(row["rms"]) < 20 for row in rows if row["method"] != "softcore")
    said = capsys.readouterr().out
    assert "DPGRAIN_DATA" in said
    assert "least_covered" in said


def test_the_laws_are_within_the_bound() -> None:
    for law in means.LAWS.values():
        for d in means.DIMENSIONS:
            x = law(np.random.default_rng(0), 200, d)
            assert x.shape == (200, d)
            assert np.linalg.norm(x, axis=1).max() <= means.BOUND * (1 + 1e-12)
            assert np.array_equal(x, law(np.random.default_rng(0), 200, d))


def test_missing_users_are_left_out_of_the_truth() -> None:
    cell = means.Cell("all 3", lambda _: np.full((4000, 1), 3.0), 4000, 1, 3.0, None)
    row = means.run(cell, "clip", 3, 0.5)
    assert row.rms < 0.1
    assert row.covered == 1.0
    assert row.chosen == "clip 1"


def test_the_summary_is_by_users() -> None:
    one = {"data": "ball", "users": 9, "dimension": 1, "epsilon": 1.0, "radius": np.nan}
    told = {"noise": 2.0, "error": 8.0, "covered": 0.5, "chosen": ""}
    rows = [
        {**one, **told, "method": "auto", "rms": 4.0},
        {**one, **told, "method": "clip", "rms": 1.0},
    ]
    numbers = means.summary(pd.DataFrame(rows)).split("\n")[-1].split()
    assert numbers == ["none", "9", "4", "4", "2", "0.5", "0.5"]
