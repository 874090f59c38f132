"""Tables of users with many records each, from ``dg.read``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any, Literal, cast, overload

from dpgrain import _validate
from dpgrain._progress import Progress
from dpgrain.errors import ParameterError
from dpgrain.inputs.callbacks import silent
from dpgrain.inputs.labels import Key, key
from dpgrain.scope.provenance import after_derivation, combine
from dpgrain.tables.domain import listed_values
from dpgrain.tables.engines.check import check, format_counts
from dpgrain.tables.engines.derived_columns import CompiledExpression
from dpgrain.tables.engines.joins import UserJoin, join_public
from dpgrain.tables.engines.memory import MIN_BYTES
from dpgrain.tables.engines.per_user import (
    PerUser,
    derivation_facts,
    first_rows_source,
    per_user_source,
    whole_user_source,
)
from dpgrain.tables.engines.protocol import Engine
from dpgrain.tables.engines.registry import default_engine, open_source, resolve_engine
from dpgrain.tables.engines.sql import TextFormat
from dpgrain.tables.rows import TableRows
from dpgrain.tables.shared_table import SharedTable, drop_unreadable_owners
from dpgrain.tables.sources.csv_files import CsvFiles
from dpgrain.tables.sources.csv_rows import UTF8
from dpgrain.tables.sources.read_arguments import resolve_address, source_provenance
from dpgrain.tables.sources.source import nested_sources
from dpgrain.tables.sources.typed_columns import TypedSource, with_types

# Prefix of the ids of users that are not text.
_MARK = "\x1f"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


@dataclass(frozen=True, repr=False)
class UserTable(TableRows):
    """A table of records with one user each, from :func:`read`.

    Args:
        engine: the class that reads the rows; the other fields are those of
            :class:`~dpgrain.tables.rows.TableRows`.

    >>> import pyarrow as pa
    >>> rows = pa.table({"who": [1, 2, 2], "page": ["/jobs/it", "/news/1", "/jobs/hr"]})
    >>> visits = read(rows, user="who", n_users=2)
    >>> visits.with_cells("section", of="page", by=lambda page: page.split("/")[1])
    UserTable(user='who', n_users=2, columns: who: BIGINT, page: VARCHAR, section: VARCHAR)
    >>> visits
    UserTable(user='who', n_users=2, columns: who: BIGINT, page: VARCHAR)
    """

    engine: Any = "duckdb"

    def open_engine(self) -> Engine:
        """Return the engine of one release or fit, a context manager; only this creates engines."""
        return resolve_engine(self.engine)(self)

    @property
    def distributed(self) -> bool:
        """True if the rows are on a cluster, whose engine aggregates them there."""
        return bool(getattr(resolve_engine(self.engine), "distributed", False))

    def require_records(self, columns: Iterable[str]) -> None:
        """Raise unless a region of these columns contains a row or not by this row only.

        Otherwise one record may move a person's row to another region, but would be charged for
        only one of them.

        Raises:
            ParameterError: if rows come from :meth:`per_user` or :meth:`join`, or from
                :meth:`distinct` by other columns.
        """
        if whole_user_source(self) is not None:
            raise ParameterError(
                "where must be called before per_user and join: it selects the records from "
                "which a person's rows are derived."
            )
        first = first_rows_source(self)
        others = [] if first is None else [name for name in columns if name not in first.keys]
        if first is not None and others:
            column, stated = others[0], list(first.stated)
            region = f"{column}=…" if column.isidentifier() else f"{{{column!r}: …}}"
            distinct = f"distinct({stated if len(stated) > 1 else stated[0]!r})"
            raise ParameterError(
                f"where must be called before distinct, or use its columns, not {column!r}, because "
                f"the first row of a person may be outside the region; call where({region}).{distinct} "
                f"or set where in [table], for the first rows in the region, or call "
                f"{distinct}.filter(…), for a condition on the first rows."
            )

    def require_distinct(self) -> None:
        """Raise unless repeated rows can be dropped.

        Raises:
            ParameterError: if rows come from :meth:`per_user` or :meth:`distinct`.
        """
        if isinstance(whole_user_source(self), PerUser) or first_rows_source(self) is not None:
            raise ParameterError("distinct must be called once, and before per_user.")

    def per_user(
        self, *, by: str | Sequence[str] | None = None, **numbers: str | tuple[str, str]
    ) -> UserTable:
        """Return a table with one row per user, computed from all rows of that user.

        Args:
            by: columns to keep, such as a country: a user then has one row for each combination of
                values. Rows without a value are dropped.
            **numbers: the name and the expression of each feature:
                ``visits="count()"``, ``er="any(kind = 'er')"``, ``spent="total(paid, year(at) =
                2025)"``, ``home="most(zip)"``, ``each="spent / visits"``. Functions of a user's rows
                are ``count``, ``any``, ``all``, ``total``, ``mean``, ``min``, ``max``, ``median``,
                ``distinct``, ``most``, ``first`` and ``last``, each with an optional condition
                (:mod:`dpgrain.tables.engines.features`), in addition to the functions of
                :meth:`derive`. Or as in pandas' named aggregation: ``"count"``, or ``spent=("paid",
                "sum")``, with ``"size"`` (rows), ``"count"`` (rows with a finite value), ``"sum"``,
                ``"mean"``, ``"min"``, ``"max"`` and ``"nunique"``.

        Returns:
            A table, without reading rows yet, in which only whole users can be protected. With
            ``n_users``, users without rows have the value 0 for features that are 0 without rows
            (all except means, minima and maxima); otherwise, a statistic is over users with a row.

        Raises:
            ParameterError: if the table has no users, or a name or a function is invalid.
            SchemaError: if a column is missing, or has an unsuitable type.

        Formal guarantee: a user's row is a function only of this user's rows, bit for bit.
        Neighbours that differ in one user therefore differ in one user's rows of the new table, and
        a user-level guarantee for the new table holds for this table. Sums of fractional numbers
        are exact: numbers are truncated to multiples of 2^-62 and clamped to ±2^62. Source:
        docs/theory, "One row of each user".

        >>> import pyarrow as pa
        >>> rows = pa.table({"who": [1, 1, 2], "paid": [3.0, 4.5, 1.0], "shop": ["a", "b", "a"]})
        >>> people = read(rows, user="who").per_user(
        ...     visits="count()", spent="total(paid)", at_a="any(shop = 'a')", each="spent / visits")
        >>> list(people.schema)
        ['who', 'visits', 'spent', 'at_a', 'each']
        """
        source = PerUser.create(self, by, numbers)
        parts: dict[str, Any] = {"cells": {}, "days": {}, "derived": {}, "filters": ()}
        return self.replaced(source=source, schema=source.columns(), labels=source.labels, **parts)

    def join_public(self, public: Any, /, on: str | tuple[str, str]) -> UserTable:
        """Return the table with the columns of a public table, joined by a key.

        Args:
            public: the public table: any source of :func:`read`, or a table from it without
                ``user=``, with ``types=`` for text columns. It is read immediately and kept in
                memory.
            on: the key column in both tables; or a pair of the column (or an expression) of this
                table and the column of the public one.

        Raises:
            ParameterError: if a key occurs twice in the public table, or that table has users.
            SchemaError: if a column is missing or in both tables, or the key types cannot match.

        The whole table must be public. Rows with an unknown key have missing values in the new
        columns. A column with few values has them as its default domain, and can be a partition.

        Formal guarantee: each row is a public function of one row, so a guarantee for records,
        elements or users of the new table also holds for the original table. Source: docs/theory,
        "Rows beside others".

        >>> import pyarrow as pa
        >>> visits = read(pa.table({"who": [1, 2], "zip": ["8001", "1200"]}), user="who")
        >>> areas = pa.table({"zip": ["8001", "8400", "1200"], "canton": ["ZH", "ZH", "GE"]})
        >>> visits.join_public(areas, on="zip").schema["canton"]
        'VARCHAR'
        """
        own, key = (on, on) if isinstance(on, str) else _key_pair(on)
        opened = public if isinstance(public, UserTable) else read(public)
        if opened.user is not None:
            raise ParameterError(
                "join_public requires a fully public table, not a table of people; omit user= "
                "in dg.read, or join rows of the same people with join.",
                name="public",
            )
        rows = self.with_expressions(own)
        source, joined = join_public(rows, opened, own, key)
        schema, derived = {**rows.schema, **source.kinds}, {**rows.derived, **joined}
        return rows._over(source, schema=schema, derived=derived)

    def join(
        self, others: UserTable, /, *, columns: Sequence[str] | None = None, pairs: int = 1
    ) -> UserTable:
        """Return the rows joined with rows of the same person in another table.

        Args:
            others: the other table, with a user column: rows are joined only with rows of the same
                person.
            columns: the columns of the other table to add; by default all.
            pairs: the maximum number of a person's rows in the other table per row here: the first
                ones by a hash of the added columns. The default of 1 suits another table with one
                row per person; further rows are dropped, so join the table of many rows with the
                one of few.

        Returns:
            A table, without reading rows yet, in which only whole users can be protected, as after
            :meth:`per_user`. Rows of persons without rows in the other table have missing values in
            the new columns.

        Raises:
            ParameterError: if a table has no users, a column is in both, or ``pairs`` is below 1.
            SchemaError: if a column is missing, or the types of user ids cannot match.

        Formal guarantee: a person's rows are a function only of this person's rows in both tables,
        so a user-level guarantee covers all rows of a user in both. The region is that of both
        tables if they are equal, and everything otherwise. Source: docs/theory, "Rows beside
        others".

        >>> import pyarrow as pa
        >>> visits = read(pa.table({"who": [1, 2, 2], "cost": [8.0, 3.0, 5.0]}), user="who")
        >>> people = read(pa.table({"id": [2, 1], "born": [1950, 1980]}), user="id")
        >>> visits.join(people).schema
        {'who': 'BIGINT', 'cost': 'DOUBLE', 'born': 'BIGINT'}
        """
        pairing = UserJoin.create(self, others, columns, pairs)
        if self.distributed != others.distributed:
            raise ParameterError(
                "join requires both tables in the same engine; read both with Spark, or both "
                "without it.",
                name="others",
            )
        taken = {name: one for name, one in others.derived.items() if name in pairing.taken}
        cells = {name: self.schema[name] for name in self.cells}
        parts: dict[str, Any] = {
            "schema": {**pairing.columns(), **cells},
            "days": {},
            "derived": {**self.derived, **taken},
            "filters": (),
            "labels": self.labels | pairing.labels,
        }
        joined = self.replaced(source=pairing, **parts)
        return replace(joined, provenance=combine(joined.provenance, others.provenance))

    def _derived(self, name: str, expression: CompiledExpression) -> UserTable:
        """Return the rows with one more column, which per-user rows compute directly."""
        people = per_user_source(self)
        if people is None:
            return super()._derived(name, expression)
        source = replace(people, derived=(*people.derived, (name, expression)))
        schema, derived = {**self.schema, name: expression.kind}, {**self.derived, name: expression}
        return self.replaced(source=source, schema=schema, derived=derived)

    def _filtered(self, expression: CompiledExpression) -> UserTable:
        """Return the rows that satisfy a condition."""
        people = per_user_source(self)
        if people is None:
            return super()._filtered(expression)
        source = replace(people, filters=(*people.filters, expression))
        return self.replaced(source=source, filters=(*self.filters, expression.text))

    def check(
        self,
        item: str | Sequence[str] | None = None,
        weight: str | None = None,
        *,
        value: str | Sequence[str] = (),
        bounds: tuple[float, float] | None = None,
        domain: Sequence[Any] | None = None,
        zero: str | Sequence[str] = (),
    ) -> str:
        """Report invalid values in rows to the curator: **not private, not to be published**.

        Args:
            item: the column, or columns, to count or group by.
            weight: a column of weights; negative ones are treated as 0.
            value: a column of numbers, or several. Text without a declared type is allowed, because
                the counts help to find the right type.
            bounds: (low, high); numbers outside are counted.
            domain: the public items, as tuples if there are several columns; others are counted.
            zero: a column of numbers, or several, with invalid cells imputed as 0, like features of
                a fit.

        Returns:
            A text with exact counts: rows, users and the largest user; rows without user or item,
            or with a user such as ``NULL``; duplicate rows, items outside the domain; cells of
            another type than declared, readable in another format, or outside the bounds; dropped
            or truncated CSV lines, with reasons. A release never fails on any of these: it follows
            fixed rules (docs/reading.md) and does not report them.

        Raises:
            SchemaError: if a column is missing or has an unsuitable type.

        >>> import pyarrow as pa
        >>> rows = pa.table({"who": [1, 2, 3], "paid": ["1,5", "2,5", "none"]})
        >>> print(read(rows, user="who", types={"paid": "DOUBLE"}).check())  # doctest: +ELLIPSIS
        For internal use only: these exact counts are NOT private and must not be published.
                       3  non-empty cells of 'paid', none of which can be read as DOUBLE
                       2  cells of 'paid' that would be readable with decimal=','
        ...
        """
        options: dict[str, Any] = {"value": value, "bounds": bounds, "domain": domain, "zero": zero}
        return format_counts(self.check_counts(item, weight, **options))

    def check_counts(
        self,
        item: str | Sequence[str] | None = None,
        weight: str | None = None,
        *,
        value: str | Sequence[str] = (),
        bounds: tuple[float, float] | None = None,
        domain: Sequence[Any] | None = None,
        zero: str | Sequence[str] = (),
    ) -> dict[str, int]:
        """Count invalid values in rows for the curator: **not private, not to be published**.

        Args:
            item: as for :meth:`check`.
            weight: as for :meth:`check`.
            value: as for :meth:`check`.
            bounds: as for :meth:`check`.
            domain: as for :meth:`check`.
            zero: as for :meth:`check`.

        Returns:
            Description → exact count.

        Raises:
            SchemaError: if a column is missing or has an unsuitable type.

        >>> import pyarrow as pa
        >>> rows = pa.table({"who": [1, 2, 2], "paid": [1.5, 2.5, None]})
        >>> read(rows, user="who").check_counts()["most records of one user"]
        2
        """
        items = () if item is None else _columns(item=item)
        values, zeros = _columns(value=value), _columns(zero=zero)
        if weight is not None:
            (weight,) = _columns(weight=[weight])
        if bounds is not None:
            bounds = _ends(bounds)
        rows = self.with_expressions(items, weight, values, zeros)
        for column in items:
            rows.require_key(column, "item")
        known = {} if domain is None or not items else listed_values(domain, rows, items)
        with Progress(1) as progress:
            progress.stage("Counting for internal use")
            return check(rows, items, weight, values, bounds, known, zeros)

    def input_schema(self) -> dict[str, Any]:
        """Return the public schema of the table as plain values, for stored queries."""
        cells = {
            # The name of a mapping has its fingerprint, because other cells are other units.
            name: {"of": column.of, "by": column.elements.name, "missing": column.elements.missing}
            for name, column in self.cells.items()
        }
        days = {name: asdict(column) for name, column in self.days.items()}
        where = {} if self.scope.everything else self.scope.to_dict()
        facts = [fact.to_dict() for fact in derivation_facts(self)]
        parts: dict[str, Any] = {"where": where, "cells": cells, "days": days, "derivation": facts}
        for each in nested_sources(self.source):
            if isinstance(each, TypedSource) and each.written != TextFormat():
                parts.setdefault("text", []).append(
                    {k: v for k, v in asdict(each.written).items() if v}
                )
            if isinstance(each, CsvFiles) and each.encoding != UTF8:
                parts.setdefault("encoding", []).append(each.encoding)
        known = {"user": self.user, "n_users": self.n_users, "columns": dict(self.schema)}
        return {**known, **{name: part for name, part in parts.items() if part}}

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {kind}" for name, kind in self.schema.items())
        users = "not given" if self.n_users is None else f"{self.n_users:,}"
        scope = "" if self.scope.everything else f", where: {self.scope}"
        derivation = "".join(f"; {fact}" for fact in derivation_facts(self))
        return (
            f"UserTable(user={self.user!r}, n_users={users}, columns: {columns}{scope}{derivation})"
        )


def _columns(**parameter: Any) -> tuple[str, ...]:
    """Return the columns of a parameter: one, or a list of them."""
    ((name, value),) = parameter.items()
    listed = [value] if isinstance(value, str) else _validate.sequence(**parameter)
    texts = tuple(column for column in listed if isinstance(column, str))
    if len(texts) < len(listed):
        description = _validate.describe(value)
        raise ParameterError(
            f"{name} must be a column or a list of columns, not {description}.", name=name
        )
    return texts


def _ends(bounds: Any) -> tuple[float, float]:
    """Return the two ends of bounds."""
    ends = _validate.sequence(bounds=bounds)
    if len(ends) != 2 or not all(isinstance(end, Real) for end in ends):
        # The message does not quote an invalid end, because it may be a column of rows.
        description = _validate.describe(bounds)
        raise ParameterError(
            f"bounds must be two numbers (low, high), not {description}.", name="bounds"
        )
    low, high = (_validate.real(bounds=end) for end in ends)
    return low, high


@overload
def read(
    source: Any = None,
    *,
    source_env: str | None = None,
    table: str | None = None,
    query: str | None = None,
    user: str | None = None,
    n_users: int | None = None,
    types: Mapping[str, str] | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8",
    decimal: str = ".",
    thousands: str = "",
    dates: str = "2025-12-31",
    memory: str | int = "1GB",
    threads: int | None = None,
    engine: Any = None,
    rows: Literal["as given"] | None = None,
) -> UserTable: ...


@overload
def read(
    source: Any = None,
    *,
    source_env: str | None = None,
    table: str | None = None,
    query: str | None = None,
    user: list[str] | tuple[str, ...],
    n_users: int | None = None,
    types: Mapping[str, str] | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8",
    decimal: str = ".",
    thousands: str = "",
    dates: str = "2025-12-31",
    memory: str | int = "1GB",
    threads: int | None = None,
    engine: Any = None,
    rows: Literal["as given"] | None = None,
) -> SharedTable: ...


def read(
    source: Any = None,
    *,
    source_env: str | None = None,
    table: str | None = None,
    query: str | None = None,
    user: str | list[str] | tuple[str, ...] | None = None,
    n_users: int | None = None,
    types: Mapping[str, str] | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8",
    decimal: str = ".",
    thousands: str = "",
    dates: str = "2025-12-31",
    memory: str | int = "1GB",
    threads: int | None = None,
    engine: Any = None,
    rows: Literal["as given"] | None = None,
) -> UserTable | SharedTable:
    """Open a table of users with many records each, without loading rows yet.

    Args:
        source: a path, folder or glob (or several) of Parquet or CSV files (UTF-8), where folders
            such as ``month=2025-01`` form a text column ``month``; an Arrow table, a pandas or
            Polars data frame, a DuckDB table by name (``con.table("visits")``),
            ``"s3://bucket/folder"`` of Parquet, a pyarrow dataset, or an object with Arrow's stream
            protocol, such as an ADBC cursor: the first release reads a stream and stores its rows
            temporarily. Other DuckDB relations, Polars lazy frames and Spark frames are queries,
            which require ``rows=``. ``"postgresql://host/database"`` is a database, with ``table=``
            or ``query=``.
        source_env: the environment variable with the address, instead of ``source``, which keeps
            secrets out of files, logs and shell histories.
        table: the table of a database, such as ``"public.visits"``.
        query: a query of a database, which requires ``rows=``.
        user: the column of user ids; without one, only the unit ``Record`` is available. A list of
            two columns, ``["sender", "receiver"]``, contains all owners of a record: see
            :class:`~dpgrain.tables.shared_table.SharedTable`.
        n_users: the public number of enrolled users, with or without records. It is never counted
            from the table, because that number is private; used for the δ warning and in the
            guarantee.
        types: column → SQL type, for text columns; a value of another type is a null. Otherwise CSV
            columns are all text, because guessing types from rows could reveal a row, and text is
            rejected for numeric parameters.
        delimiter: the delimiter of CSV files.
        encoding: the encoding of CSV files: ``"utf-8"``, ``"latin-1"`` or ``"windows-1252"``. It is
            never guessed. A release drops a row if a value that it reads is invalid in it.
        decimal: the decimal mark of text with a declared numeric type: ``"."`` or ``","``. With a
            comma, points may group digits in threes: ``1.234,56``.
        thousands: the mark between groups of three digits in such text, ``","``, ``"."``, ``" "`` or
            ``"'"``, as in ``1,234.56``; by default none, or ``"."`` with a decimal comma. In other
            positions it makes the text a null.
        dates: the format of text with a declared date or timestamp type, by an example:
            ``"2025-12-31"``, ``"31.12.2025"``, ``"31/12/2025"``, ``"31-12-2025"``, ``"12/31/2025"`` or
            ``"20251231"``. Text in another format is a null.
        memory: working memory of a release in addition to the current process, such as ``"1GB"`` or
            a number of bytes (at least 256 MB); only data that grow with the number of items take
            more.
        threads: the number of threads of a release; by default one per core.
        engine: the engine that reads rows: ``"duckdb"``, which streams them; ``"spark"``, a Spark
            session or the address of a cluster, such as ``"spark://host:7077"``, for tables beyond
            one machine; or
            a class of another package that implements
            :class:`~dpgrain.tables.engines.protocol.Engine`. By default, Spark reads Spark frames,
            and DuckDB everything else. All engines give the same releases.
        rows: ``"as given"`` if rows come from a query. The guarantee then assumes that no user's
            data determine the rows of other users, as they do after ``LIMIT``, or whether the query
            ends without an error. For frames and Arrow tables in memory, this is the default.

    Raises:
        DataError: if a file is missing or unreadable.
        SchemaError: if the user column is missing or has no key type.
        ParameterError: if the source is a query without ``rows``, or another argument is out of
            range.

    >>> import pyarrow as pa
    >>> read(pa.table({"who": ["ann", "bob"], "word": ["yo", "bro"]}), user="who")
    UserTable(user='who', n_users=not given, columns: who: VARCHAR, word: VARCHAR)
    """
    if n_users is not None:
        n_users = _validate.integer(minimum=1, n_users=n_users)
    if threads is not None:
        threads = _validate.integer(minimum=1, threads=threads)
    source = resolve_address(source, source_env, table, query)
    provenance = source_provenance(source, rows)
    engine = default_engine(engine, source)
    owners = list(user) if isinstance(user, list | tuple) else None
    original = source
    for name in [user] if isinstance(user, str) else owners or []:
        source = _distinguish_users(source, name)
    size, workers = _bytes(memory), threads or os.cpu_count() or 1
    result = open_source(
        engine, source, delimiter=delimiter, encoding=encoding, memory=size, threads=workers
    )
    if isinstance(result, CsvFiles):
        result.advise()
    if owners is not None:
        result = drop_unreadable_owners(result, original, owners)
    if getattr(result, "may_end", False):
        provenance = "as given"
    stated = with_types(result, types, TextFormat(decimal, dates, thousands))
    loaded = UserTable(
        stated,
        None if owners is not None else cast("str | None", user),
        n_users if owners is None else None,
        stated.columns(),
        size,
        workers,
        provenance=provenance if stated is result else after_derivation(provenance),
        engine=engine,
    )
    if owners is not None:
        return SharedTable.create(loaded, owners, n_users, types)
    if loaded.user is not None:
        loaded.require_key(loaded.user, "user")
    return loaded


def _key_pair(on: Any) -> tuple[str, str]:
    """Return the key columns of rows and of a public table."""
    pair = tuple(on) if isinstance(on, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(name, str) for name in pair):
        raise ParameterError(
            f"on must be a column of both tables, or a pair such as ('zip', 'plz'), "
            f"not {_validate.describe(on)}.",
            name="on",
        )
    return pair[0], pair[1]


def _distinguish_users(source: Any, user: str) -> Any:
    """Return a data frame with distinct texts for distinct user objects.

    Columns of objects are read as text, which would merge user 1 and user "1".
    """
    if type(source).__module__.partition(".")[0] != "pandas" or not hasattr(source, "columns"):
        return source
    names = list(map(str, source.columns))
    if names.count(user) != 1:
        return source
    place = names.index(user)
    labels = source.iloc[:, place]
    # A warning from an object of the caller would reveal something about one row.
    with silent():
        if hasattr(labels, "cat"):
            # The type of categories depends on the users, so users are always converted.
            names_of = [_user_text(key(label)) for label in labels.cat.categories]
            texts = [names_of[code] if code >= 0 else None for code in labels.cat.codes]
        elif labels.dtype == "object":
            texts = [_user_text(key(label)) for label in labels.to_numpy(dtype=object)]
        else:
            return source
    source = source.copy(deep=False)
    source.isetitem(place, type(labels)(texts, index=labels.index, dtype=object))
    return source


def _user_text(user: Key | None) -> str | None:
    """Return a unique text of a user: text unchanged, anything else with a prefix."""
    if user is None:
        return None
    kind, name = user
    return name if kind == "text" and not name.startswith(_MARK) else f"{_MARK}{kind} {name}"


def _bytes(memory: str | int) -> int:
    if isinstance(memory, int) and not isinstance(memory, bool):
        size = memory
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?)B?\s*", str(memory).upper())
        if match is None:
            raise ParameterError(
                f"memory must be a size such as '1GB' or '512MB', not {_validate.describe(memory)}.",
                name="memory",
            )
        size = int(float(match[1]) * _UNITS.get(match[2], 1))
    if size < MIN_BYTES:
        raise ParameterError(
            f"memory must be at least {MIN_BYTES // 10**6}MB, not {_validate.describe(memory)}.",
            name="memory",
        )
    return size
