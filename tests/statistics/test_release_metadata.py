"""A release's text is generated from facts, and files without facts preserve every word."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dpgrain as dg
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.statistics.statistic import (
    SUM,
    Statistic,
)
from dpgrain.words.quantities import (
    clipping_effect,
    description,
    post_processing,
    record_contribution,
    warnings,
)


def _odd(column: str) -> dg.UserTable:
    rows = {
        "who": list(range(40)),
        "word": ["yo", "bro"] * 20,
        column: [9.0 + i % 8 for i in range(40)],
    }
    return dg.read(pa.table(rows), user="who")


ASKED: dict[str, Any] = {"unit": dg.User(), "epsilon": 5.0, "delta": 1e-6}


def _without_facts(release: dg.Release, path: Path) -> Path:
    """The file of a release as earlier versions wrote it."""
    release.save(path)
    table = pyarrow.parquet.read_table(path)
    about = json.loads(table.schema.metadata[b"dpgrain"])
    del about["facts"]
    about["asked"] = description(release.metadata)
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
        again = dg.Release.load(_without_facts(release, tmp_path / "old.parquet"))
        assert again.statistic is release.statistic
        assert description(again.metadata) == description(release.metadata)
        # Older files have bounds only as text, which is never parsed.
        told = repr(release).replace("share of users", "share of units")
        told = told.replace("limit for users", "limit for units")
        if release.metadata.bounds is not None:
            told = told.replace(" of clamped values", "").replace(" clamping and", "")
        # Their intervals are described as covering the noise only, because those of 0.1 did.
        shown, stated = (
            [
                line
                for line in text.splitlines()[1:]
                if not (release.metadata.widened and line.startswith("95% interval"))
            ]
            for text in (repr(again), told)
        )
        assert shown == stated
        for trait in ("chosen", "is_weighted", "range_was_private"):
            assert getattr(again.metadata, trait) == getattr(release.metadata, trait)
        for text in (warnings, post_processing):
            assert text(again.metadata) == text(release.metadata)
        page = again.report(tmp_path / "page.html").read_text(encoding="utf-8")
        assert record_contribution(again.metadata) in page or again.statistic.has_items
    assert made[2].metadata.processed == ("shrunk",)
    old = dg.Release.load(_without_facts(made[2], tmp_path / "old.parquet"))
    assert post_processing(old.consistent().metadata) == "shrunk, consistent"


def test_older_warnings_are_read_under_either_name() -> None:
    for line in ("take care", "warning"):
        read = ReleaseMetadata.from_text({"statistic": "sum", line: "few numbers"})
        assert warnings(read) == "few numbers"
        assert description(read) == {"statistic": "sum", "warning": "few numbers"}


def test_file_of_an_unknown_statistic_is_read(tmp_path: Path) -> None:
    release = dg.count(_odd("x"), **ASKED)
    other = replace(release, metadata=replace(release.metadata, statistic=Statistic("mode")))
    again = dg.Release.load(other.save(tmp_path / "mode.parquet"))
    assert str(again.statistic) == "mode"
    assert again.metadata.statistic.name == "mode"
    assert "each user's contribution clipped (scaled down) to at most " in repr(again)
    assert " record, chosen privately" in repr(again)


def test_metadata_are_kinds_and_numbers_in_json() -> None:
    care = (("few-numbers", 3.0, 40.0), ("stated", "sentence of an older file"))
    asked = ReleaseMetadata(SUM, value="x", bounds=(0.0, 1.0), care=care)
    lines = description(asked)
    assert lines["weight"] == "x clamped to [0, 1]"
    assert lines["warning"] == (
        "almost no numbers were found (3 ± 40): ask the curator to check the column (--check); "
        "sentence of an older file"
    )
    assert "domain" not in lines
    assert asked.to_dict()["care"] == [care[0], "sentence of an older file"]
    assert ReleaseMetadata.from_dict(json.loads(json.dumps(asked.to_dict()))) == asked
    with pytest.raises(dg.ParameterError):
        ReleaseMetadata.from_dict({**asked.to_dict(), "bounds": "wide"})


def test_unreliable_shares_in_older_files_are_dropped() -> None:
    asked = dg.count(_odd("x"), **ASKED).metadata
    older = {**asked.to_dict(), "above": 0.13, "lost": None, "lost_of": "norms"}
    del older["bound"], older["cell"]
    assert "13%" not in clipping_effect(ReleaseMetadata.from_dict(older))
    assert ReleaseMetadata.from_dict({**asked.to_dict(), "above": 0.13}) == asked
