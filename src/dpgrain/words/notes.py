"""Warnings and notes in words: the sentence of each kind."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import TypeAlias

#: A warning or an assumption: its kind and its numbers.
Note: TypeAlias = tuple[str | float, ...]

_START = (
    "the fit will probably not improve on its start: the noise of all rounds together has norm "
    "{:.2g}, and the mean gradient of {} independent features has norm {:.2g} at most; use more "
    "users, a larger epsilon, fewer features"
)
_FEATURES = (
    "fewer features, all divided by public numbers so that each varies by about 1, and none nearly a "
    "combination of others"
)

#: The sentence of each kind. Those of releases are stored in files: none is renamed or gets another
#: meaning.
_SENTENCES = MappingProxyType(
    {
        # Releases.
        "stated": "{}",
        "no-number": "no number exceeded the noise: pass bounds= or a larger epsilon=, or check the "
        "number format (--check)",
        "no-bound": "the clipping bound is a guess, because noise hid all contributions: check for "
        "unreadable values (--check), or pass clip= or a larger epsilon=",
        "mostly-clipped": "at least {:,.0f}% of all contributions were clipped (95% confidence), so "
        "people with many records count too little: use one row per user (per_user; with by= for "
        "elements), or pass a larger clip= or epsilon=",
        "removed-records": "people with many records were clipped, which removed at least {:,.0f}% of "
        "all records (95% confidence): this is the result for clipped contributions, and its interval "
        "may miss that of all records; use one row per user (per_user), or pass a larger clip= or "
        "epsilon=",
        "clamped": "values outside of the bounds were clamped (at least {:,.2g}%, 95% "
        "confidence), so the interval may miss the statistic of all values",
        "far-numbers": "rare values outside of the chosen range may be a large part of the result, "
        "and a larger epsilon= hardly shows them: publish quantiles, or pass bounds= that contain "
        "all values",
        "hidden": "no estimate, because no contributions stood out from the noise",
        "clipping": "clipping may matter: see clipped_share",
        "compared-unknown": "the share of clipped units was not estimated, so the two totals without "
        "clipping may differ by more: pass estimate_clipping=True, or a clip= above the contributions "
        "of heavy users",
        "compared-clipped": "clipping may matter, so the two totals without clipping may differ by "
        "more: pass a larger clip=",
        "no-estimate": "no estimate, because the noise allows almost any value",
        "no-low": "no lower end, because smaller values may be invisible in the noise",
        "no-high": "no upper end, because larger values may be invisible in the noise",
        "few-numbers": "almost no numbers were found ({:,.0f} ± {:,.0f}): ask the curator to check "
        "the column (--check)",
        # Means of users.
        "unclear-weights": "The noisy sum of weights does not stand out from its noise, so this is "
        "the released centre and not the mean of records; use more users, a larger epsilon, or a "
        "smaller max_records.",
        "half-clipped": "more than half of the users were clipped in the last round, to {:.3g}, which "
        "biases the result. Pass a larger clip, scale the data, or use more rounds.",
        # Fits, before the charge.
        "start": f"{_START}.",
        "start-of-recipe": f"{_START}, or algorithm='auto'.",
        "steep-slope": "clip = {:g} is at most half of the largest slope of the loss, {:g}: only the "
        "direction of the gradients of users with few records matters, which biases coefficients "
        "for any number of users. Omit clip to choose it privately.",
        "few-users": "intervals will probably have no ends: the curvature of {} coefficients needs "
        "about {:,.0f} users, not {:,}. Use a larger epsilon, a larger share (intervals=), or at most "
        "{} coefficients.",
        # Fits without intervals.
        "curvature": "the curvature does not stand out from its noise "
        f"({_FEATURES}, or more budget would help)",
        "clipping-effect": "noise hides how much clipping changes gradients (more users or budget "
        "would help)",
        "not-converged": "the rounds have not converged "
        f"({_FEATURES}, more rounds or a smaller ridge would help)",
        # Assumptions of expected errors.
        "identical-records": "The errors assume independent, identically distributed records; the "
        "guarantee does not.",
        "similar-users": "A factor of √{} in the noise's order needs users with similar mean losses; "
        "the choice above does not use this.",
        "pure-order": "The order is for δ = 0.",
        "gradient-units": "G is the clipping bound, R the distance from the first point to the "
        "optimum.",
        "any-rounds": "The noise's part is the same for any number of rounds; the other part "
        "decreases.",
        "optimization": "Optimization adds at most R·G/√T after T rounds (2G²/(μT), strongly convex).",
        "estimated-centre": "Clipping around an estimated centre: for Gaussian gradients of "
        "covariance G²/d; the estimate adds to this.",
        "mean-units": "C is the clipping bound; the bias of clipping adds to these errors.",
        "such-records": "Such records: each vector is the mean of {:,} independent, identically "
        "distributed records of norm at most C; for clipped sums they are Gaussian with covariance "
        "C²/d, clipped around any centre. Only errors assume this, not the guarantee.",
        "records-of-a-vector": "A factor of √{0} in the order needs {0} independent records per "
        "vector: clipping to a fixed bound does not reach it, clipping around an estimated centre "
        "may.",
        "replace-order": "The orders are for replace; under zero_out up to a factor of 2 less may be "
        "possible.",
        "unknown-bias": "Clipping adds a bias that depends on the data and is unknown in advance.",
        "protocol": "It assumes {}.",
        "skew": "A user's mean amount is {:g} times the median (2 to 3 in logs).",
        "best-bounds": "Clipping bounds are optimal for such data, and cells are public. Privately "
        "chosen bounds have errors 10 to 30% larger, or two to three times with fewer than ten cells "
        "and heavy tails.",
        "data-like-these": "Each guarantee holds for all data; the errors are for data like these.",
        # Schedules of releases.
        "schedule-columns": "Columns state the noise of one release and of the total of all windows, "
        "and ε for one period and for all periods of such a person, wherever they are.",
        "total-of-people": "The total of windows counts a person once per window; only the last "
        "running total, or one window over all periods, counts people once.",
        "total-of-visits": "The total of windows is their sum and costs nothing extra.",
        "returns": "Guarantees for a period, or for periods in a row, assume no limit on returns; a "
        "guarantee for a whole person holds only up to that limit.",
        "saves-of-person": "For a whole person, a release every {0:,} periods saves from {2:,} returns "
        "on.",
        "saves-of-span": "For any {1:,} periods in a row, a release every {0:,} periods saves from "
        "{2:,} returns on.",
        "no-saves-of-person": "For a whole person, a release every {0:,} periods never saves.",
        "no-saves-of-span": "For any {1:,} periods in a row, a release every {0:,} periods never "
        "saves.",
        "period": "Promised for one period of a person:",
        "within": "Promised for any {:,} periods in a row of a person:",
        "person": "Promised for a person who comes in at most {:,} periods:",
    }
)


def note_text(note: Note) -> str:
    """Return the sentence of a note.

    >>> note_text(("skew", 2.5))
    "A user's mean amount is 2.5 times the median (2 to 3 in logs)."
    """
    kind, *numbers = note
    return _SENTENCES[str(kind)].format(*numbers)


def note_texts(notes: Iterable[Note]) -> tuple[str, ...]:
    """Return the sentences of notes."""
    return tuple(map(note_text, notes))
