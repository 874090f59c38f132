"""Loaded rows of a fit, and its published result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import FloatArray
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.norms import NormHistogram
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.inputs.array_blocks import ArrangedRows, arrange
from dpgrain.inputs.callbacks import silent
from dpgrain.learn.bounding import bounded
from dpgrain.learn.classes import Targets
from dpgrain.learn.confidence import Evidence
from dpgrain.learn.rounds import History
from dpgrain.learn.rows import ArrayRows, count_rows
from dpgrain.means import Contributions
from dpgrain.optimize import MarginLoss
from dpgrain.units import Unit

if TYPE_CHECKING:
    from dpgrain.learn.distributed import ClusterData
    from dpgrain.learn.fit_config import FitConfig
    from dpgrain.learn.model import LinearModel

#: Labels of a classifier; None for numbers, or before labels are selected.
Classes: TypeAlias = NDArray[Any] | None
#: Function from a loss with known labels and a parameter to the mean gradients of blocks.
Gradients: TypeAlias = Callable[[MarginLoss, FloatArray], Contributions]
#: Rows of a fit while they are read, in memory or on a cluster.
LoadedRows: TypeAlias = "FitData | ClusterData"


@dataclass(frozen=True, eq=False)
class FitData:
    """Loaded rows of a fit, (m, d), with their blocks."""

    X: Any
    targets: Targets
    rows: ArrangedRows
    users: Any
    max_records: int = 1

    @staticmethod
    def create(
        model: LinearModel,
        rows: ArrayRows,
        unit: Unit,
        *,
        classes: Classes = None,  # public labels
        places: bool = False,
    ) -> FitData:
        """Read rows as numbers in blocks; the model learns the names of their features."""
        with silent():
            # Warnings about the form were issued before the charge.
            X, targets = model.read(rows.X, rows.y)
        if classes is not None and targets.classes is None:
            # A boolean column with nulls has another type in memory.
            targets = Targets(model._rule(classes)(np.asarray(rows.y)), classes=classes)
        blocks = arrange(count_rows(X), rows.users, rows.elements, unit, places=places)
        return FitData(X, targets, blocks, rows.users)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of records with a target of each block that has one, which is private."""
        has = np.isfinite(self.targets.values[self.rows.indices].astype(np.float64))
        sizes = np.bincount(self.rows.blocks[has], minlength=len(self.rows.owners))
        return sizes[sizes > 0]

    def gradients(self, config: FitConfig) -> Gradients:
        """Return the gradients of blocks; rows are copied once, in the order of blocks."""
        bound, values = config.feature_bound, self.targets.values
        rows = self.rows.by_value(self.X, values) if config.exact else self.rows
        blocks = LinearBlocks.arrange(
            self.X,
            values,
            rows.blocks,
            intercept=config.fit_intercept,
            blocks=len(rows.owners),
            indices=rows.indices,
            read=None if bound is None else partial(bounded, bound=bound),
            max_records=self.max_records,
        )
        return partial(LinearGradients, blocks)


@dataclass(frozen=True, eq=False)
class FitResult:
    """Published result of all rounds of a fit, as stored in a model file."""

    theta: FloatArray  # (outputs·p,), on the scale of the fitted rows
    outputs: int
    history: History
    rounds: int  # without the warm-up
    n_users: int | None  # None in older files
    sampled: bool = False
    classes: Classes = None
    evidence: Evidence | None = None
    # Noisy histograms of gradient norms; the last determines the bound.
    norms: tuple[NormHistogram, ...] = ()
    warm_up: int = 0
    max_records: int | None = None
    mean_weight: float | None = None  # estimated weight of a user, for weights by records
