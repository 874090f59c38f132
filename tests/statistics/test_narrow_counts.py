"""Narrower ranges of numbers far from 0, and none for other numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpgrain as dg
from dpgrain._types import FloatArray
from dpgrain.statistics.narrow_counts import NarrowCounts
from dpgrain.statistics.ranges import AutoRange
from dpgrain.units import Law


def counts_of(
    numbers: FloatArray,
    bounds: tuple[float, float] | None = None,
    *,
    sd: float = 1e-6,
    law: Law = "gaussian",
    seed: int = 0,
) -> NarrowCounts:
    """Return noisy counts of narrow bins between bounds, or between privately chosen ones."""
    rule = AutoRange()
    split = rule.split()
    keys, totals = split(np.zeros(numbers.size, dtype=np.int64), numbers)
    noisy = np.bincount(keys, totals, split.corners) * split.unit
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=noisy.size)
    if law == "laplace":
        noise = rng.laplace(0, math.sqrt(0.5), noisy.size)
    magnitudes, integers, narrow = rule.parts(noisy + sd * noise, sd, law)
    assert integers is None
    assert narrow is not None
    return narrow.within(*(bounds or rule.balanced_bounds(magnitudes, sd, 5.0, law)))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("noise", [0.01, 3.0, 300.0])
def test_narrower_range_minimises_clamping_and_noise(sign: int, power: int, noise: float) -> None:
    numbers = sign * np.random.default_rng(1).normal(1010, 8, 10_000)
    narrow = counts_of(numbers, (512.0, 2048.0) if sign > 0 else (-2048.0, -512.0))
    edges, middles = narrow.edges.tolist(), narrow.middles
    counts = np.histogram(numbers, narrow.edges)[0]
    centre = float(counts @ middles / counts.sum())

    def error(first: float, last: float) -> float:
        kept = np.clip(middles, first, last)
        clamped = np.abs(middles - centre) ** power - np.abs(kept - centre) ** power
        return math.hypot(noise * (last - first) ** power, float(counts @ clamped))

    pairs = [pair for pair in itertools.combinations(edges, 2) if pair[0] < centre < pair[1]]
    best = min(pairs, key=lambda pair: error(*pair))
    assert narrow.narrower(noise, power, ratio=True) == best


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_seldom_prevents_a_narrower_range(law: Law) -> None:
    numbers, wide = np.random.default_rng(1).normal(1010, 8, 5000), 0
    for seed in range(200):
        narrow = counts_of(numbers, sd=20.0, law=law, seed=seed)
        low, high = narrow.narrower(5.0, 1, ratio=True) or narrow.edges[[0, -1]]
        assert low <= 992
        assert high >= 1024
        wide += high - low > 300
    assert wide < 20


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("tail", [1.1, 1.5, 2.5])
def test_ranges_of_tails_do_not_become_narrower(tail: float, power: int) -> None:
    numbers = 20 * (1 + np.random.default_rng(3).pareto(tail, 20_000))
    for seed in range(20):
        narrow = counts_of(numbers, sd=20.0, seed=seed)
        assert narrow.narrower(5.0, power, ratio=True) is None


def test_zeros_show_no_tail() -> None:
    """Most numbers are 0; others are visible in bins, but not in narrow bins."""
    rng = np.random.default_rng(0)
    numbers = np.concatenate([np.zeros(9000), np.exp(rng.uniform(0, 5, 900))])
    for seed in range(20):
        narrow = counts_of(numbers, sd=25.0, seed=seed)
        assert narrow.narrower(5.0, 1, ratio=True) is None


def test_a_sum_has_no_narrower_lower_end() -> None:
    """Its noise grows with the largest magnitude only."""
    numbers = np.random.default_rng(1).normal(1010, 8, 10_000)
    found = counts_of(numbers, (512.0, 4096.0)).narrower(3.0, 1, ratio=False)
    assert found is not None
    assert found[0] < 900
    assert found[1] < 1100


def test_clamping_is_estimated_in_narrow_bins() -> None:
    rule, numbers = AutoRange(), np.random.default_rng(1).normal(1010, 8, 10_000)
    narrow = counts_of(numbers, (512.0, 2048.0))
    magnitudes = np.histogram(numbers, rule.edges)[0].astype(float)
    found = rule.clamped(magnitudes, 1e-6, (992.0, 1088.0), narrow=narrow)
    counts = np.histogram(numbers, narrow.edges)[0] / numbers.size
    assert found.below == pytest.approx(3 * counts @ np.maximum(992 - narrow.middles, 0), rel=0.01)
    assert found.above == pytest.approx(0, abs=0.01)
    assert rule.clamped(magnitudes, 1e-6, (992.0, 1088.0)).below > 100


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    "ends", [(2.0**-20, 2.0**40), (1.0, 2.0**20), (0.3, 1.0), (2.0, 3.0), (1, 64)]
)
def test_every_noisy_outcome_has_a_range(ends: tuple[float, float], signed: bool, law: Law) -> None:
    """Noise, and one to four full bins of any kind; NumPy's warnings are errors."""
    rule, rng = AutoRange(*ends, signed=signed), np.random.default_rng(0)
    corners = rule.split().corners
    for trial in range(60):
        sd = 10.0 ** rng.integers(-3, 4)
        noisy = sd * rng.normal(size=corners) * rng.choice([0.0, 1.0])
        full = rng.integers(0, corners, trial % 5)
        noisy[full] += 10.0 ** rng.integers(0, 7, full.size)
        with np.errstate(all="raise", under="ignore"):
            magnitudes, integers, narrow = rule.parts(noisy, sd, law)
            for power in (1, 2):
                bounds = rule.balanced_bounds(magnitudes, sd, 3.0, law, power)
                assert bounds[0] < bounds[1]
                if integers is not None:
                    first, last = integers.ends(3.0)
                    assert first < last
                if rule.is_detectable(magnitudes, sd, law):
                    rule.clamped(magnitudes, sd, bounds, law, power)
                if narrow is not None:
                    near = narrow.within(*bounds)
                    found = near.narrower(3.0, power, ratio=True) or bounds
                    assert bounds[0] <= found[0] < found[1] <= bounds[1]
                    rule.clamped(magnitudes, sd, found, law, power, near)


