"""Every statistic: the worst neighbours reach the charge, and its statements are right."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.statistics import cases
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg

KEYS: list[tuple[str, ...]] = [
    (), ("item",), ("cell",), ("topic",), ("item", "cell"), ("cell", "item"), ("cell", "topic"),
]  # fmt: skip


def fits(statistic: str, name: str, shape: cases.Shape) -> bool:
    """Whether the statistic is offered for the unit and groups."""
    mapped = name in ("mapping", "function", "capped function")
    if mapped and (not shape.keys or shape.keys[0] != "item"):
        return False
    if name == "mapping" and shape.domain in ("selected", "mixed"):
        return False
    if statistic in ("top", *cases.TOPS) and not shape.keys:
        return False
    if statistic in ("names", "truncated"):
        return shape.domain == "selected"
    if statistic in ("gumbel", "top by laplace"):
        return shape.domain in ("public", "listed")
    return True


def shapes_of(rng: np.random.Generator, statistic: str, name: str, count: int) -> list[cases.Shape]:
    known = [(k, d) for k in KEYS for d in ("public", "mixed", "listed", "selected")]
    clips = [
        clip for clip in ("auto", 1.0, 2.5, 40.0)
        if not (name == "record" and clip == 1.0 and "deep" in statistic)
    ]  # fmt: skip
    shapes = [cases.Shape(k, d, clips[rng.integers(0, len(clips))]) for k, d in known]
    shapes = [
        shape for shape in shapes
        if fits(statistic, name, shape) and (shape.keys or shape.domain == "public")
        and not (shape.domain in ("mixed", "listed") and len(shape.keys) < 2)
    ]  # fmt: skip
    return [shapes[i] for i in rng.permutation(len(shapes))[:count]]


# Statistic, unit, keys, domain and clip; the change; the smallest visible share of the charge.
OF_ITEMS = [
    ("count", "user", ("item",), "public", 2.5),
    ("sum", "user", (), "public", 2.5),
    ("sum above 0", "own", ("item", "cell"), "public", 2.5),
    ("mean", "made", ("cell",), "public", 2.5),
    ("variance", "column", ("item",), "selected", 2.5),
    ("quantiles", "function", ("item",), "selected", 2.5),
    ("top", "user", ("item",), "public", 1.0),
    ("names", "user", ("item",), "selected", "auto"),
]
IN_RANGES = [
    (statistic, name, ("item",), "public", 2.5)
    for statistic in ("mean in a range", "sum in a range")
    for name in ("user", "own", "capped column")
]
SELECTED = [
    (statistic, "user", ("item", "cell"), "selected", 2.5)
    for statistic in ("names", "truncated", "count")
]
CRAFTED: list[Any] = [
    *((case, (cases.own_level(case[1]), "zero_out", 1), 0.5) for case in OF_ITEMS),
    # Cells of one item and two corners are vectors: a replaced unit may rotate them by 90°.
    *((case, (cases.own_level(case[1]), "replace", 1), 0.98) for case in OF_ITEMS),
    *((case, (cases.own_level(case[1]), "zero_out", 1), 0.5) for case in IN_RANGES),
    *((case, ("user", "zero_out", 1), 0.5) for case in SELECTED),
    (("gumbel", "user", ("item",), "public", 2.5), ("user", "zero_out", 1), 0.99),
    (("mean", "column", ("item",), "public", 2.5), ("element", "zero_out", 2), 0.98),
    (("mean", "capped", ("item",), "public", 2.5), ("element", "zero_out", 1), 0.98),
    (("sum", "user", (), "public", 2.5), ("user", "replace", 2), 0.98),
    (("sum in a range", "user", ("item",), "public", 2.5), ("user", "replace", 2), 0.98),
]


@pytest.mark.slow(cases=20)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize(("case", "asked", "least"), CRAFTED, ids=str)
def test_crafted_neighbours_reach_the_charge(case: Any, asked: Any, least: float) -> None:
    signed = case[0].startswith("sum") and asked[1] == "replace"
    outcome = cases.Outcome(low=-4.0, high=4.0 if signed else 2.0)
    assert least < cases.seen(case, cases.Asked(*asked), outcome=outcome) <= 1 + 1e-9


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", ["names", "count", "mean"])
@pytest.mark.parametrize("name", ["function", "made", "capped function"])
def test_element_without_cell_is_clipped_over_all_groups(statistic: str, name: str) -> None:
    # The function fails on "e", which is one element in three groups.
    rows = cases.heavy(0, [("e", "p"), ("e", "q"), ("e", "r")], 1.0, 40)
    asked = cases.Asked(cases.own_level(name), "zero_out", 1)
    ask = cases.question(
        statistic, name, cases.Shape(("item", "cell"), "selected", 2.5), "zero_out"
    )
    assert 0.5 < cases.worst_ratio(ask, iter([(rows, [])]), asked, cases.Outcome()) <= 1 + 1e-9


@pytest.mark.slow
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", [*cases.STATISTICS, *cases.TOPS])
def test_the_database_brings_the_same_integers(statistic: str) -> None:
    rng = np.random.default_rng(3)
    rows = [row for user in [*range(-3, 9), None] for row in cases.random_rows(rng, user, 9)]
    names = list(cases.UNITS)
    for name in names[::4] if statistic.startswith("count") else names[1::5]:
        (shape,) = shapes_of(rng, statistic, name, 1)
        ask = cases.question(statistic, name, shape, "zero_out")
        shuffled = [rows[i] for i in rng.permutation(len(rows))]
        found, _ = cases.noised(ask, shuffled, cases.Outcome(), "duckdb")
        expected, _ = cases.noised(ask, rows, cases.Outcome())
        assert found == expected


@pytest.mark.parametrize("name", [*cases.EXACT, "quantiles"])
def test_invalid_values_are_silently_dropped(
    name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask: Callable[..., Any] = dg.quantiles if name == "quantiles" else cases.EXACT[name][0]
    options: dict[str, Any] = {"by": "item", "unit": dg.User(), "epsilon": 1, "delta": 1e-6,
                               "domain": cases.ITEMS, "random_state": 4}  # fmt: skip
    if name == "quantiles":
        ask = lambda t, **o: dg.quantiles(t, "x", bounds=(-9, 9), **o)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (
            ask(table, **options)
            for table in (cases.dirty([]), cases.dirty(cases.left_out(["item"])))
        )
    # The same noise on the same sums: not a trace of the others.
    assert one.to_arrow().equals(two.to_arrow())
    assert capfd.readouterr() == ("", "")


COVERED: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "count": (lambda t, **o: dg.count(t, clip=16.0, **o), ["gaussian", "laplace"]),
    "sum": (
        lambda t, **o: dg.sum(t, "x", bounds=(-30, 40), clip=8.0, **o),
        ["gaussian", "laplace"],
    ),
    "mean": (
        lambda t, **o: dg.mean(t, "x", bounds=(-30, 40), clip=8.0, **o),
        ["gaussian", "laplace"],
    ),
    "variance": (lambda t, **o: dg.variance(t, "x", bounds=(-30, 40), clip=8.0, **o), ["gaussian"]),
    "quantiles": (
        lambda t, **o: dg.quantiles(
            t, "x", [0.25, 0.5, 0.9], bounds=(-30, 40), bins=256, clip=8.0, **o
        ),
        ["gaussian"],
    ),
}


def coverage(name: str, noise: str, runs: int, epsilon: float) -> float:
    ask, _ = COVERED[name]
    table = cases.table_of(cases.clean(), threads=1, engine=InMemory)
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": epsilon, "delta": 1e-6, "noise": noise}
    with pytest.MonkeyPatch.context() as patch:
        cases.noiseless(patch)
        exact = ask(table, **options).estimate
    inside = []
    for seed in range(runs):
        release = ask(table, random_state=seed, **options)
        inside.append(((release.low <= exact) & (exact <= release.high))[np.isfinite(exact)])
        assert np.isfinite([release.low, release.high]).all()
        # A quantile whose interval is the whole range has no estimate.
        known = np.isfinite(release.estimate)
        assert known.all() or name == "quantiles"
        assert (np.isfinite(release.std_error) == known).all()
        assert (release.low <= release.estimate)[known].all()
        assert (release.estimate <= release.high)[known].all()
        assert (release.low[~known] == -30).all()
        assert (release.high[~known] == 40).all()
        if name == "mean":
            assert (release.low >= -30).all()
            assert (release.high <= 40).all()
    return float(np.mean(inside))


@pytest.mark.slow
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize(
    ("name", "noise"), [(n, law) for n, (_, laws) in COVERED.items() for law in laws]
)
def test_coverage_of_intervals(name: str, noise: str) -> None:
    assert 0.91 <= coverage(name, noise, 300, 1.0) <= 1.0
