"""Facts of a guarantee for reports: granularities, and the curve as a table.

The sliders of a page select cells of the curve table and compute nothing, so every ε comes from the
guarantee and is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dpgrain._formatting import powers
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.risk import Risk
from dpgrain.units import (
    PLAIN_UNITS,
    RELATIONS,
    Element,
    Level,
    Record,
    Unit,
    User,
)
from dpgrain.words.guarantee_text import UNITS
from dpgrain.words.odds import FALSE_ALARMS, Odds, contributions, covered_units

# Numbers of elements per user in the table of granularities.
ELEMENT_COUNTS = (5, 20, 100)
# Reason why a smaller unit may cost more than the promised one.
_WHY_MORE = (
    "more than {whole}: if only a part of {whole} changes, the rest is clipped again and can change "
    "the sums in another direction"
)
FINENESS: tuple[Level, ...] = ("record", "element", "user")
# Numbers of units and δ of the curve table; the δ of the guarantee is always included.
_UNITS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100)
_DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
# Fewer points for numerically composed curves: each takes some hundredths of a second.
_FEW_UNITS = (1, 2, 5, 10, 20, 50, 100)
_WHOLE = {"record": "a record", "element": "a whole element", "user": "a whole user"}


def smallest_bound(guarantee: Guarantee, name: str) -> int | None:
    """Return the smallest public bound of a name among the contributions to the sums."""
    values = [getattr(contribution, name) for contribution in contributions(guarantee.event)]
    return min((value for value in values if value is not None), default=None)


@dataclass(frozen=True)
class GranularityRow:
    """One row of the table of granularities, with the odds under each relation."""

    name: str
    odds: tuple[Odds, ...]
    is_guaranteed: bool = False
    share: str = ""
    why: str = ""


def granularity_rows(guarantee: Guarantee, shares: Mapping[int, str]) -> tuple[GranularityRow, ...]:
    """List the guarantee of each granularity, at its own δ, the promised one first."""

    def row(name: str, unit: Unit) -> GranularityRow:
        odds = tuple(
            Odds.from_guarantee(guarantee, relation=relation, unit=unit) for relation in RELATIONS
        )
        return GranularityRow(name, odds, unit.level == guarantee.level, why=why(odds, unit))

    def why(odds: tuple[Odds, ...], unit: Unit) -> str:
        place = RELATIONS.index(guarantee.relation)
        part = FINENESS.index(unit.level) < FINENESS.index(guarantee.level)
        if not part or odds[place].epsilon <= guarantee.epsilon():
            return ""
        return _WHY_MORE.format(whole=_WHOLE[guarantee.level])

    rows = [row("one record", Record())]
    if guarantee.elements:
        rows.append(row("one element", Element()))
        known = (smallest_bound(guarantee, name) for name in ("max_elements", "cells"))
        most = min((bound for bound in known if bound is not None), default=math.inf)
        for some in ELEMENT_COUNTS:
            if some < most:
                limited = row(f"a user with at most {some} elements", User(max_elements=some))
                rows.append(replace(limited, is_guaranteed=False, share=shares.get(some, "")))
    rows.append(row("a whole user", User()))
    # A part of a promised unit may cost more, which is explained in its row.
    return tuple(sorted(rows, key=lambda row: not row.is_guaranteed))


@dataclass(frozen=True)
class CurveRow:
    """One row of the table: the guarantee for a number of units at each δ."""

    units: int
    odds: tuple[Odds, ...]


@dataclass(frozen=True)
class CurveTable:
    """The granularity curve of a guarantee, under its own relation."""

    level: Level
    deltas: tuple[float, ...]  # of the columns, the largest first
    own: int  # column of the guarantee's own δ
    rows: tuple[CurveRow, ...]  # by increasing number of units

    @property
    def what(self) -> str:
        """The counted units, as text."""
        return UNITS[self.level]

    @property
    def heads(self) -> list[str]:
        """The δ of each column, as text."""
        return [powers(delta) for delta in self.deltas]

    @property
    def max_units(self) -> int:
        """The largest number of units."""
        return self.rows[-1].units

    def at(self, units: int, column: int) -> Odds | None:
        """Return the cell of the next number of units, an upper bound; None beyond the last."""
        return next((row.odds[column] for row in self.rows if row.units >= units), None)


def curve_table(guarantee: Guarantee) -> CurveTable:
    """Return the granularity curve of a guarantee as a table.

    Formal guarantee: no cell is below the ε of the guarantee, nor below the cells of fewer units or
    of a larger δ. So the next cell also bounds all values between two cells.
    """
    deltas = tuple(sorted({*_DELTAS, guarantee.delta}, reverse=True))
    # A loss with pairs has no closed form.
    some = _FEW_UNITS if guarantee.event.loss(unit=PLAIN_UNITS[guarantee.level]).pairs else _UNITS
    last = covered_units(guarantee, max(some))
    rows: list[CurveRow] = []
    above = [0.0] * len(deltas)
    risk = guarantee.risk(false_alarms=FALSE_ALARMS)
    for units in [*(k for k in some if k < last), last]:
        least = 0.0
        for place, delta in enumerate(deltas):
            epsilon = guarantee.epsilon(delta, units=units)
            least = above[place] = max(epsilon, above[place], least)
        more = guarantee.risk(units=units, false_alarms=FALSE_ALARMS)
        risk = _larger(risk, more)
        cells = zip(above, deltas, strict=True)
        rows.append(CurveRow(units, tuple(Odds(*cell, risk) for cell in cells)))
    return CurveTable(guarantee.level, deltas, deltas.index(guarantee.delta), tuple(rows))


def _larger(risk: Risk, other: Risk) -> Risk:
    """Return the other risk with the larger of both values in each field."""
    names = ("guess", "detection", "posterior", "mu")
    most = {name: max(getattr(risk, name), getattr(other, name)) for name in names}
    larger = replace(other, **most)
    return larger if larger == other else replace(larger, exact=False)
