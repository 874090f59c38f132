"""Noisy numbers of groups: sums, and estimates from sums such as means, with post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain._types import Array, FloatArray
from dpgrain.errors import ParameterError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.statistics.comparisons import Comparison, compare
from dpgrain.statistics.consistency import consistent, reconcile
from dpgrain.statistics.intervals import ClippedUnits, radius
from dpgrain.statistics.release import Release
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.statistics.shrinkage import shrink
from dpgrain.tables.groups import Groups
from dpgrain.words import quantities
from dpgrain.words.quantities import format_limit


def misordered_pairs(truth: FloatArray, estimate: FloatArray, gamma: float) -> int:
    """Count the pairs with a true gap of at least γ (and above 0) in the wrong order.

    Source: element-level paper, eq. (8), which is printed with its second inequality reversed.
    """
    descending = np.argsort(-truth, kind="stable")
    p = truth[descending]
    ranks = np.unique(estimate[descending], return_inverse=True)[1]
    # Number of first items that are far enough above the l-th item in decreasing order of p.
    above = np.minimum(
        np.searchsorted(-p, -(p + gamma), side="right"), np.searchsorted(-p, -p, side="left")
    )
    # Fenwick tree over the ranks of the estimates of those items.
    tree = [0] * (int(ranks.max(initial=-1)) + 2)
    inserted = wrong = 0
    for needed, rank in zip(above.tolist(), ranks.tolist(), strict=True):
        while inserted < needed:
            i = int(ranks[inserted]) + 1
            while i < len(tree):
                tree[i] += 1
                i += i & -i
            inserted += 1
        i = rank
        while i > 0:
            wrong += tree[i]
            i -= i & -i
    return wrong


@dataclass(frozen=True, repr=False, eq=False)
class Histogram(Release):
    """Private sums of contributions by group: counts, sums, histograms, top items.

    Args:
        groups: (V,) the groups, in the order of the public domain; selected ones by name.
        estimate: (V,) the noisy sums of clipped contributions, unbiased for these unless
            non-negative; NaN for sums whose contributions did not exceed the noise.
        std_error: (V,) the standard error of the noise.
        clip: (V,) the clipping bound of the group's cell.
        guarantee: the guarantee of the release.
        metadata: the public facts of the release: its parameters, and the outcome of private choices.
        noise: the noise distribution: ``"gaussian"``, ``"laplace"``, or ``"geometric"`` (integers).
        nonnegative: True if negative estimates were set to 0.
        at_least: (V,) 95% lower bounds on the unclipped totals, for any data; NaN if values may be
            negative. None if clipping has no effect. They use the noisy sums before
            post-processing.
        complete_units: (V,) the noisy numbers of units whose contribution was within its bound;
            None if they were not counted.
        clipped_units: (V,) the noisy numbers of units whose contribution was clipped, or None.
        units_error: the standard error of both numbers; None like these.
        clamped_below: (V,) three times the likely part of the sum below a privately chosen range,
            which the interval includes; None if it was not estimated.
        clamped_above: (V,) three times the likely part above the range, or None.

    >>> import pyarrow as pa
    >>> from dpgrain import User, histogram, read
    >>> rows = pa.table({"who": list(range(900)), "page": ["jobs"] * 600 + ["news"] * 300})
    >>> visits = histogram(
    ...     read(rows, user="who"), "page", unit=User(), epsilon=1.0, delta=1e-6,
    ...     domain=["jobs", "news", "shop"], random_state=1)
    >>> dict(zip(visits.items.to_pylist(), visits.estimate.round(-1).tolist()))
    {'jobs': 600.0, 'news': 290.0, 'shop': 10.0}
    >>> bool((visits.without_negatives().estimate >= 0).all()), visits.largest(1).items.to_pylist()
    (True, ['jobs'])
    """

    groups: Groups
    estimate: FloatArray
    std_error: FloatArray
    clip: FloatArray
    guarantee: Guarantee
    metadata: ReleaseMetadata
    noise: str = "gaussian"
    nonnegative: bool = False
    at_least: FloatArray | None = None
    complete_units: FloatArray | None = None
    clipped_units: FloatArray | None = None
    units_error: float | None = None
    clamped_below: FloatArray | None = None
    clamped_above: FloatArray | None = None

    @property
    def units(self) -> ClippedUnits | None:
        """Noisy numbers of complete and clipped units; None if they were not counted."""
        counts, error = (self.complete_units, self.clipped_units), self.units_error
        if counts[0] is None or counts[1] is None or error is None:
            return None
        law: Any = self.metadata.noise
        return ClippedUnits(counts[0], counts[1], error, law)

    @property
    def low(self) -> FloatArray:
        """Lower end of a 95% interval for the sum of clipped contributions, (V,)."""
        low = self.estimate - radius(self.noise, self.std_error)
        low = low if self.clamped_below is None else low - self.clamped_below
        return np.maximum(low, 0.0) if self.nonnegative else low

    @property
    def high(self) -> FloatArray:
        """Upper end of a 95% interval for the sum of clipped contributions, (V,)."""
        high = self.estimate + radius(self.noise, self.std_error)
        high = high if self.clamped_above is None else high + self.clamped_above
        return np.maximum(high, 0.0) if self.nonnegative else high

    @property
    def more(self) -> dict[str, FloatArray]:
        """Lower bound on the unclipped totals, share of clipped units, and bounds per group."""
        least = self.at_least
        if least is not None:
            # A smaller lower bound is also valid: no bound is above the interval, even if this is
            # below 0 or post-processed.
            least = np.where(least > self.high, self.high, least)
        columns = {"at_least": least}
        if self.units is not None:
            columns["clipped_share"] = self.units.high
        if self.metadata.clip is not None and self.metadata.clip.over == "group":
            columns["clip"] = self.clip
        return {name: column for name, column in columns.items() if column is not None}

    def _row_cautions(self) -> Array:
        many = np.zeros(len(self), np.bool_) if self.units is None else ~self.units.is_small
        return np.select([np.isnan(self.estimate), many], ["hidden", "clipping"], "")

    def _columns(self) -> dict[str, FloatArray]:
        own = {"estimate": self.estimate, "std_error": self.std_error, "clip": self.clip}
        units = {"complete_units": self.complete_units, "clipped_units": self.clipped_units}
        clamped = {"clamped_below": self.clamped_below, "clamped_above": self.clamped_above}
        more = {"at_least": self.at_least, **units, **clamped}
        return {**own, **{name: column for name, column in more.items() if column is not None}}

    def _about(self) -> dict[str, Any]:
        counted = {} if self.units_error is None else {"units_error": self.units_error}
        return {"noise": self.noise, "nonnegative": self.nonnegative, **counted}

    def _people(self) -> FloatArray | None:
        """Return the noisy counts, if they are of people."""
        of_people = self.metadata.over == "people" and self.metadata.value is None
        # Numbers set to 0 stay below any limit; other post-processing changes counts.
        return self.estimate if of_people and not self.metadata.processed else None

    def without_negatives(self) -> Self:
        """Return the same release with negative estimates set to 0: free post-processing."""
        return replace(self, estimate=np.maximum(self.estimate, 0.0), nonnegative=True)

    def shrunk(self, prior: ArrayLike | None = None) -> Self:
        """Shrink each estimate towards 0 by its probability of being noise: free post-processing.

        Args:
            prior: (V,) public values to which the true ones may be proportional; estimates are
                shrunk towards these instead of 0.

        Raises:
            ParameterError: if the prior has another length, or is not positive.

        An empirical-Bayes rule: :func:`dpgrain.statistics.shrinkage.shrink`. The standard errors
        are then those of the fitted prior distribution instead of the noise. For counts and
        non-negative sums.
        """
        self._require_independent("shrunk")
        law = "laplace" if self.noise == "geometric" else self.noise
        known = ~np.isnan(self.estimate)
        if prior is not None and np.shape(prior) == known.shape:
            prior = np.asarray(prior)[known]
        estimate, error = self.estimate.copy(), self.std_error.copy()
        estimate[known], error[known] = shrink(estimate[known], error[known], prior, noise=law)
        return self._processed(["shrunk"], estimate, error, nonnegative=True)

    def consistent(self, total: float | None = None) -> Self:
        """Return the nearest non-negative estimates with a consistent sum: free post-processing.

        Args:
            total: a public total of the estimates; by default their sum. For a clipped sum, it is
                the total of clipped contributions: otherwise the clipped part of a few groups would
                be spread over all groups.

        Raises:
            ParameterError: if the total is negative.
        """
        self._require_independent("consistent")
        estimate, known = self.estimate.copy(), ~np.isnan(self.estimate)
        estimate[known] = consistent(estimate[known], self.std_error[known], total)
        return self._processed(["consistent"], estimate, self.std_error, nonnegative=True)

    def reconciled(self, totals: Histogram) -> tuple[Self, Histogram]:
        """Combine both releases so that the parts add up to the totals.

        Args:
            totals: a release of the same statistic by some of this one's keys, such as counts by
                item for counts by item and month. Every group of it must have parts here, and every
                part its total. If contributions are clipped, all groups of both need the same bound.

        Returns:
            This release and the totals, each with smaller standard errors and with the guarantee of
            both releases together, because each then depends on both. No further budget is spent.

        Raises:
            ParameterError: if the keys do not fit, a group is missing or blank, the two are of
                different statistics or the same release, or have different clipping bounds, or their
                guarantees are for different units.
        """
        self._require_independent("reconciled")
        if not isinstance(totals, Histogram) or _measured(totals) != _measured(self):
            raise ParameterError(
                f"totals must be a release of the same statistic, {_measured(self)}, not of "
                f"{_measured(totals) if isinstance(totals, Release) else type(totals).__name__}."
            )
        totals._require_independent("reconciled")
        if totals.hash == self.hash:
            raise ParameterError(
                "totals must be another release, not this one, because its noise would be "
                "counted twice."
            )
        clipped = self.metadata.is_clipped or totals.metadata.is_clipped
        bounds = np.unique(np.concatenate([self.clip, totals.clip]))
        if clipped and bounds.size > 1:
            raise ParameterError(
                "totals must have the clipping bound of the parts, not bounds from "
                f"{format_limit(bounds[0])} to {format_limit(bounds[-1])}, because clipped parts then "
                "add up to less than their total; pass the same clip= for both."
            )
        if np.isnan(self.estimate).any() or np.isnan(totals.estimate).any():
            raise ParameterError(
                "totals and parts must have all estimates, but some are blank, because nothing stood "
                "out from the noise; pass clip= and bounds=, or a larger epsilon=, for both."
            )
        both = self.guarantee + totals.guarantee
        group = self.groups.codes_in(totals.groups)
        parts, parts_sd, whole, whole_sd = reconcile(
            self.estimate, self.std_error, totals.estimate, totals.std_error, group
        )
        return (
            replace(self._processed(["reconciled"], parts, parts_sd), guarantee=both),
            replace(totals._processed(["reconciled"], whole, whole_sd), guarantee=both),
        )

    def difference(self, a: Any, b: Any = None) -> Comparison:
        """Return the noisy number of group ``a`` minus that of ``b``: free post-processing.

        Args:
            a: the group's value, also as it is printed; for several keys, a tuple of values in their
                order.
            b: the other group's value.

        Raises:
            ParameterError: if a group is missing, the estimates were post-processed or selected as
                the largest, clipping bounds differ, or the groups are cells of marginals.

        The noise of different groups is independent. The interval is for clipped quantities; no
        lower bound exists for unclipped ones.

        >>> import pyarrow as pa
        >>> from dpgrain import User, count, read
        >>> rows = pa.table({"who": range(900), "year": [2024] * 400 + [2025] * 500})
        >>> visits = count(read(rows, user="who"), by="year", domain=[2024, 2025], clip=1,
        ...                unit=User(), epsilon=1, delta=1e-6, random_state=1)
        >>> print(visits.difference(2025, 2024))  # doctest: +NORMALIZE_WHITESPACE
        Difference of clipped totals, 2025 − 2024: 100.7 ± 2.0 (95% interval 96.5 to 105.0; without
        clipping, any value is possible)
        Warning: the share of clipped units was not estimated, so the two totals without clipping
        may differ by more: pass estimate_clipping=True, or a clip= above the contributions of
        heavy users.
        """
        self._require_independent("difference")
        return compare(self, "difference", a, b)

    def ratio(self, a: Any, b: Any = None) -> Comparison:
        """Return the noisy number of group ``a`` divided by that of ``b``: free post-processing.

        Args:
            a: the group's value, as in :meth:`difference`.
            b: the group of the divisor.

        Raises:
            ParameterError: as :meth:`difference`.

        The interval is Fieller's, for clipped quantities. Without an estimate of ``b`` above the
        noise, the ratio is NaN.

        >>> import pyarrow as pa
        >>> from dpgrain import User, count, read
        >>> rows = pa.table({"who": range(900), "year": [2024] * 400 + [2025] * 500})
        >>> visits = count(read(rows, user="who"), by="year", domain=[2024, 2025], clip=1,
        ...                unit=User(), epsilon=1, delta=1e-6, random_state=1)
        >>> print(visits.ratio(2025, 2024))  # doctest: +NORMALIZE_WHITESPACE
        Ratio of clipped totals, 2025 ÷ 2024: 1.2522 ± 0.0057 (95% interval 1.2403 to 1.2643;
        without clipping, any value is possible)
        Warning: the share of clipped units was not estimated, so the two totals without clipping
        may differ by more: pass estimate_clipping=True, or a clip= above the contributions of
        heavy users.
        """
        self._require_independent("ratio")
        return compare(self, "ratio", a, b)

    def _require_independent(self, operation: str) -> None:
        """Reject cells of marginals, because their noise is correlated."""
        if self.statistic.stacked:
            raise ParameterError(
                f"{operation} requires groups with independent noise, but cells of marginals share "
                "noise; use the covariance of the marginals."
            )

    def _processed(
        self,
        how: Sequence[str],
        estimate: FloatArray,
        std_error: FloatArray,
        nonnegative: bool = False,
    ) -> Self:
        return replace(
            self,
            estimate=estimate,
            std_error=std_error,
            nonnegative=nonnegative,
            metadata=replace(self.metadata, processed=(*self.metadata.processed, *how)),
        )

    def order_loss(self, truth: ArrayLike, gamma: float) -> int:
        """Return the number of pairs in the wrong order: for research, because it needs the truth.

        Args:
            truth: (V,) the true frequencies p_j of the groups, in their order.
            gamma: γ; only pairs with true frequencies that differ by at least this value count.

        Returns:
            #{(j, l): p_j − p_l ≥ γ, p_j > p_l, estimate_j < estimate_l}. Source: element-level
            paper, eq. (8), without the expectation and with its second inequality reversed.

        Raises:
            ParameterError: if the truth has another length, or γ is negative.
        """
        p = _validate.float_array(truth=truth)
        gamma = _validate.non_negative(gamma=gamma)
        if p.shape != self.estimate.shape:
            raise ParameterError(f"truth must have shape ({len(self)},), not {p.shape}.")
        return misordered_pairs(p, self.estimate, gamma)


@dataclass(frozen=True, repr=False, eq=False)
class Estimates(Release):
    """Private means, variances or quantiles by group.

    Args:
        groups: (V,) the groups, with the rank as a last key for several quantiles.
        estimate: (V,) the estimates, within the bounds of the numbers.
        std_error: (V,) the approximate standard error due to noise.
        lower: (V,) the lower end of a 95% interval for the noise-free estimate.
        upper: (V,) the upper end of that interval.
        count: (V,) the noisy number of records behind each estimate, after clipping.
        guarantee: the guarantee of the release.
        metadata: the public facts of the release: its parameters, and the outcome of private choices.
        count_error: (V,) the standard error of the count; None if unknown.

    >>> import pyarrow as pa
    >>> from dpgrain import User, mean, read
    >>> ages = read(pa.table({"who": list(range(1000)), "age": [20, 40] * 500}), user="who")
    >>> found = mean(
    ...     ages, "age", unit=User(), bounds=(0, 99), epsilon=1.0, delta=1e-6, random_state=1)
    >>> round(found.value), bool(found.low[0] < 30 < found.high[0])
    (30, True)
    >>> found.to_arrow().column_names
    ['estimate', 'std_error', 'low', 'high', 'count', 'count_error']
    """

    groups: Groups
    estimate: FloatArray
    std_error: FloatArray
    lower: FloatArray
    upper: FloatArray
    count: FloatArray
    guarantee: Guarantee
    metadata: ReleaseMetadata
    count_error: FloatArray | None = None

    def _people(self) -> FloatArray | None:
        """Return the noisy numbers of people behind the estimates, if these are of people."""
        return self.count if self.metadata.over == "people" else None

    @property
    def low(self) -> FloatArray:
        """Lower end of a 95% interval for the noise-free estimate, (V,)."""
        return self.lower

    @property
    def high(self) -> FloatArray:
        """Upper end of a 95% interval for the noise-free estimate, (V,)."""
        return self.upper

    def _row_cautions(self) -> Array:
        empty = [np.isnan(self.estimate), np.isinf(self.lower), np.isinf(self.upper)]
        return np.select(empty, ["no-estimate", "no-low", "no-high"], "")

    @property
    def more(self) -> dict[str, FloatArray]:
        """Noisy number of records behind each estimate, after clipping, with its error."""
        known = {} if self.count_error is None else {"count_error": self.count_error}
        return {"count": self.count, **known}

    def _columns(self) -> dict[str, FloatArray]:
        return {
            "estimate": self.estimate,
            "std_error": self.std_error,
            "lower": self.lower,
            "upper": self.upper,
            **self.more,
        }


def _measured(release: Release) -> str:
    """Return the quantity of a release, for any groups."""
    name, value = (
        quantities.quantity_name(release.metadata),
        quantities.value_text(release.metadata),
    )
    return name if value is None else f"{name} ({value})"
