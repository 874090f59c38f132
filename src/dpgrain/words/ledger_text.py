"""Words of a ledger: errors for refused releases, and the remaining budget of a promise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpgrain._formatting import percent, powers, remaining_delta, rounded_down, rounded_up
from dpgrain.accounting import gaussian_epsilon
from dpgrain.scope.regions import LabelSet

if TYPE_CHECKING:
    from dpgrain.ledger.accounts import BudgetExceededError, Charged
    from dpgrain.ledger.entries import LedgerEntry
    from dpgrain.ledger.lasting_promise import LastingPromise
    from dpgrain.ledger.price_units import Units
    from dpgrain.ledger.renewals import RenewedPromise
    from dpgrain.publishing.prices import Price
    from dpgrain.scope.regions import Region

# Prices above this multiple of a promise are not printed exactly.
_MANY_TIMES = 100
#: Label of a release with predictable noise.
SEEDED = "NOT PRIVATE: seeded noise"
#: Remedy if a ledger has no room for the same releases again.
TOO_FULL = (
    "renew the promise that has no room (dpgrain ledger renew), or create a ledger with a larger "
    "one"
)
# Maximum number of lines to list.
_NAMED = 5


def refusal_text(
    ledger: str,
    promise: LastingPromise,
    error: BudgetExceededError,
    entries: Sequence[LedgerEntry] = (),
    *,
    without_delta: bool = False,
) -> str:
    """Return the error of a refused release: its cost, the remaining budget, and remedies."""
    refused = (
        f"the ledger {ledger!r} (promise on line {error.charged.promise:,}: {promise}) has no room for "
        "this release"
    )
    if shortage := _selection_shortage(promise, error):
        reasons = [f"{refused}: {shortage}"]
    else:
        reasons = [
            f"{refused}: {_cost(promise, error)}",
            _fitting(promise, error.spent),
            _more_noise(promise, error),
            _gaussian_noise(promise, error) if without_delta else "",
            _every_window(promise, error.charged) or _read_otherwise(error.charged, entries),
        ]
    return f"{_sentences(reasons)} {seed_note(entries)}".rstrip()


def _sentences(texts: Iterable[str]) -> str:
    """Join the texts that are not empty as sentences."""
    return " ".join(f"{text}." for text in texts if text)


def _cost(promise: LastingPromise, error: BudgetExceededError) -> str:
    """Describe the cost of a release, and the remaining share of the promise."""
    left = max(1.0 - error.spent.share, 0.0)
    cost = error.charged.price.share_of(promise.caps)
    needs = f"{percent(cost)} of" if cost <= _MANY_TIMES else f"more than {_MANY_TIMES} times"
    return (
        f"it needs {needs} the promise, and {percent(left, up=False)} remains for the affected "
        f"units{_where(error.region)}"
    )


def _where(region: Region) -> str:
    """Name the fullest account; empty if it has all records."""
    return "" if region.everything else f" (the fullest: {region})"


def _gaussian_noise(promise: LastingPromise, error: BudgetExceededError) -> str:
    """Return the advice to use Gaussian noise; empty if the ledger has no δ for it."""
    if error.spent.remaining(promise.caps).leak <= 0:
        return ""
    return "Pass a δ, because Gaussian noise costs less"


def _every_window(promise: LastingPromise, charged: Charged) -> str:
    """Explain why text labels in the window's column charge every window; empty otherwise."""
    window = promise.window
    side = None if window is None else charged.region.side(window.column)
    if side is None or not isinstance(side.values, LabelSet) or not side.values.labels:
        return ""
    return (
        f"{side.column!r} is read as {side.read_as}, not as dates or timestamps, so every window "
        "is charged: declare its type"
    )


def _read_otherwise(charged: Charged, entries: Iterable[LedgerEntry]) -> str:
    """Return the line that read a column of the region as another type; empty if none did."""
    for entry in entries:
        for earlier in entry.charged:
            if earlier.promise != charged.promise:
                continue
            for side in charged.region.sides:
                other = earlier.region.side(side.column)
                if other is not None and not side.comparable(other):
                    return (
                        f"Line {entry.number:,} reads {side.column!r} as {other.read_as}, and "
                        f"this release as {side.read_as}, so the two regions are charged as if "
                        f"they overlapped{_one_reading(side.read_as, other.read_as)}"
                    )
    return ""


def _one_reading(one: str, other: str) -> str:
    """Return how to read a column in the same way in all releases."""
    kinds = {text.partition(" written like ")[0] for text in (one, other)}
    if len(kinds) == 1:
        return (
            ", because one text can be another date, or none, in each format: store dates as "
            "2025-12-31 in all tables"
        )
    return ": declare one type for all releases"


def _selection_shortage(promise: LastingPromise, error: BudgetExceededError) -> str:
    """Describe a shortage of delta mass; empty if anything else is also short."""
    price, room = error.charged.price, error.spent.remaining(promise.caps)
    if not room.leak < price.leak < math.inf or price.mu > room.mu or price.pure > room.pure:
        return ""
    return (
        f"a part of the release's δ, {powers(price.leak)}, is for names that are not listed in "
        f"advance (or for truncated noise), and {remaining_delta(room.leak)} of δ = "
        f"{powers(promise.caps.leak)} is left in the ledger for such parts;"
        f"{_smaller_delta(price.leak, room.leak)} list the names (domain=), or create a ledger "
        "with a larger leak="
    )


