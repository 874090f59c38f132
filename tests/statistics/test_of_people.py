"""Numbers of whole people keep their promise: a search over statistics, numbers, keys and options."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.statistics import cases

import dpgrain as dg
from dpgrain.units import RELATIONS, Level, Relation

NUMBERS: dict[str, Any] = {
    "visits": "count",
    "spent": ("x", "sum"),
    "items": ("item", "nunique"),
    "least": ("x", "min"),
}
Of = Callable[..., Any]
STATISTICS: dict[str, Of] = {
    "mean": lambda t, v, **o: dg.mean(t, v, bounds=(-4, 4), **o),
    "mean in a range": lambda t, v, **o: dg.mean(t, v, **o),
    "variance": lambda t, v, **o: dg.variance(t, v, bounds=(-4, 40), **o),
    "sum": lambda t, v, **o: dg.sum(t, v, bounds=(-4, 4), **o),
    "count": lambda t, v, **o: dg.count(t, v, **o),
    "quantiles": lambda t, v, **o: dg.quantiles(t, v, bounds=(-4, 40), bins=16, **o),
    "deep quantiles": lambda t, v, **o: dg.quantiles(t, v, bins=256, **o),
    "distribution": lambda t, v, **o: dg.distribution(t, v, [-1, 0.5, 2, 40], **o),
    "distribution in a range": lambda t, v, **o: dg.distribution(t, v, **o),
}
KEYS: dict[str, tuple[Any, Any, Any]] = {
    "whole": (None, None, None),
    "by a column": ("cell", "cell", cases.CELLS),
    "by one of two": (["cell", "item"], "item", cases.ITEMS),
    "by a number": (None, "visits", [1, 2, 40]),
}
PROMISE: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6, "random_state": 1}
LAWS: dict[str, dict[str, Any]] = {
    "gaussian": {"noise": "gaussian", "delta": 1e-6},
    "laplace": {"noise": "laplace", "delta": 0.0},
}


def asking(
    name: str, value: str, keys: str, relation: Relation, law: str, n_users: int | None, clip: Any
) -> cases.Ask:
    kept, by, domain = KEYS[keys]
    options = {
        "unit": dg.User(), "epsilon": 1.0, "relation": relation, "random_state": 1, "by": by,
        "domain": domain, "clip": clip, **LAWS[law],
    }  # fmt: skip

    def ask(table: dg.UserTable) -> Any:
        object.__setattr__(table, "n_users", n_users)
        return STATISTICS[name](table.per_user(by=kept, **NUMBERS), value, **options)

    return ask


def worst(
    ask: cases.Ask, relation: Relation, users: int, rng: np.random.Generator, level: Level = "user"
) -> float:
    asked = cases.Asked(level, relation, users)
    name = {"user": "user", "element": "own", "record": "record"}[level]
    crafted = list(cases.crafted_pairs(name, asked))
    pairs = [crafted[i] for i in rng.permutation(len(crafted))[:4]]
    pairs += [cases.random_pair(rng, name, asked) for _ in range(2)]
    return cases.worst_ratio(ask, iter(pairs), asked, cases.Outcome())


@pytest.mark.slow
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("name", STATISTICS)
def test_no_people_move_a_statistic_beyond_the_charge(
    name: str, value: str, keys: str, law: str, relation: Relation
) -> None:
    rng = np.random.default_rng(3)
    # One of the three for each, or the audit would take minutes longer.
    settings: list[tuple[int | None, Any, int]] = [(None, "auto", 1), (7, "auto", 2), (7, 1.5, 1)]
    place = zlib.crc32(repr((name, value, keys, law, relation)).encode()) % len(settings)
    n_users, clip, users = settings[place]
    ask = asking(name, value, keys, relation, law, n_users, clip)
    assert worst(ask, relation, users, rng) <= 1 + 1e-9, (n_users, clip, users)


@pytest.mark.slow
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("keys", ["whole", "by a column"])
@pytest.mark.parametrize("name", ["mean", "variance", "quantiles", "sum", "count"])
def test_partial_person_moves_it_within_the_curve(
    name: str, keys: str, law: str, relation: Relation
) -> None:
    """One record may change a whole row: it costs what exchanging the person's row does."""
    rng = np.random.default_rng(4)
    for value, level in (("spent", "record"), ("visits", "element"), ("least", "record")):
        ask = asking(name, value, keys, relation, law, None, "auto")
        assert worst(ask, relation, 1, rng, level) <= 1 + 1e-9, (value, level)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("method", ["truncated", "gaussian", "names", "gumbel"])
def test_frequent_numbers_are_selected_at_the_price_of_one(method: str, relation: Relation) -> None:
    rng, seen = np.random.default_rng(5), 0.0
    named: dict[str, Any] = {
        "names": {"counts": False, "method": "gaussian"},
        "gumbel": {"method": "gumbel", "k": 2, "domain": range(1, 300)},
    }
    options = {**named.get(method, {"method": method}), **PROMISE, "relation": relation}

    def ask(table: dg.UserTable) -> Any:
        return dg.top(table.per_user(**NUMBERS), "visits", **options)

    levels: tuple[Level, ...] = ("user", "record", "element")
    for level in levels:
        found = worst(ask, relation, 1, rng, level)
        assert found <= 1 + 1e-9, level
        seen = max(seen, found)
    assert seen > 0.5


@pytest.mark.slow
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", ["mean", "quantiles", "distribution", "sum"])
def test_search_comes_close_to_the_charge(name: str, law: str) -> None:
    ask = asking(name, "spent", "whole", "zero_out", law, 7, "auto")
    assert worst(ask, "zero_out", 1, np.random.default_rng(3)) > 0.7


def test_people_without_records_are_added_after_the_noise() -> None:
    """They follow from the stated number and from noisy counts: the noisy sums exclude them."""
    rows = cases.heavy(1, cases.PLACES[:1], 3.0, 2)

    def ask(table: dg.UserTable) -> Any:
        return dg.distribution(table.per_user(visits="count"), "visits", [1, 3], **PROMISE)

    table = cases.table_of(rows, threads=1, n_users=1000)
    drawn, release = cases.noised_table(ask, table, cases.Outcome())
    (sums,) = (vector.sums for vector in drawn)
    assert sum(number > 0 for number in sums.values()) == 1
    assert release.estimate[0] == pytest.approx(0.001)
    assert release.count.tolist() == [1000.0, 1000.0]
