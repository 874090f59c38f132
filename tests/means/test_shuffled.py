"""Shuffled means under the contract of all means, and the users of each round."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.apart import mu_below
from tests.refusals import refuses

from dpgrain.accounting import Contribution, Gaussian
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean, Mean, Vectors
from dpgrain.means.shuffled import Interaction, Shuffled
from dpgrain.noise import SystemSource
from dpgrain.publishing.facts import Fact
from dpgrain.testing.mean_contract import DIMENSION, OWNERS, USERS, Array, MeanContract
from dpgrain.units import Relation, User

CLIP = 2.0
INTERACTIONS: tuple[Interaction, ...] = ("sequential", "full")
PROMISE: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "dimension": DIMENSION, "clip": CLIP}


class Contract(MeanContract):
    attained = 0.6
    options: ClassVar[dict[str, Any]] = {}

    def make(self, rounds: int = 3, **options: Any) -> Mean:
        return Shuffled.calibrate(
            **{**PROMISE, "n_users": USERS, "rounds": rounds, **self.options, **options}
        )

    def mean(self, given: Mean) -> Shuffled:
        assert isinstance(given, Shuffled)
        return given

    def sensitivity(self, mean: Mean, relation: Relation) -> float:
        mean = self.mean(mean)
        protocol = mean.protocol
        # Users round with separate randomness: with the same seed a changed vector moves every
        # coordinate by at most a grid step more than the vector itself.
        step = protocol.encoding.step
        moved = CLIP if relation == "zero_out" else 2 * CLIP
        return (moved + step * math.sqrt(DIMENSION)) / mean.batch

    @property
    def units(self) -> int:
        return USERS

    def changed(self, vectors: Array, unit: int, to: Array | None) -> Array:
        other = vectors.copy()
        other[unit == OWNERS] = 0.0 if to is None else to
        return other


class TestFull(Contract):
    options: ClassVar[dict[str, Any]] = {"interaction": "full"}

    def test_more_rounds_cost_more(self) -> None:
        few, many = (self.mean(self.make(rounds=rounds)) for rounds in (2, 5))
        assert few.protocol.event_with(USERS, rounds=5).epsilon(1e-6) > 1.2 * 4.0
        for mean in (few, many):
            assert 0.9 * 4.0 < mean.event.epsilon(1e-6) <= 4.0
        assert many.noise_sd / few.noise_sd == pytest.approx(math.sqrt(5 / 2), rel=0.05)


class TestFullPoisson(TestFull):
    options: ClassVar[dict[str, Any]] = {"interaction": "full", "protocol": "poisson"}


class TestSequential(Contract):
    def test_more_rounds_cost_more(self) -> None:
        # They cost the same: each has separate users, fewer with more rounds.
        few, many = (self.mean(self.make(rounds=rounds)) for rounds in (2, 3))
        assert (few.batch, many.batch) == (3, 2)
        for mean in (few, many):
            assert 0.9 * 4.0 < mean.event.epsilon(1e-6) <= 4.0
        assert many.noise_sd / few.noise_sd == pytest.approx(3 / 2, rel=0.05)


class TestSequentialPoisson(TestSequential):
    options: ClassVar[dict[str, Any]] = {"protocol": "poisson"}


# -- users of each round --


def quiet(n_users: int, rounds: int, dimension: int, **options: Any) -> Shuffled:
    promise = {"epsilon": 5000.0, "delta": 0.1, "n_users": n_users, "rounds": rounds}
    return Shuffled.calibrate(**{**promise, "dimension": dimension, **options})


def test_each_round_uses_the_next_users_only_once() -> None:
    # In any order, some without data, one with two blocks, some who are not on the roster.
    owners = np.array([9, 4, 0, 6, 4, -1, 10, 3, 8])
    mean = quiet(10, 3, len(owners))
    assert (mean.batch, mean.rounds) == (3, 3)
    run = mean.start(SystemSource(), owners)
    found = np.array([run.estimate(Vectors(np.eye(9))) for _ in range(3)]) * 3
    # Users 0 to 2, 3 to 5, 6 to 8, both blocks of the fourth together; the last one never
    # participates.
    expected = np.zeros((3, 9))
    expected[[0, 1, 2, 2], [2, 7, 3, 8]] = 1
    expected[1, [1, 4]] = math.sqrt(1 / 2)
    assert np.abs(found - expected).max() < 10 * mean.noise_sd * 3 < 0.5
    assert Fact("unused-users", (1,)) in mean.facts
    with refuses("rounds", "3"):
        run.estimate(Vectors(np.eye(9)))


def test_all_users_participate_in_every_round() -> None:
    mean = quiet(4, 2, 3, interaction="full")
    for owners in (None, np.array([2, 0, 1])):
        run = mean.start(SystemSource(), owners)
        for _ in range(2):
            found = run.estimate(Vectors(np.eye(3) / 2))
            assert np.abs(found - 1 / 8).max() < 0.05
    # Users outside the list never participate.
    run = mean.start(SystemSource(), np.array([-1, 4, 3]))
    assert np.abs(run.estimate(Vectors(np.eye(3) / 2)) - [0, 0, 1 / 8]).max() < 0.05


@pytest.mark.parametrize("interaction", INTERACTIONS)
def test_blocks_of_a_user_are_one_vector(interaction: Interaction) -> None:
    mean = quiet(1, 1, 2, interaction=interaction)
    run = mean.start(SystemSource(), np.zeros(3, dtype=int))
    found = run.estimate(Vectors([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], dimension=2))
    assert np.abs(found - [0.6, 0.8]).max() < 10 * mean.noise_sd < 0.5
    # Overflowing values silently count as zero.
    run = mean.start(SystemSource(), np.zeros(2, dtype=int))
    assert np.abs(run.estimate(Vectors([[1e308, 1.0], [1e308, 1.0]], dimension=2))).max() < 0.5


def test_the_order_of_blocks_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    vectors, owners, order = rng.normal(size=(40, 3)), np.arange(40), rng.permutation(40)
    mean = quiet(40, 4, 3)
    one, two = mean.start(SystemSource(), owners), mean.start(SystemSource(), owners[order])
    for _ in range(4):
        pair = one.estimate(Vectors(vectors)), two.estimate(Vectors(vectors[order]))
        assert np.abs(pair[0] - pair[1]).max() < 0.1


def test_noise_is_nearly_a_curators() -> None:
    for relation in ("zero_out", "replace"):
        promise: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "relation": relation}
        for interaction, batch, rounds in (("sequential", 500, 1), ("full", 2000, 4)):
            of_all: Any = {"n_users": 2000, "rounds": 4, "interaction": interaction}
            mean = Shuffled.calibrate(**promise, **of_all, dimension=5)
            central = ClippedMean.calibrate(**promise, n_users=batch, rounds=rounds, unit=User())
            assert 1.0 < mean.noise_sd / central.noise_sd < 1.05
            assert mean.event.epsilon(1e-6, relation=relation) <= 1.0


def test_dishonest_users_make_others_add_more_noise() -> None:
    for interaction in INTERACTIONS:
        all_, half = (
            Shuffled.calibrate(
                **PROMISE, n_users=200, rounds=2, interaction=interaction, honest_fraction=share
            )
            for share in (1.0, 0.5)
        )
        assert half.noise_sd / all_.noise_sd == pytest.approx(math.sqrt(2), rel=0.02)
        assert {Fact("honest-devices", (number,)) for number in (50, 100)} & {*half.facts}


def test_other_releases_leave_less_budget() -> None:
    beside = Gaussian(1.0, Contribution("user"))
    promise: dict[str, Any] = {**PROMISE, "epsilon": 8.0, "n_users": 20, "rounds": 2}
    alone, less = Shuffled.calibrate(**promise), Shuffled.calibrate(**promise, beside=beside)
    assert less.noise_sd > alone.noise_sd
    assert (less.event + beside).epsilon(1e-6) <= 8.0 < (alone.event + beside).epsilon(1e-6)


def test_users_of_two_rounds_leak_twice() -> None:
    mean = Shuffled.calibrate(**PROMISE, n_users=30, rounds=3)
    one = mean.protocol.event
    assert mean.event.epsilon(1e-6) == one.epsilon(1e-6)
    # If noise no longer protects anyone: each round leaks independently.
    far = 60.0
    leak = one.delta(far)
    assert 0 < leak < 2e-8
    assert one.delta(far, units=2) == leak
    assert mean.event.delta(far, units=2) >= 2 * leak
    assert Shuffled.calibrate(**PROMISE, n_users=30, rounds=1).event.delta(far, units=2) == leak


# -- parameters --


def test_invalid_numbers_are_reported() -> None:
    users, odd = Vectors(np.zeros((5, 3))), "odd"
    mean = quiet(5, 2, 3)
    other: Any = odd
    for make, message in (
        (lambda: quiet(5, 6, 3), "rounds must be at most n_users = 5"),
        (lambda: quiet(5, 2, 3, interaction=other), "interaction must be one of"),
        (lambda: quiet(5, 2, 3, protocol=other), "protocol must be one of"),
        (lambda: quiet(5, 2, 3, honest_fraction=0.0), "honest_fraction must be above 0"),
        (lambda: quiet(0, 2, 3), "n_users must be an integer"),
        (lambda: quiet(5, 0, 3), "rounds must be an integer"),
        (lambda: quiet(5, 2, 0), "dim must be an integer"),
        (lambda: Shuffled(mean.protocol, 9, 2), "protocol must be for 4 users"),
        (lambda: Shuffled(mean.protocol, 2, 2, "full"), "in 2 rounds each, not for 2 in 1"),
        (lambda: mean.start(SystemSource()), "owners must be integers.*not object"),
        (lambda: mean.start(SystemSource(), np.ones(5)), "owners must be integers.*float64"),
        (
            lambda: mean.start(SystemSource(), np.arange(4)).estimate(users),
            "owners must have one user per block",
        ),
        (
            lambda: quiet(5, 1, 2, interaction="full").start(SystemSource()).estimate(users),
            "2 coordinates as in the protocol",
        ),
    ):
        with pytest.raises(ParameterError, match=message) as found:
            make()
        assert "\n" not in str(found.value)
    # More rounds than users are allowed if all users are in each.
    assert quiet(5, 6, 3, interaction="full").batch == 5


# -- a statistical audit of all published values --

# Each bound of the audit fails by chance with at most this probability.
CHANCE = 2e-8
AUDITED = {
    interaction: Shuffled.calibrate(
        epsilon=8.0,
        delta=1e-6,
        n_users=120,
        rounds=3,
        dimension=120,
        clip=CLIP,
        interaction=interaction,
    )
    for interaction in INTERACTIONS
}


def audit(mean: Shuffled, runs: int = 20) -> float:
    """A lower bound on the distance in sds of all rounds together, with a user there or not.

    Each user has a separate coordinate, with the whole clip: a run has one trial per user.
    """
    seen, n = [], mean.n_users
    for there in (1e6, 0.0):
        rows = []
        for _ in range(runs):
            run = mean.start(SystemSource(), np.arange(n))
            means = [run.estimate(Vectors(np.eye(n) * there)) for _ in range(mean.rounds)]
            rows.append(np.array(means) * mean.batch / mean.clip)
        seen.append(np.concatenate(rows, axis=1))
    own = np.tile(np.arange(n) * mean.rounds // n, runs)
    bounds = []
    # The user's own round, if there is one, and all of them; half of the user's contribution.
    for (some, none), half in (
        ([rows[own, np.arange(rows.shape[1])] for rows in seen], 0.5),
        ([rows.sum(axis=0) for rows in seen], mean.rounds / 2),
    ):
        bounds.append(mu_below(some, none, half, CHANCE))
    return max(bounds)


@pytest.mark.proof("audit", "Parallel", "Binomial")
@pytest.mark.parametrize("interaction", INTERACTIONS)
def test_audit_stays_below_the_claim(interaction: Interaction) -> None:
    mean = AUDITED[interaction]
    claimed = mean.event.loss().mu
    assert 0.55 * claimed < audit(mean) <= claimed
