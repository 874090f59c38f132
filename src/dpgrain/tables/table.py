"""Tables of users with many records each, opened by ``dg.read``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, cast, overload

from dpgrain import _validate
from dpgrain._progress import Progress
from dpgrain.errors import ParameterError
from dpgrain.inputs.calls import silent
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
    per_user_source,
    whole_user_source,
)
from dpgrain.tables.engines.protocol import Engine
from dpgrain.tables.engines.registry import default_engine, open_source, resolve_engine
from dpgrain.tables.rows import TableRows
from dpgrain.tables.shared_table import SharedTable, drop_unreadable_owners
from dpgrain.tables.sources.read_arguments import resolve_address, source_provenance
from dpgrain.tables.sources.typed_columns import with_types

# Mark before the names of users that are no text.
_MARK = "\x1f"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


@dataclass(frozen=True, repr=False)
class UserTable(TableRows):
    """A table of records, each of one user; made by :func:`read`.

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
        """Make the engine of one release or fit, to be entered by ``with``; no other code makes it."""
        return resolve_engine(self.engine)(self)

    @property
    def distributed(self) -> bool:
        """True where rows lie on a cluster, whose engine keeps them and adds them up there."""
        return bool(getattr(resolve_engine(self.engine), "distributed", False))

    def require_records(self) -> None:
        """Raise unless rows are single records: a region cannot be cut out of what is made of them.

        One record may move a person's row from a region to another, and would be billed for one alone.

        Raises:
            ParameterError: if rows were made by :meth:`per_user` or :meth:`join`.
        """
        if whole_user_source(self) is not None:
            raise ParameterError(
                "where must be called before per_user and join: it selects the records from "
                "which a person's rows are derived."
            )

    def per_user(
        self,
        *,
        by: str | Sequence[str] | None = None,
        **numbers: str | tuple[str, str],
    ) -> UserTable:
        """Return a table with one row of each user: numbers of all rows of that user.

        Args:
            by: columns to keep, such as a country: a user then has a row for each combination of
                their values among its rows. Rows without a value are left out.
            **numbers: the name of each number, or other feature, and the expression that it is:
                ``visits="count()"``, ``er="any(kind = 'er')"``, ``spent="total(paid, year(at) =
                2025)"``, ``home="most(zip)"``, ``each="spent / visits"``. Functions of a user's rows
                are ``count``, ``any``, ``all``, ``total``, ``mean``, ``min``, ``max``, ``median``,
                ``distinct``, ``most``, ``first`` and ``last``, each with a condition if there is one
                (:mod:`dpgrain.tables.engines.features`); those of one row are :meth:`derive`'s. Or as
                in pandas' named aggregation: ``"count"``, or ``spent=("paid", "sum")``, with ``"size"``
                (rows), ``"count"`` (rows with a value that is finite), ``"sum"``, ``"mean"``,
                ``"min"``, ``"max"`` and ``"nunique"``.

        Returns:
            A table, which nothing is read for yet; only whole users can be protected in it. With
            ``n_users`` stated, users without rows count 0 in statistics over all of a number that is
            0 for them (all but means, least and largest ones); elsewhere, and without ``n_users``, a
            statistic is over users who have a row with the number.

        Raises:
            ParameterError: if the table has no users, or a name or a function is wrong.
            SchemaError: if a column is missing, or its type does not suit the function.

        Formal guarantee: a user's row is a function of this user's rows alone, bit for bit, so that
        neighbours in one user are neighbours in one row of it, and a release of whole users keeps its
        promise for the users of this table. Sums of numbers with a fraction are exact: digits below
        2^-62 are cut off and a number beyond ±2^62 counts as that. Source: docs/theory, "One row of
        each user".

        >>> import pyarrow as pa
        >>> rows = pa.table({"who": [1, 1, 2], "paid": [3.0, 4.5, 1.0], "shop": ["a", "b", "a"]})
        >>> people = read(rows, user="who").per_user(
        ...     visits="count()", spent="total(paid)", at_a="any(shop = 'a')", each="spent / visits")
        >>> list(people.schema)
        ['who', 'visits', 'spent', 'at_a', 'each']
        """
        made = PerUser.of(self, by, numbers)
        parts: dict[str, Any] = {"cells": {}, "days": {}, "derived": {}, "filters": ()}
        return self.replaced(source=made, schema=made.columns(), labels=made.labels, **parts)

    def join_public(self, public: Any, /, on: str | tuple[str, str]) -> UserTable:
        """Return the same table with the columns of a public table, each row's found by a key.

        Args:
            public: the public table: whatever :func:`read` takes, or a table that it opened without
                ``user=``, with ``types=`` for columns of text. It is read at once and held in memory.
            on: the column of keys, in both tables; or a pair, of this table (or an expression) and of
                the public one.

        Raises:
            ParameterError: if a key stands twice in the public table, which would make several rows of
                one, or the table has people.
            SchemaError: if a column is missing, stands in both tables, or keys have types that cannot
                match.

        All of it must be public. A row whose key is not there has no value in the new columns. A column
        with few values has these as its domain, where none is stated, and can be a partition.

        Formal guarantee: each row is a public function of one row, so that what is private of the new
        table, for records, elements or users, is private of the old one. Source: docs/theory, "Rows
        beside others".

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
        source, made = join_public(rows, opened, own, key)
        schema, derived = {**rows.schema, **source.kinds}, {**rows.derived, **made}
        return rows._over(source, schema=schema, derived=derived)

    def join(
        self, others: UserTable, /, *, columns: Sequence[str] | None = None, pairs: int = 1
    ) -> UserTable:
        """Return the rows, each beside rows of the same person in another table.

        Args:
            others: the other table, with people of its own: what a person holds in it is joined with
                that person's rows here, and with nobody else's.
            columns: the columns of the other table to take; by default all.
            pairs: the largest number of a person's rows there that each row here is paired with: the
                first ones in the order of a hash of the columns taken. By default 1, for a table of one
                row a person: join the table of many rows with that of few, since of several rows there
                all but one are left out.

        Returns:
            A table, which nothing is read for yet; only whole users can be protected in it, or in what
            :meth:`per_user` makes of it. A row of a person who has none there is kept, with no value
            in the new columns.

        Raises:
            ParameterError: if a table has no people, a column stands in both, or ``pairs`` is below 1.
            SchemaError: if a column is missing, or people have names of types that cannot match.

        Formal guarantee: a person's rows are a function of this person's rows in both tables alone, so
        that a release of whole users keeps its promise for all that a user holds in both. Its region
        is that of both tables, if it is the same, and else everything. Source: docs/theory, "Rows
        beside others".

        >>> import pyarrow as pa
        >>> visits = read(pa.table({"who": [1, 2, 2], "cost": [8.0, 3.0, 5.0]}), user="who")
        >>> people = read(pa.table({"id": [2, 1], "born": [1950, 1980]}), user="id")
        >>> visits.join(people).schema
        {'who': 'BIGINT', 'cost': 'DOUBLE', 'born': 'BIGINT'}
        """
        made = UserJoin.of(self, others, columns, pairs)
        if self.distributed != others.distributed:
            raise ParameterError(
                "join requires both tables in the same engine; read both with Spark, or both "
                "without it.",
                name="others",
            )
        taken = {name: one for name, one in others.derived.items() if name in made.taken}
        cells = {name: self.schema[name] for name in self.cells}
        parts: dict[str, Any] = {
            "schema": {**made.columns(), **cells},
            "days": {},
            "derived": {**self.derived, **taken},
            "filters": (),
            "labels": self.labels | made.labels,
        }
        joined = self.replaced(source=made, **parts)
        return replace(joined, provenance=combine(joined.provenance, others.provenance))

    def _derived(self, name: str, made: CompiledExpression) -> UserTable:
        """Return the rows with one column more; a person's row is made with it at once."""
        people = per_user_source(self)
        if people is None:
            return super()._derived(name, made)
        source = replace(people, derived=(*people.derived, (name, made)))
        schema, derived = {**self.schema, name: made.kind}, {**self.derived, name: made}
        return self.replaced(source=source, schema=schema, derived=derived)

    def _filtered(self, made: CompiledExpression) -> UserTable:
        """Return the rows for which a condition is true; other people's have none."""
        people = per_user_source(self)
        if people is None:
            return super()._filtered(made)
        source = replace(people, filters=(*people.filters, made))
        return self.replaced(source=source, filters=(*self.filters, made.text))

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
        """Report bad values in rows to the curator: **not private, not to be published**.

        Args:
            item: the column, or columns, to count or group by.
            weight: a column of weights, which count 0 below 0.
            value: a column of numbers, or several. Here they may be text without a stated type, as
                the counts help to find the type that suits them.
            bounds: (low, high); numbers beyond them are counted.
            domain: the public items, as tuples if there are several columns; others are counted.
            zero: a column of numbers, or several, whose other cells count 0, as features of a fit do.

        Returns:
            A text with exact counts: rows, users and the largest user; rows without user or item, or
            with a user such as ``NULL``; rows that repeat another, items outside the domain; cells
            that are not of their stated type, that look like days in another order or numbers with a
            decimal comma, that are beyond the bounds; of CSV the lines that are left out or cut, and
            why. A release never fails on any of these: it follows fixed rules
            (docs/pitfalls.md), and says nothing of them.

        Raises:
            SchemaError: if a column is missing, or cannot hold what it is named for.

        >>> import pyarrow as pa
        >>> rows = pa.table({"who": [1, 2, 3], "paid": ["1.5", "2,5", "none"]})
        >>> print(read(rows, user="who").check(value="paid"))  # doctest: +ELLIPSIS
        For internal use only: these exact counts are NOT private and must not be published.
        ...
                       2  non-numeric cells of 'paid' (dropped)
                       1  of these look like numbers with a decimal comma: pass decimal=','
        ...
        """
        asked: dict[str, Any] = {"value": value, "bounds": bounds, "domain": domain, "zero": zero}
        return format_counts(self.check_counts(item, weight, **asked))

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
        """Count bad values in rows for the curator: **not private, not to be published**.

        Args:
            item: as for :meth:`check`.
            weight: as for :meth:`check`.
            value: as for :meth:`check`.
            bounds: as for :meth:`check`.
            domain: as for :meth:`check`.
            zero: as for :meth:`check`.

        Returns:
            What is counted, in words → how often it is there, exactly.

        Raises:
            SchemaError: if a column is missing, or cannot hold what it is named for.

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
        with Progress(1) as shown:
            shown.stage("Counting for internal use")
            return check(rows, items, weight, values, bounds, known, zeros)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {kind}" for name, kind in self.schema.items())
        users = "not given" if self.n_users is None else f"{self.n_users:,}"
        scope = "" if self.scope.everything else f", where: {self.scope}"
        made = "".join(f"; {fact}" for fact in derivation_facts(self))
        return f"UserTable(user={self.user!r}, n_users={users}, columns: {columns}{scope}{made})"


def _columns(**parameter: Any) -> tuple[str, ...]:
    """Return the columns that a parameter names: one, or a list of them."""
    ((name, value),) = parameter.items()
    listed = [value] if isinstance(value, str) else _validate.sequence(**parameter)
    texts = tuple(column for column in listed if isinstance(column, str))
    if len(texts) < len(listed):
        said = _validate.describe(value)
        raise ParameterError(
            f"{name} must be a column or a list of columns, not {said}.", name=name
        )
    return texts


def _ends(bounds: Any) -> tuple[float, float]:
    """Return the two ends of bounds."""
    ends = _validate.sequence(bounds=bounds)
    if len(ends) != 2 or not all(isinstance(end, Real) for end in ends):
        # What is wrong is not quoted by itself, as it may be a column of rows.
        said = _validate.describe(bounds)
        raise ParameterError(f"bounds must be two numbers (low, high), not {said}.", name="bounds")
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
    decimal: str = ".",
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
    decimal: str = ".",
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
    decimal: str = ".",
    dates: str = "2025-12-31",
    memory: str | int = "1GB",
    threads: int | None = None,
    engine: Any = None,
    rows: Literal["as given"] | None = None,
) -> UserTable | SharedTable:
    """Open a table of users with many records each; nothing is loaded yet.

    Args:
        source: a path, folder or glob (or several) of Parquet or CSV files (UTF-8), whose folders
            ``month=2025-01`` are a column ``month`` of text; an Arrow table, a pandas or Polars data
            frame, a table of DuckDB by its name (``con.table("visits")``), ``"s3://bucket/folder"`` of
            Parquet, a pyarrow dataset, or what hands out its rows by Arrow's protocol, such as a
            cursor of ADBC: a stream is read once, by the first release, which puts its rows aside. Any
            other relation of DuckDB, a lazy frame of Polars and a frame of Spark are queries, which
            need ``rows=``. ``"postgresql://host/database"`` is a database, with ``table=`` or
            ``query=``.
        source_env: the variable of the environment that holds the address in place of ``source``, so
            that no file, log or history of a shell has a secret.
        table: the table of a database, such as ``"public.visits"``.
        query: a query of a database, which needs ``rows=``.
        user: the column that names the user of a record; without one only ``Record`` is offered. A list
            of two columns, ``["sender", "receiver"]``, names all owners of a record: see
            :class:`~dpgrain.tables.shared_table.SharedTable`.
        n_users: the public number of enrolled users, with or without records. It is never counted
            from the table, since that number is private; used for the δ warning and in the guarantee.
        types: column → SQL type, for columns of text; a value that does not fit is a null. All columns
            of CSV are text otherwise, never guessed from rows, and text is refused where numbers are
            asked.
        delimiter: the character between values of CSV.
        decimal: the mark before decimals in text whose stated type is a number: ``"."`` or ``","``.
        dates: how days are written in text whose stated type is a date or a time, by an example:
            ``"2025-12-31"``, ``"31.12.2025"``, ``"31/12/2025"``, ``"31-12-2025"``, ``"12/31/2025"`` or
            ``"20251231"``. What is written in another way is no day.
        memory: working memory of a release beside the process as it is, such as ``"1GB"`` or a number
            of bytes (at least 256 MB); more is taken only for what grows with the number of items.
        threads: threads of a release; by default one per core.
        engine: the reader of rows: ``"duckdb"``, which streams them; ``"in_memory"``, which keeps the
            columns that it needs, for small tables; ``"spark"``, a session of Spark or the address of
            a cluster, such as ``"spark://host:7077"``, for tables beyond one machine; or a class of
            another package that keeps to :class:`~dpgrain.tables.engines.protocol.Engine`. By
            default, Spark reads its own frames, and DuckDB all else. Releases are the same through
            all of them.
        rows: ``"as given"`` where rows are as a query made them. The guarantee then says that nobody's
            rows are assumed to decide over those of others, as they do after ``LIMIT``, or over whether
            the query runs to its end; of frames and Arrow tables in memory it says so by itself.

    Raises:
        DataError: if a file is missing or not readable.
        SchemaError: if the user column is missing or cannot name users.
        ParameterError: if the source is a query and ``rows`` does not say so, or another argument is
            out of range.

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
    given = source
    for name in [user] if isinstance(user, str) else owners or []:
        source = _distinguish_users(source, name)
    size, workers = _bytes(memory), threads or os.cpu_count() or 1
    result = open_source(engine, source, delimiter=delimiter, memory=size, threads=workers)
    if owners is not None:
        result = drop_unreadable_owners(result, given, owners)
    if getattr(result, "may_end", False):
        provenance = "as given"
    stated = with_types(result, types, decimal, dates)
    made = UserTable(
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
        return SharedTable.of(made, owners, n_users, types)
    if made.user is not None:
        made.require_key(made.user, "user")
    return made


def _key_pair(on: Any) -> tuple[str, str]:
    """Return the columns of keys of rows and of a public table."""
    pair = tuple(on) if isinstance(on, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(name, str) for name in pair):
        raise ParameterError(
            f"on must be a column of both tables, or a pair such as ('zip', 'plz'), "
            f"not {_validate.describe(on)}.",
            name="on",
        )
    return pair[0], pair[1]


def _distinguish_users(source: Any, user: str) -> Any:
    """Return a data frame whose users, if they are objects, are texts that differ as the users do.

    Columns of objects are read as text, where a number is the text that it is written as; that would
    make one person of user 1 and user "1".
    """
    if type(source).__module__.partition(".")[0] != "pandas" or not hasattr(source, "columns"):
        return source
    names = list(map(str, source.columns))
    if names.count(user) != 1:
        return source
    place = names.index(user)
    labels = source.iloc[:, place]
    # A warning of the caller's object as it is read would say something about one row.
    with silent():
        if hasattr(labels, "cat"):
            # The type of categories depends on which users are there, so users are distinguished
            # always.
            names_of = [_user_text(key(label)) for label in labels.cat.categories]
            told = [names_of[code] if code >= 0 else None for code in labels.cat.codes]
        elif labels.dtype == "object":
            told = [_user_text(key(label)) for label in labels.to_numpy(dtype=object)]
        else:
            return source
    source = source.copy(deep=False)
    source.isetitem(place, type(labels)(told, index=labels.index, dtype=object))
    return source


def _user_text(user: Key | None) -> str | None:
    """Return a text that no other user has: text as it is, anything else behind a mark."""
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
