"""Rows and their public schema: columns, types, derived columns, filters and regions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from shlex import quote
from typing import Any, Self

import pyarrow as pa

from dpgrain import _validate
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.inputs.labels import as_fraction, as_integer, canonical_text
from dpgrain.inputs.long_labels import any_long, stated_label
from dpgrain.scope.provenance import Provenance, after_derivation
from dpgrain.scope.regions import EVERYTHING, Region
from dpgrain.scope.zones import check_zone
from dpgrain.tables.elements import ITEM_MESSAGE, Elements, as_elements, cell_labels
from dpgrain.tables.engines.derived_columns import (
    CompiledExpression,
    DerivedSource,
    FilteredSource,
    base_source,
    calendar_period,
    compile_condition,
)
from dpgrain.tables.expression import backquoted_hint, is_expression
from dpgrain.tables.region_conditions import intersect, parse_region
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
    conversion,
    decimal_places,
    declaration,
    is_key,
    is_number,
    is_readable,
)
from dpgrain.tables.sources.day_columns import DayColumnSource
from dpgrain.tables.sources.distinct_rows import DistinctRows
from dpgrain.tables.sources.source import RegionSource, RowSource, all_rows, wrapped_sources
from dpgrain.tables.sources.typed_columns import TypedSource


@dataclass(frozen=True)
class CellColumn:
    """A column of the cells of another column's values."""

    of: str
    # The public partition of the column's values.
    elements: Elements
    # The columns ``value`` and ``label`` of all values in the rows of users, if already known.
    lookup: pa.Table | None = None


@dataclass(frozen=True)
class DayColumn:
    """A column of the dates of another column's timestamps."""

    of: str
    # The zone of the dates; empty for timestamps without a zone.
    zone: str = ""


