"""Mix-ins that add `plot` and `report`: the only imports of `report/` from below.

Releases, models, shuffled sums and ledgers inherit both methods from the classes below, which
import `report/` at the first call. `report/` names its pages by these classes, so that it need not
import every package with a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._lazy_import import is_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpgrain.statistics.contribution_counts import Holdings
    from dpgrain.statistics.release import Release

#: Packages of the extra ``report``.
PACKAGES = ("jinja2", "matplotlib")


class PlotMixin:
    """An object with a plot."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw it; needs matplotlib.

        Args:
            ax: axes to draw on; new ones by default.
        """
        from dpgrain.report import plot

        return plot(self, ax)


class PageMixin:
    """An object with an HTML page."""

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML file about it; return its path.

        Args:
            path: where to write.

        Raises:
            DataError: if the file cannot be written.
        """
        from dpgrain.report import report

        return report(self, path)


class NotebookMixin:
    """An object that a notebook shows as HTML."""

    def _repr_html_(self) -> str | None:
        """Return the plot and the text for a notebook; None without the extra ``report``."""
        if not is_installed(*PACKAGES):
            return None
        from dpgrain.report import notebook_html

        return notebook_html(self)


class ReportMixin(PlotMixin, PageMixin):
    """An object with a plot and an HTML page."""


class ReleaseReportMixin(NotebookMixin, ReportMixin):
    """A release: its plot is the estimates."""

    def plot(self, ax: Axes | None = None, *, top: int = 30, beside: Release | None = None) -> Axes:
        """Draw the estimates with their 95% intervals; needs matplotlib.

        Args:
            ax: axes to draw on; new ones by default.
            top: the number of groups: those with the largest estimates, or the first quantiles.
            beside: another release of the same statistic by the same keys, such as one for another
                unit; its estimates are drawn next to these, group by group.

        Raises:
            ParameterError: if the two releases are not comparable.
        """
        from dpgrain.report import plot

        return plot(self, ax, top=top, beside=beside)

    def report(self, path: str | Path, holdings: Holdings | None = None) -> Path:
        """Write one self-contained HTML file about the release; returns its path.

        Args:
            path: where to write.
            holdings: the contributions of users, from :func:`dpgrain.elements_per_user`, shown next
                to the granularity curve. It is a second release with a separate guarantee.

        Raises:
            ParameterError: if the release uses another partition.
            DataError: if the file cannot be written.
        """
        from dpgrain.report import report

        return report(self, path, holdings=holdings)


class ModelReportMixin(ReportMixin):
    """A fitted model: its plot shows the coefficients, its page also the rounds."""


class TrainingReportMixin(ReportMixin):
    """A trained network: its plot shows one measure of the training."""

    def plot(self, ax: Axes | None = None, *, measure: str | None = None) -> Axes:
        """Draw a measure, evaluation by evaluation; needs matplotlib.

        Args:
            ax: axes to draw on; new ones by default.
            measure: the name of the measure; by default the first, or gradient norms without
                evaluations.

        Raises:
            ParameterError: if the measure does not exist.
        """
        from dpgrain.report import plot

        return plot(self, ax, measure=measure)


class SumReportMixin(ReportMixin):
    """A shuffled sum: its plot shows ε over the share of honest devices."""


class LedgerReportMixin(ReportMixin):
    """A ledger: its plot shows the time of each release and the window that it read."""


class ReleasesReportMixin(PageMixin):
    """The releases of a file, on one page."""


class BudgetReportMixin:
    """A budget, with its releases on one page."""

    def report(self, path: str | Path = "", releases: Mapping[str, Any] | None = None) -> Path:
        """Write one self-contained HTML file about several releases of the budget; return its path.

        Args:
            path: where to write.
            releases: the releases, fitted models and per-user means by their names on the page.

        Raises:
            ParameterError: if there are none, or one was not charged to this budget.
            DataError: if the file cannot be written.

        The guarantee of the page is the promise of the budget, which also covers releases that the
        page does not show.
        """
        from dpgrain.report import report

        return report(self, path, releases=releases)


class GuaranteeReportMixin(NotebookMixin, ReportMixin):
    """A guarantee: its plot shows the granularity curve, its page what is and is not protected."""


class AuditReportMixin:
    """An audit: its plot shows the trade-off between two neighbours and the claimed one."""

    def plot(self, ax: Axes | None = None, *, units: int | None = None) -> Axes:
        """Draw the trade-off between false alarms and misses, next to the claim; needs matplotlib.

        Args:
            ax: axes to draw on; new ones by default.
            units: the number of units; by default the smallest audited number.

        Raises:
            ParameterError: if there is nothing to draw, as for real rows.
        """
        from dpgrain.report import plot

        return plot(self, ax, units=units)


class PlanReportMixin(PlotMixin):
    """A plan of several units: its plot shows the error of each unit over ε."""
