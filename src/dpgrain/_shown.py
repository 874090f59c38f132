"""Plots and pages of things: the one door from the rooms below up to `report/`.

Releases, models, shuffled sums and ledgers offer `plot` and `report` where people look for them, but
how a page is written is no business of theirs. So the classes below carry the two methods, and load
`report/` only when one of them is called. By these classes `report/` knows which page a thing has,
which spares it from importing every room that has one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpgrain._later import is_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpgrain.statistics.holdings import Holdings
    from dpgrain.statistics.release import Release

#: Packages of the extra ``report``.
PACKAGES = ("jinja2", "matplotlib")


class Shown:
    """Something with a plot and a page."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw it; needs matplotlib.

        Args:
            ax: axes to draw on; new ones by default.
        """
        from dpgrain.report import plot

        return plot(self, ax)

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML file about it; returns its path.

        Args:
            path: where to write.

        Raises:
            DataError: if the file cannot be written.
        """
        from dpgrain.report import report

        return report(self, path)


class ShownRelease(Shown):
    """A release: its plot is the estimates."""

    def plot(self, ax: Axes | None = None, *, top: int = 30, beside: Release | None = None) -> Axes:
        """Draw the estimates with their 95% intervals; needs matplotlib.

        Args:
            ax: axes to draw on; new ones by default.
            top: how many groups: those with the largest estimates; of quantiles the first.
            beside: another release of the same statistic by the same keys, such as one for another
                unit: its estimates are drawn beside these, group by group.

        Raises:
            ParameterError: if the two releases do not compare.
        """
        from dpgrain.report import plot

        return plot(self, ax, top=top, beside=beside)

    def _repr_html_(self) -> str | None:
        """Return a picture, the first rows and the guarantee; None without the extra ``report``."""
        if not is_installed(*PACKAGES):
            return None
        from dpgrain.report import notebook_html

        return notebook_html(self)

    def report(self, path: str | Path, holdings: Holdings | None = None) -> Path:
        """Write one self-contained HTML file about the release; returns its path.

        Args:
            path: where to write.
            holdings: how much users hold, from :func:`dpgrain.elements_per_user`: shown beside the
                granularity curve. It is a second release, with a promise of its own.

        Raises:
            ParameterError: if the holdings are of another partition than the release.
            DataError: if the file cannot be written.
        """
        from dpgrain.report import report

        return report(self, path, holdings=holdings)


class ShownModel(Shown):
    """A fitted model: its plot is the coefficients, its page has the rounds as well."""


class ShownTraining(Shown):
    """A trained network: its plot is one of the measures made during training."""

    def plot(self, ax: Axes | None = None, *, measure: str | None = None) -> Axes:
        """Draw a measure, evaluation by evaluation; needs matplotlib.

        Args:
            ax: axes to draw on; new ones by default.
            measure: the name of the measure; by default the first, or the norms of gradients where
                nothing was evaluated.

        Raises:
            ParameterError: if there is no such measure.
        """
        from dpgrain.report import plot

        return plot(self, ax, measure=measure)


class ShownSum(Shown):
    """A shuffled sum: its plot is ε over the share of honest devices."""


class ShownLedger(Shown):
    """A ledger: its plot is the time of each release, above the window that it read."""


class ShownReleases:
    """The releases of a file: they have one page for all."""

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML file about them all; returns its path.

        Args:
            path: where to write.

        Raises:
            DataError: if the file cannot be written.
        """
        from dpgrain.report import report

        return report(self, path)


class ShownGuarantee(Shown):
    """A promise: its plot is the granularity curve, its page says what is promised and what is not."""

    def _repr_html_(self) -> str | None:
        """Return the sentence and the curve; None without the extra ``report``."""
        if not is_installed(*PACKAGES):
            return None
        from dpgrain.report import notebook_html

        return notebook_html(self)


class ShownAudit:
    """An audit: its plot is the trade-off of tests of two neighbours, beside the claim."""

    def plot(self, ax: Axes | None = None, *, units: int | None = None) -> Axes:
        """Draw the trade-off between false alarms and misses, beside the claim; needs matplotlib.

        Args:
            ax: axes to draw on; new ones by default.
            units: for how many units; by default the smallest number that was audited.

        Raises:
            ParameterError: if there is nothing to draw, as of real rows.
        """
        from dpgrain.report import plot

        return plot(self, ax, units=units)


class ShownPlan:
    """A plan of several units: its plot is the error over ε, unit by unit."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw it; needs matplotlib.

        Args:
            ax: axes to draw on; new ones by default.
        """
        from dpgrain.report import plot

        return plot(self, ax)
