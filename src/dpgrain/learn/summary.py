"""Display of a fitted model's coefficients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain._formatting import align_columns, one_line, sentence, shorten
from dpgrain.learn.confidence import COVERAGE, NO_INTERVALS
from dpgrain.learn.interpretation import describe_clipping, explain_fit, fit_warnings

if TYPE_CHECKING:
    from dpgrain.learn.model import LinearModel

_CORRECTED = (
    "Corrected average of the rounds, the centre of the interval; predictions use the value."
)
# Maximum number of coefficients in a printed model, and of characters per name.
_MAX_ROWS, _NAME_LENGTH = 20, 40


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
    """All coefficients of a model, label by label, including intercepts.

    ``unsure`` is the reason for missing intervals; empty if the fit reserved budget for them.
    ``explanations`` are by name, and ``clipping`` is the sentence on clipping.
    """

    rows: tuple[Coefficient, ...]
    intervals: bool
    unsure: str = ""
    cautions: tuple[str, ...] = ()
    explanations: Mapping[str, str] = field(default_factory=dict)
    clipping: str = ""

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
        cautions = (*cautions, f"{NO_INTERVALS}: {intervals.doubt}.")
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
