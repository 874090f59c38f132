"""People's contributions are counted exactly, and change by no more than is charged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest
from tests.statistics import cases

import dpgrain as dg
from dpgrain.units import Relation, Unit

Ask: TypeAlias = Callable[[dg.UserTable], Any]


def held(name: str, relation: Relation, noise: Any, by: str | None = None) -> Ask:
    def ask(table: dg.UserTable) -> Any:
        return dg.elements_per_user(
            table, by, unit=cases.UNITS[name], epsilon=1, delta=1e-6, relation=relation,
            edges=[1, 2, 5, 20], noise=noise, random_state=1,
        )  # fmt: skip

    return ask


@pytest.mark.parametrize(
    ("unit", "by"),
    [
        (dg.Element("item"), None),
        (dg.User(), "item"),
        (dg.Element("topic"), "item"),
        (dg.Record(), "item"),
    ],
    ids=["element", "user", "topic", "record"],
)
def test_contributions_are_counted_exactly(
    unit: Unit, by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases.noiseless(monkeypatch)
    release = dg.elements_per_user(
        cases.dirty(), by, unit=unit, epsilon=1, delta=1e-6, edges=[1, 3, 10]
    )
    known = [
        row for row in [*cases.clean(), *cases.BAD] if row[0] is not None and row[1] is not None
    ]
    people = pd.DataFrame(known, columns=list(cases.NAMES)).groupby("who")["item"]
    edges = [0, 1, 3, 10, np.inf]
    right = [*np.histogram(people.nunique(), np.array(edges) + 0.5)[0],
             *np.histogram(people.size(), np.array(edges) + 0.5)[0]]  # fmt: skip
    assert release.estimate.tolist() == right
    assert release.groups.columns[0].to_pylist() == ["elements"] * 4 + ["records"] * 4
    assert release.groups.columns[1].to_pylist() == [1, 3, 10, None] * 2
    assert release.share_at_most(3) == pytest.approx((people.nunique() <= 3).mean())
    assert release.share_at_most(10, "records") == pytest.approx((people.size() <= 10).mean())


def test_replaced_person_moves_two_bins() -> None:
    pair = (
        cases.heavy(0, cases.PLACES[:1], 1.0, 3) + cases.heavy(0, cases.PLACES[2:3], 1.0, 9),
        cases.heavy(0, cases.PLACES[:1], 1.0, 3),
    )
    asked, ask = cases.Asked("element", "zero_out", 1), held("own", "zero_out", "gaussian")
    assert 0.99 < cases.worst_ratio(ask, iter([pair]), asked, cases.Outcome()) <= 1 + 1e-9
