"""Plans in words: the expected error, and how the budget is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpgrain.publishing.release_plan import Expected, Plan

# Factors of the error that are unknown before the release.
_TIMES = {
    "": "",
    "bounds": " × clipping bound (chosen privately)",
    "range": " × the range of the numbers",
    "records": ", divided by the number of records",
    "ranks": " of the rank, divided by the number of records",
}
# A clipping bound, for an example of the error.
_EXAMPLE = 10.0


def expected_text(expected: Expected) -> str:
    """Return the expected error of a number."""
    size, example = _size(expected.std_error), ""
    if expected.times == ("bounds",) and expected.unit:
        at = _EXAMPLE * expected.std_error
        example = f"; ±{_size(at)} {expected.unit} for a bound of {_EXAMPLE:g}"
    named = "" if expected.threshold is None else f"; published from {expected.threshold:,.3g}"
    return f"±{size}{''.join(_TIMES[each] for each in expected.times)}{example}{named}"


def plan_text(plan: Plan) -> str:
    """Return the expected error, the use of the budget, warnings and the guarantee in short."""
    error = "unknown before the release" if plan.expected is None else str(plan.expected)
    shares = budget_text(plan.shares)
    return "\n".join(
        [
            f"Standard error of the noise: {error}",
            *([f"Shares of the budget: {shares}"] if shares else []),
            *(f"Warning: {sentence}" for sentence in plan.care),
            plan.guarantee.summary,
            "Full guarantee: print(.guarantee)",
        ]
    )


def budget_text(shares: Mapping[str, float]) -> str:
    """Return the use of the budget by parts; empty for a single part, and if it is unknown.

    >>> budget_text({"bounds": 0.15, "sums": 0.85})
    'bounds 15%, sums 85%'
    """
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if len(shares) > 1)


def _size(error: float) -> str:
    """Return an error with three digits, or as an integer."""
    return f"{error:,.0f}" if error >= 1000 else f"{error:.3g}"
