"""The origin of rows: a closed list of which every guarantee states one."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeVar

#: An unchanged table; rows derived from a table by dpgrain, per row or per person; or rows of the
#: caller, with the assumption that one person's data do not affect other persons' rows.
Provenance: TypeAlias = Literal["table", "checked", "as given"]
#: Provenance in a guarantee; empty in version 0.1, and if there are no joint rows.
StatedProvenance: TypeAlias = Literal["", Provenance]
Kind = TypeVar("Kind", Provenance, StatedProvenance)
# Kinds of provenance by increasing assumptions.
_BY_ASSUMPTION: tuple[StatedProvenance, ...] = ("table", "checked", "", "as given")


def after_derivation(provenance: Provenance) -> Provenance:
    """Return the provenance of rows derived from the rows of one person each."""
    return "checked" if provenance == "table" else provenance


def combine(*parts: Kind) -> Kind:
    """Return the joint provenance of releases: the one with the strongest assumption."""
    return max(parts, key=_BY_ASSUMPTION.index)
