"""Worst-case neighbouring tables, from a table's schema and a query's public facts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import pyarrow as pa

from dpgrain.errors import ParameterError
from dpgrain.publishing.query import Query
from dpgrain.scope.regions import LabelSet, Span
from dpgrain.tables.elements import Elements
from dpgrain.tables.expression import columns_of
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.column_types import ALL_INTEGERS, BOOLEAN, DAY, MOMENT, TEXT, TIME
from dpgrain.tables.sources.frames import ArrowSource
from dpgrain.tables.sources.source import RowSource, SourceWrapper
from dpgrain.tables.sources.typed_columns import TypedSource
from dpgrain.tables.table import UserTable
from dpgrain.units import Record, Relation, User

Row: TypeAlias = dict[str, Any]

# Maximum values of a column for units, and the number of values if none are public.
_MOST_VALUES, _FEW_VALUES = 64, 16
# Maximum groups and cells of other users.
_GROUPS = 4
# Number of the first other user; the changed users have smaller numbers.
_FIRST_OTHER = 50
# Records of a unit with many records.
_MANY_RECORDS = 20
# Numbers without public bounds; an unbounded contribution would be detected.
_NUMBERS = (1.0, 1e4, -1e4)
# First day of synthetic rows; the next days are in other weeks and months.
_FIRST_DAY, _DAYS_APART = date(2024, 1, 1), 40
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")
_ARROW: dict[str, pa.DataType] = {
    TEXT: pa.string(),
    BOOLEAN: pa.bool_(),
    DAY: pa.date32(),
    TIME: pa.timestamp("us"),
    MOMENT: pa.timestamp("us", "UTC"),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    **dict.fromkeys(("HUGEINT", "UHUGEINT"), pa.decimal128(38, 0)),
}


@dataclass(frozen=True)
class NeighbourTables:
    """Two neighbouring tables, used instead of the rows of a query."""

    one: pa.Table
    other: pa.Table
    description: str


@dataclass(frozen=True)
class UnitContent:
    """Content of each changed unit: a number and records in one or several groups."""

    number: float
    records: int
    spread: bool  # records cycle through ``over`` groups
    first: int = 0
    over: int = 0  # 0 for all groups

    def group(self, record: int) -> int:
        """Return the index of a record's group."""
        return self.first + (record % (self.over or self.records) if self.spread else 0)

    def __str__(self) -> str:
        if not self.records:
            return "no record"
        apart = self.spread and self.records > 1
        different = f"in {self.over} groups" if self.over else "in different groups"
        where = different if apart else f"in group {self.first + 1}"
        many = "1 record" if self.records == 1 else f"{self.records} records"
        return f"{many} {where}, numbers {self.number:g}"


def neighbour_tables(
    query: Query[Any],
    units: int,
    relation: Relation,
    others: int,  # other users in each of the first groups
    *,
    real: pa.Table | None = None,  # their rows if they are not synthetic
    like: str = "",  # description of the only content to use
) -> Iterator[NeighbourTables]:
    """Yield neighbouring tables, by public facts, that differ in units of a query."""
    public = PublicFacts.create(query)
    if real is not None:
        public = public.with_unused_ids(real)
    if public.max_units < units:
        return
    base = public.other_rows(others) if real is None else None
    for content, exchanged in _contents(public, relation):
        text = str(content) if exchanged is None else f"{content}; in their place {exchanged}"
        if like and text != like:
            continue
        one = public.units(content, units)
        two = [] if exchanged is None else public.units(exchanged, units)
        if real is not None:
            yield NeighbourTables(
                _append_rows(real, public.table(one)), _append_rows(real, public.table(two)), text
            )
        else:
            assert base is not None  # noqa: S101 - others are made up without real rows
            yield NeighbourTables(public.table([*base, *one]), public.table([*base, *two]), text)


def _append_rows(real: pa.Table, synthetic: pa.Table) -> pa.Table:
    """Append synthetic rows to real ones, with the types of the real ones."""
    return pa.concat_tables([real, synthetic.select(real.column_names).cast(real.schema)])


