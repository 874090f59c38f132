"""Options that change a table: each is a key of ``[table]`` and an option of commands.

A new option is an entry of :data:`OPTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from dpgrain._lazy_import import lazy_import
from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.publishing.parameters import REQUIRED, Parameter, parameters_of

if TYPE_CHECKING:
    from dpgrain.releases import keys as toml_keys
    from dpgrain.releases.validation_errors import ValidationErrors
    from dpgrain.tables import table
    from dpgrain.tables.sources import column_names, column_types, postgres, read_arguments
    from dpgrain.tables.table import UserTable
else:
    toml_keys = lazy_import("dpgrain.releases.keys")
    table = lazy_import("dpgrain.tables.table")
    column_names = lazy_import("dpgrain.tables.sources.column_names")
    column_types = lazy_import("dpgrain.tables.sources.column_types")
    postgres = lazy_import("dpgrain.tables.sources.postgres")
    read_arguments = lazy_import("dpgrain.tables.sources.read_arguments")

# Parameters of :func:`dpgrain.read` that a joined table does not have.
_OF_FIRST = ("source_env", "table", "query", "user", "n_users", "threads", "engine", "rows")
# Options without which a table cannot be opened at all.
_PLACES = ("source_env", "table", "query")


def keys(default: Any = None, /, **hints: Any) -> dict[str, Parameter]:
    """Return keys with their types; required ones have the default ``REQUIRED``."""
    return {name: Parameter(name, hint, default) for name, hint in hints.items()}


def read_keys() -> dict[str, Parameter]:
    """Return the keys for :func:`dpgrain.read`."""
    return toml_keys.keys_of(
        parameters_of("dpgrain.tables.table", "read").values(), without=("source",)
    )


def _join_keys(**required: Any) -> dict[str, Parameter]:
    """Return the keys of a joined table."""
    options = {key: one for key, one in read_keys().items() if key not in _OF_FIRST}
    return {**keys(REQUIRED, source=str | Sequence[str], **required), **options}


@dataclass(frozen=True, eq=False, repr=False)
class Tables:
    """The other tables and files of a table's options."""

    folder: Path
    errors: ValidationErrors

    def open(
        self, place: str, source: str | list[str] | None, options: dict[str, Any]
    ) -> UserTable | None:
        """Open a table; invalid options are dropped, to find all of them."""
        listed = [source] if isinstance(source, str) else source or []
        if any(map(postgres.contains_password, listed)):
            self.errors.add(
                place,
                "source must not contain a password, which every reader of the file would see; set "
                "an environment variable to the address, and its name as source_env.",
            )
            return None
        paths = [
            each if read_arguments.is_address(each) else str(self.folder / each) for each in listed
        ]
        whole = paths if isinstance(source, list) else next(iter(paths), None)
        while True:
            try:
                rows: UserTable = table.read(whole or None, **options)
            except DpgrainError as error:
                name = self.errors.add_error(place, error)
                # All columns of a wrongly split table are missing, for one cause.
                several = column_names.LOOKS_LIKE_SEVERAL in str(error)
                if several or name not in options or name in _PLACES:
                    return None
                del options[name]
            else:
                return rows

    def inside(self, place: str, rows: UserTable, where: Mapping[str, Any]) -> UserTable:
        """Return the rows of a region; invalid sides are ignored."""
        for column, side in where.items():
            if column not in rows.schema and not self.errors.immediate:
                self.errors.add_missing_column(f"{place} where:".strip(), column, rows.schema)
                continue
            with self.errors.collecting(place):
                rows = rows.where({column: side})
        return rows

    def joined(self, key: str, rows: UserTable, name: str, part: Mapping[str, Any]) -> UserTable:
        """Join a public table, or a table about the same people."""
        place, options = f"[table.{key}.{name}]", dict(part)
        own = {each: options.pop(each) for each in _OWN_OF_JOINS if each in options}
        where, source = options.pop("where", {}), options.pop("source")
        other = self.open(place, source, options)
        if other is None:
            return rows
        if key == "join":
            return rows.join(self.inside(place, other, where), **own)
        return rows.join_public(other, on=(own["on"], own.get("key", own["on"])))


