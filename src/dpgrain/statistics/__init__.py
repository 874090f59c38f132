"""Statistics of tables: histograms, top items, counts, sums, means, variances, quantiles."""

from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.histogram import count, histogram, sum
from dpgrain.statistics.moments import mean, variance
from dpgrain.statistics.plan import Plan, plan_histogram
from dpgrain.statistics.quantiles import quantile, quantiles
from dpgrain.statistics.release import Estimates, Histogram, Release
from dpgrain.statistics.values import AutoRange

__all__ = [
    "AutoClip",
    "AutoRange",
    "Estimates",
    "Histogram",
    "Plan",
    "Release",
    "count",
    "histogram",
    "mean",
    "plan_histogram",
    "quantile",
    "quantiles",
    "sum",
    "variance",
]
