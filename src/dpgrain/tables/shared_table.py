"""Tables of records with several owners: the sender and receiver of a message, two riders of a trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpgrain import _validate
from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.shared_records.owned_rows import OwnedRows
from dpgrain.tables.arrow_arrays import boolean_array, one_array
from dpgrain.tables.engines.check import check_owners, format_counts
from dpgrain.tables.engines.derived_columns import CompiledExpression, FilteredSource
from dpgrain.tables.engines.protocol import Engine
from dpgrain.tables.engines.sql import key_sql, quoted
from dpgrain.tables.expression import CallNode, ColumnNode
from dpgrain.tables.groups import Groups
from dpgrain.tables.rows import column_values
from dpgrain.tables.sources.column_types import BOOLEAN, INTEGERS
from dpgrain.tables.sources.frames import ArrowSource
from dpgrain.tables.sources.source import RowSource

if TYPE_CHECKING:
    from dpgrain.tables.table import UserTable

# Maximum owners of a record: sums over records of two owners are flows, which are fast.
_MOST_OWNERS = 2

#: Reasons why statistics do not support records with several owners.
_REASONS: Mapping[str, str] = {
    "top": "removing one person can change the number of users with an item by that whole number",
    "mean": "a mean divides by the number of records, and no theorem bounds both together",
    "variance": "moments have no common bound here",
    "std": "moments have no common bound here",
    "covariance": "moments have no common bound here",
    "correlation": "moments have no common bound here",
    "quantiles": "counts of a tree of ranges have no common bound here",
    "distribution": "counts of a tree of ranges have no common bound here",
    "elements_per_user": "removing one person can change the counts of users by all of their number",
}


@dataclass(frozen=True, repr=False)
class SharedTable:
    """A table of records with several owners, from :func:`dpgrain.read`.

    Args:
        rows: the records, without owners.
        owners: the columns of owners.
        n_users: the public number of enrolled users; None if unknown.

    ``dpgrain.count``, ``dpgrain.sum`` and ``dpgrain.histogram`` accept it, with the unit ``User()``
    or ``Element`` by a column; ``clip`` can be a mapping from each group to its bound. A guarantee
    covers the removal of all records of a person, also for the other owners. It does not cover the
    removal of a name from a remaining record.

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> mail = pa.table({"sender": ["ann", "bob", "ann"], "receiver": ["bob", "cy", None]})
    >>> table = read(mail, user=["sender", "receiver"])
    >>> table
    SharedTable(owners='sender', 'receiver'; columns: sender: VARCHAR, receiver: VARCHAR)
    >>> release = count(table, unit=User(), epsilon=1.0, delta=1e-6, clip=20.0)
    >>> round(release.guarantee.epsilon(), 6)
    1.0
    """

    rows: UserTable
    owners: tuple[str, ...]
    n_users: int | None = None

    def input_schema(self) -> dict[str, Any]:
        """Return the public schema of the table as plain values, for stored queries."""
        owners = {"user": list(self.owners), "n_users": self.n_users}
        return {**self.rows.input_schema(), **owners}

    @staticmethod
    def create(
        rows: UserTable, owners: Sequence[str], n_users: int | None, types: Mapping[str, str] | None
    ) -> SharedTable:
        """Return the table of records with columns of owners.

        Args:
            rows: the records, without a user column.
            owners: the columns of owners.
            n_users: the public number of enrolled users.
            types: the declared types of text columns.

        Raises:
            ParameterError: if there are no or too many owner columns, or the rows are on a cluster.
            SchemaError: if a column is missing or has no key type, or the columns have different
                types.
        """
        named = all(isinstance(name, str) for name in owners)
        if not owners or not named or len(set(owners)) < len(owners):
            raise ParameterError(
                "user must be a column, or a list of different owner columns, not "
                f"{_validate.describe(owners)}.",
                name="user",
            )
        if len(owners) > _MOST_OWNERS:
            raise ParameterError(
                "user must list at most two owner columns: sums with more "
                "owners are linear programs, and one record could make them run without end.",
                name="user",
            )
        if rows.distributed:
            raise ParameterError(
                "engine must be omitted for records with several owners, which need the whole table "
                "in one place.",
                name="engine",
            )
        for name in owners:
            if rows.schema.get(name, "").endswith("]"):
                raise SchemaError(
                    f"user {name!r} must not be a list ({rows.schema[name]}), which could "
                    "contain any number of owners; use up to two owner columns.",
                    name="user",
                )
            rows.require_key(name, "user")
            if name in (types or {}):
                raise SchemaError(
                    f"types must not contain the owner column {name!r}: a record with an "
                    "unreadable name would have no owner; omit it.",
                    name="types",
                )
        if rows.has(names := " and ".join(map(repr, owners))):
            raise SchemaError(
                f"column name {names} is reserved for the owners; rename the column.", name="user"
            )
        kinds = {name: rows.schema[name] for name in owners}
        texts = {"BIGINT" if kind in INTEGERS else kind for kind in kinds.values()}
        if len(texts) > 1:
            listed = ", ".join(f"{name!r} {kind}" for name, kind in kinds.items())
            raise SchemaError(
                f"user must list columns of one type, not {listed}: otherwise one person would "
                "count as two; cast them to one type.",
                name="user",
            )
        source = FilteredSource(rows.source, _readable(kinds))
        return SharedTable(replace(rows, source=source), tuple(owners), n_users)

    # -- as a table --

    @property
    def schema(self) -> dict[str, str]:
        """Column name → type."""
        return dict(self.rows.schema)

    @property
    def user(self) -> str:
        """Columns of owners as one text, for guarantees and ledgers."""
        return " and ".join(map(repr, self.owners))

    @property
    def source(self) -> RowSource:
        """Source of the records."""
        return self.rows.source

    def derive(self, columns: Mapping[str, str] | None = None, /, **more: str) -> SharedTable:
        """Return the table with columns derived from others, row by row.

        See :meth:`UserTable.derive`.
        """
        return self._with_rows(self.rows.derive(columns, **more))

    def with_expressions(self, *names: Any) -> SharedTable:
        """Return the table with a column for each expression, named by its text."""
        return self._with_rows(self.rows.with_expressions(*names))

    def filter(self, condition: str, /) -> SharedTable:
        """Return the rows that satisfy a condition; see :meth:`UserTable.filter`."""
        return self._with_rows(self.rows.filter(condition))

    def where(self, columns: Mapping[str, Any] | None = None, /, **more: Any) -> SharedTable:
        """Return the rows of a public region; see :meth:`UserTable.where`."""
        return self._with_rows(self.rows.where(columns, **more))

    def with_cells(self, name: str, of: str, by: Any) -> SharedTable:
        """Return the table with a column of cells; see :meth:`UserTable.with_cells`."""
        return self._with_rows(self.rows.with_cells(name, of, by))

    def with_days(self, name: str, of: str, zone: str | None = None) -> SharedTable:
        """Return the table with a column of days; see :meth:`UserTable.with_days`."""
        return self._with_rows(self.rows.with_days(name, of, zone))

    def check(
        self, item: str | Sequence[str] | None = None, weight: str | None = None, **options: Any
    ) -> str:
        """Report invalid values in rows to the curator: **not private, not to be published**.

        See :meth:`UserTable.check` for the arguments.

        >>> from dpgrain import read
        >>> mail = pa.table({"sender": ["ann", "bob", None], "receiver": ["bob", "bob", None]})
        >>> text = read(mail, user=["sender", "receiver"]).check()
        >>> "1  rows without an owner (dropped)" in text
        True
        """
        return format_counts(self.check_counts(item, weight, **options))

    def check_counts(
        self, item: str | Sequence[str] | None = None, weight: str | None = None, **options: Any
    ) -> dict[str, int]:
        """Count invalid values in rows for the curator: **not private, not to be published**.

        See :meth:`UserTable.check_counts` for the arguments.

        >>> from dpgrain import read
        >>> mail = pa.table({"sender": ["ann", "bob", None], "receiver": ["bob", "bob", None]})
        >>> counts = read(mail, user=["sender", "receiver"]).check_counts()
        >>> counts["owners with a record"], counts["rows without an owner (dropped)"]
        (2, 1)
        """
        counts = self.rows.check_counts(item, weight, **options)
        return {**counts, **check_owners(self.rows, self.owners)}

    def per_user(self, **_: Any) -> NoReturn:
        """Raise ParameterError: a record of two people would affect the rows of both.

        Raises:
            ParameterError: always.
        """
        raise ParameterError(
            "per_user does not support records with several owners: removing one person would "
            "change the rows of others. Count or sum records, or read the table with one user "
            "column."
        )

    def distinct(self, *_: Any) -> NoReturn:
        """Raise ParameterError: a record of one person would replace those of others.

        Raises:
            ParameterError: always.
        """
        raise ParameterError(
            "distinct does not support records with several owners: removing one person would "
            "change the rows of others. Read the table with one user column, or drop repeated rows "
            "before the table is read."
        )

    def refuse(self, statistic: str) -> NoReturn:
        """Raise ParameterError for a statistic without support for several owners.

        Raises:
            ParameterError: always.
        """
        reason = _REASONS.get(statistic, "no theorem bounds the effect of one person")
        raise ParameterError(
            f"{statistic} does not support records with several owners "
            f"(user={list(self.owners)}): {reason}. Use dg.count, dg.sum or dg.histogram; "
            "or read the table with one user column, for a guarantee that covers only that "
            "person's part."
        )

    def _with_rows(self, rows: UserTable) -> SharedTable:
        return replace(self, rows=rows)

    # -- what is read --

    def pairs(self, engine: Engine, groups: Groups, value: str | None) -> OwnedRows:
        """Return the rows with an owner, a group and a number, each with its owners.

        Args:
            engine: the engine of the rows.
            groups: the groups, of one key or none; each is a cell.
            value: the column of numbers, if there is one; rows without a finite number are dropped.

        A missing or unreadable cell is not an owner.
        """
        key = groups.names[0] if groups.names else None
        wanted = [(name, "key") for name in self.owners]
        if key is not None:
            wanted.append((self.rows.data_column(key), "key"))
        if value is not None:
            wanted.append((value, "number"))
        columns: list[pa.Array] = [one_array(each) for each in engine.columns(wanted).columns]  # type: ignore[arg-type]
        count = len(columns[0])
        complete, cell = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.int64)
        number: FloatArray | None = None
        if value is not None:
            number = columns[-1].fill_null(np.nan).to_numpy(zero_copy_only=False).astype(np.float64)
            complete &= np.isfinite(number)
        if key is not None:
            items = columns[-1 if value is None else -2].dictionary_encode()
            cells = column_values(self.rows, key, items.dictionary)
            cell = _codes(pc.index_in(cells.take(items.indices), value_set=groups.columns[0]))
            complete &= cell >= 0
        row, person = self._owners(columns, count)
        return OwnedRows.create(row, person, complete, cell, len(groups), number)

    def _owners(self, columns: Sequence[pa.Array], count: int) -> tuple[IntArray, IntArray]:
        """Return the row and the owner of each pair, possibly with duplicates."""
        named = columns[: len(self.owners)]
        row, owner = np.tile(np.arange(count), len(named)), pa.chunked_array(named)
        codes = _codes(one_array(owner).dictionary_encode().indices)
        return row[codes >= 0], codes[codes >= 0]

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {kind}" for name, kind in self.schema.items())
        users = "" if self.n_users is None else f"; n_users={self.n_users:,}"
        owners = ", ".join(map(repr, self.owners))
        scope = "" if self.rows.scope.everything else f"; where: {self.rows.scope}"
        return f"SharedTable(owners={owners}{users}; columns: {columns}{scope})"


def reject_table(table: object, statistic: str) -> NoReturn:
    """Raise ParameterError for a table that a statistic does not support."""
    if isinstance(table, SharedTable):
        table.refuse(statistic)
    raise ParameterError(f"table must come from dg.read, not {type(table).__name__}.")


def drop_unreadable_owners(source: RowSource, frame: Any, owners: Sequence[str]) -> RowSource:
    """Return rows in memory without those with an unreadable owner."""
    if not isinstance(source, ArrowSource):
        if hasattr(source, "stream"):
            raise ParameterError(
                "source must be a table for records with several owners, not a stream; load it "
                "into a table first.",
                name="source",
            )
        return source
    lost = np.zeros(source.table.num_rows, dtype=np.bool_)
    for name in owners:
        filled = _is_filled(frame, name)
        if name in source.table.column_names and filled is not None:
            lost |= filled & source.table.column(name).is_null().to_numpy()
    return (
        replace(source, table=source.table.filter(boolean_array(~lost))) if lost.any() else source
    )


def _is_filled(frame: Any, name: str) -> BoolArray | None:
    """Return the non-missing cells of a column, (n,); None without the column."""
    module = type(frame).__module__.partition(".")[0]
    if isinstance(frame, pa.Table):
        filled = frame.column(name).is_valid() if name in frame.column_names else None
    elif module == "polars":
        filled = frame.get_column(name).is_not_null().to_arrow() if name in frame.columns else None
    elif module == "pandas":
        places = [place for place, each in enumerate(frame.columns) if str(each) == name]
        filled = frame.iloc[:, places[0]].notna() if places else None
    else:
        filled = None
    return None if filled is None else np.asarray(filled, dtype=np.bool_)


def _readable(kinds: Mapping[str, str]) -> CompiledExpression:
    """Return the condition that all owners of a row are readable.

    Otherwise the row of an unreadable owner would remain for the other owner.
    """
    conditions = " AND ".join(
        f"({quoted(name)} IS NULL OR {key_sql(name, kind)} IS NOT NULL)"
        for name, kind in kinds.items()
    )
    node = CallNode("and", tuple(map(ColumnNode, kinds)))
    return CompiledExpression("names of owners can be read", BOOLEAN, f"({conditions})", node)


def _codes(column: pa.Array) -> IntArray:
    """Return integers with −1 for nulls, (n,)."""
    filled = column.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(filled, dtype=np.int64)
