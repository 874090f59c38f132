"""Absurd numbers, in every field of every event, from code, from JSON and composed: they fail closed.

They raise an error, or the answer is at least the ε of an event with more noise.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.refusals import refuses

from dpgrain.accounting import (
    RDP,
    ZCDP,
    AboveThreshold,
    AdaptiveSelection,
    ApproximateDP,
    Binomial,
    BoundedRange,
    Compose,
    Contribution,
    Event,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    Loss,
    Parallel,
    Participation,
    Poisson,
    PureDP,
    SampledGaussian,
    SelectBest,
    Selection,
    SoftCore,
    StatisticallyClose,
    TruncatedGeometric,
    calibrate,
    calibrate_gaussian,
    calibrate_laplace,
    gaussian_delta,
    gaussian_epsilon,
)
from dpgrain.accounting.losses.rounding import fails_closed, hypot_up, product_up, sum_up
from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import Element, Record, User

DELTA = 1e-6
# Relative loss of numerical composition.
NUMERIC = 1e-3
# Largest processor time of an answer, in seconds. Absurd values take less than one; sampled users
# with all their elements take nearly as long at normal values, and machines differ.
LONGEST = 4.0

EVENTS: dict[str, Event] = {
    "gaussian": Gaussian(3.0),
    "laplace": Laplace(9.0),
    "pure": PureDP(0.2, level="element"),
    "approximate": ApproximateDP(0.3, 1e-12, "element", "replace", 2),
    "zcdp": ZCDP(0.01, "element"),
    "rdp": RDP((2.0, 8.0, 64.0), (0.02, 0.08, 0.64), "element"),
    "bounded-range": BoundedRange(0.02, 30, "element"),
    "selection": Selection(4.0, 45.0, 2),
    "adaptive-selection": AdaptiveSelection(4.0, 45.0, 6.0, 60.0, 12.0, 2),
    "truncated-geometric": TruncatedGeometric(0.4, 60, 2),
    "pairs": SampledGaussian(1.5, 0.02, 20),
    "pairs-disjoint": SampledGaussian(1.5, 0.05, 10, blocks="disjoint"),
    "users": SampledGaussian(4.0, 0.1, 10, sampling="users"),
    "users-kept": SampledGaussian(6.0, 0.1, 5, sampling="users", max_elements=3),
    "participation": Participation(6.0, 3),
    "threshold": AboveThreshold(20.0, 40.0),
    "choice": ExponentialMechanism(40.0),
    "soft-core": SoftCore(0.02, 4000, 3000, 1400.0, 20.0, 40.0, 5),
    "binomial": Binomial(1_000_000, 0.5, 100, 1, 1e-12, 2),
    "poisson": Poisson(250_000.0, 100, 1, 1e-12, 2),
    "best": SelectBest(Gaussian(9.0), 10.0),
    "close": StatisticallyClose(Gaussian(5.0), 1e-13),
    "compose": Compose((Gaussian(5.0), Laplace(9.0))),
    "parallel": Parallel((Gaussian(4.0), Gaussian(3.0))),
}
# Larger values of these fields add noise; larger values of all others cost more.
QUIETER = {
    "noise_multiplier",
    "threshold",
    "cutoff",
    "threshold_scale",
    "query_scale",
    "scale",
    "trials",
    "gap",
    "core",
    "orders",
}
# No order: whether more coins, users or attempts cost more depends on the rest.
UNORDERED = {"probability", "users", "eta", "leak", "trials", "core", "gap", "orders", "mean"}

ABSURD: tuple[Any, ...] = (
    0, 0.0, -0.0, 5e-324, 1e-310, 1e-300, 1e-160, 1e-20, 1e20, 1e160, 1e300, 1e308, math.inf, -math.inf,
    math.nan, -1, -1.0, 1, 2, 10**6, 10**18, 10**400, -(10**400), 10**5000, True, False, "false", "no",
    "inf", "", None, (), [], [1.0], {}, {"a": 1}, np.float64(1e300), np.float64("nan"), np.float32(3.0),
    np.int64(7), np.uint8(200), np.bool_(True), np.array([1.0, 2.0]), np.array(3.0), Fraction(1, 3),
    Fraction(10**400, 3), Decimal("0.5"), Decimal("NaN"), 1j, object(), Gaussian(1.0), b"1",
)  # fmt: skip

NORMAL = SampledGaussian(1.0, 0.01, 100)
NORMAL_EPSILON = NORMAL.epsilon(DELTA)


def answered(question: Callable[..., Any], *args: Any, **asked: Any) -> Any:
    """The answer if it is in time, or None if it raises an error."""
    start = time.thread_time()
    found, refusal = None, "."
    try:
        found = question(*args, **asked)
    except DpgrainError as error:
        refusal = str(error)
    assert time.thread_time() - start < LONGEST
    assert len(refusal) < 700
    assert refusal.endswith((".", ")"))
    return found


def sane(epsilon: Any) -> None:
    """A number from 0 to infinity, and no other kind of thing."""
    assert type(epsilon) is float
    assert epsilon >= 0


def with_field(event: Event, name: str, value: Any) -> Event:
    return dataclasses.replace(event, **{name: value})  # type: ignore[type-var]


def dearer(event: Event, name: str, value: Any) -> bool:
    """Whether the value certainly costs no less than the one that the event has."""
    own: Any = getattr(event, name)
    if name in UNORDERED or isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if own is None or isinstance(own, bool | str | tuple | Contribution):
        return False
    return bool(value <= own if name in QUIETER else value >= own)


FIELDS = [
    (name, part.name)
    for name, event in EVENTS.items()
    for part in dataclasses.fields(event)  # type: ignore[arg-type]
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_absurd_fields_of_events_fail_closed(name: str, field: str) -> None:
    event = EVENTS[name]
    least = event.epsilon(DELTA) * (1 - NUMERIC)
    for value in ABSURD:
        made = answered(with_field, event, field, value)
        if made is None:
            continue
        found = answered(made.epsilon, DELTA)
        if found is not None:
            sane(found)
            assert found >= least or not dearer(event, field, value), (value, found, least)
        # Together with another event nothing becomes cheaper.
        both = made + NORMAL
        found = answered(both.epsilon, DELTA, unit=Element())
        sane(found)
        assert found >= NORMAL_EPSILON * (1 - NUMERIC), (value, found)


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_json_agrees_with_code(name: str, field: str) -> None:
    event = EVENTS[name]
    described = event.to_dict()
    for value in ABSURD:
        try:
            text = json.dumps({**described, field: value})
        except (TypeError, ValueError):
            continue
        from_code = answered(with_field, event, field, value)
        from_json = answered(Event.from_json, text)
        if isinstance(value, dict | str | float | tuple | list):
            # JSON has fewer types: objects for contributions, lists for tuples, "inf".
            if from_json is not None:
                sane(from_json.epsilon(DELTA, unit=Element()))
        else:
            assert from_json == from_code, value
    without = {k: v for k, v in described.items() if k != field}
    wrongs: tuple[dict[str, Any], ...] = ({}, without, {**described, "more": 1})
    for wrong in wrongs:
        found = answered(Event.from_dict, wrong)
        assert found is None or (field not in wrong and found == with_default(event, field))


def with_default(event: Event, name: str) -> Event:
    (part,) = (p for p in dataclasses.fields(event) if p.name == name)  # type: ignore[arg-type]
    made = part.default_factory
    return with_field(event, name, part.default if made is dataclasses.MISSING else made())


QUESTIONS: list[dict[str, Any]] = [
    {"units": units, "relation": relation, "unit": unit, "max_elements": held}
    for units, relation, unit, held in itertools.product(
        (1, 10**18),
        ("zero_out", "replace"),
        (None, Record(), User(max_elements=10**18)),
        (None, 10**18),
    )
]


@pytest.mark.slow(full=True)
@pytest.mark.parametrize("name", list(EVENTS))
def test_absurd_questions_are_answered(name: str) -> None:
    event = EVENTS[name]
    least = event.epsilon(DELTA) * (1 - NUMERIC)
    for asked in QUESTIONS:
        found = answered(event.epsilon, DELTA, **asked)
        sane(found)
        if asked["unit"] is None:
            assert found >= least
        low, high = answered(event.epsilon, DELTA, bounds=True, **asked)
        assert 0 <= low <= high == found
        for epsilon in (1.0, 1e300):
            delta = answered(event.delta, epsilon, **asked)
            sane(delta)
            assert delta <= 1


@pytest.mark.parametrize("name", ["gaussian", "approximate", "zcdp", "binomial"])
def test_absurd_arguments_are_rejected_or_answered(name: str) -> None:
    event = EVENTS[name]
    questions: tuple[Callable[[Any], Any], ...] = (
        lambda x: event.epsilon(x),
        lambda x: event.epsilon(DELTA, units=x),
        lambda x: event.epsilon(DELTA, relation=x),
        lambda x: event.epsilon(DELTA, unit=x),
        lambda x: event.epsilon(DELTA, max_elements=x),
        lambda x: event.delta(x),
        lambda x: event.profile(x)[0],
        lambda x: event.profile([x])[0],
        lambda x: event.tradeoff(x)[0],
        lambda x: event.tradeoff([x])[0],
    )
    for question, value in itertools.product(questions, ABSURD):
        if isinstance(value, tuple | list | np.ndarray) and len(np.shape(value)) == 1:
            continue
        found = answered(question, value)
        assert found is None or found >= 0
    for value in ABSURD:
        found = answered(event.epsilon, DELTA, bounds=value)
        assert found is None or (isinstance(value, bool) and isinstance(found, tuple) == value)


def test_absurd_calibration_targets_are_rejected_or_met() -> None:
    def gaussian(noise: float) -> Event:
        return Gaussian(noise)

    for value in ABSURD:
        for make in (
            lambda v: calibrate_gaussian(v, 1e-6).epsilon(1e-6) <= v,
            lambda v: calibrate_gaussian(1.0, v).epsilon(v) <= 1.0,
            lambda v: calibrate_laplace(v).epsilon() <= v,
            lambda v: calibrate(gaussian, v, 1e-6).epsilon <= v,
            lambda v: calibrate(gaussian, 1.0, 1e-6, low=v).epsilon <= 1.0,
            lambda v: calibrate(gaussian, 1.0, 1e-6, high=v).epsilon <= 1.0,
            lambda v: calibrate(gaussian, 1.0, 1e-6, integer=v).epsilon <= 1.0,
            lambda v: calibrate(gaussian, 1.0, 1e-6, search=v).epsilon <= 1.0,
        ):
            assert answered(make, value) in (None, True), value


# ------------------------------------------------------------------------------------ one by one


@pytest.mark.parametrize("truth", ["false", "no", "", 0, 1, math.nan, None, np.bool_(True)])
def test_a_truth_is_true_or_false_and_nothing_else(truth: Any) -> None:
    for make in (
        lambda: AboveThreshold(2.0, 4.0, one_way=truth),
        lambda: ExponentialMechanism(4.0, one_way=truth),
        lambda: Binomial(1000, 0.5, 1, 1, 1e-9, centred=truth),
        lambda: Guarantee("user", "", "zero_out", 1e-6, Gaussian(1.0), private=truth),
    ):
        with pytest.raises(ParameterError, match="must be True or False"):
            make()


def test_infinite_answers_are_exactly_the_known_ones() -> None:
    assert SampledGaussian(1e-310, 0.01, 10).epsilon(1e-6) == math.inf
    sampled = SampledGaussian(1.0, 0.01, 10)
    assert (ApproximateDP(1e300, 0.0, "element") + sampled).epsilon(1e-6) >= 1e300
    # In nine runs of ten the user is not sampled, and nothing is revealed.
    told = 1 - 0.99**10
    assert told <= SampledGaussian(1e-310, 0.01, 10).delta(1e9) <= told * (1 + 1e-9)


def test_a_nan_loses_towards_infinity() -> None:
    nan = math.nan
    assert Loss(mu=nan).epsilon(0.1) == Loss(pure=nan).epsilon(0.1) == math.inf
    assert Loss(leak=nan).epsilon(0.9) == math.inf
    assert Loss(leak=nan).delta(3.0) == Loss(mu=nan).delta(3.0) == 1.0
    assert Loss(renyi=((2.0, nan),)).epsilon(0.1) == math.inf
    assert (Loss(pure=0.1) + Loss(mu=nan)).epsilon(0.1) == math.inf
    assert fails_closed(1.0)(lambda: nan)() == 1.0
    assert fails_closed(math.inf)(lambda: math.exp(1e9))() == math.inf


TEXTS = [
    "",
    "NaN",
    "[",
    "[" * 100_000,
    '{"event": "Compose", "events": [' * 5000,
    '{"event": "Gaussian", "noise_multiplier": NaN}',
    '{"event": "Gaussian", "noise_multiplier": Infinity}',
    '{"event": "Gaussian", "noise_multiplier": -Infinity}',
    '{"event": "Gaussian", "noise_multiplier": 1e400}',
    '{"event": "Gaussian", "noise_multiplier": "1"}',
    f'{{"event": "Gaussian", "noise_multiplier": {10**400}}}',
    f'{{"event": "Gaussian", "noise_multiplier": 1{"0" * 9000}}}',
    f'{{"event": "Gaussian", "noise_multiplier": 1.0, "count": 1{"0" * 400}}}',
    '{"event": "Gaussian", "noise_multiplier": 100, "noise_multiplier": 1}',
    '{"event": "Gaussian"}',
    '{"event": "Gaussian", "noise_multiplier": 1, "noise": 2}',
    '{"event": "Gaussian", "noise_multiplier": 1, "contribution": null}',
    '{"event": "Gaussian", "noise_multiplier": 1, "contribution": {"block": "group"}}',
    '{"event": "Gaussian", "noise_multiplier": 1, "contribution": {"bloc": "user"}}',
    '{"event": "ApproximateDP", "guaranteed_epsilon": 1, "level": "people"}',
    '{"event": "ApproximateDP", "guaranteed_epsilon": 1, "relation": "add"}',
    '{"event": "AboveThreshold", "threshold_scale": 2, "query_scale": 4, "one_way": "false"}',
    '{"event": "AboveThreshold", "threshold_scale": 2, "query_scale": 4, "one_way": NaN}',
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_empty_json_raises_a_clear_error(text: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Event.from_json(text)
    assert len(str(caught.value)) < 700
    promise = Guarantee("user", "", "zero_out", 1e-6, Gaussian(1.0)).to_json()
    with pytest.raises(ParameterError):
        Guarantee.from_json(promise.replace(Gaussian(1.0).to_json(), text))


GUARANTEE = Guarantee("user", "", "zero_out", 1e-6, Gaussian(3.0, Contribution("user")))


# Without these fields a guarantee claims no more: it covers all records, and assumes less.
OPTIONAL = ("public", "private", "user", "scope", "partition", "receipts", "provenance")


@pytest.mark.parametrize("field", [part.name for part in dataclasses.fields(Guarantee)])
def test_absurd_fields_of_guarantees_fail_closed(field: str) -> None:
    described = GUARANTEE.to_dict()
    for value in ABSURD:
        made = [answered(dataclasses.replace, GUARANTEE, **{field: value})]
        try:
            text = json.dumps({**described, field: value})
        except (TypeError, ValueError):
            pass
        else:
            made.append(answered(Guarantee.from_json, text))
        for one in made:
            if one is not None:
                sane(answered(one.epsilon))
                assert str(one)
    without = {k: v for k, v in described.items() if k != field}
    wrongs: tuple[Any, ...] = (without, {**described, "more": 1}, [], 3)
    for wrong in wrongs:
        found = answered(Guarantee.from_dict, wrong)
        assert found is None or field in OPTIONAL


@pytest.mark.slow
def test_events_are_not_nested_without_end() -> None:
    event: Event = Gaussian(1.0)
    for _ in range(40):
        event = Compose((event,))
    with refuses("events", "nested"):
        Compose((event,))
    sane(event.epsilon(DELTA))
    assert Event.from_json(event.to_json()) == event
    # Any number of parts is allowed, also more than Python's limit of 1000 calls.
    assert sum([Gaussian(100.0)] * 1200, start=Gaussian(100.0)).epsilon(DELTA) > 1


# ------------------------------------------------------------------------------------ last digits

positive = st.floats(1e-12, 1e12)


@given(positive, positive, st.integers(1, 10**9))
def test_sums_products_and_roots_round_up_by_one_digit(x: float, y: float, n: int) -> None:
    for found, exact in (
        (sum_up(x, y), Fraction(x) + Fraction(y)),
        (product_up(n, x, y), n * Fraction(x) * Fraction(y)),
        (product_up(n, x, over=y), n * Fraction(x) / Fraction(y)),
    ):
        assert math.nextafter(found, 0) < exact <= found
    root = hypot_up(x, y)
    assert Fraction(root) ** 2 >= Fraction(x) ** 2 + Fraction(y) ** 2
    assert root <= math.hypot(x, y) * (1 + 2.0**-50)


@given(positive, positive, st.floats(1e-6, 10), st.integers(1, 10**6), st.integers(1, 50))
def test_pure_epsilons_are_not_below_the_exact_ones(
    x: float, y: float, epsilon: float, n: int, k: int
) -> None:
    for event, exact in (
        (Laplace(x, count=n), n * k / Fraction(x)),
        (PureDP(epsilon, level="element"), k * Fraction(epsilon)),
        (AboveThreshold(x, y, count=n), n * k * (1 / Fraction(x) + 2 / Fraction(y))),
        (ExponentialMechanism(x, count=n), 2 * n * k / Fraction(x)),
        (BoundedRange(epsilon, n), n * k * Fraction(epsilon)),
    ):
        unit = User() if event.level == "user" else Element()
        found = event.epsilon(units=k, unit=unit)
        assert exact <= found <= float(exact) * (1 + 1e-14)
        pure: Event = event + PureDP(0.1, level=event.level)
        assert exact + k * Fraction(0.1) <= pure.epsilon(units=k, unit=unit)


def exact_delta(epsilon: Any, mu: Any) -> Any:
    """Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ) at 50 digits beyond the cancellation."""
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    above = mpmath.erfc(a / mpmath.sqrt(2)) / 2
    return above - mpmath.exp(epsilon) * mpmath.erfc(b / mpmath.sqrt(2)) / 2


@given(st.floats(-4, 1.2), st.floats(-8, 8), st.integers(1, 40), st.integers(1, 12))
def test_gaussian_deltas_are_not_below_fifty_digits(power: float, a: float, n: int, k: int) -> None:
    noise = 10**-power
    event = Gaussian(noise, count=n)
    with mpmath.workdps(50):
        mu = mpmath.sqrt(mpmath.mpf(n) * k) / mpmath.mpf(noise)
        epsilon = max(float(mu * (a + mu / 2)), 0.0)
    # Cancellation costs about ε digits: more digits take minutes.
    assume(epsilon <= 400)
    with mpmath.workdps(60 + int(epsilon)):
        mu = mpmath.sqrt(mpmath.mpf(n) * k) / mpmath.mpf(noise)
        exact = exact_delta(mpmath.mpf(epsilon), mu)
        found = event.delta(epsilon, units=k)
        assert exact <= found
        if exact > 1e-12:
            assert found <= exact * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("mu", [1e3, 1e6, 1e10, 1e20, 1e60])
def test_very_much_of_a_gaussian_is_not_called_less(mu: float) -> None:
    for delta in (1e-3, 1e-6, 1e-12):
        # ε is at least μ²/2 + μ·z for Φ(−z) = δ·(1 + 10/μ), because e^ε·Φ(−b) is negligible.
        found = gaussian_epsilon(delta, mu)
        with mpmath.workdps(150):
            m = mpmath.mpf(mu)
            z = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(delta) * (1 + 10 / m))
            assert found >= m * m / 2 + m * z
            assert found <= (m * m / 2 + m * z) * (1 + 1e-5)
        assert gaussian_delta(found * (1 - 1e-3), mu) > delta


def _random_events() -> Iterator[Event]:
    rng = np.random.default_rng(3)
    for _ in range(30):
        yield PureDP(float(rng.uniform(0.001, 2)), level="element")


def test_sums_of_many_pure_parts_are_at_least_exact() -> None:
    parts = list(_random_events())
    whole = Compose(tuple(parts))
    exact = sum(Fraction(part.epsilon()) for part in parts)
    assert exact <= whole.epsilon() <= float(exact) * (1 + 1e-13)
    many = sum([Loss(pure=0.1)] * 1000, Loss())
    assert many.pure >= 1000 * Fraction(0.1)
