"""Random programs of steps on tables have the rows, columns and allowed units of plain Python."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.effort import Effort
from tests.tables.engines.cluster import Cluster
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.errors import DpgrainError
from dpgrain.tables.blocks import UnitBlocks

Row = dict[str, Any]
STEPS = 4
NAMES = ("n", "N", "kind", "at", "day", "paid in", "zone", "one", "two")
KEYS = ("int", "text", "bool", "date")
ABSENT = {"int": 99, "text": "absent", "bool": True, "date": "1999-01-01"}


def rows_of(count: int, draw: random.Random) -> list[Row]:
    """Records of a few people, with a value of each type, some of them missing."""
    start = dt.datetime(2025, 1, 1)
    return [
        {
            "who": draw.choice([1, 1, 2, 2, 3, 4, None]),
            "n": draw.choice([0, 1, 2, 3, -5, None]),
            "kind": draw.choice(["a", "A", "b", "", None]),
            "at": draw.choice([None, *(start + dt.timedelta(hours=19 * k) for k in range(5))]),
            "paid in": draw.choice([0.5, -1.25, 3.0, math.inf, math.nan, None]),
            "folder": draw.choice(["east", "west"]),
        }
        for _ in range(count)
    ]


TYPES = {
    "who": pa.int64(),
    "n": pa.int64(),
    "kind": pa.string(),
    "at": pa.timestamp("us"),
    "paid in": pa.float64(),
    "folder": pa.string(),
}
KINDS = {
    "who": "int",
    "n": "int",
    "kind": "text",
    "at": "time",
    "paid in": "real",
    "folder": "text",
}
PUBLIC: list[tuple[list[Row], dict[str, str]]] = [
    ([{"key": "a", "zone": "x", "two": 7}, {"key": "b", "zone": "y", "two": None}],
     {"zone": "text", "two": "int"}),
    ([{"key": "A", "day": "x", "n": 1}, {"key": None, "day": "z", "n": 2}],
     {"day": "text", "n": "int"}),
    ([{"key": "z", "one": True}, {"key": "", "one": False}, {"key": "a", "one": True}],
     {"one": "bool"}),
]  # fmt: skip


@dataclass(frozen=True)
class Plain:
    """A table of plain Python.

    Args:
        origin: column → what it is: "own", "cells", "derived" or "days".
        whole: whether rows combine several records, or two tables.
        carried: grouping columns of `per_user`: a row combines records of one cell of each.
    """

    rows: list[Row]
    kinds: dict[str, str]
    origin: dict[str, str]
    whole: bool = False
    carried: frozenset[str] = frozenset()
    regions: tuple[tuple[str, Any], ...] = ()

    def is_taken(self, name: str) -> bool:
        return name.casefold() in {known.casefold() for known in self.kinds}

    def columns(self, *kinds: str, cells: bool = False) -> list[str]:
        return [
            name
            for name, kind in self.kinds.items()
            if kind in kinds and (cells or self.origin[name] != "cells")
        ]

    def added(self, name: str, kind: str, origin: str, of: Callable[[Row], Any]) -> Plain:
        return replace(
            self,
            rows=[{**row, name: of(row)} for row in self.rows],
            kinds={**self.kinds, name: kind},
            origin={**self.origin, name: origin},
        )


#: A program's step in dpgrain, and the resulting table in plain Python; None if it is rejected.
Step = tuple[Callable[[dg.UserTable], dg.UserTable], Plain | None]


def finite(value: Any) -> Any:
    return value if value is not None and math.isfinite(value) else None


def lifted(of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *parts: None if None in parts else of(*parts)


def expression(table: Plain, draw: random.Random) -> tuple[str, str, Callable[[Row], Any]]:
    """An expression of a column, its type and its function in plain Python."""
    name = draw.choice(table.columns("int", "text", "bool", "date", "real", "time"))
    of = f"`{name}`"
    made: dict[str, list[tuple[str, str, Callable[[Any], Any]]]] = {
        "int": [
            (f"{of} * 2 + 1", "int", lifted(lambda v: v * 2 + 1)),
            (f"coalesce({of}, 7)", "int", lambda v: 7 if v is None else v),
            (f"bins({of}, 0, 3)", "text",
             lifted(lambda v: "below 0" if v < 0 else "0 to 3" if v < 3 else "3 and above")),
            (f"{of} > 1", "bool", lifted(lambda v: v > 1)),
        ],
        "text": [
            (f"coalesce(lower({of}), 'z')", "text", lambda v: "z" if v is None else v.lower()),
            (f"prefix({of}, 1)", "text", lifted(lambda v: v[:1])),
            (f"if({of} = 'a', 'q', {of})", "text", lambda v: "q" if v == "a" else v),
            (f"{of} in ('a', 'b')", "bool", lifted(lambda v: v in ("a", "b"))),
            (f"length({of})", "int", lifted(len)),
        ],
        "bool": [
            (f"not {of}", "bool", lifted(lambda v: not v)),
            (f"if({of}, 3, -1)", "int", lambda v: 3 if v else -1),
            (f"known({of})", "bool", lambda v: v is not None),
        ],
        "date": [
            (f"day({of})", "date", lambda v: v),
            (f"weekday({of})", "int", lifted(lambda v: v.isoweekday())),
            (f"{of} > '2025-01-01'", "bool", lifted(lambda v: v > dt.date(2025, 1, 1))),
        ],
        "real": [
            (f"{of} / 2", "real", lambda v: lifted(lambda f: f / 2)(finite(v))),
            (f"{of} > 0", "bool", lambda v: lifted(lambda f: f > 0)(finite(v))),
            (f"known({of})", "bool", lambda v: finite(v) is not None),
        ],
        "time": [
            (f"day({of})", "date", lifted(lambda v: v.date())),
            (f"hour({of})", "int", lifted(lambda v: v.hour)),
        ],
    }  # fmt: skip
    text, kind, function = draw.choice(made[table.kinds[name]])
    return text, kind, lambda row: function(row[name])


def condition(table: Plain, draw: random.Random) -> tuple[str, Callable[[Row], Any]]:
    while True:
        text, kind, function = expression(table, draw)
        if kind == "bool":
            return text, function


def derive(table: Plain, draw: random.Random) -> Step:
    name, (text, kind, function) = draw.choice(NAMES), expression(table, draw)
    made = None if table.is_taken(name) else table.added(name, kind, "derived", function)
    return lambda rows: rows.derive({name: text}), made


def filter_(table: Plain, draw: random.Random) -> Step:
    text, function = condition(table, draw)
    kept = [row for row in table.rows if function(row)]
    return lambda rows: rows.filter(text), replace(table, rows=kept)


def cells(table: Plain, draw: random.Random) -> Step:
    name, of = draw.choice(NAMES), draw.choice(table.columns("int", "text", cells=True))
    by: dict[Any, str] = {"a": "p", "b": "p", "q": "r"}
    if table.kinds[of] == "int":
        by = {0: "p", 1: "p", 3: "r"}
    drops = draw.random() < 0.5
    asked = dg.Elements.from_mapping(by, missing="drop" if drops else "own")

    def cell(row: Row) -> Any:
        value = row[of]
        if value is None or value in by or drops:
            return by.get(value)
        return f"own: {value}"

    made = None if table.is_taken(name) else table.added(name, "text", "cells", cell)
    return lambda rows: rows.with_cells(name, of=of, by=asked), made


def days(table: Plain, draw: random.Random) -> Step:
    name, times = draw.choice(NAMES), table.columns("time")
    of = draw.choice(times or ["n"])
    made = None
    if times and not table.is_taken(name):
        made = table.added(
            name, "date", "days", lambda row: None if row[of] is None else row[of].date()
        )
    return lambda rows: rows.with_days(name, of=of), made


def where(table: Plain, draw: random.Random) -> Step:
    name = draw.choice([name for name in table.kinds if name != "who"])
    low, high = dt.date(2025, 1, 1), dt.date(2025, 1, 2)
    regions: dict[str, tuple[Any, Callable[[Any], bool]]] = {
        "int": ((0, 2), lambda v: v is not None and 0 <= v <= 2),
        "text": (["a", "east", None], lambda v: v in ("a", "east", None)),
        "date": ((str(low), str(high)), lambda v: v is not None and low <= v <= high),
        "time": ((None, "2025-01-02"), lambda v: v is not None and v.date() <= high),
        "bool": (True, lambda v: v is True),
        "real": (1, lambda v: False),
    }
    value, inside = regions[table.kinds[name]]
    made = None
    own = table.origin[name] in ("own", "days")
    if not table.whole and own and table.kinds[name] != "real":
        kept = [row for row in table.rows if inside(row[name])]
        made = replace(table, rows=kept, regions=(*table.regions, (name, value)))
    return lambda rows: rows.where({name: value}), made


def number(table: Plain, draw: random.Random) -> tuple[str, str, Callable[[list[Row]], Any]]:
    text, holds = condition(table, draw)
    made: list[tuple[str, str, Callable[[list[Row]], Any]]] = [
        ("count()", "int", len),
        (f"count({text})", "int", lambda rows: sum(bool(holds(row)) for row in rows)),
        (f"any({text})", "bool", lambda rows: any(holds(row) for row in rows)),
        (f"all({text})", "bool", lambda rows: all(holds(row) for row in rows)),
    ]
    for name in table.columns("int"):
        made += [
            (f"total(`{name}`)", "int", of_values(name, sum)),
            (f"total(`{name}`) - count()", "int", less_rows(of_values(name, sum))),
            (f"max(`{name}`)", "int", of_values(name, lambda values: max(values, default=None))),
            (f"total(`{name}`, {text})", "int", of_values(name, sum, holds)),
        ]
    for name in table.columns("text"):
        made += [
            (f"distinct(`{name}`)", "int", of_values(name, lambda values: len(set(values)))),
            (f"most(`{name}`)", "text", of_values(name, most)),
        ]
    return draw.choice(made)


def of_values(
    name: str, function: Callable[[list[Any]], Any], holds: Callable[[Row], Any] | None = None
) -> Callable[[list[Row]], Any]:
    """A function of the values of a column, in rows that satisfy a condition."""
    return lambda rows: function(
        [row[name] for row in rows if row[name] is not None and (holds is None or holds(row))]
    )


def less_rows(function: Callable[[list[Row]], Any]) -> Callable[[list[Row]], Any]:
    return lambda rows: function(rows) - len(rows)


def most(values: list[Any]) -> Any:
    return min(Counter(values).items(), key=lambda each: (-each[1], each[0]), default=(None,))[0]


def per_user(table: Plain, draw: random.Random) -> Step:
    keys = draw.sample(table.columns(*KEYS, cells=True), draw.choice([0, 0, 1, 2]))
    keys = [key for key in dict.fromkeys(keys) if key != "who"]
    names = draw.sample(NAMES, 2)
    asked = {name: number(table, draw) for name in names}
    folded = [name.casefold() for name in ("who", *keys, *names)]
    made = None
    if len(set(folded)) == len(folded):
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in table.rows:
            key = tuple(row[name] for name in ("who", *keys))
            if None not in key:
                groups.setdefault(tuple(map(as_key, key)), []).append(row)
        kinds = {key: "int" if table.kinds[key] == "int" else "text" for key in ("who", *keys)} | {
            name: kind for name, (_, kind, _) in asked.items()
        }
        made = Plain(
            [
                dict(zip(("who", *keys), key, strict=True))
                | {name: of(rows) for name, (_, _, of) in asked.items()}
                for key, rows in groups.items()
            ],
            kinds,
            dict.fromkeys(kinds, "own"),
            True,
            frozenset(keys) & (table.carried if table.whole else set(keys)),
            table.regions,
        )
    texts = {name: text for name, (text, _, _) in asked.items()}
    return lambda rows: rows.per_user(by=keys or None, **texts), made


def as_key(value: Any) -> Any:
    """A value as the key of a table of people."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, dt.date) else value


