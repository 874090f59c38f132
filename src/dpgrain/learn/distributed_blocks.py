"""Computations on workers: blocks are arranged once, and summed in each round.

Workers receive only public rules, a parameter, a loss and a clipping bound. Noise, budgets and
ledgers remain on the driver. A partition of the rows contains whole users, and thus whole blocks;
they are stored as bytes, in cells of equal-sized rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from dpgrain._types import FloatArray, IntArray
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.norms import BINS, norm_counts
from dpgrain.gradients.records import BlockVectors, RecordBlocks
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.inputs.array_blocks import arrange
from dpgrain.inputs.worker_tables import CELL_BYTES, RUN_BYTES, Batches, worker_tables
from dpgrain.learn.bounding import bounded
from dpgrain.learn.classes import TargetRule
from dpgrain.learn.features import ColumnRoles
from dpgrain.means.grid import added_in_steps
from dpgrain.means.mean_protocol import Contributions
from dpgrain.optimize import MarginLoss
from dpgrain.units import Unit

#: Schema of stored blocks: consecutive rows of features and targets, the number of rows per block,
#: whether the last block continues in the next cell, and the number of users with rows.
BLOCKS = pa.schema(
    {
        "rows": pa.binary(),
        "targets": pa.binary(),
        "sizes": pa.binary(),
        "open": pa.bool_(),
        "users": pa.int64(),
    }
)

#: Rows of whole blocks: (m, p) features, (m,) targets, (g,) sizes of blocks.
BlockRows: TypeAlias = tuple[FloatArray, FloatArray, IntArray]


class BlockContributions(Protocol):
    """Function from whole blocks to their contributions to a round."""

    def __call__(self, X: FloatArray, y: FloatArray, sizes: IntArray) -> Contributions:
        """Return the contributions of the blocks."""


@dataclass(frozen=True)
class ArrangeLinear:
    """Rule for arranging rows of the estimators."""

    bound: float | None
    intercept: bool

    def __call__(self, X: FloatArray, y: FloatArray, blocks: IntArray, count: int) -> BlockRows:
        """Return rows by block, small blocks first."""
        read = None if self.bound is None else partial(bounded, bound=self.bound)
        arranged = LinearBlocks.arrange(
            X, y, blocks, intercept=self.intercept, blocks=count, read=read
        )
        return arranged.X, arranged.y, arranged.sizes


@dataclass(frozen=True)
class ArrangeRecords:
    """Rule for arranging rows of ``minimise``, for any loss."""

    def __call__(self, X: FloatArray, y: FloatArray, blocks: IntArray, count: int) -> BlockRows:
        """Return rows by block; 0 for non-finite features, without rows that lack a target."""
        valid = np.isfinite(y)
        clean = np.where(np.isfinite(X[valid]), X[valid], 0.0)
        arranged = RecordBlocks.arrange(clean, y[valid], blocks[valid], blocks=count)
        sizes = np.diff(arranged.starts)
        return arranged.X, arranged.y, sizes[sizes > 0]


@dataclass(frozen=True)
class ArrangeBlocks:
    """Arrangement of a worker's rows by block."""

    roles: ColumnRoles
    rule: TargetRule
    unit: Unit
    by: ArrangeLinear | ArrangeRecords

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the blocks in the schema :data:`BLOCKS`."""
        for table in worker_tables(batches, users=self.roles.users):
            yield from self._arranged(table)

    def _arranged(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        result = self.roles.split(table)
        X = np.ascontiguousarray(result.X.to_numpy(dtype=np.float64))
        with np.errstate(all="ignore"):
            y = self.rule(np.asarray(result.y))
        rows = arrange(len(y), result.users, result.elements, self.unit).by_value(X, y)
        arranged = self.by(X[rows.indices], y[rows.indices], rows.blocks, len(rows.owners))
        yield from block_cells(*arranged, users=rows.users)


def block_cells(
    X: FloatArray, y: FloatArray, sizes: IntArray, *, users: int
) -> Iterator[pa.RecordBatch]:
    """Yield blocks in the schema :data:`BLOCKS`; the first cell contains ``users``."""
    ends = np.cumsum(sizes)
    most = max(1, CELL_BYTES // max(8 * X.shape[1], 1))
    for first in range(0, max(len(y), 1), most):
        last = min(first + most, len(y))
        inside = ends[np.searchsorted(ends, first, "right") : np.searchsorted(ends, last)]
        pieces = np.diff(np.concatenate([[first], inside, [last]]))
        open_ = last < len(y) and ends[np.searchsorted(ends, last)] != last
        cell = {
            "rows": X[first:last].tobytes(),
            "targets": y[first:last].tobytes(),
            "sizes": pieces[pieces > 0].astype(np.int64).tobytes(),
            "open": bool(open_),
            "users": users if first == 0 else 0,
        }
        yield pa.RecordBatch.from_pylist([cell], BLOCKS)


def stored_blocks(batches: Batches) -> Iterator[BlockRows]:
    """Yield the stored blocks of a worker in batches of whole blocks."""
    cells: list[tuple[BlockRows, bool]] = []
    size = 0
    for batch in batches:
        for rows, targets, sizes, open_, _ in zip(*batch.columns, strict=True):
            y = np.frombuffer(targets.as_buffer(), np.float64)
            if not len(y):
                continue
            X = np.frombuffer(rows.as_buffer(), np.float64).reshape(len(y), -1)
            cells.append(((X, y, np.frombuffer(sizes.as_buffer(), np.int64)), open_.as_py()))
            size += X.nbytes
            if size >= RUN_BYTES and not open_.as_py():
                yield _join_cells(cells)
                cells, size = [], 0
    if cells:
        yield _join_cells(cells)


def _join_cells(cells: list[tuple[BlockRows, bool]]) -> BlockRows:
    """Join cells; an open last block continues in the next cell."""
    X, y, pieces = (np.concatenate(parts) for parts in zip(*(run for run, _ in cells), strict=True))
    begins = np.ones(len(pieces), dtype=bool)
    ends = np.cumsum([len(run[2]) for run, _ in cells])
    for end, (_, continues) in zip(ends, cells, strict=True):
        if continues:
            begins[end] = False
    return X, y, np.add.reduceat(pieces, np.flatnonzero(begins))


@dataclass(frozen=True, eq=False)
class LinearContributions:
    """Mean gradients of blocks of a linear model at a parameter, (C·p,)."""

    loss: MarginLoss
    theta: FloatArray

    def __call__(self, X: FloatArray, y: FloatArray, sizes: IntArray) -> LinearGradients:
        """Return the gradients of blocks."""
        count = len(sizes)
        return LinearGradients(
            LinearBlocks(X, y, sizes, np.arange(count), count), self.loss, self.theta
        )


@dataclass(frozen=True, eq=False)
class RecordContributions:
    """Contributions of blocks of records for any loss."""

    at: Callable[[RecordBlocks], BlockVectors]

    def __call__(self, X: FloatArray, y: FloatArray, sizes: IntArray) -> BlockVectors:
        """Return the blocks' contributions."""
        return self.at(RecordBlocks(X, y, np.concatenate([[0], np.cumsum(sizes)])))


@dataclass(frozen=True, eq=False)
class SumInSteps:
    """Sum of a worker's clipped blocks, in integer multiples of a grid step."""

    contributions: BlockContributions
    dimension: int
    clip: float
    step: float
    centre: FloatArray | None = None

    def __call__(self, batches: Batches) -> IntArray:
        """Return the sum, (dimension,)."""
        total = np.zeros(self.dimension, dtype=np.int64)
        for run in stored_blocks(batches):
            total += added_in_steps(
                self.contributions(*run), self.clip, self.step, centre=self.centre
            )
        return total


@dataclass(frozen=True, eq=False)
class NormCounts:
    """Numbers of a worker's blocks by the norms of their contributions."""

    contributions: BlockContributions

    def __call__(self, batches: Batches) -> IntArray:
        """Return the counts."""
        counts = np.zeros(BINS, dtype=np.int64)
        for run in stored_blocks(batches):
            counts += norm_counts(self.contributions(*run))
        return counts


def count_users(batches: Batches) -> IntArray:
    """Return the number of a worker's users with rows, (1,)."""
    result: Any = sum(sum(batch.column(4).to_pylist()) for batch in batches)
    return np.array([result], dtype=np.int64)
