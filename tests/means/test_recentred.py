"""The recentred mean under the contract of all means, its choice of radii, and its audit."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import chisquare
from tests.apart import mu_below

from dpgrain.accounting import Gaussian
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.errors import ParameterError
from dpgrain.means import Mean, Vectors
from dpgrain.means import recentred as module
from dpgrain.means.clipped import weights
from dpgrain.means.grid import exactly_noised
from dpgrain.means.recentred import Recentred, RecentredRounds, radius_scores
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.testing.mean_contract import BLOCKS, DIMENSION, Array, MeanContract
from dpgrain.units import Record, Relation, User

# Each statistical assertion fails by chance with probability below this.
CHANCE = 1e-7


class Contract(MeanContract):
    attained = 0.6
    users = BLOCKS
    options: ClassVar[dict[str, Any]] = {}

    def make(self, rounds: int = 3, **options: Any) -> Mean:
        values = {"radius": 2.0, "noise_multiplier": 0.5, "n_users": BLOCKS, "rounds": rounds}
        return Recentred(**{**values, **self.options, **options})

    def sensitivity(self, mean: Mean, relation: Relation) -> float:
        assert isinstance(mean, Recentred)
        return (1 if relation == "zero_out" else 2) * mean.round_radius(0) / mean.n_users


class TestFixedRadius(Contract):
    pass


class TestSlowlyMoved(Contract):
    options: ClassVar[dict[str, Any]] = {"weight": 0.1}


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_no_neighbour_moves_the_check_farther(
    relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user moves what is left out, and the sum to the bound, by at most the noise's scale."""
    rng, seen = np.random.default_rng(5), []
    ratios: dict[str, list[float]] = {"check": [], "all": []}
    real = exactly_noised

    def watched(c: Any, r: float, z: Gaussian, s: Any, **more: Any) -> Array:
        found = real(c, r, z, s, **more)
        if "centre" not in more:
            seen.append((found, r, z))
        return found

    monkeypatch.setattr(module, "exactly_noised", watched)
    for trial in range(200):
        centre = tuple(rng.normal(size=DIMENSION) * 10.0 ** rng.integers(-2, 2))
        mean = Recentred(2.0, 0.5, BLOCKS, bound=5.0, check=1e-2, centre=centre)
        vectors = rng.normal(size=(BLOCKS, DIMENSION)) * 10.0 ** rng.integers(-2, 9)
        # A user opposite of the centre, at the bound, or much farther.
        away = -np.array(centre) / np.linalg.norm(centre) * 5.0 * 10.0 ** rng.integers(0, 3)
        vectors[0] = away if trial % 2 else vectors[0]
        other = vectors[1:]
        if relation == "replace":
            other = np.vstack([[centre], other])
        seen.clear()
        for each in (vectors, other):
            mean.start(SeededSource(trial)).estimate(Vectors(each))
        checks = [each for each in seen if each[2].noise_multiplier == 1e-2]
        sums = [each for each in seen if each[2].noise_multiplier == 0.5]
        for name, pair in (("check", checks), ("all", sums)):
            if len(pair) == 2:
                (one, most, _), (two, same, _) = pair
                assert most == same
                ratios[name].append(float(np.linalg.norm(one - two)) / most)
    largest = 1.0 if relation == "zero_out" else 2.0
    for name in ratios:
        assert 0.8 * largest < max(ratios[name]) <= largest + 0.1


@pytest.mark.parametrize("check", [0.0, 0.3])
def test_the_check_is_paid_for(check: float) -> None:
    mean = Recentred.calibrate(
        epsilon=1.0,
        delta=1e-6,
        n_users=100,
        rounds=4,
        radius=3.0,
        choose=True,
        bound=8.0,
        check=check,
    )
    assert 0.999 < mean.event.epsilon(1e-6) <= 1.0
    plain = Gaussian(mean.noise_multiplier, ONE_EACH, 4)
    paid = [part for part in mean.event.parts if isinstance(part, Gaussian)]
    assert paid == [plain, *([Gaussian(mean.check, ONE_EACH)] if check else [])]
    if check:
        share = mean.check**-2 / (mean.check**-2 + 4 / mean.noise_multiplier**2)
        assert share == pytest.approx(check)


