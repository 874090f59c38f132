"""Self-contained HTML reports, and plots.

:func:`report` writes anything with a page, and :func:`plot` draws it. The module of a page is imported
when a page of its type is first written. A page loads nothing from the network: styles and plots are
inline, and a content security policy forbids everything else. Anyone may have written names of items,
so templates and plots escape them and shorten long ones. All pages are post-processing of published
numbers and cost no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain import _report_mixins as mixins
from dpgrain._lazy_import import require
from dpgrain.errors import ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

require(*mixins.PACKAGES)

__all__ = ["notebook_html", "plot", "report"]

# Function that returns the page of each type, …
_PAGES: dict[type, str] = {
    mixins.ReleaseReportMixin: "release.release_page",
    mixins.GuaranteeReportMixin: "page.guarantee_page",
    mixins.BudgetReportMixin: "releases.budget_page",
    mixins.ModelReportMixin: "releases.fit_page",
    mixins.TrainingReportMixin: "training.training_page",
    mixins.SumReportMixin: "shuffle.shuffle_page",
    mixins.LedgerReportMixin: "ledger.ledger_page",
    mixins.ReleasesReportMixin: "releases.releases_page",
}
# … function that draws its plot, …
_PLOTS: dict[type, str] = {
    mixins.ReleaseReportMixin: "release.plot_release",
    mixins.GuaranteeReportMixin: "plots.curve.plot_curve",
    mixins.AuditReportMixin: "plots.tradeoff.plot_tradeoff",
    mixins.PlanReportMixin: "plots.units.plot_units",
    mixins.ModelReportMixin: "releases.plot_model",
    mixins.TrainingReportMixin: "training.plot_network",
    mixins.SumReportMixin: "shuffle.plot_protocol",
    mixins.LedgerReportMixin: "ledger.plot_ledger",
}
# … and function that returns it as HTML for a notebook.
_NOTEBOOKS: dict[type, str] = {
    mixins.ReleaseReportMixin: "notebook.release_html",
    mixins.GuaranteeReportMixin: "notebook.guarantee_html",
}


def report(thing: object, path: str | Path, **how: Any) -> Path:
    """Write a release, guarantee, model, network, sum or ledger as one HTML file.

    Args:
        thing: the object to write.
        path: where to write; the folder must exist.
        **how: the options of its page, such as ``holdings`` for a release.

    Returns:
        The path. The file of a release stays below 1 MB for any number of groups.

    Raises:
        ParameterError: if the object has no page.
        DataError: if the file cannot be written.

    >>> report(5, "five.html")
    Traceback (most recent call last):
    ...
    dpgrain.errors.ParameterError: report requires a release, guarantee, model, sum or ledger, not int.
    """
    page = _function(_PAGES, thing, "report requires a release, guarantee, model, sum or ledger")
    from dpgrain.report.page import write_page

    return write_page(path, partial(page, thing, **how))


def notebook_html(thing: object) -> str:
    """Return a release or a guarantee as HTML for a notebook.

    Raises:
        ParameterError: if it is neither.
    """
    html: str = _function(_NOTEBOOKS, thing, "thing must be a release or a guarantee")(thing)
    return html


def plot(thing: object, ax: Axes | None = None, **how: Any) -> Axes:
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
    draw = _function(_PLOTS, thing, "plot requires a release, guarantee, plan, model or sum")
    axes: Axes = draw(thing, ax, **how)
    return axes


def _function(table: Mapping[type, str], thing: object, required: str) -> Callable[..., Any]:
    """Return the function for the type of an object, from its module of this package."""
    for kind, name in table.items():
        if isinstance(thing, kind):
            module, _, function = name.rpartition(".")
            found: Callable[..., Any] = getattr(import_module(f"{__name__}.{module}"), function)
            return found
    raise ParameterError(f"{required}, not {type(thing).__name__}.")
