"""The experiment on digits by writers: the writers of images, its table, and a tiny run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experiments.networks import experiment, torch
from tests.real_data import needs

from dpgrain._files import data_folder

wr: Any = experiment("writers")


def images(writers: int = 12, each: int = 20) -> Any:
    rows = writers * each
    y = torch.arange(rows) % 10
    x = torch.rand(rows, 1, 14, 14) * 0.3
    x[torch.arange(rows), 0, y] = 1
    users = np.repeat(np.arange(writers), each)
    records = wr.Records(np.arange(rows), users, y.numpy(), writers)
    return wr.Images(x, y, records, x, y)


def test_a_tiny_run_learns() -> None:
    torch.set_num_threads(1)
    setting = wr.Setting(images(), steps=40, rate=0.5)
    curve = setting.run("element", math.inf, 0)
    assert curve.last > 0.8
    assert setting.without_privacy().last > 0.8
    assert sum(p.numel() for p in wr.network(0).parameters()) == 6634


def test_row_shows_the_guarantee_for_writers() -> None:
    setting = wr.Setting(images(), steps=3, rate=0.5)
    curves = [setting.run("element", 3.0, seed) for seed in (0, 1)]
    row = wr.row("element", 3.0, curves, 3, 0.5)
    assert row.writer > row.users_drawn > 3
    user = wr.row("user", 3.0, curves[:1], 3, 0.5)
    assert user.writer == 3.0
    assert math.isnan(user.users_drawn)
    head = wr.HEADER.splitlines()[0].count("|")
    assert wr.line(row).count("|") == wr.line(user).count("|") == head


@needs(wr.FILE)
def test_writers_of_the_test_are_others() -> None:
    found = wr.Images.read(data_folder(), every=50)
    with np.load(data_folder() / wr.FILE) as arrays:
        test, labels = arrays["is_test"][::50], arrays["labels"][::50]
    assert len(found.y) == (~test).sum()
    assert np.array_equal(found.y.numpy(), labels[~test])
    assert np.array_equal(found.test_y.numpy(), labels[test])
    assert np.array_equal(found.records.elements, found.y.numpy())
    assert found.records.n_users == len(np.unique(found.records.users))


@needs(wr.FILE)
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wr.main(["--quick", "--seeds", "1", "--out", str(tmp_path)])
    assert capsys.readouterr().out.count("\n| ") == 2 + 6
    assert (tmp_path / "writers.png").is_file()
