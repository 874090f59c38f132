"""Descriptions of estimates depend on facts, not on names of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dpgrain as dg
from dpgrain.words.headings import release_wording


def _odd(column: str) -> dg.UserTable:
    rows = {
        "who": list(range(40)),
        "word": ["yo", "bro"] * 20,
        column: [9.0 + i % 8 for i in range(40)],
    }
    return dg.read(pa.table(rows), user="who")


ASKED: dict[str, Any] = {"unit": dg.User(), "epsilon": 5.0, "delta": 1e-6}


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [(0, 20), None])
def test_a_column_is_reported_by_its_full_name(bounds: Any, tmp_path: Path) -> None:
    name = "calls between 9 and 17"
    release = dg.mean(_odd(name), name, bounds=bounds, **ASKED)
    assert release_wording(release).of == name
    page = release.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert f'mean of <span class="name">{name}</span>' in page
    assert ("chosen privately, count as the nearer bound" in page) == (bounds is None)


@pytest.mark.slow
def test_a_weight_may_be_called_anything(tmp_path: Path) -> None:
    name = "1/√(items of the unit) {value}"
    release = dg.histogram(_odd(name), "word", weight=name, domain=["yo", "bro"], clip=2.0, **ASKED)
    page = release.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert ">Clipping bounds</" in page
    assert f"sum of {name}" in page


def test_a_stated_bound_is_no_chosen_one() -> None:
    release = dg.histogram(_odd("x"), "word", domain=["yo", "bro"], clip=2.0, **ASKED)
    assert not release.metadata.chosen
    assert (
        "contributions to all 2 items clipped (scaled down together) to at most l2 norm 2"
        in release.estimand
    )
    explained = " ".join(release.explain().split())
    assert "for example, 2 records in one item, or 1 in each of 4." in explained
    total = dg.histogram(
        _odd("x"),
        "word",
        domain=["yo", "bro"],
        clip=2.0,
        **{**ASKED, "delta": 0.0},
        noise="laplace",
    )
    assert "(scaled down together) to at most 2 records in total (l1 norm)" in total.estimand
    assert "for example" not in total.explain()
    sums = dg.sum(_odd("x"), "x", bounds=(-3, 50), clip=2.0, **ASKED)
    # The bound of a sum has the unit of the largest magnitude, and is printed in units of the numbers.
    said = "clipped (scaled down) to at most l1 norm 100 (of positive and negative parts)"
    assert said in sums.estimand
    assert sums.clip[0] == 100
