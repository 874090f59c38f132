"""Statistics of tables: histograms, top items, counts, sums, moments, quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.statistics.bounds import AutoClip
    from dpgrain.statistics.contribution_counts import Holdings, elements_per_user
    from dpgrain.statistics.covariances import correlation, covariance
    from dpgrain.statistics.distribution import distribution
    from dpgrain.statistics.group_estimates import Estimates, Histogram
    from dpgrain.statistics.histogram import count, histogram, sum  # noqa: A004 - the field's word
    from dpgrain.statistics.marginals import Marginals, marginals
    from dpgrain.statistics.moments import mean, std, variance
    from dpgrain.statistics.plan import SumsNoise, plan_histogram
    from dpgrain.statistics.quantiles import quantile, quantiles
    from dpgrain.statistics.ranges import AutoRange
    from dpgrain.statistics.release import Release
    from dpgrain.statistics.top import top

__all__ = [
    "AutoClip",
    "AutoRange",
    "Estimates",
    "Histogram",
    "Holdings",
    "Marginals",
    "Release",
    "SumsNoise",
    "correlation",
    "count",
    "covariance",
    "distribution",
    "elements_per_user",
    "histogram",
    "marginals",
    "mean",
    "plan_histogram",
    "quantile",
    "quantiles",
    "std",
    "sum",
    "top",
    "variance",
]

#: Module of each statistic by name. A line here adds a function of ``dpgrain``, a command and a
#: name in release files.
OFFERED = {
    "count": "dpgrain.statistics.histogram",
    "sum": "dpgrain.statistics.histogram",
    "mean": "dpgrain.statistics.moments",
    "variance": "dpgrain.statistics.moments",
    "std": "dpgrain.statistics.moments",
    "covariance": "dpgrain.statistics.covariances",
    "correlation": "dpgrain.statistics.covariances",
    "quantiles": "dpgrain.statistics.quantiles",
    "distribution": "dpgrain.statistics.distribution",
    "histogram": "dpgrain.statistics.histogram",
    "top": "dpgrain.statistics.top",
    "elements_per_user": "dpgrain.statistics.contribution_counts",
    "marginals": "dpgrain.statistics.marginals",
}

lazy_package(
    __name__,
    {
        "dpgrain.statistics.bounds": ("AutoClip",),
        "dpgrain.statistics.contribution_counts": ("Holdings",),
        "dpgrain.statistics.marginals": ("Marginals",),
        "dpgrain.statistics.plan": ("SumsNoise", "plan_histogram"),
        "dpgrain.statistics.quantiles": ("quantile",),
        "dpgrain.statistics.group_estimates": ("Estimates", "Histogram"),
        "dpgrain.statistics.release": ("Release",),
        "dpgrain.statistics.ranges": ("AutoRange",),
    },
    OFFERED,
)
