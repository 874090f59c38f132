"""One budget for several releases: charges, rejections, and their order."""

from __future__ import annotations

import dataclasses
import itertools
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.publishing import cases
from tests.refusals import no_room, refuses

import dpgrain as dg
from dpgrain.accounting import Contribution, Event, Gaussian, Laplace, Selection, TruncatedGeometric
from dpgrain.accounting.losses.gaussian import pure_mu
from dpgrain.publishing import Budget, in_budget, price
from dpgrain.units import RELATIONS, Relation

UPPER = dg.Elements.from_function(str.upper)


ASKED: dict[str, Callable[..., Any]] = {
    "histogram": lambda t, **o: dg.histogram(t, "page", domain=cases.PAGES, **o),
    "count": lambda t, **o: dg.count(t, noise="gaussian", **o),
    "count of selected": lambda t, **o: dg.count(t, by="page", **o),
    "sum": lambda t, **o: dg.sum(t, "paid", noise="gaussian", **o),
    "mean": lambda t, **o: dg.mean(t, "paid", by="page", domain=cases.PAGES, noise="gaussian", **o),
    "variance": lambda t, **o: dg.variance(t, "paid", bounds=(0, 10), noise="gaussian", **o),
    "quantiles": lambda t, **o: dg.quantiles(t, "paid", bins=16, **o),
    "top": lambda t, **o: dg.top(t, "page", method="gaussian", **o),
    "names": lambda t, **o: dg.top(t, "page", method="gaussian", counts=False, **o),
    "truncated": lambda t, **o: dg.top(t, "page", method="truncated", max_items=2, **o),
    "gumbel": lambda t, **o: dg.top(t, "page", method="gumbel", k=1, domain=cases.PAGES, **o),
    "held": lambda t, **o: dg.elements_per_user(t, "page", **o),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", ASKED)
def test_every_statistic_is_charged_as_accounted(name: str, relation: Relation) -> None:
    options: dict[str, Any] = {**cases.USER, "epsilon": 1.0, "delta": 1e-6, "relation": relation}
    with dg.budget(9.0, 1e-3) as b:
        one = dg.count(cases.table(), clip=5.0, **options)
        assert b.guarantee == replace(one.guarantee, delta=b.delta)
        two = ASKED[name](cases.table(), **options)
        assert b.guarantee == replace(one.guarantee + two.guarantee, delta=b.delta)
    unit, caps = dg.User(), b.caps.price
    prices = [price(r.guarantee.event, relation, unit, caps) for r in (one, two)]
    assert b.spent == prices[0] + prices[1]
    assert b.left == pytest.approx(1 - b.spent.share_of(caps))
    assert 0 < b.left < 1


@pytest.mark.parametrize("name", ASKED)
def test_release_beyond_the_budget_is_rejected_before_reading(name: str) -> None:
    with dg.budget(1.0, 1e-6) as b:
        dg.count(cases.table(), clip=5.0, **cases.USER, share=0.5)
        before, spent, shown = b.guarantee, b.spent, repr(b)
        with no_room() as caught:
            ASKED[name](cases.unread(), **cases.USER, epsilon=0.9, delta=5e-7)
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)
        assert (b.guarantee, b.spent, repr(b)) == (before, spent, shown)
        # And a smaller release still fits.
        dg.count(cases.table(), clip=5.0, **cases.USER, share=0.5)
    with dg.budget(1.0, 1e-6) as b, pytest.raises(dg.ParameterError, match="is left"):
        ASKED[name](cases.unread(), **cases.USER, epsilon=1.01, delta=1e-6)
    assert b.guarantee is None
    assert b.left == 1.0


def test_charged_unreadable_release_stays_charged() -> None:
    with dg.budget(1.0, 1e-6) as b:
        with pytest.raises(AssertionError, match="rows were read"):
            dg.count(cases.unread(), clip=5.0, **cases.USER, share=0.2)
        assert b.guarantee is not None
        assert b.left == pytest.approx(0.8)


@pytest.mark.parametrize("name", ASKED)
def test_warning_as_error_charges_nothing(name: str) -> None:
    rows = dataclasses.replace(cases.unread(), n_users=40)
    with dg.budget(9.0, 0.2) as b, pytest.raises(dg.DeltaWarning):
        ASKED[name](rows, **cases.USER, epsilon=1.0, delta=0.01)
    assert b.guarantee is None


