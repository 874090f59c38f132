"""Common parts of private scores of predictions: rows, noise and descriptions."""

from __future__ import annotations

import copy
import json
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import IntArray
from dpgrain.accounting import Contribution, Laplace
from dpgrain.choices.scores import BlockLosses, sum_losses
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import LabelledRows, arrange
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.inputs.numbers import numbers
from dpgrain.learn.rows import (
    ArrayRows,
    as_sequence,
    collect_lazy,
    count_rows,
    empty_features,
    empty_like,
    target_vector,
)
from dpgrain.noise import RandomState
from dpgrain.publishing import Plan, Promise, Query
from dpgrain.publishing.call import KeepsQuery
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.release_plan import compose
from dpgrain.units import User

# Probability that an interval misses the true value.
MISS_PROBABILITY = 0.05

Scored = TypeVar("Scored")


class Score(KeepsQuery):
    """Scores of predictions, with their guarantee."""

    guarantee: Guarantee

    def to_json(self) -> str:
        """Release as JSON text; a non-finite number is null."""
        values = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in vars(self).items()
        }
        whole = {**values, "guarantee": self.guarantee.to_dict()}
        return json.dumps(whole, ensure_ascii=False, default=vars)


def scored_rows(promise: Promise, y: Any, predicted: Any, users: Any, elements: Any) -> ArrayRows:
    """Return unread rows with predictions as features, after checking their form."""
    rows = ArrayRows.create(as_sequence(predicted), y, users, elements)
    if count_rows(rows.y) != count_rows(rows.X):
        raise ParameterError("predicted must have one value per value of y.", name="predicted")
    for form in (rows.y, rows.X):
        target_vector(empty_like(form), 0)
    ScoreQuery.check_promise(promise)
    # For a model's predictions, these are the features.
    named = {"X": predicted.X} if isinstance(predicted, Predictions) else {"predicted": rows.X}
    others = {"y": rows.y, **named}
    LabelledRows.create(count_rows(rows.y), rows.users, rows.elements, promise.unit, others=others)
    return rows


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScoreQuery(Query[Scored], Generic[Scored]):
    """Query for a score of predictions, which are the features of ``rows``."""

    promise: Promise
    rows: ArrayRows
    random_state: RandomState = None

    def __post_init__(self) -> None:
        self.check_promise(self.promise)

    @staticmethod
    def check_promise(promise: Promise) -> None:
        """Reject a unit of several blocks, whose shares could sum to more than 1."""
        if isinstance(promise.unit, User) and promise.unit.max_elements is not None:
            raise ParameterError(
                "unit must be User() without max_elements, because a user's share of all rows is "
                "at most 1."
            )

    @property
    @abstractmethod
    def parts(self) -> dict[str, Laplace]:
        """Noise of each sum by name."""

    @property
    @abstractmethod
    def public(self) -> tuple[Fact, ...]:
        """The facts that the score takes as public."""

    @property
    def plan(self) -> Plan:
        """Noise of all sums."""
        return Plan(
            array_guarantee(
                self.promise,
                compose(self.parts),
                self.public,
                users=self.rows.users,
                elements=self.rows.elements,
            ),
            parts=self.parts,
        )

    def laplace(self, share: float = 1.0) -> Laplace:
        """Return the noise, with a share of ε, for shares of l1 norm at most 1 per block."""
        enters = Contribution(self.promise.level, "shared", "nonnegative", "l1")
        moved = enters.sensitivity(1, self.promise.relation)
        # The margin prevents rounding from raising the sum above ε.
        return Laplace(moved / (share * self.promise.epsilon * (1 - 1e-12)), enters)

    def read(self, which: Any) -> NDArray[Any]:
        """Read targets or predictions."""
        values = which.computed() if isinstance(which, Predictions) else which
        return target_vector(values, count_rows(self.rows.y))

    def numbers(self, which: Any) -> NDArray[np.float64]:
        """Read targets or predictions as numbers, with NaN for invalid values."""
        return numbers(self.read(which))

    def blocks(self) -> BlockLosses:
        """Arrange the rows, and return the rule from rows to blocks."""
        rows = self.rows
        blocks = arrange(count_rows(rows.y), rows.users, rows.elements, self.promise.unit)
        return BlockLosses(blocks, 0.0, 1.0)


def sums(shares: list[IntArray]) -> IntArray:
    """Return the sums of several shares, (G,) each, over all blocks in steps."""
    return np.array([sum_losses(each) for each in shares], dtype=np.int64)


def require_numbers(name: str, form: Any) -> None:
    """Reject text instead of numbers, by its type, which is public."""
    if target_vector(form, 0).dtype.kind in "USM":
        raise ParameterError(f"{name} must be numbers, not text or times.", name=name)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of a copy of a model, computed when read, each from its own row."""

    model: Any
    X: Any
    positive: bool = False  # probabilities of the second label

    @staticmethod
    def create(model: Any, X: Any, *, positive: bool = False) -> Predictions:
        """Copy the coefficients of a model, so that later changes have no effect."""
        same = copy.copy(model)
        same.coef_, same.intercept_ = copy.deepcopy((model.coef_, model.intercept_))
        return Predictions(same, collect_lazy(X), positive)

    @property
    def shape(self) -> tuple[int]:
        """Number of rows."""
        return (count_rows(self.X),)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a prediction."""
        return self[0:0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: slice) -> NDArray[Any]:
        if which == slice(0, 0):
            return self._of(empty_features(self.X, self.model.n_features_in_))
        return self.computed()[which]

    def computed(self) -> NDArray[Any]:
        """Return the predictions of all rows."""
        return self._of(self.X)

    def _of(self, X: Any) -> NDArray[Any]:
        predicted: NDArray[Any] = (
            self.model.predict_proba(X)[:, 1] if self.positive else self.model.predict(X)
        )
        return predicted
