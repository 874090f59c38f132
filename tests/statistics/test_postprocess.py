"""Post-processing: better where there is something to gain, exact where there is not."""

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
from scipy.optimize import minimize
from tests.sampling import examples

from dpgrain.errors import ParameterError
from dpgrain.statistics import postprocess
from dpgrain.statistics.postprocess import consistent, reconcile, shrink, unclip

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


# Shrinkage ---------------------------------------------------------------------------------------


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
    # Far below what non-negativity alone brings, where most is noise.
    if level >= 30:
        assert found < 0.2 * squared(np.maximum(noisy, 0), truth, sd)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("items", [30, 1000, 20_000])
def test_only_noise_becomes_nearly_zeros(items: int, noise: str) -> None:
    generator = np.random.default_rng(items)
    sd = generator.choice([1.0, 100.0], items)
    better, error = shrink(draws(noise, generator, sd), sd, noise=noise)
    # Of the energy of the noise, 1 an item; a few items leave room for a wrong law.
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
    """All true values alike, at any distance from 0: the unfriendly case for an atom at 0."""
    generator = np.random.default_rng(3)
    noisy = distance + generator.normal(0, 1, 3000)
    better, _ = shrink(noisy, np.ones(3000))
    assert squared(better, np.full(3000, distance)) < 1.1 * 3000


def test_the_stated_error_is_that_measured() -> None:
    generator = np.random.default_rng(4)
    truth = np.where(generator.random(20_000) < 0.7, 0, generator.exponential(5, 20_000))
    better, error = shrink(truth + generator.normal(0, 1, 20_000), np.ones(20_000))
    assert squared(better, truth) == pytest.approx((error**2).sum(), rel=0.05)
    # Not one number for all: what stands clear of 0 is as uncertain as its noise.
    assert error[better < 0.2].mean() < 0.6
    assert error[better > 8].mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_posterior_is_that_of_the_fitted_law(noise: str) -> None:
    law = postprocess._LAWS[noise]
    truths = postprocess._Truths(
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
        mean, variance, low = postprocess._posterior(np.array([z]), np.array([q]), truths, law)
        atom = 0.3 * float(law.density(np.array(z)))
        seen = atom + integral(z, q, 0, 7 * q)
        wanted = integral(z, q, 1, 7 * q) / seen
        assert mean[0] == pytest.approx(wanted, rel=1e-6)
        assert variance[0] == pytest.approx(integral(z, q, 2, 7 * q) / seen - wanted**2, rel=1e-5)
        if q == 1:
            assert low[0] == pytest.approx((atom + integral(z, q, 0, 1.0)) / seen, rel=1e-6)


def test_a_good_prior_helps_and_its_scale_does_not_matter() -> None:
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
    # Also where the law is sure: by far most items lie at 0.
    noisy = generator.normal(0, 1, 20_000)
    better, _ = shrink(noisy, np.ones(20_000), np.ones(20_000))
    assert noisy.max() > 3.5
    assert (np.abs(better - np.maximum(noisy, 0)) <= 3 + 1e-9).all()


def test_groups_have_laws_of_their_own() -> None:
    generator = np.random.default_rng(7)
    group = np.repeat([0, 1], 1000)
    truth = np.where(group == 0, 0.0, generator.exponential(4, 2000))
    noisy = truth + generator.normal(0, 1, 2000)
    pooled, _ = shrink(noisy, np.ones(2000))
    apart, _ = shrink(noisy, np.ones(2000), groups=group)
    assert squared(apart, truth) < 0.95 * squared(pooled, truth)
    # The one does not hear of the other, nor does the order of items count.
    alone, _ = shrink(noisy[:1000], np.ones(1000))
    assert apart[:1000] == pytest.approx(alone)
    order = generator.permutation(2000)
    shuffled, _ = shrink(noisy[order], np.ones(2000), groups=group[order])
    assert shuffled == pytest.approx(apart[order])


def test_default_groups_keep_equal_errors_together() -> None:
    sd = np.concatenate([np.repeat([1.0, 2.0, 3.0], [500, 10, 700]), np.linspace(4, 5, 250)])
    group = postprocess._like(np.random.default_rng(8).permutation(sd))
    assert np.bincount(group).min() >= 300
    group = postprocess._like(sd)
    assert group.tolist() == [0] * 500 + [1] * 960
    assert np.unique(postprocess._like(np.linspace(1, 2, 100_000))).size <= 64


@examples(60)
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


@examples(40)
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


@pytest.mark.search(keep=0)
def test_shrinkage_of_many_items_is_quick() -> None:
    generator = np.random.default_rng(10)
    truth = generator.zipf(1.6, 400_000).clip(0, 10**8).astype(float)
    sd = generator.lognormal(2, 2, 400_000)
    noisy = truth + generator.normal(0, sd)
    began = time.perf_counter()
    shrink(noisy, sd)
    # About a second on one core; room for a slow machine.
    assert time.perf_counter() - began < 15


# Clipping ----------------------------------------------------------------------------------------


def test_unclipping_is_near_what_the_best_bound_took() -> None:
    """Users with one profile, bounds that balance loss and noise: the truth is told again."""
    generator = np.random.default_rng(11)
    profile = np.sort(generator.pareto(1.0, 400))[::-1]
    size = generator.lognormal(0, 1.5, 500)
    truth, norms = size.sum() * profile, size * np.linalg.norm(profile)

    def error(bound: float, multiplier: float) -> float:
        lost = np.maximum(norms - bound, 0).sum()
        return float(lost**2 + 400 * (bound * multiplier) ** 2)

    for multiplier in (2.0, 5.0, 10.0):
        bound = min(np.geomspace(norms.min(), norms.max(), 400), key=lambda r: error(r, multiplier))
        clipped = np.minimum(size, bound / np.linalg.norm(profile)).sum() * profile
        sd = np.full(400, bound * multiplier)
        noisy = clipped + generator.normal(0, sd)
        shrunk, _ = shrink(noisy, sd)
        found, gain = unclip(noisy, sd, shrunk)
        assert found == pytest.approx(shrunk * gain)
        assert squared(found, truth) < 0.7 * squared(shrunk, truth)
        # Never more than the loss: it is a lower bound in this setting.
        assert 1 < gain[0] < 1.1 * truth.sum() / clipped.sum()


def test_unclipping_goes_cell_by_cell() -> None:
    gain = unclip([300.0, 0, 30.0, 0], [10.0, 10, 10, 10], [300.0, 0, 30.0, 0], [4, 4, 2, 2])[1]
    # 1 + mσ²/A², with A² = ‖x‖² where that is the larger.
    assert gain == pytest.approx([1 + 200 / 300**2] * 2 + [1 + 200 / 900] * 2)
    # By default, items of one standard error are one cell.
    pooled = unclip([300.0, 0, 30.0, 0], [10.0, 10, 10, 10], [300.0, 0, 30.0, 0])[1]
    assert pooled == pytest.approx(1 + 400 / (300**2 + 30**2))
    nothing, factor = unclip([-1.0, 2.0], [100.0, 0.0], [0.0, 2.0])
    assert nothing.tolist() == [0.0, 2.0]
    assert factor.tolist() == [1.0, 1.0]
    assert unclip([50.0], [100.0], [50.0])[1].tolist() == [4.0]
    assert unclip([], [], [])[0].shape == (0,)


# Totals ------------------------------------------------------------------------------------------


@examples(60)
@given(st.data())
def test_the_projection_is_optimal(data: st.DataObject) -> None:
    """The conditions of Karush, Kuhn and Tucker, which are sufficient: one multiplier a group."""
    size, groups = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 3))
    x, sd = data.draw(arrays(VALUES, size)), data.draw(arrays(SDS, size))
    group = np.array(data.draw(st.lists(st.integers(0, groups - 1), min_size=size, max_size=size)))
    total = data.draw(arrays(st.floats(0, 1e6), groups))
    total[np.bincount(group, minlength=groups) == 0] = 0
    found = consistent(x, sd, total, group)
    assert (found >= 0).all()
    size_of = 1 + np.abs(x).max() + total.max()
    assert np.bincount(group, found, minlength=groups) == pytest.approx(total, abs=1e-8 * size_of)
    slope = (found - x) / sd**2
    for g in range(groups):
        mine = group == g
        active = mine & (found > 1e-6 * size_of)
        if active.any():
            tolerance = 1e-8 * size_of / sd[active].min() ** 2
            assert np.ptp(slope[active]) <= tolerance
            assert (slope[mine] >= slope[active].max() - tolerance).all()