@dataclass(frozen=True, repr=False)
class TableRows:
    """A source of rows and its public schema: the input of an engine.

    Args:
        source: where the rows come from.
        user: the column of user ids; None without one, which allows only the privacy unit
            ``Record``.
        n_users: the public number of enrolled users, if known; never counted from the table.
        schema: column name → DuckDB type.
        memory: the working memory of a release in bytes, in addition to the interpreter's.
        threads: the number of threads of a release.
        cells: the columns from :meth:`with_cells`.
        days: the columns from :meth:`with_days`.
        derived: the columns from :meth:`derive`.
        filters: the conditions of :meth:`filter`.
        provenance: the origin of the rows, which every guarantee states.
        labels: the columns with texts that are labels already: in rows derived from several rows,
            or joined, long texts have been replaced.
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
        """Return the table with a column of cells: a public function of another column.

        Args:
            name: the name of the new column, for ``by=`` and ``Element(name)``.
            of: the argument of the function.
            by: a mapping (a dict, a two-column table, a :class:`pathlib.Path` of one), a function, or
                an :class:`~dpgrain.Elements`. It must be public. A value without a cell is its own
                cell (``"own: value"``), unless ``missing="drop"`` drops it. A function receives
                integers or text (a date as ``"2024-05-01"``). If it fails on a value, the value has
                no cell, without a message: test the function on public values first.

        Raises:
            ParameterError: if the name is taken, or the partition has ``missing="error"``.
            SchemaError: if the column is missing, or is not a column of dates for periods.

        >>> import pyarrow as pa
        >>> from dpgrain import read
        >>> table = read(pa.table({"who": [1], "page": ["/jobs/it"]}), user="who")
        >>> table.with_cells("topic", of="page", by=lambda page: page.split("/")[1]).schema["topic"]
        'VARCHAR'
        """
        self.require_new(name)
        self.require_key(of, "of")
        elements = self.resolve_partition(of, by)
        if elements.missing == "error":
            raise ParameterError(
                "missing='error' requires a public domain, which a column does not have; use "
                "missing='own' or 'drop'."
            )
        cells = {**self.cells, name: CellColumn(of, elements)}
        return self.replaced(schema={**self.schema, name: TEXT}, cells=cells)

    def replaced(self, **parts: Any) -> Self:
        """Return the rows with other fields, each derived from one row or one person's rows."""
        return replace(self, **parts, provenance=after_derivation(self.provenance))

    def resolve_partition(self, of: str, by: Any) -> Elements:
        """Return the partition of a column's values, for any argument of ``with_cells``."""
        elements, kind = as_elements(by), self.schema[of]
        if elements.period is not None and kind != DAY:
            text = kind == TEXT
            remedy = f"pass {declaration(of, 'DATE')}" if text else conversion(kind, "DATE")
            raise SchemaError(
                f"of {of!r} must contain dates for a {elements.period}, not have type "
                f"{kind}; {remedy}, or add a column of dates first.",
                name="of",
            )
        return elements.of_keys(lambda items: self.keys_of(items, of, ITEM_MESSAGE))

    def with_days(self, name: str, of: str, zone: str | None = None) -> Self:
        """Return the table with a column of dates: the local dates of timestamps.

        Args:
            name: the name of the new column, for ``Element(name)``, ``by=``, ``where`` and
                :meth:`with_cells`, which derives weeks or months (``Elements.from_period``).
            of: the column of timestamps. Those with a zone have the date of ``zone``; those without
                one are local times and keep their date.
            zone: the zone of dates, such as ``"Europe/Paris"``; by default ``"UTC"``. A day has 23
                or 25 hours when clocks are put forward or back.

        Raises:
            ParameterError: if the name is taken, or the zone is unknown.
            SchemaError: if the column is missing or has no timestamps.

        In ``where``, a day lasts from its first midnight to the first midnight of the next day. A
        promise of a ledger names the column of timestamps: ``Element(Partition((Rule("at", "day",
        "Europe/Paris"),)))``
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
            # A promise names timestamps of the data, and another table may derive others under this
            # name.
            raise SchemaError(
                f"of {of!r} must be a column of the data, not {self.derived[of].text}; use "
                f"day({of}) in derive, or add the dates to the public table.",
                name="of",
            )
        if kind not in TIMES:
            raise SchemaError(
                f"of {of!r} must contain timestamps, not have type {kind}: use a TIMESTAMP "
                f"column, or text such as 2024-05-01 12:00 with "
                f"{declaration(of, 'TIMESTAMP')}; a column of dates needs no conversion.",
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
        """Return the table with columns derived from others, row by row.

        Args:
            columns: the name of each new column and its expression, for names that are not Python
                identifiers.
            more: the same by keywords, such as ``month="month(at)"``, ``left="price * 0.8"`` or
                ``band="bins(amount, 0, 10, 100)"``: a small closed language of columns, constants, ``+
                - * /``, comparisons, ``and``, ``or``, ``not``, ``in`` and the functions of
                :mod:`dpgrain.tables.engines.functions`. An expression can use earlier new columns.

        Raises:
            ParameterError: if a name is taken, or an expression is invalid.
            SchemaError: if an expression uses a missing column, or one of an unsuitable type.

        If an expression has no value (for an invalid date, a division by 0, a number beyond 64
        bits), the value is missing, without an error. A column with few possible values (hours,
        weekdays, bins, months of a region of dates) has all of them as its default domain.

        Formal guarantee: each row is a public function of one row, so a guarantee for records,
        elements or users of the new table also holds for the original table. Source: docs/theory,
        "Where rows come from".

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
            expression = CompiledExpression.parse(text, rows.base_columns)
            rows = rows._derived(name, expression)
        return rows

    def filter(self, condition: str, /) -> Self:
        """Return the rows that satisfy a condition.

        Args:
            condition: an expression as for :meth:`derive`, such as ``"amount > 0 and kind = 'er'"``.

        Raises:
            ParameterError: if it is invalid.
            SchemaError: if it uses a missing column, or is not boolean.

        The condition is public and depends on one row only. Budgets and ledgers know the region of
        :meth:`where`, so that releases of disjoint regions cost nothing extra. They do not know
        filters.

        >>> import pyarrow as pa
        >>> from dpgrain import read
        >>> rows = read(pa.table({"who": [1, 2], "paid": [8.0, 30.0]}), user="who")
        >>> rows.filter("paid > 10").filters
        ('paid > 10',)
        """
        return self._filtered(compile_condition(condition, self.base_columns))

    def distinct(self, columns: str | Sequence[str] = "*") -> Self:
        """Return the table without repeated rows.

        Args:
            columns: ``"*"``, the default, uses one of the rows that are equal in all columns. A
                column such as a case id, an expression, or a list of them uses the first of a
                user's rows with the same values, in the order of a hash of all its values. Rows
                without one of these values are all used.

        Raises:
            ParameterError: if columns are stated for a table without ``user=``, or the rows are
                per-user rows or distinct already.
            SchemaError: if a column is missing, or is a column of cells.

        With stated columns, only users are protected, and elements by one of these columns: a row
        with another case may be the first in place of a removed one. Columns with an unsupported
        type are dropped.

        Formal guarantee: rows equal in all columns belong to one record, element and user, so a
        guarantee for any of these units also holds for the original table. The first rows of a
        user, or of an element, depend on this user's or element's rows only. Source: docs/theory,
        "Repeated rows".

        >>> import pyarrow as pa
        >>> from dpgrain import read
        >>> rows = read(pa.table({"who": [1, 1, 2], "case": ["a", "a", "b"]}), user="who")
        >>> rows.distinct("case").per_user(cases="count()").schema
        {'who': 'BIGINT', 'cases': 'BIGINT'}
        """
        self.require_distinct()
        stated: list[Any] = (
            [columns] if isinstance(columns, str) else _validate.sequence(columns=columns)
        )
        if not stated:
            raise ParameterError(
                "columns must be '*', a column or a list of columns, not empty.", name="columns"
            )
        stated = [] if stated == ["*"] else stated
        if stated and self.user is None:
            raise ParameterError(
                f"distinct({stated[0]!r}) requires user ids; pass user= to dg.read, or omit the "
                "columns: rows equal in all columns are then used once.",
                name="columns",
            )
        rows = self.with_expressions(stated)
        for name in stated:
            rows.require_readable(name, "columns")
            if name in rows.cells:
                raise SchemaError(
                    f"columns must not contain the column of cells {name!r}; use "
                    f"{rows.cells[name].of!r}, or create the column with derive.",
                    name="columns",
                )
        kinds = {name: kind for name, kind in rows.base_columns.items() if is_readable(kind)}
        keys = tuple(dict.fromkeys([self.user, *stated])) if stated else ()
        source = DistinctRows(rows.source, kinds, tuple(key for key in keys if key is not None))
        return rows.replaced(source=source, schema={**kinds, **dict.fromkeys(rows.cells, TEXT)})

    def require_distinct(self) -> None:
        """Raise unless repeated rows can be dropped."""

    def with_expressions(self, *names: Any) -> Self:
        """Return the table with a column for each expression, named by its text.

        Args:
            names: names of columns, expressions, or lists of both; anything else is ignored.

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

    def _derived(self, name: str, expression: CompiledExpression) -> Self:
        """Return the rows with one more column."""
        source = DerivedSource(all_rows(self.source), name, expression)
        schema, derived = {**self.schema, name: expression.kind}, {**self.derived, name: expression}
        return self._over(source, schema=schema, derived=derived)

    def _filtered(self, expression: CompiledExpression) -> Self:
        """Return the rows that satisfy a condition."""
        source = FilteredSource(all_rows(self.source), expression)
        return self._over(source, filters=(*self.filters, expression.text))

    def _over(self, source: RowSource, **parts: Any) -> Self:
        """Return the rows of the same region from another source of all rows."""
        if isinstance(self.source, RegionSource):
            schema = parts.get("schema", self.schema)
            source = RegionSource(source, self.scope, schema, {})
        return self.replaced(source=source, **parts)

    def require_new(self, name: Any) -> None:
        """Raise ParameterError unless a text is a new column name."""
        if not isinstance(name, str) or not name or self.has(name):
            text = name.casefold() if isinstance(name, str) else None
            same = [one for one in self.schema if one.casefold() == text and one != name]
            why = f" (column names ignore case: the table has {same[0]!r})" if same else ""
            free = text and not self.has(f"{name}_2")
            other = f", such as {_validate.describe(f'{name}_2')}" if free else ""
            raise ParameterError(
                f"name must be a new column name, not {_validate.describe(name)}{why}; choose "
                f"another{other}."
            )

    @property
    def base_columns(self) -> dict[str, str]:
        """Types of the columns that expressions can use: all except columns of cells."""
        return {name: kind for name, kind in self.schema.items() if name not in self.cells}

    @property
    def scope(self) -> Region:
        """Public region of the rows, which every guarantee states."""
        wrapped: list[Any] = wrapped_sources(self.source)
        return next((each.region for each in wrapped if hasattr(each, "region")), EVERYTHING)

    def require_records(self, columns: Iterable[str]) -> None:
        """Raise unless a region of these columns contains a row or not by this row only."""

    def where(self, columns: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """Return the rows of a public region; nothing is read yet.

        Rows outside the region are dropped before any other step, such as the choice of bounds, so
        they have no influence on the release. The region must be public: fixed without looking at
        the rows, or derived from earlier releases.

        Args:
            columns: column → allowed values, for column names that are not Python identifiers.
            more: the same by keywords. A column of dates, timestamps or integers takes an interval
                ``(first, last)``, which includes both ends, one of them None if unbounded; dates
                and timestamps are texts such as ``"2026-01-31"``, ``"2026-01"`` (the whole month)
                or ``"2026-01-31T12"`` (the whole hour), or objects of ``datetime``, in UTC by
                default if the column has a zone. The text ``"2026-01-01..2026-01-31"`` is also such
                an interval. Any key column takes a value or a list of values: text, integers,
                booleans. None, as the value or in a list, stands for missing and unreadable values,
                which are outside otherwise.

        Returns:
            The table; a second region is intersected with the first.

        Raises:
            ParameterError: if a value does not fit its column, the region is empty, the table has
                per-user rows, or the column is not one of :meth:`distinct`.
            SchemaError: if a column is missing, or its type does not support regions.

        >>> import pyarrow as pa
        >>> from dpgrain import read
        >>> rows = pa.table({"who": [1, 2], "year": [2024, 2025], "country": ["FR", "DE"]})
        >>> print(read(rows, user="who").where(year=(2020, 2024), country=["FR", None]).scope)
        country FR or missing, year from 2020 to 2024
        """
        stated = {**_validate.mapping(columns=columns), **more}
        self.require_records(stated)
        region = parse_region(self, stated)
        region = intersect(self.scope, region)
        return self.replaced(source=RegionSource(all_rows(self.source), region, self.schema, {}))

    def has(self, name: str) -> bool:
        """Return True if a column has the name, ignoring case as queries do."""
        return name.casefold() in map(str.casefold, self.schema)

    def require(self, column: str, role: str) -> None:
        """Raise SchemaError unless the table has the column for the ``role``."""
        if not isinstance(column, str):
            raise ParameterError(
                f"{role} must be a column name, not {_validate.describe_item(column)}.", name=role
            )
        if column not in self.schema:
            raise SchemaError(
                f"{role} {_validate.describe(column)} is not a column of the table; "
                f"{self.suggest(column)}.",
                name=role,
            )

    def suggest(self, column: str) -> str:
        """Return a suggestion for a missing column."""
        names = list(self.schema)
        if hint := backquoted_hint(column, names):
            return hint
        parts = [part.strip() for part in column.split(",")]
        if len(parts) > 1 and all(part in names for part in parts):
            return f"{', '.join(parts)} are columns: list each separately"
        return column_hint(column, names)

    def read_as(self, column: str) -> str:
        """Return the type that a column is read as, and an unusual format."""
        source = base_source(self.source)
        if not isinstance(source, TypedSource) or column not in source.types:
            return self.schema[column]
        # The declared type, not the converted one: a UUID becomes text, but may differ from the
        # text in the file.
        return source.types[column] + source.written.describe(source.types[column])

    def date_format(self, column: str) -> str:
        """Return the declared type and format of a column of dates; empty for the default.

        Reading 01/02/2025 as a day in January or as one in February gives two different partitions.
        """
        read = self.read_as(column)
        return read if read != self.schema[column] else ""

    def key_type(self, column: str) -> str:
        """Return the type of a key column, for the SQL of keys."""
        return LABEL if column in self.labels else self.schema[column]

    def is_integer(self, column: str) -> bool:
        """Return True if keys of this column are integers; otherwise they are text."""
        return self.schema[column] in INTEGERS

    def is_whole(self, column: str) -> bool:
        """Return True if a column has an integer type."""
        return isinstance(column, str) and self.schema.get(column) in ALL_INTEGERS

    def drops(self, column: str) -> bool:
        """Return True if records without a cell in this column of cells are dropped."""
        return column in self.cells and self.cells[column].elements.missing == "drop"

    def data_column(self, column: str) -> str:
        """Return the column of the data behind a column of cells; any other column itself."""
        while column in self.cells:
            column = self.cells[column].of
        return column

    def is_month(self, column: str) -> bool:
        """Return True if the values of a column are first days of months."""
        if column in self.cells:
            return self.cells[column].elements.period == "month"
        period = calendar_period(self.derived[column].node) if column in self.derived else None
        return period is not None and period[0] == "month"

    def label_value(self, label: Any, column: str, role: str) -> int | str:
        """Return the value of a column for a public label, by :mod:`dpgrain.inputs.labels`."""
        result: int | str | None
        form = _key_form(self.schema[column])
        if self.is_integer(column):
            result = as_integer(label)
        elif column in self.cells and not isinstance(label, str):
            # A column of cells has another text for a number.
            result = None
        else:
            result = _text_key(label, self.schema[column])
            if result is not None and form is not None and not form.pattern.fullmatch(result):
                result = None
        if result is None:
            said = str(form or _TEXT)
            if self.is_month(column) and _PERIOD.fullmatch(str(label)):
                first = f"{label}-01" if "-" in str(label) else f"{label}-01-01"
                said = f"{_DAYS.holds}; write {first}, the first day"
            raise ParameterError(
                f"{role} {_validate.describe(label)}, but the item column {column!r} contains {said}."
            )
        return result

    def are_keys(self, labels: Sequence[Any], column: str) -> bool:
        """Return True if all public labels are surely keys of the column, unconverted."""
        kinds = set(map(type, labels))
        if self.is_integer(column):
            # All numbers must be 64-bit integers.
            return kinds == {int} and min(labels) >= -(2**63) and max(labels) < 2**63
        if kinds != {str} or _key_form(self.schema[column]) is not None:
            return False
        return column in self.cells or not any_long(labels)

    def keys_of(self, labels: list[Any], column: str, role: str) -> list[Any]:
        """Return a column's keys for public labels; the same list if all are keys already."""
        if self.are_keys(labels, column):
            return labels
        return [self.label_key(label, column, role) for label in labels]

    def label_key(self, label: Any, column: str, role: str) -> int | str:
        """Return a column's key for a public label; a long text's is its shortened label."""
        result = self.label_value(label, column, role)
        if isinstance(result, int) or column in self.cells:
            return result
        return stated_label(result)

    def require_key(self, column: str, role: str) -> None:
        """Raise SchemaError unless the column has a key type: one text or integer per value."""
        self.require(column, role)
        kind = self.schema[column]
        if is_key(kind):
            return
        remedy = conversion(kind, "integers or text")
        if kind in TIMES:
            remedy = (
                f"use its dates: table.with_days('day', of={column!r}), --days "
                f"day={column}, or [table.days.day] in a release file"
            )
        raise SchemaError(
            f"{role} {column!r} has type {kind}, which cannot be used as a key; {remedy}.",
            name=role,
        )

    def require_readable(self, column: str, role: str) -> None:
        """Raise SchemaError unless the type of the column is supported."""
        self.require(column, role)
        kind = self.schema[column]
        if not is_readable(kind):
            remedy = conversion(kind, "numbers, dates or text")
            raise SchemaError(
                f"{role} {column!r} has type {kind}, which is not supported; {remedy}.", name=role
            )

    def needed(self, used: Iterable[str]) -> set[str]:
        """Return columns, the sources of columns of cells among them, and the user column."""
        result = {*used, *([] if self.user is None else [self.user])}
        for name in reversed(list(self.cells)):
            # A column of cells may derive from an earlier one.
            if name in result:
                result.add(self.cells[name].of)
        return result

    def require_numbers(
        self, columns: Sequence[str], role: str, *, also: Sequence[str] = (), instead: str = ""
    ) -> None:
        """Raise SchemaError unless all columns have numeric types; no row is read."""
        texts = []
        for column in columns:
            self.require(column, role)
            kind = self.schema[column]
            if kind == TEXT and column not in self.cells:
                texts.append(column)
            elif not is_number(kind) and kind not in also:
                remedy = "use another column" if is_readable(kind) else conversion(kind, "DOUBLE")
                if kind == BOOLEAN:
                    remedy = f"use the expression {f'if({column}, 1, 0)'!r}"
                raise SchemaError(
                    f"{role} {column!r} must be numeric, not of type {kind}; {remedy}.", name=role
                )
        if texts:
            # One message lists all columns, in case of twenty features.
            types = ", ".join(f"{column!r}: 'DOUBLE'" for column in texts)
            raise SchemaError(
                f"{role} {texts[0]!r} must be numeric, not text; declare its type, such as "
                f"types={{{types}}} in dg.read or --type "
                f"{quote(','.join(texts) + '=double')}{instead and f'; {instead}'}.",
                name=role,
            )


