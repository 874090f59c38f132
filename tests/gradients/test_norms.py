"""Histograms of norms: the effect of one unit, and the resulting bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.accounting import Contribution, Gaussian
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.norms import NormHistogram, release_norms
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.inputs.array_blocks import arrange
from dpgrain.learn import LogisticRegression
from dpgrain.learn.central import CentralFit
from dpgrain.means import Vectors
from dpgrain.noise import SeededSource
from dpgrain.optimize import Logistic, Squared
from dpgrain.publishing import draws
from dpgrain.units import Element, Record, Relation, Unit, User

Array = NDArray[Any]
BINS = 50


def counted(blocks: Any) -> Array:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "add_gaussian_noise", lambda total, *_: total)
        return release_norms(blocks, Gaussian(1.0, Contribution()), SeededSource(0)).counts


def counts_of(rows: tuple[Array, ...], unit: Unit, loss: Any, theta: Array) -> Array:
    X, y, users, elements = rows
    blocks = arrange(len(y), users, None if unit in (User(), Record()) else elements, unit)
    arranged = LinearBlocks.arrange(
        X[blocks.indices],
        y[blocks.indices],
        blocks.blocks,
        intercept=True,
        blocks=len(blocks.owners),
    )
    return counted(LinearGradients(arranged, loss, theta))


def neighbours(
    rng: np.random.Generator, unit: Unit, relation: Relation
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Two tables that differ in one unit of the first user."""
    size = int(rng.integers(4, 12))
    X = rng.normal(size=(size, 2)) * 10.0 ** rng.integers(-4, 5)
    rows = (
        X,
        rng.integers(0, 2, size).astype(float),
        rng.integers(0, 3, size),
        rng.integers(0, 3, size),
    )
    changed = rows[2] == rows[2][0]
    if isinstance(unit, Element):
        changed &= rows[3] == rows[3][0]
    elif isinstance(unit, Record):
        changed = np.arange(size) == 0
    if relation == "zero_out":
        return rows, tuple(column[~changed] for column in rows)
    other = X.copy()
    other[changed] *= 10.0 ** rng.uniform(-3, 3)
    return rows, (other, *rows[1:])


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("unit", [Record(), Element(), User(), User(max_elements=2)], ids=repr)
@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=lambda loss: type(loss).__name__)
def test_no_unit_moves_the_histogram_beyond_the_charge(
    loss: Any, unit: Unit, relation: Relation
) -> None:
    rng, largest = np.random.default_rng(0), 0.0
    model = LogisticRegression(unit=unit, relation=relation, n_users=3)
    event = CentralFit.calibrate(model.config(), model.config().promise).norms
    assert event is not None
    billed = event.contribution.sensitivity(1, relation, unit)
    for _ in range(300):
        theta = rng.normal(size=3)
        pair = [counts_of(rows, unit, loss, theta) for rows in neighbours(rng, unit, relation)]
        largest = max(largest, float(np.linalg.norm(pair[0] - pair[1])))
    assert 0.7 * billed <= largest <= billed + 1e-9


def test_noise_agrees_with_the_event() -> None:
    event = Gaussian(3.0, Contribution(layout="shared"), 2)
    blocks = Vectors(np.ones((40, 2)))
    draws = np.array(
        [release_norms(blocks, event, SeededSource(seed)).counts for seed in range(200)]
    )
    errors = (draws - counted(blocks)).ravel()
    # 10,000 draws: 3% are four standard errors of a standard deviation.
    assert errors.std() == pytest.approx(3.0, rel=0.03)
    assert abs(errors.mean()) < 0.12


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_leaves_out_no_more_than_noise_hides(seed: int) -> None:
    rng, sd = np.random.default_rng(seed), 20.0
    found = {}
    for blocks in (2_000, 20_000, 200_000):
        lengths = rng.exponential(size=(blocks, 1))
        exact = counted(Vectors(lengths))
        seen = NormHistogram(exact + rng.normal(size=BINS) * sd, sd)
        bound = seen.bound(0.0, 7.0)
        outside = float((lengths > bound).sum())
        # The threshold of two standard deviations of six bins, and its noise.
        assert outside <= 6 * sd * math.sqrt(6)
        share, error = seen.share_beyond(bound)
        assert abs(share - outside / blocks) <= 4 * error
        found[blocks] = bound
    # So fewer and fewer blocks are clipped as they become more.
    assert found[2_000] < found[20_000] < found[200_000]


