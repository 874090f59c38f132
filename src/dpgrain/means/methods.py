"""The methods of ``dg.mean_of_users``, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import later

if TYPE_CHECKING:
    from dpgrain.means.problem import Method

#: Module of each name's ``METHOD``. All are tried where the best is asked for.
METHODS = {
    "clip": "dpgrain.means.clipped",
    "recentred": "dpgrain.means.looks",
    "softcore": "dpgrain.papers.softcore",
    "winsorized": "dpgrain.papers.winsorized.winsorized",
}


def method_of(name: str) -> Method:
    """Return the method of a name.

    Args:
        name: one of :data:`METHODS`.

    >>> [name for name in METHODS if method_of(name).unstated]
    ['clip', 'recentred']
    """
    result: Method = later(METHODS[name]).METHOD
    return result
