"""The granularity curve as a table: ε for several units of one person, at several δ.

The sliders of a page select cells of this table and compute nothing, so every ε comes from the
guarantee and is rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpgrain._formatting import powers
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.risk import Risk
from dpgrain.report.promises import FALSE_ALARMS, Odds, most_units
from dpgrain.report.words import UNITS
from dpgrain.units import PLAIN_UNITS, Level

# Numbers of units and δ of the table; the δ of the guarantee is always included.
_UNITS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100)
_DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
# Fewer points for numerically composed curves: each takes some hundredths of a second.
_FEW_UNITS = (1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True)
class CurveRow:
    """One row of the table: the guarantee for a number of units at each δ."""

    units: int
    odds: tuple[Odds, ...]


@dataclass(frozen=True)
class CurveTable:
    """The granularity curve of a guarantee, under its own relation.

    Args:
        level: the counted unit.
        deltas: the δ of each column, the largest first.
        own: the column of the guarantee's own δ.
        rows: the rows, by increasing numbers of units.
    """

    level: Level
    deltas: tuple[float, ...]
    own: int
    rows: tuple[CurveRow, ...]

    @property
    def what(self) -> str:
        """The counted units, as text."""
        return UNITS[self.level]

    @property
    def heads(self) -> list[str]:
        """The δ of each column, as text."""
        return [powers(delta) for delta in self.deltas]

    @property
    def most(self) -> int:
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
