"""Public facts as kinds with numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.publishing.facts import SENTENCES, Fact, facts_of

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
    "numbers", [(), (1, 2), ("many",)], ids=["too few", "too many", "not a number"]
)
def test_numbers_must_fit_the_kind(numbers: tuple[Any, ...]) -> None:
    with refuses("numbers", "'items'"):
        Fact("items", numbers)


def test_an_unknown_kind_is_rejected_by_name() -> None:
    with refuses("kind", "'tariffs'", "stated"):
        Fact("tariffs")
    values = of(Fact("bins")).to_dict()
    values["public"] = [{"kind": "tariffs", "numbers": []}]
    with refuses("kind", "'tariffs'"):
        dg.Guarantee.from_dict(values)


def test_facts_with_one_sentence_are_listed_once() -> None:
    twice = (Fact("gradient-bound", (1.0,)), Fact("gradient-bound", (1.0000000001,)), "our tariffs")
    assert facts_of(twice) == (Fact("gradient-bound", (1.0,)), Fact("stated", ("our tariffs",)))


def test_the_sentence_of_a_setting_names_its_fact() -> None:
    fact = Fact("setting", ("ridge", 0.5))
    assert str(fact) == "in some settings a ridge of 0.5"
    with refuses("numbers"):
        Fact("setting", ("ridge",))


def test_no_sentence_has_the_separator_of_a_list() -> None:
    assert not [kind for kind, sentence in SENTENCES.items() if ";" in sentence]
