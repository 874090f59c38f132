"""The soft core under the contract of all means, its counts, its constants, and the printed ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.apart import CHANCE, mu_below
from tests.programs import experiment
from tests.refusals import refuses

from dpgrain import accounting
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.auditing.epsilon_bounds import probability_lower_bound
from dpgrain.errors import ParameterError, RunEnded
from dpgrain.means import Mean, Vectors
from dpgrain.means.close_vectors import close, on_grid
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.papers.softcore import SoftCoreMean, h_index, integer_weights, weighted_sum
from dpgrain.testing.mean_contract import BLOCKS, DIMENSION, SURE, Array, MeanContract
from dpgrain.units import Relation

printed_softcore = experiment("printed_softcore")


# Found by a search: the last user at either place, or there and away, moves the mean of the others far.
EXCHANGED = np.array([-2, -2, -2, -0.01, 0, 0, 0, 0, 0, 2, 2.0]), -2.0, 1.99
REMOVED = np.array([-0.01, -0.01, *[1.99] * 5, 2.045, 2.047, 2.047, 2.048]), 0.048, None


def soft_core(rounds: int = 3, **options: Any) -> SoftCoreMean:
    """Twelve users, ten of whom agree; tests that rarely err."""
    values = {
        "radius": 1.0,
        "noise_multiplier": 0.5,
        "n_users": BLOCKS,
        "core": 10,
        "gap": 1,
        "threshold_scale": 0.02,
        "query_scale": 0.02,
        "rounds": rounds,
    }
    return SoftCoreMean(**{**values, **options})


def mean_of(mean: SoftCoreMean, vectors: Array) -> tuple[int, Array]:
    step = mean.radius / 2**16
    (counts,) = close(vectors, step, [4**17])
    weights = integer_weights(counts, mean.n_users, mean.core)
    if not weights.any():
        return h_index(counts), np.zeros(vectors.shape[1])
    total = weighted_sum(on_grid(vectors, step)[weights > 0], weights[weights > 0])
    return h_index(counts), np.array(total, dtype=np.float64) / weights.sum() * step


class TestSoftCore(MeanContract):
    attained = 0.6
    users = BLOCKS

    def make(self, rounds: int = 3, **options: Any) -> SoftCoreMean:
        return soft_core(rounds, **options)

    def sensitivity(self, mean: Mean, relation: Relation) -> float:
        assert isinstance(mean, SoftCoreMean)
        return mean.event.sensitivity * mean.radius

    def changed(self, vectors: Array, unit: int, to: Array | None) -> Array:
        """A user without data has no vector: that is not the same as a vector of zeros."""
        if to is None:
            return np.delete(vectors, unit, axis=0)
        other = vectors.copy()
        other[unit] = to
        return other

    def test_non_finite_vectors_count_as_zero(self) -> None:
        vectors = np.full((BLOCKS, DIMENSION), 0.1)
        vectors[0] = 0.0
        for bad in (np.nan, np.inf, -np.inf):
            poisoned = vectors.copy()
            poisoned[0, 1] = bad
            found = self.estimate(self.make(), poisoned)
            assert np.array_equal(found, self.estimate(self.make(), vectors))

    @pytest.mark.slow
    @pytest.mark.parametrize("relation", ["zero_out", "replace"])
    def test_no_neighbour_exceeds_the_sensitivity(self, relation: Relation) -> None:
        # With noise on the tests, so that rounds with h just below H pass.
        mean = self.make(threshold_scale=1.0, query_scale=1.0)
        bound, largest = self.sensitivity(mean, relation), 0.0
        others, here, there = REMOVED if relation == "zero_out" else EXCHANGED
        rng, passed = np.random.default_rng(3), 0
        for seed in range(400):
            spread = rng.choice([0.0, 0.001, 0.1])
            vectors = rng.normal(scale=spread, size=(BLOCKS, DIMENSION))
            vectors[:, 0] += [*others, here]
            to = None if there is None else np.array([there, 0.0, 0.0])
            other = self.changed(vectors, BLOCKS - 1, to)
            if max(mean_of(mean, vectors)[0], mean_of(mean, other)[0]) < mean.core:
                continue
            try:
                two = [self.estimate(mean, rows, seed) for rows in (vectors, other)]
            except RunEnded:
                continue
            passed += 1
            largest = max(largest, float(np.linalg.norm(two[0] - two[1])))
        assert passed > 20
        # A removed user does not move by 4τ, so less of the bound is attained.
        attained = 0.45 if relation == "zero_out" else 0.75
        assert attained * bound < largest <= bound * (1 + 1e-6)


# ------------------------------------------------------------------------------------ sensitivity


def climb(mean: SoftCoreMean, removed: bool, seed: int, steps: int = 500) -> float:
    rng = np.random.default_rng(seed)
    # Just inside, and just outside, of 2τ from where most are.
    places = np.array([-2.0, -1.99, -0.01, 0.0, 0.01, 1.99, 2.0, 2.01])
    n = mean.n_users

    def moved(others: Array, two: Array) -> float:
        one = np.vstack([others, two[0]])
        other = others if removed else np.vstack([others, two[1]])
        (h, m), (h_other, m_other) = mean_of(mean, one), mean_of(mean, other)
        assert abs(h - h_other) <= 1
        assert not removed or h_other <= h
        return float(np.linalg.norm(m - m_other)) if max(h, h_other) >= mean.core else 0.0

    others, two = np.zeros((n - 1, 1)), rng.choice(places, size=(2, 1))
    best = moved(others, two)
    for _ in range(steps):
        some, last = others.copy(), two.copy()
        which = rng.integers(0, n - 1, rng.integers(1, 4))
        if rng.random() < 0.5:
            some[which] = rng.choice(places, size=(which.size, 1))
        else:
            some[which] += rng.normal(scale=rng.choice([0.02, 0.3, 1.0]), size=(which.size, 1))
        if rng.random() < 0.5:
            last[rng.integers(2)] = rng.choice(places, size=1)
        found = moved(some, last)
        if found >= best:
            others, two, best = some, last, found
    return best / mean.event.sensitivity


@pytest.mark.slow
@pytest.mark.proof("search", "SoftCore")
@pytest.mark.parametrize("removed", [False, True], ids=["replaced", "removed"])
@pytest.mark.parametrize("size", [(12, 9), (12, 10), (20, 14)], ids=["12-9", "12-10", "20-14"])
def test_no_search_finds_neighbours_beyond_the_bound(size: tuple[int, int], removed: bool) -> None:
    mean = soft_core(n_users=size[0], core=size[1])
    assert 0.2 < max(climb(mean, removed, seed) for seed in (1, 2)) <= 1 + 1e-9


def test_bound_without_the_ramp_is_refuted() -> None:
    # 4τ/H, as if only the changed user's weight could move.
    mean = soft_core()
    for others, here, there in (EXCHANGED, REMOVED):
        ends = [[here], [] if there is None else [there]]
        one, two = (np.array([*others, *last])[:, None] for last in ends)
        moved = float(np.linalg.norm(mean_of(mean, one)[1] - mean_of(mean, two)[1]))
        assert 0.9 * 4 / mean.core < moved <= mean.event.sensitivity
        assert there is None or moved > 1.5 * 4 / mean.core


def test_weights_agree_with_the_event() -> None:
    event = soft_core(n_users=41, core=30).event
    counts = np.arange(42)
    exact = np.clip(event.slope * (counts - 41 / 2 - 1), 0, 1)
    whole = integer_weights(counts, 41, 30)
    assert whole / whole.max() == pytest.approx(exact)
    assert whole[event.core - 1] == whole.max() > whole[event.core - 2]


# ---------------------------------------------------------------------------------------- counts


def test_the_mean_does_not_depend_on_order() -> None:
    rng = np.random.default_rng(8)
    vectors = 1e9 + rng.normal(size=(BLOCKS, 3)) * 0.2
    mean = soft_core()
    runs = [
        mean.start(SeededSource(5)).estimate(Vectors(rows)) for rows in (vectors, vectors[::-1])
    ]
    assert np.array_equal(runs[0], runs[1])
    # And is where the vectors are, in spite of their distance from 0.
    assert np.abs(runs[0] - vectors.mean(axis=0)).max() < SURE * mean.noise_sd


# ------------------------------------------------------------------------------- the end of a run


def apart(agree: int) -> Vectors:
    """This many users at 0, all others at separate points."""
    lonely = 100.0 * np.arange(1, BLOCKS - agree + 1)
    return Vectors(np.concatenate([np.zeros(agree), lonely])[:, None])


def test_ended_run_publishes_nothing_more() -> None:
    run = soft_core(rounds=5).start(SystemSource())
    assert run.estimate(apart(12)).shape == (1,)
    for _ in range(9):
        # Also beyond the planned rounds, and although all agree again.
        with pytest.raises(RunEnded, match="in round 2"):
            run.estimate(apart(7) if run._done < 2 else apart(12))


def test_run_ends_without_weights() -> None:
    # The tests' noise passes anything; users without data count nothing.
    run = soft_core(threshold_scale=1e4, query_scale=1e4)
    ended = 0
    for seed in range(20):
        with pytest.raises(RunEnded):
            run.start(SeededSource(seed)).estimate(Vectors(np.empty((0, 2))))
        ended += 1
    assert ended == 20


def test_fewer_vectors_than_users_work_but_not_more() -> None:
    run = soft_core().start(SystemSource())
    assert np.isfinite(run.estimate(Vectors(np.zeros((10, 2))))).all()
    with refuses("n_users", "12"):
        run.estimate(Vectors(np.zeros((13, 2))))


def geometric(z: NDArray[np.int64], scale: float) -> Array:
    law: Array = math.tanh(0.5 / scale) * np.exp(-np.abs(z) / scale)
    return law


def chances(mean: SoftCoreMean, h: int) -> Array:
    """P(the run ends in round t), and last that it does not, if h is the same in all rounds."""
    z = np.arange(-400, 401)
    once, each = geometric(z, mean.threshold_scale), geometric(z, mean.query_scale)
    from_top = np.cumsum(each[::-1])[::-1]
    needed = np.clip(int(mean.event.threshold) - h - z, -400, 400)
    passes = from_top[needed + 400]
    ends = [float(once @ (passes**t * (1 - passes))) for t in range(mean.rounds)]
    return np.array([*ends, float(once @ passes**mean.rounds)])


def ends(mean: SoftCoreMean, vectors: Vectors, times: int) -> Array:
    found = np.zeros(mean.rounds + 1)
    for _ in range(times):
        run, passed = mean.start(SystemSource()), 0
        try:
            for _ in range(mean.rounds):
                run.estimate(vectors)
                passed += 1
        except RunEnded:
            pass
        found[passed] += 1
    return found


NOISY = {"gap": 5, "threshold_scale": 4.0, "query_scale": 1.0}


def worst(found: Array, expected: Array) -> float:
    """The largest error of a count, in standard deviations."""
    times = found.sum()
    errors = np.abs(found - times * expected) / np.sqrt(times * expected * (1 - expected))
    return float(errors.max())


@pytest.mark.slow
def test_runs_end_with_the_charged_probabilities() -> None:
    mean = soft_core(4, **NOISY)
    expected = chances(mean, 12)
    assert expected.sum() == pytest.approx(1)
    found = ends(mean, apart(12), 900)
    assert worst(found, expected) < SURE


# ---------------------------------------------------------------------------------------- audits


@pytest.mark.slow
@pytest.mark.proof("audit", "SoftCore")
def test_audit_of_the_tail() -> None:
    # H = 9 of 12: each of eight agreeing users sees n/2 + 2. With one less, all weights are zero.
    mean = soft_core(
        1, core=9, gap=2, threshold_scale=1.5, query_scale=1.5, noise_multiplier=1000.0
    )
    times, epsilon = 2500, 4.0
    here, there = (ends(mean, apart(agree), times)[-1] for agree in (8, 7))
    assert there == 0
    low = probability_lower_bound(int(here), times, CHANCE / 2)
    claimed = mean.event.delta(epsilon)
    assert 0.7 * claimed < low <= claimed
    # Without the tail the claim would be broken.
    assert low > 1e3 * max(mean.event.delta(epsilon) - mean.event.leak, 1e-12)


def published(mean: SoftCoreMean, vectors: Array, times: int) -> Array:
    """(times,): the sums of all rounds' means."""
    given = Vectors(vectors)
    sums = []
    for _ in range(times):
        run = mean.start(SystemSource())
        sums.append(sum(float(run.estimate(given)[0]) for _ in range(mean.rounds)))
    return np.array(sums)


