"""Shrinking: better where there is something to gain, exact where there is not."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.integrate import quad

from dpgrain.noise.additive_noise import noise_by_name
from dpgrain.statistics import shrinkage as shrinking
from dpgrain.statistics.shrinkage import shrink

FloatArray = NDArray[np.float64]
VALUES = st.floats(-1e6, 1e6, allow_subnormal=False)
SDS = st.floats(0.01, 1e3)


def arrays(elements: Any, size: int) -> Any:
    return hnp.arrays(np.float64, size, elements=elements)


def squared(estimate: FloatArray, truth: FloatArray, sd: Any = 1.0) -> float:
    return float((((estimate - truth) / sd) ** 2).sum())


def draws(noise: str, generator: np.random.Generator, sd: FloatArray) -> FloatArray:
    if noise == "gaussian":
        return np.asarray(generator.normal(0, sd))
    return np.asarray(generator.laplace(0, sd / math.sqrt(2)))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("level", [0.3, 3.0, 30.0, 300.0])
def test_shrinkage_beats_raw_and_zeros_on_heavy_tails(level: float, noise: str) -> None:
    generator = np.random.default_rng(1)
    truth = np.minimum(generator.zipf(1.7, 5000), 10**6).astype(float)
    # Noise that grows with the truth in some cells, as clipping bounds do.
    sd = level * generator.choice([1.0, 4.0, 16.0], 5000) * np.where(truth > 50, 3.0, 1.0)
    noisy = truth + draws(noise, generator, sd)
    better, _ = shrink(noisy, sd, noise=noise)
    # In units of the noise, so that one large item does not decide.
    raw, zeros = squared(noisy, truth, sd), squared(np.zeros(5000), truth, sd)
    found = squared(better, truth, sd)
    assert found < 0.9 * raw
    assert found < zeros
    # Far below the effect of non-negativity only, if most is noise.
    if level >= 30:
        assert found < 0.2 * squared(np.maximum(noisy, 0), truth, sd)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("items", [30, 1000, 20_000])
def test_only_noise_becomes_nearly_zeros(items: int, noise: str) -> None:
    generator = np.random.default_rng(items)
    sd = generator.choice([1.0, 100.0], items)
    better, error = shrink(draws(noise, generator, sd), sd, noise=noise)
    # Relative to the noise's energy, 1 per item; a few items allow a wrong distribution.
    assert squared(better, np.zeros(items), sd) < {30: 0.2, 1000: 0.05, 20_000: 0.01}[items] * items
    assert (error**2 / sd**2).mean() < 0.3


def test_far_above_the_noise_nothing_changes() -> None:
    generator = np.random.default_rng(2)
    truth = 1000 + generator.zipf(1.5, 3000).clip(0, 10**7).astype(float)
    noisy = truth + generator.normal(0, 1, 3000)
    better, error = shrink(noisy, np.ones(3000))
    assert (better == noisy).all()
    assert (error == 1).all()


@pytest.mark.parametrize("distance", [2.0, 4.0, 8.0, 16.0])
def test_never_much_worse_than_raw(distance: float) -> None:
    """All true values equal, at any distance from 0: the unfavourable case for an atom at 0."""
    generator = np.random.default_rng(3)
    noisy = distance + generator.normal(0, 1, 3000)
    better, _ = shrink(noisy, np.ones(3000))
    assert squared(better, np.full(3000, distance)) < 1.1 * 3000


def test_stated_error_equals_the_measured_one() -> None:
    generator = np.random.default_rng(4)
    truth = np.where(generator.random(20_000) < 0.7, 0, generator.exponential(5, 20_000))
    better, error = shrink(truth + generator.normal(0, 1, 20_000), np.ones(20_000))
    assert squared(better, truth) == pytest.approx((error**2).sum(), rel=0.05)
    # Not one number for all: values clear of 0 are as uncertain as their noise.
    assert error[better < 0.2].mean() < 0.6
    assert error[better > 8].mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_posterior_agrees_with_the_fitted_distribution(noise: str) -> None:
    law = noise_by_name(noise)
    truths = shrinking._Truths(
        np.array([0.0, 0.5, 1.0, 3.0, 7.0]), 0.3, np.array([0.4, 0.2, 0.1, 0.05])
    )

    def integral(z: float, q: float, power: int, top: float) -> float:
        def weighted(t: float) -> float:
            place = np.searchsorted(truths.edges, t / q) - 1
            height = float(truths.heights[place]) / q
            return t**power * height * float(law.density(np.array(z - t)))

        cuts = sorted({min(edge * q, top) for edge in truths.edges} | {min(max(z, 0), top)})
        return float(sum(quad(weighted, low, high)[0] for low, high in itertools.pairwise(cuts)))

    for z, q in [(-3.0, 1.0), (0.4, 1.0), (2.0, 1.0), (6.0, 1.0), (1.5, 0.3), (9.0, 2.0)]:
        mean, variance, low = shrinking._posterior(np.array([z]), np.array([q]), truths, law)
        atom = 0.3 * float(law.density(np.array(z)))
        seen = atom + integral(z, q, 0, 7 * q)
        wanted = integral(z, q, 1, 7 * q) / seen
        assert mean[0] == pytest.approx(wanted, rel=1e-6)
        assert variance[0] == pytest.approx(integral(z, q, 2, 7 * q) / seen - wanted**2, rel=1e-5)
        if q == 1:
            assert low[0] == pytest.approx((atom + integral(z, q, 0, 1.0)) / seen, rel=1e-6)


def test_good_prior_helps_at_any_scale() -> None:
    generator = np.random.default_rng(5)
    truth = generator.lognormal(1, 2, 4000)
    sd = generator.choice([2.0, 20.0], 4000)
    noisy = truth + generator.normal(0, sd)
    prior = truth * generator.lognormal(0, 0.2, 4000)
    better, _ = shrink(noisy, sd, prior)
    scaled, _ = shrink(noisy, sd, 2.0**20 * prior)
    without, _ = shrink(noisy, sd)
    assert squared(better, truth, sd) < 0.35 * squared(without, truth, sd)
    assert scaled == pytest.approx(better, rel=1e-6, abs=1e-9)


def test_a_wrong_prior_moves_nothing_far() -> None:
    generator = np.random.default_rng(6)
    truth = generator.lognormal(1, 2, 4000)
    noisy = truth + generator.normal(0, 1, 4000)
    better, _ = shrink(noisy, np.ones(4000), generator.permutation(truth))
    assert (np.abs(better - np.maximum(noisy, 0)) <= 3 + 1e-9).all()
    assert squared(better, truth) < 1.1 * squared(noisy, truth)
    # Also if the distribution is certain: almost all items are at 0.
    noisy = generator.normal(0, 1, 20_000)
    better, _ = shrink(noisy, np.ones(20_000), np.ones(20_000))
    assert noisy.max() > 3.5
    assert (np.abs(better - np.maximum(noisy, 0)) <= 3 + 1e-9).all()


def test_default_groups_keep_equal_errors_together() -> None:
    sd = np.concatenate([np.repeat([1.0, 2.0, 3.0], [500, 10, 700]), np.linspace(4, 5, 250)])
    group = shrinking._like(np.random.default_rng(8).permutation(sd))
    assert np.bincount(group).min() >= 300
    group = shrinking._like(sd)
    assert group.tolist() == [0] * 500 + [1] * 960
    assert np.unique(shrinking._like(np.linspace(1, 2, 100_000))).size <= 64


@given(st.data())
def test_shrinkage_is_finite_monotone_and_between(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    noisy = data.draw(arrays(VALUES, size))
    sd = data.draw(st.floats(0, 1e3))
    better, error = shrink(noisy, sd)
    assert np.isfinite(better).all()
    assert np.isfinite(error).all()
    assert (better >= 0).all()
    # Equal noise, so the order stays.
    assert (np.diff(better[np.argsort(noisy, kind="stable")]) >= -1e-6 * (sd + 1e-12)).all()
    # Nothing above 0 is raised by more than the law's width at 0 can.
    assert (better <= np.maximum(noisy, 0) + 2 * sd).all()


@given(st.data())
def test_shrinkage_knows_no_unit(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    noisy = data.draw(arrays(VALUES, size))
    sd = data.draw(arrays(SDS, size))
    better, error = shrink(noisy, sd)
    doubled, twice = shrink(1024 * noisy, 1024 * sd)
    assert doubled == pytest.approx(1024 * better)
    assert twice == pytest.approx(1024 * error)


def test_few_equal_or_exact_items() -> None:
    def without(x: FloatArray, sd: FloatArray) -> FloatArray:
        return shrink(x, sd)[0]

    def flat(x: FloatArray, sd: FloatArray) -> FloatArray:
        return shrink(x, sd, np.ones(x.size))[0]

    for function in (without, flat):
        assert function(np.zeros(0), np.zeros(0)).shape == (0,)
        (one,) = function(np.array([100.0]), np.array([1.0]))
        assert one == 100
        (small,) = function(np.array([-0.5]), np.array([1.0]))
        assert 0 <= small < 1
        same = function(np.full(400, 7.0), np.ones(400))
        assert same == pytest.approx(7, abs=0.5)
        assert np.ptp(same) == 0
    better, error = shrink([3.0, -1.0, 0.5, 9.0], [0.0, 0.0, 1.0, 0.0])
    assert better[[0, 1, 3]].tolist() == [3.0, 0.0, 9.0]
    assert error[[0, 1, 3]].tolist() == [0.0, 0.0, 0.0]


def test_in_the_limit_of_no_noise_the_estimates_stay() -> None:
    noisy = np.random.default_rng(9).zipf(1.5, 1000).clip(0, 10**6).astype(float)
    for sd in (0.0, 1e-9, 1e-3):
        assert (shrink(noisy, sd)[0] == noisy).all()


def test_extreme_values_stay_finite() -> None:
    noisy = np.array([1e300, -1e300, 0.0, 1.0, 1e150])
    for prior in (None, np.array([1.0, 1e-300, 1e300, 1.0, 2.0])):
        for noise in ("gaussian", "laplace"):
            for sd in (1.0, 1e-150, 1e150):
                better, error = shrink(noisy, sd, prior, noise=noise)
                assert np.isfinite(better).all()
                assert np.isfinite(error).all()
                assert better[1] <= 2 * sd


@pytest.mark.slow
def test_shrinkage_of_many_items_is_quick() -> None:
    generator = np.random.default_rng(10)
    truth = generator.zipf(1.6, 400_000).clip(0, 10**8).astype(float)
    sd = generator.lognormal(2, 2, 400_000)
    noisy = truth + generator.normal(0, sd)
    began = time.perf_counter()
    shrink(noisy, sd)
    # About a second on one core; room for a slow machine.
    assert time.perf_counter() - began < 15