def laplace(rows: dg.UserTable, **options: Any) -> Any:
    return dg.sum(rows, "paid", noise="laplace", **options)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", [*ASKED, "laplace"])
def test_share_equals_its_charge(name: str, relation: Relation) -> None:
    """For any noise, a release uses almost its whole share, and not more."""
    ask: Callable[..., Any] = ASKED.get(name, laplace)
    with dg.budget(1.0, 1e-6) as b:
        ask(cases.table(), **cases.USER, share=0.3, relation=relation)
        assert 0.99 * 0.3 <= b.spent.share_of(b.caps.price) <= 0.3 * (1 + 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ([0.5, 0.5], ["count", "mean"]),
        ([0.2, 0.3, 0.5], ["sum", "count of selected", "quantiles"]),
        ([0.25] * 4, ["top", "gumbel", "held", "truncated"]),
        ([0.1, 0.6, 0.3], ["truncated", "names", "variance"]),
    ],
)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-9), (8.0, 1e-3)])
def test_shares_adding_up_to_1_fit_in_any_order(
    parts: list[float], names: list[str], epsilon: float, delta: float
) -> None:
    for order in (list(zip(names, parts, strict=True)), list(zip(names, parts, strict=True))[::-1]):
        with dg.budget(epsilon, delta) as b:
            for name, part in order:
                ASKED[name](cases.table(), **cases.USER, share=part)
            assert b.left < 0.02
            # Nothing more.
            with no_room():
                dg.count(cases.unread(), clip=5.0, **cases.USER, share=0.05)
        assert b.caps.epsilon(delta) <= epsilon * (1 + 1e-12)


def test_gaussian_share_loses_nothing_without_a_leak() -> None:
    """►: noise of a budget of Gaussians, compared with one release that uses all of it."""
    alone = dg.count(
        cases.table(), clip=5.0, **cases.USER, epsilon=1.0, delta=1e-6, noise="gaussian"
    )
    for leak, more in ((0.0, 1.0), (None, 1.005)):
        with dg.budget(1.0, 1e-6, leak=leak):
            halves = [dg.count(cases.table(), clip=5.0, **cases.USER, share=0.5) for _ in range(2)]
        noise = halves[0].std_error[0] / np.sqrt(2) / alone.std_error[0]
        assert noise == pytest.approx(more, abs=5e-4)


@pytest.mark.parametrize(
    ("epsilon", "delta", "more"),
    [
        (0, 1e-6, {}), (-1, 1e-6, {}), (1, 1.0, {}), (1, -1e-9, {}), ("1", 0, {}),
        (1, 1e-6, {"pure": 1.5}), (1, 1e-6, {"pure": -1}), (1, 1e-6, {"leak": 2e-6}),
        (1, 1e-6, {"leak": float("nan")}), (1, 1e-6, {"plan": [3]}),
    ],
)  # fmt: skip
def test_a_budget_is_a_promise(epsilon: Any, delta: Any, more: dict[str, Any]) -> None:
    with pytest.raises(dg.ParameterError, match=r"(epsilon|delta|pure|leak|plan) must"):
        dg.budget(epsilon, delta, **more)
    assert not in_budget()


# -- arrays ---


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("name", cases.ARRAYS)
def test_array_release_uses_its_share_and_no_more(name: str) -> None:
    with dg.budget(2.0, 1e-5) as b:
        guarantee = cases.ARRAYS[name](share=0.4)
        assert 0.9 * 0.4 <= b.spent.share_of(b.caps.price) <= 0.4 * (1 + 1e-8)
        assert b.guarantee == replace(guarantee, delta=b.delta)
    with refuses("share", "budget"):
        cases.ARRAYS[name](share=0.4)


def test_choice_inside_a_budget_uses_the_exponential_mechanism() -> None:
    """Its price follows from half its range: it has twice the ε of permute-and-flip."""

    def chosen(**options: Any) -> float:
        with dg.budget(1.0, 1e-6):
            return cases.ARRAYS["select"](share=0.1, **options).epsilon(0.0)

    assert chosen() == pytest.approx(2 * 0.0594, rel=0.02)
    assert chosen(method="permute_and_flip") == pytest.approx(0.0594, rel=0.02)


