"""Groups of a release with their cells, and their codes for engines and kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpgrain._types import IntArray
from dpgrain.tables.arrow_arrays import number_array
from dpgrain.tables.engines.kernel import KeyLayout
from dpgrain.tables.groups import Groups

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
    def of(
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
        """Return the row of each group's cell, (V,), in an array with one row per cell or in total."""
        if rows == 1 or self.layout.cell_of is None:
            return np.zeros(len(self.groups), dtype=np.int64)
        return self.layout.cell_of[:: self.corners]


def public_order(groups: Groups, cells: GroupCells, digests: Digests) -> IntArray:
    """Return the indices of the groups with a cell, (V,), in the order of all engines.

    The order compares hashes of the names of cells and keys, a public function of each group: a
    bound on contributions must not make one group's selection depend on other groups.
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
    return sorted(names, key=lambda name: (md5_hex(name), name))


def md5_hex(name: int | str) -> str:
    """Return the MD5 hash of a name as hexadecimal text."""
    return _md5(str(name).encode()).hexdigest()
