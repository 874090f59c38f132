"""Means of users in words: coordinates, method, and the largest error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from dpgrain._formatting import (
    POINTER,
    align_columns,
    approximate_percent,
    format_facts,
    format_number,
    one_line,
    quantity,
    rounded_up,
    sentence,
    shorten,
    useful_decimals,
)
from dpgrain.words import guarantee_text
from dpgrain.words.notes import note_text
from dpgrain.words.odds import privacy_sections

if TYPE_CHECKING:
    from dpgrain.means.user_mean import MeanOfUsers

#: The number of users on which a choice is based, after its origin; empty for a requested method.
Choice: TypeAlias = tuple[()] | tuple[Literal["stated", "released"], int]
#: Type of effects that an error covers.
Coverage: TypeAlias = Literal["bound", "number", "clipping"]

#: Effects that an error covers, by type.
ERRORS: dict[Coverage, str] = {
    "bound": "everything that the bound allows, because the published numbers do not limit the "
    "effect of dropped or clipped users and of enrolled users without records",
    "number": "noise and the number of users with records",
    "clipping": "noise, the clipping of distant users, and the number of users with records",
}
#: The message in place of a mean on which users did not agree.
NO_MEAN = "no mean: too few users are close together; pass a larger radius= or another method="
# Reasons for the automatic choice of each method.
_REASONS = {
    "recentred": "{} are enough to estimate their centre in {}, so noise depends on their distance "
    "from it instead of the bound",
    "clip": "{} are too few to identify distant users in {} at this ε and δ, so vectors are "
    "clipped only to the bound",
}
# The same with weights by records, for the sum of weights.
_WEIGHTED_REASONS = {
    "recentred": "a sum of weights of about {:,} is enough to estimate the centre in {}",
    "clip": "a sum of weights of about {:,} is too small to estimate the centre in {}, so vectors are "
    "clipped only to the bound",
}
#: Warning if the noise obscures the sum of weights.
NOT_RESOLVED = note_text(("unclear-weights",))
_TITLE = "Mean over users of the mean of each user's records"
# Coordinates that a printed mean shows, and letters of the name of each.
_ROWS, _LETTERS = 5, 39


def reason(mean: MeanOfUsers) -> str:
    """Explain the choice of the method by public numbers."""
    if not mean.choice:
        return "as requested"
    origin, n = mean.choice
    if mean.max_records is not None:
        space = quantity(len(mean.value), "dimension")
        return _WEIGHTED_REASONS[mean.method].format(n, space)
    people = f"{'' if origin == 'stated' else 'about '}{quantity(n, 'user')}"
    return _REASONS[mean.method].format(people, quantity(len(mean.value), "dimension"))


def estimand(mean: MeanOfUsers) -> str:
    """Describe the average, with the weights of users."""
    if mean.max_records is None:
        return _TITLE
    average = f"Mean of the average record, up to {mean.max_records:,} per user"
    return average if mean.max_records == 1 else f"{average}, not of the average person"


def error_covers(mean: MeanOfUsers) -> str:
    """Describe the effects that the error covers."""
    text = ERRORS[mean.error_of]
    if mean.max_records is None or mean.error_of == "bound":
        return text
    text = text.replace("the clipping of distant users", "the lower weight of distant users")
    return text.replace("the number of users with records", "the sum of weights")


def summary(mean: MeanOfUsers) -> str:
    """Return a mean as printed: title, a few coordinates, notes and the short guarantee."""
    names = mean.names or [str(place) for place in range(1, len(mean.value) + 1)]
    pointer = POINTER.replace("columns", "numbers")
    return "\n".join(
        [*lines(mean, names, _ROWS), guarantee_text.summary(mean.guarantee, mean.query), pointer]
    )


def lines(mean: MeanOfUsers, names: Sequence[str], top: int) -> list[str]:
    """Return the title, the first coordinates and the largest error, as lines of text."""
    title = (
        f"{mean.estimand} ({quantity(len(mean.value), 'coordinate')}; each record clipped to "
        f"{_bound(mean)}; method {mean.method})"
    )
    if not np.isfinite(mean.value).all():
        return [title, sentence(NO_MEAN)]
    decimals = useful_decimals(mean.std_error if mean.resolved else mean.error)
    error = format_number(mean.std_error, decimals)
    rows = [
        [shorten(one_line(name), _LETTERS), format_number(value, decimals), error]
        for name, value in zip(names[:top], mean.value.tolist(), strict=False)
    ]
    table = align_columns([["coordinate", "estimate", "std_error"], *rows])
    if len(names) > top:
        table.append(f"[{len(names):,} coordinates, {top:,} first shown; all: .value]")
    sentences = (sentence(largest_error(mean)), _outside(mean), "std_error covers the noise only.")
    if not mean.resolved:
        sentences = (f"Warning: {NOT_RESOLVED}", sentence(largest_error(mean)), "")
    return [title, *table, " ".join(filter(None, sentences))]


def explanation(mean: MeanOfUsers) -> str:
    """Describe the numbers, the method, the largest error and the guarantee."""
    average = "the mean over users of the mean of their records"
    if mean.max_records is not None:
        average = (
            "the mean of records, with users weighted by their number of records, of which at most "
            f"{mean.max_records:,} count"
        )
    facts = {
        "estimate": f"{average}, each clipped to the bound, plus noise; a value that is not a finite "
        "number counts as 0",
        "std_error": "standard error of the noise of each coordinate; it covers noise only",
        "Error": largest_error(mean),
        "Method": f"{mean.method}, {mean.reason}. {_outside(mean)}".strip(),
        **privacy_sections(mean.guarantee, mean.shares, mean.query),
    }
    if not mean.resolved and np.isfinite(mean.value).all():
        facts = {"Warning": NOT_RESOLVED, **facts}
    return format_facts(mean.estimand, facts)


def largest_error(mean: MeanOfUsers) -> str:
    """Return the largest error of the whole vector, with a description of its coverage."""
    return (
        f"the whole vector is at most {rounded_up(mean.error, 3)} (l2 norm) from the clipped mean "
        f"{_of(mean)}, with {mean.confidence:.0%} confidence; this covers "
        f"{mean.error_covers}, but not the clipping of records to {_bound(mean)}"
    )


def _of(mean: MeanOfUsers) -> str:
    if mean.max_records is None:
        return "of users with records"
    return f"of records, up to {mean.max_records:,} per user"


def _outside(mean: MeanOfUsers) -> str:
    if not mean.outside:
        return ""
    if mean.max_records is not None:
        return (
            f"Users with {approximate_percent(mean.outside)} of the weight are far from the centre, "
            "and clipping lowered their weight (rough estimate)."
        )
    return (
        f"The means of {approximate_percent(mean.outside)} of users are farther than "
        f"{mean.radius:.3g} from the centre and were clipped (rough estimate)."
    )


def _bound(mean: MeanOfUsers) -> str:
    """Return the bound of records: a public fact."""
    known = {fact.numbers[0] for fact in mean.guarantee.public if fact.kind == "record-bound"}
    return f"norm {known.pop():,g}" if len(known) == 1 else "the bound"
