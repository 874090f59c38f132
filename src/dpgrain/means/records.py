"""One vector for each user from the user's records: their mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._clipping import clipped
from dpgrain._types import FloatArray
from dpgrain.arrays.blocks import Rows, Unread, arrange
from dpgrain.errors import ParameterError
from dpgrain.inputs.numbers import cells, unread
from dpgrain.means.protocol import Vectors
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.scope import Origin
from dpgrain.units import User


def by_user(records: FloatArray, users: Any) -> Rows:
    """Say whose each record is, with those of one user in an order of their values.

    What a user adds then does not depend on the order in which rows are listed, or come to a task.

    Args:
        records: (m, d).
        users: (m,) labels; None for one user per record.

    >>> listed = np.array([[2.0], [1.0], [2.0]])
    >>> orders = [X[by_user(X, ["ann"] * 3).kept].tolist() for X in (listed, np.sort(listed, axis=0))]
    >>> orders[0] == orders[1]
    True
    """
    return _in_order(arrange(len(records), users, None, User()), records)


def _in_order(rows: Rows, records: FloatArray) -> Rows:
    return rows.by_value(records, np.zeros(len(records)))


class Records(ABC):
    """Records of users in some place; nothing is read before they are charged for.

    Attributes:
        distributed: whether they stay on a cluster.
    """

    distributed: ClassVar[bool] = False

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The length of a record."""

    @property
    @abstractmethod
    def labels(self) -> Any:
        """Labels of users, or of nobody with their name; None for one user per record."""

    @property
    def origin(self) -> Origin:
        """The public facts of the rows."""
        return Origin()

    def surely_more_than(self, n_users: int) -> bool:  # noqa: ARG002 - labels would have to be read
        """Return True if their shape alone says that more users have records.

        Args:
            n_users: the stated size of a roster.
        """
        return False

    @abstractmethod
    def kept(
        self, charge: Charge, bound: float
    ) -> AbstractContextManager[tuple[Vectors, Callable[[], int]]]:
        """Make users' vectors, and what counts them, for as long as they are used.

        Args:
            charge: the right to read them.
            bound: the l2 norm that a record has at most.
        """


@dataclass(frozen=True, eq=False)
class RecordsHere(Records):
    """Records of users in this process; made by :meth:`of`.

    Args:
        table: the records, as they were passed.
        width: the length of a record.
        whose: whose each record is.
    """

    table: Any
    width: int
    whose: Unread

    @staticmethod
    def of(X: Any, labels: Any, dimension: int | None = None) -> RecordsHere:
        """Return records with their users, whose shapes alone are checked.

        Args:
            X: (m, d) records, or (m,) numbers.
            labels: (m,) whose each record is; None for one user per record.
            dimension: the public d; needed for a list.

        Raises:
            ParameterError: if X has another shape, or there is not one label for each record.
        """
        if dimension is not None:
            dimension = _validate.integer(minimum=1, dimension=dimension)
        elif isinstance(X, list | tuple):
            raise ParameterError(
                "dimension is required for a list of records, such as dimension=2, because rows "
                "of different lengths would decide it; or pass an array, which has a shape."
            )
        table, shape = unread(X, dimension)
        if len(shape) == 1:
            shape = (*shape, 1)
        if len(shape) != 2 or shape[1] == 0:
            raise ParameterError("X must be numbers of shape (m, d), one row per record.")
        check_dimension(dimension, shape[1])
        return RecordsHere(
            table, shape[1], Unread.of(shape[0], labels, None, User(), others={"X": X})
        )

    @property
    def dimension(self) -> int:
        """The length of a record."""
        return self.width

    @property
    def labels(self) -> Any:
        """The labels of users, as they were passed; None for one user per record."""
        return self.whose.users

    def surely_more_than(self, n_users: int) -> bool:
        """Return True if each record is a user's own, and there are more."""
        return self.labels is None and self.whose.rows > n_users

    @contextmanager
    def kept(self, charge: Charge, bound: float) -> Iterator[tuple[Vectors, Callable[[], int]]]:
        """Make users' vectors, and what counts them."""
        records = charge.read(self._numbers)
        rows = _in_order(charge.read(self.whose.arranged), records)
        means = user_means(records[rows.kept], rows.blocks, len(rows.owners), bound)
        yield Vectors(means), lambda: rows.users

    def _numbers(self) -> FloatArray:
        array = cells(self.table, self.width).reshape(self.whose.rows, self.width)
        with np.errstate(all="ignore"):
            # Row by row in memory: sums along a row must not depend on how many rows there are.
            array = array.astype(np.float64, order="C")
        array[~np.isfinite(array)] = 0.0
        return array


def check_dimension(stated: int | None, found: int) -> None:
    """Refuse a stated dimension that is not the length of a record.

    Args:
        stated: the dimension; None if it is not stated.
        found: the length of a record.

    Raises:
        ParameterError: if they differ.
    """
    if stated not in (None, found):
        raise ParameterError(f"dimension must be the length of a record, {found}, not {stated}.")


def user_means(records: FloatArray, codes: NDArray[Any], users: int, bound: float) -> FloatArray:
    """Return (users, d) the mean of each user's records, shortened to a bound.

    Args:
        records: (m, d).
        codes: (m,) the user of each, from 0.
        users: how many there are, each with a record.
        bound: the l2 norm that a record has at most.

    >>> user_means(np.array([[3.0], [1.0], [9.0]]), np.array([1, 1, 0]), 2, 4.0).tolist()
    [[4.0], [2.0]]
    """
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(users))
    sizes = np.bincount(codes, minlength=users)
    if users == 0:
        return np.zeros((0, records.shape[1]))
    # Each user's sum is made of that user's rows alone, in their order.
    sums = np.add.reduceat(clipped(records, bound)[order], starts, axis=0)
    means: FloatArray = sums / sizes[:, None]
    return means