_OWN_OF_JOINS = ("on", "key", "columns", "pairs")


@dataclass(frozen=True, eq=False, repr=False)
class TableOption:
    """An option that changes a table."""

    key: str  # of ``[table]``
    hint: Any  # type of its value
    flag: str  # option of commands, which may be repeated
    text: str  # help of the option
    # Names and values from the texts of an option and the table.
    read: Callable[[Sequence[str], UserTable], Iterable[tuple[str, Any]]]
    # The table changed by one name and value.
    apply: Callable[[UserTable, str, Any, Tables], UserTable]
    place: str  # table of the file in errors; ``{}`` is the name
    metavar: str | None = None  # placeholder for values in help
    parts: Callable[[], Mapping[str, Parameter]] = dict  # keys of each value, if values are tables

    @property
    def name(self) -> str:
        """The name of the option as a variable."""
        return self.flag.removeprefix("--").replace("-", "_")

    def applied(self, rows: UserTable, value: Any, tables: Tables) -> UserTable:
        """Return the table changed by names and their values, as a mapping or as pairs."""
        for name, part in value.items() if isinstance(value, Mapping) else value:
            with tables.errors.collecting(self.place.format(name)):
                rows = self.apply(rows, name, part, tables)
        return rows


def sides_of(stated: Sequence[str]) -> dict[str, list[str | None]]:
    """Return the values of each column from the texts COLUMN=VALUE of ``--where``."""
    sides: dict[str, list[str | None]] = {}
    for text in stated:
        column, equals, value = text.partition("=")
        if not (column and equals):
            raise ParameterError(
                f"--where must be COLUMN=VALUE or COLUMN=FIRST..LAST, such as country=FR, not {text!r}."
            )
        sides.setdefault(column, []).append(value or None)
    return sides


def _sides(stated: Sequence[str], rows: UserTable) -> Iterable[tuple[str, Any]]:
    """Return the sides of a region; ranges require a type other than text."""
    sides = sides_of(stated)
    # The table rejects other sides first.
    yield from sides.items()
    for column, values in sides.items():
        ranges = [value for value in values if value is not None and ".." in value]
        if ranges and rows.schema.get(column) == column_types.TEXT:
            raise ParameterError(
                f"--where {column}={ranges[0]} is a range, but {column!r} is text; "
                f"declare its type, such as --type {quote(f'{column}=bigint')}."
            )


def _days(stated: Sequence[str], rows: UserTable) -> Iterable[tuple[str, Any]]:
    """Return dates of timestamps, from texts NAME=COLUMN or NAME=COLUMN:ZONE."""
    for text in stated:
        name, _, rest = text.partition("=")
        column, colon, zone = (rest, "", "") if rest in rows.schema else rest.rpartition(":")
        if not (name and (column or zone)):
            raise ParameterError(
                f"--days must be NAME=COLUMN or NAME=COLUMN:ZONE, such as day=at, not {text!r}."
            )
        yield name, {"of": column or zone, **({"zone": zone} if colon else {})}


def _cells(stated: Sequence[str], _: UserTable) -> Iterable[tuple[str, Any]]:
    """Return columns of cells, from texts NAME=COLUMN:FILE."""
    for text in stated:
        name, _equals, rest = text.partition("=")
        column, _colon, path = rest.partition(":")
        if not (name and column and path):
            raise ParameterError(f"--cells must be NAME=COLUMN:FILE, not {text!r}.")
        yield name, {"of": column, "by": path}


def _derived(stated: Sequence[str], _: UserTable) -> Iterable[tuple[str, Any]]:
    """Return derived columns, from texts NAME=EXPRESSION."""
    for text in stated:
        name, _equals, formula = text.partition("=")
        if not (name.strip() and formula.strip()):
            raise ParameterError(
                f"--derive must be NAME=EXPRESSION, such as 'month=month(at)', not {text!r}."
            )
        yield name.strip(), formula