def sides() -> tuple[Array, Array]:
    """Neighbours that both pass, with means 0.69 of the bound apart."""
    others = [-2.0, -0.01, -0.01, -0.009, 0, 0, 0, 0.01, 0.069, 1.363, 2.0]
    one, two = (np.array([*others, last])[:, None] for last in (1.99, -1.879))
    return one, two


def audit(times: int = 600) -> tuple[float, float]:
    """The measured and the claimed distance of four rounds' means."""
    mean = soft_core(4, noise_multiplier=1.0)
    one, two = (published(mean, vectors, times) for vectors in sides())
    # The sum of all rounds has √4 times the distance of one.
    return mu_below(one, two), mean.event.loss(relation="replace").mu


@pytest.mark.slow
@pytest.mark.proof("audit", "SoftCore")
def test_audit_of_the_means() -> None:
    found, claimed = audit()
    # The measured distance is around 0.37 of the claim, with a standard deviation of 0.03.
    assert 0.2 * claimed < found <= claimed


# ------------------------------------------------------------------------------------ calibration


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("users", [500, 1000, 10_000])
def test_calibration_keeps_the_promise(users: int, relation: Relation) -> None:
    mean = SoftCoreMean.calibrate(
        epsilon=1.0, delta=1e-6, n_users=users, rounds=1000, radius=0.5, relation=relation
    )
    assert 0.999 < mean.event.epsilon(1e-6, relation=relation) <= 1.0
    # All n agree: the run lasts with 99%.
    failing = accounting.SoftCore(
        1.0,
        users,
        users,
        users + 1 - int(mean.event.threshold),
        mean.threshold_scale,
        mean.query_scale,
    ).leak
    assert 1000 * failing <= 0.01
    assert mean.noise_sd == 0.5 * mean.noise_multiplier


