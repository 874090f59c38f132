"""An ε near the largest at which a refused release fits into the open ledger, found by trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpgrain._formatting import rounded_down
from dpgrain.errors import ParameterError, RefusedError
from dpgrain.publishing.budget import open_budget
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.process import OpenLedger, open_ledger

# The search begins at this share of ε and halves the logarithm of the rest this many times.
_LEAST_SHARE, _HALVINGS = 1e-3, 9
# Significant digits of the result.
_DIGITS = 3

#: Function that plans the same releases at another ε; nothing is read.
PlanAt = Callable[[float], Sequence[Guarantee]]


def with_fitting_epsilon(
    error: RefusedError, epsilon: float, plan: PlanAt, *, where: str = ""
) -> RefusedError:
    """Return a refusal that states an ε that fits; unchanged if no ledger refused ε.

    Inside a budget it is also unchanged, because a trial only charges the ledger.
    """
    ledger = open_ledger()
    if ledger is None or open_budget() is not None or _fits(ledger, plan, epsilon):
        return error
    most = largest_epsilon(epsilon, lambda trial: _fits(ledger, plan, trial))
    if most is None:
        return error
    text = f"{error} With epsilon = {most}{where} and all else unchanged, this release would fit."
    return RefusedError(text, name=error.name, spent=error.spent)


def largest_epsilon(epsilon: float, fits: Callable[[float], bool]) -> str | None:
    """Return an ε that fits, near the largest below a refused one; None if none is found.

    >>> largest_epsilon(1.0, lambda trial: trial <= 0.43217), largest_epsilon(1.0, lambda _: False)
    ('0.427', None)
    """
    low, high = epsilon * _LEAST_SHARE, epsilon
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    # The rounded number is tried again, because it is what the caller passes.
    most = rounded_down(low, _DIGITS)
    return most if fits(float(most.replace(",", ""))) else None


def _fits(ledger: OpenLedger, plan: PlanAt, epsilon: float) -> bool:
    """Return whether the releases at an ε fit into every promise now."""
    try:
        ledger.rehearse(*plan(epsilon))
    except ParameterError:
        return False
    return True
