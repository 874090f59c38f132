"""The hashes on a sheet equal the recipient's computation by the instructions next to them."""

from __future__ import annotations

import hashlib
import html
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.report import cases

import dpgrain
import dpgrain as dg
from dpgrain import learn
from dpgrain.tables.groups import Groups


def checks(page: str) -> dict[str, tuple[str, str]]:
    """The hashed objects of a report, with their hashes and instructions."""
    found = re.findall(
        r">([^<>]*), SHA-256</th><td><code>([0-9a-f]{64})</code><small><code>(.*?)</code>", page
    )
    return {name: (hash_, html.unescape(how)) for name, hash_, how in found}


def computed(how: str, **known: Any) -> Any:
    names = {"dpgrain": dpgrain, "hashlib": hashlib, "numpy": np, **known}
    return eval(how, names)


def _page(thing: Any, folder: Path) -> str:
    path: Path = thing.report(folder / "page.html")
    return path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_release_and_its_promise_are_known_again(tmp_path: Path) -> None:
    release = cases.histogram(cases.NASTY)
    found = checks(_page(release, tmp_path))
    assert list(found) == ["Release", "Guarantee"]
    path, text = release.save(tmp_path / "r.parquet"), release.guarantee.to_json()
    for hash_, how in found.values():
        assert computed(how, path=path, text=text) == hash_


@pytest.mark.slow
def test_a_fitted_model_is_known_again(tmp_path: Path) -> None:
    rows = np.random.default_rng(7).normal(size=(120, 3))
    model = learn.LinearRegression(rounds=4, random_state=1)
    model.fit(rows, rows[:, 0], users=np.repeat(np.arange(40), 3))
    hash_, how = checks(_page(model, tmp_path))["Coefficients"]
    assert computed(how, model=model) == hash_
    read = learn.load(model.save(tmp_path / "model.json"))
    assert computed(how, model=read) == hash_


@pytest.mark.parametrize(
    "change",
    [
        {"estimate": np.array([300.0, -20.001])},
        {"clip": np.array([2.0, 2.5])},
        {"nonnegative": True},
        {"groups": Groups.of(["word"], [pa.array(["yo", "brO"])])},
        {"groups": Groups.of(["words"], [pa.array(["yo", "bro"])])},
        {"guarantee": replace(cases.histogram(["yo"]).guarantee, delta=2e-5)},
    ],
    ids=["estimate", "clip", "nonnegative", "group", "key", "promise"],
)
def test_any_change_changes_the_hash(change: dict[str, Any]) -> None:
    release = cases.histogram(["yo", "bro"])
    assert replace(release).hash == release.hash
    assert replace(release, **change).hash != release.hash


def test_unknown_values_are_equal_after_saving(tmp_path: Path) -> None:
    release = replace(
        cases.histogram(["yo", "bro"]),
        estimate=np.array([90.0, 90.0]),
        at_least=np.array([np.nan, -0.0]),
    )
    assert dg.Release.load(release.save(tmp_path / "r.parquet")).hash == release.hash
