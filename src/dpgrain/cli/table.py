"""Tables of commands, and exact counts of invalid values for internal use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.document import print_json
from dpgrain.cli.options import columns_of
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
    public_lists, table = (
        lazy_import("dpgrain.tables.public_lists"),
        lazy_import("dpgrain.tables.table"),
    )
    expression = lazy_import("dpgrain.tables.expression")
    features = lazy_import("dpgrain.tables.engines.features")
    column_types = lazy_import("dpgrain.tables.sources.column_types")
    postgres = lazy_import("dpgrain.tables.sources.postgres")
    spark_session = lazy_import("dpgrain.tables.engines.spark_session")


# Prefix of an environment variable instead of an address.
_VARIABLE = "env:"
# Endings of files with one item per line, for a single column.
_ONE_A_LINE = (".txt",)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options of every command that reads a table."""

    delimiter: given.Delimiter = ","
    types: given.Types = None
    decimal: given.Decimal = "."
    dates: given.Dates = "2025-12-31"
    days: given.Days = None
    derived: given.Derived = None
    filters: given.Filters = None
    join_public: given.JoinPublic = None
    join: given.Join = None
    where: given.Where = None
    named: given.Named = None
    query: given.Query = None
    rows: given.RowsAs = None
    engine: given.Engine = "duckdb"
    master: given.Master = None
    check: given.Check = False
    as_json: given.Json = False

    def read(self, source: str, **options: Any) -> UserTable:
        """Open the table of a command, with more options of :func:`dpgrain.read`."""
        delimiter = "\t" if self.delimiter == r"\t" else self.delimiter
        options |= {"delimiter": delimiter, "engine": self._engine()}
        public = [_joined("--join-public", each, None) for each in self.join_public or ()]
        joined = [_joined("--join", each, options.get("user")) for each in self.join or ()]
        places = [self._place(source)]
        places += [{"source": path} for _, path in (*public, *joined)]
        first, *others = self._readers(places, options)
        rows = with_days(first(**options), self.days or ())
        if self.where:
            rows = _region(rows, self.where)
        plain = {
            name: options[name] for name in ("delimiter", "engine", "memory") if name in options
        }
        for column, _ in public:
            rows = rows.join_public(others.pop(0)(**plain), on=column)
        for user, _ in joined:
            rows = rows.join(others.pop(0)(**plain, user=user))
        return derived_of(rows, self.derived or (), self.filters or ())

    def _readers(
        self, places: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> list[Callable[..., UserTable]]:
        """Return a function that opens each table, with the types of ``--type`` for its columns."""
        read = partial(table.read, decimal=self.decimal, dates=self.dates)
        if not self.types:
            return [partial(read, **place) for place in places]
        plain = {name: options[name] for name in ("delimiter", "engine")}
        columns = [list(table.read(types={}, **place, **plain).schema) for place in places]
        stated: dict[str, str] = {}
        known = [name for each in columns for name in each]
        for text in self.types:
            listed, equals, kind = text.rpartition("=")
            if not (listed and equals and kind):
                raise ParameterError(
                    f"--type must be COLUMN=TYPE, such as paid=double, not {text!r}."
                )
            stated |= dict.fromkeys(columns_of([listed], known), kind)
        # A column that no table has is an error of the first table.
        elsewhere = {name for each in columns[1:] for name in each} - set(columns[0])
        own = [set(stated) - elsewhere, *map(set, columns[1:])]
        return [
            partial(read, types={name: stated[name] for name in stated if name in names}, **place)
            for place, names in zip(places, own, strict=True)
        ]

    def _place(self, source: str) -> dict[str, Any]:
        """Return the location of the rows as options of :func:`dpgrain.read`."""
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
        """Return the name of the engine, or the address of a cluster."""
        if self.master is None:
            return self.engine
        if self.engine != "spark" or not spark_session.ADDRESS.fullmatch(self.master):
            raise ParameterError(
                "--master must be the address of a Spark cluster, such as spark://host:7077 or "
                f"local[4], with --engine spark, not {self.master!r} with --engine "
                f"{self.engine}."
            )
        return self.master


def _joined(option: str, text: str, column: str | None) -> tuple[str, str]:
    """Return the column and the file of COLUMN=FILE, or of FILE with a known column."""
    name, equals, path = text.partition("=")
    if not equals and column is not None:
        name, path = column, text
    if not (name and path):
        form = "COLUMN=FILE, such as zip=areas.csv"
        if option == "--join":
            form = "FILE or USER=FILE, such as id=persons.parquet, with --user"
        raise ParameterError(f"{option} must be {form}, not {text!r}.")
    return name, path


def _region(rows: UserTable, stated: Sequence[str]) -> UserTable:
    """Return the rows of the region that ``--where`` states; ranges require a type other than text."""
    sides = sides_of(stated)
    inside = rows.where(sides)
    for column, values in sides.items():
        ranges = [value for value in values if value is not None and ".." in value]
        if ranges and rows.schema.get(column) == column_types.TEXT:
            raise ParameterError(
                f"--where {column}={ranges[0]} is a range, but {column!r} is text; "
                f"declare its type, such as --type {column}=bigint."
            )
    return inside


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


@dataclass(frozen=True, kw_only=True)
class PublishingOptions(TableOptions):
    """Options of every command that publishes from a table."""

    ledger: given.Ledger = None

    @contextmanager
    def charging(self) -> Iterator[None]:
        """Charge releases inside the context to the ledger, if there is one."""
        if self.ledger is None:
            yield
            return
        with ledgers.Ledger(self.ledger):
            yield


@dataclass(frozen=True, kw_only=True)
class PerUserOptions:
    """Options for one row per user."""

    per_user: given.PerUser = None
    per_user_by: given.PerUserBy = None
    per_user_filter: given.PerUserFilter = None

    def of(self, rows: UserTable) -> UserTable:
        """Return one row per user if ``--per-user`` is passed, otherwise the table."""
        if not self.per_user:
            for name, stated in (("by", self.per_user_by), ("filter", self.per_user_filter)):
                if stated:
                    raise ParameterError(
                        f"--per-user-{name} requires --per-user, such as --per-user visits=count."
                    )
            return rows
        if rows.user is None:
            raise ParameterError("--per-user requires --user, the user id column.")
        columns: dict[str, str | tuple[str, str]] = {}
        for text in self.per_user:
            name, _, value = text.partition("=")
            column, colon, function = value.rpartition(":")
            if name and name not in columns and expression.is_expression(value):
                columns[name] = value
                continue
            known = features.FUNCTIONS if colon else ("size", "count")
            if not name or name in columns or function not in known:
                raise ParameterError(
                    "--per-user must be NAME=EXPRESSION, such as 'spent=total(paid)', "
                    "NAME=count or NAME=COLUMN:FUNCTION, with unique names and a function of "
                    f"{', '.join(features.FUNCTIONS)}, not {text!r}."
                )
            if colon:
                rows.require(column, "--per-user")
            columns[name] = (column, function) if colon else value
        by = None if self.per_user_by is None else columns_of(self.per_user_by, rows.schema)
        return derived_of(rows.per_user(by=by, **columns), (), self.per_user_filter or ())


def with_days(rows: UserTable, days: Sequence[str]) -> UserTable:
    """Return a table with dates of timestamps, from texts NAME=COLUMN or NAME=COLUMN:ZONE."""
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
            # The method has a parameter ``of`` for the column.
            if error.name != "of":
                raise
            raise SchemaError(error.about("--days"), name="--days") from error
    return rows


def derived_of(rows: UserTable, derived: Sequence[str], filters: Sequence[str]) -> UserTable:
    """Return a table with derived columns, from texts NAME=EXPRESSION, and conditions applied."""
    for text in derived:
        name, _, formula = text.partition("=")
        if not (name.strip() and formula.strip()):
            raise ParameterError(
                f"--derive must be NAME=EXPRESSION, such as 'month=month(at)', not {text!r}."
            )
        rows = rows.derive({name.strip(): formula})
    for condition in filters:
        rows = rows.filter(condition)
    return rows


def with_cells(rows: UserTable, cells: Sequence[str]) -> UserTable:
    """Return a table with columns of cells, from texts NAME=COLUMN:FILE."""
    for text in cells:
        name, _, rest = text.partition("=")
        column, _, path = rest.partition(":")
        if not (name and column and path):
            raise ParameterError(f"--cells must be NAME=COLUMN:FILE, not {text!r}.")
        rows = rows.with_cells(name, column, Path(path))
    return rows


def print_check(
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
    """Print the counts of :meth:`~dpgrain.UserTable.check`, which has the same arguments."""
    what: dict[str, Any] = {"value": values, "bounds": bounds, "zero": zero}
    what["domain"] = domain if items else None
    if as_json:
        counts = rows.check_counts(items, weight, **what)
        named = {spelled_inside(name): count for name, count in counts.items()}
        print_json({"private": False, "counts": named})
    else:
        for line in rows.check(items, weight, **what).splitlines():
            say(spelled_inside(line))


def domain_of(stated: Sequence[str], keys: Sequence[str], rows: UserTable) -> Any:
    """Return the public groups of the key columns, from the files of ``--domain``."""
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
