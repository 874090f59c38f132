"""Banded noise: its matrix, its distribution, and a search for neighbours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import toeplitz
from tests.apart import mu_below
from tests.refusals import refuses

from dpgrain._types import IndexArray
from dpgrain.accounting import BandedGaussian, SampledGaussian, calibrate
from dpgrain.means import ClippedMean, Vectors
from dpgrain.means.bands import Bands, Correlated, band_candidates, best
from dpgrain.means.clipped import ClippedRounds
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.units import Element, Relation, Unit, User

Array = NDArray[np.float64]


def matrix(bands: Bands, rounds: int) -> Array:
    column = np.zeros(rounds)
    kept = min(rounds, bands.bands)
    column[:kept] = bands.column[:kept]
    found: Array = np.tril(toeplitz(column))
    return found


@pytest.mark.parametrize(("bands", "rounds"), [(1, 9), (2, 9), (5, 40), (40, 40), (8, 3)])
def test_numbers_agree_with_the_matrix(bands: int, rounds: int) -> None:
    best = Bands.best(bands, rounds)
    whole = matrix(best, rounds)
    assert 1 - 1e-11 < np.linalg.norm(best.column) <= 1
    inverse = np.linalg.inv(whole)
    assert best.sds(rounds) == pytest.approx(np.linalg.norm(inverse, axis=1))
    sums = np.tril(np.ones((rounds, rounds))) @ inverse
    assert best.prefix_error(rounds) == pytest.approx(np.linalg.norm(sums) / math.sqrt(rounds))


def test_no_column_nearby_is_better() -> None:
    best, rng = Bands.best(6, 80), np.random.default_rng(0)
    for scale in (1e-3, 1e-2, 0.1):
        for _ in range(20):
            other = np.array(best.column) + scale * rng.normal(size=6)
            other *= (1 - 1e-12) / np.linalg.norm(other)
            if other[0] > 0:
                assert Bands(tuple(other)).prefix_error(80) >= best.prefix_error(80) * (1 - 1e-9)
    errors = [Bands.best(bands, 80).prefix_error(80) for bands in (1, 2, 4, 8, 16)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(math.sqrt(81 / 2))


@pytest.mark.parametrize("column", [(0.9, 0.9), (0.0, 1.0), (-0.5, 0.5), (math.nan,)])
def test_costlier_columns_are_rejected(column: tuple[float, ...]) -> None:
    with refuses("column", "1"):
        Bands(column)


def test_the_stream_undoes_the_matrix() -> None:
    best, fresh = Bands.best(4, 30), np.random.default_rng(1).normal(size=(30, 5))
    noise = Correlated(best)
    found = np.array([noise.next(row) for row in fresh])
    assert found == pytest.approx(np.linalg.solve(matrix(best, 30), fresh))
    # An interrupted run continues, or starts again.
    again = Correlated(best)
    for row in fresh[:12]:
        again.next(row)
    other = Correlated(best)
    other.load(list(again.past))
    assert np.array_equal(other.next(fresh[12]), found[12])
    other.load([])
    assert other.next(fresh[0]) == pytest.approx(fresh[0] / best.column[0])


# -- neighbours: the effect of one user over all rounds, with equal randomness --

PEOPLE, ROUNDS, WIDTH = 5, 9, 3


def run(mean: ClippedMean, owners: IndexArray, parts: Any, data: Array) -> Array:
    rounds = ClippedRounds(mean, SeededSource(1), owners)
    rounds._parts = parts
    return np.array([Vectors(x).clipped_sum(mean.clip, rounds.draw(len(x))) for x in data])


@pytest.mark.proof("search", "BandedGaussian")
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("held", [1, 2])
@pytest.mark.parametrize("bands", [2, 3, 4, 9])
@pytest.mark.parametrize("sampling", ["pairs", "users"])
def test_no_neighbour_moves_a_round_beyond_the_charge(
    sampling: Any, bands: int, held: int, relation: Relation
) -> None:
    """Everyone of a part is drawn, so that turns are seen one by one."""
    level: Any = "element" if held > 1 else "user"
    kept = held if held > 1 else None
    mean = ClippedMean(
        1.0, 1.0, PEOPLE, ROUNDS, 1 / bands, sampling, held, level, kept, bands=bands
    )
    unit: Unit = User(max_elements=held) if held > 1 else User()
    billed = mean.event.part_event.contribution.sensitivity(1, relation, unit)  # type: ignore[union-attr]
    rng, worst, whole = np.random.default_rng(2), 0.0, matrix(mean.matrix, ROUNDS)
    owners = np.repeat(np.arange(PEOPLE), held)
    for seed in range(40):
        drawn = ClippedRounds(mean, SeededSource(seed), owners).parts
        data = rng.normal(size=(ROUNDS, len(owners), WIDTH)) * 10.0 ** rng.integers(-2, 4)
        if seed % 2:
            data = np.abs(data)
        user = int(rng.integers(PEOPLE))
        own = owners == user
        other = data.copy()
        other[:, own] = 0.0 if relation == "zero_out" else -np.abs(data[:, own])
        moved = run(mean, owners, drawn, data) - run(mean, owners, drawn, other)
        turns = np.flatnonzero(np.linalg.norm(moved, axis=1))
        # A person's participations are b rounds apart, and no more than the charged number.
        assert len(turns) <= math.ceil(ROUNDS / bands)
        assert not np.any(np.diff(turns) % bands)
        for turn in turns:
            alone = np.zeros_like(moved)
            alone[turn] = moved[turn]
            worst = max(worst, float(np.linalg.norm(whole @ alone)))
        seen = float(np.linalg.norm(whole @ moved))
        assert seen <= billed * math.sqrt(len(turns)) * (1 + 1e-9)
    assert 0.7 * billed < worst <= billed * (1 + 1e-9)


def test_parts_of_others_do_not_depend_on_a_user() -> None:
    """In distribution: each user's part is drawn independently and uniformly."""
    mean = ClippedMean(1.0, 1.0, 10, 6, 0.1, bands=3)
    owners = np.arange(3000)
    parts = mean.start(SystemSource(), owners).parts
    assert parts is not None
    counts = np.bincount(parts, minlength=3)
    assert np.abs(counts - 1000).max() < 150
    pairs = np.bincount(parts[:-1] * 3 + parts[1:], minlength=9)
    assert np.abs(pairs - 3000 / 9).max() < 110


