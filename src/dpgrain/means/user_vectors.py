"""One vector per user: the mean of the user's records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import ArrangedRows, LabelledRows, arrange
from dpgrain.inputs.columns import column_types
from dpgrain.inputs.numbers import numeric_array, table_and_shape
from dpgrain.means.mean_protocol import Vectors
from dpgrain.numerics.row_clipping import clipped
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.origins import ArrayOrigin
from dpgrain.units import User


def by_user(records: FloatArray, users: Any) -> ArrangedRows:
    """Group records, (m, d), by user, and sort them by value: row order has no effect."""
    rows = arrange(len(records), users, None, User())
    return rows.by_value(records, np.zeros(len(records)))


class Records(ABC):
    """Records of users in any storage; nothing is read before charging."""

    distributed: ClassVar[bool] = False

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Length of a record."""

    @property
    @abstractmethod
    def labels(self) -> Any:
        """Labels of users, possibly empty but named; None for one user per record."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates; empty if unknown."""
        return ()

    @property
    def origin(self) -> ArrayOrigin:
        """Public facts about the rows."""
        return ArrayOrigin()

    def has_more_users_than(self, n_users: int) -> bool:  # noqa: ARG002 - labels would have to be read
        """Return True if the shape alone shows that more users have records."""
        return False

    @abstractmethod
    def user_vectors(
        self, charge: Charge, bound: float, *, sizes: bool = False
    ) -> AbstractContextManager[tuple[Vectors, Callable[[], int]]]:
        """Provide users' vectors, and a function that counts them, while they are used."""


@dataclass(frozen=True, eq=False)
class LocalRecords(Records):
    """Records of users in this process, created by :meth:`of`."""

    table: Any
    width: int
    owners: LabelledRows

    @staticmethod
    def from_arrays(X: Any, labels: Any, dimension: int | None = None) -> LocalRecords:
        """Return records, (m, d) or (m,), with their users; checks only shapes."""
        if dimension is not None:
            dimension = _validate.integer(minimum=1, dimension=dimension)
        elif isinstance(X, list | tuple):
            raise ParameterError(
                "dimension is required for a list of records, such as dimension=2, because rows "
                "of different lengths would decide it; or pass an array, which has a shape."
            )
        table, shape = table_and_shape(X, dimension)
        if len(shape) == 1:
            shape = (*shape, 1)
        if len(shape) != 2 or shape[1] == 0:
            raise ParameterError("X must be numbers of shape (m, d), one row per record.")
        check_dimension(dimension, shape[1])
        return LocalRecords(
            table, shape[1], LabelledRows.create(shape[0], labels, None, User(), others={"X": X})
        )

    @property
    def dimension(self) -> int:
        """Length of a record."""
        return self.width

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of a frame; empty for an array."""
        return tuple(str(name) for name, _ in column_types(self.table))

    @property
    def labels(self) -> Any:
        """Labels of users as passed; None for one user per record."""
        return self.owners.users

    def has_more_users_than(self, n_users: int) -> bool:
        """Return True if each record is a separate user, and there are more."""
        return self.labels is None and self.owners.rows > n_users

    @contextmanager
    def user_vectors(
        self, charge: Charge, bound: float, *, sizes: bool = False
    ) -> Iterator[tuple[Vectors, Callable[[], int]]]:
        """Provide users' vectors and a function that counts them."""
        records = charge.read(self._numbers)
        rows = charge.read(self.owners.arranged).by_value(records, np.zeros(len(records)))
        means = user_means(records[rows.indices], rows.blocks, len(rows.owners), bound)
        if sizes:
            means = np.column_stack([means, np.bincount(rows.blocks, minlength=len(means))])
        yield Vectors(means), lambda: rows.users

    def _numbers(self) -> FloatArray:
        array = numeric_array(self.table, self.width).reshape(self.owners.rows, self.width)
        with np.errstate(all="ignore"):
            # C order: sums along a row must not depend on the number of rows.
            array = array.astype(np.float64, order="C")
        array[~np.isfinite(array)] = 0.0
        return array


def check_dimension(stated: int | None, actual: int) -> None:
    """Reject a stated dimension that differs from the length of a record."""
    if stated not in (None, actual):
        raise ParameterError(f"dimension must be the length of a record, {actual}, not {stated}.")


def user_means(records: FloatArray, codes: NDArray[Any], users: int, bound: float) -> FloatArray:
    """Return the mean of each user's records clipped to a bound, (users, d)."""
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(users))
    sizes = np.bincount(codes, minlength=users)
    if users == 0:
        return np.zeros((0, records.shape[1]))
    # Each user's sum depends only on that user's rows, in their order.
    sums = np.add.reduceat(clipped(records, bound)[order], starts, axis=0)
    means: FloatArray = sums / sizes[:, None]
    return means
