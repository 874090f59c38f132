"""Rows as a caller passes them: their number and their form are public, and all else is read later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from dpgrain.arrays.blocks import Unread
from dpgrain.errors import ParameterError
from dpgrain.inputs.calls import part_of
from dpgrain.inputs.numbers import passed, stated_width
from dpgrain.publishing import Charge
from dpgrain.units import Unit

#: The sentence that refuses targets of which there are not as many as rows.
NOT_AS_MANY = "y must have one target per row of X."


def made(values: Any) -> Any:
    """Return rows with a form: a frame that is not made yet is made.

    Args:
        values: the rows as they were passed.
    """
    return passed(values.collect) if hasattr(values, "collect") else values


def listed(values: Any) -> Any:
    """Return cells that have a number: what can be passed through but once is listed.

    Args:
        values: the cells as they were passed.

    >>> listed(iter([1, 2]))
    [1, 2]
    """
    values = made(values)
    if hasattr(values, "shape") or (hasattr(values, "__len__") and hasattr(values, "__getitem__")):
        return values
    return passed(lambda: list(values)) if hasattr(values, "__iter__") else values


def count_of(values: Any) -> int:
    """Return the number of rows; 0 of what has none.

    Args:
        values: the rows, from :func:`made` or :func:`listed`.

    >>> count_of([1, 2]), count_of(np.ones((3, 2))), count_of(None)
    (2, 3, 0)
    """
    shape = getattr(values, "shape", None)
    if shape is None:
        return len(values) if hasattr(values, "__len__") else 0
    return int(shape[0]) if len(shape) else 0


def none_of(values: Any) -> Any:
    """Return none of the rows, in the same form: what is refused of its form is refused of these.

    Args:
        values: the rows, from :func:`made` or :func:`listed`.

    >>> none_of(np.ones((3, 2))).shape, none_of([1.0, 2.0])
    ((0, 2), [])
    """
    try:
        return part_of(values, 0, 0)
    except (TypeError, IndexError, KeyError):
        # It has no rows, and what reads it says so.
        return values


def no_features(X: Any, width: int | None = None) -> Any:
    """Return none of the rows of features, in the same form.

    Args:
        X: the rows, from :func:`made` or :func:`listed`.
        width: the public number of cells in a row of a list; needed for a list.

    Raises:
        ParameterError: if the rows are a list and the width is not stated.

    >>> no_features([[1.0, 2.0], [3.0, 4.0]], 2).shape
    (0, 2)
    """
    if sparse.issparse(X):
        form = X.shape
        return sparse.csr_array((0, form[1]), dtype=X.dtype) if len(form) == 2 else X
    if isinstance(X, list | tuple):
        return np.empty((0, stated_width(width)))
    return none_of(X)


class Given(ABC):
    """Unread rows of a fit."""

    @property
    @abstractmethod
    def users(self) -> Any:
        """The labels of users, by which a promise names them; None for one user per row."""

    @property
    @abstractmethod
    def elements(self) -> Any:
        """The labels of elements, likewise."""

    @abstractmethod
    def none(self, width: int | None) -> tuple[Any, Any]:
        """Return features and targets of none of the rows, in the same form.

        Args:
            width: the public number of features, where it is stated.
        """

    @abstractmethod
    def check(self, unit: Unit, *, places: bool) -> None:
        """Refuse rows of which there are not as many targets, users and elements.

        Args:
            unit: the privacy unit.
            places: True if users are places in a roster.
        """

    @abstractmethod
    def read(self, charge: Charge) -> Read:
        """Return the rows.

        Args:
            charge: the right to read them.
        """


@dataclass(frozen=True, eq=False)
class Read:
    """Rows of a fit, already read.

    Args:
        X: (m, d) features.
        y: (m,) targets.
        users: (m,) labels of users; None for one user per row.
        elements: (m,) labels of elements.
    """

    X: Any
    y: Any
    users: Any = None
    elements: Any = None


@dataclass(frozen=True, eq=False)
class Passed(Given):
    """Rows as passed to a fit.

    Args:
        X: (m, d) features.
        y: (m,) targets.
        users: (m,) labels of users.
        elements: (m,) labels of elements.
    """

    X: Any
    y: Any
    users: Any = None
    elements: Any = None

    @staticmethod
    def of(X: Any, y: Any, users: Any = None, elements: Any = None) -> Passed:
        """Return rows that have a number.

        Args:
            X: (m, d) features.
            y: (m,) targets.
            users: (m,) labels of users.
            elements: (m,) labels of elements.
        """
        return Passed(made(X), listed(y), _labels(users), _labels(elements))

    def none(self, width: int | None) -> tuple[Any, Any]:
        """Return features and targets of none of the rows."""
        return no_features(self.X, width), none_of(self.y)

    def check(self, unit: Unit, *, places: bool) -> None:
        """Refuse rows of which there are not as many targets, users and elements."""
        if count_of(self.y) != count_of(self.X):
            raise ParameterError(NOT_AS_MANY)
        others = {"X": self.X, "y": self.y}
        Unread.of(count_of(self.X), self.users, self.elements, unit, places=places, others=others)

    def read(self, charge: Charge) -> Read:
        """Return the rows, already here."""
        return charge.read(lambda: Read(self.X, self.y, self.users, self.elements))


def _labels(values: Any) -> Any:
    return None if values is None else listed(values)
