"""Statistics, each with its name and texts.

Reports, plots and printed results read texts and traits from :class:`Statistic`; nothing compares
names. A new statistic is a value of this class, in a separate module, and a line in
:data:`STATISTICS` or a call of :func:`register`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dpgrain.errors import ParameterError

Noun = Literal["item", "group", "bin"]


@dataclass(frozen=True)
class Statistic:
    """Type of a statistic, with the texts and traits for reports and plots.

    Args:
        name: the name, as in saved files.
        lead: the sentence below a heading, without a full stop.
        title: the text before its subject, such as "mean of"; by default the name and "of".
        of: its subject, with ``{value}`` for the numeric column.
        estimate: the name of one estimate; by default the title and the subject.
        noun: the noun for a group, in the singular; bins are numbers of elements or records.
        plural: True for a title without an article.
        ranked: True if the last key of a release is the rank of a quantile.
        stepped: True if the last key of a release is the threshold of a share.
        binned: True if the last keys of a release are the ends of a bin of numbers.
        holders: True if units are counted, once in each of their groups.
        weighted: True if its numbers are weights, with negative ones treated as 0.
        signed: True if summed numbers may be negative.
        ratio: True if its numbers describe the average record, with a division by a count of
            records.
        paired: True if its numbers are pairs of two columns with stated bounds.
        stacked: True for marginals of several columns, whose keys are null in marginals without their
            column, with clipping in the norm of their noise.
        quantity: the quantity of an interval; by default "total", or the name of a ratio.
        amount: the name of the size of an estimate.
        method: sentences on the computation of estimates that are not sums, with ``{each}`` for "The"
            or "Each".

    >>> str(MEAN), MEAN.estimate_name("score"), COUNT.estimate_name(None)
    ('mean', 'mean of score', 'records')
    """

    name: str
    lead: str = "Estimates from the records of a table"
    title: str = ""
    of: str = "{value}"
    estimate: str = ""
    noun: Noun = "group"
    plural: bool = False
    ranked: bool = False
    stepped: bool = False
    binned: bool = False
    holders: bool = False
    weighted: bool = False
    signed: bool = False
    ratio: bool = False
    paired: bool = False
    stacked: bool = False
    quantity: str = ""
    amount: str = "count"
    method: str = ""

    def __str__(self) -> str:
        return self.name

    def describe_method(self, one: bool) -> str:
        """Describe the computation of the estimates, in sentences.

        Args:
            one: True for a single estimate.
        """
        return self.method.replace("{each}", "The" if one else "Each")

    @property
    def heading(self) -> str:
        """Text before the subject."""
        return self.title or f"{self.name} of"

    @property
    def covers(self) -> str:
        """Quantity of an interval, without clipping."""
        return self.quantity or (self.name if self.ratio else "total")

    @property
    def has_items(self) -> bool:
        """True if its groups are items."""
        return self.noun == "item"

    @property
    def has_bins(self) -> bool:
        """True if its groups are bins of contribution counts."""
        return self.noun == "bin"

    @property
    def in_order(self) -> bool:
        """True if its rows have a fixed order."""
        return self.ranked or self.stepped or self.binned or self.has_bins

    @property
    def has_edges(self) -> bool:
        """True if numbers are sorted into bins by edges, without clamping."""
        return self.stepped or self.binned

    @property
    def pointwise(self) -> bool:
        """True if the last key of a release is a rank or a threshold."""
        return self.ranked or self.stepped

    def keys(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the keys of groups, without a rank or threshold.

        Args:
            names: the names of all keys of a release.
        """
        known = tuple(names)
        return known[:-1] if self.pointwise else known

    def value_of(self, value: str | None) -> str:
        """Return the subject: records, or numbers in a column.

        Args:
            value: the column; None for counts of records.
        """
        return "records" if value is None else _filled(self.of, value)

    def estimate_name(self, value: str | None, rows: str = "records") -> str:
        """Return the name of one estimate.

        Args:
            value: the numeric column; None if other things are counted.
            rows: the noun for rows, in the plural.
        """
        words = (self.estimate or f"{self.heading} {self.of}").replace("records", rows)
        if value is not None:
            return _filled(words, value)
        return rows if _VALUE in words else words


_VALUE = "{value}"


def _filled(words: str, value: str) -> str:
    # format() is not used, because the name of a column may contain braces.
    return words.replace(_VALUE, value)