def join_public(table: Plain, draw: random.Random) -> Step:
    rows, kinds = draw.choice(PUBLIC)
    on = draw.choice(table.columns("int", "text", "text", cells=True))
    made = None
    if not any(map(table.is_taken, kinds)) and table.origin[on] != "cells":
        # No key is a whole number.
        known = {row["key"]: row for row in rows if row["key"] is not None}
        made = table
        for name, kind in kinds.items():
            public = {key: row[name] for key, row in known.items()}
            made = made.added(name, kind, "derived", looked_up(public, on))
        # dpgrain protects only whole users after this step.
        made = replace(made, carried=frozenset())
    columns = {name: [row[name] for row in rows] for name in ("key", *kinds)}
    return lambda own: own.join_public(pa.table(columns), on=(on, "key")), made


def looked_up(public: dict[Any, Any], on: str) -> Callable[[Row], Any]:
    return lambda row: public.get(row[on])


def join(table: Plain, draw: random.Random, base: Base, engine: Any) -> Step:
    others, opened = base.table(), base.opened(draw, engine)
    for _ in range(draw.choice([0, 1, 2])):
        step, made = draw.choice([per_user, filter_, where, derive, cells])(others, draw)
        if made is not None:
            others, opened = made, step(opened)
    free = [name for name in others.columns("int", "text", "bool", "date", "real")
            if name != "who" and draw.random() < 0.7]  # fmt: skip
    taken = free or ["who"]
    made = None
    if free and not any(map(table.is_taken, free)):
        persons: dict[Any, list[Row]] = {}
        for row in others.rows:
            if row["who"] is not None:
                persons.setdefault(row["who"], []).append(row)
        nobody = dict.fromkeys(free)
        made = replace(
            table,
            rows=[
                {**own, **{name: other[name] for name in free}}
                for own in table.rows
                for other in persons.get(own["who"], [nobody])
            ],
            kinds={**table.kinds, **{name: others.kinds[name] for name in free}},
            origin={**table.origin, **{name: others.origin[name] for name in free}},
            whole=True,
            carried=frozenset(),
            regions=table.regions if as_set(table.regions) == as_set(others.regions) else (),
        )
    return lambda rows: rows.join(opened, columns=taken, pairs=100), made


