"""Fits of rows on a cluster: each round sends a parameter and returns one sum.

Blocks are summed as integers on the grid of ``exact=True``, regardless of that option. Sums
therefore do not depend on the distribution of rows, repeated tasks count once, and the fit is
bitwise equal to the exact fit of the same rows on one machine, with the same type of processor and
NumPy version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain._progress import step
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.gradients.norms import BINS
from dpgrain.gradients.records import BlockVectors, RecordBlocks
from dpgrain.inputs.guarantees import Sampling
from dpgrain.inputs.record_limit import Weights
from dpgrain.inputs.worker_tables import LOAD_LOCALLY
from dpgrain.learn.classes import TargetRule, Targets
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.fit_config import FitConfig
from dpgrain.learn.fit_data import Gradients
from dpgrain.means.mean_protocol import Contributions
from dpgrain.optimize import MarginLoss
from dpgrain.publishing import Charge
from dpgrain.tables.engines.protocol import CachedBlocks, ClusterEngine
from dpgrain.units import Unit

if TYPE_CHECKING:
    from pyspark import cloudpickle

    from dpgrain.learn.model import LinearModel
else:
    cloudpickle = lazy_import("pyspark.cloudpickle")
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.norms import norm_counts
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.inputs.array_blocks import arrange
from dpgrain.inputs.worker_tables import CELL_BYTES, RUN_BYTES, Batches, worker_tables
from dpgrain.learn.bounding import bounded
from dpgrain.learn.features import ColumnRoles
from dpgrain.means.grid import added_in_steps

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


@contextmanager
def cached(
    rows: ColumnRows, make: ArrangeBlocks, charge: Charge, *, labels: bool = False
) -> Iterator[CachedRows]:
    """Store blocks of rows on their cluster while they are used."""
    step("rows are brought together and kept where they are")
    with charge.open(rows.table) as engine:
        keeper = cast(ClusterEngine, engine)
        yield CachedRows(keeper.cache(rows.column_forms(labels=labels), make, BLOCKS))


@dataclass(frozen=True, eq=False)
class CachedRows:
    """Blocks of rows that remain on a cluster."""

    cached: CachedBlocks
    owners: ClassVar[None] = None  # users are not sampled

    @property
    def users(self) -> int:
        """Number of users with rows, which is private."""
        return int(self.cached.sums(count_users, (1,))[0])

    def at(self, contributions: BlockContributions, dimension: int) -> Contributions:
        """Return the blocks' contributions to a round."""
        # A mean with integer sums of all blocks in each round uses only these methods.
        return cast(Contributions, ClusterSums(self.cached, contributions, dimension))


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """Sums of blocks on a cluster; implements ``DistributedGradients``."""

    cached: CachedBlocks
    contributions: BlockContributions
    dimension: int
    blocks: int = 0  # rounds without sampling need a number; the true one remains there

    def in_steps(self, clip: float, step: float, centre: FloatArray | None = None) -> IntArray:
        """Add up the clipped blocks, each truncated to a grid."""
        of = SumInSteps(self.contributions, self.dimension, clip, step, centre)
        return self.cached.sums(of, (self.dimension,))

    def in_bins(self) -> IntArray:
        """Count the blocks by norm."""
        return self.cached.sums(NormCounts(self.contributions), (BINS,))


@dataclass(frozen=True, eq=False)
class ClusterData:
    """Rows of an estimator's fit on a cluster; cf. :class:`~dpgrain.learn.fit_data.FitData`."""

    targets: Targets
    rows: CachedRows

    def gradients(self, config: FitConfig) -> Gradients:  # noqa: ARG002 - set in the arrangement
        """Return a function from a loss and a parameter to the blocks' gradients."""

        def at(loss: MarginLoss, theta: FloatArray) -> Contributions:
            return self.rows.at(LinearContributions(loss, theta), len(theta))

        return at


@contextmanager
def opened(
    rows: ColumnRows,
    config: FitConfig,
    rule: TargetRule,
    unit: Unit,
    targets: Targets,
    charge: Charge,
) -> Iterator[ClusterData]:
    """Provide the rows of an estimator's fit in blocks on their cluster."""
    by = ArrangeLinear(config.feature_bound, config.fit_intercept)
    make = ArrangeBlocks(rows.roles(labels=config.labels), rule, unit, by)
    with cached(rows, make, charge, labels=config.labels) as blocks:
        yield ClusterData(targets, blocks)


def cluster_config(config: FitConfig) -> FitConfig:
    """Return the parameters on a cluster: exact, and with all blocks in each round."""
    if config.recipe is not None:
        name = "algorithm" if config.trust == "central" else "trust"
        takes = "'auto' or a solver of dpgrain.optimize" if name == "algorithm" else "'central'"
        raise ParameterError(
            f"{name} must be {takes} for rows on a cluster, not {getattr(config, name)!r}, which "
            f"visits users in turn; change it, {LOAD_LOCALLY}",
            name=name,
        )
    require_plain(config.weights, config.intervals)
    if config.tune is not None:
        raise ParameterError(
            "tune must be None for rows on a cluster; set the parameters, or compare fits that "
            "each use a share of a budget.",
            name="tune",
        )
    require_all_blocks(config.sampling, config.sampling_rate)
    return replace(config, exact=True, sampling="full", sampling_rate=None)


def check_targets(model: LinearModel, targets: Targets) -> None:
    """Reject labels that are not stated, and a custom model."""
    if targets.labels is not None:
        raise ParameterError(
            "classes is required for rows on a cluster; pass all labels as classes=[…].",
            name="classes",
        )
    model._rule(targets.classes)


def require_plain(weights: Weights, intervals: float) -> None:
    """Reject intervals and weights by records."""
    if intervals:
        raise ParameterError(
            f"intervals must be 0 for rows on a cluster, not {_validate.describe(intervals)}; "
            f"omit it, {LOAD_LOCALLY}",
            name="intervals",
        )
    if weights == "records":
        raise ParameterError(
            f"weights must be 'users' for rows on a cluster, not 'records'; change it, {LOAD_LOCALLY}",
            name="weights",
        )


def require_all_blocks(sampling: Sampling, rate: float | None) -> None:
    """Reject sampling, which requires all blocks in one place."""
    if sampling == "users":
        raise ParameterError(
            "sampling must be 'full' for rows on a cluster, not 'users', because every round "
            f"uses all blocks; change it, {LOAD_LOCALLY}",
            name="sampling",
        )
    if rate not in (None, 1, 1.0):
        raise ParameterError(
            f"sampling_rate must be 1 for rows on a cluster, not {_validate.describe(rate)}, because "
            f"every round uses all blocks; omit it, {LOAD_LOCALLY}",
            name="sampling_rate",
        )


def require_sendable(**arguments: Any) -> None:
    """Reject arguments that cannot be pickled, by name."""
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    for name, value in arguments.items():
        try:
            dumps(value)
        except Exception as error:
            raise ParameterError(
                f"{name} must be picklable for rows on a cluster, unlike {value!r} ({error}); "
                "remove the objects that cannot be pickled.",
                name=name,
            ) from None