@pytest.mark.parametrize("name", ["mean", "std", "sum"])
def test_counts_of_users_have_a_range(name: str) -> None:
    who = np.repeat(np.arange(3000), np.random.default_rng(0).geometric(0.3, 3000))
    table = dg.read(pa.table({"who": who}), user="who").per_user(n="count()")
    for seed, epsilon in itertools.product(range(4), (0.3, 1.0, 3.0)):
        release = getattr(dg, name)(
            table, "n", unit=dg.User(), epsilon=epsilon, delta=1e-6, random_state=seed
        )
        assert release.metadata.found is not None


@pytest.mark.parametrize("unit", [dg.Record(), dg.Element("g"), dg.User()])
@pytest.mark.parametrize("name", ["mean", "std"])
def test_numbers_far_from_zero_have_a_narrow_range(name: str, unit: Any) -> None:
    rng = np.random.default_rng(0)
    x = np.round(1010 + 8 * rng.normal(size=9000), 1)
    table = dg.read(
        pa.table({"who": np.arange(9000) // 3, "g": np.arange(9000) % 3, "x": x}), user="who"
    )
    found = [
        getattr(dg, name)(table, "x", unit=unit, epsilon=1.0, delta=1e-6, random_state=seed)
        for seed in range(10)
    ]
    widths = [high - low for low, high in (each.metadata.found for each in found)]
    assert np.median(widths) < 300
    truth = getattr(np, name)(x)
    assert np.median([abs(each.value - truth) for each in found]) < 1.5
    assert np.mean([(each.low <= truth) & (truth <= each.high) for each in found]) >= 0.9
