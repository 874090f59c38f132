"""The granularity curve as a table: ε for several units of one person, at several δ.

A page prints the table and offers sliders over it, which pick a cell and compute nothing. So every
number that a reader can be shown was asked of the guarantee itself, and was rounded up here.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpgrain._wording import powers
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.report.promises import FALSE_ALARMS, Odds, most_units
from dpgrain.units import OWN_UNIT, Level

# Numbers of units in the table, and its δ; the δ of the promise is always among them.
_UNITS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100)
_DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
# A curve that is composed numerically is asked at fewer points: each takes some hundredths of a second.
_FEW_UNITS = (1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True)
class CurveRow:
    """One line of the table: what is promised to a number of units.

    Args:
        units: the number of units.
        odds: the promise at each δ of the table.
    """

    units: int
    odds: tuple[Odds, ...]


@dataclass(frozen=True)
class CurveTable:
    """The granularity curve of a guarantee, under its own relation.

    Args:
        level: the unit that is counted.
        deltas: the δ of each column, from the largest to the smallest.
        own: the place of the δ of the promise among them.
        rows: the lines, by increasing numbers of units.
    """

    level: Level
    deltas: tuple[float, ...]
    own: int
    rows: tuple[CurveRow, ...]

    @property
    def what(self) -> str:
        """The words for the units that are counted."""
        return {
            "record": "records of one person",
            "element": "elements of one person",
            "user": "users",
        }[self.level]

    @property
    def heads(self) -> list[str]:
        """The δ of each column, as they are printed."""
        return [powers(delta) for delta in self.deltas]

    @property
    def most(self) -> int:
        """The largest number of units."""
        return self.rows[-1].units

    def at(self, units: int, column: int) -> Odds | None:
        """Return what the table says of a number of units: the cell of the next number it has.

        Args:
            units: any number of units.
            column: the place of a δ.

        Returns:
            The promise, which is no better than the guarantee's own; None beyond the last line.
        """
        return next((row.odds[column] for row in self.rows if row.units >= units), None)


def curve_table(guarantee: Guarantee) -> CurveTable:
    """Return the granularity curve of a guarantee as a table.

    Args:
        guarantee: the guarantee.

    No cell is below what the guarantee promises there, nor below the cells of fewer units or of a
    larger δ, so that the next cell holds for whatever lies between two.
    """
    deltas = tuple(sorted({*_DELTAS, guarantee.delta}, reverse=True))
    # A loss with pairs has no closed form.
    some = _FEW_UNITS if guarantee.event.loss(unit=OWN_UNIT[guarantee.level]).pairs else _UNITS
    last = most_units(guarantee, max(some))
    rows: list[CurveRow] = []
    above = [0.0] * len(deltas)
    risk = guarantee.risk(false_alarms=FALSE_ALARMS)
    for units in [*(k for k in some if k < last), last]:
        least = 0.0
        for place, delta in enumerate(deltas):
            epsilon = guarantee.epsilon(delta, units=units)
            least = above[place] = max(epsilon, above[place], least)
        more = guarantee.risk(units=units, false_alarms=FALSE_ALARMS)
        risk = more if more.guess > risk.guess else risk
        cells = zip(above, deltas, strict=True)
        rows.append(CurveRow(units, tuple(Odds(*cell, risk) for cell in cells)))
    return CurveTable(guarantee.level, deltas, deltas.index(guarantee.delta), tuple(rows))
