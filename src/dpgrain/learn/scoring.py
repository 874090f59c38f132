"""Common parts of private scores of predictions: rows, noise and descriptions."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpgrain._formatting import quantity
from dpgrain._types import IntArray
from dpgrain.accounting import Contribution, Event, Laplace
from dpgrain.choices.scores import BlockLosses, sum_losses
from dpgrain.errors import ParameterError
from dpgrain.inputs.blocks import LabelledRows
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.inputs.numbers import numbers
from dpgrain.learn.raw_inputs import (
    as_sequence,
    collect_lazy,
    count_rows,
    empty_features,
    empty_like,
)
from dpgrain.learn.reading import target_vector
from dpgrain.noise import RandomState
from dpgrain.publishing import Planned, Promise, Query
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import User

# Probability that an interval misses the true value.
MISS_PROBABILITY = 0.05

Scored = TypeVar("Scored")


class Score:
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


def query_fields(
    promise: Promise, y: Any, predicted: Any, users: Any, elements: Any
) -> dict[str, Any]:
    """Return the fields common to all queries for scores; nothing is read."""
    y, predicted = as_sequence(y), as_sequence(predicted)
    if count_rows(y) != count_rows(predicted):
        raise ParameterError("predicted must have one value per value of y.", name="predicted")
    for form in (y, predicted):
        target_vector(empty_like(form), 0)
    unit = promise.unit
    if isinstance(unit, User) and unit.max_elements is not None:
        raise ParameterError(
            "unit must be User() without max_elements, because a user's share of all rows is at "
            "most 1."
        )
    # For a model's predictions, these are the features.
    rows = {"X": predicted.X} if isinstance(predicted, Predictions) else {"predicted": predicted}
    unread = LabelledRows.of(count_rows(y), users, elements, unit, others={"y": y, **rows})
    return {"promise": promise, "y": y, "predicted": predicted, "unread": unread}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScoreQuery(Query[Scored], Generic[Scored]):
    """Query for a score of predictions."""

    promise: Promise
    y: Any
    predicted: Any
    unread: LabelledRows
    random_state: RandomState = None

    def __post_init__(self) -> None:
        self.check_unit(self.unread.unit)

    @property
    @abstractmethod
    def event(self) -> Event:
        """Accounting event of the release."""

    @property
    @abstractmethod
    def public(self) -> tuple[Fact, ...]:
        """The facts that the score takes as public."""

    @property
    def plan(self) -> Planned:
        """Noise of all sums."""
        return Planned(
            array_guarantee(
                self.promise,
                self.event,
                self.public,
                private=True,
                users=self.unread.users,
                elements=self.unread.elements,
            )
        )

    def laplace(self, share: float = 1.0) -> Laplace:
        """Return the noise, with a share of ε, for shares of l1 norm at most 1 per block."""
        enters = Contribution(self.promise.level, "shared", "nonnegative", "l1")
        moved = enters.sensitivity(1, self.promise.relation)
        # The margin prevents rounding from raising the sum above ε.
        return Laplace(moved / (share * self.promise.epsilon * (1 - 1e-12)), enters)

    def read(self, which: Any) -> NDArray[Any]:
        """Read targets or predictions."""
        return target_vector(
            which.computed() if isinstance(which, Predictions) else which, self.unread.rows
        )

    def numbers(self, which: Any) -> NDArray[np.float64]:
        """Read targets or predictions as numbers, with NaN for invalid values."""
        return numbers(self.read(which))

    def blocks(self) -> BlockLosses:
        """Arrange the rows, and return the rule from rows to blocks."""
        return BlockLosses(self.unread.arranged(), 0.0, 1.0)


def sums(shares: list[IntArray]) -> IntArray:
    """Return the sums of several shares, (G,) each, over all blocks in steps."""
    return np.array([sum_losses(each) for each in shares], dtype=np.int64)


def require_numbers(name: str, form: Any) -> None:
    """Reject text instead of numbers, by its type, which is public."""
    if target_vector(form, 0).dtype.kind in "USM":
        raise ParameterError(f"{name} must be numbers, not text or times.", name=name)


class Predictions:
    """Predictions of a model, computed when they are read, each from its own row only."""

    def __init__(self, predict: Callable[[Any], NDArray[Any]], X: Any, width: int) -> None:
        self._predict, self.X = predict, collect_lazy(X)
        self._none = predict(empty_features(self.X, width))
        self.shape = (count_rows(self.X),)
        self.dtype = self._none.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: slice) -> NDArray[Any]:
        return self._none[which] if which == slice(0, 0) else self.computed()[which]

    def computed(self) -> NDArray[Any]:
        """Return the predictions of all rows."""
        return self._predict(self.X)


def format_interval(value: float, low: float, high: float) -> str:
    """Describe a number and its interval.

    >>> format_interval(0.81234, 0.8, 0.9)
    '0.8123, 95% from 0.8 to 0.9'
    """
    return f"{value:.4g}, 95% from {low:.4g} to {high:.4g}"


def format_guarantee(guarantee: Guarantee) -> str:
    """Return the last lines of a printed score: the guarantee in short, and where it is in full."""
    return f"{guarantee.summary}\nFull guarantee: print(.guarantee)"


def format_units(units: float, level: str) -> str:
    """Describe the number of units of a score, and what its intervals do not cover.

    >>> format_units(-2.0, "user")
    'From about 0 users; intervals cover the noise, and not which users happened to have rows.'
    """
    return (
        f"From about {quantity(max(round(units), 0), level)}; intervals cover the noise, and not which "
        f"{level}s happened to have rows."
    )


def format_weights(level: str) -> str:
    """Describe the weights of rows, after a comma; empty for equal weights.

    >>> format_weights("user")
    ", each weighted by 1 ÷ its user's number of rows"
    """
    return "" if level == "record" else f", each weighted by 1 ÷ its {level}'s number of rows"
