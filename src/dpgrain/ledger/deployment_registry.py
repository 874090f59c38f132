"""Export a ledger as an entry of the public registry of differential privacy deployments.

The entry follows the registry of OpenDP, Harvard and Oblivious (github.com/opendp/
deployments-registry-data). It contains promises, mechanisms and counts of releases; a ledger stores
neither rows nor paths nor hashes of data. Fields that only people know are YAML comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpgrain import __version__
from dpgrain._formatting import powers, quantity, rounded_up
from dpgrain.accounting import Event
from dpgrain.ledger.entries import LedgerEntry
from dpgrain.ledger.lasting_promise import LastingPromise
from dpgrain.ledger.ledger import Ledger
from dpgrain.ledger.renewals import CONDITION, RenewedPromise
from dpgrain.words.guarantee_text import CHANGED, PROVENANCE
from dpgrain.words.ledger_text import seed_note

# Events of protocols whose devices add the noise.
_OF_DEVICES = frozenset({"Binomial", "Poisson"})
_HEAD = """\
# Entry for the registry of differential privacy deployments, written by dpgrain from a ledger.
# Commented fields and values marked "fill in" are known to people only. Check all of it.
"""


@dataclass(frozen=True)
class _ForPeople:
    """A field that no ledger records; `value` is a placeholder if the registry requires one."""

    hint: str
    value: Any = None


def registry_entry(ledger: Ledger, *, decided_by: str = "") -> dict[str, Any]:
    """Return the entry of a ledger in the public registry of deployments, as JSON.

    ε and δ cover the first promise in force and all promises that it renews, rounded up. They are
    missing if a release had a seed, because nothing is promised then.
    """
    plain: dict[str, Any] = _plain(_fields(ledger, decided_by))
    return plain


def registry_yaml(ledger: Ledger, *, decided_by: str = "") -> str:
    """Return the registry entry as YAML, with a comment for each missing field."""
    return _HEAD + "".join(f"{line}\n" for line in _lines(_fields(ledger, decided_by)))


def _fields(ledger: Ledger, decided_by: str) -> dict[str, Any]:
    """Return the fields in the order of the registry."""
    entries = ledger.entries
    released = [entry for entry in entries if entry.guarantees]
    guarantees = [one for entry in released for one in entry.guarantees]
    names = sorted({name for one in guarantees for name in _mechanisms(one.event)})
    date = "" if not released else released[0].at[:10]
    curator = _ForPeople("name of the publisher", "")
    return {
        "url_slug": _slug(ledger.name),
        "status": "Draft",
        "tier": 2,
        "deployment": {
            "basic": {
                "name": ledger.name,
                "data_curators": [
                    {
                        "data_curator_name": decided_by or curator,
                        "data_curator_type": _ForPeople(
                            "Government, Industry or Nonprofit", "Industry"
                        ),
                    }
                ],
                "intended_use": _ForPeople("what the published results are for", ""),
                "data_product_type": _ForPeople("or another type", "Summary statistics"),
                "data_product_region": _ForPeople("region of the people in the data", ""),
                "description": _ForPeople("what is published", ""),
                "publication_date": _ForPeople(
                    "day of the first charge (UTC); check the day of publication"
                    if date
                    else "nothing was charged yet",
                    date or "1900-01-01",
                ),
                "data_product_sector": _ForPeople("Technology, Healthcare, Government, …"),
            },
            "dp_variant": {
                "variant_name": _variant(ledger),
                "data_domain": _ForPeople("data sets that the guarantee covers"),
                "unprotected_quantities": _ForPeople("facts that each guarantee lists as public"),
            },
            "privacy_loss": _privacy_loss(ledger, entries),
            "deployment_model": {
                "model_name": _model(names),
                "model_name_details": _ForPeople("if the model needs an explanation"),
                "actors": _ForPeople("people and systems with access to rows or results"),
                "release_type": (
                    "Many releases" if len(guarantees) > 1 else _ForPeople("One or Many releases")
                ),
                "release_type_details": f"{quantity(len(guarantees), 'release')} charged so far.",
                "data_source_type": _ForPeople("Static or Dynamic"),
                "access_type": _ForPeople("Interactive or Non-interactive"),
            },
            "accounting": {
                "post_processing": _ForPeople("steps after the noise, such as rounding"),
                "composition": _composition(ledger),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _ForPeople(
                    "steps before the noise, and whether they were charged"
                ),
                "mechanisms": _implementation(names),
                "justification": _ForPeople("reasons for the unit, ε and δ"),
            },
            "administrative": {
                "sources": _ForPeople("links to the results and their documentation"),
                "registry_authors": [_ForPeople("author of this entry", "")],
            },
        },
    }


def _privacy_loss(ledger: Ledger, entries: Iterable[LedgerEntry]) -> dict[str, Any]:
    """Return the unit and parameters of the first promise, and a description of all promises."""
    first, *_ = promises = list(ledger.promises.items())
    seeded = seed_note(entries)
    assumed = sorted(
        {one.provenance for entry in entries for one in entry.guarantees} & {"as given"}
    )
    return {
        "privacy_unit": _unit(first[1]),
        "privacy_unit_details": "\n".join(
            [
                *(f"- Promise {number}: {_neighbours(one)}" for number, one in promises),
                *(f"- Rows of some releases are {PROVENANCE[one]}." for one in assumed),
            ]
        ),
        "privacy_parameters": (
            _ForPeople("none, because a release had a seed; see the details")
            if seeded
            else _parameters(ledger.total(first[0]))
        ),
        "privacy_parameters_details": "\n".join(
            [
                *(f"- {_strength(ledger, number, one)}" for number, one in promises),
                "- Each promise covers all releases charged to this ledger together, and nothing "
                "published elsewhere.",
                *([f"- {seeded}"] if seeded else []),
            ]
        ),
    }


def _parameters(total: RenewedPromise) -> dict[str, float]:
    """Return ε and δ, rounded up to four digits; δ = 0 is left out."""
    values = {"epsilon": total.epsilon, "delta": total.delta}
    return {
        name: float(rounded_up(value).replace(",", "")) for name, value in values.items() if value
    }


def _strength(ledger: Ledger, number: int, promise: LastingPromise) -> str:
    """Describe ε and δ of one promise and all that it renews together."""
    total = ledger.total(number)
    renewed = f" (with the promises that it renews, {CONDITION})" if total.renewed else ""
    return (
        f"Promise {number}: {_unit(promise)}, ε = {rounded_up(total.epsilon)}, "
        f"δ = {powers(total.delta)}{renewed}."
    )


def _unit(promise: LastingPromise) -> str:
    """Name the privacy unit of a promise, such as `User-level`."""
    cells = "" if promise.partition is None else f" (user and cell by {promise.partition})"
    window = "" if promise.window is None else f", in {promise.window}"
    return f"{promise.level.capitalize()}-level{cells}{window}"


def _neighbours(promise: LastingPromise) -> str:
    """Define the neighbouring data sets of a promise."""
    change = CHANGED[promise.level, promise.relation].format(elements=promise.partition)
    window = "" if promise.window is None else f" in {promise.window}"
    return f"data sets are neighbours if they differ{window} by {change}."


def _variant(ledger: Ledger) -> str:
    """Name the variant of the first promise, with all that it renews."""
    first = next(iter(ledger.promises))
    return "Approximate DP" if ledger.total(first).delta else "Pure DP"


def _model(mechanisms: Iterable[str]) -> str | _ForPeople:
    """Name the deployment model that the charged mechanisms imply."""
    of_devices = {name in _OF_DEVICES for name in mechanisms}
    if len(of_devices) != 1:
        return "Varies" if of_devices else _ForPeople("Central or Shuffle")
    return "Shuffle" if True in of_devices else "Central"


def _composition(ledger: Ledger) -> str:
    """Describe the accounting of the promises in force."""
    planned = any(promise.plan for promise in ledger.promises.values())
    return (
        "Adaptive composition by a privacy filter. Each release is charged its Gaussian, pure and "
        "δ losses before it is made, and refused if it would exceed the fixed limits of the promise."
        + (" Releases that were planned with the promise are composed numerically." * planned)
    )


def _implementation(mechanisms: Iterable[str]) -> str:
    """List the charged mechanisms and the library."""
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name) for name in mechanisms]
    listed = f"- Events charged: {', '.join(words)}." if words else "- No release charged yet."
    return f"{listed}\n- Library: dpgrain {__version__}."


def _mechanisms(event: Event) -> Iterator[str]:
    """Yield the accountant's names of all events inside one."""
    inner = getattr(event, "events", ())
    for one in (inner,) if isinstance(inner, Event) else inner:
        yield from _mechanisms(one)
    if not inner:
        yield type(event).__name__


