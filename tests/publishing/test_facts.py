"""Public facts as kinds with numbers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.publishing.facts import Fact, unique_facts

EVENT = Gaussian(5.0, Contribution(block="user"))


def of(*public: Fact) -> dg.Guarantee:
    return dg.Guarantee("user", "", "zero_out", 1e-6, EVENT, public)


def test_no_sentence_is_stored() -> None:
    stored = json.dumps(of(Fact("items", (49,)), Fact("bins")).to_dict()["public"])
    assert json.loads(stored) == [
        {"kind": "items", "numbers": [49]},
        {"kind": "bins", "numbers": []},
    ]


@pytest.mark.parametrize(
    "numbers",
    [(), (1, 2), ("many",), (-1,), (2.5,), (math.inf,)],
    ids=["too few", "too many", "not a number", "negative", "fractional", "infinite"],
)
def test_numbers_must_fit_the_kind(numbers: tuple[Any, ...]) -> None:
    with refuses("numbers", "'items'"):
        Fact("items", numbers)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("clipping-bound", (math.inf,)),
        ("clipping-bound", ("much",)),
        ("clipping-bound", (10**400,)),
        ("stated", (5,)),
        ("bounds", (math.inf,)),
        ("setting", ("items", 2.5)),
        ("setting", ("setting", "bins")),
    ],
)
def test_no_fact_has_a_wrong_number(kind: str, numbers: tuple[Any, ...]) -> None:
    with refuses("numbers"):
        Fact(kind, numbers)


@pytest.mark.parametrize(
    ("kind", "numbers", "same"),
    [
        ("clipping-bound", (1,), (1.0,)),
        ("clamped-numbers", (-0.0, 1), (0.0, 1.0)),
        ("items", (49.0,), (49,)),
        ("setting", ("ridge", 1), ("ridge", 1.0)),
    ],
)
def test_equal_facts_have_one_hash(
    kind: str, numbers: tuple[Any, ...], same: tuple[Any, ...]
) -> None:
    one, other = of(Fact(kind, numbers)), of(Fact(kind, same))
    assert one == other
    assert one.hash == other.hash


def test_an_unknown_kind_is_rejected_by_name() -> None:
    with refuses("kind", "'tariffs'", "stated"):
        Fact("tariffs")
    values = of(Fact("bins")).to_dict()
    values["public"] = [{"kind": "tariffs", "numbers": []}]
    with refuses("kind", "'tariffs'"):
        dg.Guarantee.from_dict(values)


def test_facts_with_one_sentence_are_listed_once() -> None:
    one, near = Fact("gradient-bound", (1.0,)), Fact("gradient-bound", (1.0000000001,))
    tariffs = Fact("stated", ("our tariffs",))
    assert unique_facts((one, one, str(one), "our tariffs", tariffs)) == (one, tariffs)
    # Rounding of a sentence loses no fact.
    assert (of(one) + of(near)).public == (one, near)
    assert str(of(one, near)).count("a clipping bound of 1") == 1
