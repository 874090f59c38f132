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
from dpgrain.learn.classes import NumericTargets, TargetRule, Targets
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.distributed_blocks import (
    BLOCKS,
    ArrangeBlocks,
    ArrangeLinear,
    ArrangeRecords,
    BlockContributions,
    LinearContributions,
    NormCounts,
    RecordContributions,
    SumInSteps,
    count_users,
)
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

    @property
    def users(self) -> int:
        """Number of users with rows, which is private."""
        return int(self.cached.sums(count_users, (1,))[0])

    def from_records(
        self, at: Callable[[RecordBlocks], BlockVectors], dimension: int
    ) -> Contributions:
        """Return the blocks' contributions to a round, computed from records for any loss."""
        return self.at(RecordContributions(at), dimension)

    def at(self, contributions: BlockContributions, dimension: int) -> Contributions:
        """Return the blocks' contributions to a round."""
        # A mean with integer sums of all blocks in each round uses only these methods.
        return cast(Contributions, ClusterSums(self.cached, contributions, dimension))


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """Sums of blocks on a cluster; implements ``DistributedGradients``.

    ``blocks`` is not the number of blocks, which remains on the cluster: rounds without sampling
    need a number.
    """

    cached: CachedBlocks
    contributions: BlockContributions
    dimension: int
    blocks: int = 0

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
    cached: CachedRows
    owners: ClassVar[None] = None

    @property
    def users_with_rows(self) -> int:
        """Number of users with rows, which is private."""
        return self.cached.users

    def gradients(self, config: FitConfig) -> Gradients:  # noqa: ARG002 - set in the arrangement
        """Return a function from a loss and a parameter to the blocks' gradients."""

        def at(loss: MarginLoss, theta: FloatArray) -> Contributions:
            return self.cached.at(LinearContributions(loss, theta), len(theta))

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


def record_arrangement(rows: ColumnRows, unit: Unit) -> ArrangeBlocks:
    """Return the arrangement of rows for a caller's loss."""
    return ArrangeBlocks(rows.roles(labels=False), NumericTargets(), unit, ArrangeRecords())
