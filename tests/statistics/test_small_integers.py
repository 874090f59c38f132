"""Columns of small integers: seen in noisy counts, with their own ends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpgrain as dg
from dpgrain._types import FloatArray
from dpgrain.statistics.small_integers import SmallIntegers
from dpgrain.statistics.values import INTEGERS, Bins, ValueBins


def column(counts: dict[int, float], sd: float = 12.0) -> SmallIntegers:
    rng = np.random.default_rng(0)
    exact = np.array([counts.get(int(value), 0.0) for value in INTEGERS])
    return SmallIntegers(exact + rng.normal(0, sd, exact.size), sd)


STARS = {1: 300.0, 2: 500.0, 3: 800.0, 4: 900.0, 5: 500.0}


@pytest.mark.parametrize("noise", [0.1, 5.0, 100.0])
@pytest.mark.parametrize(
    ("counts", "ends"),
    [
        ({0: 2000, 1: 1000}, (0, 1)),
        ({-1: 500, 0: 300, 1: 2000}, (-1, 1)),
        (STARS, (1, 5)),
        (dict.fromkeys(range(10, 65), 60.0 * 12), (10, 64)),
        ({7: 3000}, (6, 7)),
        ({0: 3000}, (0, 1)),
    ],
)
def test_ends_are_the_last_integers_of_a_cliff(
    counts: dict[int, float], ends: tuple[int, int], noise: float
) -> None:
    found = column(counts)
    assert found.are_all(sum(counts.values()), others=1.0)
    assert found.ends(noise) == ends


def test_ends_follow_a_tail_and_the_noise() -> None:
    """Halving counts continue beyond the visible ones, further if the noise is small."""
    found = column({value: 4000 * 0.5**value for value in range(20)})
    highs = [found.ends(noise)[1] for noise in (0.01, 5.0, 5000.0)]
    assert highs == sorted(highs, reverse=True)
    assert highs[0] >= 11
    assert highs[-1] <= 7


def test_visible_counts_next_to_the_ends_are_likely() -> None:
    """A fifth of the stars are 1, which is not credible, but no noise in four cases of five."""
    counts = np.zeros(66)
    counts[2:8] = 15.0, 500.0, 800.0, 900.0, 300.0, 5.0
    found = SmallIntegers(counts, 12.0)
    assert found.ends(5.0) == (2, 5)
    assert found.likely[2:8].tolist() == [15.0, 500.0, 800.0, 900.0, 300.0, 0.0]
    assert not found.likely[8:].any()


@pytest.mark.parametrize("name", ["mean", "std"])
def test_intervals_of_stars_include_the_likely_ones_outside(name: str) -> None:
    rng = np.random.default_rng(0)
    stars = np.clip(np.rint(3 + 1.1 * rng.normal(size=12_000)), 1, 5)
    who = np.repeat(np.arange(3000), 4)
    table = dg.read(pa.table({"who": who, "x": stars}), user="who")
    truth, silent = float(getattr(np, name)(stars)), 0
    for seed in range(20):
        found = getattr(dg, name)(
            table, "x", unit=dg.User(), epsilon=0.3, delta=1e-6, random_state=seed
        )
        silent += not (found.low[0] <= truth <= found.high[0] or found.metadata.care)
    assert silent <= 3


def test_sums_of_integers_include_zero() -> None:
    assert column(STARS).ends(5.0, from_zero=True) == (0, 5)
    assert column({-1: 3000}).ends(5.0, from_zero=True) == (-1, 0)


@pytest.mark.parametrize(
    ("counts", "others", "records"),
    [(STARS, 8.0, 3000.0), (STARS, 0.0, 4000.0), ({}, 0.0, 0.0), ({3: 20.0}, 0.0, 300.0)],
)
def test_other_columns_are_not_small_integers(
    counts: dict[int, float], others: float, records: float
) -> None:
    assert not column(counts).are_all(records, others)


def test_value_bins_count_a_half_as_the_value() -> None:
    split = ValueBins(Bins((0.0, 2.0), 3), Bins((-1.0, 0.0, 1.0, 2.0, 66.0), 6))
    values = np.array([-1.0, 0.0, 64.0, 65.0, 0.5, -2.0, 1e300, -1e300, 5e-324])
    keys, totals = split(np.zeros(values.size, dtype=np.int64), values)
    assert totals is not None
    assert (totals * split.unit).reshape(-1, 2).tolist() == [[1.0, 0.5]] * values.size
    bins, places = keys.reshape(-1, 2).T
    assert bins.tolist() == [0, 0, 2, 2, 1, 0, 2, 0, 1]
    # The first 66 are integers from −1.
    assert (places - 3).tolist() == [0, 1, 65, 66 + 4, 66 + 2, 66, 66 + 5, 66, 66 + 2]
    assert keys.max() == split.corners - 1


@pytest.mark.parametrize("signed", [True, False])
def test_narrow_bins_divide_bins(signed: bool) -> None:
    rule = dg.AutoRange(signed=signed)
    split = rule.split()
    values = np.random.default_rng(0).normal(size=3000) * 2.0 ** np.arange(-30, 45).repeat(40)
    edges = rule.edges[1:-1]
    for numbers in (values, edges, np.nextafter(edges, np.inf)):
        keys, _ = split(np.zeros(numbers.size, dtype=np.int64), numbers)
        assert (keys[::2] == np.searchsorted(edges, numbers)).all()
    assert np.isin(rule.edges, rule.narrow_edges).all()
    ratio = np.diff(rule.narrow_edges)[-16:] / rule.edges[-2]
    assert ratio.tolist() == [1 / 16] * 16


def of(values: FloatArray) -> dg.UserTable:
    return dg.read(pa.table({"who": range(values.size), "x": values}), user="who", threads=1)


OPTIONS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize("unit", [dg.Record(), dg.User()])
@pytest.mark.parametrize("name", ["sum", "mean", "variance"])
def test_answers_have_their_own_range(name: str, unit: Any) -> None:
    """0/1 answers and stars; a share of one in a thousand elsewhere may be outside."""
    rng = np.random.default_rng(0)
    answers = (rng.random(3000) < 0.3).astype(float)
    for seed in range(5):
        found = getattr(dg, name)(of(answers), "x", unit=unit, random_state=seed, **OPTIONS)
        assert found.metadata.found == (0.0, 1.0)
        assert found.metadata.beyond < 0.1
    stars = np.clip(np.rint(rng.normal(3.3, 1.1, 3000)), 1, 5)
    found = getattr(dg, name)(of(stars), "x", unit=unit, random_state=1, **OPTIONS)
    low, high = found.metadata.found
    assert low in (0.0, 1.0)
    assert high == 5.0


@pytest.mark.parametrize(
    "numbers",
    [
        lambda rng: np.where(rng.random(9000) < 0.95, 0.0, rng.uniform(0.01, 0.5, 9000)),
        lambda rng: np.where(rng.random(9000) < 0.95, rng.integers(1, 6, 9000), 0.5),
        lambda rng: np.where(rng.random(9000) < 0.95, rng.integers(0, 2, 9000), -0.9),
    ],
    ids=["zeros", "stars", "answers"],
)
def test_columns_with_fractions_are_not_integers(numbers: Any) -> None:
    x = numbers(np.random.default_rng(0))
    for seed in range(5):
        release = dg.mean(of(x), "x", unit=dg.Record(), random_state=seed, **OPTIONS)
        assert release.metadata.found is not None
        low, high = release.metadata.found
        assert low <= x.min() + 1e-6
        assert high >= np.quantile(x, 0.99)


@pytest.mark.parametrize("unit", [dg.Record(), dg.Element("g"), dg.User()])
@pytest.mark.parametrize("name", ["mean", "std"])
def test_a_single_integer_is_published(name: str, unit: Any) -> None:
    rows = {"who": range(4000), "g": np.arange(4000) % 2, "x": np.full(4000, 7)}
    found = getattr(dg, name)(
        dg.read(pa.table(rows), user="who"), "x", by="g", domain=[0, 1], unit=unit,
        random_state=1, **OPTIONS,
    )  # fmt: skip
    assert found.metadata.found == (6.0, 7.0)
    assert (np.abs(found.estimate - (7 if name == "mean" else 0)) < 0.3).all()


def test_limits_of_the_share_outside_are_valid() -> None:
    """One in twenty answers is 7, which no count of 500 people shows."""
    values = np.tile([0.0, 1.0, 1.0, 0.0], 125)
    values[:25] = 7.0
    held: list[bool] = []
    for seed in range(30):
        found = dg.mean(of(values), "x", unit=dg.User(), random_state=seed, **OPTIONS).metadata
        low, high = found.found or (-math.inf, math.inf)
        beyond = float(np.mean((values < low) | (values > high)))
        held.append(found.beyond is None or beyond <= found.beyond)
    assert np.mean(held) >= 0.9


def test_integers_cost_no_more_than_is_charged() -> None:
    """Half a count in addition to one: the norm of one record is at most its bound's."""
    rule = dg.AutoRange()
    _, totals = rule.split()(np.zeros(1, dtype=np.int64), np.ones(1))
    assert totals is not None
    shares = totals * rule.split().unit
    assert math.sqrt(float(shares @ shares)) <= rule.record_norm["l2"] == 1.125
    assert float(shares.sum()) == rule.record_norm["l1"]
    assert dg.AutoRange(integers=False).record_norm == {"l2": 1.0, "l1": 1.0}
