"""Public facts in sentences."""

from __future__ import annotations

from tests.refusals import refuses

from dpgrain.publishing.facts import Fact
from dpgrain.words.facts import SENTENCES


def test_the_sentence_of_a_setting_names_its_fact() -> None:
    fact = Fact("setting", ("ridge", 0.5))
    assert str(fact) == "in some settings a ridge of 0.5"
    with refuses("numbers"):
        Fact("setting", ("ridge",))


def test_no_sentence_has_the_separator_of_a_list() -> None:
    assert not [kind for kind, sentence in SENTENCES.items() if ";" in sentence]
