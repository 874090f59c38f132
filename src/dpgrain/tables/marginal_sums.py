"""Rows by privacy unit as codes of public values, with the norm of each unit and clipped tables.

Everything is an integer: the counts of a unit, an upper bound on its squared norm, its weight, and
the sums of weighted rows. Nothing is compared pair by pair, so a unit with n different rows costs n
operations per marginal. All results are private and need noise before publication.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.inputs.array_blocks import first_elements
from dpgrain.tables.engines.protocol import Engine
from dpgrain.tables.rows import TableRows, column_values
from dpgrain.units import Record, Unit, User

Columns: TypeAlias = tuple[int, ...]
# Rows per chunk: sorted keys stay in the cache.
_CHUNK_ROWS = 1 << 18
# Bits of the low half of a squared norm, and the most rows of a unit: larger ones have weight 0,
# so that no sum of squares exceeds 2^52.
_HALF = 26
MOST_ROWS = 1 << _HALF


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Rows of units, with public values only."""

    codes: tuple[IntArray, ...]  # of each column, each (rows,), by unit
    lengths: IntArray  # (units,) number of rows of each unit, at least 1
    threads: int | None = None

    def squared_norms(self, coefficients: Mapping[Columns, int], sizes: Sequence[int]) -> IntPair:
        """Return upper bounds on squared norms, an :class:`IntPair` per unit.

        A unit with c rows in a cell of columns B adds ``coefficients[B]``·c² for it.
        """
        one = IntPair.create(np.array([sum(coefficients.values())]))
        high, low = (np.repeat(part, self.lengths.size) for part in (one.high, one.low))
        several = (self.lengths > 1) & (self.lengths <= MOST_ROWS)

        def fill(chunk: slice, rows: slice) -> None:
            units = np.flatnonzero(several[chunk]) + chunk.start
            lengths = self.lengths[units]
            kept = np.repeat(several[chunk], self.lengths[chunk])
            columns = [column[rows][kept] for column in self.codes]
            squares = _squared_norms(columns, lengths, coefficients, sizes)
            high[units], low[units] = squares.high, squares.low

        chunks = [(chunk, rows) for chunk, rows in self._chunks() if several[chunk].any()]
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(lambda each: fill(*each), chunks))
        return IntPair(high, low)

    def weights(self, squares: IntPair, bound: float, bits: int, norm_bits: int) -> IntArray:
        """Return the largest weights ≤ 2^bits with weight·norm ≤ bound·2^bits, (units,).

        ``squares`` are squared norms in units of 2^−norm_bits. All comparisons are of integers.
        """
        limit = math.floor(Fraction(bound) ** 2 * 4**bits) << norm_bits
        pairs, places = squares.distinct()
        weights = [min(math.isqrt(limit // square), 1 << bits) for square in pairs]
        found = np.array(weights, dtype=np.int64)[places]
        return np.where(self.lengths <= MOST_ROWS, found, 0)

    def tables(
        self, weights: IntArray, marginals: Sequence[Columns], sizes: Sequence[int]
    ) -> dict[Columns, IntArray]:
        """Return the sum of weighted rows in each cell of each marginal."""
        # Sums of fewer than 2^33 weights below 2^20 are exact in floating point.
        each = np.repeat(weights, self.lengths).astype(np.float64)

        def table(marginal: Columns) -> IntArray:
            shape = [sizes[i] for i in marginal]
            key = _keys(np.zeros(each.size, dtype=np.int64), self.codes, marginal, sizes)
            sums = np.bincount(key, weights=each, minlength=math.prod(shape))
            return sums.astype(np.int64).reshape(shape)

        with ThreadPoolExecutor(self.threads) as pool:
            return dict(zip(marginals, pool.map(table, marginals), strict=True))

    def _chunks(self) -> Iterator[tuple[slice, slice]]:
        """Return slices of whole units, and of their rows."""
        ends = np.cumsum(self.lengths)
        first = start = 0
        while first < ends.size:
            last = max(int(np.searchsorted(ends, start + _CHUNK_ROWS, side="right")), first + 1)
            yield slice(first, last), slice(start, int(ends[last - 1]))
            first, start = last, int(ends[last - 1])


@dataclass(frozen=True, eq=False)
class IntPair:
    """Non-negative integers of up to 89 bits: ``high``·2^26 + ``low``, each (n,)."""

    high: IntArray
    low: IntArray

    @staticmethod
    def create(low: IntArray, high: IntArray | int = 0) -> IntPair:
        """Return integers, with lower halves that may be outside of [0, 2^26)."""
        return IntPair(np.asarray(high + (low >> _HALF)), low & ((1 << _HALF) - 1))

    def distinct(self) -> tuple[list[int], NDArray[np.intp]]:
        """Return the distinct integers, and the place of each among them."""
        order = np.lexsort((self.low, self.high))
        high, low = self.high[order], self.low[order]
        new = np.ones(order.size, dtype=np.bool_)
        new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        places = np.empty(order.size, dtype=np.intp)
        places[order] = np.cumsum(new) - 1
        listed = zip(high[new].tolist(), low[new].tolist(), strict=True)
        return [(above << _HALF) + below for above, below in listed], places

    def roots(self, bits: int) -> FloatArray:
        """Return the square root of each integer times 2^−bits."""
        high = np.ldexp(self.high.astype(np.float64), _HALF - bits)
        roots: FloatArray = np.sqrt(high + np.ldexp(self.low.astype(np.float64), -bits))
        return roots


def _squared_norms(
    columns: Sequence[IntArray],
    lengths: IntArray,
    coefficients: Mapping[Columns, int],
    sizes: Sequence[int],
) -> IntPair:
    """Return the squared norms of the units of one chunk."""
    unit = np.repeat(np.arange(lengths.size), lengths)
    high, low = np.zeros((2, lengths.size), dtype=np.int64)
    for part, coefficient in coefficients.items():
        squares = lengths**2
        if part:
            cells = math.prod(sizes[i] for i in part)
            narrow = lengths.size * cells < 1 << 32
            key = _keys(unit.astype(np.uint32 if narrow else np.int64), columns, part, sizes)
            # Sorting moves no key to the rows of another unit.
            key.sort()
            starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
            runs = np.diff(starts, append=key.size).astype(np.float64)
            squares = np.bincount(unit[starts], runs * runs, lengths.size).astype(np.int64)
        # Below 2^35 · 2^26 each, because all coefficients add up to less than 2^35.
        high += coefficient * (squares >> _HALF)
        low += coefficient * (squares & ((1 << _HALF) - 1))
    return IntPair.create(low, high)


def _keys(
    key: NDArray[Any], columns: Sequence[IntArray], part: Columns, sizes: Sequence[int]
) -> NDArray[Any]:
    """Return keys with the codes of some columns as further digits."""
    for i in part:
        key = key * key.dtype.type(sizes[i]) + columns[i].astype(key.dtype)
    return key


def read_unit_rows(
    engine: Engine, unit: Unit, element: str | None, domain: Mapping[str, pa.Array]
) -> UnitRows:
    """Read the rows with all values in the domain, arranged by privacy unit.

    Rows without a user are dropped; rows without a value of ``element`` are one element. Of more
    than ``max_elements``, the first in a public order are used.
    """
    table = engine.table
    names = [
        *domain,
        *([] if table.user is None else [table.user]),
        *([element] if element else []),
    ]
    rows = engine.columns([(table.data_column(name), "key") for name in names])
    read = [
        _labelled(table, name, column) for name, column in zip(names, rows.columns, strict=True)
    ]
    valid = np.ones(len(rows), dtype=np.bool_)
    codes = []
    for (place, values), known in zip(read, domain.values(), strict=False):
        at = pyarrow.compute.index_in(values, value_set=known.cast(values.type)).fill_null(-1)
        codes.append(
            _looked_up(np.asarray(at.to_numpy(), dtype=np.int64), place, len(known), valid)
        )
    owner = np.arange(len(rows))
    if table.user is not None:
        owner = read[len(domain)][0]
        valid &= owner >= 0
    if element is not None:
        place, values = read[-1]
        owner = _elements(table, unit, element, owner, place, values, valid)
    elif isinstance(unit, Record):
        owner = np.arange(len(rows))
    owner = owner[valid]
    order = np.argsort(owner, kind="stable")
    lengths = np.bincount(owner) if owner.size else np.zeros(0, dtype=np.int64)
    return UnitRows(
        tuple(column[valid][order] for column in codes), lengths[lengths > 0], table.threads
    )


def _labelled(table: TableRows, name: str, column: pa.ChunkedArray) -> tuple[IntArray, pa.Array]:
    """Return a column as codes, (rows,), with −1 for null, and the value of each code."""
    encoded = column.dictionary_encode().combine_chunks()
    codes = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    return codes, column_values(table, name, encoded.dictionary)


def _looked_up(at: IntArray, place: IntArray, size: int, valid: BoolArray) -> IntArray:
    """Return rows' codes in a domain, in the smallest type; mark other rows as invalid."""
    at = np.append(at, -1)
    valid &= (at >= 0)[place]
    return at.astype(np.min_scalar_type(size))[place]


def _elements(
    table: TableRows,
    unit: Unit,
    name: str,
    owner: IntArray,
    place: IntArray,
    values: pa.Array,
    valid: BoolArray,
) -> IntArray:
    """Return the element of each row, and mark rows of unused elements as invalid."""
    labels = values.dictionary_encode()
    cell = np.append(labels.indices.fill_null(-1).to_numpy(zero_copy_only=False), -1)[place]
    if name in table.cells and table.cells[name].elements.missing == "drop":
        valid &= cell >= 0
    names = [("text", str(value)) for value in labels.dictionary.to_pylist()]
    cell = np.where(cell < 0, len(names), cell)
    names.append(("null", ""))
    if isinstance(unit, User) and unit.max_elements is not None:
        used = np.flatnonzero(valid)
        valid[used] = first_elements(owner[used], cell[used], names, unit.max_elements)
    pairs = np.where(valid, owner * len(names) + cell, -1)
    return np.unique(pairs, return_inverse=True)[1]
