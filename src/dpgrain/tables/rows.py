"""The public part of people's rows: their columns and types, and how they may be read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Self

import pyarrow as pa

from dpgrain import _validate
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.inputs.labels import exact, whole, written
from dpgrain.inputs.long_labels import any_long, label_of_stated
from dpgrain.scope.provenance import Provenance, after_derivation
from dpgrain.scope.regions import EVERYTHING, Region
from dpgrain.scope.zones import check_zone
from dpgrain.tables.elements import ITEM_MESSAGE, Elements, as_elements
from dpgrain.tables.engines.derived_columns import (
    CompiledExpression,
    DerivedSource,
    FilteredSource,
    base_source,
    compile_condition,
)
from dpgrain.tables.expression import is_expression
from dpgrain.tables.sources.column_names import column_hint
from dpgrain.tables.sources.column_types import (
    ALL_INTEGERS,
    BOOLEAN,
    DAY,
    INTEGERS,
    LABEL,
    MOMENT,
    TEXT,
    TIMES,
    decimal_places,
    is_key,
    is_number,
    is_readable,
)
from dpgrain.tables.sources.day_columns import DayColumnSource
from dpgrain.tables.sources.region_source import RegionSource, all_rows
from dpgrain.tables.sources.source import RowSource, SourceWrapper
from dpgrain.tables.sources.typed_columns import TypedSource
from dpgrain.tables.where import intersect, parse_region


@dataclass(frozen=True)
class CellColumn:
    """A column of the cells of another column's values."""

    # The other column.
    of: str
    # The public partition of its values, as given.
    elements: Elements
    # The columns ``value`` and ``label`` of all values that rows of users have, where these were
    # found before; else None.
    lookup: pa.Table | None = None


@dataclass(frozen=True)
class DayColumn:
    """A column of the days of another column's times."""

    # The column of times.
    of: str
    # The zone whose clocks show the day; empty for times without a zone.
    zone: str = ""


