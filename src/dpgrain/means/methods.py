"""Methods of ``dg.mean_of_users``, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_import

if TYPE_CHECKING:
    from dpgrain.means.problem import Method

#: Module of each name's ``METHOD``. The search for the best method tries all of them.
METHODS = {
    "clip": "dpgrain.means.clipped",
    "recentred": "dpgrain.means.looks",
    "softcore": "dpgrain.papers.softcore",
    "winsorized": "dpgrain.papers.winsorized.winsorized",
}


def method_of(name: str) -> Method:
    """Return the method with a name in :data:`METHODS`.

    >>> [name for name in METHODS if method_of(name).unstated]
    ['clip', 'recentred']
    """
    result: Method = lazy_import(METHODS[name]).METHOD
    return result
