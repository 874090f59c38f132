"""What people hold is counted exactly, and moves no farther than billed."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest
from tests.statistics import cases

import dpgrain as dg
from dpgrain.accounting import (
    Contribution,
    Event,
    Gaussian,
)
from dpgrain.units import RELATIONS, Level, Relation, Unit

Row: TypeAlias = tuple[int | None, str | None, str | None, float | None]  # who, item, cell, x
Pair: TypeAlias = tuple[list[Row], list[Row]]


Ask: TypeAlias = Callable[[dg.UserTable], Any]


def held(name: str, relation: Relation, noise: Any, by: str | None = None) -> Ask:
    def ask(table: dg.UserTable) -> Any:
        return dg.elements_per_user(
            table, by, unit=cases.UNITS[name], epsilon=1, delta=1e-6, relation=relation,
            edges=[1, 2, 5, 20], noise=noise, random_state=1,
        )  # fmt: skip

    return ask


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_no_neighbours_move_what_people_hold_farther_than_billed(noise: str) -> None:
    rng, worst = np.random.default_rng(7), dict.fromkeys(RELATIONS, 0.0)
    for name, by in [
        ("own", None), ("own", "cell"), ("column", None), ("made", None), ("made drop", None),
        ("user", "item"), ("capped", None), ("record", "item"),
    ]:  # fmt: skip
        levels: list[Level] = ["record"] if name == "record" else ["element", "record", "user"]
        for level, relation, k in itertools.product(levels, RELATIONS, (1, 3)):
            asked = cases.Asked(level, relation, k)
            crafted = list(cases.crafted_pairs(name, asked))
            pairs = [crafted[i] for i in rng.permutation(len(crafted))[:2]]
            pairs += [cases.random_pair(rng, name, asked) for _ in range(2)]
            if level == "user":
                left = [
                    row for user in range(k) for row in cases.heavy(user, cases.PLACES[:1], 1.0, 1)
                ]
                right = [
                    row for user in range(k) for row in cases.heavy(user, cases.PLACES, 1.0, 9)
                ]
                pairs.append((left, right if relation == "replace" else []))
            found = cases.worst_ratio(
                held(name, relation, noise, by), iter(pairs), asked, cases.Outcome()
            )
            assert found <= 1 + 1e-9
            worst[relation] = max(worst[relation], found)
    assert min(worst.values()) > 0.99


def test_the_search_finds_holdings_billed_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = cases.Asked("element", "zero_out", 1)
    # From two bins to two others.
    pair = (
        cases.heavy(0, cases.PLACES[:1], 1.0, 3) + cases.heavy(0, cases.PLACES[2:3], 1.0, 9),
        cases.heavy(0, cases.PLACES[:1], 1.0, 3),
    )
    ask = held("own", "zero_out", "gaussian")
    assert 0.99 < cases.worst_ratio(ask, iter([pair]), asked, cases.Outcome()) <= 1 + 1e-9
    # Only one bin left and one entered.
    monkeypatch.setattr(Contribution, "replace_factor", 1.0)
    assert cases.worst_ratio(ask, iter([pair]), asked, cases.Outcome()) > 1.4

    def half(event: Event) -> Event:
        assert isinstance(event, Gaussian)
        return dataclasses.replace(event, noise_multiplier=math.sqrt(2) * event.noise_multiplier)

    # A sensitivity of 1 instead of 2.
    assert cases.worst_ratio(ask, iter([pair]), asked, cases.Outcome(), half) > 1.99


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
def test_what_people_hold_is_counted_exactly(
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
