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
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain._progress import step
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.gradients.norms import BINS
from dpgrain.gradients.records import BlockVectors, RecordBlocks
from dpgrain.inputs.blocks import arrange
from dpgrain.inputs.guarantees import Sampling
from dpgrain.inputs.worker_tables import LOAD_LOCALLY
from dpgrain.learn.classes import NumericTargets, TargetRule, Targets
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
from dpgrain.learn.features import (
    ColumnRoles,
    FeatureEncoding,
    FeatureRows,
    NumberColumn,
    required_columns,
)
from dpgrain.learn.fit_config import Ask
from dpgrain.learn.fit_data import Classes, FitForm, Gradients
from dpgrain.means.protocol import Contributions
from dpgrain.optimize import MarginLoss
from dpgrain.publishing import Charge
from dpgrain.tables.engines.protocol import CachedBlocks, ClusterEngine, Form
from dpgrain.tables.table import UserTable, read
from dpgrain.units import Unit

if TYPE_CHECKING:
    from pyspark import cloudpickle
else:
    cloudpickle = lazy_import("pyspark.cloudpickle")


@dataclass(frozen=True, eq=False)
class ClusterRows:
    """Columns of a table on a cluster, where its rows remain.

    ``boolean_labels`` is True if a boolean column has the labels False and True instead of text.
    """

    table: UserTable
    encoding: FeatureEncoding
    target: str
    element: str | None = None
    boolean_labels: bool = False
    distributed: ClassVar[bool] = True

    @staticmethod
    def of(X: Any, y: Any, users: Any, elements: Any) -> ClusterRows:
        """Return the rows of a Spark frame; the other arguments name columns.

        All other columns are features. ``users`` is None for one user per row.
        """
        if isinstance(X, ClusterRows):
            return X
        named = {"y": y, "users": users, "elements": elements}
        for name, column in named.items():
            if (name == "y" or column is not None) and not isinstance(column, str):
                raise ParameterError(
                    f"{name} must be a column name if X is a Spark DataFrame, not "
                    f"{type(column).__name__}.",
                    name=name,
                )
        table = read(X, user=users, rows="as given")
        features = [NumberColumn(name) for name in table.schema if name not in named.values()]
        return ClusterRows(
            table, FeatureEncoding(tuple(features)), y, elements, boolean_labels=True
        )

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.encoding.names)

    def column_forms(self, *, labels: bool) -> list[tuple[str, Form]]:
        """Return the columns to read and their forms, after checking the schema."""
        result = required_columns(self.table, self.encoding, self.target, labels, self.element)
        if labels and self._has_boolean_labels:
            result[len(self.encoding.columns)] = (self.target, "as it is")
        return result

    @property
    def _has_boolean_labels(self) -> bool:
        return self.boolean_labels and self.table.schema.get(self.target) == "BOOLEAN"

    def roles(self, *, labels: bool) -> ColumnRoles:
        """Return the roles of the columns of :meth:`column_forms`."""
        return ColumnRoles(
            self.encoding,
            labels=labels,
            users=self.table.user is not None,
            elements=self.element is not None,
        )

    def placeholder_row(self, unit: Unit, *, labels: bool) -> FeatureRows:
        """Return and check one synthetic row, which determines the public facts of the rows."""
        self.column_forms(labels=labels)
        kind: Any = np.float64 if not labels else np.bool_ if self._has_boolean_labels else object
        target = np.zeros(1, dtype=kind) if kind is np.bool_ else np.full(1, None, dtype=kind)
        users, elements = self.users, self.elements
        arrange(1, users, elements, unit)
        features = pd.DataFrame(dict.fromkeys(self.encoding.names, np.zeros(1)))
        return FeatureRows(features, target, users, elements, pa.table({}))

    @property
    def users(self) -> Any:
        """Synthetic label with the name of the user column; None without such a column."""
        return _placeholder(self.table.user)

    @property
    def elements(self) -> Any:
        """Synthetic cell with the name of the cell column; None without such a column."""
        return _placeholder(self.element)

    @contextmanager
    def cached(self, make: ArrangeBlocks, *, labels: bool, charge: Charge) -> Iterator[CachedRows]:
        """Store blocks of the rows on the cluster while they are used."""
        step("rows are brought together and kept where they are")
        with charge.open(self.table) as engine:
            keeper = cast(ClusterEngine, engine)
            yield CachedRows(keeper.cache(self.column_forms(labels=labels), make, BLOCKS))


