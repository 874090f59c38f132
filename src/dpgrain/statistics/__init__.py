"""Statistics of tables: histograms."""

from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.histogram import histogram
from dpgrain.statistics.plan import HistogramPlan, plan_histogram
from dpgrain.statistics.release import Histogram

__all__ = ["AutoClip", "Histogram", "HistogramPlan", "histogram", "plan_histogram"]