def as_set(regions: Any) -> set[str]:
    return set(map(repr, regions))


@dataclass(frozen=True)
class Base:
    """Records in memory and in folders, which programs begin with."""

    rows: list[Row]
    folder: Path
    known: dict[tuple[bool, int], dg.UserTable] = field(default_factory=dict)

    def table(self) -> Plain:
        return Plain(self.rows, dict(KINDS), dict.fromkeys(KINDS, "own"))

    def opened(self, draw: random.Random, engine: Any = "duckdb") -> dg.UserTable:
        folders = draw.random() < 0.5 and not isinstance(engine, Cluster)
        place = folders, id(engine)
        if place not in self.known:
            source: Any = self.folder if folders else arrow(self.rows)
            self.known[place] = dg.read(source, user="who", engine=engine)
        return self.known[place]


def arrow(rows: list[Row]) -> pa.Table:
    return pa.table(
        {name: pa.array([row[name] for row in rows], kind) for name, kind in TYPES.items()}
    )


def program(base: Base, draw: random.Random, engine: Any) -> tuple[dg.UserTable, Plain]:
    """A table after a few steps; a step rejected by plain Python raises an error."""
    table, opened = base.table(), base.opened(draw, engine)
    steps: list[Callable[[Plain, random.Random], Step]] = [
        derive,
        filter_,
        cells,
        days,
        where,
        per_user,
        per_user,
        join_public,
    ]
    steps += [lambda own, draw: join(own, draw, base, engine)] * 2
    done = 0
    for _ in range(3 * STEPS):
        step, made = draw.choice(steps)(table, draw)
        if made is None:
            with pytest.raises(DpgrainError):
                step(opened)
            continue
        table, opened, done = made, step(opened), done + 1
        same_schema(base, opened, table)
        if done == STEPS:
            break
    return opened, table


