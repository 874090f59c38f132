"""Nothing that stands in a row decides whether a table is refused, or what is read of others.

Every type × every use × every way to give a table × both engines: refused by the schema, in the same
sentence whatever the rows, before anything is charged; or read as the definition says.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.claims.odd_cases import LOCAL, WAYS, Case, Given, cases, given, same

import dpgrain as dg
from dpgrain.statistics.statistic import STATISTICS
from dpgrain.testing.odd import UNSTATED, Cell, Kind
from dpgrain.testing.odd.cells import passing
from dpgrain.testing.odd.uses import FUNCTIONS, ROLES, Use, uses

every_way = pytest.mark.parametrize(("system", "way"), WAYS, ids=" ".join)
# One statistic of each role, which refuses a type as all others do.
ONE_OF: dict[str, Use] = {}
for _use in uses():
    ONE_OF.setdefault(_use.role, _use)
ASKED = [*ONE_OF.values(), Use("fit of numbers", "number"), Use("fit of names", "key")]


@pytest.fixture
def strength(request: pytest.FixtureRequest) -> int | None:
    """How many options a case of a product is to hold together: pairs, triples, or all of them."""
    part = request.config.getoption("--search")
    strengths: dict[str, int | None] = {"sample": 2, "rest": 3, "all": None}
    return strengths[part]


def test_every_statistic_is_used() -> None:
    """What the registry knows is published by one of the functions, or this list has a hole."""
    named = {name.replace("_", " ") for name in FUNCTIONS} | {"binned histogram"}
    assert set(STATISTICS) <= named
    assert {use.role for use in uses()} == set(ROLES)


# -- refused by the schema, or of a meaning that suits --


@every_way
def test_a_type_is_refused_by_the_schema_or_suits_its_use(
    system: str, way: str, strength: int | None, tmp_path: Path
) -> None:
    mine = given(system, way)
    readable = mine.readable
    schemas = []
    for odd in (None, False, True):
        rows = mine.rows(readable, odd=odd)
        source = mine.source(rows, tmp_path / f"schema {odd}")
        schemas.append(dg.read(source, user="who", types=rows.types, threads=1).schema)
    assert schemas[0] == schemas[1] == schemas[2]
    for kind in mine.held[0]:
        if kind in readable:
            continue
        said = {mine.refused([kind], odd, tmp_path / f"{kind.name} {odd}") for odd in (None, False, True)}
        assert len(said) == 1, (kind.name, said)
        assert said.pop().startswith("SchemaError"), (kind.name, said)
        assert not kind.common, kind.name
    wrong = []
    rows = mine.rows(readable, odd=True)
    table = dg.read(mine.source(rows, tmp_path), user="who", types=rows.types, threads=1)
    for place, kind in enumerate(readable):
        for use in ASKED[place % 3 :: 3] if strength == 2 else ASKED:
            found = use.asked_of(table, kind)
            suited = found.suited
            fits = use.suits(kind)
            if suited and not fits and use.role != "beside":
                wrong.append(f"{kind.name} as {use.role} of {use.function}: accepted")
            elif not suited and not found.refused:
                wrong.append(f"{kind.name} as {use.role} of {use.function}: {found.said}")
            elif not suited and kind.common and fits:
                wrong.append(f"{kind.name} as {use.role} of {use.function}: refused: {found.said}")
    assert not wrong, "\n".join(wrong)


# -- read as the definition says --


def read_as(table: dg.UserTable, kinds: list[Kind], form: Any) -> list[list[Any]]:
    with table.open_engine() as engine:
        columns = engine.columns([(kind.name, form) for kind in kinds])
    return [column.to_pylist() for column in columns.columns]


def agrees(found: Any, cell: Cell, stated: Any) -> bool:
    """Whether a cell is read as it is stated to be; a real number within two units of its last digit."""
    if cell.value is UNSTATED:
        return True
    if found is None or stated is None:
        return found is stated or (found is None and cell.or_missing)
    if isinstance(stated, float):
        return bool(found != found and stated != stated) or found == pytest.approx(stated, rel=5e-16, abs=0)
    return str(found) == stated


@every_way
@pytest.mark.parametrize("engine", LOCAL)
def test_cells_are_read_as_the_definition_says(
    system: str, way: str, engine: str, tmp_path: Path
) -> None:
    mine = given(system, way)
    rows = mine.rows(mine.readable, odd=True)
    source = mine.source(rows, tmp_path)
    table = dg.read(source, user="who", types=rows.types, engine=engine, threads=1)
    keys, numbers, times = [], [], []
    for kind in mine.readable:
        for chosen, checks in (
            (keys, lambda: table.require_key(kind.name, "key")),
            (numbers, lambda: table.require_numbers([kind.name], "number", also=["BOOLEAN"])),
        ):
            try:
                checks()
            except dg.SchemaError:
                continue
            chosen.append(kind)
        if kind.meaning in ("time", "moment"):
            try:
                table = table.with_days(f"day of {kind.name}", of=kind.name)
            except dg.SchemaError:
                continue
            times.append(kind)
    wrong = []
    asked: list[tuple[str, list[Kind], Any, Callable[[Kind], Callable[[Cell], Any]], str]] = [
        ("key", keys, "key", lambda kind: kind.label, "{}"),
        ("number", numbers, "number", lambda kind: kind.number, "{}"),
        ("day", times, "key", lambda kind: kind.day, "day of {}"),
    ]
    for role, kinds, form, stated, named in asked:
        def reads(some: Any, form: Any = form, named: str = named) -> bool:
            return not read_error(table, [named.format(kind.name) for kind in some], form)

        known = passing(kinds, reads)
        for kind in kinds:
            if kind not in known:
                said = read_error(table, [named.format(kind.name)], form)
                wrong.append(f"{role} of {kind.name}: {said}")
        if not known:
            continue
        with table.open_engine() as opened:
            columns = opened.columns([(named.format(kind.name), form) for kind in known])
        for place, kind in enumerate(known):
            cells = rows.columns[kind.name][1]
            for found, cell in zip(columns.column(place).to_pylist(), cells, strict=True):
                if kind.meaning != "unusable" and not agrees(found, cell, stated(kind)(cell) if cell.value is not UNSTATED else None):
                    wrong.append(f"{role} of {kind.name}: {str(cell)[:80]} is read as {str(found)[:80]!r}")
    assert not wrong, "\n".join(dict.fromkeys(wrong))


def read_error(table: dg.UserTable, columns: list[str], form: Any) -> str:
    try:
        with table.open_engine() as engine:
            engine.columns([(name, form) for name in columns])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


# -- released as the definition says, and the same with an odd row as without it --


def check(case: Case, folder: Path) -> str:
    """What is wrong with a case; nothing where nothing is."""
    said = {odd: case.of(odd, folder)[0] for odd in (None, False, True)}
    outcomes = {found.without_numbers for found in said.values()}
    if len(outcomes) > 1:
        return f"{case}: one person's row decides: {outcomes}"
    if not said[True].published and not said[True].refused:
        return f"{case}: {said[True].said}"
    if not said[True].published:
        return ""
    labels = {odd: list(found.numbers or ()) for odd, found in said.items()}
    if case.use.role not in ("selected",) and case.use.function != "top" and not labels[None] == labels[True]:
        return f"{case}: one person's row decides what is published: {labels}"
    found, rows = case.of(True, folder / "stated", stated=True)
    if not case.use.suits(case.kind) or case.kind.meaning == "unusable":
        return ""
    expected = case.use.expected(rows, case.kind)
    if expected.published and not same(found.numbers, expected.numbers):
        return f"{case}: {found.numbers} in place of {expected.numbers}"
    return ""


@every_way
def test_one_odd_row_decides_nothing_and_is_read_as_the_definition_says(
    system: str, way: str, strength: int | None, tmp_path: Path
) -> None:
    wrong = []
    for place, case in enumerate(cases(strength, system, way)):
        if problem := check(case, tmp_path / str(place)):
            wrong.append(problem)
    assert not wrong, "\n".join(wrong)
