"""Risks in lines of text."""

from __future__ import annotations

import dpgrain as dg
from dpgrain.accounting import (
    Contribution,
    Event,
    Gaussian,
)
from dpgrain.publishing.facts import Fact
from dpgrain.units import Level, Relation
from dpgrain.words.risk import risk_lines


def of(event: Event, level: Level = "user", relation: Relation = "zero_out") -> dg.Guarantee:
    return dg.Guarantee(level, "", relation, 1e-6, event, (Fact("bins"),))


ELEMENTS = of(Gaussian(4.0, Contribution(cells=12)), "element")


def test_the_risk_with_a_known_seed_is_not_promised() -> None:
    seeded = dg.Guarantee.from_dict({**ELEMENTS.to_dict(), "private": False})
    for text in (*risk_lines(seeded), str(seeded.risk())):
        assert text.startswith("NOT PRIVATE: the random seed is known. With secret randomness: ")
    assert not any("NOT PRIVATE" in line for line in risk_lines(ELEMENTS))


def test_lines_for_a_release_name_the_unit_and_the_whole_user() -> None:
    one, whole = risk_lines(ELEMENTS)
    assert one.startswith("1 element: the best guess from even odds is right in at most 55%")
    assert whole.startswith("1 user: ")
    assert risk_lines(of(Gaussian(4.0), "element"))[1] == "1 user: nothing limits the risk."
    assert len(risk_lines(of(Gaussian(4.0, Contribution("user"))))) == 1
