"""Odds, and the guarantee in four sentences."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import dpgrain as dg
from dpgrain.accounting import Contribution, Event, Gaussian, Laplace, Selection
from dpgrain.units import Level, Relation
from dpgrain.words.odds import Odds, guarantee_sentences, person_sentence
from dpgrain.words.risk import percent_up


class TestOdds:
    def test_the_odds_of_one(self) -> None:
        odds = Odds(1.0, 1e-6)
        assert odds.factor == "2.72"
        # 0.01·0.135915 / (0.01·0.135915 + 0.99·0.05) = 0.026724…
        assert (odds.guess, odds.posterior(0.01)) == ("73.2%", "2.7%")
        assert Odds(0.0, 0.2).guess == "60%"
        # e·0.05 + 10⁻⁶ = 0.135915…
        assert odds.detection(0.05) == "13.6%"

    def test_the_other_line_binds_at_large_epsilon(self) -> None:
        # e³·0.05 > 1, but 1 − e^{−3}·0.95 = 0.952702…
        assert Odds(3.0, 0.0).detection(0.05) == "95.3%"

    def test_the_best_test_of_a_gaussian_stays_below(self) -> None:
        from scipy.stats import norm

        mu, delta = 0.7, 1e-5
        epsilon = Gaussian(1 / mu).epsilon(delta)
        power = norm.sf(norm.isf(0.05) - mu)
        assert power * 100 < float(Odds(epsilon, delta).detection(0.05).rstrip("%"))

    @pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
    @pytest.mark.parametrize("alarms", [0.01, 0.3, 0.8, 0.94])
    def test_the_best_test_of_what_leaks_stays_below(self, epsilon: float, alarms: float) -> None:
        # With probability δ the table is told outright, and otherwise by randomised response.
        delta = 0.05
        share, lie = alarms / (1 - delta), 1 / (1 + math.exp(epsilon))
        rest = math.exp(epsilon) * share if share < lie else 1 - math.exp(-epsilon) * (1 - share)
        power = delta + (1 - delta) * rest
        assert power * 100 <= float(Odds(epsilon, delta).detection(alarms).rstrip("%")) + 1e-9

    def test_no_bound(self) -> None:
        assert Odds(math.inf, 0.0).factor == "no limit"
        assert Odds(800.0, 0.0).posterior(0.01) == "16.9%"
        assert Odds(800.0, 0.0).detection(0.05) == "100%"


_EVENTS: dict[Level, Event] = {
    "record": Gaussian(4.0, Contribution(block="record")),
    "element": Gaussian(4.0),
    "user": Gaussian(4.0, Contribution(block="user")),
}


class TestOfAPerson:
    def test_all_of_a_user_are_a_person(self) -> None:
        promise = dg.Guarantee("user", "", "zero_out", 1e-6, _EVENTS["user"])
        assert "covers a whole person" in person_sentence(promise)

    @pytest.mark.parametrize("level", ["record", "element"])
    def test_without_a_bound_nothing_is_promised(self, level: Level) -> None:
        promise = dg.Guarantee(level, "", "zero_out", 1e-6, _EVENTS[level])
        told = person_sentence(promise)
        assert f"with all {level}s together, nothing is guaranteed at this δ." in told
        # A number of elements can be asked for, one of records cannot.
        assert ("max_elements" in told) == (level == "element")

    @pytest.mark.parametrize("relation", ["zero_out", "replace"])
    def test_with_a_bound_its_epsilon_is_that_of_all_elements(self, relation: Relation) -> None:
        event = Gaussian(4.0, Contribution(cells=12))
        promise = dg.Guarantee("element", "'subject'", relation, 1e-6, event)
        odds = Odds.from_guarantee(promise, unit=dg.User())
        assert odds.epsilon == promise.epsilon(unit=dg.User()) > 2 * promise.epsilon()
        sentence = f"ε = {odds.text}: the best guess is right at most {odds.guess} of the time."
        assert person_sentence(promise).endswith(sentence)
        # The trade-off curve limits guesses more than (ε, δ) does.
        assert float(odds.guess.rstrip("%")) < float(Odds(odds.epsilon, 1e-6).guess.rstrip("%")) - 9


class TestFourSentences:
    @pytest.mark.parametrize("level", _EVENTS)
    @pytest.mark.parametrize("relation", ["zero_out", "replace"])
    def test_their_numbers_are_the_guarantee_s(self, level: Level, relation: Relation) -> None:
        elements = "'word'" if level == "element" else ""
        promise = dg.Guarantee(level, elements, relation, 1e-6, _EVENTS[level])
        sentences = guarantee_sentences(promise)
        assert len(sentences) == 4
        assert all(sentence.endswith(".") for sentence in sentences)
        who, how_much, several, ends = sentences
        assert who.startswith(f"This release protects {level}s: ")
        own, five = (Odds.from_guarantee(promise, units=k) for k in (1, 5))
        assert own.guess == percent_up(promise.risk().guess)
        assert f"no outcome is more than {own.factor} times as likely" in how_much
        assert f"(ε = {own.text})" in how_much
        assert f"correctly at most {own.guess} of the time" in how_much
        assert (" present " in how_much) == (relation == "zero_out")
        assert f"for 5 of them the factor is {five.factor} (ε = {five.text})" in several
        assert ends.startswith("The bound has an additive slack of δ = 10⁻⁶.")
        assert "people in general" in ends

    def test_a_pure_guarantee_has_no_slack(self) -> None:
        event = Laplace(2.0, Contribution(block="user", norm="l1"))
        sentences = guarantee_sentences(dg.Guarantee("user", "", "zero_out", 0.0, event))
        assert sentences[3].startswith("The bound has no slack. It does not cover")

    def test_no_promise_is_said_to_be_none(self) -> None:
        event = Selection(8.0, 45.0, 1) + Gaussian(4.0)
        promise = dg.Guarantee("element", "'word'", "zero_out", 1e-9, event)
        assert math.isinf(promise.epsilon())
        sentences = guarantee_sentences(promise)
        assert sentences[1].startswith("At this δ, no factor is guaranteed.")
        one, five = (event.loss(units=k).leak for k in (1, 5))
        few = guarantee_sentences(replace(promise, delta=math.sqrt(one * five)))
        assert "no outcome is more than" in few[1]
        first = next(k for k in range(2, 6) if event.loss(units=k).leak > math.sqrt(one * five))
        assert f"for {first} or more of them nothing is guaranteed at this δ" in few[2]

    def test_where_more_cost_no_more_it_says_so(self) -> None:
        event = Gaussian(4.0, Contribution(cells=1))
        promise = dg.Guarantee("element", "'word'", "zero_out", 1e-6, event)
        assert promise.epsilon(units=2) == promise.epsilon()
        assert (
            guarantee_sentences(promise)[2]
            == "The same holds for 2 elements of one person together."
        )

    def test_data_on_devices_are_told_apart(self) -> None:
        promise = dg.Guarantee("user", "", "zero_out", 1e-6, _EVENTS["user"])
        assert "the device of one user" in guarantee_sentences(promise, of_devices=True)[0]
