"""Private R²: share of the targets' variance that predictions explain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Laplace
from dpgrain.choices.scores import STEPS
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import default_unit
from dpgrain.learn.rows import empty_like
from dpgrain.learn.scoring import (
    MISS_PROBABILITY,
    Score,
    ScoreQuery,
    require_numbers,
    scored_rows,
    sums,
)
from dpgrain.noise import RandomState
from dpgrain.noise.distributions import raise_scale
from dpgrain.publishing import Charge, Promise, Query
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.publish import publishes
from dpgrain.statistics.plan import noise_sd
from dpgrain.units import Relation, Unit
from dpgrain.words.score_text import r2_text

# Share of ε for the variance of targets, which contributes less to the error than squared errors.
_VARIANCE_SHARE = 1 / 3


@dataclass(frozen=True)
class R2(Score):
    """Published R² of predictions.

    Args:
        value: 1 − (mean squared error) ÷ (variance of targets), with row weights of one over their
            unit's number of rows. Predicting the mean has value 0, and worse predictions are
            negative. NaN if the variance is not significant compared with noise.
        low: the lower end of its 95% interval, −∞ for NaN.
        high: the upper end.
        lower: the lower limit of targets; smaller ones are clamped.
        upper: the upper limit of targets.
        units: the approximate number of units with rows.
        guarantee: the guarantee of the whole release.

    >>> rng, users = np.random.default_rng(0), np.repeat(np.arange(3000), 2)
    >>> x = rng.uniform(size=6000)
    >>> found = r2(x + rng.normal(size=6000) / 10, x, users=users, lower=-0.5, upper=1.5, epsilon=1.0,
    ...            random_state=1)
    >>> round(found.value, 1), bool(found.low < found.value < found.high), found.guarantee.level
    (0.9, True, 'user')
    """

    value: float
    low: float
    high: float
    lower: float
    upper: float
    units: float
    guarantee: Guarantee

    def __str__(self) -> str:
        return r2_text(self)


@publishes
def r2(
    y: Any,
    predicted: Any,
    *,
    lower: float,
    upper: float,
    users: Any = None,
    elements: Any = None,
    unit: Unit | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    random_state: RandomState = None,
) -> Query[R2]:
    """Publish the R² of predictions.

    Args:
        y: (m,) the targets; a row with a non-finite target is dropped.
        predicted: (m,) the predictions, each from its own row only, such as ``model.predict(X)``.
        lower: the smallest target, a public number in the units of ``y``; smaller targets are
            clamped.
        upper: the largest target, likewise.
        users: (m,) the user id of each row; None protects only rows.
        elements: (m,) the cell of each row in a public partition, for ``Element()``.
        unit: the privacy unit, ``User()``, ``Element()`` or ``Record()``; by default ``User()`` if
            users are passed, otherwise ``Record()``.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: the δ of the guarantee; the release itself is pure, and 0 is the default.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        random_state: seed, for tests and research. The release is then *not private*.

    Raises:
        ParameterError: if a value is out of range, or the numbers of targets and predictions
            differ.

    The rows of a unit have a total weight of one. Noise corresponds to errors as large as the whole
    range, so a narrow range is more accurate.

    Formal guarantee: ε-DP for the unit and relation, for any rows, if the predictions depend only
    on public or published information. A unit adds a mean squared error of at most 1 to one sum,
    and a vector of l1 norm 1 to three others. Source: docs/theory, "Choosing among hypotheses".

    >>> query = r2.query(
    ...     np.ones(2), np.ones(2), users=np.array([1, 2]), lower=0.0, upper=2.0, epsilon=1.0)
    >>> round(query.plan.guarantee.epsilon(), 6)
    1.0
    """
    lower, upper = _validate.real(lower=lower), _validate.real(upper=upper)
    if not lower < upper or not np.isfinite(upper - lower):
        raise ParameterError(
            f"lower must be below upper, {upper!r}, not {_validate.describe(lower)}.",
            name="lower",
        )
    promise = Promise.of(default_unit(unit, users), epsilon, delta, relation, share)
    rows = scored_rows(promise, y, predicted, users, elements)
    for name, of in (("y", rows.y), ("predicted", rows.X)):
        require_numbers(name, empty_like(of))
    return R2Query(promise=promise, rows=rows, lower=lower, upper=upper, random_state=random_state)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class R2Query(ScoreQuery[R2]):
    """Query for an R²."""

    lower: float
    upper: float

    @cached_property
    def parts(self) -> dict[str, Laplace]:
        """Noise of squared errors, and of the moments of targets."""
        errors, moments = self.laplace(1 - _VARIANCE_SHARE), self.laplace(_VARIANCE_SHARE)
        return {"errors": errors, "moments": moments}

    @property
    def public(self) -> tuple[Fact, ...]:
        """The range, and the model."""
        return Fact("counted-targets", (self.lower, self.upper)), Fact("predictions")

    def run(self, charge: Charge) -> R2:
        """Read targets and predictions, and publish the noisy sums of units' moments."""
        of_errors, of_moments = self.parts.values()
        errors, moments = charge.read(self._sums)
        radius = float(raise_scale(STEPS))
        error = charge.noisy(of_errors, errors, radius)[0] / STEPS
        corners = charge.noisy(of_moments, moments, radius) / STEPS
        interval = r2_interval(float(error), corners, of_errors, of_moments)
        return R2(*interval, self.lower, self.upper, float(corners.sum()), charge.guarantee)

    def _sums(self) -> tuple[IntArray, IntArray]:
        """Return sums over units in steps: mean squared errors, and corners of targets."""
        # The corners (1 − z)², 2z(1 − z) and z² of a target z in [0, 1] sum to 1, and determine its
        # mean and its square.
        rows, target = self.blocks(), self.numbers(self.rows.y)
        known = np.isfinite(target)
        z, predicted = (self._scaled(of) for of in (target, self.numbers(self.rows.X)))
        parts = ((z - predicted) ** 2, (1 - z) ** 2, 2 * z * (1 - z), z**2)
        error, *corners = (rows.of(np.where(known, part, 0.0)) for part in parts)
        return sums([error]), sums(corners)

    def _scaled(self, values: FloatArray) -> FloatArray:
        """Scale numbers to [0, 1]; invalid numbers become 1/2."""
        values = np.clip(values, self.lower, self.upper)
        return np.nan_to_num((values - self.lower) / (self.upper - self.lower), nan=0.5)


