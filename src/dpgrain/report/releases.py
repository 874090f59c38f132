"""The report of a release file, and the part of a fitted model: coefficients, rounds and noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from sklearn.utils.validation import check_is_fitted

from dpgrain import _validate
from dpgrain._files import exists, file_hash
from dpgrain._formatting import format_number, powers, rounded_up, useful_decimals
from dpgrain.accounting import SampledGaussian
from dpgrain.errors import ParameterError
from dpgrain.learn.model import LinearModel
from dpgrain.learn.rounds import History
from dpgrain.means.problem import get_method
from dpgrain.means.user_mean import MeanOfUsers
from dpgrain.papers.floors import mean_order, min_error_of_records, min_error_of_worlds
from dpgrain.planning.plan_tables import PlanRow
from dpgrain.planning.shuffle_plans import honest_shares
from dpgrain.publishing.budget import Budget
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.releases.run import Releases, guarantee_of
from dpgrain.report.figures import figures
from dpgrain.report.page import Check, PageFacts, Part, hash_numbers
from dpgrain.report.plots import plot_coefficients, plot_training
from dpgrain.report.plots.coefficients import largest
from dpgrain.report.release import release_check, release_part
from dpgrain.statistics.release import Release
from dpgrain.words import mean_text
from dpgrain.words.fit_text import Coefficient, Coefficients, coefficients, describe_model
from dpgrain.words.guarantee_text import elements_text
from dpgrain.words.headings import text
from dpgrain.words.odds import Odds, contributions
from dpgrain.words.plan_text import budget_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


__all__ = ["fit_page", "plot_model", "plot_training"]

_LISTED_ROWS = 200
# Examples of records per user in the table of limits.
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
    "central": "the curator",
    "shuffle": "no one: devices add noise, and a trusted shuffler mixes their messages",
    "pan": "the curator, user by user; the state between two users may be seen once",
}


def fit_page(model: LinearModel) -> str:
    """Return the report of a fit as HTML."""
    check_is_fitted(model)
    guarantee = model.guarantee_
    page = PageFacts(
        of="fit",
        guarantee=guarantee,
        distorted="noise and clipping",
        settings=tuple((key, text(value)) for key, value in _settings(model)),
        budget=budget_text(getattr(model, "shares_", {})),
        hashes=(model_check("Coefficients", model),),
    )
    return page.html(
        "fit.html",
        title=_TITLES[type(model).__name__],
        lead=describe_model(model),
        name=_target(model),
        trust=model.config_.trust,
        honest=[
            (f"{share:.0%}", Odds(epsilon, guarantee.delta))
            for share, epsilon in honest_shares(guarantee)
        ],
        **_estimated(coefficients(model)),
        **_trained(model),
        limits=_limits(model),
    )


def fit_part(model: LinearModel, salt: str) -> Part:
    """Return the coefficients of a model as one part of a page; no other part has this salt."""
    page = PageFacts(
        of="fit",
        guarantee=model.guarantee_,
        distorted="noise and clipping",
    )
    title, target = _TITLES[type(model).__name__], _target(model)
    body = page.html("_coefficients.html", inside=True, **_estimated(coefficients(model), salt))
    return Part(f"{title} of {target}" if target else title, page, Markup(body))


def model_check(name: str, model: LinearModel) -> Check:
    """Return the hash of the coefficients of a fitted model."""
    how = "hashlib.sha256(numpy.append(model.coef_, model.intercept_).astype('<f8')).hexdigest()"
    return (name, hash_numbers(np.append(model.coef_, model.intercept_)), how)


def _target(model: LinearModel) -> str:
    """Return the name of the target; empty for an array."""
    name = getattr(model, "target_", None)
    return "" if name is None else text(name, 60)


def plot_model(model: LinearModel, ax: Axes | None = None) -> Axes:
    """Draw the largest coefficients of a fitted model, with 95% intervals if it has them."""
    check_is_fitted(model)
    result = coefficients(model)
    return plot_coefficients(largest(result), ax, intervals=result.intervals)


def _estimated(summary: Coefficients, salt: str = "") -> dict[str, object]:
    """Return the coefficients as a table and a figure."""
    plotted = largest(summary)
    height = 90 + 24 * max(len(plotted), 2) + (44 if summary.intervals else 0)
    return {
        "count": len(summary.rows),
        "intervals": summary.intervals,
        "cautions": summary.cautions,
        "meaning": summary.explanations.values(),
        "unsure": summary.unsure,
        "headings": summary.headings,
        "lines": [
            (text(row.name, 120), [text(cell, 60) if cell else "" for cell in summary.cells(row)])
            for row in summary.rows[:_LISTED_ROWS]
        ],
        "plotted": len(plotted),
        "weights": len([row for row in summary.rows if not row.intercept]),
        "coefficient_plots": figures(
            f"{salt}coefficients",
            partial(plot_coefficients, plotted, intervals=summary.intervals),
            height,
            [_hover_text(summary, row) for row in plotted],
        ),
    }


def _hover_text(summary: Coefficients, row: Coefficient) -> str:
    """Return the hover text of a row of the figure."""
    cells = zip(summary.headings[1:], summary.cells(row), strict=True)
    return f"{text(row.name, 120)}: {', '.join(f'{name} {cell}' for name, cell in cells)}"


def _trained(model: LinearModel) -> dict[str, object]:
    """Return the training curve."""
    guarantee, history = model.guarantee_, model.history_
    return {
        "blocks": next((c.block for c in contributions(guarantee.event)), guarantee.level),
        "training_plots": figures("training", partial(plot_training, history), 320),
        "rounds": model.n_iter_,
        "warm_up": model.n_warm_up_,
        "last": _ratio(history),
    }


@dataclass(frozen=True)
class _Limits:
    """The noise of a fit and its lower bounds, in clipping bounds."""

    users: str  # public number
    noise: str  # rms noise of the mean of all rounds' gradients
    # Records per user, order of the lower bound, least error, and noise ÷ least error.
    rows: list[tuple[str, str, str, str]]


def _limits(model: LinearModel) -> _Limits | None:
    """Return the limits of a fit that clips whole users, from public numbers."""
    guarantee, history = model.guarantee_, model.history_
    run = next((part for part in guarantee.event.parts if isinstance(part, SampledGaussian)), None)
    n = None if run is None or run.level != "user" else _users(model)
    if n is None:
        return None
    dimension = history.gradients.shape[1]
    noise = history.noise_norm / (history.clip * math.sqrt(model.n_iter_))
    epsilon, delta, relation = guarantee.epsilon(), guarantee.delta, guarantee.relation

    def row(records: str, floor: float, order: float | None) -> tuple[str, str, str, str]:
        return (
            records,
            "" if order is None else PlanRow("", order, kind="order").text,
            PlanRow("", floor, kind="floor").text,
            f"{noise / floor:,.3g}" if floor > 0 else "",
        )

    rows = [
        row(
            f"{records:,}",
            min_error_of_records(
                epsilon, delta, n, records=records, dimension=dimension, relation=relation
            ),
            mean_order(epsilon, n, dimension=dimension, records=records),
        )
        for records in _RECORDS
    ]
    always = 2 * math.sqrt(min_error_of_worlds(epsilon, delta, n, relation=relation))
    rows.append(row("any number", always, None))
    return _Limits(f"{n:,}", PlanRow("", noise).text, rows)


def _users(model: LinearModel) -> int | None:
    """Return the number of users in the divisor of sums; None for some older files."""
    known = getattr(model, "n_users_", model.config_.n_users)
    if known is None and model.evidence_ is not None:
        known = model.evidence_.n_users
    return None if known is None else int(known)


def _ratio(history: History) -> str:
    """Return gradient norm ÷ noise norm in the last tenth of the rounds; empty without rounds."""
    if not len(history.norms):
        return ""
    last = history.norms[-max(1, len(history.norms) // 10) :]
    ratio = float(np.median(last)) / max(history.noise_norm, 1e-300)
    return f"{ratio:.3g}" if math.isfinite(ratio) else ""


def _rounds(model: LinearModel) -> str:
    """Return the number of charged rounds as text."""
    first, others = model.n_warm_up_, model.n_iter_
    if not first:
        return f"{others:,}"
    return f"{first + others:,}: {first:,} that search for the solution, and {others:,} after them"


def _settings(model: LinearModel) -> list[tuple[str, object]]:
    """List the settings as text."""
    config, guarantee, auto = model.config_, model.guarantee_, "chosen privately"
    clip = f"{model.history_.clip:.4g}" + (f", {auto}" if config.clipping == "auto" else "")
    per_user, algorithm = config.elements_per_user, config.algorithm
    bets = "coin betting, then full-matrix AdaGrad" if config.warms_up else "coin betting"
    loss = model.loss(getattr(model, "classes_", None))
    solver = config.recipe_for(loss.lipschitz) or (bets if algorithm == "auto" else algorithm)
    settings: list[tuple[str, object]] = [
        ("Model", _TITLES[type(model).__name__]),
        ("Target", getattr(model, "target_", "as passed")),
        ("Features", f"{model.n_features_in_:,}"),
    ]
    classes = getattr(model, "classes_", None)
    if classes is not None:
        settings.append(("Labels", ", ".join(map(str, classes))))
    settings += [
        ("Privacy unit", config.promise.unit),
        ("Who sees data", _TRUST[config.trust]),
        ("Partition into elements", elements_text(guarantee.elements) or "none"),
        ("User column", guarantee.user or "as passed"),
        ("Neighbouring relation", guarantee.relation),
        ("ε", rounded_up(config.promise.epsilon, 6)),
        ("δ", powers(config.promise.delta)),
        ("Rounds", _rounds(model)),
        ("Clipping bound of a mean gradient", clip),
        ("Blocks per user to divide by", auto if per_user == "auto" else f"{per_user:g}"),
        (
            "Bound on the norm of a row",
            "none" if config.feature_bound is None else f"{config.feature_bound:g}",
        ),
        ("Solver", solver),
        ("Ridge", f"{config.l2:g}"),
        ("Intercept", "yes" if config.fit_intercept else "no"),
        ("Share of the budget for intervals", f"{config.intervals:.4g}"),
    ]
    for name, what in (("quantile", "Quantile"), ("threshold", "Threshold of the error")):
        value = model.parameters_.get(name)
        if value is not None:
            settings.insert(3, (what, f"{value:g}"))
    return settings


# Maximum length of a guarantee; only long names of a caller reach it.
_SENTENCE_LETTERS = 2000


@dataclass(frozen=True, kw_only=True)
class _FileFacts(PageFacts):
    """The common contents; ``short`` is the guarantee without the public facts of each release."""

    short: Guarantee

    @property
    def sentence(self) -> str:
        """The guarantee of all releases together."""
        return text(self.short, _SENTENCE_LETTERS)


def releases_page(releases: Releases) -> str:
    """Return the report of the releases of a file as HTML."""
    guarantee, plan = releases.guarantee, releases.plan
    page = _FileFacts(
        of="release",
        guarantee=guarantee,
        short=releases.promise,
        distorted="noise and clipping",
        hashes=tuple(
            _check(text(each.entry.name, 60), releases[each.entry.name])
            if each.entry.output is None or not exists(each.entry.output)
            else _file_check(each.entry.output)
            for each in plan.releases
        ),
    )
    return page.html(
        "releases.html",
        table=text(", ".join(table.source.title for table in plan.file.tables.values()), 60),
        file=text(plan.file.path.name, 60),
        mark=plan.file.mark,
        heads=[head[0].upper() + head[1:] if head.isascii() else head for head in plan.columns],
        rows=[[text(cell, 240) for cell in row] for row in plan.rows()],
        spending=plan.spending,
        parts=[
            (text(each.entry.name, 60), _part(each.entry.own, releases[each.entry.name], place))
            for place, each in enumerate(plan.releases)
        ],
    )


def _require_releases(budget: Budget, releases: Mapping[str, Any]) -> None:
    """Raise ParameterError unless these are releases that were charged to the budget."""
    named = _validate.mapping(releases=releases)
    if not named or not all(isinstance(name, str) for name in named):
        raise ParameterError(
            "releases must be a mapping of names and releases, such as {'visits': visits}, not "
            f"{_validate.describe(releases)}.",
            name="releases",
        )
    for name, release in named.items():
        if not isinstance(release, Release | LinearModel | MeanOfUsers):
            raise ParameterError(
                f"releases {name!r} must be a release, a fitted model or a per-user mean, not "
                f"{_validate.describe(release)}.",
                name="releases",
            )
    budget.require_charged({name: guarantee_of(each) for name, each in named.items()})


def budget_page(budget: Budget, releases: Mapping[str, Any]) -> str:
    """Return the report of releases of a budget as HTML."""
    _require_releases(budget, releases)
    guarantees = {name: guarantee_of(release) for name, release in releases.items()}
    promise = budget.promise
    assert promise is not None  # noqa: S101 - releases were charged
    promise = replace(promise, private=all(each.private for each in guarantees.values()))
    page = _FileFacts(
        of="release",
        guarantee=promise,
        short=replace(promise, public=(Fact("with-each"),)),
        distorted="noise and clipping",
        hashes=tuple(_check(text(name, 60), each) for name, each in releases.items()),
    )
    parts = [
        (text(name, 60), _part({"columns": None}, release, place))
        for place, (name, release) in enumerate(releases.items())
    ]
    return page.html(
        "releases.html",
        table="one budget",
        file="",
        heads=["Release", "Publishes", "ε", "δ"],
        rows=[
            [name, text(part.title, 120), rounded_up(each.epsilon()), powers(each.delta)]
            for (name, part), each in zip(parts, guarantees.values(), strict=True)
        ],
        spending=f"{budget}.",
        parts=parts,
    )


def _file_check(output: Path) -> Check:
    """Return the hash of the file of a release."""
    name = text(output.name, 60)
    return (f"File {name}", file_hash(output), f"sha256sum {name}")


def _check(name: str, release: Any) -> Check:
    """Return the hash that identifies a release."""
    if isinstance(release, LinearModel):
        return model_check(name, release)
    if isinstance(release, MeanOfUsers):
        how = "hashlib.sha256(mean.value.astype('<f8')).hexdigest()"
        return (name, hash_numbers(release.value), how)
    return release_check(name, release)


def _part(own: Any, release: Any, place: int) -> Part:
    """Return the numbers of one release."""
    salt = f"{place} "
    if isinstance(release, LinearModel):
        return fit_part(release, salt)
    if isinstance(release, MeanOfUsers):
        return _mean_part(release, own["columns"])
    return release_part(release, salt)


def _mean_part(mean: MeanOfUsers, columns: list[str] | None) -> Part:
    """Return the numbers of a per-user mean; without columns, coordinates have numbers."""
    if columns is None:
        columns = [f"coordinate {place}" for place in range(1, mean.value.size + 1)]
    page = PageFacts(
        of="release",
        guarantee=mean.guarantee,
        distorted="noise and clipping",
    )
    decimals = useful_decimals(mean.std_error if mean.resolved else mean.error)
    body = page.html(
        "_mean.html",
        inside=True,
        agreed=all(map(math.isfinite, mean.value)),
        lines=[
            (text(name, 120), format_number(float(value), decimals))
            for name, value in zip(columns, mean.value, strict=True)
        ],
        estimand=mean.estimand,
        warning="" if mean.resolved else mean_text.NOT_RESOLVED,
        error=format_number(mean.std_error, decimals) if mean.resolved else "unknown",
        radius=f"{mean.radius:.3g}",
        centre=get_method(mean.method).centre or "0",
        off=mean_text.largest_error(mean),
        method=mean.method,
        reason=mean.reason,
    )
    return Part(f"per-user mean of {text(', '.join(columns), 100)}", page, Markup(body))
