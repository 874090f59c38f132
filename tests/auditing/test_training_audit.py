"""One run with canaries: sound bounds, real runs that keep their claim, and faults that show."""

from __future__ import annotations

import bisect
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.effort import Effort
from tests.refusals import refuses

import dpgrain as dg
from dpgrain import Guarantee
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.auditing import Canaries, audit_training
from dpgrain.auditing.epsilon_bounds import min_shift, one_run_epsilon
from dpgrain.learn import minimise
from dpgrain.optimize import Constant, Sgd
from dpgrain.units import Level


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("guesses", [10, 200])
def test_guesses_of_pure_mechanism_exceed_the_bound_rarely(epsilon: float, guesses: int) -> None:
    """Over the whole law of the mechanism that attains it, one response for each canary."""
    alpha, right = 0.05, 1 / (1 + math.exp(-epsilon))
    chance = stats.binom.pmf(np.arange(guesses + 1), guesses, right)
    bounds = [one_run_epsilon(k, guesses, guesses, 0.0, alpha) for k in range(guesses + 1)]
    wrong = chance[np.array(bounds) > epsilon + 1e-9].sum()
    assert wrong <= alpha
    assert bounds == sorted(bounds)


def test_leaked_delta_is_allowed_for() -> None:
    # With δ each of many canaries may be revealed outright: a few right guesses refute nothing.
    assert one_run_epsilon(5, 5, 10_000, 1e-2, 0.05) == 0.0
    assert one_run_epsilon(40, 40, 10_000, 1e-9, 0.05) > 2
    assert one_run_epsilon(40, 40, 10_000, 1e-2, 0.05) < one_run_epsilon(40, 40, 100, 0.0, 0.05)
    assert one_run_epsilon(0, 0, 10, 1e-6, 0.05) == 0.0


def refuted_from(epsilon: float, guesses: int, canaries: int, delta: float, alpha: float) -> int:
    """The smallest number of right guesses that refutes an ε; bounds grow with it."""

    def refutes(correct: int) -> bool:
        return one_run_epsilon(correct, guesses, canaries, delta, alpha) > epsilon + 1e-9

    return bisect.bisect_left(range(guesses + 1), True, key=refutes)


def test_leaks_of_probability_delta_are_rarely_refuted(effort: Effort) -> None:
    """Over the whole law of a mechanism that reveals some canaries in a rare run, all of them in one.

    In other runs it answers for each canary as the mechanism that attains ε. Each canary is revealed
    with probability δ, so that a run with revealed ones is the likelier the fewer these are.
    """
    for epsilon, (canaries, guesses, revealed), alpha, rare in effort.some(
        itertools.product(
            [0.0, 0.7, 3.0],
            [(30, 30, 30), (300, 300, 300), (300, 20, 20), (300, 40, 10), (5, 5, 5)],
            [0.05, 0.01],
            [0.5, 1.1, 1.6, 8.0],
        )
    ):
        leaks = rare * alpha
        delta, right = leaks * revealed / canaries, 1 / (1 + math.exp(-epsilon))
        least = refuted_from(epsilon, guesses, canaries, delta, alpha)
        plain = stats.binom.sf(least - 1, guesses, right)
        leaky = stats.binom.sf(least - 1 - revealed, guesses - revealed, right)
        wrong = (1 - leaks) * plain + leaks * (leaky if least <= guesses else 0.0)
        assert wrong <= alpha, (epsilon, canaries, guesses, revealed, alpha, rare)


@pytest.mark.slow
@pytest.mark.parametrize("distance", [0.0, 0.3, 2.0])
def test_distance_bound_of_two_distributions_has_stated_confidence(distance: float) -> None:
    rng, alpha, wrong = np.random.default_rng(3), 0.1, 0
    for _ in range(300):
        there, absent = rng.normal(distance, 1.0, 40) * 7, rng.normal(0.0, 1.0, 35) * 7
        wrong += min_shift(there, absent, alpha) > distance
    assert wrong <= stats.binom.ppf(0.9999, 300, alpha)
    assert min_shift(np.ones(1), np.ones(1), alpha) == 0.0


# --------------------------------------------------------------------------------------- whole runs


class Towards:
    """A loss with the record as its gradient: canaries in gradient space."""

    def value(self, theta: Any, X: Any, y: Any) -> Any:
        return X @ theta

    def gradient(self, theta: Any, X: Any, y: Any) -> Any:
        return np.asarray(X)