def test_shuffled_sums_take_a_share() -> None:
    protocol = dg.shuffle.VectorSum(
        n_users=400, dim=3, epsilon=1.0, delta=1e-6, relation="zero_out"
    )
    with dg.budget(2.0, 1e-5) as b:
        protocol.simulate(cases.VECTORS, share=0.4)
        assert 0.9 * 0.4 <= b.spent.share_of(b.caps.price) <= 0.4 * (1 + 1e-8)


# -- what does not compose ---


@pytest.mark.parametrize("left", [0.3, 0.0123, 0.0042, 0.0004])
def test_share_named_in_a_rejection_fits(left: float) -> None:
    with dg.budget(1.0, 1e-6) as b:
        dg.count(cases.table(), clip=5.0, **cases.USER, share=1 - left)
        with pytest.raises(dg.RefusedError) as told:
            dg.count(cases.unread(), clip=5.0, **cases.USER, epsilon=1.0, delta=1e-6)
        named = re.search(r"share=([0-9.e-]+)", str(told.value))
        assert named is not None
        assert left / 2 < float(named[1])
        dg.count(cases.table(), clip=5.0, **cases.USER, share=float(named[1]))
        assert b.left < left / 2


def test_no_share_is_named_if_nothing_remains() -> None:
    with dg.budget(1.0, 1e-6):
        dg.count(cases.table(), clip=5.0, **cases.USER, share=1.0)
        with pytest.raises(dg.RefusedError) as told:
            dg.count(cases.unread(), clip=5.0, **cases.USER, epsilon=1.0, delta=1e-6)
    assert "share=" not in str(told.value)


def test_selection_needing_more_leak_is_reported() -> None:
    with (
        dg.budget(1.0, 1e-6),
        pytest.raises(
            dg.ParameterError, match=r"names that are not listed in advance.*larger leak="
        ),
    ):
        dg.count(cases.unread(), by="page", **cases.USER, epsilon=0.5, delta=5e-7)
    with dg.budget(1.0, 1e-6, leak=5e-7):
        dg.count(cases.table(), by="page", **cases.USER, epsilon=0.5, delta=5e-7)


@pytest.mark.parametrize("spent", [0.0, 0.5])
def test_pure_noise_rejection_names_fitting_gaussian_noise(spent: float) -> None:
    with dg.budget(1.0, 1e-6):
        if spent:
            dg.count(cases.table(), clip=5.0, **cases.USER, share=spent)
        with pytest.raises(dg.RefusedError) as told:
            dg.count(cases.unread(), clip=5.0, **cases.USER, epsilon=0.4)
        named = re.search(r"use Gaussian noise, .* ε = ([\d.]+) at δ", str(told.value))
        assert named is not None
        dg.count(cases.table(), clip=5.0, **cases.USER, epsilon=float(named[1]), delta=9.9e-8)
        # Without remaining δ, no item is selected.
        with pytest.raises(dg.RefusedError) as told:
            dg.count(cases.unread(), clip=5.0, **cases.USER, epsilon=0.4)
        assert "Gaussian noise" not in str(told.value)


@pytest.mark.parametrize("delta", [0.0, 1e-7])
def test_laplace_rejection_does_not_depend_on_unused_delta(delta: float) -> None:
    laplace = {"clip": 5.0, **cases.USER, "epsilon": 0.4, "noise": "laplace"}
    with dg.budget(1.0, 1e-6), pytest.raises(dg.RefusedError) as told:
        dg.count(cases.unread(), **laplace, delta=delta)
    assert "pass delta=" not in str(told.value)
    assert "use Gaussian noise" in str(told.value)


