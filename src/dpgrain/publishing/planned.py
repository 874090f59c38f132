"""Plans of releases, made before anything is read."""

from __future__ import annotations

from dataclasses import dataclass

from dpgrain.publishing.expected import Expected
from dpgrain.publishing.guarantee import Guarantee


@dataclass(frozen=True)
class Planned:
    """The plan of a query: what it will draw, and the error to expect, from public numbers alone.

    Args:
        guarantee: the guarantee; each part of its event is a ticket for one draw.
        n_users: the stated size of the roster, if it was stated.
        cells: the public number of cells, where it is known, else 1.
        expected: the error to expect; None where public numbers do not give it.
        care: what will probably not come as it is asked for, in sentences; shown before the charge.
    """

    guarantee: Guarantee
    n_users: int | None = None
    cells: int = 1
    expected: Expected | None = None
    care: tuple[str, ...] = ()
