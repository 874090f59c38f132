"""The recentred mean under the contract of all means, its choice of radii, and its audit."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.special import logsumexp, ndtri
from scipy.stats import beta

from aggregator_contract import BLOCKS, DIMENSION, AggregatorContract, Array
from dpgrain.accounting import Gaussian
from dpgrain.aggregators import Aggregator, Vectors
from dpgrain.aggregators import recentred as module
from dpgrain.aggregators.grid import exactly_noised
from dpgrain.aggregators.recentred import Recentred
from dpgrain.errors import ParameterError
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.units import Record, Relation, User

# Each statistical assertion fails by chance with probability below this.
CHANCE = 1e-7


class Contract(AggregatorContract):
    """What recentred means have in common: a block is a user."""

    users = BLOCKS
    options: ClassVar[dict[str, Any]] = {}

    def make(self, rounds: int = 3, **options: Any) -> Aggregator:
        values = {"radius": 2.0, "noise_multiplier": 0.5, "n_users": BLOCKS, "rounds": rounds}
        return Recentred(**{**values, **self.options, **options})

    def sensitivity(self, mean: Aggregator, relation: Relation) -> float:
        assert isinstance(mean, Recentred)
        return (1 if relation == "zero_out" else 2) * mean.radius / mean.n_users

    def sd(self, mean: Aggregator) -> float:
        assert isinstance(mean, Recentred)
        return mean.noise_sd


class TestFixedRadius(Contract):
    pass


class TestSlowlyMoved(Contract):
    options: ClassVar[dict[str, Any]] = {"weight": 0.1}


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_no_neighbour_moves_later_rounds_farther(relation: Relation) -> None:
    # Around any public centre; a removed user has no vector, and counts as the centre.
    rng, largest = np.random.default_rng(1), 0.0
    bound = (1 if relation == "zero_out" else 2) * 2.0 / BLOCKS
    for _ in range(60):
        centre = tuple(rng.normal(size=DIMENSION) * 10.0 ** rng.integers(-2, 4))
        mean = Recentred(2.0, 0.5, BLOCKS, centre=centre)
        vectors = rng.normal(size=(BLOCKS, DIMENSION)) * 10.0 ** rng.integers(-2, 9)
        vectors += rng.choice([0.0, 1.0]) * np.array(centre)
        other = vectors[1:]
        if relation == "replace":
            other = np.vstack([2 * np.array(centre) - vectors[:1], other])
        seed = int(rng.integers(1000))
        ends = [mean.start(SeededSource(seed)).estimate(Vectors(v)) for v in (vectors, other)]
        largest = max(largest, float(np.linalg.norm(ends[0] - ends[1])))
    assert 0.9 * bound < largest <= bound * (1 + 1e-6)


def test_rounds_follow_what_was_published() -> None:
    mean = Recentred(1.0, 2.0**-10, BLOCKS, rounds=40)
    run = mean.start(SeededSource(1))
    users = Vectors(np.full((BLOCKS, DIMENSION), 5.0))
    ends = [run.estimate(users) for _ in range(40)]
    # Each round moves by at most the radius: 8.66 away, the users are reached after 9.
    assert np.linalg.norm(ends[0]) < 1.1
    assert np.linalg.norm(ends[-1] - 5.0) < 0.02


def test_weights_hold_the_centre_back() -> None:
    users = Vectors(np.full((BLOCKS, DIMENSION), 5.0))
    still = Recentred(1.0, 2.0**-10, BLOCKS, rounds=9, weight=0.0).start(SeededSource(1))
    ends = [still.estimate(users) for _ in range(9)]
    assert max(np.linalg.norm(end) for end in ends) < 1.1


def test_users_without_data_count_as_the_centre() -> None:
    mean = Recentred(4.0, 2.0**-10, 2 * BLOCKS, centre=1.0)
    found = mean.start(SeededSource(1)).estimate(Vectors(np.full((BLOCKS, DIMENSION), 3.0)))
    assert np.allclose(found, 2.0, atol=0.01)


def test_unequal_shares_cost_what_equal_ones_do() -> None:
    shares = (0.1, 0.2, 0.7)
    mean = Recentred(1.0, 3.0, 10, 3, shares)
    squares = sum(mean.multiplier(t) ** -2 for t in range(3))
    assert squares == pytest.approx(3 / 3.0**2)
    parts = [Gaussian(mean.multiplier(t), module._USERS) for t in range(3)]
    whole = parts[0] + parts[1] + parts[2]
    assert whole.epsilon(1e-6) == pytest.approx(mean.event.epsilon(1e-6))
    # The noise that is drawn is that of the share.
    run = Recentred(1.0, 3.0, 1, 3, shares).start(SystemSource())
    noise = [run.estimate(Vectors(np.zeros((1, 40_000)))) for _ in range(3)]
    assert noise[0].std() == pytest.approx(mean.multiplier(0), rel=0.03)
    assert (noise[2] - noise[1]).std() == pytest.approx(mean.multiplier(2), rel=0.03)


def test_radii_are_chosen_by_the_exponential_mechanism() -> None:
    # A few users: the law of the choice, against its formula.
    vectors = np.array([[0.2], [0.5], [3.0]])
    mean = Recentred(4.0, 1.0, 3, rounds=1, choice_scale=0.7, stretch=1.0)
    radii, times = mean.radii(), 6000
    source = SystemSource()
    counts = np.zeros(len(radii))
    for _ in range(times):
        run = mean.start(source)
        run.estimate(Vectors(vectors))
        counts[int(np.abs(radii - run.radii[0]).argmin())] += 1
    inside = (np.abs(vectors) <= radii).sum(axis=0)
    scores = -np.maximum(inside, 3 - inside) / 0.7
    law = np.exp(scores - logsumexp(scores))
    # Pooled between the users' distances, where the law is flat.
    for part in (radii < 0.2, (radii >= 0.2) & (radii < 0.5), (radii >= 0.5) & (radii < 3)):
        hits, share = counts[part].sum(), law[part].sum()
        low = beta.ppf(CHANCE / 2, hits, times - hits + 1)
        high = beta.ppf(1 - CHANCE / 2, hits + 1, times - hits)
        assert low < share < high


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_scores_of_radii_move_by_one(relation: Relation) -> None:
    rng, seen = np.random.default_rng(2), set()

    def scores(distances: Array) -> Array:
        inside = (distances[:, None] <= grid).sum(axis=0)
        found: Array = -np.maximum(inside, len(distances) - inside).astype(float)
        return found

    grid = np.geomspace(0.1, 10, 30)
    for _ in range(300):
        distances = rng.exponential(size=7) * 10.0 ** rng.integers(-1, 2)
        other = distances[1:]
        if relation == "replace":
            other = np.append(other, rng.exponential() * 10.0 ** rng.integers(-1, 2))
        seen |= set(scores(other) - scores(distances))
    # A removed user moves scores one way, which halves the cost; an exchanged one either way.
    assert seen == ({0.0, 1.0} if relation == "zero_out" else {-1.0, 0.0, 1.0})


def test_zoom_finds_users_far_from_the_start() -> None:
    rng = np.random.default_rng(3)
    users = 40.0 + rng.normal(size=(4000, 20))
    mean = Recentred.calibrate(
        epsilon=1.0,
        delta=1e-6,
        n_users=4000,
        rounds=4,
        radius=1000.0,
        shares=(0.02, 0.04, 0.08, 0.86),
        choose=True,
        relation="replace",
    )
    run = mean.start(SeededSource(4))
    for _ in range(4):
        found = run.estimate(Vectors(users))
    assert 4 < run.radii[-1] < 7
    noise = mean.multiplier(3) * run.radii[-1] / 4000 * math.sqrt(20)
    assert np.linalg.norm(found - users.mean(axis=0)) < 2 * noise < 0.5


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("choose", [False, True])
def test_calibration_keeps_the_promise(relation: Relation, choose: bool) -> None:
    mean = Recentred.calibrate(
        epsilon=1.0,
        delta=1e-6,
        n_users=100,
        rounds=20,
        radius=3.0,
        relation=relation,
        choose=choose,
    )
    assert 0.999 < mean.event.epsilon(1e-6, relation=relation) <= 1.0
    if choose:
        fixed = Recentred.calibrate(
            epsilon=1.0, delta=1e-6, n_users=100, rounds=20, radius=3.0, relation=relation
        )
        # Choices take 3% of the budget as zCDP; the bound on their sum with the noise takes more.
        assert 1.01 < mean.noise_multiplier / fixed.noise_multiplier < 1.1
    # A record of a user costs no less than the user does when exchanged.
    record = mean.event.epsilon(1e-6, unit=Record())
    assert record == pytest.approx(mean.event.epsilon(1e-6, relation="replace", unit=User()))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"radius": 0.0}, "radius must be finite and above 0"),
        ({"radius": 1e200}, "radius must lie between"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be finite and above 0"),
        ({"noise_multiplier": 1e12}, "noise_multiplier must lie between"),
        ({"n_users": 0}, "n_users must be a whole number"),
        ({"rounds": 0}, "rounds must be a whole number"),
        ({"weight": 1.5}, "weight must lie in"),
        ({"choice_scale": -1.0}, "choice_scale must be finite and at least 0"),
        ({"stretch": 0.0}, "stretch must be finite and above 0"),
        ({"centre": math.inf}, "centre must be finite"),
        ({"shares": (0.5,)}, "shares must be 2, one for each round"),
        ({"shares": (0.5, 0.6)}, "shares must be 2, one for each round"),
    ],
)
def test_wrong_parameters_say_so(wrong: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {"radius": 1.0, "noise_multiplier": 1.0, "n_users": 10, "rounds": 2}
    with pytest.raises(ParameterError, match=message):
        Recentred(**{**values, **wrong})


# -- a statistical audit: one user far away, in many coordinates of their own --


def claimed_mu(mean: Recentred) -> float:
    return mean.event.loss().mu


def audit(mean: Recentred, trials: int = 60_000) -> float:
    """A lower bound on the distance in sds, of all rounds with one user there or not."""
    # Two users on opposite sides in each coordinate would share its clip; a user alone has it all,
    # so each trial is a run of its own in one dimension, all with one source.
    scores = np.empty((2, trials))
    source = SystemSource()
    present, absent = Vectors(np.array([[1e6]])), Vectors(np.zeros((0, 1)))
    each = trials // 30
    for row, users in enumerate((present, absent)):
        for i in range(each):
            run = mean.start(source)
            centre = score = 0.0
            for _ in range(mean.rounds):
                found = float(run.estimate(users)[0])
                # What the user adds is known: a radius from the centre that was published.
                score += found - centre
                centre += mean.weight * (found - centre)
            scores[row, i] = score
    some, none = scores[0, :each], scores[1, :each]
    threshold = float(np.median(np.concatenate([some, none])))
    hits, false = int((some >= threshold).sum()), int((none >= threshold).sum())
    low = beta.ppf(CHANCE / 2, hits, each - hits + 1)
    high = beta.ppf(1 - CHANCE / 2, false + 1, each - false)
    return float(ndtri(low) - ndtri(high))


AUDITED = Recentred(2.0, 2.0, 10, 4)


def test_audit_stays_below_the_claim() -> None:
    assert 0.6 * claimed_mu(AUDITED) < audit(AUDITED) <= claimed_mu(AUDITED)


def test_audit_finds_half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    real = exactly_noised
    monkeypatch.setattr(
        module, "exactly_noised", lambda c, r, z, s, centre: real(c, r, z / 2, s, centre=centre)
    )
    assert audit(AUDITED) > claimed_mu(AUDITED)


def test_audit_finds_a_missing_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    real = exactly_noised
    monkeypatch.setattr(
        module,
        "exactly_noised",
        lambda c, r, z, s, centre: real(c, 2 * r, z / 2, s, centre=centre),
    )
    assert audit(AUDITED) > claimed_mu(AUDITED)
