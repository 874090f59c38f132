"""Rows of arrays arranged into blocks, one per privacy unit."""

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
from dpgrain.inputs.columns import require_packages
from dpgrain.inputs.numbers import collect_rows
from dpgrain.units import Element, Record, Unit, User, unit_level


@dataclass(frozen=True)
class ArrangedRows:
    """Valid rows with their blocks, (rows kept,), and the blocks' users, (G,)."""

    indices: IndexArray  # of rows
    blocks: IndexArray
    owners: IndexArray
    users: int  # number of distinct users in all rows

    def by_value(self, X: Any, y: NDArray[Any]) -> ArrangedRows:
        """Sort the rows of each block by value, so that sums do not depend on their order."""
        if len(self.indices) == len(self.owners) or not isinstance(X, np.ndarray):
            return self
        values = np.column_stack([X[self.indices], y[self.indices]]).astype(np.float64)
        # Non-finite numbers are treated as 0, and adding 0 converts −0 to 0.
        values = np.where(np.isfinite(values), values, 0.0) + 0.0
        as_bytes = values.view(np.dtype((np.void, values.itemsize * values.shape[1]))).ravel()
        order = np.argsort(as_bytes, kind="stable")
        return replace(self, indices=self.indices[order], blocks=self.blocks[order])


def check_same_order(columns: Mapping[str, Any]) -> None:
    """Reject frames and series with the same index labels in different orders.

    Rows are matched by position, so another order would assign rows to other users. The order of an
    index is assumed public. Errors quote no labels.
    """
    indexes = {name: each.index for name, each in columns.items() if _is_pandas(each)}
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
    """Return True if two indexes have the same labels in different orders."""
    if len(one) != len(two) or one.nlevels != two.nlevels:
        return False
    try:
        if one.equals(two):
            return False
        counts, others = (index.value_counts(sort=False).to_dict() for index in (one, two))
        return bool(counts == others)
    except Exception:
        # Labels can be objects that cannot be compared; errors show nothing about them.
        return False


def default_unit(unit: Unit | None, users: Any, n_users: int | None = None) -> Unit:
    """Return the privacy unit: by default users if they are passed, otherwise records."""
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


def arrange(
    rows: int, users: Any, elements: Any, unit: Unit, *, places: bool = False
) -> ArrangedRows:
    """Group rows into blocks, one per privacy unit.

    Rows with a null user are dropped; a null element is a separate cell. ``User(max_elements=M)``
    uses a user's first M elements in a public order, by hash of their names.
    """
    return LabelledRows.create(rows, users, elements, unit, places=places).arranged()


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows with unread labels of users and elements, created by :meth:`create`."""

    rows: int
    users: Any
    elements: Any
    unit: Unit
    places: bool = False  # users are indices in a stated population

    @staticmethod
    def create(
        rows: int,
        users: Any,
        elements: Any,
        unit: Unit,
        *,
        places: bool = False,
        others: Mapping[str, Any] | None = None,
    ) -> LabelledRows:
        """Check rows against public numbers; of labels, compare only the order of indexes."""
        if not isinstance(unit, Record | Element | User):
            raise ParameterError(
                f"unit must be Record(), Element() or User(), not {_validate.describe(unit)}."
            )
        check_same_order({**(others or {}), "users": users, "elements": elements})
        for labels in (users, elements):
            require_packages(labels)
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
        return LabelledRows(rows, users, elements, unit, places)

    @staticmethod
    def of_all(users: Any, unit: Unit) -> LabelledRows:
        """Return unread rows, one per user label."""
        listed, shape = _labels_and_shape(users)
        return LabelledRows.create(shape[0] if shape else 0, listed, None, unit)

    def arranged(self) -> ArrangedRows:
        """Read the labels, and group rows into blocks."""
        users, unit = self.users, self.unit
        owner = (
            np.arange(self.rows)
            if users is None
            else _codes(users, self.rows, "users", self.places)[0]
        )
        indices = np.flatnonzero(owner >= 0)
        n_users = int(owner.max(initial=-1)) + 1
        if isinstance(unit, Record):
            return ArrangedRows(indices, np.arange(len(indices)), owner[indices], n_users)
        if self.elements is None:
            return ArrangedRows(indices, owner[indices], np.arange(n_users), n_users)
        # Rows without an element form a separate cell.
        cells, names = _codes(self.elements, self.rows, "elements")
        cells, names = np.where(cells < 0, len(names), cells), [*names, ("null", "")]
        if isinstance(unit, User) and unit.max_elements is not None:
            first = first_elements(owner, cells, names, unit.max_elements)
            indices = indices[first[indices]]
        pairs = owner[indices].astype(np.int64) * max(len(names), 1) + cells[indices]
        present, blocks = np.unique(pairs, return_inverse=True)
        return ArrangedRows(indices, blocks, present // max(len(names), 1), n_users)


def _one_each(labels: Any, rows: int, name: str) -> Any:
    """Return labels after checking by shape that there is one for each row."""
    listed, shape = _labels_and_shape(labels)
    if shape != (rows,):
        raise _not_one_each(name, len(shape))
    return listed


def _not_one_each(name: str, dimensions: int) -> ParameterError:
    # The numbers of rows and labels are private.
    other = "another number" if dimensions == 1 else f"an array of {dimensions} dimensions"
    return ParameterError(
        f"{name} must have exactly one label for each row, not {other}; pass None for a row "
        "without a label.",
        name=name,
    )


def _labels_and_shape(labels: Any) -> tuple[Any, tuple[int, ...]]:
    """Return labels, listed if they are iterable only once, and their shape."""
    shape = getattr(labels, "shape", None)
    if shape is None and not hasattr(labels, "__len__"):
        if not hasattr(labels, "__iter__"):
            return labels, ()
        labels = collect_rows(lambda: list(labels))
    return labels, tuple((len(labels),) if shape is None else shape)


def _codes(values: Any, rows: int, name: str, places: bool = False) -> tuple[IndexArray, list[Key]]:
    """Return labels as codes from 0, with −1 for null, and their keys."""
    codes_of_rows, keys = codes(values, places=places)
    if codes_of_rows.shape != (rows,):
        raise _not_one_each(name, codes_of_rows.ndim)
    return codes_of_rows, keys


def first_elements(
    owner: IndexArray, cells: IndexArray, names: list[Key], most: int
) -> NDArray[np.bool_]:
    """Return True for rows with their user's first ``most`` elements in public order."""
    marks = [
        hashlib.md5(name.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
        for _, name in names
    ]
    rank = np.empty(len(names), dtype=np.int64)
    rank[sorted(range(len(names)), key=lambda i: (marks[i], names[i]))] = np.arange(len(names))
    pairs = owner.astype(np.int64) * max(len(names), 1) + (rank[cells] if len(names) else 0)
    present, pair = np.unique(pairs, return_inverse=True)
    owner_of = present // max(len(names), 1)
    # Pairs are sorted by user, then by rank; this is a pair's index among its user's pairs.
    place = np.arange(len(present)) - np.searchsorted(owner_of, owner_of)
    chosen: NDArray[np.bool_] = (place < most)[pair]
    return chosen
