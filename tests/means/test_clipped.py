"""The clipped mean under the contract of all means, and its statistical audit."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.apart import epsilon_below, mu_below, rates
from tests.refusals import refuses

from dpgrain.accounting import BandedGaussian, SampledGaussian
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean, Contributions, Mean, Vectors, grid, mean_of_users
from dpgrain.means.clipped import ratio, weights
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.testing.mean_contract import BLOCKS, DIMENSION, USERS, Array, MeanContract
from dpgrain.units import Element, Record, Relation, Unit, User

CLIP = 2.0


class Clipped(MeanContract):
    attained = 0.6
    options: ClassVar[dict[str, Any]] = {}

    def make(self, rounds: int = 3, **options: Any) -> Mean:
        values = {"clip": CLIP, "noise_multiplier": 0.5, "n_users": USERS, "rounds": rounds}
        return ClippedMean(**{**values, **self.options, **options})

    def mean(self, given: Mean) -> ClippedMean:
        assert isinstance(given, ClippedMean)
        return given

    def sensitivity(self, mean: Mean, relation: Relation) -> float:
        mean = self.mean(mean)
        assert not isinstance(mean.event, BandedGaussian)
        return mean.event.contribution.sensitivity(1, relation) * mean.clip / mean.divisor


class TestElements(Clipped):
    pass


class TestExact(Clipped):
    options: ClassVar[dict[str, Any]] = {"exact": True}


class TestPairsDrawn(Clipped):
    options: ClassVar[dict[str, Any]] = {"sampling_rate": 0.6}


class TestUsersDrawn(Clipped):
    options: ClassVar[dict[str, Any]] = {"sampling_rate": 0.6, "sampling": "users", "exact": True}


class TestRecords(Clipped):
    options: ClassVar[dict[str, Any]] = {"level": "record", "blocks_per_user": 1.0}


class TestUsers(Clipped):
    options: ClassVar[dict[str, Any]] = {"level": "user"}


class TestBanded(Clipped):
    options: ClassVar[dict[str, Any]] = {"bands": 3, "sampling_rate": 0.2}

    def sensitivity(self, mean: Mean, relation: Relation) -> float:
        mean = self.mean(mean)
        # The change of a matrix column is tested below; this is the change of the sum.
        return (1.0 if relation == "zero_out" else 2.0) * mean.clip / mean.divisor


class TestBandedInTurn(TestBanded):
    options: ClassVar[dict[str, Any]] = {"bands": 3, "sampling_rate": 1 / 3, "sampling": "users"}


def test_exact_sums_do_not_depend_on_order_or_others() -> None:
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(BLOCKS, DIMENSION)) * 10.0 ** rng.integers(-9, 9, (BLOCKS, 1))
    mean = ClippedMean(1.0, 1.0, USERS, 9, exact=True)
    runs = [
        mean.start(SeededSource(5)).estimate(Vectors(rows)) for rows in (vectors, vectors[::-1])
    ]
    assert np.array_equal(runs[0], runs[1])


@pytest.mark.parametrize("noise", [2.0**-10, 2.0**15, 2.0**17, 2.0**30])
def test_exact_sums_accept_every_allowed_noise(noise: float) -> None:
    mean = ClippedMean(3e-5, noise, 10, 1, level="user", exact=True)
    run = mean.start(SystemSource())
    found = run.estimate(Vectors(np.full((10, 2), 1.0)))
    signal = 10 * 3e-5 / math.sqrt(2) / 10
    assert np.abs(found - signal).max() < 8 * mean.noise_sd + 1e-2 * signal


def test_poisson_draws_are_independent_with_the_stated_rate() -> None:
    blocks, rounds, rate = 400, 300, 0.3
    mean = ClippedMean(1.0, 1.0, blocks, rounds, sampling_rate=rate)
    run = mean.start(SeededSource(1))
    drawn = np.zeros((rounds, blocks))
    for i in range(rounds):
        chosen = run.draw(blocks)
        assert chosen is not None
        drawn[i, chosen] = 1
    assert abs(drawn.mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / drawn.size)
    # Sizes of the batches vary like independent draws.
    assert 0.8 < drawn.sum(axis=1).var() / (blocks * rate * (1 - rate)) < 1.25
    assert abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]) < 0.02


def test_drawn_users_bring_all_their_blocks() -> None:
    mean = ClippedMean(1.0, 1.0, 50, 9, sampling_rate=0.5, sampling="users")
    owners = np.arange(200) // 4
    chosen = mean.start(SeededSource(1), owners).draw(200)
    assert chosen is not None
    assert set(np.bincount(owners[chosen], minlength=50)) == {0, 4}


def test_the_divisor_is_public() -> None:
    mean = ClippedMean(1.0, 1.0, 50, 9, sampling_rate=0.5, blocks_per_user=3.0)
    assert mean.divisor == 75
    # For any blocks, the noise of the mean is the same.
    runs = [
        mean.start(SeededSource(2)).estimate(Vectors(np.zeros((blocks, 2)))) for blocks in (1, 1)
    ]
    assert np.array_equal(runs[0], runs[1])
    assert mean.noise_sd == 1 / 75


@pytest.mark.parametrize(
    "unit", [Record(), Element(), User(), User(max_elements=3)], ids=lambda unit: repr(unit)
)
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_calibration_keeps_the_promise(unit: Unit, relation: Relation, rate: float) -> None:
    mean = ClippedMean.calibrate(
        epsilon=1.0,
        delta=1e-6,
        n_users=100,
        rounds=20,
        unit=unit,
        relation=relation,
        sampling_rate=rate,
    )
    found = mean.event.epsilon(1e-6, relation=relation, unit=unit)
    assert 0.999 < found <= 1.0
    kept = isinstance(unit, User) and unit.max_elements
    assert mean.level == ("element" if kept else unit.level)
    assert mean.event.rounds == mean.rounds == 20


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clip": 0.0}, "clip must be positive and finite"),
        ({"clip": 1e200}, "clip must be between"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be positive and finite"),
        ({"noise_multiplier": 1e10}, "noise_multiplier must be between"),
        ({"n_users": 0}, "n_users must be an integer"),
        ({"rounds": 0}, "rounds must be an integer"),
        ({"sampling_rate": 0.0}, "sampling_rate must be above 0"),
        ({"sampling_rate": 1.5}, "sampling_rate must "),
        ({"sampling": "shuffled"}, "only independent draws"),
        ({"blocks_per_user": 0}, "blocks_per_user must be positive and finite"),
        ({"level": "row"}, "level must be one of"),
    ],
)
def test_invalid_parameters_are_reported(wrong: dict[str, Any], message: str) -> None:
    values = {"clip": 1.0, "noise_multiplier": 1.0, "n_users": 10, "rounds": 2}
    with pytest.raises(ParameterError, match=message):
        ClippedMean(**{**values, **wrong})


@pytest.mark.slow
def test_error_of_a_mean_over_noisy_number_is_reported() -> None:
    # The mean stays so far within the bound that it is never shortened to it.
    truth = np.full(4, 0.42)
    asked: dict[str, Any] = {"bound": 1.0, "epsilon": 1.0, "delta": 1e-6}
    found = [
        mean_of_users(np.tile(truth, (300, 1)), **asked, method="clip", random_state=seed)
        for seed in range(300)
    ]
    off = np.array([one.value for one in found]) - truth
    told = float(np.mean([one.std_error for one in found]))
    assert math.sqrt(float((off**2).mean())) == pytest.approx(told, rel=0.1)


@pytest.mark.parametrize("d", [1, 4, 64])
def test_standard_error_of_a_ratio_includes_its_divisor(d: int) -> None:
    """The root of the mean square over coordinates, of 2,000 draws of the noise."""
    n, sd, rng = 300, 5.0, np.random.default_rng(d)
    exact = n * np.append(np.full(d, 0.9 / math.sqrt(d)), weights(1.0, d).weight)
    noisy = exact + sd * rng.normal(size=(2000, d + 1))
    found = [ratio(sums, sd, 1.0, None) for sums in noisy]
    off = np.array([one.value for one in found]) - exact[:-1] / n
    told = float(np.mean([one.noise_sd for one in found]))
    assert math.sqrt(float((off**2).mean())) == pytest.approx(told, rel=0.05)


def test_users_cannot_be_drawn_without_owners() -> None:
    mean = ClippedMean(1.0, 1.0, 10, 2, sampling_rate=0.5, sampling="users")
    with refuses("owners", "required"):
        mean.start(SeededSource(1))


# -- a statistical audit: every user has a coordinate, so one run is many independent trials --

TRIALS = 100_000


class OneCoordinateEach:
    """Contributions of users with some blocks, each on a separate coordinate."""

    def __init__(self, users: int, held: int, value: float) -> None:
        self.dimension, self.blocks = users, users * held
        self._held, self._value = held, value

    def vectors(self, drawn: NDArray[np.intp] | None = None) -> Array:
        raise NotImplementedError("as a matrix they would be too many")

    def clipped_sum(self, clip: float, drawn: NDArray[np.intp] | None = None) -> Array:
        # By the module's own name, so that a bug seeded there is seen.
        added = float(vars(grid)["clipped"](np.array([[self._value]]), clip)[0, 0])
        which = np.arange(self.blocks) if drawn is None else drawn
        counts = np.bincount(which // self._held, minlength=self.dimension)
        return added * counts.astype(np.float64)


def published(mean: ClippedMean, held: int, value: float = 30.0, trials: int = TRIALS) -> Array:
    """(trials, rounds): the noisy sums of users with n blocks, in clipping bounds."""
    contributions: Contributions = OneCoordinateEach(trials, held, value * mean.clip)
    owners = np.arange(contributions.blocks) // held
    run = mean.start(SystemSource(), owners)
    rounds = [run.estimate(contributions) for _ in range(mean.rounds)]
    return np.transpose(rounds) * mean.divisor / mean.clip


def epsilon_at(present: Array, absent: Array, share: float) -> float:
    """A lower bound on ε at δ = 1e-5, from scores and the accepted share."""
    return epsilon_below(present, absent, float(np.quantile(present, 1 - share)), delta=1e-5)


def delta_below(present: Array, absent: Array, epsilon: float) -> float:
    cuts = np.quantile(present, np.linspace(0.05, 0.95, 10))
    pairs = [rates(present, absent, float(cut)) for cut in cuts]
    return max(low - math.exp(epsilon) * high for low, high in pairs)


def claimed_mu(mean: ClippedMean, unit: Unit | None = None) -> float:
    return mean.event.loss(unit=unit).mu


FULL = ClippedMean(2.0, 3.0, 10, 4)


@pytest.mark.proof("audit", "SampledGaussian")
def test_audit_of_full_rounds() -> None:
    found = mu_below(published(FULL, 1).sum(axis=1), published(FULL, 1, 0.0).sum(axis=1))
    # The sd of the rounds' sum is √4 noise sds.
    assert 0.9 * claimed_mu(FULL) < found <= claimed_mu(FULL)


DRAWN = ClippedMean(2.0, 1.5, 10, 6, sampling_rate=0.2)


def pair_scores(mean: ClippedMean, sums: Array) -> Array:
    """The log likelihood ratio of one block sampled with the rate against its absence."""
    q, sd = mean.sampling_rate, mean.noise_multiplier
    scores: Array = np.log1p(q * np.expm1((sums - 0.5) / sd**2)).sum(axis=1)
    return scores


def audit_pairs(mean: ClippedMean) -> float:
    present, absent = (pair_scores(mean, published(mean, 1, value)) for value in (30.0, 0.0))
    return max(epsilon_at(present, absent, share) for share in (0.01, 0.05, 0.2))


@pytest.mark.proof("audit", "SampledGaussian")
def test_audit_of_drawn_pairs() -> None:
    claimed = DRAWN.event.epsilon(1e-5)
    assert 0.3 * claimed < audit_pairs(DRAWN) <= claimed
    # For a small ε almost all of the claim is visible, and 1.2 times the rate would be.
    present, absent = (pair_scores(DRAWN, published(DRAWN, 1, value)) for value in (30.0, 0.0))
    found = {at: delta_below(present, absent, at) / DRAWN.event.delta(at) for at in (0.0, 0.2, 0.5)}
    assert max(found.values()) <= 1
    assert found[0.0] > 0.8


@pytest.mark.slow
def test_audit_finds_users_charged_as_pairs() -> None:
    held, mean = 11, ClippedMean(1.0, 2.0, 10, 100, sampling_rate=0.1, sampling="users")
    billed = SampledGaussian(2.0, 0.1, 100).epsilon(1e-5)

    def scores(there: int) -> Array:
        """The log likelihood ratio of one element, in the rounds with visible other elements."""
        sums = published(mean, there, trials=20_000)
        seen = sums > (held - 1) / 2
        ratios: Array = np.where(seen, sums - held + 0.5, 0.0) / mean.noise_multiplier**2
        total: Array = ratios.sum(axis=1)
        return total

    found = epsilon_at(scores(held), scores(held - 1), 0.05)
    assert billed < found <= mean.event.epsilon(1e-5)