def bits(value: Any) -> Any:
    return value.hex() if isinstance(value, float) else value


def same_rows(opened: dg.UserTable, table: Plain, names: list[str]) -> None:
    with opened.open_engine() as engine:
        found = engine.columns([(name, "as it is") for name in names])
    assert Counter(tuple(map(bits, row.values())) for row in found.to_pylist()) == Counter(
        tuple(bits(row[name]) for name in names) for row in table.rows
    )


def same_counts(opened: dg.UserTable, table: Plain, key: str) -> None:
    """A release with almost no noise; its items are known from the steps or stated."""
    expected = Counter(
        as_key(row[key]) for row in table.rows if row[key] is not None and row["who"] is not None
    )
    made = opened.derived.get(key)
    domain = (
        None if made is not None and made.values else list(expected) or [ABSENT[table.kinds[key]]]
    )
    found = dg.count(
        opened, by=key, domain=domain, unit=dg.User(), clip=1e3, epsilon=1e9, delta=1e-6
    )
    counts = zip(found.items.to_pylist(), map(round, found.estimate), strict=True)
    assert {item: count for item, count in counts if count} == expected


def allowed(opened: dg.UserTable, unit: Any, key: str) -> bool:
    try:
        UnitBlocks.for_unit(unit, opened, [key])
    except DpgrainError:
        return False
    return True


