"""Fits of rows on a cluster: each round sends a parameter there, and one sum comes back.

Blocks are added up as whole numbers on the grid of ``exact=True``, whatever is asked for. So sums do
not depend on how rows are shared out, tasks that are run again add once, and a fit is the exact one
of the same rows on one machine, bit for bit where processors and NumPy are the same.
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
from dpgrain._later import later
from dpgrain._progress import step
from dpgrain._types import FloatArray, IntArray
from dpgrain.arrays.blocks import arrange
from dpgrain.arrays.guarantees import Sampling
from dpgrain.arrays.shares import BRING_HERE
from dpgrain.errors import ParameterError
from dpgrain.gradients.norms import BINS
from dpgrain.gradients.records import BlockVectors, RecordBlocks
from dpgrain.learn.ask import Ask
from dpgrain.learn.classes import Numbers, TargetRule, Targets
from dpgrain.learn.distributed_blocks import (
    BLOCKS,
    Added,
    Arrange,
    AsRecords,
    InBins,
    InSteps,
    Linear,
    LinearAt,
    RecordsAt,
    users_of,
)
from dpgrain.learn.features import Encoding, Loaded, Number, Parts, columns_for
from dpgrain.learn.fitted import Classes, Form
from dpgrain.means.protocol import Contributions
from dpgrain.optimize import MarginLoss
from dpgrain.publishing import Charge
from dpgrain.tables.engines.protocol import Form as Written
from dpgrain.tables.engines.protocol import Keeper, Kept
from dpgrain.tables.table import UserTable, read
from dpgrain.units import Unit

if TYPE_CHECKING:
    from pyspark import cloudpickle
else:
    cloudpickle = later("pyspark.cloudpickle")


@dataclass(frozen=True, eq=False)
class RowsThere:
    """Columns of a table on a cluster, where its rows stay.

    Args:
        table: the table.
        encoding: the rule by which columns become features.
        target: the column of targets.
        element: the column of cells; None where there are none.
        truths: True if a column of truths is one of the labels False and True, and not of two texts.
    """

    table: UserTable
    encoding: Encoding
    target: str
    element: str | None = None
    truths: bool = False
    distributed: ClassVar[bool] = True

    @staticmethod
    def of(X: Any, y: Any, users: Any, elements: Any) -> RowsThere:
        """Return the rows of a frame of Spark, of which other arguments name columns.

        Args:
            X: the frame, of which all columns that are not named are features; or its rows already.
            y: the name of the column of targets.
            users: the name of the column that says whose each row is; None for one user per row.
            elements: the name of the column of cells.

        Raises:
            ParameterError: if an argument names no column.
            SchemaError: if a column is missing, or has a type that cannot be used.
        """
        if isinstance(X, RowsThere):
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
        features = [Number(name) for name in table.schema if name not in named.values()]
        return RowsThere(table, Encoding(tuple(features)), y, elements, truths=True)

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.encoding.names)

    def wanted(self, *, labels: bool) -> list[tuple[str, Written]]:
        """Return the columns to read, with the form of each; the schema is checked.

        Args:
            labels: True if targets are labels.

        Raises:
            SchemaError: if a column is missing, or has a type that cannot be used.
        """
        result = columns_for(self.table, self.encoding, self.target, labels, self.element)
        if labels and self._of_truths:
            result[len(self.encoding.columns)] = (self.target, "as it is")
        return result

    @property
    def _of_truths(self) -> bool:
        return self.truths and self.table.schema.get(self.target) == "BOOLEAN"

    def parts(self, *, labels: bool) -> Parts:
        """Return what the columns of :meth:`wanted` are.

        Args:
            labels: True if targets are labels.
        """
        return Parts(
            self.encoding,
            labels=labels,
            users=self.table.user is not None,
            elements=self.element is not None,
        )

    def nobody(self, unit: Unit, *, labels: bool) -> Loaded:
        """Return one row of nobody, from which all that is public of rows follows, and check it.

        Args:
            unit: the privacy unit.
            labels: True if targets are labels.

        Raises:
            ParameterError: if the unit needs other columns.
            SchemaError: if a column is missing, or has a type that cannot be used.
        """
        self.wanted(labels=labels)
        kind: Any = np.float64 if not labels else np.bool_ if self._of_truths else object
        target = np.zeros(1, dtype=kind) if kind is np.bool_ else np.full(1, None, dtype=kind)
        users, elements = self.users, self.elements
        arrange(1, users, elements, unit)
        features = pd.DataFrame(dict.fromkeys(self.encoding.names, np.zeros(1)))
        return Loaded(features, target, users, elements, pa.table({}))

    @property
    def users(self) -> Any:
        """The label of nobody, named like the column of users; None where there is none."""
        return _named(self.table.user)

    @property
    def elements(self) -> Any:
        """The cell of nobody, named like the column of cells; None where there is none."""
        return _named(self.element)

    @contextmanager
    def kept(self, make: Arrange, *, labels: bool, charge: Charge) -> Iterator[KeptBlocks]:
        """Keep blocks of the rows on the cluster, for as long as they are used.

        Args:
            make: what arranges the rows.
            labels: True if targets are labels.
            charge: the right to open them.
        """
        step("rows are brought together and kept where they are")
        with charge.open(self.table) as engine:
            keeper = cast(Keeper, engine)
            yield KeptBlocks(keeper.kept(self.wanted(labels=labels), make, BLOCKS))


def _named(column: str | None) -> Any:
    return None if column is None else pd.Series([None], name=column, dtype=object)


@dataclass(frozen=True, eq=False)
class KeptBlocks:
    """Blocks of rows on a cluster, where they stay.

    Args:
        kept: what an engine keeps of them.
    """

    kept: Kept

    @property
    def users(self) -> int:
        """The number of users with rows, which is private."""
        return int(self.kept.sums(users_of, (1,))[0])

    def of_records(
        self, at: Callable[[RecordBlocks], BlockVectors], dimension: int
    ) -> Contributions:
        """Return what the blocks add to a round, where they are of records for any loss.

        Args:
            at: the function from records to what their blocks add.
            dimension: the length of what a block adds.
        """
        return self.at(RecordsAt(at), dimension)

    def at(self, added: Added, dimension: int) -> Contributions:
        """Return what the blocks add to a round.

        Args:
            added: the function from some blocks to what they add.
            dimension: the length of what a block adds.
        """
        # A mean that adds whole numbers up with all blocks in each round asks nothing else of it.
        return cast(Contributions, SumsThere(self.kept, added, dimension))


@dataclass(frozen=True, eq=False)
class SumsThere:
    """Sums of blocks on a cluster: :class:`~dpgrain.means.protocol.DistributedGradients`.

    Args:
        kept: what an engine keeps of the blocks.
        added: the function from some blocks to what they add.
        dimension: the length of what a block adds.
        blocks: not the number of blocks, which stays there: rounds that draw none of them ask for it.
    """

    kept: Kept
    added: Added
    dimension: int
    blocks: int = 0

    def in_steps(self, clip: float, step: float, centre: FloatArray | None = None) -> IntArray:
        """Add up the clipped blocks, each truncated to a grid."""
        of = InSteps(self.added, self.dimension, clip, step, centre)
        return self.kept.sums(of, (self.dimension,))

    def in_bins(self) -> IntArray:
        """Count the blocks by lengths."""
        return self.kept.sums(InBins(self.added), (BINS,))


@dataclass(eq=False)
class DataThere:
    """The rows of a fit of an estimator, on a cluster; cf. :class:`Data`.

    Args:
        there: the columns.
        targets: what is public of the targets.
        rule: how targets become what the loss takes.
        loss: from the labels to the loss of a record.
        ask: what is asked for.
        labels: True if targets are labels.
    """

    there: RowsThere
    targets: Targets
    rule: TargetRule
    loss: Callable[[Classes], MarginLoss]
    ask: Ask
    labels: bool
    _blocks: KeptBlocks | None = None

    @property
    def width(self) -> int:
        """The number of features."""
        return self.there.width

    @property
    def owners(self) -> None:
        """None: fits on a cluster sample no users."""
        return None

    @property
    def enrolled(self) -> int:
        """The number of users with rows, which is private."""
        return self._open.users

    @property
    def form(self) -> Form:
        """The public form of the rows."""
        return Form(self.targets, self.width, self.loss, self.users)

    @property
    def users(self) -> Any:
        """The label of nobody, named like the column of users."""
        return self.there.users

    @property
    def elements(self) -> Any:
        """The cell of nobody, named like the column of cells."""
        return self.there.elements

    @contextmanager
    def opened(self, charge: Charge) -> Iterator[Self]:
        """Keep blocks on the cluster, until this is left."""
        ask, parts = self.ask, self.there.parts(labels=self.labels)
        by = Linear(ask.feature_bound, ask.fit_intercept)
        make = Arrange(parts, self.rule, ask.promise.unit, by)
        with self.there.kept(make, labels=self.labels, charge=charge) as self._blocks:
            yield self

    def arranged(self, ask: Ask) -> Callable[[MarginLoss, FloatArray], Contributions]:  # noqa: ARG002
        """Return the function from a loss and a parameter to the blocks' gradients."""

        def at(loss: MarginLoss, theta: FloatArray) -> Contributions:
            return self._open.at(LinearAt(loss, theta), len(theta))

        return at

    @property
    def _open(self) -> KeptBlocks:
        assert self._blocks is not None  # noqa: S101 - it is entered before it is read
        return self._blocks


