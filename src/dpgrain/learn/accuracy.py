"""Private accuracy of a classifier, next to the accuracy of the most common class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Laplace
from dpgrain.choices.scores import STEPS
from dpgrain.inputs.array_blocks import default_unit
from dpgrain.learn.classes import Labels
from dpgrain.learn.scoring import (
    MISS_PROBABILITY,
    Score,
    ScoreQuery,
    scored_rows,
    sums,
)
from dpgrain.noise import RandomState
from dpgrain.noise.distributions import raise_scale
from dpgrain.publishing import Charge, Promise, Query
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.publish import publishes
from dpgrain.statistics.intervals import ratio_interval
from dpgrain.statistics.plan import noise_sd
from dpgrain.units import Relation, Unit
from dpgrain.words.score_text import accuracy_text

# Share of ε for the base rate, which needs less because the most common class is rarely close.
_BASE_SHARE = 1 / 3


@dataclass(frozen=True)
class Accuracy(Score):
    """Published accuracy of a classifier, next to the accuracy of the most common class.

    Args:
        value: the mean over units with rows of the share of a unit's correctly classified rows.
        low: the lower end of its 95% interval.
        high: the upper end.
        base: the accuracy of always predicting the most common class.
        base_low: the lower end of its 95% interval.
        base_high: the upper end.
        units: the approximate number of units with rows.
        guarantee: the guarantee of the whole release.

    Intervals cover the noise: they refer to the units in the passed rows, and contain the true
    value in at least 95% of releases, for any rows.

    >>> y, users = np.repeat([0, 1, 1], 800), np.repeat(np.arange(600), 4)
    >>> found = accuracy(y, np.ones(2400), users=users, classes=[0, 1], epsilon=1.0, random_state=1)
    >>> round(found.value, 1), round(found.base, 1), found.guarantee.level
    (0.7, 0.7, 'user')
    """

    value: float
    low: float
    high: float
    base: float
    base_low: float
    base_high: float
    units: float
    guarantee: Guarantee

    def __str__(self) -> str:
        return accuracy_text(self)


@publishes
def accuracy(
    y: Any,
    predicted: Any,
    *,
    classes: Sequence[Any],
    users: Any = None,
    elements: Any = None,
    unit: Unit | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    random_state: RandomState = None,
) -> Query[Accuracy]:
    """Publish the accuracy of a classifier for the average unit.

    Args:
        y: (m,) the labels.
        predicted: (m,) the predicted labels, each from its own row only, such as
            ``model.predict(X)`` or the predictions of a network.
        classes: the public labels; a row with another label is wrong, and in no class.
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
        ParameterError: if a value is out of range, or the numbers of labels and predictions differ.

    A unit's share of correct rows is between 0 and 1, so nothing is clipped, and intervals refer to
    the accuracy itself. All units have equal weight, regardless of their numbers of rows.

    Formal guarantee: ε-DP for the unit and relation, for any rows, if the classifier depends only
    on public or published information. A unit adds one vector of l1 norm at most 1 to the sums of
    correct and wrong shares, and another to the sums of the classes' shares. Source: docs/theory,
    "Choosing among hypotheses".

    >>> query = accuracy.query(
    ...     np.array([0, 1]), np.array([0, 1]), users=np.array([1, 2]), classes=[0, 1], epsilon=1.0)
    >>> round(query.plan.guarantee.epsilon(), 6)
    1.0
    """
    promise = Promise.of(default_unit(unit, users), epsilon, delta, relation, share)
    rows = scored_rows(promise, y, predicted, users, elements)
    return AccuracyQuery(
        promise=promise, rows=rows, labels=Labels.create(classes), random_state=random_state
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AccuracyQuery(ScoreQuery[Accuracy]):
    """Query for an accuracy."""

    labels: Labels

    @cached_property
    def parts(self) -> dict[str, Laplace]:
        """Noise of the correct and wrong shares, and of the classes' shares."""
        return {"accuracy": self.laplace(1 - _BASE_SHARE), "classes": self.laplace(_BASE_SHARE)}

    @property
    def public(self) -> tuple[Fact, ...]:
        """The number of labels, and the classifier."""
        return Fact("labels", (len(self.labels.classes),)), Fact("classifier")

    def run(self, charge: Charge) -> Accuracy:
        """Read the labels, add up each unit's shares, and publish them with noise."""
        right, base = self.parts.values()
        of_rights, of_classes = charge.read(self._sums)
        radius = float(raise_scale(STEPS))
        noisy = charge.noisy(right, of_rights, radius) / STEPS
        classes = charge.noisy(base, of_classes, radius) / STEPS
        result, common = _share(noisy[:1], noisy, right), _share(classes[:-1], classes, base)
        return Accuracy(*result, *common, float(noisy.sum()), charge.guarantee)

    def _sums(self) -> tuple[IntArray, IntArray]:
        """Sums of units' shares in steps: of correct and wrong rows, and by class."""
        y, predicted = (self.labels(self.read(of)) for of in (self.rows.y, self.rows.X))
        rows, classes = self.blocks(), range(len(self.labels.classes))
        right = rows.of((y == predicted).astype(np.float64))
        of_classes = [rows.of((y == place).astype(np.float64)) for place in classes]
        return sums(_with_remainder([right])), sums(_with_remainder(of_classes))


def _with_remainder(shares: list[IntArray]) -> list[IntArray]:
    """Append the remainders to shares of blocks in steps, (G,), so that they sum to 1."""
    return [*shares, STEPS - np.sum(shares, axis=0)]


def _share(parts: FloatArray, sums: FloatArray, noise: Laplace) -> tuple[float, float, float]:
    """Return the largest share of (C,) parts in (S,) noisy sums, and its 95% interval."""
    # All intervals are valid simultaneously, so their largest ends bound the largest share.
    whole = sums.sum()
    within = noise.law.quantile(1 - MISS_PROBABILITY / 2 / parts.size) * noise_sd(noise)
    low, high = ratio_interval(parts, whole - parts, np.array(within), 1, sums.size - 1)
    # Shares are truncated to steps, each by less than one.
    steps = (sums.size + 1) / STEPS
    share = parts.max() / whole if whole > 0 else 0.5
    ends = np.clip([share, low.max() - steps, high.max() + steps], 0.0, 1.0)
    value, least, most = ends.tolist()
    return value, least, most