def column_values(table: TableRows, name: str, values: pa.Array) -> pa.Array:
    """Return the values of a column, which may be of cells, for values of its data column."""
    if name not in table.cells:
        return values
    cells = table.cells[name]
    below = column_values(table, cells.of, values)
    return pa.array(cell_labels(cells.elements, below.to_pylist()), pa.string())


@dataclass(frozen=True)
class _KeyForm:
    """The format of a column's keys; labels in other formats match none of them."""

    # Pattern of all keys.
    pattern: re.Pattern[str]
    # Description of the keys.
    holds: str
    # Remedy for a label that is not a key.
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
# A month or a year.
_PERIOD = re.compile("[0-9]{4}(-(0[1-9]|1[0-2]))?")
_TRUTHS = _KeyForm(re.compile("true|false"), "booleans", "write true and false")


def _key_form(kind: str) -> _KeyForm | None:
    """Return the format of keys of this type; None for any text."""
    if kind in ALL_INTEGERS:
        return _INTEGER
    if (places := decimal_places(kind)) is not None:
        zero = f"0.{'0' * places}" if places else "0"
        pattern = re.compile(rf"-?[0-9]+{rf'[.][0-9]{{{places}}}' if places else ''}")
        return _KeyForm(pattern, f"numbers with {places} decimals", f"write them such as {zero}")
    return {DAY: _DAYS, BOOLEAN: _TRUTHS}.get(kind)


def _text_key(label: Any, kind: str) -> str | None:
    """Return the text of a label in a non-integer column; None if there is none."""
    if isinstance(label, date) and not isinstance(label, datetime):
        return label.isoformat()
    number = None if isinstance(label, str | bytes) else as_fraction(label)
    if number is None:
        return canonical_text(label)
    if kind == BOOLEAN:
        return None if number not in (0, 1) else "true" if number else "false"
    places = decimal_places(kind)
    if places is None:
        return canonical_text(label)
    # SQL formats the number with the digits of its type.
    scaled = number * 10**places
    if scaled.denominator != 1 or abs(scaled) >= 10**38:
        return None
    digits = f"{abs(scaled.numerator):0{places + 1}d}"
    point = f".{digits[-places:]}" if places else ""
    return f"{'-' * (number < 0)}{digits[: len(digits) - places]}{point}"
