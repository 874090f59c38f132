"""A release costs the printed amount: the actual loss, and audits of releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from tests.apart import epsilon_below, mu_below
from tests.replay import recorded, replayed
from tests.statistics import cases
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.accounting import (
    Selection,
)
from dpgrain.publishing import draws
from dpgrain.statistics import run as run_module
from dpgrain.statistics import sums_query as sums_module
from dpgrain.tables.engines import kernel
from dpgrain.units import PLAIN_UNITS, RELATIONS, Law, Relation, Unit

Row: TypeAlias = tuple[int | None, str | None, str | None, float | None]  # who, item, cell, x
Values: TypeAlias = NDArray[np.float64]


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("name", ["user", "own"])
def test_the_search_finds_unscaled_counts_of_values_outside(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = ("mean with values outside", name, ("item",), "public", 2.5)
    asked = cases.Asked(cases.own_level(name), "replace", 1)
    assert 0.5 < cases.seen(case, asked) <= 1 + 1e-9
    real = run_module._outside

    def careless(*rest: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel._Blocks, "clip", cases.unclipped)
            return real(*rest)

    monkeypatch.setattr(run_module, "_outside", careless)
    assert cases.seen(case, asked) > 10


def curve(mu: float, delta: float) -> float:
    def above(epsilon: float) -> float:
        one, two = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return float(log_ndtr(one) + np.log1p(-np.exp(epsilon + log_ndtr(two) - log_ndtr(one)))
                     - math.log(delta))  # fmt: skip

    return float(brentq(above, 0.0, 50 * mu + mu * mu, xtol=1e-12))


# The layout of a person's blocks, and by vector the largest distance of two blocks.
PAID: list[tuple[str, str, tuple[str, ...], str, Any, str, list[float]]] = [
    ("count", "own", ("item",), "public", 2.0, "disjoint", [1.0]),
    ("count", "own", ("item",), "public", "auto", "pooled", [math.sqrt(2)] * 3 + [1.0]),
    ("count", "function", ("item",), "selected", 2.0, "disjoint", [math.sqrt(2)] * 2),
    ("count", "record", ("item",), "public", "auto", "record", [math.sqrt(2)]),
    ("mean", "own", ("item",), "public", "auto", "pooled", [math.sqrt(2)] * 3),
    ("mean in a range", "user", (), "public", "auto", "shared", [math.sqrt(2)] * 4),
    ("mean in a range", "own", ("item",), "public", 3.0, "mixed", [math.sqrt(2)] * 3),
    ("mean with values outside", "user", (), "public", 3.0, "shared", [math.sqrt(2)] * 2),
    ("mean with values outside", "function", ("item",), "public", 3.0, "mixed", [math.sqrt(2)] * 2),
    ("variance", "column", ("item",), "public", 3.0, "shared", [math.sqrt(2)]),
    ("sum", "user", (), "public", "auto", "shared", [math.sqrt(2)] * 2 + [2.0]),
    ("sum", "column", ("item",), "public", 3.0, "shared", [2.0]),
    ("sum above 0", "user", (), "public", 3.0, "shared", [1.0]),
    ("sum", "own", ("item",), "selected", 3.0, "disjoint", [1.0, 2.0]),
    ("quantiles", "own", ("item",), "public", 3.0, "disjoint", [math.sqrt(2)]),
    ("top", "own", ("item",), "public", "auto", "disjoint", [1.0]),
    ("top", "user", ("item",), "public", 3.0, "shared", [math.sqrt(2)]),
]


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("case", PAID, ids=lambda case: "-".join(map(str, case[:5])))
def test_actual_loss_equals_the_printed_one(case: Any, relation: Relation) -> None:
    statistic, name, keys, domain, clip, layout, apart = case
    ask = cases.question(statistic, name, cases.Shape(keys, domain, clip), relation)
    vectors, release = cases.noised(ask, cases.heavy(0, cases.PLACES, 1.0, 2), cases.Outcome())
    assert len(vectors) == len(apart)
    for k in (1, 2, 3):
        mu2, leak = 0.0, 0.0
        for i, (vector, s) in enumerate(zip(vectors, apart, strict=True)):
            # Elements pile up in the counts of values, and in the second query for norms.
            shared = layout in ("shared", "record") or (layout, i) == ("pooled", 1)
            shared |= layout == "mixed" and i < len(apart) - 1
            cells = min(k, 4) if domain == "public" and not shared else k
            moved = (k if shared else math.sqrt(cells)) * (s if relation == "replace" else 1.0)
            multipliers = {vector.scale[name] / vector.radius[name] for name in vector.sums}
            assert max(multipliers) <= min(multipliers) * (1 + 1e-12)
            mu2 += (moved / min(multipliers)) ** 2
            if isinstance(vector.event, Selection):
                event, sd = vector.event, min(multipliers)
                most = 1 if s == 1.0 else 3
                one = max(
                    1 - ndtr((event.threshold - t**-0.5) / sd) ** t for t in range(1, most + 1)
                )
                named = 1 - (1 - one) ** k
                leak += named / (1 - named)
        expected = curve(math.sqrt(mu2), 1e-6 - leak)
        assert release.guarantee.epsilon(units=k) == pytest.approx(expected, rel=1e-6)
    assert 0.999 < release.guarantee.epsilon() <= 1.0


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_loss_of_laplace_noise_is_paid_in_full(relation: Relation) -> None:
    two = 2.0 if relation == "replace" else 1.0
    for statistic, name, keys, clip, apart in [
        ("count", "own", ("item",), 2.0, [1.0]),
        ("mean", "own", ("item",), "auto", [two, two, two]),
        ("sum", "user", (), "auto", [two, two, two]),
        ("sum in a range", "user", (), 3.0, [two, two, two]),
        ("quantiles", "column", ("item",), 3.0, [two]),
        ("top by laplace", "user", ("item",), 3.0, [two]),
    ]:
        ask = cases.question(
            statistic, name, cases.Shape(keys, "public", clip), relation, laplace=True
        )
        vectors, release = cases.noised(ask, cases.heavy(0, cases.PLACES, 1.0, 2), cases.Outcome())
        for k in (1, 2, 3):
            paid = sum(
                k * moved * max(v.radius[name] / v.scale[name] for name in v.sums)
                for v, moved in zip(vectors, apart, strict=True)
            )
            assert release.guarantee.epsilon(units=k) == pytest.approx(paid, rel=1e-9)
        assert 0.999 < release.guarantee.epsilon() <= 1.0


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_bound_follows_only_from_noisy_numbers(noise: Law) -> None:
    """With Gaussian noise groups have scales, and otherwise one bound for all."""
    items = [f"i{number}" for number in range(40)]

    def published(users: int) -> dg.Histogram:
        rng = np.random.default_rng(users)
        rows = {"who": np.repeat(np.arange(users), 8), "item": rng.choice(items, 8 * users)}
        return dg.histogram(
            dg.read(pa.table(rows), user="who"), "item", domain=items, unit=dg.User(), epsilon=1.0,
            delta=1e-6, noise=noise,
        )  # fmt: skip

    with recorded() as draws:
        one = published(2000)
    for users in (5, 700):
        with replayed(draws):
            other = published(users)
        if noise == "gaussian":
            assert np.array_equal(other.clip, one.clip)
        assert np.array_equal(other.estimate, one.estimate)


def test_range_follows_only_from_noisy_numbers() -> None:
    """The range, and whether anything stood out, follow from the noisy values of another table."""

    def published(sizes: Values) -> tuple[Any, ...]:
        rows = dg.read(pa.table({"who": np.arange(sizes.size), "x": sizes}), user="who")
        told = dg.mean(rows, "x", unit=dg.User(), epsilon=1.0, delta=1e-6)
        return repr(told.low), repr(told.high), str(told)

    rng = np.random.default_rng(3)
    many, few = rng.normal(20.0, 3.0, 3000), np.array([1e9])
    for first, second in ((many, few), (few, many)):
        with recorded() as draws:
            one = published(first)
        with replayed(draws):
            assert published(second) == one


@pytest.mark.slow
@pytest.mark.parametrize("cells", [0, 1, 4, 30])
def test_chosen_bounds_belong_to_each_group(cells: int) -> None:
    names = [f"i{i:02}" for i in range(cells)]
    rows: list[Row] = [
        (user, name, "p", 1.0)
        for place, name in enumerate(names)
        if place % 2 == 0
        for user in range(400)
        for _ in range(1 + 3 * place)
    ]
    options: dict[str, Any] = {
        "unit": dg.Element("item"), "epsilon": 8.0, "delta": 1e-6, "random_state": 1,
        "domain": names[::-1] if cells else None,
    }  # fmt: skip
    release = dg.count(cases.table_of(rows), by="item", **options)
    assert release.metadata.chosen
    for place, bound in zip(reversed(range(cells)), release.clip, strict=True):
        # Blocks of one size are rarely clipped, and bounds are within a coarse bin of their size.
        assert place % 2 or 0.8 < bound / (1 + 3 * place) < 5.5
    stated = dg.count(cases.table_of(rows), by="item", clip=2.0, **options)
    assert not stated.metadata.chosen
    assert (stated.clip == 2.0).all()


TESTS = 5_000


class NoisySums(NamedTuple):
    masses: Values
    guarantee: dg.Guarantee


def measured(ask: Callable[[dg.UserTable], Any], table: dg.UserTable) -> NoisySums:
    seen: list[Any] = []
    real = run_module.noisy_sums

    def spy(*rest: Any) -> Any:
        seen.append(real(*rest))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums_module, "noisy_sums", spy)
        ask(table)
    (one,) = seen
    return NoisySums(one.masses, one.guarantee)


def lone(x: float | None, times: int = 20) -> dg.UserTable:
    """User i is the only one with item i; all records have the same number."""
    kinds = pa.schema({"who": pa.int64(), "item": pa.int64(), "x": pa.float64()})
    who = np.repeat(np.arange(TESTS), times if x is not None else 0)
    return cases.with_rows(
        pa.table([who, who, np.full(who.size, x or 0.0)], schema=kinds), threads=1
    )


# Name → the query, the numbers of the two neighbours (None: nothing), the most informative
# direction.
AUDITS: dict[str, tuple[Callable[..., Any], float | None, float | None, list[float]]] = {
    "count": (lambda t, **o: dg.count(t, by="item", **o), 1.0, None, [1]),
    "sum": (lambda t, **o: dg.sum(t, "x", by="item", bounds=(-1, 1), **o), 9.0, -9.0, [1]),
    "mean": (lambda t, **o: dg.mean(t, "x", by="item", bounds=(-1, 1), **o), -5.0, 5.0, [1, -1]),
    "mean of nothing": (
        lambda t, **o: dg.mean(t, "x", by="item", bounds=(-1, 1), **o),
        0.0,
        None,
        [1, 1],
    ),
    "variance": (
        lambda t, **o: dg.variance(t, "x", by="item", bounds=(-1, 1), **o),
        -5.0,
        5.0,
        [1, 0, -1],
    ),
    "quantiles": (
        lambda t, **o: dg.quantiles(t, "x", by="item", bounds=(-1, 1), bins=16, **o),
        -1.0,
        1.0,
        [1, *[0.0] * 14, -1],
    ),
    "top": (lambda t, **o: dg.top(t, "item", **o), 1.0, None, [1]),
}


def audit(name: str, unit: Unit, **options: Any) -> tuple[float, float]:
    """A lower bound on μ (or ε, under Laplace noise), and the claim."""
    ask, one, two, direction = AUDITS[name]
    relation: Relation = "zero_out" if two is None else "replace"
    options = {
        "unit": unit, "epsilon": 6.0, "delta": 1e-6, "relation": relation, "clip": 5.0,
        "domain": np.arange(TESTS), **options,
    }  # fmt: skip
    if name != "top":
        options = {"noise": "gaussian", **options}
    sides = [measured(lambda t: ask(t, **options), lone(x)) for x in (one, two)]
    apart = [side.masses @ np.array(direction, dtype=np.float64) for side in sides]
    loss = sides[0].guarantee.event.loss(1, relation, PLAIN_UNITS[unit.level])
    if loss.pure:
        return epsilon_below(apart[0], apart[1]), loss.pure
    return mu_below(apart[0], apart[1]), loss.mu


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITS)
def test_audit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = {"method": "gaussian", "clip": 1.0} if name == "top" else {}
    unit = dg.Element("item") if name in ("count", "mean") else dg.User()
    found, claimed = audit(name, unit, **method)
    assert 0.7 * claimed < found <= claimed
    real = draws.with_noise
    monkeypatch.setattr(draws, "with_noise", lambda e, x, scale, s: real(e, x, scale / 2, s))
    found, claimed = audit(name, unit, **method)
    assert found > claimed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["count", "sum", "mean of nothing", "quantiles", "top"])
def test_audit_of_laplace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law = {"method": "laplace", "clip": 1.0} if name == "top" else {"noise": "laplace"}
    options = {"epsilon": 1.5, "delta": 0.0, **law}
    found, claimed = audit(name, dg.User(), **options)
    assert 0.2 * claimed < found <= claimed
    real = draws.with_noise
    monkeypatch.setattr(draws, "with_noise", lambda e, x, scale, s: real(e, x, scale / 4, s))
    found, claimed = audit(name, dg.User(), **options)
    assert found > claimed


def many(
    ask: Callable[..., Any], rows: Sequence[Row], runs: int, read: Callable[[Any], float]
) -> Values:
    table = cases.table_of(rows, threads=1, engine=InMemory)
    return np.array([read(ask(table, seed)) for seed in range(runs)])


# Whole releases of one number: name → the query, the rows of the neighbours, the observed value.
CROWD: list[Row] = [(user, "a", "p", float(user % 5) - 2) for user in range(30)]
Whole: TypeAlias = tuple[Callable[..., Any], list[Row], list[Row], Callable[[Any], float], Relation]
WHOLE: dict[str, Whole] = {
    "held": (
        lambda t, **o: dg.elements_per_user(
            t, unit=dg.User(by="item", max_elements=9), edges=[1, 5], **o
        ),
        [*CROWD, (99, "a", "p", 1.0)],
        [*CROWD, *[(99, item, "p", 1.0) for item in cases.ITEMS for _ in range(9)]],
        lambda r: float(r.estimate[0] - r.estimate[1] + r.estimate[3] - r.estimate[5]),
        "replace",
    ),
    "sum": (
        lambda t, **o: dg.sum(t, "x", unit=dg.User(), noise="gaussian", clip=1.0, **o),
        [*CROWD, *[(99, "a", "p", 2.0)] * 9],
        [*CROWD, *[(99, "a", "p", -2.0)] * 9],
        lambda r: float(r.estimate[0]),
        "replace",
    ),
    "mean": (
        lambda t, **o: dg.mean(
            t, "x", unit=dg.User(), noise="gaussian", clip=1.0, bounds=(-2, 2), **o
        ),
        [*CROWD, *[(99, "a", "p", 0.0)] * 9],
        CROWD,
        lambda r: float(r.count[0]),
        "zero_out",
    ),
}


# With private choices first: the range, the clipping bound, the items.
CHOSEN: dict[str, Whole] = {
    "count": (
        lambda t, **o: dg.count(t, unit=dg.User(), noise="gaussian", **o),
        [*CROWD, *[(99, "a", "p", 2.0)] * 99],
        CROWD,
        lambda r: float(r.estimate[0]),
        "zero_out",
    ),
    "sum": (
        lambda t, **o: dg.sum(t, "x", unit=dg.User(), noise="gaussian", **o),
        [*CROWD, *[(99, "a", "p", 900.0)] * 99],
        [*CROWD, *[(99, "a", "p", -900.0)] * 99],
        lambda r: float(r.estimate[0]),
        "replace",
    ),
    "mean": (
        lambda t, **o: dg.mean(t, "x", unit=dg.Element("item"), noise="gaussian", **o),
        [*CROWD, *[(99, "a", "p", 900.0)] * 99],
        CROWD,
        lambda r: float(r.count[0]),
        "zero_out",
    ),
}


def audit_whole(name: str, runs: int, wholes: dict[str, Whole] = WHOLE) -> tuple[float, float]:
    ask, one, two, read, relation = wholes[name]
    options: dict[str, Any] = {"epsilon": 12.0, "delta": 1e-6, "relation": relation}
    promise = ask(cases.table_of(one), **options).guarantee

    def run(table: dg.UserTable, seed: int) -> Any:
        return ask(table, random_state=seed, **options)

    values = [many(lambda t, s, o=o: run(t, s + o), rows, runs, read)
              for o, rows in ((0, one), (10**6, two))]  # fmt: skip
    return mu_below(values[0], values[1]), promise.event.loss(
        1, relation, PLAIN_UNITS[promise.level]
    ).mu


@pytest.mark.slow
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("name", ["held"])
def test_audit_of_whole_releases(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, claimed = audit_whole(name, 400)
    assert 0.6 * claimed < found <= claimed
    real = draws.with_noise
    monkeypatch.setattr(draws, "with_noise", lambda e, x, scale, s: real(e, x, scale / 2, s))
    found, claimed = audit_whole(name, 400)
    assert found > claimed


@pytest.mark.slow(full=True)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("name", WHOLE)
def test_longer_audit_of_whole_releases(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, claimed = audit_whole(name, 3000)
    assert 0.3 * claimed < found <= claimed
    real = draws.with_noise
    monkeypatch.setattr(draws, "with_noise", lambda e, x, scale, s: real(e, x, scale / 3, s))
    found, claimed = audit_whole(name, 3000)
    assert found > claimed


@pytest.mark.slow(full=True)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("name", CHOSEN)
def test_audit_with_private_choices(name: str) -> None:
    found, claimed = audit_whole(name, 3000, CHOSEN)
    assert found <= claimed