def _slug(name: str) -> str:
    """Return the lower-case ASCII letters and digits of a name, with hyphens between words."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower())) or "deployment"


# ------------------------------------------------------------------------------------------ YAML


def _plain(value: Any) -> Any:
    """Return the fields that have a value."""
    if isinstance(value, Mapping):
        values = {key: _plain(one) for key, one in value.items()}
        return {key: one for key, one in values.items() if one is not None}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.value if isinstance(value, _ForPeople) else value


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    """Write fields or a list in block style."""
    named = isinstance(value, Mapping)
    pairs = value.items() if named else (("-", one) for one in value)
    for key, one in pairs:
        head = f"{indent}{key}:" if named else f"{indent}-"
        hint = one.hint if isinstance(one, _ForPeople) else ""
        if isinstance(one, _ForPeople) and one.value is None:
            yield f"{indent}# {key}: {hint}"
        elif isinstance(one, Mapping | list):
            yield head
            yield from _lines(one, f"{indent}  ")
        else:
            scalar = _scalar(_plain(one), f"{indent}  ")
            yield f"{head} {scalar}" + (f"  # fill in: {hint}" if hint else "")


def _scalar(value: str | float, indent: str) -> str:
    """Write a number, or a text in double quotes; several lines of printable text as a block."""
    if not isinstance(value, str):
        # YAML 1.1 reads a number with an exponent as text unless it has a point.
        return re.sub(r"^(-?\d+)e", r"\1.0e", repr(value))
    lines = value.split("\n")
    if len(lines) > 1 and all(line.isprintable() and line[:1] not in {"", " "} for line in lines):
        return "|-\n" + "\n".join(f"{indent}{line}" for line in lines)
    return '"' + "".join(map(_character, value)) + '"'


def _character(character: str) -> str:
    """Write one character inside double quotes; escape quotes and characters that are not printable."""
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"
