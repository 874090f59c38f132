"""A guarantee in full, and in one line."""

from __future__ import annotations

from dpgrain.accounting import Contribution, Event, Gaussian
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import Level, Relation


def promise(
    level: Level = "element", relation: Relation = "zero_out", event: Event | None = None
) -> Guarantee:
    event = event or Gaussian(5.0, Contribution(block=level))
    elements = "'topic'" if level == "element" else ""
    return Guarantee(level, elements, relation, 1e-6, event, (Fact("items", (9,)),))
