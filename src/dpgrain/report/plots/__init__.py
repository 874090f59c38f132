"""The plots of releases, fits, shuffled sums and ledgers.

Each draws on the axes of its caller. Without axes it uses pyplot, so that a notebook shows the figure.
"""

from __future__ import annotations

from dpgrain.report.plots.bounds import plot_bounds
from dpgrain.report.plots.coefficients import plot_coefficients
from dpgrain.report.plots.comparison import plot_comparison
from dpgrain.report.plots.curve import plot_curve, plot_epsilons, save_epsilons
from dpgrain.report.plots.estimates import plot_estimates
from dpgrain.report.plots.honest import plot_honest
from dpgrain.report.plots.tradeoff import plot_tradeoff, save_audits
from dpgrain.report.plots.training import plot_measure, plot_training
from dpgrain.report.plots.units import plot_units, save_units
from dpgrain.report.plots.windows import plot_timeline, plot_used
from dpgrain.words.odds import contributions

__all__ = [
    "contributions",
    "plot_bounds",
    "plot_coefficients",
    "plot_comparison",
    "plot_curve",
    "plot_epsilons",
    "plot_estimates",
    "plot_honest",
    "plot_measure",
    "plot_timeline",
    "plot_tradeoff",
    "plot_training",
    "plot_units",
    "plot_used",
    "save_audits",
    "save_epsilons",
    "save_units",
]
