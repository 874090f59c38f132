"""The contents of a row never decide whether a table is rejected, or how other rows are read.

Every type × every use × every input form × both engines: rejected by the schema, with the same
message for all rows, before anything is charged; or read by the definition.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.claims.odd_cases import LOCAL, WAYS, Case, Given, cases, given, same
from tests.effort import Effort
from tests.malformed.cells import UNSTATED, Cell, Kind, passing
from tests.malformed.sql_types import spark_system
from tests.malformed.systems import SYSTEMS
from tests.malformed.uses import Use, uses

import dpgrain as dg
from dpgrain.inputs.long_labels import text_label
from dpgrain.tables.engines.protocol import Form

every_way = pytest.mark.parametrize(("system", "way"), WAYS, ids=[" ".join(each) for each in WAYS])
# One statistic of each role, which rejects the same types as all others.
ONE_OF: dict[str, Use] = {}
for _use in uses():
    ONE_OF.setdefault(_use.role, _use)
ASKED = [*ONE_OF.values(), Use("fit of numbers", "number"), Use("fit of names", "key")]


# -- rejected by the schema, or of a suitable meaning --


@pytest.mark.slow
@every_way
def test_type_is_rejected_by_schema_or_suits_its_use(
    system: str, way: str, effort: Effort, tmp_path: Path
) -> None:
    mine = given(system, way)
    readable = mine.readable
    schemas = []
    for odd in (None, False, True):
        rows = mine.rows(readable, odd=odd)
        source = mine.source(rows, tmp_path / f"schema {odd}")
        schemas.append(dg.read(source, user="who", **mine.options(rows)).schema)
    assert schemas[0] == schemas[1] == schemas[2]
    for kind in mine.held[0]:
        if kind in readable:
            continue
        said = {
            mine.refused([kind], odd, tmp_path / f"{kind.name} {odd}")
            for odd in (None, False, True)
        }
        assert len(said) == 1, (kind.name, said)
        assert said.pop().startswith("SchemaError"), (kind.name, said)
        assert not kind.common, kind.name
    wrong = []
    rows = mine.rows(readable, odd=True)
    table = dg.read(mine.source(rows, tmp_path), user="who", **mine.options(rows))
    for place, kind in enumerate(readable):
        for use in ASKED[place % 3 :: 3] if effort.strength == 2 else ASKED:
            found = use.outcome(table, kind)
            suited = found.suited
            fits = use.suits(kind)
            if suited and not fits and use.role != "beside":
                wrong.append(f"{kind.name} as {use.role} of {use.function}: accepted")
            elif not suited and not found.refused:
                wrong.append(f"{kind.name} as {use.role} of {use.function}: {found.said}")
            elif not suited and kind.common and fits:
                wrong.append(f"{kind.name} as {use.role} of {use.function}: refused: {found.said}")
    assert not wrong, "\n".join(wrong)


# -- read by the definition --


@dataclass(frozen=True)
class Reading:
    """A role of columns, the suitable types, and the values by the definition."""

    role: str
    kinds: list[Kind]
    form: Form
    stated: Callable[[Kind, Cell], Any]
    named: str = "{}"

    def columns(self, kinds: Sequence[Kind]) -> list[tuple[str, Form]]:
        return [(self.named.format(kind.name), self.form) for kind in kinds]


@pytest.mark.slow
@every_way
def test_cells_are_read_by_definition(system: str, way: str, tmp_path: Path) -> None:
    """On every engine, with any malformed cells in the other columns."""
    mine = given(system, way)
    rows = mine.rows(mine.readable, odd=True, stated="CSV" in way)
    wrong: list[str] = []
    found: dict[str, dict[str, list[Any]]] = {}
    for engine in LOCAL:
        source = mine.source(rows, tmp_path)
        table = dg.read(source, user="who", engine=engine, **mine.options(rows))
        table, readings = read_in(table, mine.readable)
        found[engine] = {}
        for reading in readings:
            columns, failed = read_all(table, reading)
            wrong += failed
            for kind, column in columns.items():
                cells = rows.columns[kind.name][1]
                found[engine][f"{reading.role} of {kind.name}"] = column
                wrong += [
                    f"{engine}: {reading.role} of {kind.name}: {str(cell)[:80]} is {str(value)[:80]!r}"
                    for value, cell in zip(column, cells, strict=True)
                    if not agrees(value, kind, cell, reading.stated)
                ]
    one, *others = found.values()
    for other in others:
        wrong += [
            f"engines differ: {name}" for name in one if str(one[name]) != str(other.get(name))
        ]
    assert not wrong, "\n".join(dict.fromkeys(wrong))


def label(kind: Kind, cell: Cell) -> str | None:
    text = kind.label(cell)
    return text_label(text) if text is not None and kind.meaning == "text" else text


def read_in(table: dg.UserTable, kinds: Sequence[Kind]) -> tuple[dg.UserTable, list[Reading]]:
    """The roles of each type, and the table with dates of all times."""
    keys, numbers = [], []
    for kind in kinds:
        with suppress(dg.SchemaError):
            table.require_key(kind.name, "key")
            keys.append(kind)
        with suppress(dg.SchemaError):
            table.require_numbers([kind.name], "number", also=["BOOLEAN"])
            numbers.append(kind)
    times = []
    for kind in kinds:
        with suppress(dg.SchemaError):
            table = table.with_days(f"day of {kind.name}", of=kind.name)
            times.append(kind)
    return table, [
        Reading("key", keys, "key", label),
        Reading("number", numbers, "number", Kind.number),
        Reading("day", times, "key", Kind.day, "day of {}"),
    ]


def read_all(table: dg.UserTable, reading: Reading) -> tuple[dict[Kind, list[Any]], list[str]]:
    """Columns of all compatible types, and the errors of the others."""
    known = passing(reading.kinds, lambda some: not read_error(table, reading.columns(some)))
    failed = [
        f"{reading.role} of {kind.name}: {read_error(table, reading.columns([kind]))}"
        for kind in reading.kinds
        if kind not in known
    ]
    if not known:
        return {}, failed
    with table.open_engine() as engine:
        columns = engine.columns(reading.columns(known)).columns
    return {kind: column.to_pylist() for kind, column in zip(known, columns, strict=True)}, failed


def agrees(found: Any, kind: Kind, cell: Cell, stated: Callable[[Kind, Cell], Any]) -> bool:
    """Whether a cell is read as stated; a real number within two units of its last digit."""
    if cell.value is UNSTATED:
        return True
    expected = stated(kind, cell)
    if isinstance(expected, float) and math.isnan(expected):
        # Some files preserve a null; neither is a number.
        return found is None or bool(math.isnan(found))
    if found is None or expected is None:
        return bool(found is expected or (found is None and cell.or_missing))
    if isinstance(expected, float):
        return bool(found == pytest.approx(expected, rel=5e-16, abs=0))
    return bool(str(found) == expected)


def read_error(table: dg.UserTable, columns: list[tuple[str, Form]]) -> str:
    try:
        with table.open_engine() as engine:
            found = engine.columns(columns)
        for column in found.columns:
            column.to_pylist()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


# -- released by the definition, with or without a malformed row --


def check(case: Case, folder: Path, *, brief: bool = False) -> str:
    """Return the error of a case, or nothing. A brief check has no plain row."""
    compared = (None, True) if brief else (None, False, True)
    said = {odd: case.of(odd, folder)[0] for odd in compared}
    outcomes = {found.without_numbers for found in said.values()}
    if len(outcomes) > 1:
        return f"{case}: one person's row decides: {outcomes}"
    if not said[True].published and not said[True].refused:
        return f"{case}: {said[True].said}"
    if not said[True].published:
        return ""
    labels = {odd: list(found.numbers or ()) for odd, found in said.items()}
    if (
        case.use.role not in ("selected",)
        and case.use.function != "top"
        and labels[None] != labels[True]
    ):
        return f"{case}: one person's row decides what is published: {labels}"
    if not case.use.suits(case.kind):
        return f"{case}: accepted, and the type suits no such use"
    if case.kind.meaning == "unusable":
        return ""
    found, rows = case.of(True, folder / "stated", stated=True)
    expected = case.use.expected(rows, case.kind)
    if expected.published and not same(found.numbers, expected.numbers):
        return f"{case}: {found.numbers} in place of {expected.numbers}"
    return ""


@pytest.mark.slow(cases=2)
@every_way
def test_malformed_row_has_no_effect_when_read_by_definition(
    system: str, way: str, effort: Effort, tmp_path: Path
) -> None:
    wrong = []
    for place, case in enumerate(cases(effort.strength, system, way)):
        if problem := check(case, tmp_path / str(place), brief=effort.strength == 2):
            wrong.append(problem)
    assert not wrong, "\n".join(wrong)


#: Past misreadings, and releases ended by one row: the form, the type, and the use.
SEEN = [
    ("pandas", "frame", "datetime64[ns, UTC]", Use("count", "day")),
    ("pandas", "frame", "datetime64[ns, UTC]", Use("count", "region")),
    ("pandas", "Parquet of a frame", "datetime64[ns, UTC]", Use("count", "day")),
    ("pandas", "frame", "datetime64[s]", Use("count", "day")),
    ("Arrow", "table", "timestamp[s]", Use("count", "day")),
    ("Arrow", "table", "timestamp[ms]", Use("count", "region")),
    ("Arrow", "Parquet", "timestamp[ms]", Use("count", "day")),
    ("Arrow", "Parquet", "timestamp[ms]", Use("count", "beside")),
    ("Arrow", "Parquet", "timestamp[ms, UTC]", Use("count", "beside")),
    ("Polars", "frame", "Datetime[ms]", Use("count", "day")),
    ("Polars", "frame", "Int128", Use("count", "beside")),
    ("DuckDB", "relation", "TIMESTAMPTZ_NS", Use("count", "day")),
    ("DuckDB", "relation", "DOUBLE[2]", Use("count", "key")),
    ("Arrow", "table", "decimal128(38, 2)", Use("count", "key")),
    ("Arrow", "table", "decimal128(38, 2)", Use("sum", "number")),
    ("Arrow", "Parquet", "decimal128(38, 2)", Use("count", "user")),
    ("Arrow", "table", "runs of string", Use("count", "user")),
    ("Arrow", "Parquet", "json", Use("count", "key")),
    ("pandas", "frame", "period", Use("count", "key")),
]


@pytest.mark.parametrize("engine", LOCAL)
@pytest.mark.parametrize(
    ("system", "way", "name", "use"), SEEN, ids=[f"{w}-{k}-{u.role}" for _, w, k, u in SEEN]
)
def test_past_misreadings_stay_fixed(
    system: str, way: str, name: str, use: Use, engine: Any, tmp_path: Path
) -> None:
    mine = given(system, way)
    assert SYSTEMS[system].kinds[name] in mine.held[0]
    assert not check(Case(mine, SYSTEMS[system].kinds[name], use, engine), tmp_path)


@pytest.mark.parametrize("engine", LOCAL)
def test_integers_wider_than_arrow_are_rejected_with_times(engine: Any, tmp_path: Path) -> None:
    polars = SYSTEMS["Polars"]
    kinds = [polars.kinds[name] for name in ("Int128", "Datetime[us]")]
    source = tmp_path / "rows.parquet"
    polars.make(polars.rows(kinds, odd=True)).write_parquet(source)
    found = Use("count", "day").of(source, kinds[1], engine=engine)
    assert found.refused, found.said
    assert "128-bit integers" in found.said


# -- one label that is long --

LONG = 20 << 20


@pytest.mark.slow
@pytest.mark.parametrize("engine", LOCAL)
@pytest.mark.parametrize("role", ["key", "user", "cell", "region", "selected", "cells", "beside"])
@pytest.mark.parametrize(
    ("system", "way", "kind"),
    [
        ("Arrow", "table", "string"),
        ("Arrow", "Parquet", "string"),
        ("Arrow", "Polars", "string"),
        ("Arrow", "DuckDB", "string"),
        ("pandas", "frame", "object"),
        ("text", "Parquet text", "text"),
    ],
)
def test_one_long_label_ends_no_release(
    system: str, way: str, kind: str, role: str, engine: Any, tmp_path: Path
) -> None:
    """A 20 MiB text of a user with several texts is not a label at the smallest memory."""
    mine, plain = given(system, way), SYSTEMS[system].kinds[kind]
    raw = plain.plain[0].raw
    odd = {f"long {place}": Cell(raw * (LONG + place), None) for place in range(3)}
    case = Case(mine, replace(plain, odd=odd), Use("count", role), engine)
    said = {}
    for is_odd in (False, True):
        rows = mine.system.rows([case.kind], odd=is_odd)
        source = mine.source(rows, tmp_path / str(is_odd))
        said[is_odd] = case.use.of(
            source, case.kind, engine=engine, memory="256MB", **mine.options(rows)
        )
    assert said[True].published, said[True].said
    expected = case.use.expected(rows, case.kind)
    assert same(said[True].numbers, expected.numbers)


# -- names of columns --

#: Names of the other columns; each must be distinct from all others, or is rejected.
NAMES: list[tuple[str, ...]] = [
    ("a", "a"),
    ("a", "A"),
    ("a", "A", "A_1"),
    ("a", "a_1", "A"),
    ("a:1", "a"),
    ("", "a"),
    ('"', "'"),
    ("x" * 300, "X" * 300),
    ("rowid", "a"),
    ("source", "ticks"),
    ("c0", "k0"),
    ("user_", "cell"),
    ("ä", "Ä"),
    ("ß", "SS"),
    ("a\x00b", "a"),
    ("a b", "a.b"),
]


def frames(names: Sequence[str], folder: Path) -> dict[str, Callable[[], Any]]:
    """Tables with columns of these names, identifiable by their numbers."""
    rows = [np.arange(20), *(np.full(20, place + 1) for place in range(len(names)))]
    known = ["who", *names]
    table = pa.table([pa.array(row) for row in rows], names=known)

    def csv() -> Path:
        path = folder / "names.csv"
        lines = [known, *zip(*(map(str, row) for row in rows), strict=True)]
        quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in line) for line in lines]
        path.write_text("\n".join(quoted) + "\n")
        return path

    def parquet() -> Path:
        pq.write_table(table, folder / "names.parquet")
        return folder / "names.parquet"

    def pandas() -> pd.DataFrame:
        frame = pd.concat([pd.Series(row) for row in rows], axis=1)
        frame.columns = known
        return frame

    def relation() -> Any:
        listed = ", ".join(
            f'{value} AS "{name.replace(chr(34), 2 * chr(34))}"'
            for name, value in zip(known, ["who", *range(1, len(names) + 1)], strict=True)
        )
        return duckdb.sql(f"SELECT {listed} FROM range(20) t(who)")

    return {
        "Arrow": lambda: table,
        "Parquet": parquet,
        "CSV": csv,
        "pandas": pandas,
        "Polars": lambda: (
            pl.DataFrame(dict(zip(known, rows, strict=True)))
            if len({*known}) == len(known) and not any(chr(0) in name for name in known)
            else table
        ),
        "DuckDB": relation,
    }


@pytest.mark.parametrize("names", NAMES, ids=str)
@pytest.mark.parametrize("engine", LOCAL)
def test_column_is_found_by_its_name_or_rejected(
    names: tuple[str, ...], engine: Any, tmp_path: Path
) -> None:
    """Neither types nor values of columns are mixed up."""
    wrong = []
    for form, make in frames(names, tmp_path).items():
        try:
            source = make()
        except Exception:
            continue
        try:
            types = dict.fromkeys(names, "DOUBLE") if form == "CSV" else None
            options: dict[str, Any] = {"rows": "as given"} if form == "DuckDB" else {}
            table = dg.read(source, user="who", engine=engine, types=types, threads=1, **options)
        except dg.SchemaError:
            continue
        except Exception as error:
            wrong.append(f"{form}: {type(error).__name__}: {error}")
            continue
        for place, name in enumerate(names):
            asked: dict[str, Any] = {
                "bounds": (0, 4),
                "unit": dg.User(),
                "clip": 4.0,
                "epsilon": 1e6,
            }
            try:
                found = dg.sum(table, name, **asked).estimate[0]
            except dg.SchemaError:
                continue
            except Exception as error:
                wrong.append(f"{form}: {name!r}: {type(error).__name__}: {error}")
                continue
            if abs(found - 20 * (place + 1)) > 1:
                wrong.append(f"{form}: {name!r} is read as column {found / 20 - 1:g}, not {place}")
    assert not wrong, "\n".join(wrong)


# -- a file that changes while its table is open --


def before_and_after(kind: str, folder: Path) -> tuple[Path, Callable[[list[str]], None]]:
    """A file, and a function that builds rows from it."""
    path = folder / f"rows.{kind}"

    def write(rows: list[str]) -> None:
        if kind == "parquet":
            who = [int(row.split(",")[0]) for row in rows]
            pq.write_table(pa.table({"who": who, "n": [1.0] * len(who)}), path)
            return
        raw = "\n".join(["who,n", *rows, ""]).encode()
        path.write_bytes(gzip.compress(raw) if kind.endswith("gz") else raw)

    return path, write


PLAIN, QUOTED = [f"{user},1" for user in range(30)], ['31,"1" x', '32,1"', "33,1"]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("engine", LOCAL)
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (PLAIN, PLAIN + QUOTED),
        (PLAIN + QUOTED, PLAIN + QUOTED + [f"{user},1" for user in range(40, 70)]),
        (QUOTED + PLAIN, PLAIN),
        (PLAIN, PLAIN[:9]),
    ],
    ids=["odd rows come", "rows come", "odd rows go", "rows go"],
)
def test_open_table_reads_the_current_file(
    first: list[str], then: list[str], kind: str, engine: Any, tmp_path: Path
) -> None:
    path, write = before_and_after(kind, tmp_path)

    def counted(table: dg.UserTable) -> float:
        asked: dict[str, Any] = {"unit": dg.User(), "clip": 1.0, "epsilon": 1e6}
        return round(float(dg.count(table, **asked).estimate[0]))

    write(first)
    options: dict[str, Any] = {"user": "who", "engine": engine, "threads": 1}
    table = dg.read(path, **options)
    counted(table)
    write(then)
    assert counted(table) == counted(dg.read(path, **options))
    assert counted(table) != len(first) or len(first) == len(then)


# -- Spark --


@pytest.mark.slow(full=True)
def test_spark_types_are_rejected_or_read_by_definition(spark: Any, tmp_path: Path) -> None:
    mine = Given(spark_system(spark), "Spark")
    wrong = []
    for place, kind in enumerate(mine.readable):
        for use in ASKED[place % 4 :: 4]:
            case = Case(mine, kind, use, "spark")
            if problem := check(case, tmp_path / str(place)):
                wrong.append(problem)
    assert not wrong, "\n".join(wrong)
