"""``dg.read``: a table in which one user holds many records."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

from dpgrain import _validate
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.inputs.labels import Key, exact, key, whole, written
from dpgrain.tables.elements import NAMED, Elements, as_elements
from dpgrain.tables.engines.memory import LEAST
from dpgrain.tables.sources import INTEGERS, Source, is_number, quoted, source_of, typed

_NESTED = ("[]", "STRUCT", "MAP", "UNION", "LIST", "BLOB", "VARIANT")
# Before the names of users that are no text.
_MARK = "\x1f"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


@dataclass(frozen=True)
class CellColumn:
    """A column that holds the cell of another column's value.

    Args:
        of: the other column.
        elements: the public partition of its values, as given.
    """

    of: str
    elements: Elements


@dataclass(frozen=True, repr=False)
class UserTable:
    """A table of records, each of one user; made by :func:`read`.

    Args:
        source: where the rows come from.
        user: the column that tells whose a record is; None if there is none, which leaves the
            privacy unit ``Record`` only.
        n_users: the public size of the roster, if known; never counted from the table.
        schema: column name → DuckDB type.
        memory: bytes of working memory that a release may use, besides the interpreter's own.
        threads: threads that a release may use.
        cells: the columns that were added by :meth:`with_cells`.
    """

    source: Source
    user: str | None
    n_users: int | None
    schema: Mapping[str, str]
    memory: int
    threads: int
    cells: Mapping[str, CellColumn] = field(default_factory=dict)

    def with_cells(self, name: str, of: str, by: Any) -> UserTable:
        """The same table with a column of cells: a public function of another column.

        Args:
            name: what the new column is called; then good for ``by=`` and ``Element(name)``.
            of: the column that the function is applied to.
            by: a mapping (a dict, a two-column table, a :class:`pathlib.Path` of one), a function, or
                an :class:`~dpgrain.Elements`. It must be public. A value without a cell is its own
                (``"own: value"``), unless ``missing="drop"`` leaves it out. A function gets whole
                numbers or text (a date as ``"2024-05-01"``); a value on which it fails has no cell, and
                nothing tells of it: try the function on public values first.

        Raises:
            ParameterError: if the name is taken, or the partition refuses what it lacks.
            SchemaError: if there is no such column.

        >>> import pyarrow as pa
        >>> table = read(pa.table({"who": [1], "page": ["/jobs/it"]}), user="who")
        >>> table.with_cells("topic", of="page", by=lambda page: page.split("/")[1]).schema["topic"]
        'VARCHAR'
        """
        if not isinstance(name, str) or not name or self.has(name):
            raise ParameterError(f"name must be a new column, not {name!r}; choose another.")
        self.key(of, "of")
        elements = as_elements(by).of_keys(lambda item: self.stated(item, of, NAMED))
        if elements.missing == "error":
            raise ParameterError(
                "missing='error' needs a public domain, which a column has not; use missing='own' "
                "or 'drop'."
            )
        cells = {**self.cells, name: CellColumn(of, elements)}
        return replace(self, schema={**self.schema, name: "VARCHAR"}, cells=cells)

    def has(self, name: str) -> bool:
        """Whether a column is called so; queries do not tell capital letters from small ones."""
        return name.casefold() in map(str.casefold, self.schema)

    def require(self, column: str, role: str) -> None:
        """Raise unless the table has the column; ``role`` says what for."""
        if not isinstance(column, str):
            raise ParameterError(f"{role} must be the name of a column, not {column!r}.", name=role)
        if column not in self.schema:
            raise SchemaError(
                f"{role} {column!r} is not a column of the table; it has {', '.join(self.schema)}.",
                name=role,
            )

    def is_integer(self, column: str) -> bool:
        """Whether keys of this column are integers; otherwise they are text."""
        return self.schema[column] in INTEGERS

    def stated(self, label: Any, column: str, role: str) -> int | str:
        """The key of a column that a public label is (the rule: :mod:`dpgrain.inputs.labels`).

        Args:
            label: an item that a domain or partition names.
            column: the column, whose type tells what its keys are.
            role: what names the label, in messages: "domain holds".

        Raises:
            ParameterError: if no key of the column can be the label.
        """
        found: int | str | None
        if self.is_integer(column):
            found = whole(label)
        elif column in self.cells and not isinstance(label, str):
            # A cell that is a number is written otherwise there.
            found = None
        else:
            found = _text_key(label, self.schema[column])
        if found is None:
            holds = "integers" if self.is_integer(column) else "text"
            raise ParameterError(
                f"{role} {label!r}, but the item column {column!r} holds {holds}; cast one of them."
            )
        return found

    def key(self, column: str, role: str, *, source: str | None = None) -> str:
        """The SQL of a column used as a key: integers stay integers, all else is text.

        Args:
            column: the column.
            role: what it is for, in messages.
            source: what the query calls the table, where it must be said.

        Raises:
            SchemaError: if there is no such column, or it holds numbers with a fraction or lists.
        """
        self.require(column, role)
        kind = self.schema[column]
        if kind.startswith(("TIME", "INTERVAL")):
            # Values beyond the range of text would fail, and tell of one row.
            raise SchemaError(
                f"{role} {column!r} has type {kind}, which cannot name things; cast it to a date "
                f"first, as in dg.read(duckdb.sql('SELECT * REPLACE ({column}::DATE AS {column}) "
                "FROM …')).",
                name=role,
            )
        if kind in ("FLOAT", "DOUBLE") or kind.endswith(_NESTED) or kind.startswith(_NESTED):
            raise SchemaError(
                f"{role} {column!r} has type {kind}, which cannot name things; "
                "cast it to integer or text.",
                name=role,
            )
        named = quoted(column) if source is None else f"{source}.{quoted(column)}"
        return f"CAST({named} AS {'BIGINT' if self.is_integer(column) else 'VARCHAR'})"

    def number(self, column: str, role: str) -> str:
        """The SQL of a column of numbers; what is not a number is null.

        Raises:
            SchemaError: if there is no such column, or it does not hold numbers.
        """
        self.require_numbers([column], role)
        return f"TRY_CAST({quoted(column)} AS DOUBLE)"

    def require_numbers(
        self, columns: Sequence[str], role: str, *, also: Sequence[str] = ()
    ) -> None:
        """Raise unless all columns hold numbers by their types, which are public; no row is looked at.

        Args:
            columns: the columns.
            role: what they are for, in messages.
            also: other types that are welcome.

        Raises:
            SchemaError: if one is missing, is text without a stated type, or has another type.
        """
        texts = []
        for column in columns:
            self.require(column, role)
            kind = self.schema[column]
            if kind in ("VARCHAR", "ENUM") and column not in self.cells:
                texts.append(column)
            elif not is_number(kind) and kind not in also:
                raise SchemaError(
                    f"{role} {column!r} has type {kind}; it must hold numbers: name another column.",
                    name=role,
                )
        if texts:
            # All at once: a person with twenty features is told once.
            types = ", ".join(f"{column!r}: 'DOUBLE'" for column in texts)
            raise SchemaError(
                f"{role} {texts[0]!r} is a column of text where numbers are asked; state its type, "
                f"as types={{{types}}} in dg.read or --type {','.join(texts)}=double.",
                name=role,
            )

    def check(
        self,
        item: str | Sequence[str] | None = None,
        weight: str | None = None,
        *,
        value: str | Sequence[str] = (),
        bounds: tuple[float, float] | None = None,
        domain: Sequence[Any] | None = None,
    ) -> str:
        """Report bad values in rows to the curator: **not private, not to be published**.

        Args:
            item: the column, or columns, that tell what is counted or grouped by.
            weight: a column of weights, which count 0 below 0.
            value: a column of numbers, or several. They may be text without a stated type here: what
                type suits them is what this is good for.
            bounds: (low, high): numbers beyond are counted.
            domain: the public items; others are counted. With several columns, tuples.

        Returns:
            A text with exact counts: rows, users and the largest user; rows without user or item,
            rows that repeat another, items outside the domain; cells that are not numbers, that look
            like numbers with a decimal comma, that are beyond the bounds; of CSV the lines that are
            left out or cut, and why. A release never fails on any of these: it follows fixed rules
            (docs/pitfalls.md), and says nothing of them.

        Raises:
            SchemaError: if a column is missing, or cannot hold what it is named for.

        >>> import pyarrow as pa
        >>> rows = pa.table({"who": [1, 2, 3], "paid": ["1.5", "2,5", "none"]})
        >>> print(read(rows, user="who").check(value="paid"))  # doctest: +ELLIPSIS
        For the curator only: these exact counts are NOT private and must not be published.
        ...
                       2  cells of 'paid' that are not numbers (left out)
                       1  of these look like numbers with a decimal comma: state decimal=','
        ...
        """
        from dpgrain.tables.check import check

        items = (item,) if isinstance(item, str) else tuple(item or ())
        values = (value,) if isinstance(value, str) else tuple(value)
        return check(self, items, weight, values, bounds, domain)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {kind}" for name, kind in self.schema.items())
        users = "not given" if self.n_users is None else f"{self.n_users:,}"
        return f"UserTable(user={self.user!r}, n_users={users}, columns: {columns})"


def read(
    source: Any,
    *,
    user: str | None = None,
    n_users: int | None = None,
    types: Mapping[str, str] | None = None,
    delimiter: str = ",",
    decimal: str = ".",
    memory: str | int = "1GB",
    threads: int | None = None,
) -> UserTable:
    """Open a table in which one user holds many records; nothing is loaded yet.

    Args:
        source: a path or glob (or several) of Parquet or CSV files (UTF-8), an Arrow table, a
            pandas or Polars data frame, or a DuckDB relation.
        user: the column that tells whose a record is; without one only ``Record`` is offered.
        n_users: the public number of enrolled users, with or without records. It is never counted
            from the table, since that number is private; used for the δ warning and in the guarantee.
        types: column → SQL type, for columns of text; a value that does not fit is a null. All columns
            of CSV are text otherwise, never guessed from rows, and text is refused where numbers are
            asked.
        delimiter: for CSV.
        decimal: what stands before decimals in text whose stated type is a number: ``"."`` or ``","``.
        memory: working memory of a release beside the process as it is, such as ``"1GB"`` or a number
            of bytes (at least 256 MB); more is taken only for what grows with the number of items.
        threads: threads of a release; by default one per core.

    Raises:
        DataError: if a file is missing or not readable.
        SchemaError: if the user column is missing or cannot name users.
        ParameterError: if another argument is out of range.

    >>> import pyarrow as pa
    >>> read(pa.table({"who": ["ann", "bob"], "word": ["yo", "bro"]}), user="who")
    UserTable(user='who', n_users=not given, columns: who: VARCHAR, word: VARCHAR)
    """
    if n_users is not None:
        n_users = _validate.integer(minimum=1, n_users=n_users)
    if threads is not None:
        threads = _validate.integer(minimum=1, threads=threads)
    source = source if user is None else _users_apart(source, user)
    opened = typed(source_of(source, delimiter=delimiter), types, decimal)
    table = UserTable(
        opened, user, n_users, opened.columns(), _bytes(memory), threads or os.cpu_count() or 1
    )
    if user is not None:
        table.key(user, "user")
    return table


def _users_apart(source: Any, user: str) -> Any:
    """A data frame whose users, if they are objects, are texts that differ as the users do.

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
    if hasattr(labels, "cat"):
        # The type of categories follows from who is there, so that they are told whatever it is.
        names_of = [_told(key(label)) for label in labels.cat.categories]
        told = [names_of[code] if code >= 0 else None for code in labels.cat.codes]
    elif labels.dtype == "object":
        told = [_told(key(label)) for label in labels.to_numpy(dtype=object)]
    else:
        return source
    source = source.copy(deep=False)
    source.isetitem(place, type(labels)(told, index=labels.index, dtype=object))
    return source


