"""Self-explaining pages for those responsible for the privacy of people, and plots.

:func:`report` writes whatever has a page, and :func:`plot` draws it; each page is a module of its own,
which is loaded when a page of its kind is first written. A page loads nothing from anywhere: styles
and plots are inside, and a content security policy forbids the rest. Names of items come from a table
that anybody may have written to: they are text, escaped by the templates and by the plots, cut where
they are long.
"""

from __future__ import annotations

from functools import partial, singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._shown import (
    ShownAudit,
    ShownGuarantee,
    ShownLedger,
    ShownModel,
    ShownPlan,
    ShownRelease,
    ShownReleases,
    ShownSum,
    ShownTraining,
)
from dpgrain.errors import ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpgrain.auditing.verdict import Audit
    from dpgrain.learn import LinearModel
    from dpgrain.ledger import Ledger
    from dpgrain.planning.units import UnitsPlan
    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.releases.run import Releases
    from dpgrain.shuffle.protocol import ShuffledSum
    from dpgrain.statistics.holdings import Holdings
    from dpgrain.statistics.release import Release
    from dpgrain.torch.trained import Training

__all__ = [
    "notebook_html",
    "plot",
    "report",
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
    """Write a release, a promise, a model, a network, a sum or a ledger as one HTML file.

    Args:
        thing: the release, promise, model, network, sum or ledger to write.
        path: where to write; the folder must exist.
        **how: the options of a page of its kind, such as ``holdings`` for a release.

    Returns:
        The path.

    Raises:
        ParameterError: if there is no page for such a thing.
        DataError: if the file cannot be written; none is left behind then.

    All of it is post-processing of what was published, or follows from public numbers: a page costs no
    budget.

    >>> report(5, "five.html")
    Traceback (most recent call last):
    ...
    dpgrain.errors.ParameterError: report requires a release, guarantee, model, sum or ledger, not int.
    """
    raise ParameterError(
        f"report requires a release, guarantee, model, sum or ledger, not {type(thing).__name__}."
    )


@report.register(ShownRelease)
def write_report(release: Release, path: str | Path, holdings: Holdings | None = None) -> Path:
    """Write a release as one self-contained HTML file.

    Args:
        release: a published release of any kind.
        path: where to write; the folder must exist.
        holdings: how much users hold, a second release, to show beside the granularity curve.

    Returns:
        The path.

    Raises:
        ParameterError: if the holdings are none, or of another partition than the release.
        DataError: if the file cannot be written; none is left behind then.

    The file holds what was asked, the promise in plain words, the granularity curve, the estimates
    with their intervals, the clipping bounds and what happened. It stays below 1 MB whatever the number
    of groups. All of it is post-processing of what was released: it costs no budget.
    """
    from dpgrain.report.held import check_holdings
    from dpgrain.report.page import write_page
    from dpgrain.report.release import release_page

    if holdings is not None:
        check_holdings(release, holdings)
    return write_page(path, partial(release_page, release, holdings))


@report.register(ShownGuarantee)
def write_guarantee_report(guarantee: Guarantee, path: str | Path) -> Path:
    """Write a promise as one self-contained HTML file, for whoever answers for people's privacy.

    Args:
        guarantee: a promise, such as the ``guarantee`` of a release.
        path: where to write; the folder must exist.

    Returns:
        The path.

    Raises:
        DataError: if the file cannot be written; none is left behind then.

    The file holds what is promised, for how many units, and what is not promised, with the version, the
    date and the hash of the promise; no estimates.
    """
    from dpgrain.report.guarantee import guarantee_page
    from dpgrain.report.page import write_page

    return write_page(path, partial(guarantee_page, guarantee))


@report.register(ShownModel)
def write_fit_report(model: LinearModel, path: str | Path) -> Path:
    """Write a fitted model as one self-contained HTML file.

    Args:
        model: a fitted estimator of :mod:`dpgrain.learn`.
        path: where to write; the folder must exist.

    Returns:
        The path.

    Raises:
        DataError: if the file cannot be written; none is left behind then.

    The file holds the promise in plain words, the granularity curve, the coefficients (with intervals,
    where the fit kept budget for them), the training curve, what was public and all settings. All of it
    is post-processing of what the fit published: it costs no budget.
    """
    from dpgrain.report.fit import fit_page
    from dpgrain.report.page import write_page

    return write_page(path, partial(fit_page, model))


@report.register(ShownTraining)
def write_training_report(training: Training, path: str | Path) -> Path:
    """Write a privately trained network as one self-contained HTML file.

    Args:
        training: what :func:`dpgrain.torch.train` returns.
        path: where to write; the folder must exist.

    Returns:
        The path.

    Raises:
        DataError: if the file cannot be written; none is left behind then.

    The file holds the promise in plain words, the granularity curve, what evaluation has said while
    the network was trained, the norms of gradients against noise, and what a step cost. All of it is
    post-processing of the steps: it costs no budget.
    """
    from dpgrain.report.page import write_page
    from dpgrain.report.training import training_page

    return write_page(path, partial(training_page, training))


@report.register(ShownSum)
def write_shuffle_report(protocol: ShuffledSum, path: str | Path) -> Path:
    """Write a shuffled sum as one self-contained HTML file.

    Args:
        protocol: a shuffled sum.
        path: where to write; the folder must exist.

    Returns:
        The path.

    Raises:
        DataError: if the file cannot be written; none is left behind then.

    The file holds the promise in plain words, who is trusted with what, ε as a function of the share of
    honest devices, what a corrupt device can do, the traffic, the noise and the granularity curve. All
    of it follows from public numbers: it costs no budget.
    """
    from dpgrain.report.page import write_page
    from dpgrain.report.shuffle import shuffle_page

    return write_page(path, partial(shuffle_page, protocol))


@report.register(ShownLedger)
def write_ledger_report(ledger: Ledger, path: str | Path) -> Path:
    """Write a ledger as one self-contained HTML file, for whoever answers for people's privacy.

    Args:
        ledger: a ledger.
        path: where to write; the folder must exist.

    Returns:
        The path.

    Raises:
        DataError: if the ledger cannot be read, or the file cannot be written; none is left then.

    The file holds the promises and what is left of each, when what was released about which window,
    each release with its sentence, the curve for several units over everything so far, and how to check
    all of it. The last 500 lines are listed.
    """
    from dpgrain.report.ledger import ledger_page
    from dpgrain.report.page import write_page

    return write_page(path, partial(ledger_page, ledger))


@report.register(ShownReleases)
def write_releases_report(releases: Releases, path: str | Path) -> Path:
    """Write the releases of a file as one self-contained HTML file.

    Args:
        releases: the releases.
        path: where to write; the folder must exist.

    Returns:
        The path.

    Raises:
        DataError: if the file cannot be written; none is left behind then.

    The file holds the promise of all releases together in plain words, its granularity curve, and each
    release with its own promise and its numbers. All of it is post-processing of what was released.
    """
    from dpgrain.report.page import write_page
    from dpgrain.report.releases import releases_page

    return write_page(path, partial(releases_page, releases))


@singledispatch
def notebook_html(thing: object) -> str:
    """Return a release or a promise as HTML for a notebook.

    Args:
        thing: the release or the promise.

    Raises:
        ParameterError: if it is neither.
    """
    raise ParameterError(f"thing must be a release or a guarantee, not {type(thing).__name__}.")


@notebook_html.register(ShownRelease)
def _release_html(release: Release) -> str:
    from dpgrain.report.notebook import release_html

    return release_html(release)


@notebook_html.register(ShownGuarantee)
def _guarantee_html(guarantee: Guarantee) -> str:
    from dpgrain.report.notebook import guarantee_html

    return guarantee_html(guarantee)


@singledispatch
def plot(thing: object, ax: Axes | None = None, **how: Any) -> Axes:  # noqa: ARG001 - plots use it
    """Draw a release, a promise, a plan, a fitted model, a trained network, a shuffled sum or a ledger.

    Args:
        thing: the thing to draw: the estimates of a release, the curve of a promise, the errors of a
            plan, the trade-off of an audit, the coefficients of a model, ε of a shuffled sum over the
            share of honest devices, when the releases of a ledger were made.
        ax: axes to draw on; new ones by default.
        **how: the options of a plot of its kind, such as ``top`` for a release.

    Returns:
        The axes.

    Raises:
        ParameterError: if there is no plot of such a thing.

    >>> plot(5)
    Traceback (most recent call last):
    ...
    dpgrain.errors.ParameterError: plot requires a release, guarantee, plan, model or sum, not int.
    """
    raise ParameterError(
        f"plot requires a release, guarantee, plan, model or sum, not {type(thing).__name__}."
    )


@plot.register(ShownRelease)
def _plot_release(
    release: Release, ax: Axes | None = None, *, top: int = 30, beside: Release | None = None
) -> Axes:
    from dpgrain.report.plots import plot_beside, plot_estimates

    if beside is not None:
        return plot_beside(release, beside, ax, top=top)
    return plot_estimates(release, ax, top=top)


@plot.register(ShownGuarantee)
def _plot_guarantee(guarantee: Guarantee, ax: Axes | None = None) -> Axes:
    from dpgrain.report.plots import plot_curve

    return plot_curve(guarantee, ax)


@plot.register(ShownAudit)
def _plot_audit(audit: Audit, ax: Axes | None = None, *, units: int | None = None) -> Axes:
    from dpgrain.report.plots import plot_tradeoff

    return plot_tradeoff(audit, ax, units=units)


@plot.register(ShownPlan)
def _plot_plan(plan: UnitsPlan, ax: Axes | None = None) -> Axes:
    from dpgrain.report.plots import plot_units

    return plot_units(plan, ax)


@plot.register(ShownModel)
def _plot_model(model: LinearModel, ax: Axes | None = None) -> Axes:
    from dpgrain.report.fit import plot_model

    return plot_model(model, ax)


@plot.register(ShownTraining)
def _plot_network(
    training: Training, ax: Axes | None = None, *, measure: str | None = None
) -> Axes:
    from dpgrain.report.training import plot_network

    return plot_network(training, ax, measure=measure)


@plot.register(ShownSum)
def _plot_sum(protocol: ShuffledSum, ax: Axes | None = None) -> Axes:
    from dpgrain.report.shuffle import plot_protocol

    return plot_protocol(protocol, ax)


@plot.register(ShownLedger)
def _plot_ledger(ledger: Ledger, ax: Axes | None = None) -> Axes:
    from dpgrain.report.ledger import plot_ledger

    return plot_ledger(ledger, ax)
