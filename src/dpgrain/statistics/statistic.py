"""The statistics, each with its name and with words for its numbers.

Whatever speaks of a release or draws it asks its :class:`Statistic`; nothing compares names. A new
statistic is a value of this class, in its own module, and a line in :data:`STATISTICS` or a call of
:func:`register`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dpgrain.errors import ParameterError

Noun = Literal["item", "group", "bin"]


@dataclass(frozen=True)
class Statistic:
    """One kind of statistic, in the words and with the traits for pages and plots.

    Args:
        name: the name, which saved files keep.
        lead: the sentence under a heading, without a full stop.
        title: the words before its subject, as in "mean of"; by default the name and "of".
        of: its subject, where ``{value}`` is the column of numbers.
        estimate: the words for one estimate; by default the title and the subject.
        noun: the word for a group, in the singular; bins are of numbers that users hold.
        plural: True where no article stands before the title.
        ranked: True where the last key of a release is the rank of a quantile.
        stepped: True where the last key of a release is the least number that a share is of.
        binned: True where the last keys of a release are the ends of a bin of numbers.
        holders: True where units are counted, once in each group that they hold.
        weighted: True where its numbers are weights, of which those that are not above 0 count 0.
        signed: True where the numbers that are added up may be negative.
        ratio: True where its numbers are of the average record, and divide by a count of records.
        paired: True where its numbers are pairs, each of two columns whose bounds are stated.
        quantity: the quantity that an interval covers; by default "total", or the name of a ratio.
        amount: the word for the size of an estimate.
        made: the sentences that say how estimates that are no sums are made from noisy sums, where
            ``{each}`` is "The" or "Each".

    >>> str(MEAN), MEAN.estimate_of("score"), COUNT.estimate_of(None)
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
    quantity: str = ""
    amount: str = "count"
    made: str = ""

    def __str__(self) -> str:
        return self.name

    def made_of(self, one: bool) -> str:
        """Say in sentences how estimates are made.

        Args:
            one: True if there is but one estimate.
        """
        return self.made.replace("{each}", "The" if one else "Each")

    @property
    def heading(self) -> str:
        """The words before the subject."""
        return self.title or f"{self.name} of"

    @property
    def covers(self) -> str:
        """The quantity that an interval covers, without clipping."""
        return self.quantity or (self.name if self.ratio else "total")

    @property
    def of_items(self) -> bool:
        """True where its groups are items held by users."""
        return self.noun == "item"

    @property
    def of_bins(self) -> bool:
        """True where its groups are bins of how much users hold."""
        return self.noun == "bin"

    @property
    def in_order(self) -> bool:
        """True where its rows have an order of their own."""
        return self.ranked or self.stepped or self.binned or self.of_bins

    @property
    def of_parts(self) -> bool:
        """True where numbers are distinguished by edges, beyond which none is cut off."""
        return self.stepped or self.binned

    @property
    def pointwise(self) -> bool:
        """True where the last key of a release names points: ranks, or least numbers."""
        return self.ranked or self.stepped

    def keys(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names of those keys that distinguish groups: the rank of a quantile does not.

        Args:
            names: the names of all keys of a release.
        """
        known = tuple(names)
        return known[:-1] if self.pointwise else known

    def value_of(self, value: str | None) -> str:
        """Return the subject: records, or numbers in a column.

        Args:
            value: the column; None where records are counted.
        """
        return "records" if value is None else _filled(self.of, value)

    def estimate_of(self, value: str | None) -> str:
        """Say in a word or two what one estimate is.

        Args:
            value: the column of numbers; None where something else counts.
        """
        words = self.estimate or f"{self.heading} {self.of}"
        if value is not None:
            return _filled(words, value)
        return "records" if _VALUE in words else words


_VALUE = "{value}"


def _filled(words: str, value: str) -> str:
    # format() is not used, as a column may be called anything, braces included.
    return words.replace(_VALUE, value)


HISTOGRAM = Statistic(
    "histogram",
    "How much of each item the users of a table hold",
    estimate="sum of {value} above 0",
    noun="item",
    weighted=True,
    amount="sum",
)
TOP = Statistic(
    "top",
    "The items that most users have, and how many have each",
    title="top items:",
    estimate="holders",
    noun="item",
    plural=True,
    holders=True,
)
COUNT = Statistic(
    "count",
    "How many records there are",
    of="records with a number in {value}",
    estimate="records with a number in {value}",
)
SUM = Statistic("sum", "What the numbers of all records add up to", signed=True)
MEAN = Statistic(
    "mean",
    "The mean of the numbers of all records",
    ratio=True,
    made="Every record then counts 1, split between two public corners, the two bounds: the nearer a "
    "number lies to one, the more of it counts there. Noise was added to the sums of the corners. "
    "{each} mean is computed from these sums alone and divides by a noisy count of records.",
)
VARIANCE = Statistic(
    "variance",
    "How far the numbers of the records lie from their mean, squared",
    ratio=True,
    made="Every record then counts 1, split between three public corners. Noise was added to the sums "
    "of the corners. {each} variance is computed from these sums alone and divides by a noisy count of "
    "records.",
)
STD = Statistic(
    "std",
    "How far the numbers of the records lie from their mean: the standard deviation",
    title="standard deviation of",
    quantity="standard deviation",
    ratio=True,
    made="Every record then counts 1, split between three public corners. Noise was added to the sums "
    "of the corners. {each} standard deviation is the root of a variance computed from these sums "
    "alone, which divides by a noisy count of records.",
)
COVARIANCE = Statistic(
    "covariance",
    "How two numbers of the records move together: the mean product of their distances from the means",
    ratio=True,
    paired=True,
    made="Every record then counts 1, split between nine public corners. Noise was added to the sums "
    "of the corners. {each} covariance is computed from these sums alone and divides by a noisy count "
    "of records.",
)
CORRELATION = Statistic(
    "correlation",
    "How two numbers of the records move together, from −1 to 1",
    ratio=True,
    paired=True,
    made="Every record then counts 1, split between nine public corners. Noise was added to the sums "
    "of the corners. {each} correlation is a covariance divided by both standard deviations, all "
    "computed from these sums alone.",
)
QUANTILES = Statistic(
    "quantiles",
    "The numbers below which given shares of the records lie",
    estimate="{value}",
    quantity="quantile",
    plural=True,
    ranked=True,
    ratio=True,
    made="Every record is then split between a few public corners: it counts 1 in each of the bins "
    "that it lies in, from coarse to fine, of a tree of bins of equal width between the bounds. Noise "
    "was added to the number in each bin; the quantiles are read off these noisy counts and are no "
    "finer than the finest bins.",
)
DISTRIBUTION = Statistic(
    "distribution",
    "The shares of the records whose numbers are at least so large",
    estimate="share of records by {value}",
    stepped=True,
    ratio=True,
    quantity="share",
    amount="share",
    made="Every record counts 1 in its bin between two thresholds. Noise was added to the count of "
    "each bin; the shares are read off these noisy counts, and are made to fall from threshold to "
    "threshold. The intervals of a group hold all of its shares at once, in 95% of releases.",
)
BINNED = Statistic(
    "binned histogram",
    "How many records have a number in each of several bins",
    title="counts of records by",
    estimate="records by {value}",
    binned=True,
)
HOLDINGS = Statistic(
    "elements per user",
    "How many users hold how many elements, and how many records",
    title="count of elements and records per user:",
    estimate="users",
    noun="bin",
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
    """Register a statistic, so that a saved release of it can be read.

    Args:
        statistic: the statistic.

    Returns:
        The statistic.

    Raises:
        ParameterError: if another one has its name.
    """
    if STATISTICS.setdefault(statistic.name, statistic) != statistic:
        raise ParameterError(
            f"name {statistic.name!r} is already used by another statistic; choose another name."
        )
    return statistic


def statistic_of(name: str) -> Statistic:
    """Return the statistic of a name, or a plain one if nobody has registered it.

    Args:
        name: the name, as saved files have it.

    >>> statistic_of("mean") is MEAN, statistic_of("mode").heading
    (True, 'mode of')
    """
    return STATISTICS.get(name) or Statistic(name)
