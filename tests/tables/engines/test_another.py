"""An external engine is one file: lists of tuples, and a class instead of a name."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from fractions import Fraction
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pytest

import dpgrain as dg
from dpgrain._types import IntArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.long_labels import text_label
from dpgrain.scope.regions import EVERYTHING, Region, microseconds
from dpgrain.tables.elements import cell_labels
from dpgrain.tables.engines.features import Aggregate
from dpgrain.tables.engines.feed import Chunk
from dpgrain.tables.engines.per_user import PerUser
from dpgrain.tables.engines.protocol import Add, Engine, Form
from dpgrain.tables.engines.registry import ENGINES
from dpgrain.tables.groups import Dictionary, GroupCells, Groups, column_order
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.column_types import LONGEST_LABEL
from dpgrain.tables.sources.source import RegionSource
from dpgrain.tables.split import Split
from dpgrain.testing import EngineContract


class Parts:
    """Records in several places, each of which adds its own up: no place sees another's."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self.chunks = list(chunks)

    def accumulate(self, add: Add, shape: Sequence[int]) -> IntArray:
        sums = [np.zeros(shape, dtype=np.int64)]
        for keys, totals in self.chunks:
            sums.append(np.zeros(shape, dtype=np.int64))
            add(keys, totals, sums[-1])
        return np.asarray(np.sum(sums, axis=0))

    def narrowed(self, codes: IntArray, shift: int) -> None:
        return None


class Lists:
    """An engine over lists of Python's values."""

    def __init__(self, table: TableRows) -> None:
        source: Any = (
            table.source.source if isinstance(table.source, RegionSource) else table.source
        )
        raw = people(source) if isinstance(source, PerUser) else source.table.to_pydict()
        rows = [dict(zip(raw, row, strict=True)) for row in zip(*raw.values(), strict=True)]
        region = table.source.region if isinstance(table.source, RegionSource) else EVERYTHING
        rows = [row for row in rows if _inside(row, region)]
        self.table, self.raw = table, {name: [row[name] for row in rows] for name in raw}
        self.columns_ = {
            n: [_key(value, is_label=n in table.labels) for value in self.raw[n]] for n in self.raw
        }
        for name, made in table.cells.items():
            values = sorted({*self.columns_[made.of]} - {None})
            label = dict(zip(values, cell_labels(made.elements, values), strict=True))
            self.columns_[name] = [label.get(value) for value in self.columns_[made.of]]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def held(self, keys: Sequence[str], value: str | None) -> list[tuple[int, tuple[Any, ...]]]:
        users = [] if self.table.user is None else [self.table.user]
        numbers = [0.0] * len(next(iter(self.raw.values()))) if value is None else self.raw[value]
        held = []
        for i, number in enumerate(numbers):
            group = tuple(self.columns_[key][i] for key in keys)
            if None not in (*group, *(self.columns_[key][i] for key in users), number):
                held += [(i, group)] if math.isfinite(number) else []
        return held

    def distinct(self, keys: Sequence[str], value: str | None = None) -> Groups:
        found = {group for _, group in self.held(keys, value)}
        kinds = [pa.int64() if self.table.is_integer(key) else pa.string() for key in keys]
        columns = list(zip(*found, strict=True)) if found else [()] * len(keys)
        return Groups.of(keys, [pa.array(c, kind) for c, kind in zip(columns, kinds, strict=True)])

    def extent(self, key: str) -> tuple[int, int, int] | None:
        found = [value for value in self.columns_[key] if value is not None]
        return (min(found), max(found), len(self.columns_[key])) if found else None

    def dictionary(
        self, groups: Groups, cells: GroupCells, *, cell_column: str | None = None, corners: int = 1
    ) -> Dictionary:
        names = [] if cell_column is None else column_order({*self.columns_[cell_column]} - {None})
        self.cell = {name: place for place, name in enumerate([None, *names])}
        count = None if cell_column is None else len(self.cell)
        known = Dictionary.create(groups, cells, column_cells=count, corners=corners)
        columns = [column.to_pylist() for column in known.groups.columns]
        rows = list(zip(*columns, strict=True)) if columns else [()]
        self.code = {row: place * corners for place, row in enumerate(rows)}
        return known

    def users(
        self,
        dictionary: Dictionary,
        *,
        value: str | None = None,
        split: Split | None = None,
        cell_column: str | None = None,
    ) -> Parts:
        if self.table.user is None:
            raise ParameterError("user must be passed to dg.read for this privacy unit.")
        layout, users = dictionary.layout, self.columns_[self.table.user]
        mine: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        for i, group in self.held(dictionary.groups.names, value):
            cell = 0 if cell_column is None else self.cell[self.columns_[cell_column][i]]
            dropped = cell_column is not None and self.table.drops(cell_column) and cell == 0
            if group in self.code and not dropped:
                mine[users[i]].append(((cell << layout.item_bits) | self.code[group], i))
        chunks = [self.chunk(mine[user], value, split) for user in mine]
        return Parts((keys[order], None if totals is None else totals[order])
                     for keys, totals in chunks for order in [np.argsort(keys)])  # fmt: skip

    def records(
        self, dictionary: Dictionary, *, value: str | None = None, split: Split | None = None
    ) -> Parts:
        held = self.held(dictionary.groups.names, value)
        coded = [(self.code[group], i) for i, group in held if group in self.code]
        return Parts([self.chunk(coded, value, split)])

    def chunk(self, coded: list[tuple[int, int]], value: str | None, split: Split | None) -> Chunk:
        keys = np.array([key for key, _ in coded], dtype=np.int64)
        if split is None:
            return keys, None
        return split(keys, None if value is None else np.array([self.raw[value][i] for _, i in coded], float))  # noqa: E501  # fmt: skip

    def columns(self, wanted: Sequence[tuple[str, Form]]) -> pa.Table:
        found = {}
        for place, (name, form) in enumerate(wanted):
            column = self.columns_[name] if form in ("key", "text") else self.raw[name]
            if form == "text":
                column = [None if value is None else str(value) for value in column]
            found[f"c{place}"] = column
        return pa.table(found)