def test_nested_budget_is_rejected() -> None:
    with dg.budget(1.0, 1e-6) as b:
        with pytest.raises(dg.ParameterError, match="already open"), dg.budget(1.0, 1e-6):
            raise AssertionError("opened")
        with pytest.raises(dg.ParameterError, match="already open"), b:
            raise AssertionError("opened")
        # A rejection leaves the outer budget in force.
        assert in_budget()
        dg.count(cases.table(), clip=5.0, **cases.USER, share=0.5)
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
def test_other_unit_is_rejected_before_reading(other: dict[str, Any]) -> None:
    with dg.budget(1.0, 1e-6) as b:
        first = {"unit": dg.Element("topic")} if other["unit"] == dg.Element("page") else cases.USER
        dg.count(cases.table(), clip=5.0, noise="gaussian", **first, share=0.3)
        before = b.guarantee
        with refuses("guarantees", "compose"):
            dg.count(cases.unread(), clip=5.0, noise="gaussian", **other, share=0.3)
        assert b.guarantee == before


@pytest.mark.parametrize(
    "unit",
    [
        dg.User(3, by="page"), dg.User(3), dg.User(3, by={"p0": "x"}), dg.Element("page"),
        dg.Element(UPPER),
    ],
    ids=["capped", "capped items", "capped mapping", "element", "function"],
)  # fmt: skip
def test_contribution_counts_compose_with_other_statistics(unit: Any) -> None:
    with dg.budget(1.0, 1e-6) as b:
        dg.top(cases.table(), "page", unit=unit, method="gaussian", share=0.5)
        dg.elements_per_user(cases.table(), "page", unit=unit, share=0.5)
    assert b.guarantee is not None
    assert len(b.guarantee.event.parts) > 1


# -- where it is in force ---


class StopError(Exception):
    pass


def test_budget_is_closed_after_an_exception_in_its_block() -> None:
    opened = dg.budget(1.0, 1e-6)

    def stopped() -> None:
        with opened:
            dg.count(cases.table(), clip=5.0, **cases.USER, share=0.5)
            raise StopError

    with pytest.raises(StopError):
        stopped()
    assert not in_budget()
    assert opened.guarantee is not None
    spent = opened.left
    # Outside nothing is charged.
    dg.count(cases.table(), clip=5.0, **cases.USER, epsilon=5.0, delta=1e-6)
    assert opened.left == spent
    # Opened again it goes on where it was.
    with opened:
        with no_room():
            dg.count(cases.unread(), clip=5.0, **cases.USER, epsilon=0.9, delta=5e-7)
        dg.count(cases.table(), clip=5.0, **cases.USER, share=0.5)
    assert not in_budget()


def test_no_thread_is_outside_of_a_budget() -> None:
    """Threads of a library start with an empty context: a budget there would not count."""
    ask = {**cases.USER, "epsilon": 0.6, "delta": 1e-7}

    def release(_: int) -> bool:
        try:
            dg.count(cases.table(), clip=5.0, **ask)
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
    # As many as fit into the budget, each of them charged.
    assert len(b.guarantee.event.parts) == sum(made) < 8
    assert b.guarantee.epsilon(1e-6) <= 1.0