def _smaller_delta(needed: float, left: float) -> str:
    """Return the advice to request a smaller δ, if some is left."""
    if left <= 0:
        return ""
    return f" divide the δ of this release by at least {rounded_up(needed / left, 2)},"


def remaining_text(total: RenewedPromise) -> str:
    """Describe the spent ε of a promise, a release that would fit, and other remaining parts."""
    line = max(total.promises)
    promise, spent = total.promises[line], total.spent[line]
    room, parts = spent.remaining(promise.caps), []
    if spent.leak > 0:
        parts.append(
            f"δ = {remaining_delta(room.leak)} of {powers(promise.caps.leak)} for names that are not "
            "listed in advance (leak)"
        )
    if spent.pure > 0:
        parts.append(f"ε = {rounded_down(room.pure, 3)} for releases with δ = 0 (pure)")
    sentences = (
        f"ε = {rounded_up(total.spent_epsilon, 3)} of {rounded_up(total.epsilon)} spent at δ = "
        f"{powers(total.delta)}{_with_renewed(total)}",
        _fitting(promise, spent),
        f"Also remaining: {', '.join(parts)}" if parts else "",
    )
    return _sentences(sentences)


def compared_shares(left: float, needed: float) -> tuple[str, str]:
    """Format a remaining share, rounded down, and a needed one, rounded up, so that they compare.

    >>> compared_shares(0.9688, 0.9687), compared_shares(0.5, 0.25), compared_shares(0.1, 0.1001)
    (('96.88%', '96.87%'), ('50%', '25%'), ('10%', '10.1%'))
    """
    remaining, taken = percent(left, up=False), percent(needed)
    for digits in range(2, 7):
        if (needed <= left) == (float(taken[:-1].replace(",", "")) <= float(remaining[:-1])):
            return remaining, taken
        scale = 10**digits
        remaining = f"{math.floor(100 * scale * left) / scale:.9g}%"
        taken = f"{math.ceil(100 * scale * needed) / scale:.9g}%"
    # They differ by less than the tolerance of sums.
    return remaining, remaining


def _with_renewed(total: RenewedPromise) -> str:
    """Name the renewed promises that a total includes; empty without any."""
    lines = " and ".join(map(str, total.renewed))
    return f", together with line {lines}, which it renews" if lines else ""


def _more_noise(promise: LastingPromise, error: BudgetExceededError) -> str:
    """Return the required amount of noise; empty if more noise does not suffice."""
    price, room = error.charged.price, error.spent.remaining(promise.caps)
    if price.pure > 0 or price.leak > room.leak or not 0 < room.mu < price.mu < math.inf:
        return ""
    times = rounded_up(price.mu / room.mu, 2)
    return f"This release would fit with about {times} times the noise"


def _fitting(promise: LastingPromise, spent: Units) -> str:
    """Return the largest release that would fit, or the advice to renew the promise."""
    room, unit = _release_room(promise, spent), _unit(promise)
    # ε is rounded down, so that a release with this ε fits.
    gaussian = gaussian_epsilon(room.leak, room.mu) if room.mu > 0 and room.leak > 0 else 0.0
    gaussian = min(gaussian, promise.epsilon)
    if (epsilon := math.floor(1000 * gaussian) / 1000) > 0:
        return (
            f"A Gaussian release with ε ≤ {epsilon:g} at δ = {remaining_delta(room.leak)} per {unit} "
            "would fit this promise"
        )
    rest = promise.delta - promise.caps.leak
    listed = gaussian_epsilon(rest, room.mu) if room.mu > 0 and rest > 0 else 0.0
    if (epsilon := math.floor(1000 * min(listed, promise.epsilon)) / 1000) > 0:
        return (
            f"A Gaussian release with ε ≤ {epsilon:g} at δ = {remaining_delta(rest)} per {unit} "
            "would fit this promise, if its names are listed in advance (domain=)"
        )
    if (epsilon := math.floor(1000 * room.pure) / 1000) > 0:
        return f"A release with ε ≤ {epsilon:g} at δ = 0 per {unit} would fit this promise"
    return "The promise is exhausted: renew it, which adds its budget again"


def _release_room(promise: LastingPromise, spent: Units) -> Price:
    """Return the price, for its own unit, of a release that fits whatever region it reads."""
    room = spent.remaining(promise.caps)
    # A window can contain a part of what a person adds to a release. Removing a part costs up to
    # twice the ε or μ of removing everything: see docs/theory, "Scopes".
    return room if promise.window is None else replace(room, mu=room.mu / 2, pure=room.pure / 2)


def _unit(promise: LastingPromise) -> str:
    """Name the unit of releases that a promise is about, without its window."""
    return f"user and cell of {promise.partition}" if promise.level == "element" else promise.level


def seed_note(entries: Iterable[LedgerEntry]) -> str:
    """Return a sentence that lists the lines with seeded releases; empty if there are none."""
    numbers = [f"{entry.number:,}" for entry in entries if not entry.private]
    if not numbers:
        return ""
    more = f" and {len(numbers) - _NAMED:,} more" if len(numbers) > _NAMED else ""
    lines = "line" if len(numbers) == 1 else "lines"
    return (
        f"{SEEDED} in {lines} {', '.join(numbers[:_NAMED])}{more}, so these releases "
        "have no guarantee."
    )
