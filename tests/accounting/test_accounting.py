"""The accountant against independent arithmetic: mpmath, numerical integration, Google's PLD."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr
from tests.sampling import examples

from dpgrain.accounting import (
    RDP,
    ZCDP,
    ApproximateDP,
    BoundedRange,
    Compose,
    Contribution,
    Event,
    Gaussian,
    Laplace,
    Loss,
    Parallel,
    PureDP,
    Selection,
    TruncatedGeometric,
    calibrate_gaussian,
    calibrate_laplace,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_multipliers,
)
from dpgrain.errors import ParameterError
from dpgrain.units import RELATIONS, Element, Record, Relation, User

EPSILONS = [0.0, 1e-6, 1e-3, 0.1, 0.5, 1.0, 3.0, 8.0, 20.0, 60.0, 200.0]
MUS = [1e-4, 1e-3, 0.02, 0.1, 0.3, 1.0, 2.5, 7.0, 15.0, 30.0]
# How far the floating-point curve may be from the exact one, relative and absolute.
CURVE_ERROR, CURVE_FLOOR = 1e-9, 1e-14


def exact_delta(epsilon: float, mu: float) -> Any:
    """The curve by 60 (and, where e^ε is large, many more) decimal digits of erfc."""
    with mpmath.workdps(60 + int(epsilon) + int(mu * mu)):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


# The Gaussian curve.


@pytest.mark.parametrize("mu", MUS)
def test_the_curve_agrees_with_sixty_digits(mu: float) -> None:
    for epsilon in EPSILONS:
        exact = exact_delta(epsilon, mu)
        if exact < 1e-300:
            assert gaussian_delta(epsilon, mu) <= 1e-290
            continue
        computed = gaussian_delta(epsilon, mu)
        assert abs(computed - exact) <= CURVE_ERROR * exact + (
            CURVE_FLOOR if epsilon <= mu * mu / 2 else 0
        )


def test_the_published_value() -> None:
    assert 1 / gaussian_mu(1.0, 1e-5) == pytest.approx(3.7306, abs=5e-5)
    assert calibrate_gaussian(1.0, 1e-5).noise_multiplier == pytest.approx(3.7306, abs=5e-5)


def test_the_ends_of_the_curve() -> None:
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_delta(1.0, math.inf) == 1.0
    assert gaussian_delta(math.inf, 3.0) == 0.0
    assert gaussian_delta(0.0, 1.0) == pytest.approx(float(2 * ndtr(0.5) - 1), rel=1e-14)
    assert gaussian_epsilon(0.0, 1.0) == math.inf
    assert gaussian_epsilon(1e-6, 0.0) == 0.0
    assert gaussian_epsilon(0.999, 0.1) == 0.0
    assert gaussian_epsilon(1e-6, math.inf) == math.inf
    assert gaussian_mu(1.0, 0.0) == 0.0
    assert gaussian_mu(1.0, 1.0) == math.inf


@pytest.mark.search(keep=20)
@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-5, 1e-10, 1e-30, 1e-200])
@pytest.mark.parametrize("mu", MUS)
def test_epsilon_of_delta_rounds_towards_privacy(delta: float, mu: float) -> None:
    epsilon = gaussian_epsilon(delta, mu)
    assert gaussian_delta(epsilon, mu) <= delta
    assert exact_delta(epsilon, mu) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert gaussian_delta(epsilon * (1 - 1e-12), mu) > delta * (1 - 1e-9)
        assert exact_delta(epsilon * (1 - 1e-7), mu) > delta


@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-5, 1e-10, 1e-30, 1e-200])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 60.0])
def test_mu_of_epsilon_and_delta_rounds_towards_privacy(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert exact_delta(epsilon, mu) <= delta * (1 + 1e-9)
    assert exact_delta(epsilon, mu * (1 + 1e-7)) > delta
    # The computed curve is not monotone in its last digits, hence not exactly.
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-11)


@given(st.floats(0, 100), st.floats(1e-4, 30), st.floats(1e-4, 30), st.floats(1e-12, 0.5))
def test_the_curve_is_monotone(epsilon: float, mu: float, other: float, delta: float) -> None:
    low, high = sorted((mu, other))
    assert gaussian_delta(epsilon, low) <= gaussian_delta(epsilon, high) * (1 + 1e-9) + 1e-15
    assert gaussian_epsilon(delta, low) <= gaussian_epsilon(delta, high) * (1 + 1e-9) + 1e-9
    assert gaussian_delta(epsilon + 0.1, mu) <= gaussian_delta(epsilon, mu)
    assert 0.0 <= gaussian_delta(epsilon, mu) <= 1.0


@pytest.mark.search(keep=2)
@pytest.mark.parametrize("sd", [0.5, 1.0, 3.7306, 10.0])
def test_the_curve_agrees_with_googles_accountant(sd: float) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    # Rounded up and down: the exact curve lies between the two.
    above, below = (
        pld.from_gaussian_mechanism(sd, value_discretization_interval=1e-4, pessimistic_estimate=up)
        for up in (True, False)
    )
    for delta in (1e-3, 1e-5, 1e-8):
        epsilon = Gaussian(sd).epsilon(delta)
        assert epsilon == pytest.approx(above.get_epsilon_for_delta(delta), rel=1e-3, abs=1e-3)
        assert below.get_epsilon_for_delta(delta) - 1e-6 <= epsilon
        assert epsilon <= above.get_epsilon_for_delta(delta) + 1e-6
    many = Gaussian(4 * sd, count=16)
    composed = pld.from_gaussian_mechanism(4 * sd, value_discretization_interval=1e-4)
    theirs = composed.self_compose(16).get_epsilon_for_delta(1e-6)
    assert many.epsilon(1e-6) == pytest.approx(theirs, rel=2e-3)


# What the papers print, and why this library computes something else.


def test_lemma_3_2_of_the_long_paper_is_false() -> None:
    epsilon, delta = 1.0, 1e-5
    variance = (epsilon > 1) / epsilon + 2 * math.log(1 / delta) / epsilon**2
    event = Gaussian(math.sqrt(variance))
    # A replaced element of non-negative counts moves by √2ρ, not by ρ.
    assert event.delta(epsilon, relation="replace") == pytest.approx(4.28e-5, abs=0.01e-5)
    assert event.epsilon(delta, relation="replace") == pytest.approx(1.110, abs=0.0005)
    assert exact_delta(epsilon, math.sqrt(2 / variance)) > 4 * delta


def test_equation_4_of_the_short_paper_is_false_for_large_epsilon() -> None:
    # Noise es·N(0, 2 log(1/δ)/ε²) on a sum of sensitivity es is claimed (ε, δ)-DP.
    for delta, holds, fails in ((1e-5, 7.9, 8.1), (1e-6, 8.3, 8.5), (1e-8, 8.9, 9.1)):
        for epsilon, true in ((holds, True), (fails, False), (2 * fails, False)):
            sd = math.sqrt(2 * math.log(1 / delta)) / epsilon
            assert (exact_delta(epsilon, 1 / sd) <= delta) is true
            assert (Gaussian(sd).epsilon(delta) <= epsilon) is true


def test_the_curve_in_k_is_not_a_multiple_of_epsilon() -> None:
    event = calibrate_gaussian(1.0, 1e-5)
    curve = [event.epsilon(1e-5, units=k) for k in (1, 4, 16)]
    assert curve[:2] == pytest.approx([1.0, 2.155], abs=5e-4)
    for k, epsilon in zip((1, 4, 16), curve, strict=True):
        assert exact_delta(epsilon, math.sqrt(k) / event.noise_multiplier) <= 1e-5 * (1 + 1e-9)
        assert epsilon <= math.sqrt(k) * 1.2


# Loss: the algebra of the three parts.


def _randomised_response(p: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    truth = 1 / (1 + math.exp(-p))
    return np.array([truth, 1 - truth]), np.array([1 - truth, truth])


def brute_delta(epsilon: float, mu: float, pure: float, leak: float) -> float:
    """H of Gaussian ⊗ randomised response ⊗ leak, by numerical integration over a fine grid."""
    x = np.linspace(-12, mu + 12, 40_001)
    density = [np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (mu, 0.0)]
    one, other = _randomised_response(pure)
    p = np.multiply.outer(density[0], one) * (1 - leak)
    q = np.multiply.outer(density[1], other) * (1 - leak)
    gap = np.maximum(p - math.exp(epsilon) * q, 0).sum(axis=1)
    return float(np.trapezoid(gap, x)) + leak


@pytest.mark.parametrize("mu", [0.0, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("pure", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("leak", [0.0, 1e-3, 0.2])
def test_a_loss_covers_the_worst_mechanisms_with_its_parts(
    mu: float, pure: float, leak: float
) -> None:
    loss = Loss(mu, pure, leak)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0, 6.0):
        true, claimed = brute_delta(epsilon, mu, pure, leak), loss.delta(epsilon)
        assert true <= claimed + 5e-8
        if leak == 0 and (mu == 0 or pure == 0):
            assert claimed == pytest.approx(true, abs=1e-7)


@given(
    st.floats(0, 5),
    st.floats(0, 5),
    st.floats(0, 0.5),
    st.floats(1e-9, 0.9),
)
@settings(deadline=None)
def test_epsilon_and_delta_of_a_loss_invert_each_other(
    mu: float, pure: float, leak: float, delta: float
) -> None:
    loss = Loss(mu, pure, leak)
    epsilon = loss.epsilon(delta)
    if math.isinf(epsilon):
        assert delta <= leak * (1 + 1e-12)
        return
    assert loss.delta(epsilon) <= delta * (1 + 1e-9) + 1e-15
    # Where δ is so large that ε falls below the pure part, the pure part is returned.
    if epsilon > max(1e-3, pure if mu > 0 else 0):
        assert loss.delta(epsilon * (1 - 1e-6) - 1e-9) >= delta * (1 - 1e-9)


def test_losses_add() -> None:
    one, two = Loss(3.0, 0.25, 1e-3), Loss(4.0, 0.5, 1e-4)
    assert one + two == two + one == Loss(5.0, 0.75, 1e-3 + 1e-4, (0.25**2 + 0.5**2) / 2)
    assert one + Loss() == one
    assert (Loss(leak=0.7) + Loss(leak=0.7)).leak == 1.0


def test_extreme_losses() -> None:
    assert Loss().epsilon(0.0) == 0.0
    assert Loss(pure=math.inf).epsilon(0.5) == math.inf
    assert Loss(mu=math.inf).delta(5.0) == 1.0
    assert Loss(mu=1.0, pure=math.inf).delta(5.0) == 1.0
    assert Loss(pure=math.inf).delta(5.0) == 1.0
    assert Loss(leak=0.1).epsilon(0.1) == 0.0
    assert Loss(leak=0.1).epsilon(0.09) == math.inf
    assert Loss(mu=1.0, leak=0.1).epsilon(0.1) == math.inf
    assert Loss(pure=2000.0).epsilon(1e-6) == pytest.approx(2000.0, abs=1e-5)
    assert Loss(pure=2000.0).delta(0.0) == 1.0


# Events.


EVENTS: list[Event] = [
    Gaussian(3.0),
    Gaussian(3.0, Contribution(layout="shared", max_elements=3), count=5),
    Gaussian(2.0, Contribution(block="user", record_size=0.25)),
    Laplace(2.0),
    Laplace(2.0, Contribution(norm="l1", coordinates="signed", cells=9), count=2),
    Selection(4.0, threshold=30.0, max_items=3),
    TruncatedGeometric(1.0, cutoff=20, max_items=3),
    BoundedRange(0.1, count=9),
    ApproximateDP(0.5, 1e-7, "element", "replace", count=3),
    PureDP(0.5, level="element"),
    ZCDP(0.1, level="element", count=2),
    RDP((2.0, 8.0, 64.0), (0.01, 0.04, 0.4), "element"),
    Parallel((Gaussian(3.0), Laplace(2.0))),
]
EVENTS.append(Compose(tuple(EVENTS[:4])))
EVENTS.append(EVENTS[-1] + EVENTS[5])
each = pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)


@each
def test_json_brings_every_event_back(event: Event) -> None:
    text = event.to_json()
    # Strict JSON: no Infinity, no NaN.
    assert json.loads(text, parse_constant=pytest.fail) == event.to_dict()
    assert Event.from_json(text) == event
    assert hash(Event.from_json(text)) == hash(event)
    assert json.loads(text)["event"] == type(event).__name__


def test_every_kind_of_event_is_tested() -> None:
    own = {n for n, kind in Event._kinds.items() if kind.__module__ == Event.__module__}
    assert {type(event).__name__ for event in EVENTS} == own


def test_an_unknown_event_is_refused_by_name() -> None:
    with pytest.raises(ParameterError, match=r"event 'Tarot' is not known.*Gaussian, Laplace"):
        Event.from_dict({"event": "Tarot", "cards": 78})
    nested = Compose((Gaussian(1.0),)).to_dict()
    nested["events"][0]["event"] = "Tarot"
    with pytest.raises(ParameterError, match="'Tarot'"):
        Event.from_dict(nested)
    with pytest.raises(ParameterError, match="event None is not known"):
        Event.from_json("{}")


@each
def test_events_are_frozen(event: Event) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.count = 7  # type: ignore[attr-defined]


@each
@pytest.mark.parametrize("unit", [None, Record(), Element(), User(max_elements=3)], ids=repr)
def test_more_units_never_cost_less(event: Event, unit: Any) -> None:
    if unit is None and isinstance(event, Compose) and len({e.level for e in event.events}) > 1:
        unit = User(max_elements=3)
    for relation in RELATIONS:
        curve = [event.delta(1.0, units=k, relation=relation, unit=unit) for k in range(1, 8)]
        assert curve == sorted(curve)
    for k in (1, 3):
        assert event.delta(1.0, units=k, unit=unit) <= event.delta(
            1.0, units=k, relation="replace", unit=unit
        )


def test_composing_different_units_needs_a_unit() -> None:
    """Each event's own unit would protect nobody: a user's cost of both is infinite here."""
    mixed = Gaussian(3.0, Contribution(block="user")) + Gaussian(3.0)
    with pytest.raises(ParameterError, match="different units, element, user"):
        mixed.epsilon(1e-6)
    assert mixed.epsilon(1e-6, unit=User()) == math.inf
    assert mixed.epsilon(1e-6, unit=Element()) > Gaussian(3.0, count=2).epsilon(1e-6)


def test_small_and_huge_losses_are_not_rounded_away() -> None:
    assert PureDP(1e-17).epsilon(0.0) == 1e-17
    assert PureDP(630.0).epsilon(0.0) == 630.0
    # The smallest float: what is larger than 0 is not called 0.
    assert Gaussian(1e200).delta(1.0) == 5e-324
    assert Gaussian(1e-200).delta(1.0) == 1.0


@pytest.mark.parametrize("mu", [-1.0, math.nan])
def test_the_curve_refuses_nonsense(mu: float) -> None:
    with pytest.raises(ParameterError, match="mu must be at least 0"):
        gaussian_delta(1.0, mu)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("delta", [1e-30, 1e-15, 1e-6, 0.1])
def test_small_epsilons_round_towards_privacy(epsilon: float, delta: float) -> None:
    assert calibrate_gaussian(epsilon, delta).epsilon(delta) <= epsilon


@pytest.mark.parametrize("make", [Gaussian, Laplace, lambda m: Selection(m, 5 * m, 1)])
def test_more_noise_never_costs_more(make: Any) -> None:
    for relation in RELATIONS:
        epsilons = [make(m).delta(0.5, relation=relation) for m in (0.5, 1.0, 2.0, 8.0, 64.0)]
        assert epsilons == sorted(epsilons, reverse=True)


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(20.0),
        Gaussian(20.0, Contribution(layout="shared")),
        Laplace(20.0),
        ApproximateDP(0.05, 1e-9, "element"),
        PureDP(0.05, level="element"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("n", [1, 2, 7, 50])
def test_count_n_is_n_events(event: Event, n: int) -> None:
    many = dataclasses.replace(event, count=n)  # type: ignore[type-var]
    composed = Compose((event,) * n)
    for units, relation in itertools.product((1, 3), RELATIONS):
        counted = many.loss(units, relation)
        one_by_one = composed.loss(units, relation)
        for field in ("mu", "pure", "leak"):
            assert getattr(counted, field) == pytest.approx(getattr(one_by_one, field), rel=1e-12)
        assert many.epsilon(1e-5, units=units, relation=relation) == pytest.approx(
            composed.epsilon(1e-5, units=units, relation=relation), rel=1e-9
        )
    if n > 1:
        assert many.epsilon(1e-5) > event.epsilon(1e-5)


def test_order_and_nesting_do_not_matter() -> None:
    parts = [Gaussian(5.0), Laplace(9.0), Selection(6.0, 40.0, 2), Gaussian(7.0, count=3)]
    epsilons = []
    for order in itertools.permutations(parts):
        a, b, c, d = order
        assert ((a + b) + (c + d)).events == (a + (b + c) + d).events == order
        epsilons.append((a + b + c + d).epsilon(1e-6))
        epsilons.append(Compose((Compose((a, b)), Compose((c, d)))).epsilon(1e-6))
    assert max(epsilons) == pytest.approx(min(epsilons), rel=1e-12)


def test_gaussians_add_squares_and_pure_parts_add() -> None:
    both = Gaussian(3.0) + Gaussian(4.0)
    assert both.epsilon(1e-6) == pytest.approx(gaussian_epsilon(1e-6, math.hypot(1 / 3, 1 / 4)))
    assert (Laplace(2.0) + Laplace(4.0)).epsilon() == 0.75
    mixed = Gaussian(3.0) + Laplace(2.0)
    assert mixed.epsilon(1e-6) == pytest.approx(0.5 + Gaussian(3.0).epsilon(1e-6))


def test_basic_composition_adds_epsilons_and_deltas() -> None:
    both = ApproximateDP(0.5, 1e-6) + ApproximateDP(0.25, 1e-7)
    assert both.epsilon(1.1e-6) == pytest.approx(0.75)
    assert both.epsilon(1.09e-6) == math.inf
    # The short paper's δᵢ/(1 + e^εᵢ) is less than is true: both leak outright.
    shares = sum(d / (1 + math.exp(e)) for e, d in ((0.5, 1e-6), (0.25, 1e-7)))
    assert both.delta(10.0) == pytest.approx(1.1e-6)
    assert shares < both.delta(10.0)


def test_curves_go_by_the_root_of_k_and_by_k() -> None:
    for k in (1, 2, 5, 30):
        assert Gaussian(3.0).loss(k).mu == pytest.approx(math.sqrt(k) / 3)
        assert Gaussian(3.0, Contribution(layout="shared")).loss(k).mu == pytest.approx(k / 3)
        assert Laplace(3.0).epsilon(units=k) == pytest.approx(k / 3)


def test_group_privacy_of_an_approximate_mechanism() -> None:
    # δ_k = Σ_{i<k} e^{iε}δ, the k-fold hybrid argument written out.
    epsilon, delta = 0.3, 1e-6
    event = ApproximateDP(epsilon, delta)
    for k in range(1, 12):
        steps = sum(delta * math.exp(i * epsilon) for i in range(k))
        assert event.loss(k).leak == pytest.approx(steps, rel=1e-12)
        assert event.loss(k).pure == pytest.approx(k * epsilon)
    assert ApproximateDP(0.0, 1e-6).loss(5).leak == pytest.approx(5e-6)
    assert ApproximateDP(30.0, 1e-6).loss(100).leak == 1.0
    # A replacement is a removal and an addition.
    assert event.loss(relation="replace") == event.loss(2)
    assert ApproximateDP(epsilon, delta, relation="replace").loss(relation="replace") == (
        event.loss()
    )


def test_a_finer_unit_inside_a_block_is_billed_as_a_replacement() -> None:
    event = PureDP(0.5)
    assert event.epsilon(unit=Element()) == event.epsilon(unit=Record()) == 1.0
    assert PureDP(0.5, level="element").epsilon(unit=User()) == math.inf
    assert PureDP(0.5, level="element").epsilon(unit=User(max_elements=3)) == 1.5
    assert PureDP(0.5, level="record").epsilon(unit=Element()) == math.inf
    block = Gaussian(3.0, Contribution(block="user"))
    assert block.loss(unit=Element()).mu == pytest.approx(math.sqrt(2) / 3)


# Parameters.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(0.0), r"noise_multiplier must be .* not 0\.0"),
        (lambda: Gaussian(math.inf), "noise_multiplier must be .* not inf"),
        (lambda: Gaussian(math.nan), "noise_multiplier must be .* not nan"),
        (lambda: Gaussian(True), "noise_multiplier must be a number, not True"),
        (lambda: Gaussian(1.0, count=0), "count must be .* not 0"),
        (lambda: Laplace(-2.0), r"noise_multiplier must be .* not -2\.0"),
        (lambda: Laplace(1.0, Contribution()), "contribution must have norm='l1'"),
        (lambda: Laplace(1.0, count=1.5), r"count must be .* not 1\.5"),  # type: ignore[arg-type]
        (lambda: Selection(1.0, -1.0, 1), r"threshold must be .* not -1\.0"),
        (lambda: Selection(1.0, 1.0, 0), "max_items must be .* not 0"),
        (lambda: ApproximateDP(-0.5), r"guaranteed_epsilon must be .* not -0\.5"),
        (lambda: ApproximateDP(0.5, 1.0), r"guaranteed_delta must .* not 1\.0"),
        (lambda: Compose(()), "events must hold events, at least one"),
        (lambda: Gaussian(1.0).epsilon(), "delta must be given"),
        (lambda: Gaussian(1.0).epsilon(1.5), r"delta must .* not 1\.5"),
        (lambda: Gaussian(1.0).epsilon(1e-6, units=0), "units must .* not 0"),
        (lambda: Gaussian(1.0).delta(-1.0), r"epsilon must .* not -1\.0"),
        (
            lambda: Gaussian(1.0).epsilon(1e-6, relation="swap"),  # type: ignore[call-overload]
            "relation must be .* not 'swap'",
        ),
        (lambda: calibrate_gaussian(0.0, 1e-6), r"epsilon must .* not 0\.0"),
        (lambda: calibrate_gaussian(1.0, 0.0), "delta = 0 needs pure"),
        (lambda: calibrate_gaussian(1.0, 1e-6, count=0), "count must .* not 0"),
        (lambda: calibrate_gaussian(1.0, 1e-6, unit=User()), "give User a max_elements"),
        (lambda: calibrate_laplace(math.inf), "epsilon must .* not inf"),
        (lambda: gaussian_multipliers(1.0, 1e-6, [Contribution()], [0.0]), "share must"),
    ],
)
def test_errors_name_the_value(make: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


# Calibration.

CONTRIBUTIONS = [
    Contribution(),
    Contribution(coordinates="signed"),
    Contribution(layout="shared", max_elements=3),
    Contribution(block="user", coordinates="one"),
    Contribution(max_elements=5, coordinates="one"),
]


@given(
    st.floats(1e-3, 40),
    st.floats(1e-15, 0.1),
    st.sampled_from(CONTRIBUTIONS),
    st.sampled_from(RELATIONS),
    st.sampled_from([1, 2, 10, 1000]),
)
@examples(150)
def test_calibrated_noise_keeps_its_promise_and_wastes_nothing(
    epsilon: float, delta: float, contribution: Contribution, relation: Relation, count: int
) -> None:
    event = calibrate_gaussian(
        epsilon, delta, contribution=contribution, relation=relation, count=count
    )
    reported = event.epsilon(delta, relation=relation)
    assert reported <= epsilon
    assert epsilon - reported < 1e-9 * max(epsilon, 1)
    assert event.count == count
    assert event.contribution == contribution
    less = dataclasses.replace(event, noise_multiplier=event.noise_multiplier * (1 - 1e-9))
    assert less.epsilon(delta, relation=relation) > epsilon * (1 - 1e-12)


@given(
    st.floats(1e-2, 20),
    st.floats(1e-12, 1e-2),
    st.lists(
        st.tuples(st.sampled_from(CONTRIBUTIONS), st.floats(0.01, 10)), min_size=1, max_size=5
    ),
    st.sampled_from(RELATIONS),
)
@examples(100)
def test_several_releases_together_keep_one_promise(
    epsilon: float, delta: float, parts: list[tuple[Contribution, float]], relation: Relation
) -> None:
    contributions, shares = [c for c, _ in parts], [s for _, s in parts]
    unit = Element()
    noise = gaussian_multipliers(epsilon, delta, contributions, shares, relation, unit)
    events = tuple(Gaussian(m, c) for m, c in zip(noise, contributions, strict=True))
    together = Compose(events)
    reported = together.epsilon(delta, relation=relation, unit=unit)
    assert reported <= epsilon
    assert epsilon - reported < 1e-9 * max(epsilon, 1)
    squares = [event.loss(1, relation, unit).mu ** 2 for event in events]
    assert squares[0] / sum(squares) == pytest.approx(shares[0] / sum(shares))


@given(st.floats(1e-4, 100), st.sampled_from(RELATIONS), st.integers(1, 50))
def test_calibrated_laplace_noise_keeps_its_promise(
    epsilon: float, relation: Relation, count: int
) -> None:
    event = calibrate_laplace(epsilon, relation=relation, count=count)
    assert event.epsilon(relation=relation) <= epsilon
    assert event.epsilon(relation=relation) == pytest.approx(epsilon, rel=1e-14)


def test_calibration_for_a_coarser_unit() -> None:
    event = calibrate_gaussian(1.0, 1e-5, unit=User(max_elements=9))
    assert event.epsilon(1e-5, unit=User(max_elements=9)) <= 1.0
    assert event.noise_multiplier == pytest.approx(3 * 3.7306, abs=1e-3)
