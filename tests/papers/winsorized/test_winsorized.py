"""The winsorized mean under the contract of all means; rotations, private ranges, and their audit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from tests.papers.winsorized import cases
from tests.programs import experiment
from tests.refusals import refuses

from dpgrain.accounting import Gaussian
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.auditing.epsilon_bounds import probability_lower_bound, probability_upper_bound
from dpgrain.errors import ParameterError
from dpgrain.means import Mean, Vectors, mean_of_users
from dpgrain.noise import SeededSource, SystemSource, discrete_laplace, noisy_sums
from dpgrain.papers.winsorized import winsorized
from dpgrain.papers.winsorized.median_ranges import PrivateRange
from dpgrain.papers.winsorized.rotation import Rotation, padded
from dpgrain.papers.winsorized.winsorized import Winsorized, WinsorizedScalar
from dpgrain.publishing.draws import range_event
from dpgrain.testing.mean_contract import BLOCKS, DIMENSION, Array, MeanContract
from dpgrain.units import Element, Record, Relation, Unit, User

printed = experiment("printed_winsorized")


def fixed(monkeypatch: pytest.MonkeyPatch, middle: float = 0.0) -> None:
    """All middles are this, so that what is left is the noisy sum."""
    monkeypatch.setattr(
        PrivateRange, "middles", lambda self, values, source: np.full(len(values), middle)
    )


class TestWinsorized(MeanContract):
    attained = 0.6

    @pytest.fixture(autouse=True)
    def _fixed(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        about_sums = ("noise_has_the_stated_sd", "mean_is_unbiased", "no_neighbour_exceeds")
        if any(name in request.node.name for name in about_sums):
            fixed(monkeypatch)

    def make(self, rounds: int = 3, **options: Any) -> Mean:
        return cases.mean_of(rounds=rounds, **options)

    def sensitivity(self, mean: Mean, relation: Relation) -> float:
        assert isinstance(mean, Winsorized)
        moved = 1 if relation == "zero_out" else 2
        return moved * mean.half_width * math.sqrt(mean.size) / mean.n_users

    def test_mean_is_unbiased(self) -> None:
        # The contract's roster has half as many users as blocks.
        mean = cases.mean_of(rounds=1, radius=1.0)
        vectors = np.random.default_rng(0).normal(size=(BLOCKS, DIMENSION)) * 0.1
        seeds = range(400)
        found = np.array([self.estimate(mean, vectors, seed) for seed in seeds])
        error = found.std(axis=0) / math.sqrt(len(seeds))
        errors = (found.mean(axis=0) - vectors.mean(axis=0)) / error
        assert np.abs(errors).max() < 5.3
        assert found.std(axis=0).max() < 0.5


# -- private ranges --


@pytest.mark.parametrize("unit", [Record(), Element(), User()], ids=repr)
@pytest.mark.parametrize("relation", cases.RELATIONS)
def test_less_than_a_user_costs_an_exchange(unit: Unit, relation: Relation) -> None:
    # A record moves its user's vector anywhere: one score may rise and another fall.
    steps = 1 if relation == "zero_out" and isinstance(unit, User) else 2
    event = cases.mean_of().event
    sums, choices = event.parts
    assert isinstance(sums, Gaussian)
    for part in (sums, choices):
        assert math.isclose(part.loss(1, relation, unit).mu, steps * part.loss().mu, rel_tol=1e-12)


# -- the mean --


def together(n: int, d: int, radius: float, seed: int = 0, away: float = 2.0) -> Array:
    rng = np.random.default_rng(seed)
    point, offsets = rng.normal(size=d), rng.normal(size=(n, d))
    offsets *= radius / np.linalg.norm(offsets, axis=1, keepdims=True)
    return np.asarray(point * away / np.linalg.norm(point) + offsets)


@pytest.mark.parametrize("d", [1, 3, 50])
def test_concentrated_vectors_are_not_clipped(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 3000
    mean = cases.mean_of(
        dimension=d, n_users=n, rounds=40, range_epsilon=0.1, radius=0.05, noise_multiplier=2.0**-10
    )
    assert mean.range_epsilon >= mean.range_epsilon_needed
    # With the noise at its least allowed, a clipped user would be seen.
    vectors = together(n, d, 0.05)
    run, clipped = mean.start(SystemSource()), 0
    for _ in range(mean.rounds):
        found = run.estimate(Vectors(vectors))
        clipped += bool(np.abs(found - vectors.mean(axis=0)).max() > 6 * mean.noise_sd)
    assert clipped <= 5


def test_printed_interval_clips_concentrated_vectors() -> None:
    # Bins of width 2τ and an interval of 2τ on both sides: a third of the users in the right bin, the
    # others up to 2τ to the left of its edge.
    tau, edge = 1.0, 1.0
    values = np.array([edge - 1.99 * tau] * 60 + [edge + 0.005] * 40)
    assert np.ptp(values) < 2 * tau
    bins = PrivateRange(9.0, 2 * tau, 1.0)
    odds = cases.exponential(bins.index(values), bins.bins, 0.05)
    right = int(bins.index(np.array([edge + 0.005]))[0])
    assert odds[right] > 0.1
    assert np.abs(values - bins.middle(np.array(right))).max() > 2.9 * tau
    scalar = WinsorizedScalar(tau, 9.0, 100, 1.0)
    for x in np.unique(scalar.ranges.index(values)):
        assert np.abs(values - scalar.ranges.middle(x)).max() <= scalar.half_width


def test_sums_do_not_depend_on_the_order_of_users() -> None:
    mean = cases.mean_of(n_users=500, dimension=20)
    vectors = together(500, 20, 1.0)
    runs = [
        mean.start(SeededSource(2)).estimate(Vectors(rows)) for rows in (vectors, vectors[::-1])
    ]
    assert np.array_equal(runs[0], runs[1])


def test_clipped_sums_are_whole_steps_of_bounded_size() -> None:
    rng = np.random.default_rng(2)
    for half in (0.3, 1.0, 7.7e5):
        mean = WinsorizedScalar(half / 2, 1e9, 9, 1.0)
        width = mean.half_width
        step = winsorized._step(width)
        assert (width / step).is_integer()
        columns = rng.normal(size=(50, 1)) * half * 10.0 ** rng.integers(-8, 9, (50, 1))
        sums = winsorized._clipped_sums(columns, np.zeros(50), width)
        assert (sums / step == np.rint(sums / step)).all()
        assert np.abs(sums).max() == width
        assert (np.abs(sums - np.clip(columns[:, 0], -width, width)) <= step / 2).all()


@pytest.mark.parametrize("relation", cases.RELATIONS)
@pytest.mark.parametrize("d", [1, 100])
@pytest.mark.parametrize("beside", [None, Gaussian(20.0, ONE_EACH)], ids=["alone", "beside"])
def test_calibration_keeps_the_promise(relation: Relation, d: int, beside: Any) -> None:
    mean = Winsorized.calibrate(
        epsilon=1.0,
        delta=1e-6,
        n_users=20_000,
        rounds=10,
        radius=0.1,
        bound=5.0,
        dimension=d,
        relation=relation,
        beside=beside,
    )
    event = mean.event if beside is None else mean.event + beside
    assert 0.999 < event.epsilon(1e-6, relation=relation) <= 1.0
    assert mean.range_epsilon == mean.range_epsilon_needed
    assert mean.level == "user"
    assert "padded to" in " ".join(map(str, mean.facts))


def test_too_few_users_error_states_a_sufficient_number() -> None:
    values: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "rounds": 10,
        "radius": 0.1,
        "bound": 5.0,
        "dimension": 100,
    }
    with refuses("n_users", "100") as caught:
        Winsorized.calibrate(n_users=100, **values)
    enough = int(str(caught.value).split("; use ")[1].split(" ")[0].replace(",", ""))
    assert Winsorized.calibrate(n_users=enough, **values).event.epsilon(1e-6) <= 1.0
    with refuses("n_users", "too"):
        Winsorized.calibrate(n_users=enough // 2, **values)


def test_more_users_or_a_smaller_radius_mean_less_noise() -> None:
    def sd(**options: Any) -> float:
        values: dict[str, Any] = {"n_users": 10_000, "radius": 0.1, "bound": 5.0}
        return Winsorized.calibrate(
            epsilon=1.0, delta=1e-6, rounds=5, dimension=50, **{**values, **options}
        ).noise_sd

    assert sd(n_users=20_000) < 0.5 * sd()
    assert math.isclose(sd(radius=0.01), 0.1 * sd(), rel_tol=0.1)
    assert math.isclose(sd(bound=500.0), sd(), rel_tol=0.1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"radius": 0.0}, "radius must be positive and finite"),
        ({"radius": 1e-15}, r"more than 2\^50 bins"),
        ({"bound": 1e200}, "bound must be between"),
        ({"dimension": 0}, "dimension must be an integer"),
        ({"noise_multiplier": 1e10}, "noise_multiplier must be between"),
        ({"range_epsilon": 0.0}, "range_epsilon must be positive and finite"),
        ({"n_users": 0}, "n_users must be an integer"),
        ({"rounds": 0}, "rounds must be an integer"),
        ({"failure": 1.0}, "failure must be in"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
def test_invalid_parameters_are_reported(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        cases.mean_of(**wrong)


def test_vectors_of_another_length_are_rejected() -> None:
    with refuses("dimension", "3"):
        cases.mean_of().start(SystemSource()).estimate(Vectors(np.ones((2, 4))))


# -- a statistical audit: without a rotation every coordinate is a separate trial --


SIZE, TIMES = 2**14, 2
# The noise of one coordinate's sum, in half widths.
NOISE, RATE, USERS = 1.5, 0.5, 41
AUDITED = Winsorized(20.0, 6.0, SIZE, NOISE / math.sqrt(SIZE), RATE, USERS, TIMES, failure=0.01)
# The separate cost of one coordinate.
CLAIM = Gaussian(NOISE, ONE_EACH) + range_event(RATE, 1)
FAR = 5.9


class Straight:
    """No rotation: coordinates are repeated up to the padded number."""

    def __init__(self, size: int) -> None:
        self.size = size

    def of(self, vectors: Array) -> Array:
        return vectors[:, :1].T.repeat(self.size, axis=0)

    def back(self, column: Array) -> Array:
        return column


@pytest.fixture
def straight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rotation, "draw", lambda dimension, source: Straight(padded(dimension)))
    # Rows represent many trials: their norm is not audited.
    monkeypatch.setattr(winsorized, "clipped", lambda vectors, bound: vectors)


class Columns:
    """The same number for each coordinate of a user."""

    def __init__(self, values: Any, dimension: int) -> None:
        self.values, self.dimension, self.blocks = np.array(values), dimension, len(values)

    def vectors(self, drawn: NDArray[np.intp] | None = None) -> Array:
        values = self.values if drawn is None else self.values[drawn]
        return np.broadcast_to(values[:, None], (len(values), self.dimension)).copy()

    def clipped_sum(self, clip: float, drawn: NDArray[np.intp] | None = None) -> Array:
        raise NotImplementedError("means that compare vectors do not ask for it")


def published(mean: Winsorized, values: Any) -> Array:
    run = mean.start(SystemSource())
    contributions = Columns(values, mean.dimension)
    return np.concatenate([run.estimate(contributions) for _ in range(mean.rounds)])


def log_density(found: Array, mean: Winsorized, values: Any) -> Array:
    """The law of one coordinate of a mean: Gaussians around what each bin leads to."""
    values = np.asarray(values)
    bins = mean.ranges.bins
    odds = cases.exponential(mean.ranges.index(values), bins, mean.range_epsilon)
    middles = mean.ranges.middle(np.arange(bins))
    half = mean.half_width
    sums = np.clip(values[:, None] - middles, -half, half).sum(axis=0)
    sd = NOISE * half / mean.n_users
    z = (found[:, None] - (middles + sums / mean.n_users)) / sd
    return np.asarray(logsumexp(np.log(odds) - z * z / 2, axis=1))


def broken(mean: Winsorized, one: Any, two: Any, relation: Relation) -> float:
    """The largest ratio of a lower bound on δ(ε), for several ε, to what is claimed."""
    scores = []
    for values in (one, two):
        # The data as the law knows them: numbers beyond the bound are clipped to where they count.
        found = published(mean, values)
        known = [np.clip(v, -FAR, FAR) for v in (one, two)]
        scores.append(log_density(found, mean, known[0]) - log_density(found, mean, known[1]))
    worst = 0.0
    for epsilon in (0.0, 0.25, 0.5, 1.0, 1.5):
        hits, false = (int((score > epsilon).sum()) for score in scores)
        n, chance = len(scores[0]), cases.CHANCE / 20
        low, high = (
            probability_lower_bound(hits, n, chance),
            probability_upper_bound(false, n, chance),
        )
        claim = CLAIM.delta(epsilon, relation=relation)
        worst = max(worst, (low - math.exp(epsilon) * high) / claim)
    return worst


def neighbours(place: str, relation: Relation, far: float = FAR) -> tuple[list[float], list[float]]:
    """Users together, or half of them at either end, and one more who goes or changes sides."""
    others = [0.0] * (USERS - 1) if place == "together" else [-FAR, FAR] * (USERS // 2)
    return [*others, far], [*others, *([] if relation == "zero_out" else [-far])]


@pytest.mark.slow
@pytest.mark.usefixtures("straight")
@pytest.mark.parametrize("relation", cases.RELATIONS)
@pytest.mark.parametrize("place", ["together", "ends"])
def test_audit(place: str, relation: Relation) -> None:
    one, two = neighbours(place, relation)
    # At the ends it is the choice that changes, which noise of this size hides nearly all of.
    least = 0.6 if place == "together" else -1.0
    assert least < broken(AUDITED, one, two, relation) <= 1
    assert broken(AUDITED, two, one, relation) <= 1


# -- one number --


@pytest.mark.parametrize("relation", cases.RELATIONS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.3])
def test_numbers_cost_the_requested_budget(relation: Relation, epsilon: float) -> None:
    mean = WinsorizedScalar(0.1, 4.0, 500, epsilon, relation)
    assert 0.999 * epsilon < mean.event.epsilon(relation=relation) <= epsilon


@pytest.mark.slow
def test_concentrated_numbers_are_not_clipped() -> None:
    mean = WinsorizedScalar(0.1, 100.0, 400, 2.0)
    values = together(400, 1, 0.1)[:, 0]
    assert mean.failure < 1e-9
    found = np.array([mean.estimate(values, SeededSource(seed)) for seed in range(2000)])
    assert abs(found.mean() - values.mean()) < 5.3 * mean.noise_sd / math.sqrt(2000)
    assert abs(found.std() / mean.noise_sd - 1) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("relation", cases.RELATIONS)
def test_audit_of_numbers(relation: Relation, monkeypatch: pytest.MonkeyPatch) -> None:
    mean = WinsorizedScalar(1.0, 6.0, USERS, 2.0, relation)
    one, two = neighbours("together", relation)
    trials = 2_500

    def apart() -> float:
        """A lower bound on the ε of one test."""
        middle = mean.half_width / mean.n_users
        hits = [
            sum(mean.estimate(values, source) >= middle for _ in range(trials))
            for values in (one, two)
        ]
        chance = cases.CHANCE / 2
        low, high = (
            probability_lower_bound(hits[0], trials, chance),
            probability_upper_bound(hits[1], trials, chance),
        )
        return math.log(low / high)

    source = SystemSource()
    assert 0.25 * mean.epsilon < apart() <= mean.epsilon
    monkeypatch.setattr(
        noisy_sums,
        "discrete_laplace",
        lambda scale, size, source: discrete_laplace(scale / 4, size, source=source),
    )
    assert apart() > mean.epsilon


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: WinsorizedScalar(0.0, 1.0, 5, 1.0), "radius must be positive and finite"),
        (lambda: WinsorizedScalar(1.0, 1e101, 5, 1.0), "bound must be between"),
        (lambda: WinsorizedScalar(1.0, 1.0, 5, 1e-9), "epsilon must be between"),
        (lambda: WinsorizedScalar(1.0, 1.0, 5, 1.0, "swap"), "relation must be one of"),  # type: ignore[arg-type]
        (
            lambda: WinsorizedScalar(1.0, 1.0, 5, 1.0).estimate(np.ones((2, 2)), SystemSource()),
            "values must be numbers",
        ),
    ],
    ids=["radius", "bound", "epsilon", "relation", "values"],
)
def test_invalid_numbers_are_reported(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()


# -- the algorithm as printed --


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("d", [1, 16, 1024, 2**17])
def test_printed_mean_is_private_up_to_an_unusable_epsilon(d: int, delta: float) -> None:
    for epsilon in (0.01, 1.0, 8 * math.log(1 / delta)):
        assert printed.proved(epsilon, delta, d) <= epsilon
        assert printed.proved(epsilon, delta, d, queries=100) <= epsilon
        # Padded, with d in the formulas.
        assert printed.proved(epsilon, delta, d, padded=2 * d) <= epsilon
        assert not printed.refuted(epsilon, delta, min(d, 1024))


def test_the_printed_mean_is_not_private_beyond_it() -> None:
    assert printed.refuted(2071.0, 1e-6, 1024)
    assert printed.refuted(180.0, 0.1, 1024)
    assert printed.proved(448.0, 1e-6, 1024) <= 448
    assert printed.proved(460.0, 1e-6, 1024) > 460
    # In few coordinates basic composition is enough, for any ε.
    for epsilon in (1.0, 1e3, 1e4):
        assert printed.proved(epsilon, 1e-6, 64) <= epsilon
        assert not printed.refuted(epsilon, 1e-6, 64)


def test_the_printed_noise_is_much_larger() -> None:
    ratios = [printed.noise_ratio(20_000, d, 1.0, 1e-6) for d in (64, 128, 1024)]
    assert ratios == pytest.approx([50.7, 50.4, 45.8], abs=0.05)
    vectors = together(2000, 16, 0.1)
    values: dict[str, Any] = {"radius": 0.1, "bound": 10.0, "delta": 1e-6, "failure": 0.01}
    found = np.array(
        [printed.printed_mean(vectors, epsilon=8.0, seed=seed, **values) for seed in range(40)]
    )
    expected = math.sqrt(2) * 8 * printed.printed_radius(2000, 16, 0.1, 0.01)
    expected /= 2000 * printed.per_coordinate(8.0, 1e-6, 16)
    assert 0.7 < (found - vectors.mean(axis=0)).std() / expected < 1.4


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("radius", [0.5, None])
def test_winsorized_means_of_one_column_are_pure(radius: float | None, relation: Any) -> None:
    X = 3 + 0.1 * np.random.default_rng(0).normal(size=(4000, 1))
    options: dict[str, Any] = {
        "users": range(4000), "n_users": 4000, "bound": 10.0, "method": "winsorized",
        "radius": radius, "epsilon": 1.0, "delta": 0.0, "relation": relation,
    }  # fmt: skip
    mean = mean_of_users(X, random_state=1, **options)
    assert abs(mean.value[0] - 3) < 5 * mean.std_error + 0.01
    assert 0.99 < mean.guarantee.event.epsilon(0.0, relation=relation) <= 1.0
    with pytest.raises(ParameterError, match="for 2 dimensions; only one column supports 0"):
        mean_of_users(np.column_stack([X, X]), **options)
    with pytest.raises(ParameterError, match="n_users is required"):
        mean_of_users(X, **{**options, "n_users": None})
    with pytest.raises(ParameterError, match="method='winsorized' of one column"):
        mean_of_users(X, **{**options, "method": "clip"})
