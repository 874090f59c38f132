"""Fits in words: coefficients, the average unit, clipping, labels and warnings.

Everything depends only on public numbers and published results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain._formatting import align_columns, one_line, quantity, sentence, shorten
from dpgrain.units import Element, Record, Unit
from dpgrain.words.notes import note_text

if TYPE_CHECKING:
    from dpgrain.gradients.norms import NormHistogram
    from dpgrain.learn.minimise import Minimum
    from dpgrain.learn.model import LinearModel
    from dpgrain.learn.rounds import History

#: Coverage of intervals.
COVERAGE = (
    "95% intervals cover the noise and the sampling of users, but not an error of the model. They "
    "include an estimate of the bias of clipping, if the bound was chosen privately."
)
_CORRECTED = (
    "Corrected average of the rounds, the centre of the interval; predictions use the value."
)
# Maximum number of coefficients in a printed model, and of characters per name.
_MAX_ROWS, _NAME_LENGTH = 20, 40
# Minimum share of users who should affect a fit, and the number of standard deviations for
# significance.
_EXPECTED_SHARE, _SIGNIFICANCE = 0.5, 3.0
# Limit on the norm of a classifier's gradient per square root of the number of coefficients, if
# features have a scale of about 1 (between −1 and 1, it is at most √2), and the maximum share of
# larger gradients.
_LARGE_NORM, _LARGE_SHARE = 5.0, 0.1
# Maximum number of printed parameters of a minimum.
_SHOWN = 10
# Meaning of the sum of features, by estimator.
_LOSSES = {
    "LogisticRegression": "The score of a label is a weighted sum of the features; its exponential is "
    "proportional to the label's probability.",
    "LinearRegression": "The prediction is a weighted sum of the features.",
    "HuberRegressor": "The prediction is a weighted sum of the features; errors "
    "beyond a threshold have a linear loss.",
    "QuantileRegressor": "A quantile of the target is a weighted sum of the features.",
    "LinearSVC": "The label is the sign of a weighted sum of the features.",
    "PoissonRegressor": "The logarithm of the expected count is a weighted sum of the features.",
}
# Maximum number of listed labels.
_MAX_LABELS = 10
# Maximum number of characters of a label in a sentence.
_LABEL_LENGTH = 60
# Maximum share of users without rows of selected labels, before a warning.
_DROPPED_SHARE = 0.1
# Maximum share of clipped gradients, before a warning of bias.
_CLIPPED_SHARE = 0.5
# Minimum share of clipped units that is printed as a percentage.
_SMALLEST_PERCENT = 0.005


@dataclass(frozen=True)
class Coefficient:
    """One coefficient; ``per`` describes its column's change, unless it is the feature."""

    name: str
    value: float
    corrected: float | None = None
    low: float | None = None
    high: float | None = None
    intercept: bool = field(default=False, kw_only=True)
    per: str = field(default="", kw_only=True)

    @property
    def values(self) -> tuple[float, ...]:
        """Numbers in a line of the table."""
        if self.corrected is None or self.low is None or self.high is None:
            return (self.value,)
        return (self.value, self.corrected, self.low, self.high)


