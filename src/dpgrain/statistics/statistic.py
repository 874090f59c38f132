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
    """Type of a statistic, with the texts and traits for reports and plots."""

    name: str  # as in saved files
    lead: str = "Estimates from the records of a table"  # below a heading
    title: str = ""  # text before its subject; by default the name and "of"
    of: str = "{value}"  # subject, with ``{value}`` for the numeric column
    estimate: str = ""  # by default the title and the subject
    noun: Noun = "group"  # for a group, in the singular
    plural: bool = False  # title without an article
    ranked: bool = False  # last key is the rank of a quantile
    stepped: bool = False  # last key is the threshold of a share
    binned: bool = False  # last keys are the ends of a bin
    holders: bool = False  # units count once in each of their groups
    weighted: bool = False  # numbers are weights, negative ones treated as 0
    signed: bool = False  # summed numbers may be negative
    ratio: bool = False  # divided by a count of records: describes the average record
    paired: bool = False  # two columns with stated bounds
    stacked: bool = False  # marginals, whose keys are null where a column is absent
    quantity: str = ""  # of an interval; by default "total", or the name of a ratio
    amount: str = "count"  # size of an estimate
    method: str = ""  # computation, as sentences with ``{each}`` for "The" or "Each"

    def __str__(self) -> str:
        return self.name

    def describe_method(self, one: bool) -> str:
        """Describe the computation of the estimates, in sentences."""
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
        """Return the keys of groups, without a rank or threshold."""
        known = tuple(names)
        return known[:-1] if self.pointwise else known

    def value_of(self, value: str | None) -> str:
        """Return the subject: records, or numbers in a column."""
        return "records" if value is None else _filled(self.of, value)

    def estimate_name(self, value: str | None, rows: str = "records") -> str:
        """Return the name of one estimate."""
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
    """Register a statistic, so that its saved releases can be read."""
    if STATISTICS.setdefault(statistic.name, statistic) != statistic:
        raise ParameterError(
            f"name {statistic.name!r} is already used by another statistic; choose another name."
        )
    return statistic


def statistic_by_name(name: str) -> Statistic:
    """Return the statistic of a name, or a plain one if the name is not registered."""
    return STATISTICS.get(name) or Statistic(name)
