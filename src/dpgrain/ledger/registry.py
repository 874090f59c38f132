"""An entry for a public registry of deployments of differential privacy, made from a ledger."""

from __future__ import annotations

from typing import Any

from dpgrain import __version__
from dpgrain.ledger.ledger import Ledger
from dpgrain.ledger.promise import LastingPromise


def registry_entry(ledger: Ledger, *, decided_by: str = "") -> dict[str, Any]:
    """Return what public registries of deployments ask, as plain JSON values.

    Args:
        ledger: the ledger.
        decided_by: who decides on the promises and answers for them; no ledger records it.

    Returns:
        Unit, relation, ε and δ, accountant, mechanisms and window of each promise; who decides; how
        much was released when. What a ledger does not know, such as the use that is intended, is
        None. Source: Nanayakkara, Ghazi and Vadhan (arXiv:2509.13509, 2025) say what registries ask.
    """
    entries = ledger.entries
    released = [entry for entry in entries if entry.guarantees]
    guarantees = [one for entry in released for one in entry.guarantees]
    mechanisms = {type(part).__name__ for one in guarantees for part in one.event.parts}
    last = entries[-1].receipt
    return {
        "deployment": ledger.name,
        "data_curator": decided_by or None,
        "intended_use": None,
        "model": "central",
        "promises": [
            {"line": number, **_promised(promise)} for number, promise in ledger.promises.items()
        ],
        "mechanisms": sorted(mechanisms),
        "releases": len(guarantees),
        "first_release": released[0].at if released else None,
        "last_release": released[-1].at if released else None,
        "seeded": any(not one.private for one in guarantees),
        "implementation": f"dpgrain {__version__}",
        "ledger": {"id": ledger.id, "last_line": last.number, "hash": last.hash},
    }


def _promised(promise: LastingPromise) -> dict[str, Any]:
    """Return one promise in the words of registries."""
    planned = "; releases planned by then composed numerically beside them" if promise.plan else ""
    return {
        "dp_flavor": "approximate" if promise.delta else "pure",
        "privacy_unit": promise.level,
        "partition": None if promise.partition is None else str(promise.partition),
        "window": None if promise.window is None else str(promise.window),
        "neighbouring_relation": promise.relation,
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "accountant": (
            "privacy filter: prices in Gaussian, pure and leaked loss against caps that were fixed "
            f"before the first release{planned}"
        ),
        "sentence": str(promise),
    }
