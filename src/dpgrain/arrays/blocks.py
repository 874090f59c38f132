"""Rows with users and elements, arranged into blocks, one for each unit's data."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import IndexArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.codes import Key, codes
from dpgrain.inputs.numbers import passed
from dpgrain.units import Element, Record, Unit, User, unit_level


@dataclass(frozen=True)
class Rows:
    """The rows that count, and the block of each.

    Args:
        kept: the indices of the rows that count.
        blocks: (rows kept,) the block of each row, 0 to G−1.
        owners: (G,) the user whose data each block is, 0 to n−1.
        users: the number of distinct users in the rows passed.
    """

    kept: IndexArray
    blocks: IndexArray
    owners: IndexArray
    users: int

    def by_value(self, X: Any, y: NDArray[Any]) -> Rows:
        """Return the same rows in the order of their values, where a block has several.

        What is added up of a block then does not depend on the order in which its rows are listed.

        Args:
            X: (rows, d) the numbers of all rows, those that do not count among them; a sparse matrix
                stays in its order.
            y: (rows,) the targets.

        >>> rows = arrange(3, ["ann", "ann", "bob"], None, User())
        >>> rows.by_value(np.array([[2.0], [1.0], [0.0]]), np.zeros(3)).blocks.tolist()
        [1, 0, 0]
        """
        if len(self.kept) == len(self.owners) or not isinstance(X, np.ndarray):
            return self
        values = np.column_stack([X[self.kept], y[self.kept]]).astype(np.float64)
        # What is not finite counts 0, or not at all; and adding 0 makes one zero of two.
        values = np.where(np.isfinite(values), values, 0.0) + 0.0
        as_bytes = values.view(np.dtype((np.void, values.itemsize * values.shape[1]))).ravel()
        order = np.argsort(as_bytes, kind="stable")
        return replace(self, kept=self.kept[order], blocks=self.blocks[order])


def check_same_order(passed: Mapping[str, Any]) -> None:
    """Reject frames and series with the same index labels in different orders.

    Rows are matched by position, so that one order would assign rows to other users. The order of an
    index is the caller's, and assumed to be public.

    Args:
        passed: what was passed of each row, by the names of the parameters; only objects of pandas have
            an index.

    Raises:
        ParameterError: if two have the same labels in different orders; no label is quoted.

    >>> import pandas as pd
    >>> X, users = pd.DataFrame({"x": [1, 2]}), pd.Series(["ann", "bob"])
    >>> check_same_order({"X": X, "users": users})
    >>> try:
    ...     check_same_order({"X": X, "users": users[::-1]})
    ... except ParameterError as error:
    ...     print(error)
    users must have the same index order as X, because rows are matched by position; take both \
