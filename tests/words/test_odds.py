"""Odds, and the guarantee in four sentences."""

from __future__ import annotations

import dpgrain as dg
from dpgrain.accounting import (
    Contribution,
    Event,
    Gaussian,
)
from dpgrain.publishing.facts import Fact
from dpgrain.units import Level, Relation


def of(event: Event, level: Level = "user", relation: Relation = "zero_out") -> dg.Guarantee:
    return dg.Guarantee(level, "", relation, 1e-6, event, (Fact("bins"),))


ELEMENTS = of(Gaussian(4.0, Contribution(cells=12)), "element")
