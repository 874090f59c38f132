"""The sentences of a ledger: why it refuses a release, what is left of a promise, what would fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dpgrain._formatting import percent, powers, rounded_down, rounded_up
from dpgrain.accounting import gaussian_epsilon
from dpgrain.ledger.accounts import Charged, DoesNotFitError
from dpgrain.ledger.entries import Entry, seeds_in_words
from dpgrain.ledger.promise import LastingPromise
from dpgrain.ledger.units import WHOLE, Units
from dpgrain.publishing.caps import Caps, remaining_delta
from dpgrain.scope.regions import LabelSet

# Times a promise from which on a price is reported as "more than N times" it.
_MANY_TIMES = 100


def refusal(
    ledger: str, promise: LastingPromise, error: DoesNotFitError, entries: Sequence[Entry] = ()
) -> str:
    """Say why a promise does not hold a release, and what would fit.

    Args:
        ledger: the name of the ledger.
        promise: the promise.
        error: what was to be charged, and what had been.
        entries: the lines of the ledger.
    """
    what = f"the ledger {ledger!r} (which promises {promise}) has no room for this release"
    if scarce := _names(promise, error):
        return f"{what}: {scarce}.{_after(seeds_in_words(entries))}"
    left = max(WHOLE - _most(error.spent), 0) / WHOLE
    wanted = error.charged.price.share_of(promise.caps)
    needs = percent(wanted) if wanted <= _MANY_TIMES else f"more than {_MANY_TIMES} times all"
    return (
        f"{what}: it needs {needs} of the promise, and {percent(left, up=False)} is left "
        "for the affected units; "
        f"{_fitting(promise, error.spent)}{_more_noise(promise, error)}"
        f"{_all_of_time(promise, error.charged) or _read_otherwise(error.charged, entries)}."
        f"{_after(seeds_in_words(entries))}"
    )


def _after(sentence: str) -> str:
    """Return a sentence that follows another one, if there is one."""
    return f" {sentence}" if sentence else ""


def _all_of_time(promise: LastingPromise, charged: Charged) -> str:
    """Say that days are labels, which lie in no stretch of time; nothing where they are not."""
    window = promise.window
    side = None if window is None else charged.region.side(window.column)
    if side is None or not isinstance(side.values, LabelSet) or not side.values.labels:
        return ""
    return (
        f"; {side.column!r} is read as {side.read_as}, not as dates or timestamps, so all "
        "of time is charged: declare its type"
    )


def _read_otherwise(charged: Charged, entries: Iterable[Entry]) -> str:
    """Say which line has read a column of the region as another type; nothing if none has."""
    for entry in entries:
        for earlier in entry.charged:
            if earlier.promise != charged.promise:
                continue
            for side in charged.region.sides:
                other = earlier.region.side(side.column)
                if other is not None and not side.comparable(other):
                    return (
                        f"; line {entry.number:,} reads {side.column!r} as "
                        f"{other.read_as}, and this release as {side.read_as}, so their "
                        "regions cannot be distinguished: declare one type for all"
                    )
    return ""


def _names(promise: LastingPromise, error: DoesNotFitError) -> str:
    """Say that δ for names is what runs short; nothing where something else does, too."""
    price, room = error.charged.price, error.spent.rest_of(promise.caps)
    left = remaining_delta(room.leak)
    if not room.leak < price.leak < math.inf or price.mu > room.mu or price.pure > room.pure:
        return ""
    return (
        f"names below a threshold, or tails of its noise, need δ = {powers(price.leak)}, and "
        f"{left} is left of the {powers(promise.caps.leak)} that the ledger reserves for "
        "them: pass the list of items, request a smaller δ, or create a ledger with a larger "
        "leak="
    )


def left_in_words(promise: LastingPromise, spent: Units) -> str:
    """Say what a promise has held, which part of it is scarce, and what would fit.

    Args:
        promise: the promise.
        spent: what the fullest account has been charged.
    """
    room, parts = spent.rest_of(promise.caps), []
    used = Caps(room.rest_of(promise.caps), promise.whole.planned).epsilon(promise.delta)
    if spent.leak > 0:
        parts.append(
            f"{remaining_delta(room.leak)} of the δ = {powers(promise.caps.leak)} for names below a "
            "threshold (leak)"
        )
    if spent.pure > 0:
        parts.append(f"ε = {rounded_down(room.pure, 3)} for noise at δ = 0 (pure)")
    return (
        f"ε = {rounded_up(min(used, promise.epsilon), 3)} of {promise.epsilon:g} spent at δ "
        f"= {powers(promise.delta)}; "
        f"{_fitting(promise, spent)}{'; left: ' if parts else ''}{', '.join(parts)}"
    )


def _more_noise(promise: LastingPromise, error: DoesNotFitError) -> str:
    """Say with how much more noise the release would fit; nothing where noise alone does not help."""
    price, room = error.charged.price, error.spent.rest_of(promise.caps)
    if price.pure > 0 or price.leak > room.leak or not 0 < room.mu < price.mu < math.inf:
        return ""
    times = rounded_up(price.mu / room.mu, 2)
    return (
        f"; this release would fit with about {times} times the noise, and an ε smaller by "
        "this factor"
    )


def _fitting(promise: LastingPromise, spent: Units) -> str:
    """Say what would fit, as a remedy."""
    room = spent.rest_of(promise.caps)
    # Digits are cut off, so that what is named fits.
    gaussian = gaussian_epsilon(room.leak, room.mu) if room.mu > 0 and room.leak > 0 else 0.0
    if (epsilon := math.floor(1000 * gaussian) / 1000) > 0:
        return (
            f"Gaussian noise with ε ≤ {epsilon:g} at δ = {remaining_delta(room.leak)} for this unit "
            "would fit"
        )
    if (epsilon := math.floor(1000 * room.pure) / 1000) > 0:
        return f"noise with ε ≤ {epsilon:g} at δ = 0 for this unit would fit"
    return "the promise is exhausted: renew it, which adds its budget again"


def _most(units: Units) -> int:
    return max(units.pure, units.mu, units.leak)
