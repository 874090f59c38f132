"""One budget for several releases: what is charged, what is refused, and when."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpgrain as dg
from dpgrain.accounting import (
    Contribution,
    Event,
    Gaussian,
    Laplace,
    Selection,
    TruncatedGeometric,
    calibrate_gaussian,
)
from dpgrain.publishing.budget import Budget, in_budget
from dpgrain.statistics.plan import make_plan
from dpgrain.units import OWN_UNIT, RELATIONS, Level, Relation

ROWS = pa.table(
    {
        "who": np.arange(400) % 40,
        "page": [f"p{i % 3}" for i in range(400)],
        "topic": ["x"] * 400,
        "paid": np.linspace(0, 10, 400),
    }
)
PAGES = ["p0", "p1", "p2"]
UPPER = dg.Elements.from_function(str.upper)
USER: dict[str, Any] = {"unit": dg.User()}


class Unread:
    """A source that must not be read."""

    name = title = "The table"
    untyped = False

    def columns(self) -> dict[str, str]:
        raise AssertionError("asked for its columns")

    def attach(self, connection: Any) -> str:
        raise AssertionError("rows were read")


def table() -> dg.UserTable:
    return dg.read(ROWS, user="who", threads=1)


def unread() -> dg.UserTable:
    return dataclasses.replace(table(), source=Unread())


# Every statistic, as asked with the ε and δ of a share.
ASKED: dict[str, Callable[..., Any]] = {
    "histogram": lambda t, **o: dg.histogram(t, "page", domain=PAGES, **o),
    "count": lambda t, **o: dg.count(t, noise="gaussian", **o),
    "count of selected": lambda t, **o: dg.count(t, by="page", **o),
    "sum": lambda t, **o: dg.sum(t, "paid", noise="gaussian", **o),
    "mean": lambda t, **o: dg.mean(t, "paid", by="page", domain=PAGES, noise="gaussian", **o),
    "variance": lambda t, **o: dg.variance(t, "paid", bounds=(0, 10), noise="gaussian", **o),
    "quantiles": lambda t, **o: dg.quantiles(t, "paid", bins=16, **o),
    "top": lambda t, **o: dg.top(t, "page", method="gaussian", **o),
    "names": lambda t, **o: dg.top(t, "page", method="gaussian", counts=False, **o),
    "truncated": lambda t, **o: dg.top(t, "page", method="truncated", max_items=2, **o),
    "gumbel": lambda t, **o: dg.top(t, "page", method="gumbel", k=1, domain=PAGES, **o),
    "held": lambda t, **o: dg.elements_per_user(t, "page", **o),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", ASKED)
def test_every_statistic_is_charged_as_it_is_accounted(name: str, relation: Relation) -> None:
    options: dict[str, Any] = {**USER, "epsilon": 1.0, "delta": 1e-6, "relation": relation}
    with dg.budget(3.0, 1e-5) as b:
        one = dg.count(table(), clip=5.0, **options)
        assert b.guarantee == one.guarantee
        two = ASKED[name](table(), **options)
        assert b.guarantee == one.guarantee + two.guarantee
    whole = one.guarantee + two.guarantee
    spent = whole.event.epsilon(1e-5, relation=relation, unit=dg.User())
    assert 1.0 <= spent <= 2.0
    assert b.left == pytest.approx(3.0 - spent)
    assert f"spent ε = {spent:.3g}"[:12] in repr(b)


@pytest.mark.parametrize("name", ASKED)
def test_what_a_budget_does_not_hold_is_refused_before_anything_is_read(name: str) -> None:
    with dg.budget(1.0, 1e-6) as b:
        dg.count(table(), clip=5.0, **USER, **b.share(0.5))
        before, left, shown = b.guarantee, b.left, repr(b)
        with pytest.raises(dg.ParameterError, match="does not hold this release") as caught:
            ASKED[name](unread(), **USER, epsilon=0.9, delta=5e-7)
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)
        assert (b.guarantee, b.left, repr(b)) == (before, left, shown)
        # And there is still room for what fits.
        dg.count(table(), clip=5.0, **USER, **b.share(0.5))
    with dg.budget(1.0, 1e-6) as b, pytest.raises(dg.ParameterError, match="ε would be"):
        ASKED[name](unread(), **USER, epsilon=1.01, delta=1e-6)
    assert b.guarantee is None
    assert b.left == 1.0


def test_a_charged_release_that_cannot_be_read_stays_charged() -> None:
    with dg.budget(1.0, 1e-6) as b:
        with pytest.raises(AssertionError, match="rows were read"):
            dg.count(unread(), clip=5.0, **USER, epsilon=0.5, delta=1e-7)
        assert b.guarantee is not None
        assert b.left < 1.0


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ([0.5, 0.5], ["count", "mean"]),
        ([0.2, 0.3, 0.5], ["sum", "count of selected", "quantiles"]),
        ([0.25] * 4, ["top", "names", "held", "histogram"]),
        ([0.1, 0.6, 0.3], ["count of selected", "count of selected", "variance"]),
    ],
)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-9), (8.0, 1e-3)])
def test_shares_that_add_up_to_1_are_held(
    parts: list[float], names: list[str], epsilon: float, delta: float
) -> None:
    with dg.budget(epsilon, delta) as b:
        # Asked for beforehand or one by one: the same.
        shares = [b.share(part) for part in parts]
        for name, part, share in zip(names, parts, shares, strict=True):
            assert b.share(part) == pytest.approx(share)
            ASKED[name](table(), **USER, **share)
    assert b.guarantee is not None
    assert b.guarantee.delta == pytest.approx(delta)
    assert 0.85 * epsilon < b.guarantee.epsilon(delta) <= epsilon


@pytest.mark.parametrize("name", ["truncated", "gumbel", "laplace"])
def test_shares_after_a_release_without_gaussian_noise(name: str) -> None:
    with dg.budget(1.0, 1e-6) as b:
        if name == "laplace":
            dg.count(table(), noise="laplace", clip=5.0, epsilon=0.3, **USER)
        else:
            ASKED[name](table(), **USER, epsilon=0.3, delta=1e-7)
        # Parts of what it left.
        for other in ("count", "top"):
            ASKED[other](table(), **USER, **b.share(0.5))
    assert b.guarantee is not None
    assert 0.6 < b.guarantee.epsilon(1e-6) <= 1.0
    with dg.budget(1.0, 1e-6) as b:
        dg.count(table(), noise="laplace", clip=5.0, epsilon=1.0, **USER)
        with pytest.raises(dg.ParameterError, match="nothing is left of the budget"):
            b.share(0.5)


def test_noise_that_is_chosen_inside_a_budget_keeps_the_shares() -> None:
    # Where Laplace noise would be less, it would cost more than its share of μ².
    options: dict[str, Any] = {"unit": dg.Element("page")}
    alone = dg.top(table(), "page", domain=PAGES, epsilon=1.0, delta=1e-9, **options)
    assert isinstance(alone.guarantee.event, Laplace)
    with dg.budget(1.0, 1e-6) as b:
        halves = [b.share(0.5), b.share(0.5)]
        dg.top(table(), "page", domain=PAGES, **options, **halves[0])
        dg.count(table(), by="page", domain=PAGES, **options, **halves[1])
    assert b.guarantee is not None
    assert all(isinstance(part, Gaussian) for part in b.guarantee.event.parts)
    alone = dg.top(table(), "page", epsilon=1.0, delta=1e-6, **options)
    assert isinstance(alone.guarantee.event, TruncatedGeometric)
    with dg.budget(1.0, 1e-6) as b:
        for share in (b.share(0.5), b.share(0.5)):
            dg.top(table(), "page", **options, **share)


def events_of(kind: str, share: Any, level: Level, relation: Relation) -> list[Event]:
    """What a release of this kind is accounted as."""
    layout = Contribution(block=level)
    if kind == "gaussian":
        return [
            calibrate_gaussian(
                **share, contribution=layout, relation=relation, unit=OWN_UNIT[level]
            )
        ]
    plan = make_plan(
        layout, level=level, **share, relation=relation, noise="gaussian", clip=1.0, select=layout,
        select_items=50, select_share=0.7 if kind == "top" else 0.3,
    )  # fmt: skip
    return [*plan.event.parts]


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(["gaussian", "selection", "top"]), min_size=1, max_size=5),
    weights=st.lists(st.integers(1, 9), min_size=5, max_size=5),
    level=st.sampled_from(["user", "element", "record"]),
    relation=st.sampled_from(RELATIONS),
    epsilon=st.sampled_from([0.05, 0.5, 1.0, 3.0, 10.0]),
    delta=st.sampled_from([1e-12, 1e-6, 1e-3]),
)
def test_any_mixture_of_shares_is_held(
    kinds: list[str], weights: list[int], level: Level, relation: Relation, epsilon: float, delta: float
) -> None:  # fmt: skip
    whole = Budget(epsilon, delta)
    total = sum(weights[: len(kinds)])
    for kind, weight in zip(kinds, weights, strict=False):
        share: Any = whole.share(weight / total)
        for event in events_of(kind, share, level, relation):
            promise = dg.Guarantee(level, "", relation, 0.0, event)
            whole.charge(promise)
    assert whole.guarantee is not None
    assert whole.guarantee.event.epsilon(delta, relation=relation) <= epsilon


def test_shares_of_a_pure_budget() -> None:
    with dg.budget(1.0) as b:
        assert b.share(0.25) == {"epsilon": 0.25, "delta": 0.0}
        for part in (0.25, 0.75):
            dg.count(table(), by="page", domain=PAGES, **USER, **b.share(part))
    assert b.guarantee is not None
    assert b.guarantee.delta == 0
    assert 0.999 < b.guarantee.epsilon() <= 1.0
    with dg.budget(1.0), pytest.raises(dg.ParameterError, match="ε would be unbounded"):
        dg.count(unread(), clip=5.0, noise="gaussian", **USER, epsilon=0.1, delta=1e-6)


@pytest.mark.parametrize("part", [0, -0.1, 1.1, float("nan"), "half", True])
def test_a_part_lies_between_0_and_1(part: Any) -> None:
    if part is True:
        assert dg.budget(1.0, 1e-6).share(part) == dg.budget(1.0, 1e-6).share(1)
        return
    with pytest.raises(dg.ParameterError, match="part must"):
        dg.budget(1.0, 1e-6).share(part)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-6), (-1, 1e-6), (1, 1.0), (1, -1e-9), ("1", 0)]
)
def test_a_budget_is_a_promise(epsilon: Any, delta: Any) -> None:
    with pytest.raises(dg.ParameterError, match=r"epsilon must|delta must"):
        dg.budget(epsilon, delta)
    assert not in_budget()


# -- what does not compose ---


def test_another_budget_inside_is_refused() -> None:
    with dg.budget(1.0, 1e-6) as b:
        with pytest.raises(dg.ParameterError, match="already open"), dg.budget(1.0, 1e-6):
            raise AssertionError("opened")
        with pytest.raises(dg.ParameterError, match="already open"), b:
            raise AssertionError("opened")
        # The refusal leaves the outer one in force.
        assert in_budget()
        dg.count(table(), clip=5.0, **USER, **b.share(0.5))
        assert b.guarantee is not None
    assert not in_budget()


@pytest.mark.parametrize(
    "other",
    [
        {"unit": dg.Record()}, {"unit": dg.Element("page")}, {"unit": dg.Element("topic")},
        {"unit": dg.User(), "relation": "replace"},
    ],
    ids=["record", "page", "topic", "replace"],
)  # fmt: skip
def test_another_unit_is_refused_before_anything_is_read(other: dict[str, Any]) -> None:
    with dg.budget(1.0, 1e-6) as b:
        first = {"unit": dg.Element("topic")} if other["unit"] == dg.Element("page") else USER
        dg.count(table(), clip=5.0, noise="gaussian", **first, **b.share(0.3))
        before = b.guarantee
        with pytest.raises(dg.ParameterError, match="do not compose"):
            dg.count(unread(), clip=5.0, noise="gaussian", **other, **b.share(0.3))
        assert b.guarantee == before


@pytest.mark.parametrize(
    "unit",
    [
        dg.User(3, by="page"), dg.User(3), dg.User(3, by={"p0": "x"}), dg.Element("page"),
        dg.Element(UPPER),
    ],
    ids=["capped", "capped items", "capped mapping", "element", "function"],
)  # fmt: skip
def test_what_people_hold_composes_with_the_other_statistics(unit: Any) -> None:
    with dg.budget(1.0, 1e-6) as b:
        dg.top(table(), "page", unit=unit, method="gaussian", **b.share(0.5))
        dg.elements_per_user(table(), "page", unit=unit, **b.share(0.5))
    assert b.guarantee is not None
    assert len(b.guarantee.event.parts) > 1


# -- where it is in force ---


class StopError(Exception):
    pass


def test_a_budget_is_closed_after_an_exception_in_its_block() -> None:
    opened = dg.budget(1.0, 1e-6)

    def stopped() -> None:
        with opened as b:
            dg.count(table(), clip=5.0, **USER, **b.share(0.5))
            raise StopError

    with pytest.raises(StopError):
        stopped()
    assert not in_budget()
    assert opened.guarantee is not None
    spent = opened.left
    # Outside nothing is charged.
    dg.count(table(), clip=5.0, **USER, epsilon=5.0, delta=1e-6)
    assert opened.left == spent
    # Opened again it goes on where it was.
    with opened as b:
        with pytest.raises(dg.ParameterError, match="does not hold"):
            dg.count(unread(), clip=5.0, **USER, epsilon=0.9, delta=5e-7)
        dg.count(table(), clip=5.0, **USER, **b.share(0.5))
    assert not in_budget()


def test_no_thread_is_outside_of_a_budget() -> None:
    """Threads that a library starts begin with an empty context: a budget of theirs would be none."""
    ask = {**USER, "epsilon": 0.6, "delta": 1e-7}

    def release(_: int) -> bool:
        try:
            dg.count(table(), clip=5.0, **ask)
        except dg.ParameterError:
            return False
        return True

    def another() -> str:
        try:
            with dg.budget(9.0, 1e-6):
                return "opened"
        except dg.ParameterError as error:
            return str(error)

    with dg.budget(1.0, 1e-6) as b, ThreadPoolExecutor(4) as pool:
        made = list(pool.map(release, range(8)))
        assert "already open" in pool.submit(another).result()
        assert pool.submit(in_budget).result()
    assert b.guarantee is not None
    # As many as the budget holds, and each of them charged.
    assert len(b.guarantee.event.parts) == sum(made) < 8
    assert b.guarantee.epsilon(1e-6) <= 1.0


def test_means_of_any_function_are_charged() -> None:
    with dg.budget(1.0, 1e-6) as b:
        dg.mechanisms.release_mean([1.0, 2.0], sensitivity=1.0, epsilon=0.5, delta=1e-7)
        assert b.guarantee is not None
        with pytest.raises(dg.ParameterError, match="does not hold"):
            dg.mechanisms.release_mean([1.0, 2.0], sensitivity=1.0, epsilon=2.0, delta=1e-7)


def test_the_same_mapping_of_two_columns_is_two_partitions() -> None:
    mapping = {"a": "x", "b": "y"}
    rows = pa.table({"who": [1] * 4, "page": ["a"] * 4, "ref": ["a", "b", "c", "d"]})
    both = dg.read(rows, user="who")
    cells = both.with_cells("t1", "page", mapping).with_cells("t2", "ref", mapping)
    for first, second, source in (
        (dg.Element(mapping), dg.Element(mapping), both),
        (dg.Element("t1"), dg.Element("t2"), cells),
    ):
        with dg.budget(1.0, 1e-6) as b:
            dg.count(source, by="page", unit=first, domain=["a"], clip=1.0, **b.share(0.5))
            with pytest.raises(dg.ParameterError, match=r"of 'page'.*of 'ref'"):
                dg.count(source, by="ref", unit=second, domain=["a"], clip=1.0, **b.share(0.5))


def test_other_users_are_other_users() -> None:
    rows = pa.table({"who": [1] * 4, "device": [1, 2, 3, 4]})
    with dg.budget(1.0, 1e-6) as b:
        dg.count(dg.read(rows, user="who"), unit=dg.User(), clip=1.0, **b.share(0.5))
        with pytest.raises(dg.ParameterError, match=r"users by 'who'.*users by 'device'"):
            dg.count(dg.read(rows, user="device"), unit=dg.User(), clip=1.0, **b.share(0.5))


def test_top_of_records_promises_nothing_to_partitions_it_does_not_know() -> None:
    rows = pa.table({"who": [1] * 9, "word": list("abcdefghi"), "topic": ["x"] * 9})
    words = dg.read(rows, user="who")
    asked: tuple[dict[str, Any], ...] = ({"domain": list("abcdefghi"), "method": "gaussian"}, {})
    for options in asked:
        release = dg.top(words, "word", unit=dg.Record(), epsilon=1.0, delta=1e-6, **options)
        assert release.guarantee.epsilon() <= 1.0
        assert release.guarantee.epsilon(unit=dg.Element("topic")) == np.inf
        bounded = dg.User(max_elements=1, by="topic")
        assert release.guarantee.epsilon(unit=bounded) == np.inf


def test_losses_of_a_budget_are_those_of_the_formula() -> None:
    user = Contribution(block="user")
    parts: list[Event] = [
        Gaussian(10.0, user), Selection(12.0, 80.0, 3, user), TruncatedGeometric(0.05, 300, 1, user),
        Laplace(40.0, Contribution(block="user", norm="l1")), Gaussian(20.0, user, count=3),
    ]  # fmt: skip
    for order in itertools.islice(itertools.permutations(parts), 0, 120, 17):
        b = Budget(5.0, 1e-5)
        for event in order:
            b.charge(dg.Guarantee("user", "", "zero_out", 1e-6, event))
        assert b.guarantee is not None
        loss = b.guarantee.event.loss()
        assert loss.mu == pytest.approx((1 / 100 + 1 / 144 + 3 / 400) ** 0.5)
        assert loss.pure == pytest.approx(0.05 + 1 / 40)
        assert loss.leak == pytest.approx(sum(part.loss().leak for part in parts))
        assert b.guarantee.delta == pytest.approx(5e-6)
        assert b.left == pytest.approx(5.0 - loss.epsilon(1e-5))
