"""The page of a fitted model."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain.accounting import SampledGaussian
from dpgrain.accounting.limits import least_error_of_records, least_error_of_worlds, mean_order
from dpgrain.accounting.plan import Row
from dpgrain.learn import LinearModel
from dpgrain.learn.summary import Coefficient, Coefficients, coefficients
from dpgrain.learn.training import History
from dpgrain.report.deployment import shares_of_honest
from dpgrain.report.plots.estimates import (
    BLUE,
    FAINT,
    ORANGE,
    _interval_bars,
    _label_rows,
    _no_locator,
    _plain,
    _say,
    _width,
    _write_legend,
    contributions,
    plot_curve,
)
from dpgrain.report.release import _bound, _grains, _Odds, _parts, _plots, _template, _text
from dpgrain.report.words import label
from dpgrain.units import RELATIONS
from dpgrain.wording import powers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PLOTTED, _LISTED = 30, 200
# Records that a user may have, for what the limits would be.
_RECORDS = (1, 10, 100)
_TITLES = {
    "LogisticRegression": "logistic regression",
    "LinearRegression": "least squares",
    "HuberRegressor": "Huber regression",
    "QuantileRegressor": "quantile regression",
    "LinearSVC": "linear support vector machine",
    "PoissonRegressor": "Poisson regression",
}
_TRUST = {
    "central": "whoever fits",
    "shuffle": "nobody: devices add noise, and a trusted shuffler mixes what they send",
    "pan": "whoever fits, user by user; the state between two users may be seen once",
}
_LOSSES = {
    "LogisticRegression": "The score of a label is a sum of the features, weighted by coefficients; "
    "its exponential is in proportion to the label's probability.",
    "LinearRegression": "The prediction is a sum of the features, weighted by coefficients.",
    "HuberRegressor": "The prediction is a sum of the features, weighted by coefficients; errors "
    "beyond a threshold count as lines.",
    "QuantileRegressor": "A quantile of the target is a sum of the features, weighted by coefficients.",
    "LinearSVC": "The label is the sign of a sum of the features, weighted by coefficients.",
    "PoissonRegressor": "The logarithm of the expected count is a sum of the features, weighted by "
    "coefficients.",
}


def fit_page(model: LinearModel) -> str:
    """The report of a fit as HTML.

    Args:
        model: a fitted model.
    """
    from dpgrain import __version__

    guarantee, history = model.guarantee_, model.history_
    found = coefficients(model)
    plotted = _plotted(found)
    today = datetime.now(UTC)
    kind = type(model).__name__
    name = getattr(model, "target_", "")
    return _template("fit.html").render(
        guarantee=guarantee,
        sentence=_text(guarantee, 20_000),
        title=_TITLES[kind],
        lead=_lead(model),
        name=_text(name, 60),
        settings=[(key, _text(value)) for key, value in _settings(model)],
        elements=_text(guarantee.elements or "a public partition"),
        odds=_Odds(guarantee.epsilon(), guarantee.delta),
        delta=powers(guarantee.delta),
        one_in=f"{math.floor(1 / Fraction(repr(float(guarantee.delta)))):,}"
        if guarantee.delta
        else "",
        relations=RELATIONS,
        grains=_grains(guarantee),
        held=None,
        beside=False,
        wears=guarantee.epsilon(units=2) > guarantee.epsilon(),
        max_elements=_bound(guarantee, "max_elements"),
        selected=False,
        noun="item",
        fitted=True,
        shuffled=False,
        distorted="noise and clipping",
        trust=model.trust,
        honest=[
            (f"{share:.0%}", _Odds(epsilon, guarantee.delta))
            for share, epsilon in shares_of_honest(guarantee)
        ],
        curve_plots=_plots("curve", partial(plot_curve, guarantee), 320),
        blocks=next((c.block for c in contributions(guarantee.event)), guarantee.level),
        count=len(found.rows),
        intervals=found.intervals,
        caution=found.caution,
        lines=[
            (_text(row.name, 120), [found.text(value) for value in row.values])
            for row in found.rows[:_LISTED]
        ],
        plotted=len(plotted),
        weights=len([row for row in found.rows if not _is_intercept(row)]),
        coefficient_plots=_plots(
            "coefficients",
            partial(_plot_coefficients, plotted, intervals=found.intervals),
            90 + 24 * max(len(plotted), 2) + (44 if found.intervals else 0),
        ),
        training_plots=_plots("training", partial(plot_training, history), 320),
        rounds=model.n_iter_,
        last=_ratio(history),
        limits=_limits(model),
        events=[_text(event, 2000) for event in _parts(guarantee)],
        public=[_text(fact) for fact in guarantee.public],
        guarantee_json=json.dumps(guarantee.to_dict(), ensure_ascii=False, indent=1),
        version=__version__,
        date=f"{today:%Y-%m-%d}",
        year=f"{today:%Y}",
    )


@dataclass(frozen=True)
class _Limits:
    """How far the noise of a fit is from the least there can be, in clipping bounds.

    Args:
        users: the public number of users.
        noise: the rms noise of the mean of all rounds' gradients.
        rows: a user's records; the papers' lower bound as an order, the floor, the noise in floors.
    """

    users: str
    noise: str
    rows: list[tuple[str, str, str, str]]


def _limits(model: LinearModel) -> _Limits | None:
    """The limits where whole users were clipped; all from public numbers."""
    guarantee, history = model.guarantee_, model.history_
    run = next((part for part in _parts(guarantee) if isinstance(part, SampledGaussian)), None)
    n = None if run is None or run.level != "user" else _users(model, run)
    if n is None:
        return None
    dimension = history.gradients.shape[1]
    noise = history.noise_norm / (history.clip * math.sqrt(model.n_iter_))
    epsilon, delta, relation = guarantee.epsilon(), guarantee.delta, guarantee.relation

    def row(records: str, floor: float, order: float | None) -> tuple[str, str, str, str]:
        return (
            records,
            "" if order is None else Row("", order, kind="order").text,
            Row("", floor, kind="floor").text,
            f"{noise / floor:,.3g}" if floor > 0 else "",
        )

    rows = [
        row(
            f"{records:,}",
            least_error_of_records(
                epsilon, delta, n, records=records, dimension=dimension, relation=relation
            ),
            mean_order(epsilon, n, dimension=dimension, records=records),
        )
        for records in _RECORDS
    ]
    always = 2 * math.sqrt(least_error_of_worlds(epsilon, delta, n, relation=relation))
    rows.append(row("any number", always, None))
    return _Limits(f"{n:,}", Row("", noise).text, rows)


def _users(model: LinearModel, run: SampledGaussian) -> int | None:
    """The number of users that sums were divided by; None where it was not kept."""
    if (known := getattr(model, "n_users_", model.n_users)) is not None:
        return int(known)
    if model.evidence_ is not None:
        return model.evidence_.n_users
    if model.elements_per_user == "auto":
        return None
    # What sums were divided by follows from the noise of a mean.
    history = model.history_
    divisor = run.noise_multiplier * history.clip / history.noise_sd
    return max(round(divisor / (run.sampling_rate * model.elements_per_user)), 1)


def plot_training(history: History, ax: Axes) -> Axes:
    """Draw the norm of the noisy gradient, round by round, against what noise alone would be.

    Args:
        history: the rounds of a fit.
        ax: axes to draw on.
    """
    _plain(ax)
    norms = history.norms
    rounds = np.arange(1, len(norms) + 1)
    there = np.isfinite(norms) & (norms > 0)
    ax.set_xlabel("round")
    ax.set_ylabel("norm of the gradient")
    if not there.any():
        return _say(ax, "no gradient was finite")
    many = len(norms) > 60
    ax.plot(
        rounds[there],
        norms[there],
        "-" if many else "-o",
        color=BLUE,
        linewidth=1.2 if many else 1.6,
        markersize=3.5,
        label="noisy gradient",
    )
    ax.axhline(
        history.noise_norm, color=ORANGE, linestyle="--", linewidth=1.6, label="noise alone, about"
    )
    ends = np.append(norms[there], history.noise_norm)
    if ends.min() > 0 and ends.max() / ends.min() > 20:
        ax.set_yscale("log")
        ax.yaxis.set_minor_locator(_no_locator())
    else:
        ax.set_ylim(0, None)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    ax.grid(color=FAINT, linewidth=0.6)
    _write_legend(ax, list(ax.lines))
    return ax


def _plot_coefficients(rows: list[Coefficient], ax: Axes, *, intervals: bool) -> Axes:
    """One row for each coefficient, the first above."""
    _plain(ax)
    if not rows:
        return _say(ax, "there are no features")
    value = np.array([row.value for row in rows])
    places = np.arange(len(rows))
    low = high = value
    if intervals:
        centre, low, high = (
            np.array([getattr(row, end) for row in rows]) for end in ("corrected", "low", "high")
        )
        _interval_bars(ax, places, centre, low, high, label="95% interval")
        ax.plot(value, places, "D", color=ORANGE, markersize=4.5, label="used to predict")
        _write_legend(ax, ax.get_legend_handles_labels()[0])
    else:
        ax.plot(value, places, "o", color=BLUE, markersize=6)
    letters = min(max(10, int(4 * _width(ax))), 36)
    names = [label((_text(row.name, 120),), letters) for row in rows]
    _label_rows(ax, names, "", np.append(low, 0.0), np.append(high, 0.0), zero=True)
    ax.set_xlabel("coefficient")
    return ax


def _plotted(found: Coefficients) -> list[Coefficient]:
    """The coefficients that are drawn: the largest ones where they are many; no intercepts."""
    rows = [row for row in found.rows if not _is_intercept(row) and math.isfinite(row.value)]
    if len(rows) > _PLOTTED:
        rows = sorted(rows, key=lambda row: -abs(row.value))[:_PLOTTED]
    return rows


def _is_intercept(row: Coefficient) -> bool:
    return row.name == "intercept" or row.name.endswith(": intercept")


def _ratio(history: History) -> str:
    """How long the gradients of the last tenth of the rounds are, in lengths of noise alone."""
    if not len(history.norms):
        # The run ended in its first round.
        return ""
    last = history.norms[-max(1, len(history.norms) // 10) :]
    ratio = float(np.median(last)) / max(history.noise_norm, 1e-300)
    return f"{ratio:.3g}" if math.isfinite(ratio) else ""


def _lead(model: LinearModel) -> str:
    """What the model is, in a sentence."""
    kind = type(model).__name__
    if kind == "LogisticRegression" and len(model.classes_) == 2:
        return (
            f"The logarithm of the odds of {_text(model.classes_[1], 60)!r} is a sum of the features, "
            "weighted by coefficients."
        )
    return _LOSSES[kind]


def _settings(model: LinearModel) -> list[tuple[str, object]]:
    """What was asked, in words."""
    guarantee, auto = model.guarantee_, "chosen inside the budget"
    clip = f"{model.history_.clip:.4g}" + (f", {auto}" if model._clip == "auto" else "")
    per_user = model.elements_per_user
    solver = model._recipe or ("coin betting" if model.algorithm == "auto" else model.algorithm)
    asked: list[tuple[str, object]] = [
        ("Model", _TITLES[type(model).__name__]),
        ("Target", getattr(model, "target_", "as passed")),
        ("Features", f"{model.n_features_in_:,}"),
    ]
    classes = getattr(model, "classes_", None)
    if classes is not None:
        asked.append(("Labels", ", ".join(map(str, classes))))
    asked += [
        ("Privacy unit", model._unit),
        ("Who sees data", _TRUST[model.trust]),
        ("Partition into elements", guarantee.elements or "none"),
        ("Column of users", guarantee.user or "as passed"),
        ("Neighbouring relation", guarantee.relation),
        ("ε", f"{model.epsilon:g}"),
        ("δ", powers(model.delta)),
        ("Rounds", f"{model.n_iter_:,}"),
        ("Clipping bound of a mean gradient", clip),
        ("Blocks per user to divide by", auto if per_user == "auto" else f"{per_user:g}"),
        (
            "Bound on the norm of a row",
            "none" if model.feature_bound is None else f"{model.feature_bound:g}",
        ),
        ("Solver", solver),
        ("Ridge", f"{model.l2:g}"),
        ("Intercept", "yes" if model.fit_intercept else "no"),
        ("Share of the budget for intervals", f"{model.intervals:.4g}"),
    ]
    for name, what in (("quantile", "Quantile"), ("threshold", "Threshold of the error")):
        value: Any = getattr(model, name, None)
        if value is not None:
            asked.insert(3, (what, f"{value:g}"))
    return asked