def ask_there(ask: Ask) -> Ask:
    """Return what is asked for as a cluster fits it: exactly, and with all blocks in each round.

    Args:
        ask: what is asked for.

    Raises:
        ParameterError: if it needs rows in one place.
    """
    if ask.recipe is not None:
        name = "algorithm" if ask.trust == "central" else "trust"
        takes = "'auto' or a solver of dpgrain.optimize" if name == "algorithm" else "'central'"
        raise ParameterError(
            f"{name} must be {takes} for rows on a cluster, not {getattr(ask, name)!r}, which "
            f"visits users in turn; change it, {BRING_HERE}",
            name=name,
        )
    if ask.intervals:
        raise ParameterError(
            f"intervals must be 0 for rows on a cluster, not {_validate.said(ask.intervals)}; "
            f"omit it, {BRING_HERE}",
            name="intervals",
        )
    require_all_blocks(ask.sampling, ask.sampling_rate)
    return replace(ask, exact=True, sampling="full", sampling_rate=None)


def require_all_blocks(sampling: Sampling, rate: float | None) -> None:
    """Refuse rounds with samples, which are drawn where all blocks are known.

    Args:
        sampling: how blocks are drawn.
        rate: the probability of a block to be drawn, if it is stated.

    Raises:
        ParameterError: if samples are asked for.
    """
    if sampling == "users":
        raise ParameterError(
            "sampling must be 'full' for rows on a cluster, not 'users', because every round "
            f"uses all blocks; change it, {BRING_HERE}",
            name="sampling",
        )
    if rate not in (None, 1, 1.0):
        raise ParameterError(
            f"sampling_rate must be 1 for rows on a cluster, not {_validate.said(rate)}, because "
            f"every round uses all blocks; omit it, {BRING_HERE}",
            name="sampling_rate",
        )


def require_sendable(**sent: Any) -> None:
    """Refuse what cannot be sent to where rows are, by its name.

    Raises:
        ParameterError: if it cannot be pickled.
    """
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


def by_records(there: RowsThere, unit: Unit) -> Arrange:
    """Return what arranges rows for a loss of the caller's.

    Args:
        there: the columns.
        unit: the privacy unit.
    """
    return Arrange(there.parts(labels=False), Numbers(), unit, AsRecords())
