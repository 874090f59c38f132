"""The coefficients of a fitted model, as they are shown to people."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpgrain.learn.meaning import doubts, meaning
from dpgrain.learn.model import LinearModel


@dataclass(frozen=True)
class Coefficient:
    """One coefficient.

    Args:
        name: the name of the feature that it belongs to.
        value: the value that predictions use.
        corrected: the centre of its interval; None without intervals, as the ends are.
        low: the lower end of its 95% interval.
        high: the upper end of that interval.
        intercept: True where it belongs to no feature.
    """

    name: str
    value: float
    corrected: float | None = None
    low: float | None = None
    high: float | None = None
    intercept: bool = field(default=False, kw_only=True)

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers of a line of a table."""
        if self.corrected is None or self.low is None or self.high is None:
            return (self.value,)
        return (self.value, self.corrected, self.low, self.high)


@dataclass(frozen=True)
class Coefficients:
    """All coefficients of a model, intercepts included.

    Args:
        rows: the coefficients; of several labels one label after the other.
        intervals: True where they have intervals.
        cautions: the reasons why numbers may be wrong, in words.
        meaning: sentences on whom they are for, what was clipped, and what intervals cover.
    """

    rows: tuple[Coefficient, ...]
    intervals: bool
    cautions: tuple[str, ...] = ()
    meaning: tuple[str, ...] = ()

    def text(self, value: float) -> str:
        """Return a number of these, with decimals that suit the median of them all."""
        sizes = sorted(
            abs(row.value) for row in self.rows if row.value and math.isfinite(row.value)
        )
        middle = sizes[len(sizes) // 2] if sizes else 1.0
        decimals = min(max(3 - math.floor(math.log10(middle)), 0), 12)
        if 0 < abs(value) < 0.5 * 10.0**-decimals:
            return f"{value:.2g}".replace("-", "−")
        return f"{value + 0.0:,.{decimals}f}".replace("-", "−")


def coefficients(model: LinearModel) -> Coefficients:
    """Return the coefficients with what is known of their error.

    Args:
        model: a fitted model.
    """
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    names = model.parameter_names(len(coef))
    table = np.column_stack([coef, intercept]) if model.fit_intercept else coef
    values: list[Any] = [float(value) for value in table.ravel()]
    # Each label has its features first, then its intercept.
    last = np.arange(table.shape[1]) == coef.shape[1]
    intercepts = np.tile(last, len(table)).tolist()
    if getattr(model, "evidence_", None) is None:
        rows = tuple(
            Coefficient(name, value, intercept=intercept)
            for name, value, intercept in zip(names, values, intercepts, strict=True)
        )
        return Coefficients(rows, False, doubts(model), meaning(model))
    found = model.confidence_intervals()
    ends = (found.estimate, found.low, found.high)
    rows = tuple(
        Coefficient(name, value, *map(float, line), intercept=intercept)
        for name, value, intercept, *line in zip(names, values, intercepts, *ends, strict=True)
    )
    guess = (f"intervals are a guess: {found.doubt}.",) if found.doubt else ()
    return Coefficients(rows, True, (*doubts(model), *guess), meaning(model))
