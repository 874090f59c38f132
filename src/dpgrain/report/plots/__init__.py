"""The plots of releases, fits and shuffled sums."""

from __future__ import annotations

from dpgrain.report.plots.estimates import (
    contributions,
    number,
    plot_bounds,
    plot_curve,
    plot_epsilons,
    plot_estimates,
    save_epsilons,
)

__all__ = [
    "contributions",
    "number",
    "plot_bounds",
    "plot_curve",
    "plot_epsilons",
    "plot_estimates",
    "save_epsilons",
]