def r2_interval(
    error: float, corners: FloatArray, of_errors: Laplace, of_moments: Laplace
) -> tuple[float, float, float]:
    """Return R² from noisy sums, and its 95% interval."""
    # Fieller's interval for the ratio θ of squared errors to squares about the mean contains all θ
    # at which their difference is within its noise. The error of the noisy mean adds its square.
    units = corners.sum()
    sd, other = noise_sd(of_errors), noise_sd(of_moments)
    within = of_errors.law.quantile(1 - MISS_PROBABILITY / 2)
    mean = float(np.clip((corners[1] / 2 + corners[2]) / units, 0.0, 1.0)) if units > 0 else 0.5
    weights = np.array([mean**2, -mean * (1 - mean), (1 - mean) ** 2])
    squares = float(weights @ corners)
    spread = other * float(np.sqrt(weights @ weights))
    # Truncated steps: at most two per unit and sum.
    off = 4 * max(units, 1.0) / STEPS
    mean_off = within * other * float(np.sqrt(mean**2 + (0.5 - mean) ** 2 + (1 - mean) ** 2))
    least = squares - (mean_off**2 / units if units > within * other * 3**0.5 else np.inf)
    if not np.isfinite(least) or squares <= 0:
        return np.nan, -np.inf, 1.0
    high = _ratio(error - off, squares + off, within * sd, within * spread)[0]
    low = _ratio(error + off, least - off, within * sd, within * spread)[1]
    if low == np.inf:
        # If the variance may be zero, the R² is unknown.
        return np.nan, -np.inf, 1 - max(high, 0.0)
    return min(1 - error / squares, 1.0), 1 - low, 1 - max(high, 0.0)


def _ratio(upper: float, lower: float, within: float, beyond: float) -> tuple[float, float]:
    """Return the range of θ with |upper − θ·lower| ≤ √(within² + θ²·beyond²)."""
    first = lower**2 - beyond**2
    if lower <= 0 or first <= 0:
        return 0.0, np.inf
    root = np.sqrt(max((upper * lower) ** 2 - first * (upper**2 - within**2), 0.0))
    return (upper * lower - root) / first, (upper * lower + root) / first