def test_each_part_participates_at_bands_times_the_rate() -> None:
    mean = ClippedMean(1.0, 1.0, 10, 400, 0.05, bands=4)
    owners = np.repeat(np.arange(1000), 2)
    rounds = mean.start(SystemSource(), owners)
    drawn = [rounds.draw(2000) for _ in range(400)]
    for round_, which in enumerate(drawn):
        assert which is not None
        assert rounds.parts is not None
        assert set(rounds.parts[owners[which]]) <= {round_ % 4}
    assert np.mean([len(which) for which in drawn if which is not None]) == pytest.approx(
        100, rel=0.05
    )


def test_resumed_run_has_no_additional_participations() -> None:
    """An interrupted run starts with a whole cycle, or continues unchanged from its state."""
    mean, owners = ClippedMean(1.0, 1.0, 10, 20, 0.25, bands=4), np.arange(40)

    def drawn(rounds: ClippedRounds) -> IndexArray:
        found = rounds.draw(40)
        assert found is not None
        return found

    first, second = (mean.start(SystemSource(), owners) for _ in range(2))
    turns = np.zeros(40, dtype=int)
    for _ in range(6):
        turns[drawn(first)] += 1
    # Two cycles were begun, of five.
    for _ in range(8, 20):
        turns[drawn(second)] += 1
    assert turns.max() <= 5
    third = mean.start(SystemSource(), owners)
    third.load_state(first.state())
    assert np.array_equal(drawn(third), drawn(first))


