"""Groups of a release: combinations of keys, their cells, and their codes for engines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from dpgrain._types import BoolArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.long_labels import SHOWN, is_replacement
from dpgrain.tables.arrow_arrays import number_array
from dpgrain.tables.engines.kernel import KeyLayout


@dataclass(frozen=True)
class Groups:
    """Keys of groups: items, pairs of an item and a month, or one group of everything."""

    # The key columns, none for the group of everything.
    names: tuple[str, ...]
    # One array per name.
    columns: tuple[pa.Array, ...]
    # The number of groups.
    size: int

    @staticmethod
    def of(names: Sequence[str], columns: Sequence[pa.Array]) -> Groups:
        """Return groups with one combination of keys per row; one group without keys."""
        return Groups(tuple(names), tuple(columns), len(columns[0]) if columns else 1)

    @staticmethod
    def product(names: Sequence[str], values: Sequence[pa.Array]) -> Groups:
        """Return a group for every combination of key values; the first key varies slowest."""
        places = np.indices([len(column) for column in values]).reshape(len(values), -1)
        columns = [column.take(number_array(at)) for column, at in zip(values, places, strict=True)]
        return Groups.of(names, columns)

    def __len__(self) -> int:
        return self.size

    def take(self, order: IntArray) -> Groups:
        """Return the groups at these indices."""
        places = number_array(order)
        columns = tuple(column.take(places) for column in self.columns)
        return Groups(self.names, columns, len(order))

    def filter(self, included: BoolArray) -> Groups:
        """Return the groups where ``kept`` is true."""
        return self.take(np.flatnonzero(included))

    def order(self) -> IntArray:
        """Return (V,) the indices that sort the groups by their keys."""
        if not self.names:
            return np.arange(self.size)
        # Rename columns, because Arrow treats a name with a leading dot or bracket as a path.
        keys = {f"k{i}": column for i, column in enumerate(self.columns)}
        order = [(name, "ascending") for name in keys]
        places = pyarrow.compute.sort_indices(pa.table(keys), sort_keys=order)
        return np.asarray(places.to_numpy(), dtype=np.int64)

    def codes_in(self, other: Groups) -> IntArray:
        """Return (V,) the index of each group among other groups by some of its keys."""
        missing = [name for name in other.names if name not in self.names]
        if missing:
            raise ParameterError(
                f"totals have the key {missing[0]!r}, which the parts lack ({', '.join(self.names)})."
            )
        mine = [self.columns[self.names.index(name)].to_pylist() for name in other.names]
        rows = list(zip(*mine, strict=True)) if mine else [()] * self.size
        theirs = zip(*(column.to_pylist() for column in other.columns), strict=True)
        place = {row: i for i, row in enumerate(theirs)} if other.names else {(): 0}
        unknown = [row for row in rows if row not in place]
        if unknown or len(set(rows)) < len(place):
            raise ParameterError(
                "every group of the totals must have parts, and every part a total; release "
                "both with the same public domain."
            )
        return np.array([place[row] for row in rows], dtype=np.int64)

    @property
    def long_label_prefix(self) -> int | None:
        """Characters before the hash in labels of long texts; None without such labels."""
        texts = (key for column in self.columns for key in column.unique().to_pylist())
        found = any(isinstance(text, str) and is_replacement(text) for text in texts)
        return SHOWN if found else None

    def table(self) -> pa.Table:
        """Return the keys as a table."""
        return pa.table(dict(zip(self.names, self.columns, strict=True)))

    def labels(self) -> list[str]:
        """Return the name of each group: its keys, joined."""
        if not self.names:
            return ["all"] * self.size
        parts = [[str(value) for value in column.to_pylist()] for column in self.columns]
        return [" · ".join(row) for row in zip(*parts, strict=True)]


#: Hash function of names, (n,) to (n, 2), such as :func:`md5_words`.
Digests: TypeAlias = Callable[[pa.Array], NDArray[np.uint64]]
_md5 = partial(hashlib.md5, usedforsecurity=False)


@dataclass(frozen=True, eq=False)
class GroupCells:
    """The cells of groups."""

    # (V,) names that order cells; null for dropped groups without a cell.
    labels: pa.Array
    # (V,) codes of cells; −1 for dropped groups.
    codes: IntArray

    @cached_property
    def sizes(self) -> IntArray:
        """The number of groups in each cell, (K,)."""
        return np.unique(self.codes[self.codes >= 0], return_counts=True)[1].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Dictionary:
    """The groups of a release, in the public order of cells and then of keys."""

    # (V,) the groups.
    groups: Groups
    # Packing of the keys of coordinates, with their cells.
    layout: KeyLayout
    # (K,) number of coordinates per cell; (1,) if another column has the cells.
    cell_sizes: IntArray
    # (V,) index of each group before sorting.
    positions: IntArray
    # The number of coordinates of each group.
    corners: int = 1

    @staticmethod
    def create(
        groups: Groups,
        cells: GroupCells,
        *,
        column_cells: int | None = None,
        corners: int = 1,
        digests: Digests | None = None,
    ) -> Dictionary:
        """Return the dictionary of different groups, with codes for groups and cells."""
        order = public_order(groups, cells, md5_words if digests is None else digests)
        known = groups.take(order)
        if column_cells is not None:
            layout = KeyLayout(len(known) * corners, column_cells, None)
            return Dictionary(known, layout, np.array([layout.items]), order, corners)
        cell = cells.codes[order]
        cell_of = np.cumsum(np.diff(cell, prepend=cell[:1]) != 0, dtype=np.int64)
        sizes = np.bincount(cell_of) * corners
        layout = KeyLayout(len(known) * corners, sizes.size, np.repeat(cell_of, corners))
        return Dictionary(known, layout, sizes, order, corners)

    def cell_rows(self, rows: int) -> IntArray:
        """Return the row of each group's cell, (V,), in an array of cells or of one row."""
        if rows == 1 or self.layout.cell_of is None:
            return np.zeros(len(self.groups), dtype=np.int64)
        return self.layout.cell_of[:: self.corners]