def test_the_projection_is_that_of_a_solver() -> None:
    generator = np.random.default_rng(12)
    for _ in range(10):
        x, sd = generator.normal(2, 4, 6), generator.uniform(0.5, 3, 6)
        found = consistent(x, sd, 9.0)

        def cost(y: FloatArray, x: FloatArray = x, sd: FloatArray = sd) -> float:
            return squared(y, x, sd)

        solved = minimize(
            cost,
            np.full(6, 1.5),
            bounds=[(0, None)] * 6,
            constraints={"type": "eq", "fun": lambda y: y.sum() - 9},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert found == pytest.approx(solved.x, abs=1e-4)
        assert cost(found) <= cost(solved.x) + 1e-9


def test_totals_by_default_and_exact_counts() -> None:
    assert consistent([5.0, -2.0, 3.0], 1.0) == pytest.approx([4.0, 0.0, 2.0])
    assert consistent([-5.0, 2.0], 1.0).tolist() == [0.0, 0.0]
    # What is exact stays, the others share the rest.
    assert consistent([5.0, 1.0, 1.0], [0.0, 1.0, 2.0], 12.0) == pytest.approx([5.0, 2.0, 5.0])
    assert consistent([5.0, 3.0], 0.0, 8.0).tolist() == [5.0, 3.0]
    assert consistent([1.0, 2.0], 1.0, 0.0).tolist() == [0.0, 0.0]
    assert consistent([4.0, 4.0, 1.0], 1.0, [10.0, 7.0], [0, 0, 1]).tolist() == [5.0, 5.0, 7.0]
    assert consistent([], [], 0.0).shape == (0,)


def test_the_projection_survives_scales_far_apart() -> None:
    generator = np.random.default_rng(13)
    sd = np.exp(generator.uniform(-500, 500, 2000))
    group = np.repeat(np.arange(20), 100)
    x = generator.normal(0, 10, 2000)
    found = consistent(x, sd, np.full(20, 500.0), group)
    assert (found >= 0).all()
    assert np.bincount(group, found) == pytest.approx(500)
    # Where the only one that may move hardly does.
    assert consistent([-5.0, 10.0], [1.0, 1e-200], 8.0) == pytest.approx([0.0, 8.0])


@examples(60)
@given(st.data())
def test_reconciled_levels_add_up_and_are_least_squares(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 8))
    parts = data.draw(arrays(st.floats(-1e3, 1e3), size))
    parts_sd = data.draw(arrays(st.floats(0.1, 10), size))
    totals, totals_sd = data.draw(arrays(st.floats(-1e3, 1e3), 2)), data.draw(arrays(SDS, 2))
    group = np.array(data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
    x, sd, whole, whole_sd = reconcile(parts, parts_sd, totals, totals_sd, group)
    assert np.bincount(group, x, minlength=2) == pytest.approx(whole, abs=1e-6)
    # Generalised least squares by a solver: unknown parts, observed one by one and in sum.
    design = np.vstack([np.eye(size), [group == 0, group == 1]])
    weight = 1 / np.concatenate([parts_sd, totals_sd])
    solved, *_ = np.linalg.lstsq(
        design * weight[:, None], np.concatenate([parts, totals]) * weight, rcond=None
    )
    covariance = np.linalg.inv((design * weight[:, None] ** 2).T @ design)
    assert x == pytest.approx(solved, abs=1e-4)
    assert sd == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-4)
    sums = design[size:] @ covariance @ design[size:].T
    assert whole_sd == pytest.approx(np.sqrt(np.diag(sums)), rel=1e-4, abs=1e-6)
    assert (sd <= parts_sd * (1 + 1e-12)).all()
    assert (whole_sd <= totals_sd * (1 + 1e-12)).all()


