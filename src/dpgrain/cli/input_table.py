"""Tables of commands, and exact counts of invalid values for internal use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dpgrain as dg
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.document import print_json
from dpgrain.cli.options import columns_of, types_of
from dpgrain.cli.printing import as_json, say
from dpgrain.cli.spelling import spelled_inside
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.releases.table_options import TableOption, Tables

if TYPE_CHECKING:
    from dpgrain.releases import validation_errors
    from dpgrain.tables import expression, public_lists
    from dpgrain.tables.engines import features, spark_session
    from dpgrain.tables.sources import csv_files, postgres
else:
    validation_errors = lazy_import("dpgrain.releases.validation_errors")
    expression = lazy_import("dpgrain.tables.expression")
    public_lists = lazy_import("dpgrain.tables.public_lists")
    features = lazy_import("dpgrain.tables.engines.features")
    csv_files = lazy_import("dpgrain.tables.sources.csv_files")
    postgres = lazy_import("dpgrain.tables.sources.postgres")
    spark_session = lazy_import("dpgrain.tables.engines.spark_session")


# Prefix of an environment variable instead of an address.
_VARIABLE = "env:"
# Endings of files with one item per line, for a single column.
_ONE_A_LINE = (".txt",)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TableOptions:
    """Options of every command that reads a table."""

    reading: given.Reading
    types: given.Types = None
    changes: given.Changes
    named: given.Named = None
    query: given.Query = None
    rows: given.RowsAs = None
    engine: given.Engine = "duckdb"
    master: given.Master = None
    check: given.Check = False

    def read(self, source: str, **options: Any) -> dg.UserTable:
        """Open the table of a command, with more options of :func:`dpgrain.read`."""
        hidden = csv_files.checking.set(self.check)
        try:
            return self._read(source, options)
        finally:
            csv_files.checking.reset(hidden)

    def _read(self, source: str, options: dict[str, Any]) -> dg.UserTable:
        options |= {**self.reading, "engine": self._engine()}
        if options["delimiter"] == r"\t":
            options["delimiter"] = "\t"
        joined = [*self.changes.get("join_public", ()), *self.changes.get("join", ())]
        files = [{"source": text.partition("=")[2] or text} for text in joined]
        places = [self._place(source), *files]
        types, *others = self._types(places, options)
        rows = dg.read(**places[0], **options, types=types)
        plain = {name: one for name, one in options.items() if name not in ("user", "n_users")}
        more = [{**plain, "types": each} for each in others]
        return changed(rows, given.CHANGES, self.changes, more)

    def _types(
        self, places: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> list[dict[str, str] | None]:
        """Return the types of ``--type`` for the columns of each table."""
        if not self.types:
            return [None for _ in places]
        plain = {name: options[name] for name in (*self.reading, "engine")}
        columns = [list(dg.read(types={}, **place, **plain).schema) for place in places]
        stated = types_of(self.types, [name for each in columns for name in each])
        # A column that no table has is an error of the first table.
        elsewhere = {name for each in columns[1:] for name in each} - set(columns[0])
        own = [set(stated) - elsewhere, *map(set, columns[1:])]
        return [{name: stated[name] for name in stated if name in names} for names in own]

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


def changed(
    rows: dg.UserTable,
    listed: Sequence[TableOption],
    texts: Mapping[str, Sequence[str]],
    joined: Sequence[Mapping[str, Any]] = (),
) -> dg.UserTable:
    """Return a table changed by options; ``joined`` has options for reading each joined table."""
    tables, others = Tables(Path(), validation_errors.ImmediateErrors(Path())), iter(joined)
    for option in listed:
        pairs = option.read(texts.get(option.name, ()), rows)
        if option.key.startswith("join"):
            pairs = [(name, {**part, **next(others)}) for name, part in pairs]
        try:
            rows = option.applied(rows, pairs, tables)
        except SchemaError as error:
            # A method has a parameter ``of`` for the column.
            if error.name != "of":
                raise
            raise SchemaError(error.about(option.flag), name=option.flag) from error
    return rows


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PublishingOptions(TableOptions):
    """Options of every command that publishes from a table."""

    ledger: given.Ledger = None

    @contextmanager
    def charging(self) -> Iterator[None]:
        """Charge releases inside the context to the ledger, if there is one."""
        if self.ledger is None:
            yield
            return
        with dg.Ledger(self.ledger):
            yield


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PerUserOptions:
    """Options for one row per user."""

    per_user: given.PerUser = None
    per_user_by: given.PerUserBy = None
    per_user_filter: given.PerUserFilter = None

    def of(self, rows: dg.UserTable) -> dg.UserTable:
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
        rows = rows.per_user(by=by, **columns)
        for condition in self.per_user_filter or ():
            rows = rows.filter(condition)
        return rows


def print_check(
    rows: dg.UserTable,
    *,
    items: Sequence[str] = (),
    weight: str | None = None,
    values: Sequence[str] = (),
    bounds: tuple[float, float] | None = None,
    domain: Any = None,
    zero: Sequence[str] = (),
) -> None:
    """Print the counts of :meth:`~dpgrain.dg.UserTable.check`, which has the same arguments."""
    what: dict[str, Any] = {"value": values, "bounds": bounds, "zero": zero}
    what["domain"] = domain if items else None
    if as_json.get():
        counts = rows.check_counts(items, weight, **what)
        named = {spelled_inside(name): count for name, count in counts.items()}
        print_json({"private": False, "counts": named})
    else:
        for line in rows.check(items, weight, **what).splitlines():
            say(spelled_inside(line))


def domain_of(stated: Sequence[str], keys: Sequence[str], rows: dg.UserTable) -> Any:
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
        return public_lists.read_domain(stated[0], keys, rows)
    if all(name in keys and path for name, _, path in parts):
        return public_lists.read_domain({name: path for name, _, path in parts}, keys, rows)
    if len(stated) > 1 or Path(stated[0]).suffix in _ONE_A_LINE:
        raise ParameterError(
            f"--domain must be COLUMN=FILE for columns to group by, not {list(stated)!r}."
        )
    return public_lists.read_domain(stated[0], keys, rows)