HISTOGRAM = Statistic(
    "histogram",
    "Contributions of users to each item",
    estimate="sum of {value} above 0",
    noun="item",
    weighted=True,
    amount="sum",
)
TOP = Statistic(
    "top",
    "Items that most users have, with their number of users",
    title="top items:",
    estimate="holders",
    noun="item",
    plural=True,
    holders=True,
)
COUNT = Statistic(
    "count",
    "Number of records",
    of="records with a number in {value}",
    estimate="records with a number in {value}",
)
SUM = Statistic("sum", "Sum of the numbers of all records", signed=True)
MEAN = Statistic(
    "mean",
    "Mean of the numbers of all records",
    ratio=True,
    method="Every record then counts 1, split between two public corners, the two bounds, with more "
    "weight for the closer one. Noise was added to the sums of the corners. {each} mean is "
    "computed from these sums only, with a division by a noisy count of records.",
)
VARIANCE = Statistic(
    "variance",
    "Mean squared distance of the numbers from their mean",
    ratio=True,
    method="Every record then counts 1, split between three public corners. Noise was added to the "
    "sums of the corners. {each} variance is computed from these sums only, with a division by a "
    "noisy count of records.",
)
STD = Statistic(
    "std",
    "Standard deviation of the numbers of the records",
    title="standard deviation of",
    quantity="standard deviation",
    ratio=True,
    method="Every record then counts 1, split between three public corners. Noise was added to the "
    "sums of the corners. {each} standard deviation is the root of a variance computed from these "
    "sums only, with a division by a noisy count of records.",
)
COVARIANCE = Statistic(
    "covariance",
    "Mean product of the distances of two numbers from their means",
    ratio=True,
    paired=True,
    method="Every record then counts 1, split between nine public corners. Noise was added to the "
    "sums of the corners. {each} covariance is computed from these sums only, with a division by a "
    "noisy count of records.",
)
CORRELATION = Statistic(
    "correlation",
    "Linear association of two numbers of the records, from −1 to 1",
    ratio=True,
    paired=True,
    method="Every record then counts 1, split between nine public corners. Noise was added to the "
    "sums of the corners. {each} correlation is a covariance divided by both standard deviations, "
    "all computed from these sums only.",
)
QUANTILES = Statistic(
    "quantiles",
    "Numbers with given shares of the records below them",
    estimate="{value}",
    quantity="quantile",
    plural=True,
    ranked=True,
    ratio=True,
    method="Every record then counts 1 in each of its bins, from coarse to fine, in a tree of bins "
    "between the bounds. Noise was added to the number in each bin. The quantiles are computed "
    "from these noisy counts, with the resolution of the finest bins.",
)
DISTRIBUTION = Statistic(
    "distribution",
    "Shares of the records with numbers at or above each threshold",
    estimate="share of records by {value}",
    stepped=True,
    ratio=True,
    quantity="share",
    amount="share",
    method="Every record counts 1 in its bin between two thresholds. Noise was added to the count of "
    "each bin. The shares are computed from these noisy counts and adjusted so that they decrease. "
    "The intervals of a group contain all of its shares at once in 95% of releases.",
)
BINNED = Statistic(
    "binned histogram",
    "Number of records with a number in each bin",
    title="counts of records by",
    estimate="records by {value}",
    binned=True,
)
HOLDINGS = Statistic(
    "elements per user",
    "Number of users by number of elements, and by number of records",
    title="count of elements and records per user:",
    estimate="users",
    noun="bin",
    quantity="number of users",
)

STATISTICS: dict[str, Statistic] = {
    each.name: each
    for each in (
        HISTOGRAM,
        TOP,
        COUNT,
        SUM,
        MEAN,
        VARIANCE,
        STD,
        COVARIANCE,
        CORRELATION,
        QUANTILES,
        DISTRIBUTION,
        BINNED,
        HOLDINGS,
    )
}


def register(statistic: Statistic) -> Statistic:
    """Register a statistic, so that its saved releases can be read.

    Args:
        statistic: the statistic.

    Returns:
        The statistic.

    Raises:
        ParameterError: if another statistic has its name.
    """
    if STATISTICS.setdefault(statistic.name, statistic) != statistic:
        raise ParameterError(
            f"name {statistic.name!r} is already used by another statistic; choose another name."
        )
    return statistic


def statistic_by_name(name: str) -> Statistic:
    """Return the statistic of a name, or a plain one if the name is not registered.

    Args:
        name: the name, as in saved files.

    >>> statistic_by_name("mean") is MEAN, statistic_by_name("mode").heading
    (True, 'mode of')
    """
    return STATISTICS.get(name) or Statistic(name)
