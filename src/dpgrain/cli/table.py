"""Tables of commands, and exact counts of bad values for their curator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._lazy_import import lazy_import
from dpgrain.cli.document import tell_json
from dpgrain.cli.options import (
    Check,
    Dates,
    Days,
    Decimal,
    Delimiter,
    Derived,
    Engine,
    Filters,
    Join,
    JoinPublic,
    Json,
    Ledger,
    Master,
    Named,
    PerUser,
    PerUserBy,
    PerUserFilter,
    Query,
    RowsAs,
    Types,
    Where,
    columns_of,
)
from dpgrain.cli.printing import say
from dpgrain.cli.spelling import spelled_inside
from dpgrain.errors import ParameterError, SchemaError

if TYPE_CHECKING:
    from dpgrain.ledger import ledger as ledgers
    from dpgrain.tables import expression, public_lists, table
    from dpgrain.tables.engines import features, spark_session
    from dpgrain.tables.sources import column_types, postgres
    from dpgrain.tables.table import UserTable
else:
    ledgers = lazy_import("dpgrain.ledger.ledger")
    public_lists = lazy_import("dpgrain.tables.public_lists")
    table = lazy_import("dpgrain.tables.table")
    expression = lazy_import("dpgrain.tables.expression")
    features = lazy_import("dpgrain.tables.engines.features")
    column_types = lazy_import("dpgrain.tables.sources.column_types")
    postgres = lazy_import("dpgrain.tables.sources.postgres")
    spark_session = lazy_import("dpgrain.tables.engines.spark_session")


# Beginning of what names a variable of the environment in place of an address.
_VARIABLE = "env:"
# Endings of files with one item a line, which are of one column.
_ONE_A_LINE = (".txt",)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The options of every command that reads a table."""

    delimiter: Delimiter = ","
    types: Types = None
    decimal: Decimal = "."
    dates: Dates = "2025-12-31"
    days: Days = None
    derived: Derived = None
    filters: Filters = None
    join_public: JoinPublic = None
    join: Join = None
    where: Where = None
    named: Named = None
    query: Query = None
    rows: RowsAs = None
    engine: Engine = "duckdb"
    master: Master = None
    check: Check = False
    as_json: Json = False

    def read(self, source: str, **options: Any) -> UserTable:
        """Return the table of a command.

        Args:
            source: the file or glob.
            options: the options of :func:`dpgrain.read`.

        Raises:
            ParameterError: if a type is not of its form.
            DpgrainError: as :func:`dpgrain.read`.
        """
        delimiter = "\t" if self.delimiter == r"\t" else self.delimiter
        options |= {"delimiter": delimiter, "engine": self._engine()}
        public = [_named("--join-public", each, None) for each in self.join_public or ()]
        joined = [_named("--join", each, options.get("user")) for each in self.join or ()]
        places = [self._place(source)]
        places += [{"source": path} for _, path in (*public, *joined)]
        opened, *others = self._typed(places, options)
        rows = opened(**options)
        rows = with_days(rows, self.days or ())
        if self.where:
            sides = sides_of(self.where)
            inside = rows.where(sides)
            _refuse_ranges_of_text(sides, rows)
            rows = inside
        plain = {
            name: options[name] for name in ("delimiter", "engine", "memory") if name in options
        }
        for column, _ in public:
            rows = rows.join_public(others.pop(0)(**plain), on=column)
        for user, _ in joined:
            rows = rows.join(others.pop(0)(**plain, user=user))
        return derived_of(rows, self.derived or (), self.filters or ())

    def _typed(
        self, places: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> list[Callable[..., UserTable]]:
        """Return what opens each table, with the types that are stated for its columns.

        Raises:
            ParameterError: if a type is not of its form.
        """
        given = [
            partial(table.read, decimal=self.decimal, dates=self.dates, **place) for place in places
        ]
        if not self.types:
            return list(given)
        plain = {name: options[name] for name in ("delimiter", "engine")}
        columns = [list(table.read(types={}, **place, **plain).schema) for place in places]
        stated: dict[str, str] = {}
        for text in self.types:
            names, equals, kind = text.rpartition("=")
            if not (names and equals and kind):
                raise ParameterError(
                    f"--type must be COLUMN=TYPE, such as paid=double, not {text!r}."
                )
            known = [name for each in columns for name in each]
            stated |= dict.fromkeys(columns_of([names], known), kind)
        # What no table has is told of the first.
        elsewhere = {name for each in columns[1:] for name in each} - set(columns[0])
        own = [set(stated) - elsewhere, *map(set, columns[1:])]
        return [
            partial(read, types={name: kind for name, kind in stated.items() if name in here})
            for read, here in zip(given, own, strict=True)
        ]

    def _place(self, source: str) -> dict[str, Any]:
        """Return where the rows are, as options of :func:`dpgrain.read`."""
        what = {"table": self.named, "query": self.query, "rows": self.rows}
        if source.startswith(_VARIABLE):
            return {"source_env": source.removeprefix(_VARIABLE), **what}
        if postgres.contains_password(source):
            raise ParameterError(
                "TABLE must not contain a password, which would stay in the shell history; put "
                "the address into an environment variable, and pass its name, such as "
                "env:VISITS_DB."
            )
        return {"source": source, **what}

    def _engine(self) -> str:
        """Return what reads the rows: the name of an engine, or the address of a cluster."""
        if self.master is None:
            return self.engine
        if self.engine != "spark" or not spark_session.ADDRESS.fullmatch(self.master):
            raise ParameterError(
                "--master must be the address of a Spark cluster, such as spark://host:7077 or "
                f"local[4], with --engine spark, not {self.master!r} with --engine "
                f"{self.engine}."
            )
        return self.master


def _named(option: str, text: str, column: str | None) -> tuple[str, str]:
    """Return the column and the file of a text COLUMN=FILE, or of a file beside a known column.

    Raises:
        ParameterError: if the text is not of its form.
    """
    name, equals, path = text.partition("=")
    if not equals and column is not None:
        name, path = column, text
    if not (name and path):
        form = "COLUMN=FILE, such as zip=areas.csv"
        if option == "--join":
            form = "FILE or USER=FILE, such as id=persons.parquet, with --user"
        raise ParameterError(f"{option} must be {form}, not {text!r}.")
    return name, path


def _refuse_ranges_of_text(sides: Mapping[str, Sequence[str | None]], rows: UserTable) -> None:
    """Refuse a range of a column of text, in which no value lies."""
    for column, values in sides.items():
        ranges = [value for value in values if value is not None and ".." in value]
        if ranges and rows.schema.get(column) == column_types.TEXT:
            raise ParameterError(
                f"--where {column}={ranges[0]} is a range, but {column!r} is text; "
                f"declare its type, such as --type {column}=bigint."
            )


def sides_of(stated: Sequence[str]) -> dict[str, list[str | None]]:
    """Return what each column may hold, from texts COLUMN=VALUE.

    Args:
        stated: the texts of ``--where``.

    Raises:
        ParameterError: if a text is not of its form.
    """
    sides: dict[str, list[str | None]] = {}
    for text in stated:
        column, equals, value = text.partition("=")
        if not (column and equals):
            raise ParameterError(
                f"--where must be COLUMN=VALUE or COLUMN=FIRST..LAST, such as country=FR, not {text!r}."
            )
        sides.setdefault(column, []).append(value or None)
    return sides


@dataclass(frozen=True, kw_only=True)
class Publishing(Reading):
    """The options of every command that publishes something of a table."""

    ledger: Ledger = None

    @contextmanager
    def charging(self) -> Iterator[None]:
        """Charge what is published inside to the ledger, if one is stated."""
        if self.ledger is None:
            yield
            return
        with ledgers.Ledger(self.ledger):
            yield


@dataclass(frozen=True, kw_only=True)
class People:
    """The options that ask for one row of each user."""

    per_user: PerUser = None
    per_user_by: PerUserBy = None
    per_user_filter: PerUserFilter = None

    def of(self, rows: UserTable) -> UserTable:
        """Return one row of each user, where any number is asked for; else the table.

        Raises:
            ParameterError: if a text is not of its form, or a number cannot be made.
            SchemaError: if a column is missing or of the wrong type.
        """
        if not self.per_user:
            for name, stated in (("by", self.per_user_by), ("filter", self.per_user_filter)):
                if stated:
                    raise ParameterError(
                        f"--per-user-{name} requires --per-user, such as --per-user visits=count."
                    )
            return rows
        if rows.user is None:
            raise ParameterError("--per-user requires --user, the user id column.")
        asked: dict[str, str | tuple[str, str]] = {}
        for text in self.per_user:
            name, _, made = text.partition("=")
            column, colon, function = made.rpartition(":")
            if name and name not in asked and expression.is_expression(made):
                asked[name] = made
                continue
            known = features.FUNCTIONS if colon else ("size", "count")
            if not name or name in asked or function not in known:
                raise ParameterError(
                    "--per-user must be NAME=EXPRESSION, such as 'spent=total(paid)', "
                    "NAME=count or NAME=COLUMN:FUNCTION, with unique names and a function of "
                    f"{', '.join(features.FUNCTIONS)}, not {text!r}."
                )
            if colon:
                rows.require(column, "--per-user")
            asked[name] = (column, function) if colon else made
        return derived_of(
            rows.per_user(by=self.per_user_by, **asked), (), self.per_user_filter or ()
        )


def with_days(rows: UserTable, days: Sequence[str]) -> UserTable:
    """Return a table with columns of days of times.

    Args:
        rows: the table.
        days: texts NAME=COLUMN or NAME=COLUMN:ZONE.

    Raises:
        ParameterError: if a text is not of its form.
        DpgrainError: as :meth:`dpgrain.UserTable.with_days`.
    """
    for text in days:
        name, _, rest = text.partition("=")
        column, colon, zone = (rest, "", "") if rest in rows.schema else rest.rpartition(":")
        if not (name and (column or zone)):
            raise ParameterError(
                f"--days must be NAME=COLUMN or NAME=COLUMN:ZONE, such as day=at, not {text!r}."
            )
        try:
            rows = rows.with_days(name, column or zone, zone if colon else None)
        except SchemaError as error:
            # The column is given by keyword to the method, and here by the option.
            if error.name != "of":
                raise
            raise SchemaError(error.about("--days"), name="--days") from error
    return rows


def derived_of(rows: UserTable, derived: Sequence[str], filters: Sequence[str]) -> UserTable:
    """Return a table with columns that expressions make, and the rows that meet conditions.

    Args:
        rows: the table.
        derived: texts NAME=EXPRESSION.
        filters: the conditions.

    Raises:
        ParameterError: if a text is not of its form.
        DpgrainError: as :meth:`dpgrain.UserTable.derive`.
    """
    for text in derived:
        name, _, expression = text.partition("=")
        if not (name.strip() and expression.strip()):
            raise ParameterError(
                f"--derive must be NAME=EXPRESSION, such as 'month=month(at)', not {text!r}."
            )
        rows = rows.derive({name.strip(): expression})
    for condition in filters:
        rows = rows.filter(condition)
    return rows


def with_cells(rows: UserTable, cells: Sequence[str]) -> UserTable:
    """Return a table with columns of cells.

    Args:
        rows: the table.
        cells: texts NAME=COLUMN:FILE.

    Raises:
        ParameterError: if a text is not of its form.
        DpgrainError: if a file cannot be used.
    """
    for text in cells:
        name, _, rest = text.partition("=")
        column, _, path = rest.partition(":")
        if not (name and column and path):
            raise ParameterError(f"--cells must be NAME=COLUMN:FILE, not {text!r}.")
        rows = rows.with_cells(name, column, Path(path))
    return rows


def tell_curator(
    rows: UserTable,
    *,
    as_json: bool,
    items: Sequence[str] = (),
    weight: str | None = None,
    values: Sequence[str] = (),
    bounds: tuple[float, float] | None = None,
    domain: Any = None,
    zero: Sequence[str] = (),
) -> None:
    """Print what :meth:`~dpgrain.UserTable.check` tells, with the same arguments."""
    asked: dict[str, Any] = {"value": values, "bounds": bounds, "zero": zero}
    asked["domain"] = domain if items else None
    if as_json:
        counts = rows.check_counts(items, weight, **asked)
        told = {spelled_inside(name): count for name, count in counts.items()}
        tell_json({"private": False, "counts": told})
    else:
        for line in rows.check(items, weight, **asked).splitlines():
            say(spelled_inside(line))


def domain_of(stated: Sequence[str], keys: Sequence[str], rows: UserTable) -> Any:
    """Return the public part of the domain, from files.

    Args:
        stated: the texts of ``--domain``.
        keys: the columns that groups are told by.
        rows: the table, whose types tell whether keys are integers.

    Raises:
        ParameterError: if a text, or what a file holds, does not fit the columns.
        DataError: if a file cannot be read.
    """
    if not stated:
        return None
    if not keys:
        raise ParameterError("--domain lists the groups of --by; pass --by, or omit --domain.")
    parts = [text.partition("=") for text in stated]
    others = [name for name, _, path in parts if path and name in rows.schema and name not in keys]
    if others:
        raise ParameterError(
            f"--domain {others[0]!r} must be a column to group by, one of {', '.join(keys)}."
        )
    if len(keys) == 1 and len(stated) == 1 and not stated[0].startswith(f"{keys[0]}="):
        return public_lists.read_public_list(Path(stated[0]), keys, rows)
    if all(name in keys and path for name, _, path in parts):
        return {
            name: public_lists.read_public_list(Path(path), [name], rows) for name, _, path in parts
        }
    if len(stated) > 1 or Path(stated[0]).suffix in _ONE_A_LINE:
        raise ParameterError(
            f"--domain must be COLUMN=FILE for columns to group by, not {list(stated)!r}."
        )
    return public_lists.read_public_list(Path(stated[0]), keys, rows)