def test_owners_are_needed() -> None:
    with refuses("owners", "required"):
        ClippedMean(1.0, 1.0, 10, 6, 0.1, bands=3).start(SystemSource())
    with refuses("exact", "3"):
        ClippedMean(1.0, 1.0, 10, 6, 0.1, bands=3, exact=True)


def test_calibration_keeps_the_promise() -> None:
    mean = ClippedMean.calibrate(
        epsilon=3.0,
        delta=1e-6,
        n_users=1000,
        rounds=200,
        unit=Element(),
        sampling_rate=0.01,
        bands=8,
    )
    assert isinstance(mean.event, BandedGaussian)
    assert 2.99 < mean.event.epsilon(1e-6) <= 3.0
    assert mean.event.epsilon(1e-6) == SampledGaussian(mean.noise_multiplier, 0.08, 25).epsilon(
        1e-6
    )


# -- an audit: participations of the last user, each a trial, in one run --

CHANCE, TRIALS, BANDS = 1e-6, 700, 3


def scores(present: bool) -> Array:
    people = 6 if present else 5
    mean = ClippedMean(1.0, 1.0, 10, BANDS * TRIALS, 1 / BANDS, level="user", bands=BANDS)
    rounds = mean.start(SeededSource(3 + present), np.arange(people))
    rounds._parts = np.arange(people) % BANDS
    data = np.zeros((people, 1))
    data[5:] = 30.0
    published = np.array([rounds.estimate(Vectors(data))[0] for _ in range(mean.rounds)])
    rows = matrix(Bands.best(BANDS, mean.rounds), BANDS + 9)
    column = rows[:BANDS, 0]
    # C times what is published has independent noise; the column is where a turn shows.
    undone = np.convolve(published * mean.divisor, column)[: mean.rounds]
    turns = undone[5 % BANDS : mean.rounds - BANDS]
    starts = np.arange(0, len(turns) - BANDS, BANDS)
    return np.array([turns[first : first + BANDS] @ column for first in starts])


def audit() -> float:
    """A lower bound on the distance of the two data sets in noise deviations, in one round."""
    return mu_below(scores(True), scores(False), chance=CHANCE)


@pytest.mark.slow
@pytest.mark.proof("audit", "BandedGaussian")
def test_audit_stays_below_the_claim() -> None:
    assert 0.4 < audit() <= 1.0


def test_best_bands_have_the_noise_calibrated_by_hand() -> None:
    means = band_candidates(
        most=8, epsilon=8.0, delta=1e-6, n_users=1, rounds=100, sampling_rate=0.01
    )
    assert [mean.bands for mean in means] == [1, 2, 4, 8]
    mean = best(means)
    assert mean.bands == 8
    event = calibrate(lambda z: SampledGaussian(z, 0.08, 13), 8.0, 1e-6, unit=Element())
    alone = calibrate(lambda z: SampledGaussian(z, 0.01, 100), 8.0, 1e-6, unit=Element())
    assert mean.noise_multiplier == event.parameter
    sums = event.parameter * Bands.best(8, 100).prefix_error(100)
    assert mean.prefix_noise == pytest.approx(sums)
    assert means[0].prefix_noise == pytest.approx(alone.parameter * math.sqrt(101 / 2))
    assert mean.prefix_noise < 0.7 * means[0].prefix_noise
    assert isinstance(mean.event, BandedGaussian)
    assert 7.9 < mean.event.epsilon(1e-6) <= 8.0


@pytest.mark.parametrize("unit", [User(), User(max_elements=3)])
def test_best_noise_is_independent_when_bands_do_not_pay(unit: User) -> None:
    numbers = {"epsilon": 1.0, "delta": 1e-6, "n_users": 1, "rounds": 20, "sampling_rate": 0.5}
    mean = best(band_candidates(most=4, **numbers, unit=unit, relation="replace"))
    assert mean.bands == 1
    assert isinstance(mean.event, SampledGaussian)