def _public(stated: Sequence[str], _: UserTable) -> Iterable[tuple[str, Any]]:
    """Return public tables, from texts COLUMN=FILE."""
    for text in stated:
        name, _equals, path = text.partition("=")
        if not (name and path):
            raise ParameterError(
                f"--join-public must be COLUMN=FILE, such as zip=areas.csv, not {text!r}."
            )
        yield path, {"source": path, "on": name}


def _people(stated: Sequence[str], rows: UserTable) -> Iterable[tuple[str, Any]]:
    """Return tables about the same people, from texts USER=FILE or FILE."""
    for text in stated:
        name, equals, path = text.partition("=")
        if not equals and rows.user is not None:
            name, path = rows.user, text
        if not (name and path):
            raise ParameterError(
                "--join must be FILE or USER=FILE, such as id=persons.parquet, with --user, not "
                f"{text!r}."
            )
        yield path, {"source": path, "user": name}


#: The options, in the order in which they change a table.
OPTIONS = (
    TableOption(
        "days",
        Mapping[str, Mapping[str, str]],
        "--days",
        "NAME=COLUMN or NAME=COLUMN:ZONE adds the dates of timestamps, such as day=at:Europe/Paris.",
        _days,
        lambda rows, name, part, _: rows.with_days(name, **part),
        "[table.days.{}]",
        parts=lambda: {**keys(REQUIRED, of=str), **keys(zone=str)},
    ),
    TableOption(
        "cells",
        Mapping[str, Mapping[str, str]],
        "--cells",
        "NAME=COLUMN:FILE adds a column of cells; FILE has a value and its cell per row.",
        _cells,
        lambda rows, name, part, tables: rows.with_cells(
            name, part["of"], tables.folder / part["by"]
        ),
        "[table.cells.{}]",
        parts=lambda: keys(REQUIRED, of=str, by=str),
    ),
    TableOption(
        "where",
        Mapping[str, Any],
        "--where",
        "COLUMN=VALUE or COLUMN=FIRST..LAST: only records of this public region are read. "
        "COLUMN= selects missing values. Repeat it for any of several values.",
        _sides,
        lambda rows, column, side, tables: tables.inside("[table]", rows, {column: side}),
        "[table]",
    ),
    TableOption(
        "join_public",
        Mapping[str, Any],
        "--join-public",
        "Add the columns of a public file, joined by a common column, such as zip=areas.csv.",
        _public,
        lambda rows, name, part, tables: tables.joined("join_public", rows, name, part),
        "[table.join_public.{}]",
        "COLUMN=FILE",
        lambda: {**_join_keys(on=str), **keys(key=str)},
    ),
    TableOption(
        "join",
        Mapping[str, Any],
        "--join",
        "Add the columns of the same people's rows in another file (the first row of "
        "each), with USER as its user id column.",
        _people,
        lambda rows, name, part, tables: tables.joined("join", rows, name, part),
        "[table.join.{}]",
        "FILE or USER=FILE",
        lambda: {
            **_join_keys(user=str),
            **keys(where=Mapping[str, Any]),
            **toml_keys.keys_of(parameters_of("dpgrain.tables.table", "UserTable.join").values()),
        },
    ),
    TableOption(
        "columns",
        Mapping[str, str],
        "--derive",
        "Add a derived column, such as 'month=month(at)' or 'left=price * 0.8'; --by and "
        "--value also accept expressions.",
        _derived,
        lambda rows, name, formula, _: rows.derive({name: formula}),
        "[table.columns]",
        "NAME=EXPRESSION",
    ),
    TableOption(
        "filter",
        str,
        "--filter",
        "Only rows that meet a condition, such as \"amount > 0 and kind = 'er'\".",
        lambda stated, _: (("filter", text) for text in stated),
        lambda rows, _, condition, _tables: rows.filter(condition),
        "[table] filter:",
        "CONDITION",
    ),
    TableOption(
        "distinct",
        str | Sequence[str],
        "--distinct",
        "Use the first of a user's rows with the same values of columns, such as 'case id'; '*' uses "
        "rows equal in all columns once.",
        lambda stated, _: [("distinct", list(stated))] if stated else [],
        lambda rows, _, columns, _tables: rows.distinct(columns),
        "[table] distinct:",
        "COLUMN …",
    ),
)