def test_last_round_uses_everything_if_much_is_clipped() -> None:
    mean = Recentred(1.0, 0.5, 1000, rounds=2, bound=10.0, check=1.0, beyond=0.01)
    near = np.full((1000, 2), 0.1)
    far = np.where(np.arange(1000)[:, None] < 100, 6.0, near)
    alarms = 0
    for seed in range(10):
        run = RecentredRounds(mean, SeededSource(seed), 1000)
        for _ in range(2):
            found = run.estimate(Vectors(near))
        alarms += run.clipped is not None
        assert np.linalg.norm(run.rest - 1000 * run.centre) < 6 * weights(10.0, 2).norm
        run = RecentredRounds(mean, SeededSource(seed), 1000)
        for _ in range(2):
            found = run.estimate(Vectors(far))
        assert run.clipped is not None
        assert run.radius == run.clipped.radius == 10.0
        assert np.allclose(found, 0.69, atol=0.1)
    # One in forty is a false alarm.
    assert alarms <= 2


def test_symmetric_clipping_counts_little() -> None:
    # Users outside who cancel do not move the mean: the check is of their sum, not of their number.
    mean = Recentred(1.0, 0.5, 1000, bound=10.0, check=1.0, beyond=0.01)
    both = np.zeros((1000, 1))
    both[:100], both[100:200] = 9.0, -9.0
    run = RecentredRounds(mean, SeededSource(1), 1000)
    run.estimate(Vectors(both))
    assert run.clipped is None
    both[100:200] = 0.0
    run = RecentredRounds(mean, SeededSource(1), 1000)
    run.estimate(Vectors(both))
    assert run.clipped is not None


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


def test_rounds_follow_the_published_values() -> None:
    mean = Recentred(1.0, 2.0**-10, BLOCKS, rounds=40)
    run = mean.start(SeededSource(1))
    users = Vectors(np.full((BLOCKS, DIMENSION), 5.0))
    ends = [run.estimate(users) for _ in range(40)]
    # Each round moves by at most the radius: 8.66 away, the users are reached after 9.
    assert np.linalg.norm(ends[0]) < 1.1
    assert np.linalg.norm(ends[-1] - 5.0) < 0.02


def test_weights_damp_the_centre() -> None:
    users = Vectors(np.full((BLOCKS, DIMENSION), 5.0))
    still = Recentred(1.0, 2.0**-10, BLOCKS, rounds=9, weight=0.0).start(SeededSource(1))
    ends = [still.estimate(users) for _ in range(9)]
    assert max(np.linalg.norm(end) for end in ends) < 1.1


def test_users_without_data_count_as_the_centre() -> None:
    mean = Recentred(4.0, 2.0**-10, 2 * BLOCKS, centre=1.0)
    found = mean.start(SeededSource(1)).estimate(Vectors(np.full((BLOCKS, DIMENSION), 3.0)))
    assert np.allclose(found, 2.0, atol=0.01)


def test_unequal_shares_cost_as_much_as_equal_ones() -> None:
    shares = (0.1, 0.2, 0.7)
    mean = Recentred(1.0, 3.0, 10, 3, shares)
    squares = sum(mean.multiplier(t) ** -2 for t in range(3))
    assert squares == pytest.approx(3 / 3.0**2)
    parts = [Gaussian(mean.multiplier(t), ONE_EACH) for t in range(3)]
    whole = parts[0] + parts[1] + parts[2]
    assert whole.epsilon(1e-6) == pytest.approx(mean.event.epsilon(1e-6))
    # The drawn noise is the share's.
    run = Recentred(1.0, 3.0, 1, 3, shares).start(SystemSource())
    noise = [run.estimate(Vectors(np.zeros((1, 40_000)))) for _ in range(3)]
    assert noise[0].std() == pytest.approx(mean.multiplier(0), rel=0.03)
    assert (noise[2] - noise[1]).std() == pytest.approx(mean.multiplier(2), rel=0.03)


