"""Generic mechanisms: means of any function, with noise by element sensitivity."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.accounting import (
    Contribution,
    Gaussian,
    Laplace,
    calibrate_gaussian,
    calibrate_laplace,
)
from dpgrain.errors import ParameterError, raise_without_context
from dpgrain.inputs.numbers import numbers, numeric_array, table_and_shape
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Plan, Promise, Query, publishes
from dpgrain.publishing.call import KeepsQuery
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import Element, Law, Relation

Norm: TypeAlias = Literal["l2", "l1"]

# Grid steps in the stated sensitivity.
_STEPS = 2.0**28
# Grid steps at which per-user values saturate; sums wrap modulo 2^64, which is post-processing.
_LARGEST = 2.0**62


def element_sensitivity(
    function: Callable[[tuple[Any, ...]], ArrayLike],
    blocks: Sequence[Sequence[Hashable]],
    *,
    norm: Norm = "l2",
) -> float:
    """Return the element sensitivity of a function of finite blocks, by exhaustion.

    Args:
        function: from a user's data, one block per cell, to a number or vector.
        blocks: for each cell, all possible values of a user's block (including the empty one).
        norm: the norm of the difference; ``"l1"`` for Laplace noise.

    Returns:
        sup ‖f(x) − f(x')‖ over x, x' that differ in one block. Source: element-level paper, eq. (5).
        For sums of clipped blocks it is :meth:`dpgrain.accounting.Contribution.sensitivity`.

    Raises:
        ParameterError: if a cell has no possible value.

    >>> element_sensitivity(sum, [[0, 1, 5], [0, 2]])
    5.0
    """
    _validate.function(function=function)
    _validate.one_of(("l2", "l1"), norm=norm)
    cells = _validate.sequence(blocks=blocks)
    if any(isinstance(values, str | bytes) for values in cells):
        description = _validate.describe(blocks)
        raise ParameterError(f"blocks must be a list of values for each cell, not {description}.")
    listed = [_validate.sequence(blocks=values) for values in cells]
    if not listed or any(len(values) == 0 for values in listed):
        raise ParameterError("blocks must have at least one cell, and one value per cell.")
    order = 1 if norm == "l1" else 2
    largest = 0.0
    for user in itertools.product(*listed):
        whole = _finite(function(user))
        for cell, values in enumerate(listed):
            for value in values:
                other = (*user[:cell], value, *user[cell + 1 :])
                difference = whole - _finite(function(other))
                largest = max(largest, float(np.linalg.norm(difference, order)))
    return largest


def _finite(value: ArrayLike) -> FloatArray:
    """Return the value with non-finite numbers replaced by 0."""
    try:
        array = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        kind = _validate.describe(value)
        message = f"function must return a number or a vector of numbers, not {kind}."
        raise_without_context(ParameterError(message, name="function"))
    return np.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class MeanRelease(KeepsQuery):
    """A private mean over users.

    Args:
        value: the noisy mean, in the shape of one user's value.
        std_error: the standard error of the noise, per coordinate.
        guarantee: the guarantee of the release.

    >>> asked = {"sensitivity": 1.0, "epsilon": 1.0, "noise": "laplace", "random_state": 1}
    >>> mean = release_mean(np.tile([0.2, 0.4], 500), **asked)
    >>> round(float(mean.value), 2), round(mean.std_error, 4), mean.guarantee.level
    (0.3, 0.0014, 'element')
    """

    value: FloatArray
    std_error: float
    guarantee: Guarantee


@publishes
def release_mean(
    values: Any,
    *,
    sensitivity: float,
    dimension: int | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "replace",
    noise: Literal["gaussian", "laplace"] = "gaussian",
    elements: str = "the caller's partition",
    random_state: RandomState = None,
) -> Query[MeanRelease]:
    """Publish the mean over users of a function with known element sensitivity.

    Args:
        values: (n,) or (n, d): f(x) of each user of the known population; a user without data has a
            row. An array, a series, a frame, an Arrow table or a list. Non-finite and non-numeric
            values are treated as 0, and so is a list's value with a number of cells other than d.
        sensitivity: the element sensitivity of f under the relation: l2, or l1 for Laplace noise.
        dimension: the public d, required for a list, because otherwise a single value could decide
            the shape of the output.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: privacy parameter δ, in (0, 1), such as 1e-6. Use 0 only with Laplace noise.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        relation: the relation of the sensitivity.
        noise: ``"gaussian"`` or ``"laplace"``.
        elements: a description of the partition.
        random_state: seed, for tests and research. The release is then *not private*.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: (ε, δ)-DP for one element, provided that the stated sensitivity is correct,
    also with non-finite values treated as 0. Values are truncated to a grid, and the effect on the
    sensitivity is added. Source: element-level paper, eq. (6); the Gaussian with its exact curve,
    since the printed variance is loose.

    >>> mean = release_mean([1.0, 3.0], dimension=1, sensitivity=2.0, epsilon=1.0, noise="laplace")
    >>> mean.std_error > 1, round(mean.guarantee.epsilon(), 6)
    (True, 1.0)
    """
    sensitivity = _validate.scale(sensitivity=sensitivity)
    promise = Promise.of(Element(), epsilon, delta, relation, share).under(noise)
    if dimension is not None:
        dimension = _validate.integer(minimum=1, dimension=dimension)
    elif isinstance(values, list | tuple):
        raise ParameterError(
            "dimension is required for a list of values, such as 1 for numbers, because values "
            "of different lengths would decide it; or pass an array, which has a shape.",
            name="dimension",
        )
    values, shape = table_and_shape(values, dimension, name="values")
    if len(shape) == 1 and dimension is not None:
        shape = (*shape, 1)
    if len(shape) not in (1, 2) or shape[0] == 0:
        raise ParameterError(f"values must be (n,) or (n, d) with n ≥ 1, not {shape}.")
    if dimension not in (None, *shape[1:]):
        raise ParameterError(
            f"dimension must be the length of a value, {shape[1]}, not {dimension}.",
            name="dimension",
        )
    return ReleaseQuery(promise, values, shape, sensitivity, noise, elements, random_state)


@dataclass(frozen=True, eq=False, repr=False)
class ReleaseQuery(Query[MeanRelease]):
    """A query for a mean of users' values, of shape (n,) or (n, d)."""

    promise: Promise
    values: Any
    shape: tuple[int, ...]
    sensitivity: float
    noise: Law
    elements: str
    random_state: RandomState = None

    @property
    def event(self) -> Gaussian | Laplace:
        """The noise of the sum, relative to the largest change by one element."""
        # Elements of one person may add up. A replacement counts as two removals if only those are
        # bounded.
        promise, relation = self.promise, self.promise.relation
        norm: Norm = "l1" if self.noise == "laplace" else "l2"
        coordinates: Literal["signed", "stated"] = "signed" if relation == "zero_out" else "stated"
        parts = Contribution(layout="shared", coordinates=coordinates, norm=norm)
        if self.noise == "laplace":
            return calibrate_laplace(promise.epsilon, contribution=parts, relation=relation)
        return calibrate_gaussian(
            promise.epsilon, promise.delta, contribution=parts, relation=relation
        )

    @property
    def plan(self) -> Plan:
        """The guarantee and the noise of the release."""
        event = self.event
        return Plan(
            Guarantee(
                self.promise.level,
                self.elements,
                self.promise.relation,
                self.promise.delta,
                event,
                (
                    Fact("enrolled-users", (self.shape[0],)),
                    Fact("sensitivity", (self.sensitivity,)),
                ),
                provenance="as given",
            ),
            parts={"mean": event},
        )

    def run(self, charge: Charge) -> MeanRelease:
        """Return the mean of sums on a grid, with noise."""
        event, n = self.event, self.shape[0]
        rows = charge.read(self._rows)
        step = 2.0 ** math.floor(math.log2(self.sensitivity / _STEPS))
        # Saturate before dividing, because an overflow warning would reveal a user's value.
        saturated = np.clip(rows, -_LARGEST * step, _LARGEST * step)
        total = (saturated / step).astype(np.int64).sum(axis=0)
        d, laplace = rows.shape[1], self.noise == "laplace"
        # Truncation changes each coordinate by less than one step.
        moved = self.sensitivity / step + (d if laplace else math.sqrt(d))
        noisy = charge.noisy(event, total, moved)
        spread = math.sqrt(2.0) if laplace else 1.0
        return MeanRelease(
            (noisy * step / n).reshape(self.shape[1:]),
            spread * event.noise_multiplier * moved * step / n,
            charge.guarantee,
        )

    def _rows(self) -> FloatArray:
        """Return the users' values as numbers, converted independently; invalid are 0."""
        width = self.shape[1] if len(self.shape) > 1 else None
        array = numbers(numeric_array(self.values, width, name="values"))
        return _finite(array.reshape(self.shape[0], -1))