def test_two_threads_do_not_both_use_the_remainder(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first one pauses after the budget's check, and before its charge.
    module = import_module("dpgrain.publishing.budget")
    usual, asked, other = module._with_receipt, threading.Event(), threading.Event()

    def noted(*args: Any, **more: Any) -> Any:
        asked.set()
        other.wait(0.5)
        return usual(*args, **more)

    monkeypatch.setattr(module, "_with_receipt", noted)

    def publish() -> bool:
        try:
            dg.count(cases.table(), clip=5.0, **cases.USER, epsilon=0.9, delta=1e-6)
        except dg.RefusedError:
            return False
        return True

    with dg.budget(1.0, 1e-6) as b, ThreadPoolExecutor(2) as threads:
        first = threads.submit(publish)
        assert asked.wait(30)
        second = threads.submit(publish)
        assert [first.result(), second.result()] == [True, False]
        assert b.left > 0


def test_means_of_any_function_are_charged() -> None:
    with dg.budget(1.0, 1e-6) as b:
        dg.papers.release_mean([1.0, 2.0], dimension=1, sensitivity=1.0, epsilon=0.5, delta=1e-7)
        assert b.guarantee is not None
        with no_room():
            dg.papers.release_mean(
                [1.0, 2.0], dimension=1, sensitivity=1.0, epsilon=2.0, delta=1e-7
            )


def test_the_same_mapping_of_two_columns_is_two_partitions() -> None:
    mapping = {"a": "x", "b": "y"}
    rows = pa.table({"who": [1] * 4, "page": ["a"] * 4, "ref": ["a", "b", "c", "d"]})
    both = dg.read(rows, user="who")
    cells = both.with_cells("t1", "page", mapping).with_cells("t2", "ref", mapping)
    for first, second, source in (
        (dg.Element(mapping), dg.Element(mapping), both),
        (dg.Element("t1"), dg.Element("t2"), cells),
    ):
        with dg.budget(1.0, 1e-6):
            dg.count(source, by="page", unit=first, domain=["a"], clip=1.0, share=0.5)
            with refuses("guarantees", "'page'"):
                dg.count(source, by="ref", unit=second, domain=["a"], clip=1.0, share=0.5)


def test_other_users_are_other_users() -> None:
    rows = pa.table({"who": [1] * 4, "device": [1, 2, 3, 4]})
    with dg.budget(1.0, 1e-6):
        dg.count(dg.read(rows, user="who"), unit=dg.User(), clip=1.0, share=0.5)
        with refuses("guarantees", "'device'"):
            dg.count(dg.read(rows, user="device"), unit=dg.User(), clip=1.0, share=0.5)


def test_top_of_records_guarantees_nothing_for_unknown_partitions() -> None:
    rows = pa.table({"who": [1] * 9, "word": list("abcdefghi"), "topic": ["x"] * 9})
    words = dg.read(rows, user="who")
    asked: tuple[dict[str, Any], ...] = ({"domain": list("abcdefghi"), "method": "gaussian"}, {})
    for options in asked:
        release = dg.top(words, "word", unit=dg.Record(), epsilon=1.0, delta=1e-6, **options)
        assert release.guarantee.epsilon() <= 1.0
        assert release.guarantee.epsilon(unit=dg.Element("topic")) == np.inf
        bounded = dg.User(max_elements=1, by="topic")
        assert release.guarantee.epsilon(unit=bounded) == np.inf


def test_budget_losses_agree_with_the_formula() -> None:
    user = Contribution(block="user")
    parts: list[Event] = [
        Gaussian(10.0, user), Selection(12.0, 80.0, 3, user), TruncatedGeometric(0.05, 300, 1, user),
        Laplace(40.0, Contribution(block="user", norm="l1")), Gaussian(20.0, user, count=3),
    ]  # fmt: skip
    for order in itertools.islice(itertools.permutations(parts), 0, 120, 17):
        b = Budget(5.0, 1e-4, leak=5e-5)
        for event in order:
            b.charge(dg.Guarantee("user", "", "zero_out", 1e-6, event))
        assert b.guarantee is not None
        pure = pure_mu(0.05) ** 2 + pure_mu(1 / 40) ** 2
        assert b.spent.mu == pytest.approx((1 / 100 + 1 / 144 + 3 / 400 + pure) ** 0.5)
        assert b.spent.pure == 0
        assert b.spent.leak == pytest.approx(sum(part.loss().leak for part in parts))
        assert b.guarantee.delta == b.delta
        assert f"spent {100 * b.spent.share_of(b.caps.price):.3g}"[:9] in repr(b)


def test_printed_budget_rounds_spent_up_and_left_down() -> None:
    b = Budget(1.0, 1e-6)
    assert str(b) == "Budget of ε = 1 and δ = 10⁻⁶: 0% spent, 100% left"
    b.charge(dg.Guarantee("user", "", "zero_out", 1e-6, Gaussian(7.31, Contribution(block="user"))))
    assert 0.3374 < b.spent.share_of(b.caps.price) < 0.3375
    assert str(b).endswith(": 33.8% spent, 66.2% left")


def test_a_page_needs_a_path_and_releases(tmp_path: Path) -> None:
    with dg.budget(1.0, 1e-6) as budget:
        dg.count(cases.table(), clip=5.0, **cases.USER, share=0.5)
    with pytest.raises(dg.ParameterError, match="path must be a file path"):
        budget.report()
    with pytest.raises(dg.ParameterError, match="releases must be a mapping of names"):
        budget.report(tmp_path / "page.html")
