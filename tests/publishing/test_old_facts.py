"""Sentences of version 0.1 as facts with kinds and numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.old_facts import parse_fact
from dpgrain.words.fact_sentences import SENTENCES

OLD = json.loads(Path(__file__).with_name("old_facts.json").read_text(encoding="utf-8"))


def of(*public: Fact) -> dg.Guarantee:
    event = Gaussian(5.0, Contribution(block="user"))
    return dg.Guarantee("user", "", "zero_out", 1e-6, event, public)


@pytest.mark.parametrize(("sentence", "kind", "numbers"), OLD)
def test_an_old_sentence_becomes_its_kind(
    sentence: str, kind: str, numbers: list[int | float | str]
) -> None:
    assert parse_fact(sentence) == Fact(kind, tuple(numbers))
    # A fit with several settings wrote the same facts with a prefix.
    assert parse_fact(f"in some settings {sentence}") == Fact("setting", (kind, *numbers))


def test_every_kind_has_an_old_sentence() -> None:
    later = {
        "some-rows-where", "person-by", "edges", "thresholds", "scaled-bound", "unclipped",
        "first-rows", "distinct-rows", "clamped-pair", "counted-outside", "clipped-units",
        "scaled-bounds",
        "record-weights", "summed-weights", "divided-by-weight", "chosen-record-weights",
        "weighted-iterations-or-mean", "weighted-iterations",
    }  # fmt: skip
    assert {kind for _, kind, _ in OLD} == {*SENTENCES} - {"stated", "setting"} - later


def test_plurals_and_large_numbers_of_old_sentences() -> None:
    assert parse_fact("the list of 1 item") == Fact("items", (1,))
    assert parse_fact("the list of 12,345 items") == Fact("items", (12345,))
    assert parse_fact("a clipping bound of 1e-05") == Fact("gradient-bound", (1e-5,))
    assert parse_fact("our tariffs, as printed") == Fact("stated", ("our tariffs, as printed",))
    assert parse_fact("in some settings our tariffs").kind == "stated"


@pytest.mark.parametrize(
    "sentence",
    [
        "the column 'C:\\users' is our key",
        "a roster of , users",
        f"a roster of {'9' * 5000} users",
        f"a clipping bound of {'9' * 400}",
        "a clipping bound of 1e999",
        "a roster of 10,00 users",
        "a roster of 1 users",
        "a roster of 007 users",
        "a clipping bound of -1e5000",
        "in some settings " * 3000 + "the bins",
    ],
    ids=lambda sentence: sentence[:40],
)
def test_a_sentence_of_another_form_stays_as_stated(sentence: str) -> None:
    assert parse_fact(sentence) == Fact("stated", (sentence,))
    values = {**of().to_dict(), "public": [sentence]}
    read = dg.Guarantee.from_dict(values)
    assert read.public == (Fact("stated", (sentence,)),)
    assert dg.Guarantee.from_json(read.to_json()) == read


def test_version_0_1_guarantee_composes_without_repeated_facts() -> None:
    new = of(
        Fact("enrolled-users", (3000,)),
        Fact("counted-users", (0.03, 24.4137)),
        Fact("shared-bounds", (1.0, 67108864.0, 0.2)),
        Fact("stated", ("our tariffs",)),
    )
    sentences = [
        "a roster of 3,000 users",
        "3% of the budget for the number of users, which is released with noise of standard "
        "deviation 24.4",
        "clipping bounds between 1 and 67,108,864, chosen with 20% of the budget, those of similar "
        "cells together",
        "our tariffs",
        "the bins",
    ]
    old = dg.Guarantee.from_dict({**new.to_dict(), "public": sentences})
    assert [fact.kind for fact in old.public[:4]] == [fact.kind for fact in new.public]
    for both in (old + new, new + old):
        # The rounded deviation is another number, but both have one sentence.
        assert len(both.public) == len(sentences) + 1
        assert len({*map(str, both.public)}) == len(sentences)
        assert str(both).count("3,000 enrolled users") == 1
        assert str(both).count("for the number of users") == 1
    assert dg.Guarantee.from_json(old.to_json()) == old