def _placeholder(column: str | None) -> Any:
    return None if column is None else pd.Series([None], name=column, dtype=object)


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


@dataclass(eq=False)
class ClusterData:
    """Rows of an estimator's fit on a cluster; cf. :class:`Data`."""

    rows: ClusterRows
    targets: Targets
    rule: TargetRule
    loss: Callable[[Classes], MarginLoss]
    ask: Ask
    labels: bool
    _blocks: CachedRows | None = None

    @property
    def width(self) -> int:
        """Number of features."""
        return self.rows.width

    @property
    def owners(self) -> None:
        """None: fits on a cluster do not sample users."""
        return None

    @property
    def users_with_rows(self) -> int:
        """Number of users with rows, which is private."""
        return self._cached.users

    @property
    def form(self) -> FitForm:
        """Public form of the rows."""
        return FitForm(self.targets, self.width, self.loss, self.users)

    @property
    def users(self) -> Any:
        """Synthetic label with the name of the user column."""
        return self.rows.users

    @property
    def elements(self) -> Any:
        """Synthetic cell with the name of the cell column."""
        return self.rows.elements

    @contextmanager
    def opened(self, charge: Charge) -> Iterator[Self]:
        """Store blocks on the cluster inside this context."""
        ask, roles = self.ask, self.rows.roles(labels=self.labels)
        by = ArrangeLinear(ask.feature_bound, ask.fit_intercept)
        make = ArrangeBlocks(roles, self.rule, ask.promise.unit, by)
        with self.rows.cached(make, labels=self.labels, charge=charge) as self._blocks:
            yield self

    def gradients(self, ask: Ask) -> Gradients:  # noqa: ARG002 - set in the arrangement
        """Return a function from a loss and a parameter to the blocks' gradients."""

        def at(loss: MarginLoss, theta: FloatArray) -> Contributions:
            return self._cached.at(LinearContributions(loss, theta), len(theta))

        return at

    @property
    def _cached(self) -> CachedRows:
        assert self._blocks is not None  # noqa: S101 - it is entered before it is read
        return self._blocks


def cluster_config(ask: Ask) -> Ask:
    """Return the request for a cluster: exact, and with all blocks in each round."""
    if ask.recipe is not None:
        name = "algorithm" if ask.trust == "central" else "trust"
        takes = "'auto' or a solver of dpgrain.optimize" if name == "algorithm" else "'central'"
        raise ParameterError(
            f"{name} must be {takes} for rows on a cluster, not {getattr(ask, name)!r}, which "
            f"visits users in turn; change it, {LOAD_LOCALLY}",
            name=name,
        )
    if ask.intervals:
        raise ParameterError(
            f"intervals must be 0 for rows on a cluster, not {_validate.describe(ask.intervals)}; "
            f"omit it, {LOAD_LOCALLY}",
            name="intervals",
        )
    require_all_blocks(ask.sampling, ask.sampling_rate)
    return replace(ask, exact=True, sampling="full", sampling_rate=None)


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


def require_sendable(**sent: Any) -> None:
    """Reject arguments that cannot be pickled, by name."""
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    for name, value in sent.items():
        try:
            dumps(value)
        except Exception as error:
            raise ParameterError(
                f"{name} must be picklable for rows on a cluster, unlike {value!r} ({error}); "
                "remove the objects that cannot be pickled.",
                name=name,
            ) from None


def record_arrangement(rows: ClusterRows, unit: Unit) -> ArrangeBlocks:
    """Return the arrangement of rows for a caller's loss."""
    return ArrangeBlocks(rows.roles(labels=False), NumericTargets(), unit, ArrangeRecords())
