"""Words of a release are made of facts, and files that have none keep every word."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dpgrain as dg
from dpgrain.report.wording import release_wording
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.statistics.statistic import (
    SUM,
    Statistic,
)


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
    # Of sums it is in units of the largest magnitude, and printed in those of the numbers.
    said = "clipped (scaled down) to at most l1 norm 100 (of positive and negative parts)"
    assert said in sums.estimand
    assert sums.clip[0] == 100


def _without_facts(path: Path) -> Path:
    """The file as earlier versions wrote it."""
    table = pyarrow.parquet.read_table(path)
    about = json.loads(table.schema.metadata[b"dpgrain"])
    del about["facts"]
    kept = table.replace_schema_metadata({b"dpgrain": json.dumps(about).encode()})
    pyarrow.parquet.write_table(kept, path)
    return path


@pytest.mark.slow
def test_an_older_file_keeps_every_word(tmp_path: Path) -> None:
    made: list[dg.Release] = [
        dg.mean(_odd("x"), "x", by="word", domain=["yo", "bro"], bounds=(0, 20), **ASKED),
        dg.mean(_odd("x"), "x", **ASKED),
        dg.histogram(_odd("x"), "word", domain=["yo", "bro"], **ASKED).shrunk(),
        dg.top(_odd("x"), "word", counts=False, **ASKED),
        dg.elements_per_user(_odd("x"), "word", **ASKED),
    ]
    for release in made:
        again = dg.Release.load(_without_facts(release.save(tmp_path / "old.parquet")))
        assert again.statistic is release.statistic
        assert dict(again.metadata) == dict(release.metadata)
        # Older files have bounds in words only, which are never parsed.
        told = repr(release)
        if release.metadata.bounds is not None:
            told = told.replace(" of clamped values", "").replace(" clamping and", "")
        assert repr(again).splitlines()[1:] == told.splitlines()[1:]
        for trait in ("chosen", "is_weighted", "range_was_private", "warnings", "post_processing"):
            assert getattr(again.metadata, trait) == getattr(release.metadata, trait)
        page = again.report(tmp_path / "page.html").read_text(encoding="utf-8")
        assert str(again.metadata.counts) in page or again.statistic.of_items
    assert made[2].metadata["post-processing"] == "shrunk"
    old = dg.Release.load(_without_facts(made[2].save(tmp_path / "old.parquet")))
    assert old.consistent().metadata["post-processing"] == "shrunk, consistent"


def test_a_file_of_a_statistic_that_is_not_known_is_read(tmp_path: Path) -> None:
    release = dg.count(_odd("x"), **ASKED)
    other = replace(release, metadata=replace(release.metadata, statistic=Statistic("mode")))
    again = dg.Release.load(other.save(tmp_path / "mode.parquet"))
    assert str(again.statistic) == "mode"
    assert again.metadata.statistic.name == "mode"
    assert "each user's contribution clipped (scaled down) to at most " in repr(again)
    assert " record, chosen privately" in repr(again)


def test_what_was_asked_reads_as_a_mapping() -> None:
    asked = ReleaseMetadata(SUM, value="x", bounds=(0.0, 1.0), care=("first", "second"))
    assert asked["weight"] == "x clamped to [0, 1]"
    assert asked["take care"] == "first; second"
    assert "domain" not in asked
    assert ReleaseMetadata.from_dict(json.loads(json.dumps(asked.to_dict()))) == asked
    with pytest.raises(dg.ParameterError):
        ReleaseMetadata.from_dict({**asked.to_dict(), "bounds": "wide"})


def test_unreliable_shares_in_older_files_are_dropped() -> None:
    asked = dg.count(_odd("x"), **ASKED).metadata
    older = {**asked.to_dict(), "above": 0.13, "lost": None, "lost_of": "norms"}
    del older["bound"], older["cell"]
    assert "13%" not in ReleaseMetadata.from_dict(older).clipping_effect
    assert ReleaseMetadata.from_dict({**asked.to_dict(), "above": 0.13}) == asked