def noise(users: int, relation: Relation = "replace", **options: Any) -> float:
    given = {"epsilon": 1.0, "delta": 1e-6, "rounds": 1000, "radius": 1.0, **options}
    return (
        users * SoftCoreMean.calibrate(n_users=users, relation=relation, **given).noise_multiplier
    )


def test_calibrated_noise() -> None:
    # In units of τ/n. With 4τ(2 + κ(n−H))/H for the sensitivity it was 3100 and 1420.
    assert 1900 < noise(1000) < 1950
    assert 740 < noise(10_000) < 765
    assert 1430 < noise(1000, "zero_out") < 1470
    assert noise(300) < 14_000
    assert noise(500) < 4300
    # Near the noise of a mean of vectors known to be within τ of a public point.
    ideal = math.sqrt(1000) * 2 / accounting.losses.gaussian.gaussian_mu(1.0, 1e-6)
    assert noise(10**6) < 2.5 * ideal


def test_too_few_users_are_rejected_with_a_sufficient_number() -> None:
    with refuses("n_users", "200") as no:
        noise(200)
    suffice = int(str(no.value).split("; use ")[1].split()[0])
    assert 300 < suffice <= 500
    assert noise(suffice) < 15_000


USER = Contribution("user")


@pytest.mark.slow
def test_a_promise_may_be_shared_with_something_else() -> None:
    beside = Gaussian(8.0, USER)
    mean = SoftCoreMean.calibrate(
        epsilon=1.0, delta=1e-6, n_users=2000, rounds=100, radius=1.0, beside=beside
    )
    assert 0.99 < (mean.event + beside).epsilon(1e-6, relation="replace") <= 1.0
    alone = SoftCoreMean.calibrate(epsilon=1.0, delta=1e-6, n_users=2000, rounds=100, radius=1.0)
    assert mean.noise_multiplier > alone.noise_multiplier
    with pytest.raises(ParameterError, match="in addition to the other published results"):
        noise(2000, beside=Gaussian(1.0, USER))


