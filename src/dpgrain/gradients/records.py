"""Contributions of blocks for any loss: mean gradients, or steps on a loss model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError, reraise_keyboard_interrupt
from dpgrain.inputs.callbacks import map_records, silent
from dpgrain.means.mean_protocol import Drawn
from dpgrain.numerics.row_clipping import clipped

# Largest norm of a record's gradient, in clipping bounds, so that rounding remains a small share of
# the bound.
LONGEST = 1e6
# Maximum entries of a batch of gradients: 16 MB.
_BATCH_ENTRIES = 1 << 21


class _Loss(Protocol):
    """Part of :class:`dpgrain.optimize.LossFunction` used here."""

    def gradient(self, theta: Any, X: Any, y: Any) -> NDArray[Any]:
        """Return the gradients of m records, (m, p)."""


@dataclass(frozen=True)
class RecordBlocks:
    """Records in the order of their blocks, created by :meth:`arrange`.

    Block b has the rows from ``starts[b]`` to before ``starts[b + 1]``. The vector of a block with
    n rows is weighted by min(n, max_records)/max_records.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    starts: NDArray[np.int64]
    max_records: int = 1

    @staticmethod
    def arrange(
        X: ArrayLike,
        y: ArrayLike,
        codes: ArrayLike,
        *,
        blocks: int | None = None,
        max_records: int = 1,
    ) -> RecordBlocks:
        """Sort records by their blocks' codes, (m,), which start at 0."""
        features, targets, of = np.asarray(X), np.asarray(y), np.asarray(codes)
        if not len(features) == len(targets) == len(of):
            raise ParameterError("X, y and codes must have the same number of rows.")
        count = int(of.max(initial=-1)) + 1 if blocks is None else blocks
        order = np.argsort(of, kind="stable")
        starts = np.searchsorted(of[order], np.arange(count + 1))
        # Row results are rounded differently if the array is stored column by column.
        rows = np.ascontiguousarray(features[order])
        return RecordBlocks(rows, targets[order], starts, max_records)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.starts) - 1

    def select(self, which: Drawn) -> RecordBlocks:
        """Return the blocks with these indices, in order."""
        sizes = np.diff(self.starts)[which]
        rows = _rows(self.starts[which], sizes)
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return RecordBlocks(self.X[rows], self.y[rows], ends, self.max_records)

    def divisors(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the divisors of sums over blocks for their weighted means, (blocks,)."""
        # min(n, most)/most of the mean of n rows is 1/max(n, most) of their sum.
        return np.maximum(sizes, self.max_records)

    def gradients(
        self, loss: _Loss, theta: FloatArray, *, longest: float = math.inf
    ) -> BlockVectors:
        """Return the mean gradient of each block at theta, (p,), as contributions.

        ``longest`` is the norm to which records' gradients are clipped; :data:`LONGEST` clipping
        bounds limit rounding to a small share of the bound, for any records.
        """

        def per_record(X: Any, y: Any) -> FloatArray:
            # The loss can be the caller's. If it fails on a record, the record's block is zero.
            gradients = map_records(
                lambda first, last: loss.gradient(theta, X[first:last], y[first:last]),
                len(X),
                (len(theta),),
            )
            return clipped(gradients, longest) if longest < math.inf else gradients

        def mean(X: Any, y: Any, sizes: NDArray[np.int64]) -> FloatArray:
            """Return the mean gradients of consecutive blocks with these sizes."""
            out = np.zeros((len(sizes), len(theta)))
            large = sizes > max(1, _BATCH_ENTRIES // max(len(theta), 1))
            if large.any():
                # A large block is summed separately, so that the order of its rows' sum does not
                # depend on neighbouring blocks.
                ends = np.cumsum(sizes)
                for i in np.flatnonzero(sizes):
                    own = slice(int(ends[i] - sizes[i]), int(ends[i]))
                    total = _in_slices(per_record, X[own], y[own], len(theta))
                    out[i] = total / self.divisors(sizes[i])
                return out
            full = np.flatnonzero(sizes)
            if len(full):
                first = np.concatenate([[0], np.cumsum(sizes[full])[:-1]])
                divisors = self.divisors(sizes[full])[:, None]
                out[full] = np.add.reduceat(per_record(X, y), first, axis=0) / divisors
            return out

        return BlockVectors(self, len(theta), mean)

    def steps(
        self, step: Callable[[FloatArray, Any, Any], FloatArray], theta: FloatArray, size: float
    ) -> BlockVectors:
        """Return the direction (θ − θ⁺)/size of a step on each block's loss; 0 if empty.

        ``step`` maps (theta, X, y) of one block to θ⁺. Source: element-level paper, Algorithm 1
        (−Δ) and Appendix D.
        """

        def displacements(X: Any, y: Any, sizes: NDArray[np.int64]) -> FloatArray:
            out = np.zeros((len(sizes), len(theta)))
            ends = np.cumsum(sizes)
            for i in np.flatnonzero(sizes):
                own = slice(ends[i] - sizes[i], ends[i])
                # The step can call a caller's loss, and its exception would reveal the block.
                try:
                    with silent():
                        out[i] = (theta - step(theta, X[own], y[own])) / size
                        if self.max_records > 1:
                            out[i] *= sizes[i] / self.divisors(sizes[i])
                except BaseException as error:
                    reraise_keyboard_interrupt(error)
            return out

        return BlockVectors(self, len(theta), displacements)


@dataclass(frozen=True, eq=False)
class MeanGradients:
    """Mean gradients of blocks at a parameter, for any records."""

    loss: _Loss
    theta: FloatArray
    longest: float = math.inf

    def __call__(self, records: RecordBlocks) -> BlockVectors:
        """Return the gradients of the records' blocks."""
        return records.gradients(self.loss, self.theta, longest=self.longest)


@dataclass(frozen=True, eq=False)
class ModelSteps:
    """Directions of steps on a loss model, for blocks of any records."""

    step: Callable[..., FloatArray]  # (loss, theta, X, y, size, domain) of one block to θ⁺
    loss: _Loss
    theta: FloatArray
    size: float
    domain: Any

    def __call__(self, records: RecordBlocks) -> BlockVectors:
        """Return the directions of the records' blocks."""

        def step(at: FloatArray, X: Any, y: Any) -> FloatArray:
            return self.step(self.loss, at, X, y, self.size, self.domain)

        return records.steps(step, self.theta, self.size)


@dataclass(frozen=True)
class BlockVectors:
    """Vector of each block, formed on demand in bounded batches."""

    records: RecordBlocks
    dimension: int
    form: Callable[[Any, Any, NDArray[np.int64]], FloatArray]  # features, targets, sizes → vectors

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.records.starts) - 1

    def vectors(self, drawn: Drawn | None = None) -> FloatArray:
        """Return the vectors of the (sampled) blocks; zero if not finite."""
        parts = list(self._parts(drawn))
        return np.concatenate(parts) if parts else np.zeros((0, self.dimension))

    def clipped_sum(self, clip: float, drawn: Drawn | None = None) -> FloatArray:
        """Return the sum of the clipped vectors of the (sampled) blocks."""
        total = np.zeros(self.dimension)
        for part in self._parts(drawn):
            total += clipped(part, clip).sum(axis=0)
        return total

    def _parts(self, drawn: Drawn | None) -> Iterator[FloatArray]:
        """Yield the vectors in order, one tile of blocks at a time."""
        which = np.arange(self.blocks) if drawn is None else np.asarray(drawn)
        starts = self.records.starts
        sizes = starts[which + 1] - starts[which]
        most = max(1, _BATCH_ENTRIES // max(self.dimension, 1))
        # A tile has a bounded number of rows and blocks. A larger block is a separate tile, because
        # large blocks are computed differently.
        tile = (np.cumsum(sizes) + np.arange(len(which))) // most
        large = sizes > most
        cut = (np.diff(tile) > 0) | large[1:] | large[:-1]
        for some in np.split(np.arange(len(which)), np.flatnonzero(cut) + 1):
            if len(some) == 0:
                continue
            rows = _rows(starts[which[some]], sizes[some])
            with np.errstate(all="ignore"):
                # Overflow depends on one user's value, which a warning would reveal.
                formed = self.form(self.records.X[rows], self.records.y[rows], sizes[some])
            vectors = np.asarray(formed, dtype=np.float64)
            vectors[~np.isfinite(vectors).all(axis=1)] = 0.0
            yield vectors


def _in_slices(
    per_record: Callable[[Any, Any], FloatArray],
    X: Any,
    y: Any,
    width: int,
) -> FloatArray:
    """Return the sum of gradients of one block in slices, (1, p), to limit memory."""
    most = max(1, _BATCH_ENTRIES // max(width, 1))
    total = np.zeros((1, width))
    for first in range(0, len(X), most):
        own = slice(first, first + most)
        total += np.add.reduceat(per_record(X[own], y[own]), [0], axis=0)
    return total


def _rows(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row indices of blocks, one block after the other."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))
