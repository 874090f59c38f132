"""Conformance suite of engines: :class:`EngineContract`, for the tests of a new engine."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from dpgrain._types import IntArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.long_labels import text_label
from dpgrain.statistics.contribution_counts import elements_per_user
from dpgrain.statistics.distribution import distribution
from dpgrain.statistics.histogram import count, histogram
from dpgrain.statistics.histogram import sum as total
from dpgrain.statistics.moments import mean, variance
from dpgrain.statistics.quantiles import quantiles
from dpgrain.statistics.top import top
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.elements import Elements
from dpgrain.tables.engines.kernel import WEIGHT_BITS, Grid, Pools, Routes
from dpgrain.tables.engines.protocol import Engine, Form, Opener
from dpgrain.tables.groups import Groups
from dpgrain.tables.split import Weight
from dpgrain.tables.table import UserTable, read
from dpgrain.tables.user_sums import UserContributions, candidate_groups
from dpgrain.units import Element, Record, Unit, User

Case = TypeVar("Case")

SCHEMA = pa.schema(
    {
        "who": pa.int64(),
        "item": pa.string(),
        "code": pa.int32(),
        "day": pa.date32(),
        "w": pa.float64(),
    }
)
UNITS: dict[str, Unit] = {
    "record": Record(),
    "user": User(),
    "item": Element("item"),
    "day": Element("day"),
    "topic": Element("topic"),
    "few": Element("few"),
    "two items": User(2, by="item"),
    "one topic": User(1, by="topic"),
}
KEYS: list[tuple[str, ...]] = [(), ("item",), ("code",), ("day", "item"), ("topic", "code")]
PROMISE: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-5, "random_state": 7}
#: Every per-user function, for each type of column that it accepts.
NUMBERS: dict[str, Any] = {
    "visits": "count",
    "rows": ("w", "size"),
    "known": ("w", "count"),
    "named": ("item", "count"),
    "spent": ("w", "sum"),
    "codes": ("code", "sum"),
    "usual": ("w", "mean"),
    "code": ("code", "mean"),
    "least": ("w", "min"),
    "first": ("day", "min"),
    "last": ("code", "max"),
    "items": ("item", "nunique"),
    "topics": ("topic", "nunique"),
}


def people(table: UserTable, by: Any = None) -> UserTable:
    """Return a table with one row per user and every per-user function."""
    return table.per_user(by=by, **NUMBERS)


RELEASES: dict[str, Callable[[UserTable], Any]] = {
    "public": lambda t: histogram(t, "item", unit=User(), domain=["", "a", "x"], **PROMISE),
    "selected": lambda t: histogram(t, "item", unit=Element("topic"), **PROMISE),
    "numbers": lambda t: histogram(t, "code", unit=User(), **PROMISE),
    "weights": lambda t: histogram(t, "item", unit=User(2, by="day"), weight="w", **PROMISE),
    "records": lambda t: histogram(t, "item", unit=Record(), weight="w", **PROMISE),
    "top": lambda t: top(t, "item", k=2, unit=User(), **PROMISE),
    "mixed": lambda t: count(
        t, by=["item", "code"], unit=User(), domain={"code": [1, 2]}, **PROMISE
    ),
    "sum": lambda t: total(t, "w", by="item", unit=Element("day"), **PROMISE),
    "mean": lambda t: mean(t, "w", unit=User(), **PROMISE),
    "variance": lambda t: variance(t, "w", unit=User(), bounds=(0, 9), **PROMISE),
    "quantiles": lambda t: quantiles(t, "w", unit=User(), bounds=(0, 9), **PROMISE),
    "held": lambda t: elements_per_user(t, unit=Element("item"), **PROMISE),
    "people": lambda t: mean(people(t), "spent", unit=User(), **PROMISE),
    "people by": lambda t: quantiles(
        people(t, by="topic"), "visits", by="topic", unit=User(), **PROMISE
    ),
    "people in bins": lambda t: distribution(
        people(t).with_cells("days", of="first", by=str), "items", by="days", unit=User(), **PROMISE
    ),
}

# Regions, each with a plain definition of the rows inside.
REGIONS: list[tuple[dict[str, Any], Callable[[Any], bool]]] = [
    (
        {"day": ("2024-05-02", None), "code": [0, 2, None]},
        lambda row: row.day is not None and row.day.day >= 2 and row.code in (0, 2, None),
    ),
    ({"item": ["", "日本"]}, lambda row: row.item in ("", "日本")),
    ({"who": (0, 3)}, lambda row: row.who is not None and 0 <= row.who <= 3),
    ({"day": None}, lambda row: row.day is None),
    ({"item": "nobody's"}, lambda row: row.item == "nobody's"),
]


class EngineRow(NamedTuple):
    """One record; any value may be missing."""

    who: int | None
    item: str | None
    code: int | None
    day: datetime.date | None
    w: float | None


def item_topic(item: str) -> str:
    """Return the topic of an item; a public function that fails on one item."""
    if item == "é":
        raise ValueError(item)
    return "early" if item < "b" else "late"


def some_rows(users: int, seed: int = 1) -> list[EngineRow]:
    """Return synthetic rows: repeated, null and extreme values, and one user with most rows."""
    rng = np.random.default_rng(seed)
    items = ["a", "b", "x", "é", "日本", "", None]
    numbers = [1.0, 0.25, 3.0, 1e300, -5.0, math.nan, math.inf, None]
    rows = []
    for user in [None, *range(-2, users)]:
        for _ in range(200 if user == 0 else int(rng.integers(0, 9))):
            day = None if rng.random() < 0.1 else datetime.date(2024, 5, int(rng.integers(1, 4)))
            code = None if rng.random() < 0.1 else int(rng.integers(-1, 4))
            item, w = items[rng.integers(len(items))], numbers[rng.integers(len(numbers))]
            rows += [EngineRow(user, item, code, day, w)] * int(rng.choice([1, 1, 1, 3]))
    return rows


def rows_of(groups: Groups) -> list[tuple[Any, ...]]:
    """Return groups as tuples of keys."""
    return (
        list(zip(*(column.to_pylist() for column in groups.columns), strict=True))
        if groups.names
        else [()]
    )


def cell_of(row: EngineRow, column: str) -> str | int | None:
    """Return the key of a row in any column, from the plain definition."""
    if column == "day":
        return None if row.day is None else row.day.isoformat()
    if column == "few":
        return "x" if row.item in ("a", "b") else None
    if column == "topic":
        if row.item is None:
            return None
        return "own: é" if row.item == "é" else item_topic(row.item)
    known: str | int | None = getattr(row, column)
    return known


class EngineContract:
    """Tests of one engine: its integers equal those of a plain definition and of another engine.

    Set ``engine`` to an argument of ``dg.read(engine=…)``. The methods whose names begin with
    ``test`` are tests, which pytest collects from a class named ``Test…``.

    >>> class TestDuckDB(EngineContract):
    ...     engine = "duckdb"
    >>> TestDuckDB().test_extent_covers_all_integers()
    """

    #: Engine to test.
    engine: str | Opener = "duckdb"
    #: Engine to compare with.
    reference: str | Opener = "duckdb"
    users = 30
    #: Test one in this number of combinations of units, keys and numbers.
    one_in = 1
    #: Test one in this number of releases and regions, from this index on.
    one_release_in = 1
    first_release = 0

    def table(self, rows: Sequence[EngineRow], **options: Any) -> UserTable:
        """Return the table of these rows, with two columns of cells, for the tested engine.

        Args:
            rows: the rows.
            **options: options of ``dg.read``.
        """
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
        arrays = [
            pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)
        ]
        source = pa.table(arrays, schema=SCHEMA)
        table: UserTable = read(source, **{"user": "who", "engine": self.engine, **options})
        table = table.with_cells("topic", of="item", by=item_topic)
        few = Elements.from_mapping({"a": "x", "b": "x"}, missing="drop")
        return table.with_cells("few", of="item", by=few)

    @contextmanager
    def both(self, rows: Sequence[EngineRow], **options: Any) -> Iterator[tuple[Engine, Engine]]:
        """Yield the tested engine and the other one, opened on the same rows in different orders.

        Args:
            rows: the rows.
            **options: options of ``dg.read``.
        """
        order = np.random.default_rng(2).permutation(len(rows))
        mine = self.table([rows[i] for i in order], **options)
        other = self.table(rows, **{**options, "engine": self.reference})
        with mine.open_engine() as one, other.open_engine() as two:
            yield one, two

    def test_groups_equal_the_definition(self) -> None:
        """Rows without a user, a key or a finite number are dropped."""
        rows = some_rows(self.users)
        with self.table(rows).open_engine() as engine:
            combinations = itertools.product([*KEYS[1:], ("few",)], [None, "w"])
            for keys, value in itertools.islice(combinations, 0, None, self.one_in):
                result = rows_of(engine.distinct(keys, value))
                expected = {group for _, group in _valid_rows(rows, keys, value)}
                assert len(result) == len(set(result)), keys
                assert set(result) == expected, (keys, value)

    def test_long_texts_have_the_defined_labels(self) -> None:
        """One text looks like the label of another; a text beyond the limit is missing."""
        long = "é\U0001f600" * 200
        texts = ["a", "x" * 256, "x" * 257, long, long[:-1], text_label(long), "x" * 65_537]
        rows = [
            EngineRow(user, text, 0, None, 1.0)
            for user in range(self.users)
            for text in texts[user % len(texts) :]
        ]
        labels = list(map(text_label, texts[:-1]))
        with self.table(rows).open_engine() as engine:
            assert sorted(rows_of(engine.distinct(("item",)))) == sorted(zip(labels))
        for domain in (texts[1:5], labels[1:5]):
            mine, other = (
                histogram(table, "item", unit=User(), domain=domain, clip=2.0, **PROMISE)
                for table in (self.table(rows), self.table(rows, engine=self.reference))
            )
            assert rows_of(mine.groups) == rows_of(other.groups)
            assert sorted(rows_of(mine.groups)) == sorted(zip(labels[1:5]))
            assert np.array_equal(mine.estimate, other.estimate)
            assert (mine.estimate > 0).all()

    def test_extent_covers_all_integers(self) -> None:
        """All rows count, including those without a user or a value."""
        rows = some_rows(self.users)
        codes = [row.code for row in rows if row.code is not None]
        with self.table(rows).open_engine() as engine:
            assert engine.extent("code") == (min(codes), max(codes), len(rows))
        with self.table([]).open_engine() as engine:
            assert engine.extent("code") is None

    def test_codes_have_the_public_order(self) -> None:
        """The order of a group depends only on the group, and is the same in every engine."""
        names = [str(i) for i in range(40)]
        rng = np.random.default_rng(3)
        with self.both(some_rows(2)) as (one, two):
            for unit in ("item", "topic", "two items"):
                blocks = UnitBlocks.for_unit(UNITS[unit], self.table([]), ["item"])
                whole = _coded(two, blocks, names)
                assert _coded(one, blocks, names) == whole, unit
                part = rng.permutation(names)[:9].tolist()
                assert _coded(one, blocks, part) == [name for name in whole if name in part], unit

    def test_record_counts_equal_the_definition(self) -> None:
        """Unclipped sums, and numbers of blocks by group, equal the definition."""
        rows = some_rows(self.users)
        table = self.table(rows)
        with table.open_engine() as engine:
            combinations = itertools.product(("record", "user", "day", "topic"), KEYS)
            for unit, keys in itertools.islice(combinations, 0, None, self.one_in):
                data, groups = _contributions(engine, UNITS[unit], keys)
                valid = _valid_rows(rows, keys)
                sums = data.sums(Grid(np.array([2.0**20]), 20))
                expected = Counter(group for _, group in valid)
                assert dict(zip(groups, sums.tolist(), strict=True)) == expected, (unit, keys)
                blocks = defaultdict(set)
                for place, (row, group) in enumerate(valid):
                    cell = None if unit in ("record", "user") else cell_of(row, unit)
                    blocks[group].add(place if unit == "record" else (row.who, cell))
                holders = dict(zip(groups, data.holders().tolist(), strict=True))
                assert holders == {group: len(valid) for group, valid in blocks.items()}, (
                    unit,
                    keys,
                )

    def test_integers_equal_the_reference_engine(self) -> None:
        """Clipped sums and counts are equal bit for bit, over units, keys and weights."""
        rows = some_rows(self.users)
        with self.both(rows) as (one, two):
            combinations = itertools.product(UNITS, KEYS, (None, "w"))
            for unit, keys, value in itertools.islice(combinations, 0, None, self.one_in):
                result, expected = (
                    _integers(one_, UNITS[unit], keys, value) for one_ in (one, two)
                )
                for what, integers in expected.items():
                    assert np.array_equal(result[what], integers), (what, unit, keys, value)

    def test_pooled_counts_equal_the_definition(self) -> None:
        """No user adds more than the bound to a bin, with one thread or several."""
        rows = some_rows(self.users)
        for unit, threads in itertools.product(("item", "topic"), (1, 2)):
            with self.table(rows, threads=threads).open_engine() as engine:
                data, groups = _contributions(engine, UNITS[unit], ("item",))
                cells = data.dictionary.layout.cell_of
                assert cells is not None
                pools = _pools(data.dictionary.cell_sizes.size)
                result = data.pooled_counts(pools, "l1")
            place = dict(zip(groups, cells.tolist(), strict=True))
            sizes = Counter((row.who, place[group]) for row, group in _valid_rows(rows, ("item",)))
            mine = np.zeros((self.users + 2, *pools.shape), dtype=np.int64)
            for (who, cell), size in sizes.items():
                passed = int((size / pools.scale[cell] > pools.edges[:-1]).sum())
                if passed:
                    mine[who, pools.pool[cell], passed - 1] += pools.weight[cell]
            expected = np.minimum(mine, pools.max_blocks << WEIGHT_BITS).sum(axis=0)
            assert np.array_equal(result, expected), (unit, threads)

    def test_public_groups_without_rows_sum_to_zero(self) -> None:
        """Groups of a public list remain without rows; groups outside of it are dropped."""
        rows = some_rows(self.users)
        groups = Groups.of(("item",), [pa.array(["x", "absent", "a"])])
        with self.table(rows).open_engine() as engine:
            data = UserContributions(
                engine, UnitBlocks("user"), groups, UnitBlocks("user").cells(groups, public=True)
            )
            names = data.dictionary.groups.columns[0].to_pylist()
            result = dict(zip(names, data.holders().tolist(), strict=True))
        present = {(row.who, row.item) for row in rows if row.who is not None}
        assert result == {
            name: sum(item == name for _, item in present) for name in ("x", "absent", "a")
        }

    def test_user_ids_do_not_matter(self) -> None:
        """Users are distinguished if their ids are far apart, or text instead of numbers."""
        rows = some_rows(self.users)
        far = [
            row if row.who is None else row._replace(who=2**61 * (row.who % 3 - 1) + row.who)
            for row in rows
        ]
        with self.table(rows).open_engine() as engine:
            expected = _integers(engine, User(), ("item",), "w")
        names = [None if row.who is None else f"u{row.who}" for row in rows]
        columns = [names, *list(zip(*rows, strict=True))[1:]]
        schema = SCHEMA.set(0, pa.field("who", pa.string()))
        renamed = pa.table(
            [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)],
            schema=schema,
        )
        texts = read(renamed, user="who", engine=self.engine)
        for table in (self.table(far), texts):
            with table.open_engine() as engine:
                result = _integers(engine, User(), ("item",), "w")
            for what, integers in expected.items():
                assert np.array_equal(result[what], integers), what

    def test_subset_of_groups_has_the_same_sums(self) -> None:
        """Results of many groups are reused for some of them, or read again."""
        with self.table(some_rows(self.users)).open_engine() as engine:
            blocks = UnitBlocks("user")
            groups = engine.distinct(["item"])
            wide = UserContributions(engine, blocks, groups, blocks.cells(groups, public=False))
            wide.holders()
            some = groups.take(np.array([3, 0]))
            cells, grid = blocks.cells(some, public=False), Grid(np.array([1.5]), 20)
            narrow = UserContributions(engine, blocks, some, cells, wider=wide).sums(grid)
            again = UserContributions(engine, blocks, some, cells).sums(grid)
            assert np.array_equal(narrow, again)

    def test_table_without_users_counts_records(self) -> None:
        """Records are summed, and user-level queries raise an error."""
        rows = some_rows(self.users)
        with self.table(rows, user=None).open_engine() as engine:
            data, groups = _contributions(engine, Record(), ("item",))
            expected = Counter((row.item,) for row in rows if row.item is not None)
            result = data.sums(Grid(np.array([2.0**20]), 20)).tolist()
            assert dict(zip(groups, result, strict=True)) == expected
            message = ""
            try:
                engine.users(data.dictionary)
            except ParameterError as error:
                message = str(error)
            assert "user must be passed to dg.read" in message

    def test_empty_table(self) -> None:
        """An empty table has no groups, and sums of 0."""
        with self.table([]).open_engine() as engine:
            assert len(engine.distinct(["item", "code"])) == 0
            groups = Groups.of(("item",), [pa.array(["a"])])
            for unit in UNITS.values():
                blocks = UnitBlocks.for_unit(unit, self.table([]), ["item"])
                cells = blocks.cells(groups, public=True)
                data = UserContributions(engine, blocks, groups, cells)
                assert data.sums(Grid(np.ones(1), 20)).tolist() == [0]

    def test_region_equals_a_table_with_only_its_rows(self) -> None:
        """Columns, groups, integers and releases equal those of a table with only these rows."""
        rows = some_rows(self.users)
        regions = _one_in(self.one_release_in, REGIONS, self.first_release)
        for place, (stated, inside) in enumerate(regions):
            cut = [row for row in rows if inside(row)]
            mine = self.table(rows).where(stated)
            other = self.table(cut, engine=self.reference)
            with mine.open_engine() as one, other.open_engine() as two:
                codes = one.columns([("code", "key")]).column(0).to_pylist()
                assert codes == [row.code for row in cut], stated
                combinations = [("topic", ("item",)), ("day", ()), ("record", ("code",))]
                for unit, keys in _one_in(self.one_in, combinations, place):
                    result, expected = (_integers(e, UNITS[unit], keys, "w") for e in (one, two))
                    for what, integers in expected.items():
                        assert np.array_equal(result[what], integers), (what, unit, stated)
            names = ["public", "selected", "mean"]
            for name in _one_in(self.one_release_in, names, place):
                # The public region can limit the number of cells of a user, for both plans.
                actual_, expected_ = RELEASES[name](mine), RELEASES[name](other.where(stated))
                assert actual_.to_arrow().equals(expected_.to_arrow()), (name, stated)
                assert actual_.guarantee.scope == mine.scope

    def test_per_user_rows_equal_the_definition(self) -> None:
        """Numbers depend only on the rows of the user, and are the same bits in every engine."""
        rows = some_rows(self.users)
        for by in [(), ("topic",), ("few", "day")]:
            expected = {group: _numbers(mine) for group, mine in _by_user(rows, by).items()}
            result = []
            for table in (self.table(rows[::-1]), self.table(rows, engine=self.reference)):
                per_user = people(table, by)
                with per_user.open_engine() as engine:
                    columns = engine.columns(
                        [(name, _form(per_user, name)) for name in per_user.schema]
                    )
                read_ = list(zip(*(column.to_pylist() for column in columns.columns), strict=True))
                result.append(sorted(read_, key=str))
                size = 1 + len(by)
                assert {row[:size]: row[size:] for row in read_} == expected, by
            assert str(result[0]) == str(result[1]), by

    def test_columns_preserve_row_order(self) -> None:
        """Columns are read in every form, with null for missing values."""
        rows = some_rows(self.users)
        with self.table(rows).open_engine() as engine:
            result = engine.columns(
                [
                    ("who", "key"),
                    ("day", "key"),
                    ("code", "text"),
                    ("w", "number"),
                    ("day", "as it is"),
                ]
            )
        assert result.column_names == ["c0", "c1", "c2", "c3", "c4"]
        assert result.column(0).to_pylist() == [row.who for row in rows]
        assert result.column(1).to_pylist() == [cell_of(row, "day") for row in rows]
        codes = [None if row.code is None else str(row.code) for row in rows]
        assert result.column(2).to_pylist() == codes
        assert str(result.column(3).to_pylist()) == str([row.w for row in rows])
        assert result.column(4).to_pylist() == [row.day for row in rows]

    def test_long_columns_preserve_row_order(self) -> None:
        """The rows are so numerous that an engine may read them in parallel."""
        users = np.random.default_rng(4).permutation(1_000_000)
        rows = pa.table({"who": users, "w": users / 7})
        table = read(rows, user="who", engine=self.engine, threads=2)
        with table.open_engine() as engine:
            result = engine.columns([("who", "text"), ("w", "number")])
        assert np.array_equal(result.column(1).to_numpy(), users / 7)
        assert np.array_equal(result.column(0).cast(pa.int64()).to_numpy(), users)

    def test_seeded_releases_are_equal(self) -> None:
        """Every statistic publishes the same numbers with either engine."""
        rows = some_rows(120)
        mine, other = self.table(rows[::-1]), self.table(rows, engine=self.reference)
        for name in _one_in(self.one_release_in, list(RELEASES), self.first_release):
            result, expected = (RELEASES[name](table) for table in (mine, other))
            assert len(expected), name
            assert result.to_arrow().equals(expected.to_arrow()), name
            assert dataclasses.asdict(result.guarantee) == dataclasses.asdict(expected.guarantee), (
                name
            )


def _one_in(many: int, cases: Sequence[Case], place: int = 0) -> Sequence[Case]:
    """Return every n-th case from an index on; at least one."""
    return cases[place % min(many, len(cases)) :: many]


def _valid_rows(
    rows: Sequence[EngineRow], keys: Sequence[str], value: str | None = None
) -> list[tuple[EngineRow, tuple[Any, ...]]]:
    """Return the valid rows, each with its group, from the plain definition."""
    valid = []
    for row in rows:
        group = tuple(cell_of(row, key) for key in keys)
        number = 0.0 if value is None else row.w
        if row.who is not None and None not in group and number is not None:
            valid += [(row, group)] if math.isfinite(number) else []
    return valid


def _form(table: UserTable, name: str) -> Form:
    return "number" if table.schema[name] == "DOUBLE" else "key"


def _by_user(
    rows: Sequence[EngineRow], by: Sequence[str]
) -> dict[tuple[Any, ...], list[EngineRow]]:
    """Return the rows of each user and group, from the plain definition."""
    result = defaultdict(list)
    for row in rows:
        group = (row.who, *(cell_of(row, key) for key in by))
        if None not in group:
            result[group].append(row)
    return result


def _numbers(rows: Sequence[EngineRow]) -> tuple[Any, ...]:
    """Return the numbers of one user, in the order of :data:`NUMBERS`."""
    w = [row.w for row in rows if row.w is not None and math.isfinite(row.w)]
    codes = [row.code for row in rows if row.code is not None]
    days = [str(row.day) for row in rows if row.day is not None]
    items = [row.item for row in rows if row.item is not None]
    topics = {cell_of(row, "topic") for row in rows} - {None}
    bounded = [Fraction(min(max(number, -(2.0**62)), 2.0**62)) for number in w]
    spent = float(sum(bounded, start=Fraction(0)))
    return (
        len(rows),
        len(rows),
        len(w),
        len(items),
        spent,
        sum(codes),
        spent / len(w) if w else None,
        sum(codes) / len(codes) if codes else None,
        min(w, default=None),
        min(days, default=None),
        max(codes, default=None),
        len({*items}),
        len(topics),
    )


def _coded(engine: Engine, blocks: UnitBlocks, names: Sequence[str]) -> list[str]:
    """Return the names in the order of their codes."""
    groups = Groups.of(("item",), [pa.array(names, pa.string())])
    known = engine.dictionary(groups, blocks.cells(groups, public=False))
    return list(known.groups.columns[0].to_pylist())


def _contributions(
    engine: Engine, unit: Unit, keys: Sequence[str], value: str | None = None
) -> tuple[UserContributions, list[tuple[Any, ...]]]:
    """Return the contributions to all groups with rows, and the groups in the order of codes."""
    blocks = UnitBlocks.for_unit(unit, engine.table, keys)
    groups = candidate_groups(engine, keys, value) if keys else Groups.of((), ())
    split = None if value is None else Weight(2.0**-20)
    data = UserContributions(
        engine, blocks, groups, blocks.cells(groups, public=False), value, split
    )
    return data, rows_of(data.dictionary.groups)


def _pools(cells: int) -> Pools:
    """Return pools of three cells each, with several scales and weights."""
    place = np.arange(cells)
    scale, weight = np.ldexp(1.0, place % 4), 1 + 123 * (place % 9)
    return Pools(np.array([0.25, 1.0, 4.0]), place // 3, scale, weight, -(-cells // 3), 2)


def _integers(
    engine: Engine, unit: Unit, keys: Sequence[str], value: str | None
) -> dict[str, IntArray]:
    """Return every type of integer sum of an engine for a unit."""
    data, groups = _contributions(engine, unit, keys, value)
    norms = np.array([1.0, 4.0, 16.0])
    result = {
        "groups": np.array([hash(group) for group in groups]),
        "l2": data.sums(Grid(np.array([1.7]), 28)),
        "l1": data.sums(Grid(np.array([3.0]), 24, "l1")),
        "indicators": data.sums(Grid(np.ones(1), 20), indicator=True),
        "bins": data.norm_counts(norms, "l2"),
        "holders": data.holders(),
    }
    if data.dictionary.layout.cell_of is not None and not isinstance(unit, Record):
        result["pools"] = data.pooled_counts(_pools(data.dictionary.cell_sizes.size), "l2")
    if not isinstance(unit, Record):
        result["first"] = data.sums(Grid(np.ones(1), 20), max_items=2)
        result["holdings"] = data.holdings(np.array([1, 3, 9, 2**62]))
    if isinstance(unit, User) and unit.max_elements is None:
        first = 1 + np.arange(len(groups)) * 7919 % 13
        routes = Routes.after(first, first > 4, 9.0)
        result["first round"] = data.first_sums(Grid(np.ones(1), 20), max_items=5)
        result["routed"] = data.routed(routes, Grid(np.ones(1), 20), max_items=5)
    return result