from one data frame, or pass arrays.
    """
    indexes = {name: each.index for name, each in passed.items() if _is_pandas(each)}
    for (one, first), (two, second) in itertools.combinations(indexes.items(), 2):
        if _is_reordered(first, second):
            raise ParameterError(
                f"{two} must have the same index order as {one}, because rows are matched "
                "by position; take both from one data frame, or pass arrays.",
                name=two,
            )


def _is_pandas(value: Any) -> bool:
    homes = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    return "pandas" in homes and hasattr(value, "loc")


def _is_reordered(one: Any, two: Any) -> bool:
    """Return whether two indexes have the same labels, as often, in different orders."""
    if len(one) != len(two) or one.nlevels != two.nlevels:
        return False
    try:
        if one.equals(two):
            return False
        counts, others = (index.value_counts(sort=False).to_dict() for index in (one, two))
        return bool(counts == others)
    except Exception:
        # Labels may be objects that do not compare; nothing of them is shown.
        return False


def unit_of(unit: Unit | None, users: Any, n_users: int | None = None) -> Unit:
    """Return the privacy unit of rows: a user where users are passed, and otherwise a record, a row.

    Args:
        unit: the unit that is stated; None if none is.
        users: the users of the rows; None if they are not passed.
        n_users: the number of users that is stated; None if none is.

    Raises:
        ParameterError: if whole users or their elements are to be protected and users are not passed,
            or only the number of users is stated.

    >>> unit_of(None, ["ann", "bob"]).level, unit_of(None, None).level
    ('user', 'record')
    """
    if unit is None and users is None and n_users is not None:
        raise ParameterError(
            "n_users must be passed with users=, because without them each row counts as one "
            "record; pass users=, or unit=Record() to protect single rows.",
            name="n_users",
        )
    if unit is None:
        return Record() if users is None else User()
    if users is None and unit_level(unit, "user") != "record":
        raise ParameterError(
            f"users is required for unit={unit!r}: pass the user id of each row, or use "
            "unit=Record() to protect single rows.",
            name="users",
        )
    return unit


def arrange(rows: int, users: Any, elements: Any, unit: Unit, *, places: bool = False) -> Rows:
    """Put rows into blocks, one for each unit's data.

    Args:
        rows: the number of rows.
        users: (rows,) labels, of which :mod:`dpgrain.inputs.labels` says when two are equal; None for
            one user per row. A row whose user is null is left out.
        elements: (rows,) labels; a null is a cell like any other. They are needed for ``Element()``
            and ``User(max_elements=…)``, and refused where nothing uses them.
        unit: the privacy unit. Of a ``User(max_elements=M)`` the first M elements in a public order
            (the hash of their names) are kept.
        places: True if users are places in a stated roster.

    Raises:
        ParameterError: if lengths differ, elements are missing or not used, or the unit is not one.

    >>> arrange(4, ["ann", "bob", "ann", None], ["x", "x", "y", "x"], Element()).owners.tolist()
    [0, 0, 1]
    """
    return Unread.of(rows, users, elements, unit, places=places).arranged()


@dataclass(frozen=True, eq=False)
class Unread:
    """Rows with unread labels of users and elements; made by :meth:`of`.

    Args:
        rows: the number of rows.
        users: (rows,) the labels of users; None for one user per row.
        elements: (rows,) the labels of elements; None where nothing uses them.
        unit: the privacy unit.
        places: True if users are places in a stated roster.
    """

    rows: int
    users: Any
    elements: Any
    unit: Unit
    places: bool = False

    @staticmethod
    def of(
        rows: int,
        users: Any,
        elements: Any,
        unit: Unit,
        *,
        places: bool = False,
        others: Mapping[str, Any] | None = None,
    ) -> Unread:
        """Check rows against all public numbers; of labels, only the order of indexes is compared.

        Args:
            rows: the number of rows.
            users: the labels of users, as for :func:`arrange`.
            elements: the labels of elements.
            unit: the privacy unit.
            places: True if users are places in a stated roster.
            others: what else was passed of each row, by the names of the parameters.

        Raises:
            ParameterError: as :func:`arrange`.
        """
        if not isinstance(unit, Record | Element | User):
            raise ParameterError(
                f"unit must be Record(), Element() or User(), not {_validate.said(unit)}."
            )
        check_same_order({**(others or {}), "users": users, "elements": elements})
        if users is not None:
            users = _one_each(users, rows, "users")
        if isinstance(unit, Record) or (isinstance(unit, User) and unit.max_elements is None):
            if elements is not None:
                raise ParameterError(
                    f"elements are not used with unit={unit!r}; omit them, or protect them "
                    "with unit=Element() or unit=User(max_elements=…)."
                )
        elif elements is None:
            raise ParameterError(
                f"elements is required for unit={unit!r}: pass the cell of each row, from a "
                "public partition."
            )
        elif unit.by is not None:
            raise ParameterError(
                f"unit must be {type(unit).__name__} without by: pass the elements of rows to "
                "fit(…, elements=…)."
            )
        else:
            elements = _one_each(elements, rows, "elements")
        return Unread(rows, users, elements, unit, places)

    @staticmethod
    def of_all(users: Any, unit: Unit) -> Unread:
        """Return as many rows as there are labels of users, unread.

        Args:
            users: the labels of users.
            unit: the privacy unit, a record or a user.

        Raises:
            ParameterError: if the labels have no length, or more than one dimension.
        """
        listed, shape = _shape_of(users)
        return Unread.of(shape[0] if shape else 0, listed, None, unit)

    def arranged(self) -> Rows:
        """Read the labels, and put rows into blocks."""
        users, unit = self.users, self.unit
        owner = (
            np.arange(self.rows)
            if users is None
            else _codes(users, self.rows, "users", self.places)[0]
        )
        kept = np.flatnonzero(owner >= 0)
        n_users = int(owner.max(initial=-1)) + 1
        if isinstance(unit, Record):
            return Rows(kept, np.arange(len(kept)), owner[kept], n_users)
        if self.elements is None:
            return Rows(kept, owner[kept], np.arange(n_users), n_users)
        # Rows without an element form a cell of their own, like rows with any other name.
        cells, names = _codes(self.elements, self.rows, "elements")
        cells, names = np.where(cells < 0, len(names), cells), [*names, ("null", "")]
        if isinstance(unit, User) and unit.max_elements is not None:
            first = _first(owner, cells, names, unit.max_elements)
            kept = kept[first[kept]]
        pairs = owner[kept].astype(np.int64) * max(len(names), 1) + cells[kept]
        present, blocks = np.unique(pairs, return_inverse=True)
        return Rows(kept, blocks, present // max(len(names), 1), n_users)


def _one_each(labels: Any, rows: int, name: str) -> Any:
    """Return labels of which there is one for each row, as far as their shape says."""
    listed, shape = _shape_of(labels)
    if shape != (rows,):
        raise ParameterError(f"{name} must have exactly one label for each row, in one dimension.")
    return listed


def _shape_of(labels: Any) -> tuple[Any, tuple[int, ...]]:
    """Return labels, listed if they can be passed through but once, and their shape."""
    shape = getattr(labels, "shape", None)
    if shape is None and not hasattr(labels, "__len__"):
        if not hasattr(labels, "__iter__"):
            return labels, ()
        labels = passed(lambda: list(labels))
    return labels, tuple((len(labels),) if shape is None else shape)


def _codes(values: Any, rows: int, name: str, places: bool = False) -> tuple[IndexArray, list[Key]]:
    """Return labels as codes from 0, −1 for a null, and their keys."""
    codes_of_rows, keys = codes(values, places=places)
    if codes_of_rows.shape != (rows,):
        raise ParameterError(f"{name} must have exactly one label for each row, in one dimension.")
    return codes_of_rows, keys


def _first(owner: IndexArray, cells: IndexArray, names: list[Key], most: int) -> NDArray[np.bool_]:
    """Return for each row if its element is among the first ``most`` of its user, in public order."""
    marks = [
        hashlib.md5(name.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
        for _, name in names
    ]
    rank = np.empty(len(names), dtype=np.int64)
    rank[sorted(range(len(names)), key=lambda i: (marks[i], names[i]))] = np.arange(len(names))
    pairs = owner.astype(np.int64) * max(len(names), 1) + (rank[cells] if len(names) else 0)
    present, pair = np.unique(pairs, return_inverse=True)
    held_by = present // max(len(names), 1)
    # Pairs are sorted by user, then by rank, so that this is a pair's place among those of its user.
    place = np.arange(len(present)) - np.searchsorted(held_by, held_by)
    chosen: NDArray[np.bool_] = (place < most)[pair]
    return chosen
