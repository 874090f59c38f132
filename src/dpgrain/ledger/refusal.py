"""The sentence with which a ledger refuses a release: what it would take, and what would fit."""

from __future__ import annotations

import math

from dpgrain._wording import powers, rounded_up
from dpgrain.accounting import gaussian_epsilon
from dpgrain.ledger.accounts import DoesNotFitError
from dpgrain.ledger.promise import LastingPromise
from dpgrain.ledger.units import WHOLE, Units


def refusal(ledger: str, promise: LastingPromise, error: DoesNotFitError) -> str:
    """Say why a promise does not hold a release, and what would fit.

    Args:
        ledger: the name of the ledger.
        promise: the promise.
        error: what was to be charged, and what had been.
    """
    taken, left = error.taken, max(WHOLE - _most(error.spent), 0) / WHOLE
    what = f"the ledger {ledger!r} promises {promise}, and does not hold this release"
    needs = "more than all" if _most(taken) > 10 * WHOLE else f"{_percent(taken.share)}"
    return (
        f"{what}: it would take {needs} of it, and of what it meets {_percent(left, up=False)} is "
        f"left; {_fitting(promise, error.spent)}."
    )


def _fitting(promise: LastingPromise, spent: Units) -> str:
    """Say what would fit, as a remedy."""
    room = spent.rest_of(promise.caps)
    # Digits are cut off, so that what is named fits.
    gaussian = gaussian_epsilon(room.leak, room.mu) if room.mu > 0 and room.leak > 0 else 0.0
    if (epsilon := math.floor(1000 * gaussian) / 1000) > 0:
        return f"Gaussian noise of ε = {epsilon:g} at δ = {powers(room.leak)} would fit"
    if (epsilon := math.floor(1000 * room.pure) / 1000) > 0:
        return f"noise of ε = {epsilon:g} at δ = 0 would fit"
    return "nothing fits any more: renew the promise, whose caps then come on top"


def _most(units: Units) -> int:
    return max(units.pure, units.mu, units.leak)


def _percent(part: float, *, up: bool = True) -> str:
    return rounded_up(100 * part, 3) + "%" if up else f"{math.floor(1000 * part) / 10:g}%"