def same_schema(base: Base, opened: dg.UserTable, table: Plain) -> None:
    # Parts of features, such as `count()`, are also columns.
    assert {name for name in opened.schema if "(" not in name} == set(table.kinds)
    assert set(opened.derived) == {
        name for name, origin in table.origin.items() if origin == "derived"
    }
    assert opened.scope == scope_of(base, table)
    keys = table.columns(*KEYS, cells=True)
    assert allowed(opened, dg.User(), keys[0])
    assert allowed(opened, dg.Record(), keys[0]) == (not table.whole)
    for key in keys:
        assert allowed(opened, dg.Element(key), key) == (not table.whole or key in table.carried)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    rows = rows_of(24, random.Random(5))
    folder = tmp_path_factory.mktemp("records")
    ds.write_dataset(
        arrow(rows),
        folder,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("folder", pa.string())]), flavor="hive"),
    )
    return Base(rows, folder)


def test_programs_have_the_rows_of_plain_python(base: Base, effort: Effort) -> None:
    engines = ["duckdb", "duckdb", InMemory, Cluster()]
    for seed in effort.some(range(40)):
        draw = random.Random(seed)
        engine = draw.choice(engines)
        opened, table = program(base, draw, engine)
        own = table.columns("int", "text", "bool", "date", "real", "time")
        # An engine leaves out steps that no wanted column needs.
        few = draw.sample(own, draw.randint(1, min(3, len(own))))
        same_rows(opened, table, draw.choice([own, few]))
        same_counts(opened, table, draw.choice(table.columns(*KEYS, cells=True)))


def test_programs_have_the_columns_and_units_of_plain_python(base: Base, effort: Effort) -> None:
    """Nothing is read, so that there are many programs."""
    for seed in effort.some(range(250)):
        program(base, random.Random(f"units {seed}"), "duckdb")


def scope_of(base: Base, table: Plain) -> Any:
    """The region of only the records."""
    opened = base.opened(random.Random(0))
    for place, (name, value) in enumerate(table.regions):
        if name not in KINDS:
            opened = opened.with_days(f"day {place}", of="at")
            name = f"day {place}"
        opened = opened.where({name: value})
    return opened.scope