@dataclass(frozen=True, repr=False)
class TableRows:
    """The source of rows and their public part: all that an engine is given.

    Args:
        source: where the rows come from.
        user: the column that names the user of a record; None if there is none, which leaves the
            privacy unit ``Record`` only.
        n_users: the public size of the roster, if known; never counted from the table.
        schema: column name → DuckDB type.
        memory: bytes of working memory that a release may use, besides the interpreter's own.
        threads: threads that a release may use.
        cells: the columns that were added by :meth:`with_cells`.
        days: the columns that were added by :meth:`with_days`.
        derived: the columns that were added by :meth:`derive`.
        filters: the conditions of :meth:`filter`.
        provenance: where the rows come from, which every guarantee says.
        labels: the columns whose texts were read as labels before: where a row is made of several
            rows, or was joined, long texts have been replaced.
    """

    source: RowSource
    user: str | None
    n_users: int | None
    schema: Mapping[str, str]
    memory: int
    threads: int
    cells: Mapping[str, CellColumn] = field(default_factory=dict)
    days: Mapping[str, DayColumn] = field(default_factory=dict)
    derived: Mapping[str, CompiledExpression] = field(default_factory=dict)
    filters: tuple[str, ...] = ()
    provenance: Provenance = "as given"
    labels: frozenset[str] = frozenset()

    def with_cells(self, name: str, of: str, by: Any) -> Self:
        """Return the same table with a column of cells: a public function of another column.

        Args:
            name: the name of the new column, for ``by=`` and ``Element(name)``.
            of: the column that the function is applied to.
            by: a mapping (a dict, a two-column table, a :class:`pathlib.Path` of one), a function, or
                an :class:`~dpgrain.Elements`. It must be public. A value without a cell is its own
                (``"own: value"``), unless ``missing="drop"`` leaves it out. A function gets whole
                numbers or text (a date as ``"2024-05-01"``); a value on which it fails has no cell,
                and no message says so: try the function on public values first.

        Raises:
            ParameterError: if the name is taken, or the partition refuses what it lacks.
            SchemaError: if there is no such column, or it holds no days and the cells are periods.

        >>> import pyarrow as pa
        >>> from dpgrain import read
        >>> table = read(pa.table({"who": [1], "page": ["/jobs/it"]}), user="who")
        >>> table.with_cells("topic", of="page", by=lambda page: page.split("/")[1]).schema["topic"]
        'VARCHAR'
        """
        self.require_new(name)
        self.require_key(of, "of")
        elements = self.partition_of(of, by)
        if elements.missing == "error":
            raise ParameterError(
                "missing='error' requires a public domain, which a column does not have; use "
                "missing='own' or 'drop'."
            )
        cells = {**self.cells, name: CellColumn(of, elements)}
        return self.replaced(schema={**self.schema, name: TEXT}, cells=cells)

    def replaced(self, **parts: Any) -> Self:
        """Return rows that are made of these, each of one row or of one person's rows alone."""
        return replace(self, **parts, provenance=after_derivation(self.provenance))

    def partition_of(self, of: str, by: Any) -> Elements:
        """Return a partition of the values of a column, as :meth:`with_cells` takes it."""
        elements, kind = as_elements(by), self.schema[of]
        if elements.period is not None and kind != DAY:
            raise SchemaError(
                f"of {of!r} must contain dates for a {elements.period}, not have type "
                f"{kind}; pass types={{{of!r}: 'DATE'}} in dg.read (--type {of}=date) if all "
                "dates are written like 2024-05-01, or add a column of dates first.",
                name="of",
            )
        return elements.of_keys(lambda items: self.keys_of(items, of, ITEM_MESSAGE))

    def with_days(self, name: str, of: str, zone: str | None = None) -> Self:
        """Return the same table with a column of dates: the day of a time, as clocks of a zone show it.

        Args:
            name: the name of the new column, for ``Element(name)``, ``by=``, ``where`` and
                :meth:`with_cells`, which makes weeks or months of it (``Elements.from_period``).
            of: the column of times. Days of moments (times with a zone) begin in the zone that is
                stated. Times without a zone are what the clock of the record showed, and have its day.
            zone: the zone of days of moments, such as ``"Europe/Paris"``; by default ``"UTC"``. A day
                there has 23 or 25 hours where clocks are put forward or back.

        Raises:
            ParameterError: if the name is taken, or there is no such zone.
            SchemaError: if there is no such column, or it holds no times.

        In ``where`` a day lasts from its first midnight to the first of the next day. A promise of a
        ledger names the column of times: ``Element(Partition((Rule("at", "day", "Europe/Paris"),)))``
        (``--element at=day --zone Europe/Paris``), or ``AnyDays(30, "at", "Europe/Paris")``. Source:
        docs/theory, "Scopes".

        >>> import datetime as dt
        >>> import pyarrow as pa
        >>> from dpgrain import read
        >>> late = dt.datetime(2026, 3, 28, 23, 30, tzinfo=dt.UTC)
        >>> visits = read(pa.table({"who": [1], "at": [late]}), user="who")
        >>> paris = visits.with_days("day", of="at", zone="Europe/Paris")
        >>> print(paris.where(day="2026-03-29").scope)
        at from 2026-03-28 23:00:00 to 2026-03-29 21:59:59.999999 (UTC)
        """
        self.require_new(name)
        self.require(of, "of")
        kind = self.schema[of]
        if of in self.derived:
            # A promise names the times of the data, and another table may have others by this name.
            raise SchemaError(
                f"of {of!r} must be a column of the data, not {self.derived[of].text}; use "
                f"day({of}) in derive, or add the dates to the public table.",
                name="of",
            )
        if kind not in TIMES:
            raise SchemaError(
                f"of {of!r} must contain timestamps, not have type {kind}: use a TIMESTAMP "
                f"column, or text such as 2024-05-01 12:00 with types={{{of!r}: 'TIMESTAMP'}} in "
                f"dg.read or --type {of}=timestamp; a column of dates needs no conversion.",
                name="of",
            )
        if zone is not None and kind != MOMENT:
            raise ParameterError(
                f"zone must be omitted, because the timestamps of {of!r} have none: their "
                "dates are used unchanged.",
                name="zone",
            )
        clocks = check_zone("UTC" if zone is None else zone) if kind == MOMENT else ""
        days = {**self.days, name: DayColumn(of, clocks)}
        dated = DayColumnSource(all_rows(self.source), name, of, clocks)
        return self._over(dated, schema={**self.schema, name: DAY}, days=days)

    def derive(self, columns: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Return the same table with columns that are made of others, row by row.

        Args:
            columns: the name of each new column and the expression that makes it, for names that are no
                Python names.
            more: the same by keywords, such as ``month="month(at)"``, ``left="price * 0.8"`` or
                ``band="bins(amount, 0, 10, 100)"``: a small closed language of columns, constants, ``+
                - * /``, comparisons, ``and``, ``or``, ``not``, ``in`` and the functions of
                :mod:`dpgrain.tables.engines.functions`. Later ones may be made of earlier ones.

        Raises:
            ParameterError: if a name is taken, or an expression cannot be read.
            SchemaError: if it names no column of the data, or one of a type that does not suit.

        A value that an expression has not (a text that is no date, a division by 0, a number beyond 64
        bits) is missing, and ends nothing. A column with few possible values (hours, weekdays, bins,
        months of a region of days) has all of them as its domain, where none is stated.

        Formal guarantee: each row is a public function of one row, so that what is private of the new
        table, for records, elements or users, is private of the old one. Source: docs/theory, "Where
        rows come from".

        >>> import pyarrow as pa
        >>> from dpgrain import read
        >>> rows = read(pa.table({"who": [1, 2], "paid": [8.0, 30.0]}), user="who")
        >>> rows.derive(band="bins(paid, 10, 20)").schema["band"]
        'VARCHAR'
        """
        stated = {**_validate.mapping(columns=columns), **more}
        if not stated:
            raise ParameterError("derive requires a column, such as derive(month='month(at)').")
        rows = self
        for name, text in stated.items():
            rows.require_new(name)
            made = CompiledExpression.parse(text, rows.own_columns)
            rows = rows._derived(name, made)
        return rows

    def filter(self, condition: str, /) -> Self:
        """Return the rows for which a condition is true.

        Args:
            condition: an expression as of :meth:`derive`, such as ``"amount > 0 and kind = 'er'"``.

        Raises:
            ParameterError: if it cannot be read.
            SchemaError: if it names no column of the data, or is not true or false.

        The condition is public, and of one row alone. :meth:`where` states a region, which budgets and
        ledgers know: releases of other regions cost nothing more. A filter states none.

        >>> import pyarrow as pa
        >>> from dpgrain import read
        >>> rows = read(pa.table({"who": [1, 2], "paid": [8.0, 30.0]}), user="who")
        >>> rows.filter("paid > 10").filters
        ('paid > 10',)
        """
        return self._filtered(compile_condition(condition, self.own_columns))

    def with_expressions(self, *names: Any) -> Self:
        """Return the same table with a column for each text that is an expression, under its own name.

        Args:
            names: names of columns, expressions, or lists of both; anything else is passed over.

        Raises:
            ParameterError: as :meth:`derive`.
            SchemaError: as :meth:`derive`.

        >>> import pyarrow as pa
        >>> from dpgrain import read
        >>> rows = read(pa.table({"who": [1, 2], "paid": [8.0, 30.0]}), user="who")
        >>> list(rows.with_expressions("paid", "paid > 10").schema)
        ['who', 'paid', 'paid > 10']
        """
        rows = self
        for name in names:
            if isinstance(name, list | tuple):
                rows = rows.with_expressions(*(each for each in name if isinstance(each, str)))
            elif isinstance(name, str) and not rows.has(name) and is_expression(name):
                rows = rows.derive({name: name})
        return rows

    def _derived(self, name: str, made: CompiledExpression) -> Self:
        """Return the rows with one column more."""
        source = DerivedSource(all_rows(self.source), name, made)
        schema, derived = {**self.schema, name: made.kind}, {**self.derived, name: made}
        return self._over(source, schema=schema, derived=derived)

    def _filtered(self, made: CompiledExpression) -> Self:
        """Return the rows for which a condition is true."""
        source = FilteredSource(all_rows(self.source), made)
        return self._over(source, filters=(*self.filters, made.text))

    def _over(self, source: RowSource, **parts: Any) -> Self:
        """Return the rows of the same region of another source of all rows."""
        if isinstance(self.source, RegionSource):
            schema = parts.get("schema", self.schema)
            source = RegionSource(source, self.scope, schema, {})
        return self.replaced(source=source, **parts)

    def require_new(self, name: Any) -> None:
        """Raise unless a text is the name of no column yet."""
        if not isinstance(name, str) or not name or self.has(name):
            raise ParameterError(
                f"name must be a new column name, not {_validate.describe(name)}; choose another."
            )

    @property
    def own_columns(self) -> dict[str, str]:
        """The columns of which others are made, with their types: all but those of cells."""
        return {name: kind for name, kind in self.schema.items() if name not in self.cells}

    @property
    def scope(self) -> Region:
        """The public region of the rows that are read; every release says it in its guarantee."""
        source: Any = self.source
        while isinstance(source, SourceWrapper) and not isinstance(source, RegionSource):
            source = source.source
        region: Region = getattr(source, "region", EVERYTHING)
        return region

    def require_records(self) -> None:
        """Raise unless rows are single records: a region cannot be cut out of what is made of them."""

    def where(self, columns: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """Return the rows of a public region alone; nothing is read yet.

        The region is cut out of the source before bounds are chosen, users distinguished,
        duplicates added up or names selected: a row outside has no influence on anything. It must
        be public, which what was published before is: fixed without looking at the rows.

        Args:
            columns: column → what it may hold, for columns whose names are no Python names.
            more: the same by keywords. A column of dates, times or whole numbers takes an interval
                ``(first, last)``, which includes both ends, one of them None for no end; days and times
                are texts such as ``"2026-01-31"``, ``"2026-01"`` (the whole month) or
                ``"2026-01-31T12"`` (the whole hour), or dates of ``datetime``, and those of a column
                with a zone are read in UTC unless they state one. The text ``"2026-01-01..2026-01-31"``
                is such an interval as well. Any column that can name things takes
                a value, or a list of values: text, whole numbers, booleans. None, alone or in a list,
                is the cell of missing and unreadable values, which lie outside otherwise.

        Returns:
            The table; a region of a region is their intersection.

        Raises:
            ParameterError: if a value does not fit its column, no record can lie in the region, or
                rows are of whole people.
            SchemaError: if a column is missing, or its type has no region.

        >>> import pyarrow as pa
        >>> from dpgrain import read
        >>> rows = pa.table({"who": [1, 2], "year": [2024, 2025], "country": ["FR", "DE"]})
        >>> print(read(rows, user="who").where(year=(2020, 2024), country=["FR", None]).scope)
        country FR or missing, year from 2020 to 2024
        """
        self.require_records()
        region = parse_region(self, {**_validate.mapping(columns=columns), **more})
        region = intersect(self.scope, region)
        return self.replaced(source=RegionSource(all_rows(self.source), region, self.schema, {}))

    def has(self, name: str) -> bool:
        """Return whether a column has the name; queries take capital and small letters as equal."""
        return name.casefold() in map(str.casefold, self.schema)

    def require(self, column: str, role: str) -> None:
        """Raise unless the table has the column, which is for the ``role``."""
        if not isinstance(column, str):
            raise ParameterError(
                f"{role} must be a column name, not {_validate.describe(column)}.", name=role
            )
        if column not in self.schema:
            raise SchemaError(
                f"{role} {_validate.describe(column)} is not a column of the table; "
                f"{self.suggest(column)}.",
                name=role,
            )

    def suggest(self, column: str) -> str:
        """Say which columns the table has that are like one that it has not."""
        names = list(self.schema)
        parts = [part.strip() for part in column.split(",")]
        if len(parts) > 1 and all(part in names for part in parts):
            return f"{', '.join(parts)} are columns: list each separately"
        return column_hint(column, names)

    def read_as(self, column: str) -> str:
        """Return the type that a column is read as, and how it is written where that is unusual."""
        source = base_source(self.source)
        if not isinstance(source, TypedSource) or column not in source.types:
            return self.schema[column]
        # As stated, and not as what it becomes: a UUID is text, but not the text that stands there.
        return source.types[column] + source.written.describe(source.types[column])

    def date_format(self, column: str) -> str:
        """Return how days are written in a column of dates or times; nothing for the usual way.

        One who reads 01/02/2025 as a day in January, and one who reads it as a day in February, do not
        speak of one partition.
        """
        read = self.read_as(column)
        return read if read != self.schema[column] else ""

    def key_type(self, column: str) -> str:
        """Return the type that a column is read as where it names things, for the SQL of keys."""
        return LABEL if column in self.labels else self.schema[column]

    def is_integer(self, column: str) -> bool:
        """Return whether keys of this column are integers; otherwise they are text."""
        return self.schema[column] in INTEGERS

    def is_whole(self, column: str) -> bool:
        """Return whether a column holds whole numbers, by its type, which is public."""
        return isinstance(column, str) and self.schema.get(column) in ALL_INTEGERS

    def drops(self, column: str) -> bool:
        """Return whether records without a cell in this column of cells are left out."""
        return column in self.cells and self.cells[column].elements.missing == "drop"

    def value_of_label(self, label: Any, column: str, role: str) -> int | str:
        """Return the value of a column that a public label is (the rule: :mod:`dpgrain.inputs.labels`)."""
        result: int | str | None
        form = _form_of(self.schema[column])
        if self.is_integer(column):
            result = whole(label)
        elif column in self.cells and not isinstance(label, str):
            # A cell that is a number is written in another way there.
            result = None
        else:
            result = _text_key(label, self.schema[column])
            if result is not None and form is not None and not form.pattern.fullmatch(result):
                result = None
        if result is None:
            raise ParameterError(
                f"{role} {_validate.describe(label)}, but the item column {column!r} contains "
                f"{form or _TEXT}."
            )
        return result

    def are_keys(self, labels: Sequence[Any], column: str) -> bool:
        """Return whether all public labels are keys of the column as they stand, which is soon seen."""
        kinds = set(map(type, labels))
        if self.is_integer(column):
            return kinds == {int} and _fit_a_column(labels)
        if kinds != {str} or _form_of(self.schema[column]) is not None:
            return False
        return column in self.cells or not any_long(labels)

    def keys_of(self, labels: list[Any], column: str, role: str) -> list[Any]:
        """Return the keys of a column for public labels, the same list if all are keys already."""
        if self.are_keys(labels, column):
            return labels
        return [self.key_of(label, column, role) for label in labels]

    def key_of(self, label: Any, column: str, role: str) -> int | str:
        """Return the key of a column that a public label is: of a long text, the text's own label."""
        result = self.value_of_label(label, column, role)
        if isinstance(result, int) or column in self.cells:
            return result
        return label_of_stated(result)

    def require_key(self, column: str, role: str) -> None:
        """Raise unless the column can name things: integers and what has one text for each value do."""
        self.require(column, role)
        kind = self.schema[column]
        if is_key(kind):
            return
        remedy = "cast it to integer or text"
        if kind in TIMES:
            remedy = (
                f"use its dates: table.with_days('day', of={column!r}), --days "
                f"day={column}, or [table.days.day] in a release file"
            )
        elif kind.startswith("UNION of "):
            # Files that differ have a union of their types.
            remedy = "use one type in all files"
        raise SchemaError(
            f"{role} {column!r} has type {kind}, which cannot be used as a key; {remedy}.",
            name=role,
        )

    def require_readable(self, column: str, role: str) -> None:
        """Raise unless the column has a type that is read, by the table of types."""
        self.require(column, role)
        if not is_readable(self.schema[column]):
            raise SchemaError(
                f"{role} {column!r} has type {self.schema[column]}, which is not "
                "supported; cast it to a number, a date or text.",
                name=role,
            )

    def needed(self, used: Iterable[str]) -> set[str]:
        """Return columns, those that columns of cells among them are made of, and the user's."""
        result = {*used, *([] if self.user is None else [self.user])}
        for name in reversed(list(self.cells)):
            # A column of cells may be of another one, which was added before it.
            if name in result:
                result.add(self.cells[name].of)
        return result

    def require_numbers(
        self, columns: Sequence[str], role: str, *, also: Sequence[str] = (), instead: str = ""
    ) -> None:
        """Raise unless all columns hold numbers by their types, which are public; no row is looked at."""
        texts = []
        for column in columns:
            self.require(column, role)
            kind = self.schema[column]
            if kind == TEXT and column not in self.cells:
                texts.append(column)
            elif not is_number(kind) and kind not in also:
                remedy = "use another column" if is_readable(kind) else "cast it to DOUBLE"
                raise SchemaError(
                    f"{role} {column!r} must be numeric, not of type {kind}; {remedy}.", name=role
                )
        if texts:
            # All columns are named at once, so that a person with twenty features reads one
            # message.
            types = ", ".join(f"{column!r}: 'DOUBLE'" for column in texts)
            raise SchemaError(
                f"{role} {texts[0]!r} must be numeric, not text; declare its type, such as "
                f"types={{{types}}} in dg.read or --type "
                f"{','.join(texts)}=double{instead and f'; {instead}'}.",
                name=role,
            )


@dataclass(frozen=True)
class _KeyForm:
    """The form of the keys of a column, by its type; labels in other forms match none of them."""

    # The pattern of the texts of all keys.
    pattern: re.Pattern[str]
    # The words for what the column holds.
    holds: str
    # The words for what to do with a label that is no key.
    remedy: str = "cast one of them"

    def __str__(self) -> str:
        return f"{self.holds}; {self.remedy}"


_TEXT = _KeyForm(re.compile(".*", re.DOTALL), "text")
_INTEGER = _KeyForm(re.compile("0|-?[1-9][0-9]*"), "integers")
_DAYS = _KeyForm(
    re.compile(r"[0-9]{4,}-[0-9]{2}-[0-9]{2}( \(BC\))?|-?infinity"),
    "dates such as 2024-05-01",
    "list dates, or group by a column of months (with_cells, --cells)",
)
_TRUTHS = _KeyForm(re.compile("true|false"), "booleans", "write true and false")


def _form_of(kind: str) -> _KeyForm | None:
    """Return how the keys of a column of this type are written; None where they are any text."""
    if kind in ALL_INTEGERS:
        return _INTEGER
    if (places := decimal_places(kind)) is not None:
        zero = f"0.{'0' * places}" if places else "0"
        pattern = re.compile(rf"-?[0-9]+{rf'[.][0-9]{{{places}}}' if places else ''}")
        return _KeyForm(pattern, f"numbers with {places} decimals", f"write them such as {zero}")
    return {DAY: _DAYS, BOOLEAN: _TRUTHS}.get(kind)


def _fit_a_column(numbers: Sequence[int]) -> bool:
    """Return whether all numbers are 64-bit integers, as columns of integers hold them."""
    return min(numbers) >= -(2**63) and max(numbers) < 2**63


def _text_key(label: Any, kind: str) -> str | None:
    """Return the text that a column of another type than integers has for a label; None for none."""
    if isinstance(label, date) and not isinstance(label, datetime):
        return label.isoformat()
    number = None if isinstance(label, str | bytes) else exact(label)
    if number is None:
        return written(label)
    if kind == BOOLEAN:
        return None if number not in (0, 1) else "true" if number else "false"
    places = decimal_places(kind)
    if places is None:
        return written(label)
    # SQL writes the number with as many digits as the type says.
    scaled = number * 10**places
    if scaled.denominator != 1 or abs(scaled) >= 10**38:
        return None
    digits = f"{abs(scaled.numerator):0{places + 1}d}"
    point = f".{digits[-places:]}" if places else ""
    return f"{'-' * (number < 0)}{digits[: len(digits) - places]}{point}"