def test_facts_have_sentences() -> None:
    assert str(soft_core(1000).facts[0]) == "at most 1,000 rounds with all of 12 users"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"radius": 0.0}, "radius must be positive and finite"),
        ({"radius": 1e200}, "radius must be between"),
        ({"noise_multiplier": 1e9}, "noise_multiplier must be between"),
        ({"n_users": 10**7}, "n_users must be at most"),
        ({"core": 8}, "core must be above"),
        ({"gap": 0}, "gap must be"),
        ({"gap": 1.5}, "gap must be"),
        ({"query_scale": 1e12}, "query_scale must be between"),
        ({"rounds": 0}, "rounds must be an integer"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_invalid_parameters_are_reported(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        soft_core(**wrong)


# --------------------------------------------------------------------------- the printed constants


def test_printed_constants_violate_their_claim_and_ours_satisfy_it() -> None:
    printed = printed_softcore.PrintedSoftCore(1.0, 1000, 1000, 1.0, 1e-6)
    assert printed.noise_sd * 1000 == pytest.approx(1559, abs=1)
    assert printed_softcore.printed_delta(printed) > 100 * printed.delta
    ours = SoftCoreMean.calibrate(epsilon=1.0, delta=1e-6, n_users=1000, rounds=1000, radius=1.0)
    assert printed_softcore.our_delta(ours, 1.0) <= 1e-6


@pytest.mark.slow
def test_printed_algorithm_runs_as_integrated() -> None:
    # How often all rounds but the last one pass, with the user here and there, against the integral.
    printed = printed_softcore.PrintedSoftCore(1.0, 300, 4, 4.0, 1e-6)
    query = printed_softcore.Query(4, ((269, -1.0), (30, 1.0)), 0.0, -3.0)
    one, two = query.vectors(300, 1.0)
    assert printed.score(one) - printed.score(two) == pytest.approx(2 - 2 / 300)
    rng = np.random.default_rng(9)
    z, step = np.linspace(-60, 60, 120_001, retstep=True)
    once, each = printed.scales
    for vectors in (one, two):
        fails = np.exp(-np.abs(z) / once) / (2 * once) * step
        gap = printed.threshold - printed.score(vectors) - z
        half = 0.5 * np.exp(-np.abs(gap) / each)
        passes = float(fails @ np.where(gap > 0, half, 1 - half) ** 4)
        times = 400
        all_pass = sum(len(printed.run([vectors] * 4, rng)) == 4 for _ in range(times))
        assert abs(all_pass - times * passes) < SURE * math.sqrt(times * passes * (1 - passes))
