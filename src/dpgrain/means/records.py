"""Records of users become one vector for each user: the mean of what that user's records hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpgrain._clipping import clipped
from dpgrain._types import FloatArray
from dpgrain.arrays.blocks import Rows, arrange
from dpgrain.means.protocol import Vectors
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
    rows = arrange(len(records), users, None, User())
    return rows.by_value(records, np.zeros(len(records)))


@dataclass(frozen=True, eq=False)
class RecordsHere:
    """Records of users in this process.

    Args:
        records: (m, d).
        labels: (m,) whose each record is, as it was passed; None for one user per record.
        rows: the user of each record.
    """

    records: FloatArray
    labels: Any
    rows: Rows
    distributed: ClassVar[bool] = False

    @staticmethod
    def of(records: FloatArray, labels: Any) -> RecordsHere:
        """Return records with their users.

        Args:
            records: (m, d).
            labels: (m,) whose each record is; None for one user per record.

        Raises:
            ParameterError: if there is not one label for each record.
        """
        return RecordsHere(records, labels, by_user(records, labels))

    @property
    def dimension(self) -> int:
        """The length of a record."""
        return int(self.records.shape[1])

    def more_than(self, n_users: int) -> bool:
        """Return whether more users have records."""
        return self.rows.users > n_users

    @contextmanager
    def kept(self, bound: float) -> Iterator[tuple[Vectors, Callable[[], int]]]:
        """Make users' vectors, and what counts them, for as long as they are used.

        Args:
            bound: the l2 norm that a record has at most.
        """
        rows = self.rows
        means = user_means(self.records[rows.kept], rows.blocks, len(rows.owners), bound)
        yield Vectors(means), lambda: rows.users


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