def public_order(groups: Groups, cells: GroupCells, digests: Digests) -> IntArray:
    """Return the indices of the groups with a cell, (V,), in the order of all engines.

    It compares hashes of the names of cells and keys, a public function of each group: a bound on
    contributions must not make one group's selection depend on other groups.
    """
    included = np.flatnonzero(cells.codes >= 0)
    codes = cells.codes[included]
    # All groups of a cell have the same label.
    first = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
    first[codes[::-1]] = included[::-1]
    used = np.flatnonzero(first >= 0)
    labels = Groups.of(("label",), [cells.labels.take(number_array(first[used]))])
    rank = np.empty(first.size, dtype=np.int64)
    rank[used[_by_hash(labels, np.zeros_like(used), digests)]] = np.arange(used.size)
    return included[_by_hash(groups.take(included), rank[codes], digests)]


def _by_hash(groups: Groups, rank: IntArray, digests: Digests) -> IntArray:
    """Return the indices of groups, (n,), sorted by rank, hashes of keys, and keys."""
    words = [word for column in groups.columns for word in digests(column).T]
    if words:
        # The rank and the first bits of the hash nearly always distinguish all groups.
        bits = int(rank.max(initial=0)).bit_length()
        packed = (rank.astype(np.uint64) << np.uint64(64 - bits)) | (words[0] >> np.uint64(bits))
        order = np.argsort(packed)
        if (packed[order[1:]] != packed[order[:-1]]).all():
            return order
    return np.lexsort((np.argsort(groups.order()), *words[::-1], rank))


def md5_words(names: pa.Array) -> NDArray[np.uint64]:
    """Return the MD5 hash of each name, (n, 2): two words, the higher one first.

    MD5 only orders names here, and is available everywhere.
    """
    texts = names.cast(pa.binary() if pa.types.is_string(names.type) else pa.string())
    joined = b"".join([_md5(text).digest() for text in texts.cast(pa.binary()).to_pylist()])
    return hash_words(joined)


def hash_words(digests: bytes | pa.Buffer) -> NDArray[np.uint64]:
    """Return the words of concatenated hashes, (n, 2)."""
    return np.frombuffer(digests, ">u8").astype(np.uint64).reshape(-1, 2)


def column_order(names: Iterable[int | str]) -> list[int | str]:
    """Return the names of a column's cells in the order of :func:`public_order`."""
    return sorted(names, key=lambda name: (_md5(str(name).encode()).hexdigest(), name))
