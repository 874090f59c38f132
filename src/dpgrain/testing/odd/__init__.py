"""Odd tables: every type of a table, odd cells of each, and every way to give one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
    from dpgrain.testing.odd.cells import UNSTATED, Cell, Kind, Rows, System
    from dpgrain.testing.odd.objects import Hostile, Loud, objects
    from dpgrain.testing.odd.sql_types import spark_system
    from dpgrain.testing.odd.systems import SYSTEMS
    from dpgrain.testing.odd.uses import Outcome, Use, uses

__all__ = [
    "SYSTEMS",
    "UNSTATED",
    "Cell",
    "Hostile",
    "Kind",
    "Loud",
    "Outcome",
    "Rows",
    "System",
    "Use",
    "objects",
    "spark_system",
    "uses",
]

face(
    __name__,
    {
        "dpgrain.testing.odd.cells": ("UNSTATED", "Cell", "Kind", "Rows", "System"),
        "dpgrain.testing.odd.objects": ("Hostile", "Loud", "objects"),
        "dpgrain.testing.odd.sql_types": ("spark_system",),
        "dpgrain.testing.odd.systems": ("SYSTEMS",),
        "dpgrain.testing.odd.uses": ("Outcome", "Use", "uses"),
    },
)