def first_of(distances: Array, radii: Array) -> NDArray[np.int64]:
    """Numbers of users first within each radius, and finally of users in none."""
    return np.bincount(np.searchsorted(radii, distances), minlength=len(radii) + 1)


@pytest.mark.parametrize("shares", [None, (0.05, 0.95), (0.8, 0.2)])
def test_each_round_has_the_reported_noise(shares: tuple[float, ...] | None) -> None:
    run = Recentred(3.0, 0.7, n_users=50, rounds=2, shares=shares).start(SeededSource(4))
    for _ in range(2):
        # All users are at 0, within the radius of both centres, so the result is noise.
        found = run.estimate(Vectors(np.zeros((50, 400))))
        assert found.std() == pytest.approx(run.noise_sd, rel=0.15)


@pytest.mark.slow
def test_radii_are_chosen_by_the_exponential_mechanism() -> None:
    # The centre stays at 0: first a query at the median, then a last one, against their formulas.
    distances = np.array([0.2, 0.3, 0.5, 0.8, 1.1, 1.2, 1.3, 3.0, 3.2, 50.0])
    mean = Recentred(4.0, 1.0, 12, rounds=2, weight=0.0, choice_scale=0.7, beyond=0.2)
    radii, times, source = mean.choices(), 3000, SystemSource()
    chosen = np.zeros((2, len(radii)))
    for _ in range(times):
        run = mean.start(source)
        for look in range(2):
            run.estimate(Vectors(distances[:, None]))
            chosen[look, np.flatnonzero(radii == run.radii[look])[0]] += 1
    for counts, beyond in zip(chosen, (0.5, 0.2), strict=True):
        scores = radius_scores(first_of(distances, radii), 12, beyond) / (1024 * mean.choice_scale)
        law = np.exp(scores - logsumexp(scores))
        # Ten neighbourhoods of radii, each about as likely.
        parts = np.minimum(np.cumsum(law) * 10, 9.5).astype(int)
        met, expected = (np.bincount(parts, each, minlength=10) for each in (counts, law * times))
        assert expected.min() > 100
        assert chisquare(met, expected).pvalue > CHANCE / 2


@pytest.mark.parametrize("beyond", [0.5, 0.2, 0.01])
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_scores_of_radii_move_by_one(relation: Relation, beyond: float) -> None:
    rng, least, most = np.random.default_rng(2), 0, 0
    radii = Recentred(10.0, 1.0, 7, choice_scale=1.0).choices()

    def scores(distances: Array) -> NDArray[np.int64]:
        return radius_scores(first_of(distances, radii), 7, beyond)

    for trial in range(300):
        # Some at the same place, some beyond all radii, some nearer than the smallest.
        distances = rng.exponential(size=7) * 10.0 ** rng.integers(-5, 3)
        distances[: trial % 7] = distances[0]
        distances *= rng.choice([0.0, 1.0, 1.0, 1e6], size=7)
        other = distances[1:]
        if relation == "replace":
            other = np.append(other, rng.exponential() * 10.0 ** rng.integers(-5, 3))
        moved = scores(other) - scores(distances)
        least, most = min(least, int(moved.min())), max(most, int(moved.max()))
    # A removed user moves scores one way, which halves the cost; an exchanged one either way.
    assert (least, most) == ((0, 1024) if relation == "zero_out" else (-1024, 1024))


@pytest.mark.parametrize("beyond", [0.5, 0.1, 0.02])
def test_best_radius_leaves_the_expected_number_outside(beyond: float) -> None:
    radii = Recentred(100.0, 1.0, 5000, choice_scale=1.0).choices()
    distances = np.random.default_rng(9).lognormal(sigma=2, size=5000)
    best = radii[radius_scores(first_of(distances, radii), 5000, beyond).argmax()]
    assert 0.6 * beyond < np.mean(distances > best) < 1.1 * beyond


