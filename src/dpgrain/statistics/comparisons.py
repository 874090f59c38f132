"""Differences and ratios of two groups of one release, with the error of both."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpgrain import _validate
from dpgrain._files import atomic_write, json_values
from dpgrain._formatting import shorten
from dpgrain.errors import ParameterError
from dpgrain.statistics.intervals import half_width
from dpgrain.statistics.release import Release
from dpgrain.words.notes import Note
from dpgrain.words.quantities import format_limit
from dpgrain.words.release_text import comparison_text, format_keys

if TYPE_CHECKING:
    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.statistics.group_estimates import Histogram

# Characters of a group in an error message.
_EXAMPLE = 60
# Longest printed key without an abbreviation, in characters.
_WHOLE = 1 << 20


@dataclass(frozen=True)
class Comparison:
    """Difference or ratio of two groups, with a 95% interval without noise."""

    operation: Literal["difference", "ratio"]
    groups: tuple[str, str]
    covers: str  # such as "clipped total"
    estimate: float  # NaN for a ratio if the second number is within the noise
    std_error: float  # due to noise
    low: float
    high: float
    guarantee: Guarantee | None = None  # of the release
    care: tuple[Note, ...] = ()  # warnings

    def write(self, path: str | Path) -> Path:
        """Write the comparison and its guarantee as JSON.

        Args:
            path: file to write, which ends in .json.

        Raises:
            ParameterError: if the path has another ending.
            DataError: if the file cannot be written.
        """
        path = _validate.path(output=path)
        if path.suffix != ".json":
            raise ParameterError(f"output {str(path)!r} must end in .json.", name="output")
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values |= {"text": str(self), "guarantee": self.guarantee and self.guarantee.to_dict()}
        with atomic_write(path) as part:
            part.write_text(
                json.dumps(json_values(values), ensure_ascii=False, indent=1), encoding="utf-8"
            )
        return path

    def __str__(self) -> str:
        return comparison_text(self)


def difference(
    numbers: tuple[float, float], errors: tuple[float, float], quantile: float
) -> tuple[float, float, float, float]:
    """Return the difference of noisy numbers, its standard error and interval."""
    estimate, error = numbers[0] - numbers[1], math.hypot(*errors)
    return estimate, error, estimate - quantile * error, estimate + quantile * error


def ratio(
    numbers: tuple[float, float], errors: tuple[float, float], quantile: float
) -> tuple[float, float, float, float]:
    """Return the ratio A/B of noisy numbers, its standard error and interval.

    Fieller's interval: |A − rB| ≤ quantile·√(a² + r²b²), for the errors a and b. It is unbounded,
    and all numbers are NaN, unless B is above the noise.
    """
    (above, below), (one, two) = numbers, errors
    first = below**2 - (quantile * two) ** 2
    if not (below > 0 and first > 0):
        return (math.nan,) * 4
    last = above**2 - (quantile * one) ** 2
    root = math.sqrt(max((above * below) ** 2 - first * last, 0.0))
    estimate = above / below
    error = math.hypot(one, estimate * two) / below
    return estimate, error, (above * below - root) / first, (above * below + root) / first


def compare(
    release: Histogram, operation: Literal["difference", "ratio"], a: Any, b: Any
) -> Comparison:
    """Compare two groups of a release; raise if their errors are correlated or biased."""
    if release.metadata.processed or release.nonnegative or release.statistic.holders:
        raise ParameterError(
            f"{operation} requires estimates without post-processing or ranking, because their "
            "errors are then correlated or biased; call it on the release itself."
        )
    for name, group in (("a", a), ("b", b)):
        if isinstance(group, Release):
            raise ParameterError(_of_two_releases(operation, name), name=name)
    places = [_place(release, "a", a), _place(release, "b", b)]
    if places[0] == places[1]:
        raise ParameterError("b must be another group than a.", name="b")
    first, second = release.clip[places]
    if release.metadata.is_clipped and first != second:
        raise ParameterError(
            f"b must have the clipping bound of a, {format_limit(first)}, not "
            f"{format_limit(second)}; publish both in a new release with an explicit clip=, or report "
            "them separately.",
            name="b",
        )
    numbers, errors = release.estimate[places].tolist(), release.std_error[places].tolist()
    compute = {"difference": difference, "ratio": ratio}[operation]
    result = compute(tuple(numbers), tuple(errors), half_width(release.noise))
    names = [" ".join(keys) for keys in format_keys(release, np.array(places), letters=40)]
    care: tuple[Note, ...] = ()
    if release.metadata.is_clipped and release.units is None:
        care = (("compared-unknown",),)
    elif release.units is not None and not release.units.is_small[places].all():
        care = (("compared-clipped",),)
    return Comparison(
        operation, (names[0], names[1]), release.covers, *result, release.guarantee, care
    )


def _of_two_releases(operation: Literal["difference", "ratio"], name: str) -> str:
    """Return the error about another release in place of a group."""
    apart = (
        ", or subtract the estimates, with the standard error math.hypot(a.std_error, b.std_error)"
    )
    return (
        f"{name} must be a group of this release, not another release; publish both numbers as "
        f"groups of one release (by=){apart * (operation == 'difference')}."
    )


def _place(release: Histogram, name: str, group: Any) -> int:
    """Return the index of a group."""
    keys = tuple(group) if isinstance(group, tuple | list) else (group,)
    columns = (column.to_pylist() for column in release.groups.columns)
    known = list(zip(*columns, strict=True))
    # Keys may also be stated as text, and months and other keys as they are printed.
    texts = [tuple(map(str, row)) for row in known]
    printed = format_keys(release, np.arange(len(release)), letters=_WHOLE)
    for rows, stated in ((known, keys), (texts, _texts(keys)), (printed, _texts(keys))):
        # An unlisted group; or an array, which has no truth value.
        with suppress(ValueError):
            if rows.count(stated) == 1:
                return rows.index(stated)
    listed = ", ".join(release.groups.names) or "no key"
    one = (repr(row[0] if len(row) == 1 else row) for row in known[:2])
    examples = f", such as {' or '.join(shorten(example, _EXAMPLE) for example in one)}"
    raise ParameterError(
        f"{name} must be a group of this release, by {listed}{examples if known else ''}, not "
        f"{_validate.describe(group)}.",
        name=name,
    )


def _texts(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return dates and numbers as text, as in tables; other values unchanged."""
    return tuple(str(key) if isinstance(key, date | int | float) else key for key in keys)
