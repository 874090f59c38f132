"""The origin of rows: a closed list, of which every guarantee states one."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeVar

#: A table as it stands; what this library makes of one, row by row or person by person; or rows as
#: the caller made them, of which it is assumed that nobody's decide over those of others.
Provenance: TypeAlias = Literal["table", "checked", "as given"]
#: What a guarantee states; nothing in those of version 0.1, and where no rows come together.
StatedProvenance: TypeAlias = Literal["", Provenance]
Kind = TypeVar("Kind", Provenance, StatedProvenance)
# Kinds of provenance, from what needs no assumption to what needs one.
_BY_ASSUMPTION: tuple[StatedProvenance, ...] = ("table", "checked", "", "as given")
#: Words on a page for each kind of provenance.
DESCRIPTIONS: dict[StatedProvenance, str] = {
    "table": "a base table, unchanged",
    "checked": "derived from a table by dpgrain, row by row or person by person",
    "as given": (
        "from the caller (unverified), with the assumption that data of one person affect "
        "neither the rows of others nor whether all rows can be read"
    ),
    "": "of unknown origin",
}


def after_derivation(provenance: Provenance) -> Provenance:
    """Return the provenance of rows made here of others, each of one person's alone.

    >>> after_derivation("table"), after_derivation("as given")
    ('checked', 'as given')
    """
    return "checked" if provenance == "table" else provenance


def combine(*parts: Kind) -> Kind:
    """Return the provenance of several releases' rows: the one with the most assumptions.

    >>> combine("table", "checked"), combine("table", ""), combine("as given", "")
    ('checked', '', 'as given')
    """
    return max(parts, key=_BY_ASSUMPTION.index)
