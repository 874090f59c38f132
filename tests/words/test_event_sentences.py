"""Each type of event has sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from tests.accounting.events.test_base import EVENTS

from dpgrain.accounting import (
    ZCDP,
    ApproximateDP,
    Binomial,
    BoundedRange,
    Compose,
    Event,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    SampledGaussian,
    TruncatedGeometric,
)
from dpgrain.accounting.events import base
from dpgrain.accounting.events.base import Neighbours
from dpgrain.accounting.losses.loss import Loss
from dpgrain.units import Level
from dpgrain.words import event_sentences as events
from dpgrain.words.event_sentences import sentences


def test_every_kind_of_event_has_words() -> None:
    every = base.event_kinds()
    known = {name for name, kind in every.items() if kind.__module__.startswith("dpgrain.")}
    assert known - {"Compose"} == set(events._WORDS)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_told_in_sentences(name: str) -> None:
    event = EVENTS[name]
    told = sentences(event)
    assert len(told) == len(event.parts)
    for sentence in told:
        # A sentence contains neither the name of a class nor a field with its value.
        assert re.match(r"[A-Z0-9].*\.$", sentence)
        assert not re.search(
            r"\b[A-Z][a-z]+[A-Z]\w*\(|\w=|None|_[a-z]", sentence.replace("_out", "")
        )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gaussian-twice", "each of 2 sums, with a standard deviation of 9 clipping bounds"),
        ("gaussian-twice", "At most 3 elements per user counted"),
        ("selection", "noisy user count of at least 45"),
        ("truncated-geometric", "above 60, which noise alone cannot reach"),
        ("users", "each user, with all data at once, was sampled with probability 0.1"),
        ("participation", "each user's data in one cell entered at most 3"),
        ("approximate", "is known: ε = 0.3, δ = 10⁻¹² per element (replace)"),
        ("best", "negative binomial distribution, 10 on average"),
        ("close", "a statistical distance of 10⁻¹³"),
    ],
)
def test_its_public_numbers_are_in_them(name: str, words: str) -> None:
    assert words in " ".join(sentences(EVENTS[name]))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (BoundedRange(0.100049), "costs ε = 0.1001"),
        (ApproximateDP(0.50004, 0.0), "ε = 0.5001"),
        (ZCDP(0.0100049), "0.01001-zCDP"),
        (TruncatedGeometric(0.100049, 60), "costs ε = 0.1001"),
        (Gaussian(4.00097), "deviation of 4 clipping"),
        (Laplace(1234.96), "a scale of 1,234 clipping"),
        (ExponentialMechanism(9.99999, 0.10004), "of scale 9.999, where"),
        (SampledGaussian(1.99999, 0.100049, 3), "with probability 0.1001"),
        (Binomial(10**6, 0.400049, 10, 3, 1e-12), "coins of probability 0.4 to"),
    ],
)
def test_no_number_looks_safer_than_it_is(event: Event, words: str) -> None:
    assert words in sentences(event)[0]


def test_many_events_are_not_all_told() -> None:
    told = sentences(Compose(tuple(Gaussian(4.0 + k) for k in range(60))))
    assert len(told) == 51
    assert told[-1] == "10 more events: see the JSON below."


def test_an_event_of_another_package_tells_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    # A class that derives from Event stays known, which this keeps to the test.
    monkeypatch.setattr(Event, "_kinds", dict(Event._kinds))

    @dataclass(frozen=True)
    class Foreign(Event):
        size: float = 2.5

        @property
        def level(self) -> Level:
            return "user"

        def cost(self, asked: Neighbours) -> Loss:
            return Loss(pure=asked.units * self.size)

    assert sentences(Foreign()) == ["Foreign: size 2.5."]