def test_reconciling_with_exact_levels() -> None:
    x, sd, whole, whole_sd = reconcile([4.0, 5.0], [1.0, 2.0], [14.0], [0.0], [0, 0])
    assert x == pytest.approx([5.0, 9.0])
    assert whole.tolist() == [14.0]
    assert whole_sd.tolist() == [0.0]
    assert sd == pytest.approx([math.sqrt(0.8)] * 2)
    x, _, whole, whole_sd = reconcile([4.0, 5.0], [0.0, 0.0], [14.0], [3.0], [0, 0])
    assert x.tolist() == [4.0, 5.0]
    assert whole.tolist() == [9.0]
    assert whole_sd.tolist() == [0.0]
    assert reconcile([], [], [], [], [])[0].shape == (0,)


# Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shrink([math.nan], [1.0]), "estimate must be finite everywhere, not nan"),
        (lambda: shrink([math.inf], [1.0]), "estimate must be finite everywhere, not inf"),
        (lambda: shrink([1.0], [math.inf]), "std_error must be finite and at least 0"),
        (lambda: shrink([1.0], [-1.0]), "std_error must be finite and at least 0"),
        (lambda: shrink([1.0], [1.0, 2.0]), "std_error must be an array of length 1"),
        (lambda: shrink([[1.0]], [1.0]), "estimate must be an array one-dimensional"),
        (lambda: shrink(["a"], [1.0]), "estimate must be an array of numbers"),
        (lambda: shrink([1.0], [1.0], [0.0]), "prior must be above 0"),
        (lambda: shrink([1.0], [1.0], [math.nan]), "prior must be finite"),
        (lambda: shrink([1.0], [1.0], groups=[0.5]), "groups must be 1 whole numbers"),
        (lambda: shrink([1.0], [1.0], groups=[-1]), "groups must count from 0"),
        (lambda: shrink([1.0], [1.0], noise="uniform"), "noise must be one of"),
        (lambda: unclip([1.0], [1.0], [1.0, 2.0]), "shrunk must be an array of length 1"),
        (lambda: consistent([1.0], [1.0], -1.0), "total must be finite and at least 0"),
        (lambda: consistent([1.0], [1.0], math.nan), "total must be finite and at least 0"),
        (lambda: consistent([1.0], [1.0], [1.0], [1]), "total must have one number for each group"),
        (lambda: consistent([5.0, 1.0], [0.0, 1.0], 4.0), "total must be reachable"),
        (lambda: consistent([5.0], [0.0], 6.0), "total must be reachable"),
        (lambda: consistent([], [], 6.0), "total must be reachable"),
        (lambda: reconcile([1.0], [0.0], [2.0], [0.0], [0]), "totals must agree"),
        (lambda: reconcile([1.0], [1.0], [2.0], [1.0], [1]), "totals must have one number"),
        (lambda: reconcile([1.0], [1.0], [math.inf], [1.0], [0]), "totals must be finite"),
    ],
)
def test_wrong_arrays_are_refused_in_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as raised:
        call()
    assert str(raised.value).endswith(".")
    assert "\n" not in str(raised.value)
