"""Plans in words: the expected error, and how the budget is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpgrain.words.notes import note_texts

if TYPE_CHECKING:
    from dpgrain.publishing.release_plan import Expected, Plan

# Factors of the error that are unknown before the release.
_TIMES = {"bounds": " × clipping bound (chosen privately)", "range": " × the range of the numbers"}
# Note on sums of groups that may have different bounds.
_COMPARED = (
    "Comparing groups (difference, ratio) requires equal bounds: pass clip=, because a bound per "
    "group may be chosen."
)
# A clipping bound, and a number of records, for an example of the error.
_BOUND, _RECORDS = 10, 10_000


def expected_text(expected: Expected) -> str:
    """Return the expected error of a number."""
    divided = {"records", "ranks"} & {*expected.times}
    text = _example_of_ratio(expected) if divided else _factors(expected)
    if expected.threshold is None:
        return text
    return f"{text}; published from a noisy count of {expected.threshold:,.3g}"


def _factors(expected: Expected) -> str:
    """Return the error of a count or sum as a multiple of unknown factors."""
    text = f"±{_size(expected.std_error)}{''.join(_TIMES[each] for each in expected.times)}"
    if expected.times == ("bounds",) and expected.unit:
        text += f"; ±{_size(_BOUND * expected.std_error)} {expected.unit} for clip={_BOUND}"
    return text


def _example_of_ratio(expected: Expected) -> str:
    """Return the error of a mean or rank for an example of the factors, and how it grows."""
    error, given, grows = expected.std_error / _RECORDS, f"{_RECORDS:,} records", "1"
    if "bounds" in expected.times:
        error *= _BOUND
        given += f" and a clipping bound of {_BOUND}"
        grows = "the bound (chosen privately)"
    size = f"±{_size(error)}"
    if "ranks" in expected.times:
        size = f"±{100 * error:.3g}% in rank"
    elif "range" in expected.times:
        size = f"±{100 * error:.3g}% of the range of the numbers"
    return f"{size} for {given}; proportional to {grows} ÷ records"


def plan_text(plan: Plan) -> str:
    """Return the expected error, the use of the budget, notes and the guarantee in short."""
    error = "unknown before the release" if plan.expected is None else str(plan.expected)
    shares = budget_text(plan.shares)
    return "\n".join(
        [
            f"Standard error of the noise: {error}",
            *([f"Shares of the budget: {shares}"] if shares else []),
            *([_COMPARED] if "group scales" in plan.parts else []),
            *(f"Warning: {sentence}" for sentence in note_texts(plan.care)),
            plan.guarantee.summary,
            "Full guarantee: print(.guarantee)",
        ]
    )


def budget_text(shares: Mapping[str, float]) -> str:
    """Return the use of the budget by parts; empty for one part or if unknown."""
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if len(shares) > 1)


def _size(error: float) -> str:
    """Return an error with three digits, or as an integer."""
    return f"{error:,.0f}" if error >= 1000 else f"{error:.3g}"