def test_a_radius_for_each_round() -> None:
    shares = (0.1, 0.3, 0.6)
    mean = Recentred((9.0, 3.0, 0.5), 2.0, 4, 3, shares)
    run, source = mean.start(SystemSource()), SystemSource()
    far = Vectors(np.full((4, 1), 1e6))
    quiet = Recentred((9.0, 3.0, 0.5), 2.0**-10, 4, 3).start(source)
    assert [round(float(quiet.estimate(far)[0]), 1) for _ in range(3)] == [9.0, 12.0, 12.5]
    ends = [run.estimate(Vectors(np.zeros((4, 40_000)))) for _ in range(3)]
    assert run.radii == [9.0, 3.0, 0.5]
    # With users within the radius only the last noise remains: others' clipped sums are not 0.
    assert ends[0].std() == pytest.approx(mean.multiplier(0) * 9 / 4, rel=0.03)
    assert mean.multiplier(2) == pytest.approx(2 / math.sqrt(3 * 0.6))
    assert mean.noise_sd == pytest.approx(mean.multiplier(2) * 0.5 / 4)
    # Its cost does not depend on the radius.
    assert mean.event == Recentred(1.0, 2.0, 4, 3, shares).event
    assert "of 0.5 around" in str(mean.facts[1])


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
        ({"radius": 0.0}, "radius must be positive and finite"),
        ({"radius": 1e200}, "radius must be between"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be positive and finite"),
        ({"noise_multiplier": 1e12}, "noise_multiplier must be between"),
        ({"n_users": 0}, "n_users must be an integer"),
        ({"rounds": 0}, "rounds must be an integer"),
        ({"weight": 1.5}, r"weight must be in \[0, 1\]"),
        ({"choice_scale": -1.0}, "choice_scale must be finite and at least 0"),
        ({"beyond": 0.0}, "beyond must be positive and finite"),
        ({"beyond": 0.6}, r"beyond must be a share in \(0, 0.5\], not 0.6"),
        ({"radius": (1.0, 1.0, 1.0)}, "radius must be one number, or one per round"),
        ({"radius": ()}, "radius must be one number, or one per round"),
        ({"radius": (1.0, math.nan)}, "radius must be positive and finite"),
        ({"radius": (1.0, 1e200)}, "radius must be between"),
        ({"centre": math.inf}, "centre must be finite"),
        ({"check": 1.0}, "bound must be a number, not None, because check = 1.0"),
        ({"check": -1.0, "bound": 1.0}, "check must be finite and at least 0"),
        ({"shares": (0.5,)}, "shares must be 2 numbers, one per round"),
        ({"shares": (0.5, 0.6)}, "shares must be 2 numbers, one per round"),
    ],
)
def test_invalid_parameters_are_reported(wrong: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {"radius": 1.0, "noise_multiplier": 1.0, "n_users": 10, "rounds": 2}
    with pytest.raises(ParameterError, match=message):
        Recentred(**{**values, **wrong})


# -- a statistical audit: one distant user, in many separate coordinates --


def claimed_mu(mean: Recentred) -> float:
    return mean.event.loss().mu


def audit(mean: Recentred, trials: int = 2000) -> float:
    """A lower bound on the distance in sds, of all rounds with one user there or not."""
    # Two users on opposite sides in each coordinate would share its clip; a single user has all of
    # it, so each trial is a separate run in one dimension, all with one source.
    scores = np.empty((2, trials))
    source = SystemSource()
    present, absent = Vectors(np.array([[1e6]])), Vectors(np.zeros((0, 1)))
    for row, users in enumerate((present, absent)):
        for i in range(trials):
            run = mean.start(source)
            centre = score = 0.0
            for _ in range(mean.rounds):
                found = float(run.estimate(users)[0])
                # The user's contribution is known: a radius from the published centre.
                score += found - centre
                centre += mean.weight * (found - centre)
            scores[row, i] = score
    return mu_below(*scores)


AUDITED = Recentred(2.0, 2.0, 10, 4)


@pytest.mark.slow
def test_audit_stays_below_the_claim() -> None:
    assert 0.6 * claimed_mu(AUDITED) < audit(AUDITED) <= claimed_mu(AUDITED)
