"""Labels of a classifier: explicit, by the targets' type, or selected privately.

Labels found in the targets are not public, because a label can belong to a single user.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray
from dpgrain.accounting import Contribution, Selection
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import ArrangedRows
from dpgrain.inputs.codes import Key, codes, distinct_labels, label_array, match_stated
from dpgrain.inputs.labels import label_from_key, rank
from dpgrain.inputs.numbers import numbers
from dpgrain.noise import RandomSource
from dpgrain.noise.distributions import MAX_SCALE
from dpgrain.publishing.draws import counted
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.promise import Promise
from dpgrain.statistics.plan import select_by_threshold
from dpgrain.units import Level, Unit, User

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazy_import("pandas")


#: Shares of the budget for selecting labels: of μ², and of δ for a label of a single unit.
SELECTION_SHARE, SELECTION_DELTA = 0.03, 0.1


@dataclass(frozen=True)
class Targets:
    """Targets of rows as the loss uses them, (m,), or label codes before selection."""

    values: FloatArray
    public: tuple[Fact, ...] = ()
    labels: tuple[Key, ...] | None = None  # keys of the codes to select; None after selection
    classes: NDArray[Any] | None = None  # public labels


#: Targets of no rows, without labels.
NO_TARGETS = Targets(np.zeros(0))


@dataclass(frozen=True, eq=False)
class Labels:
    """Rule from labels to indices of public labels, NaN for others; sent to workers."""

    classes: NDArray[Any]

    @staticmethod
    def create(labels: Any) -> Labels:
        """Build the rule from a caller's labels, in any order."""
        classes = distinct_labels("classes", labels)
        if len(classes) < 2:
            raise ParameterError(
                f"classes must be at least two labels, not {len(classes)}; pass all labels as "
                "classes=[…]."
            )
        return Labels(classes)

    def __call__(self, y: NDArray[Any]) -> FloatArray:
        """Return the index of each label, (m,); NaN for other labels."""
        result, keys = codes(y)
        place = match_stated("classes", self.classes, keys)
        of = np.append(np.where(place < 0, np.nan, place), np.nan)
        values: FloatArray = of[result]
        return values


@dataclass(frozen=True)
class NumericTargets:
    """Rule from targets to numbers; sent to workers."""

    lower: float = -math.inf  # smaller numbers are raised to it
    bound: float | None = None  # numbers are clipped to ±bound and divided by it

    def __call__(self, y: NDArray[Any]) -> FloatArray:
        """Return the numbers, (m,); NaN for invalid values."""
        result: FloatArray = numbers(y)
        if self.bound is not None:
            # An infinite target remains infinite, so that its row is still dropped.
            inside = np.clip(result, -self.bound, self.bound) / self.bound
            result = np.where(np.isfinite(result), inside, result)
        # An infinite number remains infinite unless there is a lower limit.
        return result if self.lower == -math.inf else np.maximum(result, self.lower)


#: Rule that converts targets for a loss.
TargetRule: TypeAlias = "Labels | NumericTargets"


def unselected_targets(y: NDArray[Any]) -> Targets:
    """Return the labels of the targets, (m,), for private selection, without nulls."""
    result, keys = codes(y)
    return Targets(np.where(result < 0, np.nan, result), labels=tuple(keys))


def block_contribution(
    unit: Unit, coordinates: Literal["one", "nonnegative", "signed"]
) -> Contribution:
    """Return the contribution of blocks of rows to a shared sum."""
    limit = unit.max_elements if isinstance(unit, User) else None
    level: Level = "element" if limit is not None else unit.level
    return Contribution(level, "shared", coordinates, max_elements=limit)


def plan_selection(promise: Promise) -> Selection:
    """Return the selection of labels with its share of the budget."""
    unit, relation = promise.unit, promise.relation
    contribution = block_contribution(unit, "nonnegative")
    whole = gaussian_mu(promise.epsilon, (1 - SELECTION_DELTA) * promise.delta)
    noise = contribution.sensitivity(1, relation, unit) / (whole * math.sqrt(SELECTION_SHARE))
    if noise > MAX_SCALE / 4:
        raise ParameterError(
            f"classes is required with epsilon = {promise.epsilon!r}, because the noise would be too "
            "large for private selection; pass all labels as classes=[…].",
            name="classes",
        )
    return select_by_threshold(
        noise, SELECTION_DELTA * promise.delta, 1, contribution, relation, unit
    )


def selection_fact(event: Selection) -> Fact:
    """Return the public fact about a selection."""
    return Fact(
        "selected-labels",
        (SELECTION_SHARE, SELECTION_DELTA, event.level, math.ceil(event.threshold)),
    )


def select_labels(
    targets: Targets, rows: ArrangedRows, event: Selection, source: RandomSource
) -> tuple[NDArray[Any], FloatArray]:
    """Return the privately selected labels, (C,), and each row's index or NaN, (m,).

    Formal guarantee: ``event``. Each block votes for the label of one randomly drawn row, so a
    block adds 1 to one count. Source: docs/theory, "Unstated labels".
    """
    known = targets.labels
    assert known is not None  # noqa: S101 - for the type checker
    result, blocks = targets.values[rows.indices], rows.blocks
    selected = np.flatnonzero(np.isfinite(result))
    # Rows are shuffled secretly, and each block's first row determines its vote.
    draws = counted(source, event)
    drawn = draws.generator("votes").permutation(len(selected))
    _, first = np.unique(blocks[selected[drawn]], return_index=True)
    votes = result[selected[drawn[first]]].astype(np.intp)
    counts = np.bincount(votes, minlength=len(known)).astype(np.int64)
    present = np.flatnonzero(counts)
    noisy, _ = draws.select(event, counts[present], 1.0, 1.0)
    # A rounded number passes only if the unrounded number does.
    passed = present[noisy >= math.ceil(event.threshold + 0.5)]
    if len(passed) < 2:
        raise ParameterError(
            "classes must be at least two labels, not one class or none; private selection needs "
            f"about {math.ceil(event.threshold):,} {event.level}s per label, and each counts for one "
            "label, so pass all labels as classes=[…].",
            name="classes",
        )
    # The order of published labels depends only on their keys, not on their spelling in a row.
    passed = np.array(sorted(passed, key=lambda code: rank(known[code])), dtype=np.intp)
    labels = label_array([label_from_key(known[code]) for code in passed])
    place = np.full(len(known) + 1, np.nan)
    place[passed] = np.arange(len(passed))
    every = np.where(np.isfinite(targets.values), targets.values, -1).astype(np.intp)
    return labels, place[every]