@dataclass(frozen=True)
class Coefficients:
    """All coefficients of a model, label by label, including intercepts."""

    rows: tuple[Coefficient, ...]
    intervals: bool
    unsure: str = ""  # reason for missing intervals; empty if the fit reserved budget for them
    cautions: tuple[str, ...] = ()
    explanations: Mapping[str, str] = field(default_factory=dict)  # by name
    clipping: str = ""  # sentence on clipping

    @property
    def headings(self) -> tuple[str, ...]:
        """Column headings for :meth:`cells`."""
        per = ("per",) if self._has_steps else ()
        ends = ("corrected", "95% low", "95% high") if self.intervals else ()
        return ("coefficient", *per, "value", *ends)

    def cells(self, row: Coefficient) -> list[str]:
        """Return the cells of a table row, without the name of the coefficient."""
        return [
            *([row.per] if self._has_steps else []),
            *(self.text(value) for value in row.values),
        ]

    @property
    def _has_steps(self) -> bool:
        return any(row.per for row in self.rows)

    @property
    def notes(self) -> list[str]:
        """At most two sentences: what the numbers describe, and warnings."""
        intervals = COVERAGE.partition(". ")[0] + "." if self.intervals else self.unsure
        weights = self.explanations.get("Weights", "").partition(": ")[2]
        labels = self.explanations.get("Labels", "")
        text = " ".join(filter(None, (sentence(weights), intervals, self.clipping, labels)))
        return [text, *([f"Warning: {' '.join(self.cautions)}"] if self.cautions else [])]

    def __str__(self) -> str:
        """Return the first coefficients, line by line, and notes."""
        rows = [
            [shorten(one_line(row.name), _NAME_LENGTH), *self.cells(row)]
            for row in self.rows[:_MAX_ROWS]
        ]
        lines = align_columns([list(self.headings), *rows])
        if len(self.rows) > _MAX_ROWS:
            lines.append(f"[{len(self.rows):,} coefficients, first {_MAX_ROWS} shown; all: .coef_]")
        return "\n".join((*lines, *self.notes))

    def text(self, value: float) -> str:
        """Format a number with decimals suitable for the median of all."""
        sizes = sorted(
            abs(row.value) for row in self.rows if row.value and math.isfinite(row.value)
        )
        middle = sizes[len(sizes) // 2] if sizes else 1.0
        decimals = min(max(3 - math.floor(math.log10(middle)), 0), 12)
        if 0 < abs(value) < 0.5 * 10.0**-decimals:
            return f"{value:.2g}".replace("-", "−")
        return f"{value + 0.0:,.{decimals}f}".replace("-", "−")


def coefficients(model: LinearModel) -> Coefficients:
    """Return the coefficients of a fitted model with their known errors."""
    names, values = _numbers(model)
    per, intercepts = _steps(model, len(values))
    intervals = None if model.fitted_.evidence is None else model.confidence_intervals()
    unsure = ""
    if intervals is None:
        recipe = model.config_.recipe is not None
        why = f"with {model.config_.how} cannot estimate them" if recipe else "had intervals=0"
        unsure = f"No standard errors: the fit {why}."
    ends: list[Sequence[float]] = [()] * len(values)
    cautions, explanations = fit_warnings(model), explain_fit(model)
    if intervals is not None and not intervals.doubt:
        ends = np.column_stack([intervals.estimate, intervals.low, intervals.high]).tolist()
        explanations = {**explanations, "corrected": _CORRECTED, "Intervals": COVERAGE}
    elif intervals is not None:
        cautions = (*cautions, no_intervals(intervals.doubt))
    rows = tuple(
        Coefficient(name, value, *own, intercept=intercept, per=step)
        for name, value, own, intercept, step in zip(
            names, values, ends, intercepts, per, strict=True
        )
    )
    return Coefficients(
        rows, any(map(len, ends)), unsure, cautions, explanations, describe_clipping(model)[0]
    )


def _numbers(model: LinearModel) -> tuple[tuple[str, ...], list[float]]:
    """Return the names and values of all coefficients, label by label, features first."""
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    table = np.column_stack([coef, intercept]) if model.config_.fit_intercept else coef
    return model.parameter_names(len(coef)), table.ravel().tolist()


def _steps(model: LinearModel, count: int) -> tuple[list[str], list[bool]]:
    """Describe the column change for each coefficient, and mark intercepts."""
    encoding: Any = getattr(model, "encoding_", None)
    features = model.n_features_in_
    steps = [""] * features if encoding is None else encoding.steps
    own = [""] * model.config_.fit_intercept
    labels = count // (features + len(own))
    return [*steps, *own] * labels, [*[False] * features, *[True] * len(own)] * labels


def explain_fit(model: LinearModel) -> dict[str, str]:
    """Explain the units, coefficients, clipping and ridge of a fitted model, fact by fact."""
    config = model.config_
    ridge = (
        f"A ridge of {config.l2:g} pulls the coefficients that predictions use towards 0; corrected "
        "ones and their intervals do not include this."
    )
    facts = {
        "value": _describe_coefficient(model),
        "Weights": describe_model_weights(model),
        "Step": _describe_model_step(model),
        "Clipping": " ".join(describe_clipping(model)),
        "Ridge": ridge if config.l2 else "",
        "Labels": " ".join(_describe_labels(model)),
        "Missing": _describe_missing(model),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _describe_labels(model: LinearModel) -> tuple[str, ...]:
    """Describe selected labels."""
    labels: Any = getattr(model, "classes_", None)
    # The type of boolean targets determines both labels.
    if labels is None or labels.dtype == np.bool_ or model.parameters_.get("classes") is not None:
        return ()
    return (
        f"The labels were not given, and {len(labels)} were selected privately: {list_labels(labels)}. "
        "Rows with other labels were dropped.",
    )


def list_labels(labels: Any) -> str:
    """List the first labels of a classifier."""
    named = ", ".join(map(str, labels[:_MAX_LABELS]))
    return f"{named}, …" if len(labels) > _MAX_LABELS else named


def dropped_rows(model: LinearModel) -> tuple[str, ...]:
    """Report that selected labels exclude many users, according to the published norms."""
    norms, unit = model.fitted_.norms, model.config_.promise.unit
    text = _describe_labels(model)
    by_element = isinstance(unit, Element) or getattr(unit, "max_elements", None) is not None
    if not text or not norms or by_element:
        return ()
    # At the start, every row with a selected label has a nonzero gradient.
    start, n = norms[0], model.fitted_.n_users or 0
    if start.blocks + 2 * start.blocks_sd >= (1 - _DROPPED_SHARE) * n:
        return ()
    return (
        f"{text[0]} About {start.blocks:,.0f} of {n:,} {model.config_.promise.level}s have rows that "
        "move the fit; name all labels with classes=[…].",
    )


def _describe_missing(model: LinearModel) -> str:
    """Describe the replacement of missing numbers."""
    low = (
        ""
        if getattr(model, "encoding_", None) is None
        else " (the lower end of its range, if it has one)"
    )
    return (
        f"Missing or non-numeric features were set to 0{low}; rows without a target were dropped."
    )


def _describe_coefficient(model: LinearModel) -> str:
    """Describe the effect of a coefficient per change of its feature."""
    step = "1" if getattr(model, "encoding_", None) is None else 'the amount in column "per"'
    return f"A coefficient is the change in {model.adds_to} when its feature increases by {step}."


def describe_model(model: LinearModel) -> str:
    """Describe what the weighted sum of the features of a fitted model predicts."""
    labels: Any = getattr(model, "classes_", ())
    kind = type(model).__name__
    if kind == "LogisticRegression" and len(labels) == 2:
        label = shorten(one_line(labels[1]), _LABEL_LENGTH)
        return f"The log-odds of {label!r} are a weighted sum of the features."
    return _LOSSES[kind]


def describe_model_weights(model: LinearModel) -> str:
    """Describe the average that the coefficients of a fitted model describe."""
    return describe_weights(model.config_.promise.unit, model.fitted_.max_records)


def describe_weights(unit: Unit, most: int | None, verb: str = "the coefficients describe") -> str:
    """Describe the average that parameters describe, for users of equal weight or by records."""
    if most is None:
        return describe_population(unit).replace("the coefficients describe", verb)
    return (
        f"Every user is weighted by their number of records, of which at most {most:,} count: {verb} "
        f"the average record, up to {most:,} per user"
        f"{'' if most == 1 else ', not the average person'}."
    )


def describe_step(most: int | None, share: float | None, n_users: int, ridge: float = 0.0) -> str:
    """Describe the effective step and ridge of a fit weighted by records."""
    if most is None:
        return ""
    weight = f"the mean of min(records, {most:,})/{most:,} over the {n_users:,} users"
    known = "" if share is None else f" (about {share:.2g})"
    text = (
        f"Sums are divided by the number of users, so the effective step is the step times {weight}"
    )
    if not ridge:
        return f"{text}{known}."
    effective = "" if share is None else f", about {ridge / share:.2g} in all"
    return f"{text}{known}, and the effective ridge is {ridge:g} divided by it{effective}."


def _describe_model_step(model: LinearModel) -> str:
    """Describe the effective step and ridge of a fitted model; empty for equal weights."""
    fitted = model.fitted_
    if fitted.max_records is None:
        return ""
    return describe_step(fitted.max_records, fitted.mean_weight, model.n_users_, model.config_.l2)


def describe_population(unit: Unit) -> str:
    """Describe the average unit of a fit's coefficients."""
    if isinstance(unit, Record):
        return "Every record has the same weight: the coefficients describe the average record."
    if isinstance(unit, Element) or unit.max_elements is not None:
        limit = "" if isinstance(unit, Element) else f", of {unit.max_elements} cells at most"
        return (
            f"Every element (the mean of one user's records in one cell{limit}) has the same weight: "
            "the coefficients describe the average element, not the average record."
        )
    return (
        "Every user (the mean of all their records) has the same weight: the coefficients describe the "
        "average person, not the average record."
    )


def describe_clipping(model: LinearModel) -> tuple[str, ...]:
    """Describe the clipping, with the share of clipped units if published; then its effect."""
    config, clip, norms = model.config_, model.fitted_.history.clip, model.fitted_.norms
    text, level = f"Mean gradients were clipped to norm {clip:.3g}", config.promise.level
    if config.recipe is not None:
        return (f"The mean gradient of each {level} was clipped to norm {clip:.3g}.",)
    if config.clipping != "auto":
        return (
            f"{text}; how many were clipped was not measured.",
            "If many were, the coefficients are biased; clip='auto' chooses a bound that few exceed.",
        )
    if not norms or not norms[-1].resolved:
        return (
            f"{text}; noise hides how many were clipped.",
            "The coefficients may be biased; more users or a larger ε would help.",
        )
    share, error = norms[-1].share_beyond(clip)
    most = f"{share + 2 * error:.0%}" if share + 2 * error >= _SMALLEST_PERCENT else "1%"
    clear = share > max(2 * error, _SMALLEST_PERCENT)
    affected = f"about {share:.0%}" if clear else f"at most about {most}"
    margin = f" (±{2 * error:.0%})" if clear and 2 * error >= _SMALLEST_PERCENT else ""
    return (
        f"{text}, which affected {affected} of {level}s{margin}.",
        f"This biases the coefficients if those {level}s differ from the rest. With more users or a "
        "larger ε, fewer are clipped.",
    )


def fit_warnings(model: LinearModel) -> tuple[str, ...]:
    """Return doubts about a fit as a whole: early stopping, or suspicious norms."""
    fitted = model.fitted_
    if fitted.history.ended:
        return (ended_text(fitted.history),)
    if not fitted.norms:
        return ()
    # A row without error also has a zero gradient; few rows have one both at the start and later.
    level, most = model.config_.promise.level, max(fitted.norms, key=lambda each: each.blocks)
    n, enough = fitted.n_users or 0, most.blocks + _SIGNIFICANCE * most.blocks_sd
    why = (
        "are targets written like the classes (1 is not the text 'yes'), and are they numbers if the "
        "model needs numbers"
    )
    if enough < _EXPECTED_SHARE * n:
        return (
            f"only about {most.blocks:,.0f} (±{2 * most.blocks_sd:,.0f}) {level}s of {n:,} users have "
            f"rows that affect the fit: {why}?",
        )
    if not most.resolved:
        return (
            f"noise hides whether any {level} has rows that affect the fit: there are too few for this "
            f"ε, or targets are missing; {why}?",
        )
    off_scale = _scale_warning(model, fitted.norms) if hasattr(model, "classes_") else ()
    return off_scale or clipping_bias(model)


def clipping_bias(model: LinearModel) -> tuple[str, ...]:
    """Report that the clipping bound biases a fit, according to its published norms."""
    norms, clip = model.fitted_.norms, model.fitted_.history.clip
    if not norms or not norms[-1].resolved:
        return ()
    share, error = norms[-1].share_beyond(clip)
    last = model.config_.clipping == "auto" and norms[-1].is_largest(clip)
    if not last and share - _SIGNIFICANCE * error <= _CLIPPED_SHARE:
        return ()
    ends = ", the largest that clip='auto' chooses" if last else ""
    if not last:
        remedy = "pass a larger clip=, or clip='auto'"
    elif model.parameters_.get("target_bound", 1.0) is None:
        remedy = "pass target_bound=, a public bound on the size of a target"
    else:
        remedy = "divide features and targets by public numbers so that most lie between −1 and 1"
    return (
        f"about {share:.0%} of mean gradients exceed the clipping bound {clip:.4g}{ends}, so the "
        f"coefficients are biased; {remedy}.",
    )


def _scale_warning(model: LinearModel, norms: Sequence[NormHistogram]) -> tuple[str, ...]:
    """Report gradients of a classifier that are too large for features on a scale of 1."""
    length = _LARGE_NORM * math.sqrt(model.n_features_in_ + model.config_.fit_intercept)
    for each in norms:
        share, error = each.share_beyond(length)
        if each.resolved and share - _SIGNIFICANCE * error > _LARGE_SHARE:
            return (
                f"about {share:.0%} of mean gradients have a norm above {length:.3g}, because features "
                "are far from a scale of 1: no step size suits all coefficients, and they may be "
                "inaccurate; divide each feature by a public number, so that it is between −1 and 1.",
            )
    return ()


def minimum_text(minimum: Minimum) -> str:
    """Return a minimum as printed: parameters, rounds, average and errors."""
    history, size = minimum.history, minimum.theta.size
    shown = ", ".join(f"{value:.4g}" for value in minimum.theta[:_SHOWN])
    more = f", … ({size:,} in all)" if size > _SHOWN else ""
    rounds = quantity(len(history.points), "noisy gradient")
    noise = f"noise {history.noise_sd:.2g} in each coordinate of the last"
    exact = minimum.evidence is None
    # The table of intervals has the estimand of weighted users.
    shared = not exact and minimum.max_records is not None
    texts = (
        f"θ = ({shown}{more})\n{rounds} of {minimum.n_users:,} users, {noise}",
        f"Warning: {ended_text(history)}." if history.ended else "",
        "" if shared else minimum.estimand,
        describe_step(minimum.max_records, minimum.mean_weight, minimum.n_users),
        "No standard errors." if exact else str(minimum.confidence_intervals()),
        str(minimum.guarantee),
    )
    return "\n".join(filter(None, texts))


def no_intervals(doubt: str) -> str:
    """Describe why a fit has no intervals, by the kind of the reason."""
    return f"there are no intervals: {note_text((doubt,))}."


def ended_text(history: History) -> str:
    """Describe the round in which a run stopped; empty if it did not."""
    if not history.ended:
        return ""
    done = len(history.points)
    result = "the starting point" if done == 0 else "the result of the earlier rounds"
    return f"the run ended in round {done + 1:,} of {history.planned:,} and returned {result}"


def ended_warning(history: History) -> str:
    """Return the warning of a run that stopped early, with remedies."""
    return (
        f"{ended_text(history)}, because its private mean requires users to agree; use a larger "
        "radius, more users, a larger ε or another algorithm."
    )
