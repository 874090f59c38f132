"""One person with thousands of long texts ends no release, and changes nothing for others.

Memory is at its minimum, and all texts together need more. The other users' values are public here
(a domain, a clipping bound), so a seeded release must be the same with and without that person's
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables.engines.cluster import Cluster
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg

OTHERS = 300
ITEMS = [f"item {i}" for i in range(7)]
CHARGED: dict[str, Any] = {"unit": dg.User(), "epsilon": 5.0, "delta": 1e-6, "random_state": 1}
ASKED: dict[str, Any] = {**CHARGED, "clip": 3.0}


def items(release: Any) -> list[str]:
    found: list[str] = release.groups.columns[0].to_pylist()
    return found


def rows(texts: list[str], user: str = "attacker") -> pa.Table:
    items = [ITEMS[i % 7] for i in range(3 * OTHERS)]
    users = [f"u{i % OTHERS}" for i in range(3 * OTHERS)]
    return pa.table(
        {
            "who": pa.array([*users, *[user] * len(texts)]),
            "t": pa.array([*items, *texts], pa.large_string()),
            "x": np.ones(len(items) + len(texts)),
        }
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Parquet with and without a person of 2,000 texts of 60,000 bytes."""
    folder = tmp_path_factory.mktemp("rows")
    texts = ["x" * 59_992 + f"{i:08d}" for i in range(2_000)]
    for attacked in (False, True):
        pq.write_table(rows(texts if attacked else []), folder / f"{attacked}.parquet")
    return {attacked: folder / f"{attacked}.parquet" for attacked in (False, True)}


WAYS: dict[str, Callable[[dg.UserTable], Any]] = {
    "groups": lambda t: dg.count(t, by="t", domain=ITEMS, **ASKED),
    "selected groups": lambda t: dg.count(t, by="t", **ASKED),
    "elements": lambda t: dg.count(
        t, by="t", domain=ITEMS, **{**ASKED, "unit": dg.Element("t")}
    ),
    "elements of no key": lambda t: dg.sum(t, "x", **{**ASKED, "unit": dg.Element("t")}),
    "items": lambda t: dg.histogram(t, "t", domain=ITEMS, **ASKED),
    "cells": lambda t: dg.count(
        t.with_cells("c", of="t", by=lambda text: text[:6]), by="c", domain=ITEMS, **ASKED
    ),
    "expression": lambda t: dg.count(t, by="prefix(lower(t), 300)", domain=ITEMS, **ASKED),
    "most": lambda t: dg.count(t.per_user(m="most(t)"), by="m", domain=ITEMS, **ASKED),
    "first": lambda t: dg.count(t.per_user(m="first(t, x)"), by="m", domain=ITEMS, **ASKED),
    "rows of people": lambda t: dg.count(
        t.per_user(by="t", n="count()"), by="t", domain=ITEMS, **ASKED
    ),
    "joined": lambda t: dg.count(
        t.per_user(n="count()").join(t, columns=["t"], pairs=1000), by="t", domain=ITEMS, **ASKED
    ),
    "distinct": lambda t: dg.count(
        t.per_user(m="distinct(t)"), by="m", domain=[1, 2, 3], **ASKED
    ),
    "most held": lambda t: dg.top(t, "t", k=3, **CHARGED),
    "elements of users": lambda t: dg.elements_per_user(
        t, **{**CHARGED, "unit": dg.Element("t")}
    ),
}  # fmt: skip
# Ways in which that person affects the estimates, or the number of draws.
TOGETHER = ("elements of no key", "selected groups", "most held", "elements of users")


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_long_texts_of_one_person_end_no_release(way: str, tables: dict[bool, Path]) -> None:
    found = [
        WAYS[way](dg.read(tables[attacked], user="who", memory="256MB", threads=2))
        for attacked in (False, True)
    ]
    if way not in TOGETHER:
        assert np.array_equal(found[0].estimate, found[1].estimate)
    assert found[0].guarantee.event == found[1].guarantee.event


@pytest.mark.slow
def test_long_names_of_users_end_no_release(tmp_path: Path) -> None:
    names = ["u" * 59_992 + f"{i:08d}" for i in range(2_000)]
    pq.write_table(pa.table({"who": [*names, "a"], "t": ["x"] * 2_001}), tmp_path / "t.parquet")
    table = dg.read(tmp_path / "t.parquet", user="who", memory="256MB", threads=2)
    release = dg.count(table, by="t", domain=["x"], **ASKED)
    assert abs(release.estimate[0] - 2_001) < 100


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", InMemory, Cluster()])
def test_labels_are_renamed_once_through_people_and_joins(engine: Any) -> None:
    """Derived rows retain the labels of the rows, and a domain may contain either form."""
    long = "y" * 400
    table = dg.read(
        pa.table({"who": [f"{long}{i}" for i in range(200)] * 2, "t": [long, "b"] * 200}),
        user="who",
        engine=engine,
    )
    (label,) = items(dg.count(table, by="t", domain=[long], **ASKED))
    assert label.startswith("y" * 190 + "…")
    people = table.per_user(by="t", n="count()")
    joined = people.join(table.derive(other="t"), columns=["other"], pairs=5)
    again = joined.per_user(by="other", m="most(t)")
    for made, by in (
        (people, "t"),
        (joined, "t"),
        (joined, "other"),
        (again, "m"),
        (again, "other"),
    ):
        for domain in ([long, "b"], [label, "b"], None):
            release = dg.count(made, by=by, domain=domain, **{**ASKED, "clip": 9.0})
            assert sorted(items(release)) == ["b", label]
            assert (release.estimate > 50).all()


def test_partitions_and_public_tables_name_long_texts() -> None:
    one, two = "y" * 400, "y" * 399
    table = dg.read(
        pa.table({"who": range(300), "t": [one, two, "b"] * 100}), user="who", engine="duckdb"
    )
    element = {**ASKED, "unit": dg.Element({one: "one", two: "two", "b": "b"}), "by": "t"}
    assert (dg.count(table, **element).estimate > 50).all()
    public = pa.table({"t": [one, "b"], "kind": ["long", "short"]})
    joined = table.join_public(public, on="t")
    release = dg.count(joined, by="kind", **ASKED)
    assert abs(release.estimate - 100).max() < 30