def _told(user: Key | None) -> str | None:
    """A text that no other user has: text as it is, anything else behind a mark."""
    if user is None:
        return None
    kind, name = user
    return name if kind == "text" and not name.startswith(_MARK) else f"{_MARK}{kind} {name}"


def _text_key(label: Any, kind: str) -> str | None:
    """The text that a column of another type than integers has for a label; None for none."""
    if isinstance(label, date) and not isinstance(label, datetime):
        return label.isoformat()
    number = None if isinstance(label, str | bytes) else exact(label)
    if number is None:
        return written(label)
    if kind == "BOOLEAN":
        return None if number not in (0, 1) else "true" if number else "false"
    decimal = re.fullmatch(r"DECIMAL\(\d+, ?(\d+)\)", kind)
    if decimal is None:
        return written(label)
    # As SQL writes it: with as many digits as the type says.
    places = int(decimal[1])
    scaled = number * 10**places
    if scaled.denominator != 1 or abs(scaled) >= 10**38:
        return None
    digits = f"{abs(scaled.numerator):0{places + 1}d}"
    point = f".{digits[-places:]}" if places else ""
    return f"{'-' * (number < 0)}{digits[: len(digits) - places]}{point}"


def _bytes(memory: str | int) -> int:
    if isinstance(memory, int) and not isinstance(memory, bool):
        size = memory
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?)B?\s*", str(memory).upper())
        if match is None:
            raise ParameterError(
                f"memory must be such as '1GB' or '512MB', not {memory!r}.", name="memory"
            )
        size = int(float(match[1]) * _UNITS.get(match[2], 1))
    if size < LEAST:
        raise ParameterError(
            f"memory must be at least {LEAST // 10**6}MB, not {memory!r}.", name="memory"
        )
    return size
