"""The best of several runs of a private candidate, against its exact law."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr
from tests.refusals import refuses

from dpgrain.accounting import (
    ZCDP,
    ApproximateDP,
    Event,
    Gaussian,
    Laplace,
    Loss,
    PureDP,
    SampledGaussian,
)
from dpgrain.accounting.events.best_of import BestRunCurve, RunCount, SelectBest, Stopping
from dpgrain.units import Element, Relation, User

Array = NDArray[np.float64]
EPSILONS = [0.0, 0.2, 0.5, 0.8, 1.2, 1.8, 2.5, 4.0]
ROUNDING = 1e-9
LAWS: dict[str, SelectBest] = {
    "geometric": SelectBest(PureDP(1.0), 20.0),
    "geometric-short": SelectBest(PureDP(1.0), 1.5),
    "logarithmic": SelectBest(PureDP(1.0), 8.0, eta=0.0),
    "negative": SelectBest(PureDP(1.0), 6.0, eta=-0.5),
    "steady": SelectBest(PureDP(1.0), 12.0, eta=4.0),
    "poisson": SelectBest(PureDP(1.0), 6.0, "poisson"),
    "poisson-short": SelectBest(PureDP(1.0), 0.3, "poisson"),
}


def numbers(event: SelectBest) -> Array:
    """Probabilities of 0, 1, 2, … runs, by definition."""
    rate = event.gamma if event.stopping == "negative_binomial" else 0.5
    k = np.arange(0, math.ceil(40 / rate + 20), dtype=np.float64)
    law: Array
    if event.stopping == "poisson":
        law = np.exp(k * math.log(event.mean) - event.mean - gammaln(k + 1))
        return law
    eta, gamma = event.eta, event.gamma
    logs = k * math.log1p(-gamma)
    if eta == 0:
        logs[1:] -= np.log(k[1:])
    else:
        steps = np.log(np.abs(k[:-1] + eta) / (k[:-1] + 1))
        logs[1:] += np.cumsum(steps)
    weights = np.exp(logs)
    weights[0] = 0.0
    law = weights / weights.sum()
    return law


def best_of(event: SelectBest, run: Array) -> Array:
    """The law of the best result, results in increasing order; first: no run at all."""
    law = numbers(event)
    below = np.clip(np.append(0.0, np.cumsum(run)), 0.0, 1.0)
    with np.errstate(under="ignore"):
        chances = np.array([float(law @ x ** np.arange(law.size)) for x in below])
    return np.append(law[0], np.diff(chances))


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def exceeds(event: SelectBest, p: Array, q: Array, claim: Callable[[float], float]) -> bool:
    """Whether the best of runs with distributions p, q violates a claimed δ(ε)."""
    one, two = best_of(event, p), best_of(event, q)
    return any(
        max(hockey_stick(one, two, x), hockey_stick(two, one, x)) > claim(x) + ROUNDING
        for x in EPSILONS
    )


def with_events(name: str, events: Event | tuple[Event, ...]) -> SelectBest:
    law = LAWS[name]
    return SelectBest(events, law.mean, law.stopping, law.eta)


@pytest.mark.parametrize("name", LAWS)
def test_mean_agrees_with_the_distribution(name: str) -> None:
    event = LAWS[name]
    law = numbers(event)
    assert float(law @ np.arange(law.size)) == pytest.approx(event.mean, rel=1e-6)


def pure_pairs(epsilon: float) -> list[tuple[Array, Array]]:
    """Pairs of distributions over several results that are ε-DP with equality."""
    found = []
    for rare in (0.5, 0.1, 0.01, 1e-4):
        for signs in itertools.product((-1, 0, 1), repeat=3):
            # The last results are rare; the ratio of each is e^{±ε} or 1, of the first what is left.
            p = np.array([0.0, rare / 3, rare / 9, rare])
            q = p * np.exp(epsilon * np.array([0, *signs]))
            p[0], q[0] = 1 - p.sum(), 1 - q.sum()
            if min(p[0], q[0]) > 0 and abs(math.log(p[0] / q[0])) <= epsilon:
                found.append((p, q))
    return found


@pytest.mark.slow
@pytest.mark.proof("search", "SelectBest")
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_no_pure_candidate_exceeds_the_claim(name: str, epsilon: float) -> None:
    event = with_events(name, PureDP(epsilon))
    for p, q in pure_pairs(epsilon):
        assert not exceeds(event, p, q, event.delta)


def test_two_values_are_answered_by_either() -> None:
    # Randomised response, the better answer being either of both.
    odds = 1 / (1 + math.exp(-0.7))
    for name, swap in itertools.product(LAWS, (False, True)):
        p = np.array([odds, 1 - odds])
        p = p[::-1] if swap else p
        event = with_events(name, PureDP(0.7))
        assert not exceeds(event, p, p[::-1], event.delta)


def test_three_epsilons_are_needed() -> None:
    # A rare result of ratio e^ε, and rarer chances of a better one, of ratio e^{−ε}.
    epsilon, rare = 0.5, 0.4
    q = np.array([0.0, 1e-9, rare])
    p = np.array([0.0, 1e-9 * math.exp(epsilon), rare * math.exp(-epsilon)])
    p[0], q[0] = 1 - p.sum(), 1 - q.sum()
    for eta in (0.0, 1.0, 2.0):
        event = SelectBest(PureDP(epsilon), 1000.0, eta=eta)
        scale = [best_of(event, x)[2] for x in (p, q)]
        ratio = math.log(scale[0] / scale[1])
        assert event.epsilon() >= ratio >= 0.97 * event.epsilon()
        assert event.epsilon() == pytest.approx((2 + eta) * epsilon, rel=5e-3)
        assert event.epsilon() <= (2 + eta) * epsilon


def gaussian(mu: float, order: str, seed: int = 5) -> tuple[Array, Array]:
    """N(0, 1) and N(mu, 1) in cells; results in the order of the loss, against it, or in any."""
    ends = np.linspace(-6, 6 + mu, 301)
    ends[0], ends[-1] = -np.inf, np.inf
    p, q = np.diff(ndtr(ends)), np.diff(ndtr(ends - mu))
    places = np.arange(p.size)
    if order == "falling":
        places = places[::-1]
    if order == "any":
        places = np.random.default_rng(seed).permutation(p.size)
    return p[places], q[places]


def renyi(p: Array, q: Array, order: float) -> float:
    seen = (p > 1e-200) & (q > 1e-200)
    exponents = order * np.log(p[seen]) + (1 - order) * np.log(q[seen])
    return float(np.logaddexp.reduce(exponents) / (order - 1))


def test_divergences_agree_with_the_source() -> None:
    mu, eta, event = 0.3, 0.5, SelectBest(Gaussian(1 / 0.3), 30.0, eta=0.5)
    ((*_, values),) = [[loss.renyi] for loss in event.loss().alternatives if loss.renyi]
    fails = [
        (value - alpha * mu**2 / 2 - math.log(30.0) / (alpha - 1)) / (1 + eta)
        for alpha, value in values
    ]
    assert fails == pytest.approx([fails[0]] * len(fails), rel=1e-6)
    printed = min((a - 1) * mu**2 / 2 - math.log(event.gamma) / a for a in np.linspace(1, 99, 999))
    assert 0.3 * printed < fails[0] <= printed


def test_the_curve_is_inverted() -> None:
    for law in LAWS:
        event = with_events(law, Gaussian(4.0))
        for delta in (1e-2, 1e-5, 1e-9):
            epsilon = event.epsilon(delta)
            assert event.delta(epsilon) <= delta * (1 + 1e-6)
            assert event.delta(0.98 * epsilon) > delta


@pytest.mark.slow
@pytest.mark.proof("search", "SelectBest")
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("order", ["rising", "falling", "any"])
@pytest.mark.parametrize("mu", [0.1, 0.5])
def test_no_gaussian_candidate_exceeds_the_claim(name: str, order: str, mu: float) -> None:
    event = with_events(name, Gaussian(1 / mu))
    p, q = gaussian(mu, order)
    assert not exceeds(event, p, q, event.delta)
    # Each of the bounds is valid independently.
    best = [best_of(event, x) for x in (p, q)]
    for loss in event.loss().alternatives:
        assert not exceeds(event, p, q, loss.delta)
        for alpha, value in loss.renyi:
            for one, two in (best, best[::-1]):
                assert renyi(one, two, alpha) <= value + ROUNDING


@pytest.mark.proof("search", "SelectBest")
@pytest.mark.parametrize("name", LAWS)
def test_no_leaking_candidate_exceeds_the_claim(name: str) -> None:
    # Everything is revealed with probability 0.001, as the best or the worst result.
    leak, odds = 1e-3, 1 / (1 + math.exp(-0.4))
    event = with_events(name, ApproximateDP(0.4, leak))
    for places in itertools.permutations(range(4)):
        p = (1 - leak) * np.array([odds, 1 - odds, 0, 0]) + leak * np.array([0, 0, 1, 0])
        q = (1 - leak) * np.array([1 - odds, odds, 0, 0]) + leak * np.array([0, 0, 0, 1])
        chosen = list(places)
        assert not exceeds(event, p[chosen], q[chosen], event.delta)


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_candidate_uses_the_same_units(relation: Relation) -> None:
    inner = Gaussian(8.0) + ZCDP(0.001, "element")
    event = SelectBest((Gaussian(8.0), ZCDP(0.001, "element")), 10.0)
    assert event.level == "element"
    assert event.candidate == inner
    for units in (1, 3):
        one = inner.loss(units, relation)
        renyi = min((1 - 1 / a) * one.renyi_at(a) + math.log(10) / a for a in (4.0, 8.0, 16.0))
        largest = one.epsilon(1e-7) + 2 * renyi
        assert one.epsilon(1e-6) < event.epsilon(1e-6, units=units, relation=relation) <= largest
    assert event.epsilon(1e-6, unit=User()) == math.inf
    whole = event.epsilon(1e-6, unit=User(max_elements=3), relation=relation)
    assert whole >= event.epsilon(1e-6, units=3, relation=relation)
    assert event.epsilon(1e-6, unit=Element()) == event.epsilon(1e-6)


def test_sampled_candidates_are_covered() -> None:
    run = SampledGaussian(2.0, 0.01, 200)
    event = SelectBest(run, 10.0, eta=0.0)
    alone = run.epsilon(1e-6)
    assert 1.3 * alone < event.epsilon(1e-6) < 2 * alone


@pytest.mark.slow
def test_several_selections_add_up() -> None:
    event = SelectBest(PureDP(0.1), 10.0)
    both = event + event
    assert both.epsilon(1e-6) <= 2 * event.epsilon()
    mixed = SelectBest(
        Gaussian(
            8.0,
        ),
        10.0,
    ) + Laplace(10.0)
    assert mixed.epsilon(1e-6) > SelectBest(Gaussian(8.0), 10.0).epsilon(1e-6)


def test_a_run_of_nothing_costs_nothing() -> None:
    assert SelectBest(PureDP(0.0), 5.0).epsilon() == 0.0


def test_the_law_is_named_by_its_parameter() -> None:
    assert LAWS["geometric"].gamma == pytest.approx(1 / 20)
    with refuses("stopping"):
        _ = LAWS["poisson"].gamma


def wrong(events: Sequence[Event] = (), **named: float | str) -> Callable[[], Event]:
    given = {"mean": 5.0, **named}
    return lambda: SelectBest(tuple(events) or (PureDP(1.0),), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (wrong(mean=1.0), "mean"),
        (wrong(mean=0.0, stopping="poisson"), "mean"),
        (wrong(eta=-1.0), "eta"),
        (wrong(stopping="fixed"), "stopping"),
        (wrong(events=["model"]), "events"),  # type: ignore[list-item]
    ],
    ids=["one-run", "no-run", "eta", "fixed", "events"],
)
def test_wrong_parameters_are_named(make: Callable[[], Event], named: str) -> None:
    with refuses(named):
        make()


@pytest.mark.parametrize("delta", [1.4e-18, 1e-16, 1e-12, 1e-3])
@pytest.mark.parametrize("stopping", ["negative_binomial", "poisson"])
def test_the_answer_for_a_delta_has_no_larger_delta(stopping: Stopping, delta: float) -> None:
    """A sum of two ε is rounded up: where δ is small, it falls by much within one rounding."""
    for odds, mean in ((0.267, 933.3), (1.139, 22063.5), (6.63, 12.75)):
        event = SelectBest(PureDP(odds), mean, stopping, eta=0.5)
        # Only the curve, without the other valid bounds.
        for way in event.loss().others:
            epsilon = way.epsilon(delta)
            assert epsilon == math.inf or way.delta(epsilon) <= delta


RUN_LAWS = {
    "geometric": (10.0, "negative_binomial", 1.0),
    "many": (10_000.0, "negative_binomial", 1.0),
    "few": (1.5, "negative_binomial", 1.0),
    "logarithmic": (30.0, "negative_binomial", 0.0),
    "steady": (12.0, "negative_binomial", 4.0),
    "half": (6.0, "negative_binomial", -0.5),
    "poisson": (10.0, "poisson", 1.0),
    "poisson-short": (0.3, "poisson", 1.0),
}


def runs(name: str) -> RunCount:
    mean, stopping, eta = RUN_LAWS[name]
    if stopping == "poisson":
        return RunCount(mean)
    return RunCount(mean, SelectBest(PureDP(1.0), mean, eta=eta).gamma, eta)


def among_best(law: RunCount, share: Array) -> Array:
    """The chance that the best of the runs is among the best results of a share, by its definition."""
    if law.gamma == 0:
        return np.asarray(-np.expm1(-law.mean * share))
    rest = law.gamma + (1 - law.gamma) * share
    if law.eta == 0:
        return np.asarray(1 - np.log(rest) / math.log(law.gamma))
    power = law.gamma**-law.eta
    return np.asarray((power - rest**-law.eta) / (power - 1))


def worst(law: RunCount, mu: float, epsilon: float) -> float:
    """The largest δ of x ~ N(μ, 1) or N(0, 1): small x are best, then large ones, then the rest."""
    first = np.concatenate([[-np.inf], np.linspace(-8, 8, 161)])
    better, own = np.meshgrid(first, np.linspace(-8, 8 + mu, 161), indexing="ij")
    seen = [
        among_best(law, ndtr(better - shift) + ndtr(shift - own))
        - among_best(law, ndtr(better - shift))
        for shift in (mu, 0.0)
    ]
    ordered = better <= own
    return max(float((p - math.exp(epsilon) * q)[ordered].max()) for p, q in (seen, seen[::-1]))


@pytest.mark.parametrize("name", RUN_LAWS)
@pytest.mark.parametrize("mu", [1e-4, 0.03, 1.0])
def test_no_order_of_results_shows_more(name: str, mu: float) -> None:
    law = runs(name)
    curve = BestRunCurve(Loss(mu=mu), law)
    for epsilon in mu * np.array([0.0, 0.3, 1.0, 2.0, 4.0, 6.0]):
        assert curve.delta(float(epsilon)) >= worst(law, mu, float(epsilon)) - 1e-13


@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.1, 1.0])
def test_price_is_near_the_bound_of_one_order(mu: float) -> None:
    law = runs("many")
    curve = BestRunCurve(Loss(mu=mu), law)
    epsilon = 12 * mu + mu * mu / 2
    shown = worst(law, mu, epsilon)
    assert shown <= curve.delta(epsilon) <= 4 * shown
    assert curve.delta(1.05 * epsilon) < shown
    # As if no result could be better: less than is shown.
    assert curve.runs.mean * Gaussian(1 / mu).delta(epsilon) < shown


@pytest.mark.parametrize(("eta", "epsilon"), [*itertools.product((0.0, 1.0, 3.0), (1e-3, 0.5))])
def test_a_rare_result_of_pure_runs_is_covered(eta: float, epsilon: float) -> None:
    """Below better ones of ratio e^{−ε}, a rare result of ratio e^ε is seen with e^{(2+η)ε}."""
    gamma = SelectBest(PureDP(1.0), 50.0, eta=eta).gamma
    law = RunCount(50.0, gamma, eta)
    for share, rare in itertools.product((0.01, 0.1, 0.4), (1e-6, 1e-3)):
        sides = np.array([[share, share + rare], [share * math.exp(epsilon), 0.0]])
        sides[1, 1] = sides[1, 0] + rare * math.exp(-epsilon)
        (a, b), (c, d) = among_best(law, sides)
        for factor in (0.0, 0.5, 0.9):
            asked = factor * (2 + eta) * epsilon
            shown = (b - a) - math.exp(asked) * (d - c)
            assert BestRunCurve(Loss(pure=epsilon), law).delta(asked) >= shown - 1e-13


def test_leaks_of_runs_are_counted_once_per_run() -> None:
    curve = BestRunCurve(ApproximateDP(0.1, 1e-6).loss(), runs("geometric"))
    assert curve.delta(400.0) == pytest.approx(10 * 1e-6, rel=1e-3)
    # Runs that reveal everything are best with probability 1.
    assert BestRunCurve(Loss(leak=1.0), runs("geometric")).delta(1.0) == 1.0


def test_one_run_is_one_run() -> None:
    # A number of runs that rarely exceeds 1.
    curve = BestRunCurve(Gaussian(2.0).loss(), RunCount(1 + 1e-9, 1 - 1e-9, 1.0))
    for epsilon in (0.0, 0.5, 2.0):
        one = Gaussian(2.0).delta(epsilon)
        assert one <= curve.delta(epsilon) <= 1.02 * one
    assert curve.epsilon(1e-6) == pytest.approx(Gaussian(2.0).epsilon(1e-6), rel=1e-2)
    assert curve.bounds(1e-6) == (0.0, curve.epsilon(1e-6))


@pytest.mark.parametrize(
    "law",
    [
        *map(runs, RUN_LAWS),
        RunCount(1e18),
        RunCount(1e18, 1e-18, 1e6),
        RunCount(1.0, 1 - 1e-12, 0.5),
    ],
)
def test_steps_between_weights_are_rounded_up(law: RunCount) -> None:
    """A difference of two numbers near 1 cancels small probabilities."""
    chances = np.append(0.0, np.geomspace(1e-20, 1.0, 200))
    with mpmath.workdps(60):
        gamma = mpmath.mpf(law.gamma)
        weights = [
            (gamma / (gamma + (1 - gamma) * mpmath.mpf(s))) ** (1 + mpmath.mpf(law.eta))
            if law.gamma
            else mpmath.exp(-mpmath.mpf(law.mean) * mpmath.mpf(s))
            for s in chances
        ]
        exact = [one - two for one, two in itertools.pairwise(weights)]
        for step, least, whole in zip(law.steps(chances), exact, weights, strict=False):
            assert least <= step + 1e-300
            assert step <= least + 1e-6 * whole + 1e-290


def test_poissons_mean_is_not_rounded() -> None:
    (*_, best, _) = SelectBest(Gaussian(1.0), 10.0, stopping="poisson").loss().alternatives
    ((pair, _),) = best.pairs
    assert pair.known.runs == RunCount(10.0)  # type: ignore[attr-defined]
