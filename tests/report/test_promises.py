"""Odds and granularities of a promise, as a page tells them."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report import cases

import dpgrain as dg
from dpgrain.accounting import Contribution, Event, Gaussian, Laplace, Selection
from dpgrain.report.promises import Odds, four_sentences, grains_of, of_a_person
from dpgrain.units import Level, Relation


@pytest.mark.slow
def test_the_sentence_of_the_guarantee_is_in_it(tmp_path: Path) -> None:
    release = cases.histogram(["yo", "bro"])
    assert str(release.guarantee).replace("'", "&#39;") in cases.page(release, tmp_path)


@pytest.mark.slow
def test_a_delta_is_told_as_one_in_so_many(tmp_path: Path) -> None:
    release = cases.histogram(["yo"])
    release = replace(release, guarantee=replace(release.guarantee, delta=1e-9))
    assert "that is 1 in 1,000,000,000, this release" in cases.page(release, tmp_path)


@pytest.mark.slow
def test_a_promise_that_is_none_says_so(tmp_path: Path) -> None:
    page = cases.page(cases.histogram(["yo"]), tmp_path)
    assert "∞ (no guarantee)" in page
    lost = cases.histogram(["yo"], Gaussian(1.0, Contribution(block="record")))
    assert "At this δ nothing is promised." in cases.page(lost, tmp_path)


class TestOdds:
    def test_the_odds_of_one(self) -> None:
        odds = Odds(1.0, 1e-6)
        assert odds.factor == "2.72"
        assert (odds.right, odds.after(0.01)) == ("73.2%", "2.7%")
        assert Odds(0.0, 0.2).right == "60%"
        # e·0.05 + 10⁻⁶ = 0.135915…
        assert odds.caught(0.05) == "13.6%"

    def test_the_other_line_binds_at_large_epsilon(self) -> None:
        # e³·0.05 > 1, but 1 − e^{−3}·0.95 = 0.952702…
        assert Odds(3.0, 0.0).caught(0.05) == "95.3%"

    def test_the_best_test_of_a_gaussian_stays_below(self) -> None:
        from scipy.stats import norm

        mu, delta = 0.7, 1e-5
        epsilon = Gaussian(1 / mu).epsilon(delta)
        power = norm.sf(norm.isf(0.05) - mu)
        assert power * 100 < float(Odds(epsilon, delta).caught(0.05).rstrip("%"))

    @pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
    @pytest.mark.parametrize("alarms", [0.01, 0.3, 0.8, 0.94])
    def test_the_best_test_of_what_leaks_stays_below(self, epsilon: float, alarms: float) -> None:
        # With probability δ the table is told outright, and otherwise by randomised response.
        delta = 0.05
        share, lie = alarms / (1 - delta), 1 / (1 + math.exp(epsilon))
        rest = math.exp(epsilon) * share if share < lie else 1 - math.exp(-epsilon) * (1 - share)
        power = delta + (1 - delta) * rest
        assert power * 100 <= float(Odds(epsilon, delta).caught(alarms).rstrip("%")) + 1e-9

    def test_no_bound(self) -> None:
        assert Odds(math.inf, 0.0).factor == "no limit"
        assert Odds(800.0, 0.0).after(0.01) == "100%"
        assert Odds(800.0, 0.0).caught(0.05) == "100%"


_EVENTS: dict[Level, Event] = {
    "record": Gaussian(4.0, Contribution(block="record")),
    "element": Gaussian(4.0),
    "user": Gaussian(4.0, Contribution(block="user")),
}


class TestOfAPerson:
    def test_all_of_a_user_are_a_person(self) -> None:
        promise = dg.Guarantee("user", "", "zero_out", 1e-6, _EVENTS["user"])
        assert "is a promise to a whole person" in of_a_person(promise)

    @pytest.mark.parametrize("level", ["record", "element"])
    def test_without_a_bound_nothing_is_promised(self, level: Level) -> None:
        promise = dg.Guarantee(level, "", "zero_out", 1e-6, _EVENTS[level])
        told = of_a_person(promise)
        assert f"with all {level}s together, nothing is promised at this δ." in told
        # A number of elements can be asked for, one of records cannot.
        assert ("max_elements" in told) == (level == "element")

    @pytest.mark.parametrize("relation", ["zero_out", "replace"])
    def test_with_a_bound_its_epsilon_is_that_of_all_elements(self, relation: Relation) -> None:
        event = Gaussian(4.0, Contribution(cells=12))
        promise = dg.Guarantee("element", "'subject'", relation, 1e-6, event)
        odds = Odds(promise.epsilon(unit=dg.User()), 1e-6)
        assert odds.epsilon > 2 * promise.epsilon()
        sentence = f"ε = {odds.shown} is promised: right guesses in at most {odds.right} of cases."
        assert of_a_person(promise).endswith(sentence)


class TestFourSentences:
    @pytest.mark.parametrize("level", _EVENTS)
    @pytest.mark.parametrize("relation", ["zero_out", "replace"])
    def test_their_numbers_are_the_guarantee_s(self, level: Level, relation: Relation) -> None:
        elements = "'word'" if level == "element" else ""
        promise = dg.Guarantee(level, elements, relation, 1e-6, _EVENTS[level])
        sentences = four_sentences(promise)
        assert len(sentences) == 4
        assert all(sentence.endswith(".") for sentence in sentences)
        who, how_much, several, ends = sentences
        assert f"any one {level}" in who
        own, five = (Odds(promise.epsilon(units=k), 1e-6) for k in (1, 5))
        assert f"no outcome is more than {own.factor} times as likely" in how_much
        assert f"(ε = {own.shown})" in how_much
        assert f"is right in at most {own.right} of cases" in how_much
        assert ("there at all" in how_much) == (relation == "zero_out")
        assert f"the factor is {five.factor} (ε = {five.shown})" in several
        assert "δ = 10⁻⁶" in ends
        assert "people in general" in ends

    def test_a_pure_promise_has_no_exception(self) -> None:
        event = Laplace(2.0, Contribution(block="user", norm="l1"))
        sentences = four_sentences(dg.Guarantee("user", "", "zero_out", 0.0, event))
        assert sentences[3].startswith("It has no exception, and it says nothing of")

    def test_no_promise_is_said_to_be_none(self) -> None:
        event = Selection(8.0, 45.0, 1) + Gaussian(4.0)
        promise = dg.Guarantee("element", "'word'", "zero_out", 1e-9, event)
        assert math.isinf(promise.epsilon())
        sentences = four_sentences(promise)
        assert sentences[1].startswith("At this δ nothing is promised")
        one, five = (event.loss(units=k).leak for k in (1, 5))
        few = four_sentences(replace(promise, delta=math.sqrt(one * five)))
        assert "no outcome is more than" in few[1]
        assert "to 5 elements of one person nothing is promised at this δ" in few[2]

    def test_where_more_cost_no_more_it_says_so(self) -> None:
        event = Gaussian(4.0, Contribution(cells=1))
        promise = dg.Guarantee("element", "'word'", "zero_out", 1e-6, event)
        assert promise.epsilon(units=2) == promise.epsilon()
        assert four_sentences(promise)[2] == "The same holds for 2 elements of one person together."

    def test_data_on_devices_are_told_apart(self) -> None:
        promise = dg.Guarantee("user", "", "zero_out", 1e-6, _EVENTS["user"])
        assert "the device of that user" in four_sentences(promise, of_devices=True)[0]


class TestGrains:
    @pytest.mark.slow
    def test_a_record_that_costs_more_than_its_element_is_explained(self, tmp_path: Path) -> None:
        event = Gaussian(4.0, Contribution(coordinates="nonnegative"))
        promise = dg.Guarantee("element", "'word'", "zero_out", 1e-6, event)
        record, element, *others = grains_of(promise, {})
        assert record.promises[0].epsilon > element.promises[0].epsilon
        assert record.why.startswith("more than a whole element: if only a part of a whole element")
        assert not element.why
        assert not any(grain.why for grain in others)
        page = cases.page(replace(cases.histogram(["yo"]), guarantee=promise), tmp_path)
        assert re.search(r'<th scope="row">one record<small>more than a whole element', page)

    def test_one_that_costs_no_more_is_not(self) -> None:
        promise = cases.histogram(["yo"]).guarantee
        record, element, *_ = grains_of(promise, {})
        assert record.promises[0].epsilon <= element.promises[0].epsilon
        assert not record.why