def _contents(
    public: PublicFacts, relation: Relation
) -> Iterator[tuple[UnitContent, UnitContent | None]]:
    """Yield contents of units and their replacements; None if units are removed."""
    records = (1,) if public.single else (1, _MANY_RECORDS)
    one = [
        UnitContent(number, many, spread)
        for number, many in itertools.product(public.numbers, records)
        for spread in ((False, True) if many > 1 else (False,))
    ]
    if public.max_elements > 1:
        # The number of retained elements of a user, each with many records.
        many = public.max_elements * _MANY_RECORDS
        one += [
            UnitContent(number, many, spread=True, over=public.max_elements)
            for number in public.numbers
        ]
    if relation == "zero_out":
        yield from ((content, None) for content in one)
        return
    for content in one:
        elsewhere = replace(content, first=1) if not content.spread else content
        far = max(public.numbers, key=lambda number: abs(number - content.number))
        for number in dict.fromkeys((content.number, far)):
            changed = replace(elsewhere, number=number)
            others = [changed, replace(changed, first=content.first)]
            if not public.single:
                # For elements and users, any number of records is replaced by any other number.
                others += [replace(changed, records=1), replace(content, records=0)]
            for other in dict.fromkeys(others):
                if other != content:
                    yield content, other


@dataclass(frozen=True)
class PublicFacts:
    """Public facts about a query's rows, created by :meth:`of`."""

    schema: Mapping[str, str]
    user: str | None
    values: Mapping[str, Sequence[Any]]
    numbers: Sequence[float]
    keys: frozenset[str]  # columns whose values can differ within a unit
    cells: Sequence[Row] | None  # column values by element; None if elements are unprotected
    single: bool
    users: bool
    max_elements: int = 0  # retained elements to test, 0 if unlimited
    names: tuple[Any, ...] = ()  # user ids by number

    @staticmethod
    def create(query: Query[Any]) -> PublicFacts:
        """Collect the public facts of a query; nothing is opened."""
        table, request = query_table(query), getattr(query, "request", query)
        schema, unit = base_source(table.source).columns(), query.promise.unit
        stated = {**_arguments(table, schema, _key_values(request)), **_region_values(table)}
        values = {name: _values(kind, stated.get(name)) for name, kind in schema.items()}
        named = {*getattr(request, "keys", ()), *_region_values(table), _partition(query)[0]}
        named.add(getattr(request, "column", None))
        cells = None
        if not isinstance(unit, Record | User):
            cells = _cells(query, table, values)
        numeric = {name for name, kind in schema.items() if _is_number(kind)} - named
        keys = frozenset(set(schema) - numeric - {table.user} - set((cells or [{}])[0]))
        return PublicFacts(
            schema,
            table.user,
            values,
            _numbers(request),
            keys,
            cells,
            isinstance(unit, Record),
            isinstance(unit, User),
            min(getattr(unit, "max_elements", None) or 0, _FEW_VALUES),
        )

    def with_unused_ids(self, real: pa.Table) -> PublicFacts:
        """Return the same with user ids that do not occur in real rows."""
        if self.user is None:
            return self
        known, kind = set(real[self.user].to_pylist()), self.schema[self.user]
        named = ((n, _column([n], kind)[0].as_py()) for n in range(len(known) + _FIRST_OTHER))
        names = tuple(n for n, name in named if name is not None and name not in known)
        if len(names) < _FIRST_OTHER:
            raise ParameterError("query must be of a table with enough unused user ids.")
        return replace(self, names=names)

    @property
    def max_units(self) -> float:
        """Maximum number of units of one user that can differ."""
        return float("inf") if self.cells is None else len(self.cells)

    def units(self, content: UnitContent, count: int) -> list[Row]:
        """Return the rows of ``count`` units."""
        rows = []
        for unit, record in itertools.product(range(count), range(content.records)):
            place = content.group(record)
            fixed = {} if self.cells is None else self.cells[unit]
            rows.append({**self._row(unit if self.users else 0, place, content.number), **fixed})
        return rows

    def other_rows(self, each: int) -> list[Row]:
        """Return rows of other users, ``each`` in each of the first groups."""
        groups = range(min(_GROUPS, max((len(self.values[name]) for name in self.keys), default=1)))
        cells = (self.cells or [{}])[:_GROUPS]
        number, people = min(self.numbers, key=abs), itertools.count(_FIRST_OTHER)
        return [
            {**self._row(next(people), group, number), **cell}
            for group, cell, _ in itertools.product(groups, cells, range(max(each, 2)))
        ]

    def _row(self, person: int, place: int, number: float) -> Row:
        row: Row = {}
        for name in self.schema:
            if name == self.user:
                row[name] = self.names[person] if self.names else person
            elif name in self.keys:
                row[name] = self.values[name][place % len(self.values[name])]
            else:
                row[name] = number
        return row

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Return rows as a table with the schema."""
        columns = {
            name: _column([row[name] for row in rows], kind) for name, kind in self.schema.items()
        }
        return pa.table(columns)


def query_table(query: Query[Any]) -> UserTable:
    """Return the table of a query."""
    table = getattr(query, "table", None) or getattr(getattr(query, "request", None), "table", None)
    if not isinstance(table, UserTable):
        raise ParameterError(
            "query must be of a table opened by dg.read, because neighbours are built from its "
            f"schema, not a {type(query).__name__} of other rows; pass a mechanism with guarantee, "
            "neighbours(units, relation) and draw(data, count) instead.",
            name="query",
        )
    _ = base_source(table.source)
    return table


def base_source(source: Any) -> RowSource:
    """Return the part of a source to replace by other rows: the rows as they were read."""
    if isinstance(source, SourceWrapper) and not isinstance(source, TypedSource):
        return base_source(source.source)
    if hasattr(source, "others"):
        raise ParameterError(
            "query must not use rows joined from two tables of people; audit a query of each "
            "table.",
            name="query",
        )
    if isinstance(rows := getattr(source, "rows", None), TableRows):
        return base_source(rows.source)
    read: RowSource = source
    return read


def replace_rows(source: Any, rows: pa.Table) -> RowSource:
    """Replace the rows of a source; they have the schema of :func:`base_source`."""
    whole: Any = source
    if isinstance(source, SourceWrapper) and not isinstance(source, TypedSource):
        over: RowSource = replace(whole, source=replace_rows(source.source, rows))
        return over
    if isinstance(below := getattr(source, "rows", None), TableRows):
        replaced: RowSource = replace(
            whole, rows=replace(below, source=replace_rows(below.source, rows))
        )
        return replaced
    kinds = source.columns()
    return ArrowSource(
        rows, unread={name: kinds[name] for name in kinds if not _arrow(kinds[name])}
    )


def _key_values(request: Any) -> dict[str, list[Any]]:
    """Return the public values of the grouping columns."""
    domain = getattr(request, "domain", None)
    if domain is None:
        return {}
    if (listed := getattr(domain, "listed", None)) is not None:
        columns = zip(listed.names, listed.columns, strict=True)
        return {name: list(dict.fromkeys(column.to_pylist())) for name, column in columns}
    return {name: column.to_pylist() for name, column in domain.public.items()}


def _arguments(
    table: TableRows, schema: Mapping[str, str], values: dict[str, list[Any]]
) -> dict[str, list[Any]]:
    """Add values of text columns from which keys are derived: the keys themselves."""
    # An expression that cleans text, such as ``upper(trim(x))``, leaves its own results unchanged.
    result = dict(values)
    for key, derived in table.derived.items():
        for column in columns_of(derived.node):
            if schema.get(column) == TEXT and key in values:
                result.setdefault(column, [str(value) for value in values[key]])
    return result


def _region_values(table: TableRows) -> dict[str, list[Any]]:
    """Return values inside the region of a table."""
    sides = {}
    for side in table.scope.sides:
        if isinstance(side.values, LabelSet) and not side.values.but:
            sides[side.column] = list(side.values.labels)
        elif isinstance(side.values, Span):
            sides[side.column] = _span_values(side.values)
    return {name: values for name, values in sides.items() if values}


def _span_values(span: Span) -> list[Any]:
    """Return some values inside an interval."""
    low = span.low if span.low is not None else None if span.high is None else span.high - 1
    if low is None:
        return []
    if span.axis == "whole":
        last = low + _FEW_VALUES if span.high is None else span.high
        return list(range(low, min(last, low + _FEW_VALUES)))
    day = timedelta(days=1) // timedelta(microseconds=1)
    last = low + _FEW_VALUES * day if span.high is None else span.high
    times = range(low, min(last, low + _FEW_VALUES * day), day)
    return [datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time) for time in times]


def _partition(query: Query[Any]) -> tuple[str | None, str | None, Elements | None]:
    """Return the column of cells, the time zone of its days, and their partition."""
    blocks = getattr(getattr(query, "request", query), "blocks", None)
    column: str | None = getattr(blocks, "of", None)
    elements: Elements | None = getattr(blocks, "elements", None)
    if column is None and isinstance(by := getattr(query.promise.unit, "by", None), str):
        column = by
    table = query_table(query)
    if (cell := table.cells.get(column or "")) is not None:
        column, elements = cell.of, cell.elements
    day = table.days.get(column or "")
    return (column, None, elements) if day is None else (day.of, day.zone, elements)


def _day(time: datetime, zone: str) -> date:
    """Return the date of a timestamp in a time zone; without a zone, as written."""
    return (time.astimezone(ZoneInfo(zone)) if zone else time).date()


def _cells(query: Query[Any], table: TableRows, values: Mapping[str, Sequence[Any]]) -> list[Row]:
    """Return the values of all columns that determine the cell, for each cell."""
    column, zone, elements = _partition(query)
    if column is None or column not in values:
        # Other columns determine the cell: they are equal within one unit.
        most = min((len(values[name]) for name in values if name != table.user), default=0)
        rows = ({name: values[name][place] for name in values} for place in range(most))
        return [{name: v for name, v in row.items() if name != table.user} for row in rows]
    cells: dict[Hashable, Any] = {}
    known = [] if elements is None else list(elements.mapping or ())
    for content in (*values[column], *(known[:_MOST_VALUES] if zone is None else ())):
        value = (
            content if zone is None or not isinstance(content, datetime) else _day(content, zone)
        )
        if elements is not None and elements.function is not None and isinstance(value, date):
            # Functions receive a day as text, like in releases.
            value = str(value)
        cell = value if elements is None else elements.cell(value)
        if cell is not None:
            cells.setdefault(cell, content)
    return [{column: value} for value in cells.values()]


def _numbers(request: Any) -> tuple[float, ...]:
    """Return the numbers of units: the ends of public bounds, and values beyond them."""
    bounds = getattr(request, "bounds", None)
    if isinstance(bounds, tuple) and len(bounds) == 2:
        low, high = map(float, bounds)
        return tuple(dict.fromkeys((high, low, high + 1e3 * (abs(high) + 1))))
    return (1.0,) if getattr(request, "value", "") is None else _NUMBERS


def _is_number(kind: str) -> bool:
    return (
        kind in ALL_INTEGERS or kind in ("FLOAT", "DOUBLE") or _DECIMAL.fullmatch(kind) is not None
    )


def _values(kind: str, stated: Sequence[Any] | None) -> list[Any]:
    """Return the possible values of a column: public ones, or examples of its type."""
    if stated:
        return list(stated[:_MOST_VALUES])
    if kind == BOOLEAN:
        return [True, False]
    if kind == DAY:
        return [_FIRST_DAY + timedelta(days=_DAYS_APART * n) for n in range(_FEW_VALUES)]
    if kind in (TIME, MOMENT):
        first = datetime.combine(_FIRST_DAY, datetime.min.time(), UTC)
        return [first + timedelta(days=_DAYS_APART * n) for n in range(_FEW_VALUES)]
    if _is_number(kind):
        return list(range(_FEW_VALUES))
    return [f"item {n}" for n in range(_FEW_VALUES)]


def _column(values: Sequence[Any], kind: str) -> pa.Array:
    """Return values as a column of a type, with null for values of other types."""
    arrow = _arrow(kind)
    if arrow is None:
        return pa.nulls(len(values))
    return pa.array([_cell(value, arrow) for value in values], arrow)


def _arrow(kind: str) -> pa.DataType | None:
    """Return the Arrow type of a column; None if no release supports it."""
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _ARROW.get(kind)


def _cell(value: Any, arrow: pa.DataType) -> Any:
    """Return a value as an Arrow scalar of a type; None if the type lacks it."""
    try:
        if pa.types.is_string(arrow):
            return str(value)
        if pa.types.is_timestamp(arrow):
            if not isinstance(value, datetime):
                value = datetime.fromisoformat(str(value))
            return value if arrow.tz else value.replace(tzinfo=None)
        if pa.types.is_date(arrow):
            value = value.date() if isinstance(value, datetime) else value
            return value if isinstance(value, date) else date.fromisoformat(str(value))
        if pa.types.is_decimal(arrow):
            return pa.scalar(Decimal(str(value))).cast(arrow).as_py()
        if pa.types.is_boolean(arrow):
            return value in (True, "true", 1)
        return pa.scalar(int(value) if pa.types.is_integer(arrow) else float(value), arrow).as_py()
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
        return None
