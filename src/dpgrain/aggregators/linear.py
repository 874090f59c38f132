"""Clipped sums of the mean gradients of generalised linear models, without a gradient per record."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpgrain.aggregators.layouts import (
    DenseColumns,
    DenseRows,
    Layout,
    Model,
    Order,
    SlopedLoss,
    SparseRows,
    finite,
)
from dpgrain.aggregators.protocol import Drawn, FloatArray
from dpgrain.errors import ParameterError

Array = NDArray[Any]

# With no more coordinates than this, the sums of the blocks are small beside their rows.
_FEW = 256


@dataclass(frozen=True)
class LinearBlocks:
    """Rows of features and targets put together block by block; made by :meth:`arrange`.

    Args:
        X: (m, d) features as they came; float32 or float64, an array or CSR.
        y: (m,) targets.
        order: which rows each block has.
        intercept: whether a column of ones follows the features.
    """

    X: Any
    y: Array
    order: Order
    intercept: bool

    @staticmethod
    def arrange(
        X: Any,  # noqa: N803
        y: ArrayLike,
        codes: ArrayLike,
        *,
        intercept: bool,
        blocks: int | None = None,
    ) -> LinearBlocks:
        """Sort rows by block, and blocks by size.

        Args:
            X: (m, d) features, an array or a SciPy CSR matrix; float32 is kept, all else is float64. A
                feature that is not finite counts as 0.
            y: (m,) targets. A row whose target is not finite is left out.
            codes: (m,) the block of each row, from 0.
            intercept: add a column of ones.
            blocks: how many there are; by default the largest code and one.

        Raises:
            ParameterError: if the lengths differ, or a code is not one of a block.

        >>> from dpgrain.optimize import Squared
        >>> blocks = LinearBlocks.arrange([[1.0], [1.0], [2.0]], [1, 3, 8], [0, 0, 1], intercept=False)
        >>> blocks.gradients(Squared(), np.zeros(1)).clipped_sum(5.0).tolist()
        [-7.0]
        """
        features, targets, of = _features(X), np.asarray(y), np.asarray(codes, dtype=np.intp)
        if not features.shape[0] == len(targets) == len(of):
            raise ParameterError(
                f"X, y and codes must have as many rows as each other, not {features.shape[0]}, "
                f"{len(targets)} and {len(of)}."
            )
        count = int(of.max(initial=-1)) + 1 if blocks is None else blocks
        if of.min(initial=0) < 0 or of.max(initial=-1) >= count:
            raise ParameterError(f"codes must lie between 0 and blocks − 1 = {count - 1}.")
        order = Order.of(of, np.isfinite(targets), count)
        return LinearBlocks(features, targets, order, intercept)

    @property
    def blocks(self) -> int:
        """How many blocks there are, with those that have no rows."""
        return self.order.blocks

    @property
    def rows(self) -> int:
        """How many rows they have together."""
        return len(self.order.rows)

    @property
    def features(self) -> int:
        """The number d of features, the intercept not included."""
        return int(self.X.shape[1])

    def gradients(self, loss: SlopedLoss, theta: ArrayLike) -> LinearGradients:
        """The mean gradient of each block at theta, as contributions.

        Args:
            loss: a loss of margins.
            theta: (outputs · (d + intercept),), row-major, the intercept last in each row.

        Raises:
            ParameterError: if theta has another length.
        """
        weights = np.asarray(theta, dtype=np.float64)
        shape = (loss.outputs, self.features + self.intercept)
        if weights.size != shape[0] * shape[1]:
            raise ParameterError(
                f"theta must have {shape[0]} · {shape[1]} entries, not {weights.size}."
            )
        with np.errstate(over="ignore"):
            model = Model(loss, weights.reshape(shape).astype(self.X.dtype))
        return LinearGradients(self.blocks, model, self._layout(weights.size))

    def _layout(self, coordinates: int) -> Layout:
        """The rows, laid out once for parameters of this length."""
        if sparse.issparse(self.X):
            return self._sparse
        return self._columns if coordinates <= _FEW else self._dense

    @cached_property
    def _sparse(self) -> SparseRows:
        return SparseRows.of(self.X, self.y, self.order, self.intercept)

    @cached_property
    def _dense(self) -> DenseRows:
        return DenseRows.of(self.X, self.y, self.order, self.intercept)

    @cached_property
    def _columns(self) -> DenseColumns:
        return DenseColumns.of(self.X, self.y, self.order, self.intercept)


@dataclass(frozen=True)
class LinearGradients:
    """The mean gradients of blocks at one parameter; made by :meth:`LinearBlocks.gradients`."""

    blocks: int
    _model: Model
    _layout: Layout

    @property
    def dimension(self) -> int:
        """The length of a block's gradient."""
        return int(self._model.weights.size)

    def clipped_sum(self, clip: float, drawn: Drawn | None = None) -> FloatArray:
        """The sum of the blocks' clipped mean gradients.

        Args:
            clip: the clipping bound ρ, l2.
            drawn: the sorted indices of the blocks that count; all by default.

        Formal guarantee: a block adds at most ρ·(1 + 10⁻⁵) in norm to the sum, rounding of its own
        gradient included.
        """
        with np.errstate(all="ignore"):
            return self._layout.clipped_sum(self._model, clip, drawn).reshape(-1)

    def vectors(self, drawn: Drawn | None = None) -> FloatArray:
        """The blocks' mean gradients, (number of blocks, dimension); one that is not finite is zero."""
        which = np.arange(self.blocks) if drawn is None else np.asarray(drawn, dtype=np.intp)
        with np.errstate(all="ignore"):
            found = self._layout.vectors(self._model, which)
        found[~np.isfinite(found).all(axis=1)] = 0.0
        return found


def _features(X: Any) -> Any:  # noqa: N803
    """Features as floats of which all are finite: an array, or CSR."""
    if sparse.issparse(X):
        csr = sparse.csr_array(X)
        data = csr.data if csr.dtype == np.float32 else csr.data.astype(np.float64)
        return sparse.csr_array((finite(data), csr.indices, csr.indptr), shape=csr.shape)
    array = np.asarray(X)
    if array.ndim != 2:
        raise ParameterError(f"X must have two dimensions, not {array.ndim}.")
    return array if array.dtype == np.float32 else np.asarray(array, dtype=np.float64)