def _inside(row: Any, region: Region) -> bool:
    """Whether a row is in a region, which the engine has to evaluate itself."""
    for side in region.sides:
        value = row[side.column]
        if isinstance(value, date):
            value = microseconds(datetime(value.year, value.month, value.day))
        if not (side.missing if value is None else value in side.values):
            return False
    return True


def people(source: PerUser) -> dict[str, list[Any]]:
    below, keys = Lists(source.rows), (source.rows.user or "", *source.by)
    mine: dict[Any, list[int]] = defaultdict(list)
    for i, group in enumerate(zip(*(below.columns_[key] for key in keys), strict=True)):
        mine[group].extend([] if None in group else [i])
    groups = [group for group in mine if mine[group]]
    columns = {key: [group[place] for group in groups] for place, key in enumerate(keys)}
    for number in source.numbers:
        made = [number_of(number, below, mine[group]) for group in groups]
        columns[number.name] = made
    return columns


def number_of(number: Aggregate, below: Lists, rows: list[int]) -> Any:
    if number.of is None or number.function == "size":
        return len(rows)
    names = number.function == "nunique" or number.of in below.table.cells
    column = (below.columns_ if names else below.raw)[number.of]
    values = [column[i] for i in rows if column[i] is not None]
    values = [x for x in values if not isinstance(x, float) or math.isfinite(x)]
    if number.function == "nunique":
        return len({*values})
    if number.function == "count":
        return len(values)
    if number.function in ("min", "max"):
        return {"min": min, "max": max}[number.function](values, default=None)
    bounded = [min(max(x, -(2**62)), 2**62) for x in values]
    scaled = sum(int(Fraction(x) * 2**62) for x in bounded)
    total = scaled // 2**62 if all(isinstance(x, int) for x in values) else scaled / 2**62
    return total if number.function == "sum" else total / len(values) if values else None


def _key(value: Any, *, is_label: bool) -> Any:
    if isinstance(value, str) and not is_label:
        return text_label(value) if len(value.encode()) <= LONGEST_LABEL else None
    return value.isoformat() if isinstance(value, date) else value


@pytest.mark.slow
class TestLists(EngineContract):
    engine = Lists
    users = 12


def test_engine_is_chosen_by_name_or_class() -> None:
    rows = pa.table({"who": [1, 2], "w": [1.0, 2.0]})
    with dg.read(rows, user="who", engine="duckdb").open_engine() as engine:
        assert type(engine) is ENGINES["duckdb"]
    assert isinstance(dg.read(rows, user="who", engine=Lists).open_engine(), Lists)
    assert dg.read(rows, user="who").engine == "duckdb"
    # It stays the engine of every table derived from this one.
    table = dg.read(rows, user="who", engine=Lists).with_cells("few", of="who", by=lambda who: "x")
    assert isinstance(table.open_engine(), Lists)


@pytest.mark.parametrize("wrong", ["sparks", "spark:/h", "http://host", 5, True])
def test_unknown_engine_is_rejected(wrong: Any) -> None:
    words = (
        "engine must be one of 'duckdb', 'spark', a Spark session or its address, or an "
        "engine class, not"
    )
    with pytest.raises(dg.ParameterError, match=words) as caught:
        dg.read(pa.table({"who": [1]}), user="who", engine=wrong)
    assert str(caught.value) == f"{words} {wrong!r}."


def test_a_toy_is_an_engine_for_the_types() -> None:
    made: Engine = Lists(dg.read(pa.table({"who": [1], "w": [1.0]}), user="who"))
    assert made.table.user == "who"
