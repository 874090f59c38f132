"""Guarantees in words: in full, in one line, and as filters in titles."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpgrain._formatting import powers, quote_user, rounded_up
from dpgrain.units import Level, Relation

if TYPE_CHECKING:
    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.scope.provenance import StatedProvenance

#: The change between neighbouring tables of each unit and relation.
CHANGED: dict[tuple[Level, Relation], str] = {
    ("record", "zero_out"): "adding or removing one record",
    ("record", "replace"): "replacing one record with another",
    ("element", "zero_out"): "adding or removing all of one user's records in one cell of the "
    "partition by {elements} (the user remains enrolled)",
    ("element", "replace"): "replacing all of one user's records in one cell of the partition by "
    "{elements} with other records in the same cell",
    (
        "user",
        "zero_out",
    ): "adding or removing all of one user's records (the user remains enrolled)",
    ("user", "replace"): "replacing all of one user's records with other records",
}
_AS_GIVEN = (
    " The rows come from a query, frame or array that dpgrain did not build: the guarantee assumes "
    "that no user's data determined the rows of other users, or whether the rows could be read."
)
# Name of ids or elements in an array without a name.
_TOKEN = re.compile("#[0-9a-f]{8}")
_SEEDED = "NOT PRIVATE: the random seed is known. With secret randomness the guarantee would be:"

#: The beginning of a line about noise from a known seed.
SEED_KNOWN = "NOT PRIVATE: the random seed is known. With secret randomness: "
#: Several units of a level, as text.
UNITS: dict[Level, str] = {
    "record": "records of one person",
    "element": "elements of one person",
    "user": "users",
}
#: The change between neighbours under each relation.
CHANGES: dict[Relation, str] = {"zero_out": "removed", "replace": "replaced"}
#: Description of each kind of provenance on a page.
PROVENANCE: dict[StatedProvenance, str] = {
    "table": "a base table, unchanged",
    "checked": "derived from a table by dpgrain, row by row or person by person",
    "as given": (
        "from the caller (unverified), with the assumption that data of one person affect "
        "neither the rows of others nor whether all rows can be read"
    ),
    "": "of unknown origin",
}


def sentence(guarantee: Guarantee) -> str:
    """Return the guarantee in full."""
    # The text of the elements may contain braces, so it is not formatted.
    changed = CHANGED[guarantee.level, guarantee.relation]
    changed = changed.replace("{elements}", elements_text(guarantee.elements) or "elements")
    epsilon, delta = guarantee.epsilon(), powers(guarantee.delta)
    factor = f" = {rounded_up(math.exp(epsilon), 3)}" if epsilon < 13 else ""
    # δ is an additive slack: Gaussian noise exceeds the factor with a larger probability.
    most = f" by at most a factor of e^ε{factor}{f', plus δ = {delta}' if guarantee.delta else ''}"
    if math.isinf(epsilon):
        most = " without a limit at this δ"
    facts = "; ".join(dict.fromkeys(map(str, guarantee.public)))
    public = f" Assumed public and fixed in advance: {facts}." if facts else ""
    ids = user_ids(guarantee.user)
    users = f" Users are identified by {ids}." if ids else ""
    if ids and guarantee.provenance:
        # Rows of a guarantee that was built by hand are unknown.
        users = f"{users[:-1]}; rows without a user are dropped."
    read = "" if guarantee.scope.everything else f" Only these records are read: {guarantee.scope}."
    provenance = _AS_GIVEN if guarantee.provenance == "as given" else ""
    warning = "" if guarantee.private else f"{_SEEDED} "
    charged = "".join(f" Charged on {receipt}." for receipt in guarantee.receipts)
    return (
        f"{warning}{guarantee.level.capitalize()}-level differential privacy with "
        f"ε = {rounded_up(epsilon, 6)} and δ = {delta}: {changed} changes the probability of any "
        f"outcome{most}.{users}{read}{provenance}{public}{charged}"
    )


def share_text(query: Mapping[str, Any] | None) -> str:
    """Return the share of a budget that a stored query requested; empty without one.

    >>> share_text({"parameters": {"share": 0.15}})
    'share 0.15 of the budget'
    """
    share = {} if query is None else query.get("parameters", {})
    return "" if share.get("share") is None else f"share {share['share']:g} of the budget"


def summary(guarantee: Guarantee, query: Mapping[str, Any] | None = None) -> str:
    """Return the guarantee in one line, as printed below a release with this query."""
    external = guarantee.provenance == "as given"
    # Full texts of mappings are too long for one line.
    brief = "" if guarantee.partition is None else guarantee.partition.brief
    ids = user_ids(guarantee.user)
    users = (
        f"users {'by ' * ids.startswith('the ids')}{ids}"
        if ids
        else "each row is one user" * external
    )
    facts = (
        share_text(query),
        brief or elements_text(guarantee.elements),
        users if guarantee.level != "record" else "",
        guarantee.relation,
        "external rows, unverified" if external else "",
        *(f"only {each}" for each in filters(guarantee)),
        *(f"line {each.number:,} of ledger {each.name!r}" for each in guarantee.receipts),
    )
    return (
        f"{'' if guarantee.private else SEED_KNOWN}ε = {rounded_up(guarantee.epsilon(), 6)}, "
        f"δ = {powers(guarantee.delta)} per {guarantee.level} ({'; '.join(filter(None, facts))})."
    )


def filters(guarantee: Guarantee) -> tuple[str, ...]:
    """Return the conditions of all rows of a release: its region, and filters."""
    region = () if guarantee.scope.everything else (f"rows with {guarantee.scope}",)
    facts = [fact for fact in guarantee.public if fact.kind == "rows-where"]
    return (*region, *(f"rows where {fact.numbers[0]}" for fact in facts))


def user_ids(user: str) -> str:
    """Describe the user ids: a column in quotes, or unnamed ids."""
    if _TOKEN.fullmatch(user):
        return f"the ids passed ({user})"
    # Guarantees of version 0.1 contain the description.
    return user if not user or user.startswith("the ids passed (#") else quote_user(user)


def elements_text(elements: str) -> str:
    """Describe the partition into elements: as stated, or unnamed elements."""
    return f"the elements passed ({elements})" if _TOKEN.fullmatch(elements) else elements