def test_share_error_covers_all_bins_beyond() -> None:
    rng, exact, sd = np.random.default_rng(2), np.full(BINS, 2000.0), 15.0
    made = [NormHistogram(exact + rng.normal(0, sd, BINS), sd) for _ in range(4000)]
    for edge in (2.0**8, 2.0**11):
        shares, told = np.array([one.share_beyond(edge) for one in made]).T
        # The number of blocks is also noisy, with little effect at this number.
        assert np.std(shares) == pytest.approx(told.mean(), rel=0.12)


@pytest.mark.parametrize("edge", [1.0, 2.0, 4.0])
def test_excess_agrees_with_the_norms_beyond_an_edge(edge: float) -> None:
    lengths = np.random.default_rng(3).exponential(size=(50_000, 1))
    exact = NormHistogram(counted(Vectors(lengths)).astype(float), 0.0)
    seen = np.where(lengths <= 2.0**1.5 * edge, lengths, 0)
    truth = np.maximum(seen / edge - 1, 0).mean()
    assert exact.excess(edge) == pytest.approx(truth, rel=0.2)
    assert NormHistogram(-exact.counts, 0.0).excess(edge) == 0
    assert exact.excess(2.0**12) == 0


def test_noise_lifts_the_bound_by_little() -> None:
    exact = counted(Vectors(np.full((2_000, 1), 1.0)))
    rng = np.random.default_rng(1)
    bounds = [
        NormHistogram(exact + rng.normal(size=BINS) * 20.0, 20.0).bound(0.0, 1.0)
        for _ in range(2000)
    ]
    # All norms are 1. If all bins above had to be empty, one draw in fifty would lift it far.
    assert np.mean(np.array(bounds) == 1.0) > 0.9
    assert max(bounds) <= 16.0


def test_bound_changes_when_noise_dominates_all_norms() -> None:
    few = NormHistogram(counted(Vectors(np.full((50, 1), 4.0))), 20.0)
    assert (few.resolved, few.bound(0.0, 0.25), few.middle) == (False, 0.25, 1.0)
    many = NormHistogram(counted(Vectors(np.full((5000, 1), 4.0))), 20.0)
    assert (many.resolved, many.bound(0.0, 0.25), many.middle) == (True, 4.0, 4.0)


def test_bound_balances_noise_and_clipping() -> None:
    lengths = np.random.default_rng(0).exponential(size=(200_000, 1))
    seen = NormHistogram(counted(Vectors(lengths)), 20.0)
    bounds = [seen.bound(worth, 1.0) for worth in (0.0, 2_000.0, 20_000.0, 1e9)]
    outside = [float((lengths > bound).sum()) for bound in bounds]
    assert bounds == sorted(bounds, reverse=True)
    assert outside[1] <= 2_000
    assert outside[2] <= 20_000
    # Never fewer than half of them are inside.
    assert outside[3] + 1e-9 >= 80_000 or bounds[3] == seen.middle
    assert outside[3] <= 100_000


@pytest.mark.parametrize("noise", [1e-9, 0.03, 20.0, 1e6])
@pytest.mark.parametrize("blocks", [0, 1, 3, 1000])
def test_any_histogram_has_a_bound(blocks: int, noise: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        exact = np.bincount(rng.integers(0, BINS, blocks), minlength=BINS)
        seen = NormHistogram(exact + noise * rng.normal(size=BINS), noise)
        edges = {7.0, *(2.0 ** np.arange(-12, 12.5, 0.5))}
        assert seen.bound(float(rng.choice([0.0, 1e9])), 7.0) in edges
        share, error = seen.share_beyond(seen.bound(0.0, 1.0))
        assert 0 <= share <= 1
        assert error >= 0
        assert seen.blocks >= 1
        assert seen.middle > 0