def descended(rows: Canaries, level: Level, sampling_rate: float | None) -> tuple[Any, Guarantee]:
    """A private descent of the library over the canaries."""
    start = np.zeros(rows.gradients.shape[1])
    parts: dict[str, Any] = {"users": rows.users, "unit": dg.User()}
    if level == "element":
        parts = {**parts, "elements": rows.elements, "unit": dg.Element(), "elements_per_user": 4.0}
    found = minimise(
        Towards(), rows.gradients, np.zeros(len(rows.gradients)), start, **parts,
        solver=Sgd(Constant(0.1)), epsilon=3.0, delta=1e-6, rounds=5, n_users=rows.n_users,
        sampling="full" if sampling_rate is None else "pairs", sampling_rate=sampling_rate,
    )  # fmt: skip
    return start - found.theta, found.guarantee


@pytest.mark.slow
@pytest.mark.parametrize("sampling_rate", [None, 0.5])
@pytest.mark.parametrize(("level", "elements"), [("user", 1), ("element", 4)])
def test_descent_satisfies_its_claim_nearly_tightly(
    level: Level, elements: int, sampling_rate: float | None
) -> None:
    found = audit_training(
        lambda rows: descended(rows, level, sampling_rate),
        canaries=400, elements=elements, random_state=4,
    )  # fmt: skip
    (line,) = found.lines
    assert found.verdict in ("kept", "weak")
    assert found.level == level
    assert line.claim == pytest.approx(3.0, rel=1e-3)
    least = 0.2 if sampling_rate is None else -1.0
    assert least < (line.named.epsilon or 0) <= line.claim


def sums(noise: float, said: float, seed: int) -> Any:
    """One noisy sum of unit vectors, with noise ``noise`` and claimed noise ``said``."""

    def train(rows: Canaries) -> tuple[Any, Guarantee]:
        total = np.random.default_rng(seed).normal(0, noise, rows.gradients.shape[1])
        for user in np.unique(rows.users):
            one = rows.gradients[rows.users == user].mean(axis=0)
            total += one / np.linalg.norm(one)
        return total, Guarantee("user", "", "zero_out", 1e-6, Gaussian(said, ONE_EACH))

    return train


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_true_noise_passes_and_halved_noise_is_refuted(seed: int) -> None:
    kept = audit_training(sums(1.0, 1.0, seed), canaries=1000, random_state=seed)
    assert kept.verdict != "violated"
    halved = audit_training(sums(0.5, 1.0, seed), canaries=1000, random_state=seed)
    assert halved.verdict == "violated"
    assert halved.lines[0].named.exceeds(halved.lines[0].claim)


@pytest.mark.slow
def test_negligible_noise_is_refuted_without_assumptions() -> None:
    found = audit_training(sums(0.05, 4.0, 0), canaries=1000, random_state=0)
    (line,) = found.lines
    assert line.free.exceeds(line.claim)
    assert found.verdict == "violated"
    assert str(found).splitlines()[-1].startswith("1 run with 1,000 canaries")


@pytest.mark.slow
def test_canaries_match_their_description() -> None:
    seen: list[Canaries] = []

    def train(rows: Canaries) -> tuple[Any, Guarantee]:
        seen.append(rows)
        event = Gaussian(1.0, Contribution(block="element", layout="shared", coordinates="signed"))
        return np.zeros(rows.gradients.shape[1]), Guarantee("element", "e", "zero_out", 1e-6, event)

    found = audit_training(train, canaries=90, records=3, elements=4, random_state=2)
    (rows,) = seen
    assert found.level == "element"
    assert rows.n_users == 23
    places = np.argmax(rows.gradients, axis=1)
    assert (places // 4 == rows.users).all()
    assert (places % 4 == rows.elements).all()
    assert set(np.unique(places, return_counts=True)[1]) == {3}
    assert 20 < len(set(places)) < 70


def test_invalid_runs_are_rejected() -> None:
    with refuses("train"):
        audit_training(lambda rows: np.zeros(3), canaries=3)  # type: ignore[arg-type,return-value]
    guarantee = Guarantee("user", "", "zero_out", 1e-6, Gaussian(1.0, ONE_EACH))
    with refuses("train", "not 2"):
        audit_training(lambda rows: (np.zeros(2), guarantee), canaries=3)
    with refuses("elements", "not 2"):
        audit_training(lambda rows: (np.zeros(4), guarantee), canaries=4, elements=2)
    with refuses("canaries"):
        audit_training(lambda rows: (np.zeros(1), guarantee), canaries=1)


@pytest.mark.parametrize(
    ("given", "told"),
    [({"train": None}, "train must be a function"), ({"train": list, "delta": 2.0}, "delta must")],
)
def test_invalid_arguments_are_reported_before_the_run(given: dict[str, Any], told: str) -> None:
    with pytest.raises(dg.ParameterError, match=told):
        dg.audit_training(**given)
