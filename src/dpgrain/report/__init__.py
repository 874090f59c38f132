"""Self-contained HTML reports, and plots.

:func:`report` writes anything with a page, and :func:`plot` draws it. The module of a page is imported
when a page of its type is first written. A page loads nothing from the network: styles and plots are
inline, and a content security policy forbids everything else. Anyone may have written names of items,
so templates and plots escape them and shorten long ones. All pages are post-processing of published
numbers and cost no budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._lazy_import import require
from dpgrain._report_mixins import (
    PACKAGES,
    AuditReportMixin,
    BudgetReportMixin,
    GuaranteeReportMixin,
    LedgerReportMixin,
    ModelReportMixin,
    PlanReportMixin,
    ReleaseReportMixin,
    ReleasesReportMixin,
    SumReportMixin,
    TrainingReportMixin,
)
from dpgrain.errors import ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpgrain.auditing.verdict import Audit
    from dpgrain.learn import LinearModel
    from dpgrain.ledger import Ledger
    from dpgrain.planning.count_error import UnitsPlan
    from dpgrain.publishing.budget import Budget
    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.releases.run import Releases
    from dpgrain.shuffle.protocol import ShuffledSum
    from dpgrain.statistics.contribution_counts import Holdings
    from dpgrain.statistics.release import Release
    from dpgrain.torch.training_result import Training

require(*PACKAGES)

__all__ = [
    "notebook_html",
    "plot",
    "report",
    "write_budget_report",
    "write_fit_report",
    "write_guarantee_report",
    "write_ledger_report",
    "write_releases_report",
    "write_report",
    "write_shuffle_report",
    "write_training_report",
]


@singledispatch
def report(thing: object, path: str | Path, **how: Any) -> Path:  # noqa: ARG001 - pages use it
    """Write a release, guarantee, model, network, sum or ledger as one HTML file.

    Args:
        thing: the object to write.
        path: where to write; the folder must exist.
        **how: the options of its page, such as ``holdings`` for a release.

    Returns:
        The path.

    Raises:
        ParameterError: if the object has no page.
        DataError: if the file cannot be written.

    >>> report(5, "five.html")
    Traceback (most recent call last):
    ...
    dpgrain.errors.ParameterError: report requires a release, guarantee, model, sum or ledger, not int.
    """
    raise ParameterError(
        f"report requires a release, guarantee, model, sum or ledger, not {type(thing).__name__}."
    )


@report.register(ReleaseReportMixin)
def write_report(release: Release, path: str | Path, holdings: Holdings | None = None) -> Path:
    """Write a release: estimates with intervals, guarantee, granularity curve and request.

    Args:
        release: a published release of any type.
        path: where to write; the folder must exist.
        holdings: a contribution distribution, drawn next to the granularity curve.

    Raises:
        ParameterError: if the holdings have another type or partition.
        DataError: if the file cannot be written.

    The file stays below 1 MB for any number of groups.
    """
    from dpgrain.report.contributions import check_holdings
    from dpgrain.report.page import write_page
    from dpgrain.report.release import release_page

    if holdings is not None:
        check_holdings(release, holdings)
    return write_page(path, partial(release_page, release, holdings))


@report.register(GuaranteeReportMixin)
def write_guarantee_report(guarantee: Guarantee, path: str | Path) -> Path:
    """Write a guarantee for privacy officers: what is guaranteed, what is not, and its hash."""
    from dpgrain.report.page import guarantee_page, write_page

    return write_page(path, partial(guarantee_page, guarantee))


@report.register(BudgetReportMixin)
def write_budget_report(budget: Budget, path: str | Path, releases: Mapping[str, Any]) -> Path:
    """Write several releases of one budget: one guarantee for all, and the numbers of each.

    Args:
        budget: the budget, open or closed.
        path: where to write; the folder must exist.
        releases: the releases by their names on the page.

    Raises:
        ParameterError: if there are none, or one was not charged to the budget.
        DataError: if the file cannot be written.
    """
    from dpgrain.report.page import write_page
    from dpgrain.report.releases import budget_page, require_releases

    require_releases(budget, releases)
    return write_page(path, partial(budget_page, budget, releases))


@report.register(ModelReportMixin)
def write_fit_report(model: LinearModel, path: str | Path) -> Path:
    """Write a fitted model: coefficients, guarantee, training curve and settings."""
    from dpgrain.report.fit import fit_page
    from dpgrain.report.page import write_page

    return write_page(path, partial(fit_page, model))


@report.register(TrainingReportMixin)
def write_training_report(training: Training, path: str | Path) -> Path:
    """Write a trained network: measures, guarantee, norms of gradients and the cost of a step."""
    from dpgrain.report.page import write_page
    from dpgrain.report.training import training_page

    return write_page(path, partial(training_page, training))


@report.register(SumReportMixin)
def write_shuffle_report(protocol: ShuffledSum, path: str | Path) -> Path:
    """Write a shuffled sum: guarantee, trust assumptions, corrupt devices, traffic and noise."""
    from dpgrain.report.page import write_page
    from dpgrain.report.shuffle import shuffle_page

    return write_page(path, partial(shuffle_page, protocol))


@report.register(LedgerReportMixin)
def write_ledger_report(ledger: Ledger, path: str | Path) -> Path:
    """Write a ledger: promises, remaining budget, the last 500 lines, and how to verify them."""
    from dpgrain.report.ledger import ledger_page
    from dpgrain.report.page import write_page

    return write_page(path, partial(ledger_page, ledger))


@report.register(ReleasesReportMixin)
def write_releases_report(releases: Releases, path: str | Path) -> Path:
    """Write all releases of a file: their common guarantee, and the numbers of each."""
    from dpgrain.report.page import write_page
    from dpgrain.report.releases import releases_page

    return write_page(path, partial(releases_page, releases))


@singledispatch
def notebook_html(thing: object) -> str:
    """Return a release or a guarantee as HTML for a notebook.

    Raises:
        ParameterError: if it is neither.
    """
    raise ParameterError(f"thing must be a release or a guarantee, not {type(thing).__name__}.")


@notebook_html.register(ReleaseReportMixin)
def _release_html(release: Release) -> str:
    from dpgrain.report.notebook import release_html

    return release_html(release)


@notebook_html.register(GuaranteeReportMixin)
def _guarantee_html(guarantee: Guarantee) -> str:
    from dpgrain.report.notebook import guarantee_html

    return guarantee_html(guarantee)


@singledispatch
def plot(thing: object, ax: Axes | None = None, **how: Any) -> Axes:  # noqa: ARG001 - plots use it
    """Draw a release, guarantee, plan, model, network, shuffled sum, audit or ledger.

    Args:
        thing: the object to draw.
        ax: axes to draw on; new ones by default.
        **how: the options of its plot, such as ``top`` for a release.

    Returns:
        The axes.

    Raises:
        ParameterError: if the object has no plot.

    >>> plot(5)
    Traceback (most recent call last):
    ...
    dpgrain.errors.ParameterError: plot requires a release, guarantee, plan, model or sum, not int.
    """
    raise ParameterError(
        f"plot requires a release, guarantee, plan, model or sum, not {type(thing).__name__}."
    )


@plot.register(ReleaseReportMixin)
def _plot_release(
    release: Release, ax: Axes | None = None, *, top: int = 30, beside: Release | None = None
) -> Axes:
    from dpgrain.report.plots import plot_comparison, plot_estimates

    if beside is not None:
        return plot_comparison(release, beside, ax, top=top)
    return plot_estimates(release, ax, top=top)


@plot.register(GuaranteeReportMixin)
def _plot_guarantee(guarantee: Guarantee, ax: Axes | None = None) -> Axes:
    from dpgrain.report.plots import plot_curve

    return plot_curve(guarantee, ax)


@plot.register(AuditReportMixin)
def _plot_audit(audit: Audit, ax: Axes | None = None, *, units: int | None = None) -> Axes:
    from dpgrain.report.plots import plot_tradeoff

    return plot_tradeoff(audit, ax, units=units)


@plot.register(PlanReportMixin)
def _plot_plan(plan: UnitsPlan, ax: Axes | None = None) -> Axes:
    from dpgrain.report.plots import plot_units

    return plot_units(plan, ax)


@plot.register(ModelReportMixin)
def _plot_model(model: LinearModel, ax: Axes | None = None) -> Axes:
    from dpgrain.report.fit import plot_model

    return plot_model(model, ax)


@plot.register(TrainingReportMixin)
def _plot_network(
    training: Training, ax: Axes | None = None, *, measure: str | None = None
) -> Axes:
    from dpgrain.report.training import plot_network

    return plot_network(training, ax, measure=measure)


@plot.register(SumReportMixin)
def _plot_sum(protocol: ShuffledSum, ax: Axes | None = None) -> Axes:
    from dpgrain.report.shuffle import plot_protocol

    return plot_protocol(protocol, ax)


@plot.register(LedgerReportMixin)
def _plot_ledger(ledger: Ledger, ax: Axes | None = None) -> Axes:
    from dpgrain.report.ledger import plot_ledger

    return plot_ledger(ledger, ax)
