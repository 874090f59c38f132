"""Requirements on every type of event; a new type only needs an example here."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import subprocess
import sys
from typing import Any, Literal

import numpy as np
import pytest
from tests.refusals import refuses

import dpgrain.accounting as accounting
from dpgrain.accounting import (
    RDP,
    ZCDP,
    AdaptiveSelection,
    ApproximateDP,
    BandedGaussian,
    BoundedRange,
    Contribution,
    Event,
    Gaussian,
    Laplace,
    Parallel,
    Participation,
    PureDP,
    SampledGaussian,
    Scoped,
    Selection,
    TruncatedGeometric,
)
from dpgrain.accounting.events import base as events_module
from dpgrain.accounting.events.approximate import StatisticallyClose
from dpgrain.accounting.events.best_of import SelectBest
from dpgrain.accounting.events.choices import AboveThreshold, ExponentialMechanism, SoftCore
from dpgrain.accounting.events.shuffling import Binomial, Poisson
from dpgrain.accounting.losses.pairs import CurvePair
from dpgrain.errors import ParameterError
from dpgrain.scope.regions import EVERYTHING, LabelSet, Region, Side
from dpgrain.units import Element, Record, Relation, Unit, User

DELTA = 1e-5
RELATIONS: tuple[Relation, ...] = ("zero_out", "replace")
# Relative loss of ε in numerical composition of pairs, and in rounding of closed forms.
NUMERIC, CLOSED = 3e-4, 1e-8
_ORDERS = tuple(float(a) for a in (*range(2, 33), 48, 64, 128, 256))

EVENTS: dict[str, Event] = {
    "gaussian": Gaussian(3.0),
    "gaussian-twice": Gaussian(9.0, Contribution(layout="shared", max_elements=3), count=2),
    "laplace": Laplace(9.0, Contribution(norm="l1", max_elements=4)),
    "pure": PureDP(0.2, level="element"),
    "approximate": ApproximateDP(0.3, 1e-12, "element", "replace", 2),
    "zcdp": ZCDP(0.01, "element"),
    "rdp": RDP(_ORDERS, tuple(0.01 * order for order in _ORDERS), "element"),
    "bounded-range": BoundedRange(0.02, 30, "element"),
    "selection": Selection(4.0, 45.0, 1),
    "adaptive-selection": AdaptiveSelection(4.0, 45.0, 6.0, 60.0, 12.0, 5),
    "truncated-geometric": TruncatedGeometric(0.4, 60),
    "pairs": SampledGaussian(1.5, 0.02, 60),
    "pairs-disjoint": SampledGaussian(1.0, 0.05, 20, blocks="disjoint"),
    "users": SampledGaussian(4.0, 0.1, 20, sampling="users"),
    "users-disjoint": SampledGaussian(2.0, 0.02, 50, sampling="users", blocks="disjoint"),
    "pairs-of-users": SampledGaussian(1.5, 0.02, 60, level="user"),
    "pairs-kept": SampledGaussian(2.5, 0.02, 60, max_elements=3),
    "users-kept": SampledGaussian(6.0, 0.1, 20, sampling="users", max_elements=3),
    "participation": Participation(6.0, 3),
    "participation-disjoint": Participation(6.0, 3, "disjoint"),
    "banded": BandedGaussian(1.5, 0.005, 240, 4),
    "banded-users": BandedGaussian(4.0, 0.02, 60, 5, sampling="users", max_elements=3),
    "threshold": AboveThreshold(20.0, 40.0),
    "choice": ExponentialMechanism(40.0),
    "one-way choice": ExponentialMechanism(20.0, one_way=True, count=3),
    "soft-core": SoftCore(0.02, 4000, 3000, 1400.0, 20.0, 40.0, 5),
    "binomial": Binomial(1_000_000, 0.5, 100, 1, 1e-12, 2),
    "poisson": Poisson(250_000.0, 100, 1, 1e-12, 2),
    "best": SelectBest(Gaussian(9.0), 10.0),
    "close": StatisticallyClose((Gaussian(5.0), Gaussian(9.0)), 1e-13),
    "compose": Gaussian(5.0) + Laplace(9.0) + SampledGaussian(2.0, 0.01, 30),
    "parallel": Parallel((Gaussian(4.0), SampledGaussian(1.5, 0.02, 60))),
    "scoped": Scoped(
        (Gaussian(4.0), Laplace(9.0), Gaussian(9.0)),
        (*(Region((Side("day", LabelSet((day,))),)) for day in (1, 2)), EVERYTHING),
        (1, 1, None),
    ),
}
# Sums of events each answer for an element.
ADDED = [name for name, event in EVENTS.items() if event.level == "element"]


def closed(event: Event, **asked: Any) -> bool:
    names = {"relation": "zero_out", **asked}
    return not event.loss(**names).pairs


def accuracy(event: Event, **asked: Any) -> float:
    return CLOSED if closed(event, **asked) else NUMERIC


@pytest.fixture(params=list(EVENTS))
def event(request: pytest.FixtureRequest) -> Event:
    return EVENTS[request.param]


def kinds(event: Event) -> set[str]:
    inner = event.events if isinstance(event, accounting.Compose | Parallel | Scoped) else ()
    return {type(event).__name__}.union(*(kinds(part) for part in inner))


def test_every_kind_has_an_example() -> None:
    every = events_module.event_kinds()
    known = {name for name, kind in every.items() if kind.__module__.startswith("dpgrain.")}
    assert known == set().union(*map(kinds, EVENTS.values()))


@pytest.mark.slow
def test_every_type_is_read_by_a_fresh_process() -> None:
    """Modules are imported when they are used: reading JSON has to import what it names."""
    one_each = {type(event).__name__: event.to_json() for event in EVENTS.values()}
    code = (
        "import json, sys; from dpgrain.accounting import Event\n"
        "print(Event.from_json(sys.argv[1]).to_json() == sys.argv[1])"
    )
    homes = {kind.__module__: name for name, kind in Event._kinds.items() if name in one_each}
    for name in homes.values():
        words = [sys.executable, "-c", code, one_each[name]]
        assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "True\n"


# ------------------------------------------------------------------------- how often, in which order


@pytest.mark.parametrize("units", [1, 3])
@pytest.mark.parametrize("name", [n for n, e in EVENTS.items() if hasattr(e, "count")])
def test_count_equals_repeated_events(name: str, units: int) -> None:
    one: Any = dataclasses.replace(EVENTS[name], count=1)  # type: ignore[type-var]
    together, apart = dataclasses.replace(one, count=3), one + one + one
    for relation in RELATIONS:
        asked: dict[str, Any] = {"units": units, "relation": relation}
        found, expected = together.epsilon(DELTA, **asked), apart.epsilon(DELTA, **asked)
        assert found == pytest.approx(expected, rel=accuracy(together, **asked))
        assert found > one.epsilon(DELTA, **asked)
        if closed(together, **asked):
            at = found / 2
            assert together.delta(at, **asked) == pytest.approx(apart.delta(at, **asked), rel=1e-8)


@pytest.mark.parametrize(
    "name", [n for n, e in EVENTS.items() if hasattr(e, "rounds") and hasattr(e, "count")]
)
def test_rounds_equal_repeated_runs(name: str) -> None:
    one: Any = EVENTS[name]
    together = dataclasses.replace(one, rounds=3 * one.rounds)
    assert together.epsilon(DELTA) == dataclasses.replace(one, count=3).epsilon(DELTA)


@pytest.mark.slow
@pytest.mark.parametrize("held", [1, 3])
def test_many_separate_runs_on_sampled_users_lose_nothing(held: int) -> None:
    # There are several bounds of each run, and every sum of them is one.
    one = SampledGaussian(6.0, 0.05, 5, sampling="users")
    found = sum([one] * 5, start=one).epsilon(DELTA, max_elements=held)
    expected = dataclasses.replace(one, count=6).epsilon(DELTA, max_elements=held)
    assert found == pytest.approx(expected, rel=NUMERIC)


@pytest.mark.slow
def test_the_order_of_events_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        chosen = [EVENTS[name] for name in rng.choice(ADDED[:11], 3, replace=False)]
        answers = set()
        for order in itertools.permutations(chosen):
            whole = order[0] + order[1] + order[2]
            answers.add(whole.epsilon(DELTA))
        assert len(answers) == 1


def test_the_order_of_gaussians_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    noises = rng.uniform(3.0, 30.0, 12)
    answers = set()
    for _ in range(20):
        rng.shuffle(noises)
        first, *rest = (Gaussian(float(x)) + PureDP(float(1 / x), level="element") for x in noises)
        whole: Event = first
        for part in rest:
            whole = whole + part
        answers.add(whole.epsilon(DELTA))
    assert len(answers) == 1


# ------------------------------------------------------------------------------------- more is more


MORE: dict[str, tuple[Event, Event]] = {
    "noise": (Gaussian(3.0), Gaussian(2.9)),
    "count": (Gaussian(3.0), Gaussian(3.0, count=2)),
    "laplace": (Laplace(3.0), Laplace(2.9)),
    "epsilon": (ApproximateDP(0.3, 1e-7), ApproximateDP(0.31, 1e-7)),
    "delta": (ApproximateDP(0.3, 1e-7), ApproximateDP(0.3, 2e-7)),
    "zcdp": (ZCDP(0.1), ZCDP(0.11)),
    "rdp": (RDP((4.0, 8.0), (0.1, 0.2)), RDP((4.0, 8.0), (0.11, 0.2))),
    "orders": (RDP((4.0, 8.0), (0.1, 0.2)), RDP((4.0,), (0.1,))),
    "rate": (BoundedRange(0.1, 5), BoundedRange(0.11, 5)),
    "choices": (BoundedRange(0.1, 5), BoundedRange(0.1, 6)),
    "threshold": (Selection(4.0, 26.0, 1), Selection(4.0, 25.0, 1)),
    "floor": (
        AdaptiveSelection(4.0, 26.0, 6.0, 40.0, 12.0, 9),
        AdaptiveSelection(4.0, 26.0, 6.0, 40.0, 11.0, 9),
    ),
    "cutoff": (TruncatedGeometric(1.0, 14), TruncatedGeometric(1.0, 13)),
    "sampled-noise": (SampledGaussian(1.0, 0.05, 20), SampledGaussian(0.98, 0.05, 20)),
    "sampled-rate": (SampledGaussian(1.0, 0.05, 20), SampledGaussian(1.0, 0.051, 20)),
    "sampled-rounds": (SampledGaussian(1.0, 0.05, 20), SampledGaussian(1.0, 0.05, 21)),
    "all-drawn": (SampledGaussian(2.0, 0.95, 20), SampledGaussian(2.0, 1.0, 20)),
    "layout": (
        SampledGaussian(1.0, 0.05, 20, blocks="disjoint"),
        SampledGaussian(1.0, 0.05, 20),
    ),
    "users": (SampledGaussian(1.0, 0.05, 20), SampledGaussian(1.0, 0.05, 20, sampling="users")),
    "users-rate": (
        SampledGaussian(3.0, 0.05, 20, sampling="users"),
        SampledGaussian(3.0, 0.051, 20, sampling="users"),
    ),
    "users-rounds": (
        SampledGaussian(3.0, 0.05, 20, sampling="users"),
        SampledGaussian(3.0, 0.05, 21, sampling="users"),
    ),
    "kept": (SampledGaussian(1.0, 0.05, 20), SampledGaussian(1.0, 0.05, 20, max_elements=5)),
    "passes": (Participation(3.0, 4), Participation(3.0, 5)),
    "bands": (SampledGaussian(1.0, 0.01, 20), BandedGaussian(1.0, 0.01, 20, 4)),
    "variation": (StatisticallyClose(Gaussian(3.0), 1e-9), StatisticallyClose(Gaussian(3.0), 2e-9)),
    "part": (Gaussian(3.0), Gaussian(3.0) + SampledGaussian(2.0, 0.01, 5)),
    "groups": (Gaussian(3.0), Parallel((Gaussian(3.0), Gaussian(2.0)))),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("units", [1, 4])
@pytest.mark.parametrize("name", list(MORE))
def test_less_noise_more_rounds_more_sampling_cost_more(
    name: str, units: int, relation: Relation
) -> None:
    less, more = MORE[name]
    asked: dict[str, Any] = {"units": units, "relation": relation}
    slack = max(accuracy(less, **asked), accuracy(more, **asked))
    found = less.epsilon(DELTA, **asked)
    assert found <= more.epsilon(DELTA, **asked) * (1 + slack)
    if closed(less, **asked) and math.isfinite(found):
        assert less.delta(found / 2, **asked) <= more.delta(found / 2, **asked) * (1 + slack)


@pytest.mark.parametrize("relation", RELATIONS)
def test_more_units_cost_more(event: Event, relation: Relation) -> None:
    slack = accuracy(event, relation=relation)
    found = [event.epsilon(DELTA, units=k, relation=relation) for k in (1, 2, 3, 6)]
    for fewer, more in itertools.pairwise(found):
        assert fewer <= more * (1 + slack)


@pytest.mark.parametrize("units", [1, 3])
def test_replacing_costs_at_least_zeroing(event: Event, units: int) -> None:
    slack = accuracy(event, units=units, relation="replace")
    emptied = event.epsilon(DELTA, units=units)
    assert emptied <= event.epsilon(DELTA, units=units, relation="replace") * (1 + slack)


QUESTIONS: tuple[tuple[int, Unit], ...] = ((1, Element()), (3, Element()), (1, User()), (2, User()))


@pytest.mark.parametrize(("units", "unit"), QUESTIONS)
def test_a_weaker_condition_costs_more(event: Event, units: int, unit: Unit) -> None:
    found = [event.epsilon(DELTA, units=units, unit=unit, max_elements=m) for m in (1, 2, 4)]
    found.append(event.epsilon(DELTA, units=units, unit=unit))
    for stronger, weaker in itertools.pairwise(found):
        assert stronger <= weaker * (1 + NUMERIC)


@pytest.mark.parametrize("sampling", ["pairs", "users"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_more_elements_of_a_bounded_user_cost_more(sampling: Any, relation: Relation) -> None:
    one = SampledGaussian(5.0, 0.05, 100, sampling=sampling)
    asked: dict[str, Any] = {"relation": relation, "max_elements": 4}
    found = [one.epsilon(DELTA, units=k, **asked) for k in (1, 2, 3, 4)]
    for fewer, more in itertools.pairwise(found):
        assert fewer <= more * (1 + NUMERIC)


# ------------------------------------------------------------------------------------ the same curve


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_epsilon_and_delta_are_inverse(event: Event, delta: float, relation: Relation) -> None:
    slack = accuracy(event, relation=relation)
    found = event.epsilon(delta, relation=relation)
    assert 0 < found < math.inf
    # A little beyond ε there is no more than δ, a little before it no less.
    assert event.delta(found * (1 + slack), relation=relation) <= delta * (1 + 1e-9)
    assert event.delta(found * (1 - 2 * slack), relation=relation) >= delta * (1 - 1e-9)


@pytest.mark.parametrize("units", [1, 3])
def test_profile_decreases_and_agrees_with_delta(event: Event, units: int) -> None:
    grid = np.linspace(0.0, 3.0, 7)
    found = event.profile(grid.tolist(), units=units)
    assert found.shape == (7,)
    assert (found >= 0).all()
    assert (found <= 1).all()
    assert (np.diff(found) <= 1e-3 * found[:-1]).all()
    assert found[3] == event.delta(float(grid[3]), units=units)


# Users with a limited number of elements: the mixture dominates, and is not attained.
FROM_ABOVE = (EVENTS["users-kept"], EVENTS["banded-users"])


def test_bounds_enclose_the_answer(event: Event) -> None:
    for relation in RELATIONS:
        lower, upper = event.epsilon(DELTA, relation=relation, bounds=True)
        assert upper == event.epsilon(DELTA, relation=relation)
        only_above = "SelectBest" in kinds(event) or event in FROM_ABOVE
        least = 0.0 if only_above else 0.99 * upper
        assert least <= lower <= upper


@pytest.mark.slow
def test_bounds_enclose_exact_values() -> None:
    # For one round: δ(ε) = q·δ_G(ln(1 + (e^ε − 1)/q)).
    for rate, noise in ((0.01, 0.8), (0.3, 2.0)):
        for epsilon in (0.3, 2.5):
            inner = math.log1p(math.expm1(epsilon) / rate)
            delta = rate * accounting.gaussian_delta(inner, 1 / noise)
            one = SampledGaussian(noise, rate)
            lower, upper = one.epsilon(delta, bounds=True)
            assert lower <= epsilon <= upper
            assert upper <= epsilon * (1 + NUMERIC)
            assert one.delta(epsilon) >= delta * (1 - 1e-9)
    # A part known only by its curve, with a Gaussian.
    groups = Parallel((Gaussian(4.0), Gaussian(5.0))) + Gaussian(4.0)
    exact = Gaussian(4.0, count=2).epsilon(1e-6)
    lower, upper = groups.epsilon(1e-6, bounds=True)
    assert lower <= exact <= upper


@pytest.mark.slow
def test_tradeoff_agrees_with_the_profile(event: Event) -> None:
    alphas = np.linspace(0.0, 1.0, 21)
    # One type represents all numerically composed ones: several units take long.
    several = closed(event, units=3) or event == EVENTS["pairs"]
    for units in (1, 3) if several else (1,):
        found = event.tradeoff(alphas.tolist(), units=units)
        assert (found >= 0).all()
        assert (found <= 1 - alphas + 1e-12).all()
        assert (np.diff(found) <= 1e-12).all()
        assert (np.diff(found, 2) >= -1e-9).all()
        grid = np.linspace(0.0, 8.0, 801 if closed(event, units=units) else 33)
        deltas = event.profile(grid.tolist(), units=units)[:, None]
        steep = 1 - deltas - np.exp(grid)[:, None] * alphas
        flat = np.exp(-grid)[:, None] * (1 - deltas - alphas)
        best = np.maximum(np.maximum(steep, flat).max(axis=0), 0.0)
        assert found == pytest.approx(best, abs=0.05)


def test_json_round_trips(event: Event) -> None:
    text = event.to_json()
    # Strict JSON: no Infinity, no NaN.
    assert json.loads(text, parse_constant=pytest.fail) == event.to_dict()
    again = Event.from_json(text)
    assert again == event
    assert hash(again) == hash(event)
    assert again.epsilon(DELTA) == event.epsilon(DELTA)


def test_events_are_frozen(event: Event) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.count = 7  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------------- composition


# A pure part with a concentrated one: both enter one divergence, which may cost more.
_PURE = {"laplace", "pure", "approximate", "truncated-geometric"}
_SAMPLED = {"pairs-disjoint", "users", "users-disjoint", "users-kept"}


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize(("one", "two"), list(itertools.combinations_with_replacement(ADDED, 2)))
def test_two_events_cost_between_maximum_and_sum(one: str, two: str) -> None:
    first, second = EVENTS[one], EVENTS[two]
    both = (first + second).epsilon(DELTA)
    assert both >= max(first.epsilon(DELTA), second.epsilon(DELTA)) * (1 - NUMERIC)
    concentrated = {one, two} & {"zcdp", "bounded-range"} and {one, two} & _PURE
    if not (concentrated or ("bounded-range" in (one, two) and {one, two} & _SAMPLED)):
        basic = first.epsilon(DELTA / 2) + second.epsilon(DELTA / 2)
        assert both <= basic * (1 + NUMERIC)


@pytest.mark.slow
def test_curve_with_renyi_part_charges_both() -> None:
    known = RDP((8.0,), (0.5,), "element")
    # For one round the curve is a closed form, which is quick at the many ε of a chord.
    curve = Parallel((Gaussian(4.0), SampledGaussian(1.5, 0.02)))
    assert isinstance(curve.loss().pairs[0][0], CurvePair)
    assert (curve + known).epsilon(1e-5) > known.epsilon(1e-5)


def test_composition_with_very_much_or_very_little() -> None:
    one = SampledGaussian(1.0, 0.01, 10)
    alone = one.epsilon(DELTA)
    assert (one + Gaussian(1e9)).epsilon(DELTA) == pytest.approx(alone, rel=NUMERIC)
    assert (one + PureDP(1e-9, level="element")).epsilon(DELTA) == pytest.approx(alone, rel=NUMERIC)
    for much in (PureDP(1000.0, level="element"), Gaussian(0.02)):
        basic = alone + much.epsilon(DELTA / 2)
        assert much.epsilon(DELTA) * (1 - NUMERIC) <= (one + much).epsilon(DELTA) <= basic * 1.001


def test_a_record_is_never_dearer_than_its_elements_exchanged(event: Event) -> None:
    if event.level == "element":
        record = event.epsilon(DELTA, unit=Record())
        assert record <= event.epsilon(DELTA, unit=Element(), relation="replace") * (1 + NUMERIC)


@pytest.mark.slow
def test_leaked_probability_is_counted_between_parts() -> None:
    # One of two groups has its data published with probability 10⁻³: no ε has a smaller δ.
    groups = Parallel((ApproximateDP(0.1, 1e-3), ApproximateDP(0.2, 1e-3)))
    for besides in (Gaussian(10.0, Contribution("user")), ZCDP(0.01), RDP((8.0,), (0.1,))):
        whole = groups + besides
        assert whole.epsilon(0.9e-3) == math.inf
        assert whole.delta(3.0) >= 1e-3


def test_high_orders_of_sampled_gaussian_equal_the_gaussian() -> None:
    # D_α(P‖Q) ≥ α/2σ² + α/(α−1)·ln q, as P ≥ q·N(1).
    for noise, rate in ((0.5, 0.5), (0.3, 0.01), (5.0, 0.1)):
        for order in (2.0, 20.0, 200.0, 5000.0):
            least = order / (2 * noise**2) + order / (order - 1) * math.log(rate)
            assert SampledGaussian(noise, rate).loss().renyi_at(order) >= least


@pytest.mark.parametrize("sampling", ["pairs", "users"])
def test_contribution_bound_charges_an_element_like_a_replacement(
    sampling: Literal["pairs", "users"],
) -> None:
    event = SampledGaussian(3.0, 0.05, 20, sampling=sampling, max_elements=4)
    free = SampledGaussian(3.0, 0.05, 20, sampling=sampling)
    for units in (1, 3, 9):
        exchanged = free.epsilon(1e-6, units=min(units, 4), relation="replace", max_elements=4)
        assert event.epsilon(1e-6, units=units) == exchanged
    # A removed user admits no other, and unused elements cannot cost.
    everything = event.epsilon(1e-6, unit=User())
    assert everything == free.epsilon(1e-6, unit=User(max_elements=4))
    assert event.epsilon(1e-6, unit=User(max_elements=9)) == everything
    # A replaced record may empty one element and fill another.
    record = event.epsilon(1e-6, unit=Record(), relation="replace")
    assert record == event.epsilon(1e-6, units=2, relation="replace")


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.int64])
def test_numbers_of_numpy_do_not_wrap(kind: Any) -> None:
    large = kind(min(np.iinfo(kind).max, 20_000))
    for made in (
        lambda n: Participation(100.0, n, count=n),
        lambda n: SampledGaussian(100.0, 0.01, n, count=n),
        lambda n: SampledGaussian(100.0, 0.1, 10, max_elements=n),
        lambda n: Gaussian(50.0, count=n),
        lambda n: ApproximateDP(0.001, 0.0, count=n),
        lambda n: RDP((8.0, 16.0), (0.04, 0.08), count=n),
        lambda n: Binomial(10**6, 0.5, 100, n, 1e-12, n),
    ):
        event, python = made(large), made(int(large))
        assert event == python
        assert event.to_json() == python.to_json()
        assert all(not isinstance(value, np.generic) for value in vars(event).values())
        assert event.loss(2) == python.loss(2)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_numbers_of_numpy_are_not_rounded_again(kind: Any) -> None:
    for noise in (4.0, 100.0, 1e4):
        assert Gaussian(kind(noise)).epsilon(1e-6) == Gaussian(float(kind(noise))).epsilon(1e-6)
    rate = SampledGaussian(kind(2), kind(0.01), 100).epsilon(1e-6)
    assert rate == SampledGaussian(2.0, float(kind(0.01)), 100).epsilon(1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "null",
        '"abc"',
        '{"event": []}',
        '{"event": "Compose", "events": 3}',
        '{"event": "Compose", "events": [1]}',
        '{"event": "RDP", "orders": ["a"], "values": [1]}',
        '{"event": "Gaussian", "noise_multiplier": 1, "contribution": 3}',
    ],
)
def test_invalid_events_are_rejected(text: str) -> None:
    with pytest.raises(ParameterError):
        Event.from_json(text)


def test_records_cannot_be_bounded_by_elements() -> None:
    # An emptied element admits another, with any number of records.
    for refused in (
        lambda: Contribution(block="record", max_elements=3),
        lambda: SampledGaussian(4.0, 0.5, 1, level="record", max_elements=3),
        lambda: Participation(4.0, 1, level="record", max_elements=3),
    ):
        with refuses("max_elements", "must be None"):
            refused()


def test_negligible_noise_is_not_an_error() -> None:
    for noise in (1e-3, 5e-5, 1e-5):
        assert SampledGaussian(noise, 0.5).epsilon(1e-6) > 0.4 / noise**2
    for wrong in (
        lambda: Gaussian(1.0, count=10**400),
        lambda: Gaussian(1.0).epsilon(1e-6, units=10**400),
        lambda: Gaussian(10**400),
    ):
        with pytest.raises(ParameterError):
            wrong()
