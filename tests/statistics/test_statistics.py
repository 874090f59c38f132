"""Every statistic: no neighbours move it farther than billed, and what it says is right."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import beta
from tests.sampling import examples

import dpgrain as dg
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import (
    BoundedRange,
    Contribution,
    Event,
    Gaussian,
    Laplace,
    Selection,
    TruncatedGeometric,
)
from dpgrain.statistics import asked as asked_module
from dpgrain.statistics import holdings as holdings_module
from dpgrain.statistics import moments as moments_module
from dpgrain.statistics import request as request_module
from dpgrain.statistics import run as run_module
from dpgrain.statistics.order import misordered_pairs
from dpgrain.statistics.plan import make_plan
from dpgrain.statistics.values import AutoRange, Parts, Powers, Tree
from dpgrain.tables.dictionary import Dictionary
from dpgrain.tables.engines import kernel
from dpgrain.tables.engines.feed import Chunk
from dpgrain.tables.engines.kernel import Grid
from dpgrain.tables.engines.protocol import Users
from dpgrain.tables.groups import Groups
from dpgrain.tables.held import Contributions
from dpgrain.units import OWN_UNIT, RELATIONS, Level, Relation, Unit

# The package's attributes of these names are functions.
histogram_module, top_module, quantiles_module = (
    importlib.import_module(f"dpgrain.statistics.{name}")
    for name in ("histogram", "top", "quantiles")
)

Row: TypeAlias = tuple[int | None, str | None, str | None, float | None]  # who, item, cell, x
Pair: TypeAlias = tuple[list[Row], list[Row]]
Values: TypeAlias = NDArray[np.float64]

ITEMS = ["a", "b", "c", "d"]
CELLS = ["p", "q", "r"]
MAPPING = {"a": "x", "b": "x", "c": "y", "d": "z"}
NAMES = ("who", "item", "cell", "x")


def topic_of(item: str) -> str:
    return MAPPING[item]


UNITS: dict[str, Unit] = {
    "record": dg.Record(),
    "own": dg.Element("item"),
    "mapping": dg.Element(MAPPING),
    "function": dg.Element(topic_of),
    "column": dg.Element("cell"),
    "made": dg.Element("topic"),
    "made drop": dg.Element("few"),
    "user": dg.User(),
    "capped": dg.User(2, by="item"),
    "capped function": dg.User(2, by=topic_of),
    "capped column": dg.User(2, by="cell"),
    "capped made": dg.User(2, by="topic"),
}


def table_of(rows: Sequence[Row], **options: Any) -> dg.UserTable:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    kinds = (pa.int64(), pa.string(), pa.string(), pa.float64())
    made = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return with_rows(pa.table(dict(zip(NAMES, made, strict=True))), **options)


@functools.cache
def empty_table(schema: pa.Schema) -> dg.UserTable:
    table = dg.read(schema.empty_table(), user="who")
    if "cell" not in schema.names:
        return table
    table = table.with_cells("topic", of="item", by=topic_of)
    few = dg.Elements.from_mapping({"a": "x", "c": "x"}, missing="drop")
    return table.with_cells("few", of="item", by=few)


def with_rows(rows: pa.Table, **options: Any) -> dg.UserTable:
    """The table of these rows; what the schema tells is found once."""
    known = empty_table(rows.schema)
    source: Any = known.source
    return dataclasses.replace(known, source=dataclasses.replace(source, table=rows), **options)


def rows_of(groups: Groups) -> list[tuple[Any, ...]]:
    if not groups.names:
        return [()]
    return list(zip(*(column.to_pylist() for column in groups.columns), strict=True))


def marks(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(hashlib.md5(str(value).encode()).hexdigest() for value in values)


# -- what noise is added to, and how much ---


@dataclasses.dataclass(frozen=True)
class Noised:
    """One vector as it is when noise is added to it.

    ``radius`` is the clipping bound of each coordinate in grid steps, ``scale`` that of the noise.
    """

    law: str
    sums: dict[Any, int]
    scale: dict[Any, float]
    radius: dict[Any, float]
    event: Event | None


class Zeros(np.ndarray[Any, Any]):
    """Noise of 0 that tells its recorder what it is added to."""

    told: Callable[[IntArray], None] | None = None

    def __array_finalize__(self, other: Any) -> None:
        self.told = getattr(other, "told", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        for one in inputs:
            if ufunc is np.add and not isinstance(one, Zeros) and self.told is not None:
                self.told(np.asarray(one).reshape(-1))
        return getattr(ufunc, method)(*(np.asarray(one) for one in inputs), **options)


class Outcome(NamedTuple):
    """What earlier parts of a release came to: the same for both neighbours."""

    clip: tuple[float, ...] = (1.0, 3.3, 40.0)
    low: float = -4.0
    high: float = 2.0


class Recorder:
    """Records every vector of a release to which noise is added."""

    def __init__(self) -> None:
        self.vectors: list[Noised] = []
        self.labels: list[Any] | None = None
        self.radius: FloatArray = np.ones(1)
        self.event: Event | None = None

    def add(self, law: str, scale: FloatArray, sums: IntArray) -> None:
        labels = range(sums.size) if self.labels is None else self.labels
        per = sums.size // max(len(labels), 1)
        names = [(label, corner) for label in labels for corner in range(per)]
        radius = np.broadcast_to(self.radius if self.radius.size == 1 else np.repeat(
            self.radius, per), sums.shape)  # fmt: skip
        assert sums.dtype == np.int64
        assert len(set(names)) == sums.size
        self.vectors.append(
            Noised(
                law,
                dict(zip(names, sums.tolist(), strict=True)),
                dict(zip(names, np.broadcast_to(scale, sums.shape).tolist(), strict=True)),
                dict(zip(names, radius.tolist(), strict=True)),
                self.event,
            )
        )
        self.event = None


@contextmanager
def recording(outcome: Outcome) -> Iterator[Recorder]:
    """Take noise away and fix what is read off it; record what it would be added to."""
    recorder = Recorder()

    def law(name: str) -> Callable[..., Zeros]:
        def drawn(scale: Any, *rest: Any, source: Any = None) -> Zeros:
            size = rest[-1] if rest else np.asarray(scale).size
            zeros = np.zeros(size, dtype=np.int64).view(Zeros)
            scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), (size,))
            zeros.told = lambda sums: recorder.add(name, scales, sums)
            return zeros

        return drawn

    def choosing(counts: IntArray, scale: float, best: int, *, source: Any) -> IntArray:
        recorder.add("gumbel", np.full(counts.size, scale), counts)
        return np.arange(best)

    real_noise = run_module.noise_of

    def noise_of(event: Event, scale: FloatArray, source: Any) -> IntArray:
        recorder.event = event
        return real_noise(event, scale, source)  # type: ignore[arg-type]

    real_sums, real_norms = Contributions.sums, Contributions.norm_counts
    real_holders, real_narrowed = Contributions.holders, Contributions._narrowed
    real_holdings, real_select = Contributions.holdings, run_module.select

    def sums(self: Contributions, grid: Grid, **options: Any) -> IntArray:
        recorder.labels = rows_of(self.dictionary.groups)
        recorder.radius = grid.radius[self.dictionary.cell_rows(grid.radius.size)]
        return real_sums(self, grid, **options)

    def norm_counts(self: Contributions, *rest: Any, **options: Any) -> IntArray:
        recorder.labels, recorder.radius = None, np.ones(1)
        return real_norms(self, *rest, **options)

    def holders(self: Contributions, **options: Any) -> IntArray:
        recorder.labels, recorder.radius = rows_of(self.dictionary.groups), np.ones(1)
        return real_holders(self, **options)

    def narrowed(self: Contributions, other: Dictionary) -> Users | None:
        # What is selected here need not be held: then it has to be read.
        known = {*rows_of(self.dictionary.groups)}
        return real_narrowed(self, other) if known >= {*rows_of(other.groups)} else None

    def holdings(self: Contributions, edges: IntArray) -> IntArray:
        recorder.labels, recorder.radius = None, np.ones(1)
        return real_holdings(self, edges)

    def select(data: Contributions, event: Selection, source: Any) -> Groups:
        real_select(data, event, source)
        names = data.dictionary.groups.names
        known = {"item": ITEMS, "cell": CELLS, "topic": sorted({*MAPPING.values()}), "few": ["x"]}
        return Groups.product(names, [pa.array(known[name]) for name in names])

    def chosen(noisy: FloatArray, edges: FloatArray, *_: Any) -> FloatArray:
        return np.resize(np.array(outcome.clip) * edges[0], len(noisy))

    with pytest.MonkeyPatch.context() as patch:
        for module in (run_module, top_module):
            patch.setattr(module, "rounded_gaussian", law("gaussian"))
        patch.setattr(run_module, "discrete_laplace", law("laplace"))
        patch.setattr(top_module, "truncated_geometric", law("truncated"))
        patch.setattr(run_module, "gumbel_order", choosing)
        patch.setattr(run_module, "noise_of", noise_of)
        patch.setattr(holdings_module, "noise_of", noise_of)
        patch.setattr(run_module, "select", select)
        patch.setattr(run_module, "choose_bounds", chosen)
        patch.setattr(AutoRange, "choose", lambda *_: (outcome.low, outcome.high))
        patch.setattr(Contributions, "sums", sums)
        patch.setattr(Contributions, "norm_counts", norm_counts)
        patch.setattr(Contributions, "holders", holders)
        patch.setattr(Contributions, "_narrowed", narrowed)
        patch.setattr(Contributions, "holdings", holdings)
        yield recorder


Ask: TypeAlias = Callable[[dg.UserTable], Any]


def noised(
    ask: Ask, rows: Sequence[Row], outcome: Outcome, engine: str = "in_memory"
) -> tuple[list[Noised], Any]:
    """Every vector of a release, each with its event, and the release."""
    return noised_table(ask, table_of(rows, threads=1, engine=engine), outcome)


def noised_table(ask: Ask, table: dg.UserTable, outcome: Outcome) -> tuple[list[Noised], Any]:
    """The same of a table."""
    with recording(outcome) as recorder:
        release = ask(table)
    parts = list(release.guarantee.event.parts)
    drawn: list[Noised] = []
    kinds = {"gaussian": Selection, "truncated": TruncatedGeometric, "gumbel": BoundedRange}
    for vector in recorder.vectors:
        event = vector.event
        if event is None:
            event = next(part for part in parts if isinstance(part, kinds[vector.law]))
        # All noise is billed once, and all that is billed is drawn.
        parts.remove(event)
        drawn.append(dataclasses.replace(vector, event=event))
    assert not parts
    return drawn, release


class Asked(NamedTuple):
    """What changes between neighbours."""

    level: Level
    relation: Relation
    units: int


def differences(one: Noised, two: Noised) -> dict[Any, int]:
    names = {**one.sums, **two.sums}
    return {name: one.sums.get(name, 0) - two.sums.get(name, 0) for name in names}


def spread(one: Noised, two: Noised, name: Any) -> float:
    """The scale of a coordinate's noise, the same in both."""
    scales = {vector.scale[name] for vector in (one, two) if name in vector.scale}
    assert len(scales) == 1
    return scales.pop()


def ratio(one: Noised, two: Noised, asked: Asked, billed: Event) -> float:
    """The loss that two neighbours show, over the one billed; at most 1."""
    unit, moved = OWN_UNIT[asked.level], differences(one, two)
    loss = billed.loss(asked.units, asked.relation, unit)
    if math.inf in (loss.mu, loss.pure) or loss.leak == 1:
        return 0.0
    if one.law == "gumbel":
        steps = [*moved.values(), 0]
        found = (max(steps) - min(steps)) / one.scale[next(iter(one.scale))]
        assert isinstance(billed, BoundedRange)
        return found * billed.count / loss.pure
    apart = [abs(d) / spread(one, two, name) for name, d in moved.items() if d]
    if one.law == "laplace":
        return sum(apart) / loss.pure
    if one.law == "truncated":
        assert isinstance(billed, TruncatedGeometric)
        steps = [abs(d) for d in moved.values() if d]
        named = [billed.passes(d) for d in steps]
        return max(sum(steps) * billed.rate / loss.pure, sum(named) / loss.leak)
    found = math.sqrt(sum(x * x for x in apart)) / loss.mu
    if isinstance(billed, Selection):
        found = max(found, named_alone(one, two, billed) / loss.leak)
    return found


def named_alone(one: Noised, two: Noised, event: Selection) -> float:
    """The probability that an item that one side holds alone is named; the larger of both sides."""
    worst = 0.0
    for mine, other in ((one, two), (two, one)):
        none = 0.0
        for name, count in mine.sums.items():
            if count > 0 and other.sums.get(name, 0) == 0:
                radius = mine.scale[name] / event.noise_multiplier
                step = math.ceil(event.threshold * radius) + 1
                none += float(log_ndtr((step - 0.5 - count) / mine.scale[name]))
        worst = max(worst, -math.expm1(none))
    return worst


def worst_ratio(
    ask: Ask,
    pairs: Iterator[Pair],
    asked: Asked,
    outcome: Outcome,
    bill: Callable[[Event], Event] = lambda event: event,
) -> float:
    """The largest share of what is billed that some pair shows in some vector."""
    worst = 0.0
    for left, right in pairs:
        sides = [noised(ask, rows, outcome)[0] for rows in (left, right)]
        assert len(sides[0]) == len(sides[1])
        for one, two in zip(*sides, strict=True):
            assert one.event == two.event
            assert one.event is not None
            worst = max(worst, ratio(one, two, asked, bill(one.event)))
    return worst


# -- neighbours ---

NUMBERS = [-4.0, 4.0, 2.0, 0.0, -1.0, 0.7, 1e300, -1e300, 5e-324, -0.0, math.nan, math.inf, -math.inf,
           None]  # fmt: skip


def cell_in(name: str) -> Callable[[Row], Any]:
    if name.endswith("column"):
        return lambda row: row[2]
    if name in ("own", "capped"):
        return lambda row: row[1]
    if name == "made drop":
        return lambda row: "x" if row[1] in ("a", "c") else None
    return lambda row: None if row[1] is None else MAPPING.get(row[1], row[1])


def random_rows(rng: np.random.Generator, user: int | None, most: int = 6) -> list[Row]:
    """Some rows of one user: heavy, repeated, with nulls, outside the domain, of bad numbers."""
    rows: list[Row] = []
    for _ in range(int(rng.integers(0, most))):
        item = [*ITEMS, "e", None][rng.integers(0, 6)]
        cell = [*CELLS, None][rng.integers(0, 4)]
        row = (user, item, cell, NUMBERS[rng.integers(0, len(NUMBERS))])
        rows += [row] * int(rng.choice([1, 1, 2, 30]))
    return rows


def random_pair(rng: np.random.Generator, name: str, asked: Asked) -> Pair:
    others = random_rows(rng, 100, 3) + random_rows(rng, None, 3)
    replace = asked.relation == "replace"
    if asked.level == "user":
        sides = [[r for user in range(asked.units) for r in random_rows(rng, user)] for _ in "12"]
        return others + sides[0], others + (sides[1] if replace else [])
    rows = random_rows(rng, 0)
    if asked.level == "record":
        rows = rows or [(0, "a", None, 1.0)]
        changed = set(rng.permutation(len(rows))[: asked.units].tolist())
        kept = [row for i, row in enumerate(rows) if i not in changed]
        new = [(random_rows(rng, 0) or rows)[0] for _ in changed]
    else:
        cell = cell_in(name)
        held = sorted({cell(row) for row in rows}, key=str) or ["x"]
        emptied = [held[i] for i in rng.permutation(len(held))[: asked.units]]
        kept = [row for row in rows if cell(row) not in emptied]
        new = [row for row in random_rows(rng, 0, 12) if cell(row) in emptied]
    return others + rows, others + kept + (new if replace else [])


PLACES = [("a", "p"), ("a", "q"), ("b", "p"), ("b", "r"), ("c", "r"), ("d", "p"), ("d", None)]


def heavy(user: int, places: Sequence[tuple[str, str | None]], x: float, times: int) -> list[Row]:
    return [(user, item, cell, x) for item, cell in places for _ in range(times)]


def crafted_pairs(name: str, asked: Asked) -> Iterator[Pair]:
    """The worst cases of the proofs."""
    replace, k = asked.relation == "replace", asked.units
    ends = [(4.0, -4.0), (-4.0, 4.0)]
    if asked.level == "user":
        for (high, low), places in itertools.product(ends, (PLACES, PLACES[:1], PLACES[2:4])):
            left = [row for user in range(k) for row in heavy(user, places, high, 40)]
            yield left, []
            if replace:
                yield left, [row for user in range(k) for row in heavy(user, places, low, 40)]
                elsewhere = [place for place in PLACES if place[0] not in {p[0] for p in places}]
                yield left, [row for user in range(k) for row in heavy(user, elsewhere, high, 40)]
        return
    cell = cell_in(name)
    for (high, low), size in itertools.product(ends, (1, 2, 3, 7)):
        chosen = PLACES[:size]
        if asked.level == "record":
            rest, single = heavy(0, chosen[k:], high, 40), heavy(0, chosen[:k], high, 1)
            yield rest + single, rest
            if replace:
                yield rest + single, rest + heavy(0, chosen[:k], low, 1)
                yield rest + single, rest + heavy(0, PLACES[-1:] * len(single), high, 1)
            same = heavy(0, chosen[:1], 1.0, k)
            yield same, heavy(0, PLACES[2:3], 1.0, k) if replace else []
            continue
        rows = heavy(0, chosen, high, 40)
        cells = sorted({cell(row) for row in rows}, key=str)
        for emptied in itertools.islice(itertools.combinations(cells, min(k, len(cells))), 2):
            kept = [row for row in rows if cell(row) not in emptied]
            yield rows, kept
            if replace:
                inside = [place for place in PLACES if cell((0, *place, 1.0)) in emptied]
                yield rows, kept + heavy(0, inside, low, 40)
                last = {cell((0, *place, 1.0)): place for place in inside}
                first = {cell((0, *place, 1.0)): place for place in inside[::-1]}
                yield (
                    kept + heavy(0, [*first.values()], high, 40),
                    kept + heavy(0, [*last.values()], high, 40),
                )


# -- a. the search ---


class Shape(NamedTuple):
    """How groups are made and blocks are clipped."""

    keys: tuple[str, ...]
    domain: str  # public, mixed, listed, selected
    clip: Any


def domain_of(shape: Shape) -> Any:
    known: dict[str, list[Any]] = {"item": ITEMS, "cell": CELLS, "topic": ["x", "y", "z"]}
    if not shape.keys or shape.domain == "selected":
        return None
    if shape.domain == "mixed":
        return {shape.keys[-1]: known[shape.keys[-1]]}
    if shape.domain == "listed" and len(shape.keys) > 1:
        return [*itertools.product(*(known[key] for key in shape.keys))][::2]
    return {key: known[key] for key in shape.keys}


KEYS: list[tuple[str, ...]] = [
    (), ("item",), ("cell",), ("topic",), ("item", "cell"), ("cell", "item"), ("cell", "topic"),
]  # fmt: skip

# Statistic → from (table, shape, unit, the other options) to its release.
STATISTICS: dict[str, Callable[..., Any]] = {
    "count": lambda t, s, **o: dg.count(t, by=s.keys or None, clip=s.clip, **o),
    "count of numbers": lambda t, s, **o: dg.count(t, "x", by=s.keys or None, clip=s.clip, **o),
    "sum": lambda t, s, **o: dg.sum(
        t, "x", by=s.keys or None, clip=s.clip, bounds=(-4, 2), **o
    ),
    "sum above 0": lambda t, s, **o: dg.sum(
        t, "x", by=s.keys or None, clip=s.clip, bounds=(0, 4), **o
    ),
    "sum below 0": lambda t, s, **o: dg.sum(
        t, "x", by=s.keys or None, clip=s.clip, bounds=(-4, 0), **o
    ),
    "sum in a range": lambda t, s, **o: dg.sum(t, "x", by=s.keys or None, clip=s.clip, **o),
    "mean": lambda t, s, **o: dg.mean(
        t, "x", by=s.keys or None, clip=s.clip, bounds=(-4, 4), **o
    ),
    "mean in a range": lambda t, s, **o: dg.mean(t, "x", by=s.keys or None, clip=s.clip, **o),
    "variance": lambda t, s, **o: dg.variance(
        t, "x", by=s.keys or None, clip=s.clip, bounds=(-4, 4), **o
    ),
    "quantiles": lambda t, s, **o: dg.quantiles(
        t, "x", by=s.keys or None, clip=s.clip, bounds=(-4, 4), bins=16, **o
    ),
    "deep quantiles": lambda t, s, **o: dg.quantiles(
        t, "x", by=s.keys or None, clip=s.clip, bounds=(-4, 4), bins=256, **o
    ),
    "top": lambda t, s, **o: dg.top(t, s.keys, clip=s.clip, **{"method": "gaussian", **o}),
}  # fmt: skip
LAPLACE = {"noise": "laplace", "delta": 0.0}
TOPS: dict[str, dict[str, Any]] = {
    "top by laplace": {"method": "laplace", "delta": 0.0},
    "names": {"counts": False},
    "truncated": {"method": "truncated"},
    "gumbel": {"method": "gumbel", "k": 2},
}


def fits(statistic: str, name: str, shape: Shape) -> bool:
    """Whether the statistic is offered for the unit and groups."""
    mapped = name in ("mapping", "function", "capped function")
    if mapped and (not shape.keys or shape.keys[0] != "item"):
        return False
    if name == "mapping" and shape.domain in ("selected", "mixed"):
        # Its keys are the domain.
        return False
    if statistic in ("top", *TOPS) and not shape.keys:
        return False
    if statistic in ("names", "truncated"):
        return shape.domain == "selected"
    if statistic in ("gumbel", "top by laplace"):
        return shape.domain in ("public", "listed")
    return True


def question(
    statistic: str, name: str, shape: Shape, relation: Relation, *, laplace: bool = False
) -> Ask:
    options: dict[str, Any] = {
        "unit": UNITS[name], "epsilon": 1.0, "delta": 1e-6, "relation": relation,
        "domain": domain_of(shape), "max_items": 3, "random_state": 1,
    }  # fmt: skip
    if statistic in TOPS:
        made = STATISTICS["top"]
        options |= TOPS[statistic]
    else:
        made = STATISTICS[statistic]
        if statistic != "top":
            options |= LAPLACE if laplace else {"noise": "gaussian"}
    return lambda table: made(table, shape, **options)


@pytest.fixture
def cached_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = functools.lru_cache(maxsize=None)(make_plan)
    monkeypatch.setattr(request_module, "make_plan", cached)
    for name in ("calibrate_truncated_geometric", "calibrate_gaussian", "select_by_threshold"):
        once = functools.lru_cache(maxsize=None)(getattr(top_module, name))
        monkeypatch.setattr(top_module, name, once)


def shapes_of(rng: np.random.Generator, statistic: str, name: str, count: int) -> list[Shape]:
    known = [(k, d) for k in KEYS for d in ("public", "mixed", "listed", "selected")]
    clips = [
        clip for clip in ("auto", 1.0, 2.5, 40.0)
        if not (name == "record" and clip == 1.0 and "deep" in statistic)
    ]  # fmt: skip
    shapes = [Shape(k, d, clips[rng.integers(0, len(clips))]) for k, d in known]
    shapes = [
        shape for shape in shapes
        if fits(statistic, name, shape) and (shape.keys or shape.domain == "public")
        and not (shape.domain in ("mixed", "listed") and len(shape.keys) < 2)
    ]  # fmt: skip
    return [shapes[i] for i in rng.permutation(len(shapes))[:count]]


def levels_of(name: str) -> list[Level]:
    if name == "record":
        return ["record"]
    if name == "user":
        return ["user", "record"]
    return ["element", "record", "user"]


def searched(statistic: str, seed: int, shapes: int, pairs: int) -> float:
    """The largest share of what is billed that random and crafted neighbours show."""
    rng, worst = np.random.default_rng(seed), 0.0
    for name in UNITS:
        for shape in shapes_of(rng, statistic, name, shapes):
            relation = RELATIONS[rng.integers(0, 2)]
            selects = shape.keys and shape.domain in ("mixed", "selected")
            laplace = not selects and bool(rng.integers(0, 4) == 0)
            ask = question(statistic, name, shape, relation, laplace=laplace)
            low, high = [(-4.0, 2.0), (0.0, 4.0), (-8.0, 0.0)][rng.integers(0, 3)]
            outcome = Outcome(tuple(rng.choice([0.5, 1.0, 3.3, 40.0], 3)), low, high)
            for level in levels_of(name):
                asked = Asked(level, RELATIONS[rng.integers(0, 2)], int(rng.integers(1, 4)))
                crafted = list(crafted_pairs(name, asked))
                some = [crafted[i] for i in rng.permutation(len(crafted))[: pairs // 2]]
                some += [random_pair(rng, name, asked) for _ in range(pairs - len(some))]
                found = worst_ratio(ask, iter(some), asked, outcome)
                assert found <= 1 + 1e-9, (statistic, name, shape, asked, laplace, found)
                worst = max(worst, found)
    return worst


@pytest.mark.search(keep=4)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", [*STATISTICS, *TOPS])
def test_no_neighbours_move_a_statistic_farther_than_billed(statistic: str) -> None:
    # Near 1, so that the search is one that finds something.
    assert searched(statistic, seed=0, shapes=1, pairs=4) > 0.9


@pytest.mark.slow
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", [*STATISTICS, *TOPS])
def test_a_longer_search(statistic: str) -> None:
    assert searched(statistic, seed=1, shapes=6, pairs=10) > 0.99


def held(name: str, relation: Relation, noise: Any, by: str | None = None) -> Ask:
    def ask(table: dg.UserTable) -> Any:
        return dg.elements_per_user(
            table, by, unit=UNITS[name], epsilon=1, delta=1e-6, relation=relation, edges=[1, 2, 5, 20],
            noise=noise, random_state=1,
        )  # fmt: skip

    return ask


@pytest.mark.search(keep=1)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_no_neighbours_move_what_people_hold_farther_than_billed(noise: str) -> None:
    rng, worst = np.random.default_rng(7), dict.fromkeys(RELATIONS, 0.0)
    for name, by in [
        ("own", None), ("own", "cell"), ("column", None), ("made", None), ("made drop", None),
        ("user", "item"), ("capped", None), ("record", "item"),
    ]:  # fmt: skip
        levels: list[Level] = ["record"] if name == "record" else ["element", "record", "user"]
        for level, relation, k in itertools.product(levels, RELATIONS, (1, 3)):
            asked = Asked(level, relation, k)
            crafted = list(crafted_pairs(name, asked))
            pairs = [crafted[i] for i in rng.permutation(len(crafted))[:2]]
            pairs += [random_pair(rng, name, asked) for _ in range(2)]
            if level == "user":
                left = [row for user in range(k) for row in heavy(user, PLACES[:1], 1.0, 1)]
                right = [row for user in range(k) for row in heavy(user, PLACES, 1.0, 9)]
                pairs.append((left, right if relation == "replace" else []))
            found = worst_ratio(held(name, relation, noise, by), iter(pairs), asked, Outcome())
            assert found <= 1 + 1e-9
            worst[relation] = max(worst[relation], found)
    assert min(worst.values()) > 0.99


# What a seeded bug makes worse: (statistic, unit, keys, domain, clip) and what changes.
ALL_CLIPPED = [
    ("count", "user", ("item",), "public", 2.5),
    ("sum", "user", (), "public", 2.5),
    ("sum above 0", "own", ("item", "cell"), "public", 2.5),
    ("mean", "made", ("cell",), "public", 2.5),
    ("variance", "column", ("item",), "selected", 2.5),
    ("quantiles", "function", ("item",), "selected", 2.5),
    ("top", "user", ("item",), "public", 1.0),
    ("names", "user", ("item",), "selected", "auto"),
]


def seen(
    case: tuple[str, str, tuple[str, ...], str, Any],
    asked: Asked,
    bill: Callable[[Event], Event] = lambda event: event,
    *,
    laplace: bool = False,
    outcome: Outcome = Outcome(),
) -> float:
    statistic, name, keys, domain, clip = case
    ask = question(statistic, name, Shape(keys, domain, clip), asked.relation, laplace=laplace)
    return worst_ratio(ask, crafted_pairs(name, asked), asked, outcome, bill)


def own_level(name: str) -> Level:
    return UNITS[name].level


def unclipped(self: Any, sums: FloatArray, grid: Grid, unit: float) -> FloatArray:
    row = self.cell if grid.bounds.size > 1 else np.zeros_like(self.cell)
    return np.asarray(np.floor(sums * np.repeat(unit / grid.step[row], self.lengths)))


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("case", ALL_CLIPPED, ids=lambda case: case[0])
def test_the_search_finds_a_missing_clip(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(own_level(case[1]), "zero_out", 1)
    assert 0.5 < seen(case, asked) <= 1 + 1e-9
    monkeypatch.setattr(kernel._Blocks, "clip", unclipped)
    assert seen(case, asked) > 1.3


@pytest.mark.search(keep=2)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("case", ALL_CLIPPED, ids=lambda case: case[0])
def test_the_search_finds_a_missing_root_two_of_replace(
    case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Cells of one item and two corners are vectors: a unit that is exchanged may turn by 90°.
    asked = Asked(own_level(case[1]), "replace", 1)
    assert 0.98 < seen(case, asked) <= 1 + 1e-9
    monkeypatch.setattr(Contribution, "replace_factor", 1.0)
    assert seen(case, asked) > 1.39


@pytest.mark.search(keep=3)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize(
    "statistic", ["mean", "variance", "quantiles", "deep quantiles", "sum above 0"]
)
def test_the_search_finds_a_split_that_adds_up_to_more_than_1(
    statistic: str, laplace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = (statistic, "user", (), "public", 400.0)
    asked = Asked("record", "zero_out", 3)
    assert 0.45 < seen(case, asked, laplace=laplace) <= 1 + 1e-9
    real = {split: split.__call__ for split in (Powers, Tree, Parts)}

    def twice(split: Any) -> Callable[..., Chunk]:
        def made(self: Any, keys: IntArray, numbers: FloatArray) -> Chunk:
            codes, totals = real[split](self, keys, np.clip(numbers, self.low, self.high))
            return codes, 2 * (np.ones(codes.size) if totals is None else totals)

        return made

    for split in real:
        monkeypatch.setattr(split, "__call__", twice(split))
    # Two are what one was; under l1 half of what is billed is for blocks at their bound.
    assert seen(case, asked, laplace=laplace) > (0.9 if laplace and "sum" not in statistic else 1.3)


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", ["mean", "variance"])
def test_the_search_finds_a_first_corner_that_is_not_the_rest(
    statistic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = (statistic, "record", ("item",), "public", "auto")
    asked = Asked("record", "zero_out", 1)
    assert 0.99 < seen(case, asked) <= 1 + 1e-9
    real = Powers.__call__

    def careless(self: Powers, keys: IntArray, numbers: FloatArray | None) -> Chunk:
        codes, totals = real(self, keys, numbers)
        assert totals is not None
        corners = totals.reshape(-1, self.corners)
        # The power without its complement.
        corners[:, 0] = 1 / self.unit
        return codes, corners.ravel()

    monkeypatch.setattr(Powers, "__call__", careless)
    assert seen(case, asked) > 1.1


@pytest.mark.search(keep=2)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", ["mean in a range", "sum in a range"])
@pytest.mark.parametrize("name", ["user", "own", "capped column"])
def test_the_search_finds_ranges_of_unscaled_blocks(
    statistic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = (statistic, name, ("item",), "public", 2.5)
    asked = Asked(own_level(name), "zero_out", 1)
    assert 0.5 < seen(case, asked) <= 1 + 1e-9
    real = run_module._range

    def careless(*rest: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel._Blocks, "clip", unclipped)
            return real(*rest)

    monkeypatch.setattr(run_module, "_range", careless)
    assert seen(case, asked) > 10


def billed_as(**fields: Any) -> Callable[[Event], Event]:
    def bill(event: Event) -> Event:
        assert isinstance(event, Gaussian | Laplace | Selection)
        return dataclasses.replace(
            event, contribution=dataclasses.replace(event.contribution, **fields)
        )

    return bill


@pytest.mark.search(keep=1)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", ["sum", "sum in a range"])
@pytest.mark.parametrize("keys", [(), ("item",)])
def test_the_search_finds_net_sums_billed_as_nonnegative(
    statistic: str, keys: tuple[str, ...]
) -> None:
    asked, case = Asked("user", "replace", 2), (statistic, "user", keys, "public", 2.5)
    outcome = Outcome(low=-4.0, high=4.0)
    assert 0.98 < seen(case, asked, outcome=outcome) <= 1 + 1e-9
    assert seen(case, asked, billed_as(coordinates="nonnegative"), outcome=outcome) > 1.4
    assert seen(case, asked, billed_as(coordinates="one"), outcome=outcome) > 1.98


@pytest.mark.usefixtures("cached_plans")
def test_the_search_finds_columns_billed_as_disjoint_and_a_cap_without_admissions() -> None:
    asked = Asked("element", "zero_out", 2)
    case: Any = ("mean", "column", ("item",), "public", 2.5)
    assert 0.98 < seen(case, asked) <= 1 + 1e-9
    assert seen(case, asked, billed_as(layout="disjoint")) > 1.4
    asked = Asked("element", "zero_out", 1)
    case = ("mean", "capped", ("item",), "public", 2.5)
    assert 0.98 < seen(case, asked) <= 1 + 1e-9
    assert seen(case, asked, billed_as(max_elements=None)) > 1.4


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", ["names", "count", "mean"])
@pytest.mark.parametrize("name", ["function", "made", "capped function"])
def test_an_element_without_a_cell_is_clipped_over_all_its_groups(
    statistic: str, name: str
) -> None:
    # The function fails on "e", which is one element in three groups.
    rows = heavy(0, [("e", "p"), ("e", "q"), ("e", "r")], 1.0, 40)
    asked = Asked(own_level(name), "zero_out", 1)
    ask = question(statistic, name, Shape(("item", "cell"), "selected", 2.5), "zero_out")
    assert 0.5 < worst_ratio(ask, iter([(rows, [])]), asked, Outcome()) <= 1 + 1e-9


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", ["names", "truncated", "count"])
def test_the_search_finds_items_beyond_max_items(
    statistic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Weighted by 1/√t of more items than are billed, a lone item passes more often.
    case = (statistic, "user", ("item", "cell"), "selected", 2.5)
    asked = Asked("user", "zero_out", 1)
    assert 0.5 < seen(case, asked) <= 1 + 1e-9
    if statistic == "truncated":
        everything = lambda self, _: np.ones(self.size, np.bool_)  # noqa: E731
        monkeypatch.setattr(kernel._Blocks, "among_first_items", everything)
    else:
        monkeypatch.setattr(kernel._Blocks, "clip", unclipped)
    assert seen(case, asked) > 1.3


def test_the_search_finds_holdings_billed_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked("element", "zero_out", 1)
    # From two bins to two others.
    pair = (
        heavy(0, PLACES[:1], 1.0, 3) + heavy(0, PLACES[2:3], 1.0, 9),
        heavy(0, PLACES[:1], 1.0, 3),
    )
    ask = held("own", "zero_out", "gaussian")
    assert 0.99 < worst_ratio(ask, iter([pair]), asked, Outcome()) <= 1 + 1e-9
    # Only one bin left and one entered.
    monkeypatch.setattr(Contribution, "replace_factor", 1.0)
    assert worst_ratio(ask, iter([pair]), asked, Outcome()) > 1.4

    def half(event: Event) -> Event:
        assert isinstance(event, Gaussian)
        return dataclasses.replace(event, noise_multiplier=math.sqrt(2) * event.noise_multiplier)

    # A sensitivity of 1 instead of 2.
    assert worst_ratio(ask, iter([pair]), asked, Outcome(), half) > 1.99


@pytest.mark.usefixtures("cached_plans")
def test_the_search_finds_gumbel_scores_of_records() -> None:
    asked = Asked("user", "zero_out", 1)
    case = ("gumbel", "user", ("item",), "public", 2.5)
    assert 0.99 < seen(case, asked) <= 1 + 1e-9
    with pytest.MonkeyPatch.context() as patch:
        real = Contributions.holders

        def records(self: Contributions) -> IntArray:
            return 2 * real(self)

        patch.setattr(Contributions, "holders", records)
        assert seen(case, asked) > 1.9


# -- the same integers from the database, and the loss that is paid ---


@pytest.mark.search(keep=4)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", [*STATISTICS, *TOPS])
def test_the_database_brings_the_same_integers(statistic: str) -> None:
    rng = np.random.default_rng(3)
    rows = [row for user in [*range(-3, 9), None] for row in random_rows(rng, user, 9)]
    names = list(UNITS)
    for name in names[::4] if statistic.startswith("count") else names[1::5]:
        (shape,) = shapes_of(rng, statistic, name, 1)
        ask = question(statistic, name, shape, "zero_out")
        shuffled = [rows[i] for i in rng.permutation(len(rows))]
        found, _ = noised(ask, shuffled, Outcome(), "duckdb")
        expected, _ = noised(ask, rows, Outcome())
        assert found == expected


def curve(mu: float, delta: float) -> float:
    """The ε of a Gaussian mechanism, from the formula."""

    def above(epsilon: float) -> float:
        one, two = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return float(log_ndtr(one) + np.log1p(-np.exp(epsilon + log_ndtr(two) - log_ndtr(one)))
                     - math.log(delta))  # fmt: skip

    return float(brentq(above, 0.0, 50 * mu + mu * mu, xtol=1e-12))


# The layout of a person's blocks, and by vector how far two blocks may lie apart.
PAID: list[tuple[str, str, tuple[str, ...], str, Any, str, list[float]]] = [
    ("count", "own", ("item",), "public", 2.0, "disjoint", [1.0]),
    ("count", "own", ("item",), "public", "auto", "disjoint", [math.sqrt(2), 1.0]),
    ("count", "function", ("item",), "selected", 2.0, "disjoint", [math.sqrt(2)] * 2),
    ("count", "record", ("item",), "public", "auto", "record", [math.sqrt(2)]),
    ("mean", "own", ("item",), "public", "auto", "disjoint", [math.sqrt(2)] * 2),
    ("mean in a range", "user", (), "public", "auto", "shared", [math.sqrt(2)] * 3),
    ("mean in a range", "own", ("item",), "public", 3.0, "mixed", [math.sqrt(2)] * 2),
    ("variance", "column", ("item",), "public", 3.0, "shared", [math.sqrt(2)]),
    ("sum", "user", (), "public", "auto", "shared", [math.sqrt(2), 2.0]),
    ("sum", "column", ("item",), "public", 3.0, "shared", [2.0]),
    ("sum above 0", "user", (), "public", 3.0, "shared", [1.0]),
    ("sum", "own", ("item",), "selected", 3.0, "disjoint", [1.0, 2.0]),
    ("quantiles", "own", ("item",), "public", 3.0, "disjoint", [math.sqrt(2)]),
    ("top", "own", ("item",), "public", "auto", "disjoint", [1.0]),
    ("top", "user", ("item",), "public", 3.0, "shared", [math.sqrt(2)]),
]


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("case", PAID, ids=lambda case: "-".join(map(str, case[:5])))
def test_the_loss_that_is_paid_is_the_one_printed(case: Any, relation: Relation) -> None:
    statistic, name, keys, domain, clip, layout, apart = case
    ask = question(statistic, name, Shape(keys, domain, clip), relation)
    vectors, release = noised(ask, heavy(0, PLACES, 1.0, 2), Outcome())
    assert len(vectors) == len(apart)
    for k in (1, 2, 3):
        mu2, leak = 0.0, 0.0
        for i, (vector, s) in enumerate(zip(vectors, apart, strict=True)):
            shared = layout in ("shared", "record") or (layout == "mixed" and i == 0)
            cells = min(k, 4) if domain == "public" and not shared else k
            moved = (k if shared else math.sqrt(cells)) * (s if relation == "replace" else 1.0)
            multipliers = {vector.scale[name] / vector.radius[name] for name in vector.sums}
            assert max(multipliers) <= min(multipliers) * (1 + 1e-12)
            mu2 += (moved / min(multipliers)) ** 2
            if isinstance(vector.event, Selection):
                event, sd = vector.event, min(multipliers)
                most = 1 if s == 1.0 else 3
                one = max(
                    1 - ndtr((event.threshold - t**-0.5) / sd) ** t for t in range(1, most + 1)
                )
                named = 1 - (1 - one) ** k
                leak += named / (1 - named)
        expected = curve(math.sqrt(mu2), 1e-6 - leak)
        assert release.guarantee.epsilon(units=k) == pytest.approx(expected, rel=1e-6)
    assert 0.999 < release.guarantee.epsilon() <= 1.0


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_loss_of_laplace_noise_is_paid_in_full(relation: Relation) -> None:
    two = 2.0 if relation == "replace" else 1.0
    for statistic, name, keys, clip, apart in [
        ("count", "own", ("item",), 2.0, [1.0]),
        ("mean", "own", ("item",), "auto", [two, two]),
        ("sum", "user", (), "auto", [two, two]),
        ("sum in a range", "user", (), 3.0, [two, two]),
        ("quantiles", "column", ("item",), 3.0, [two]),
        ("top by laplace", "user", ("item",), 3.0, [two]),
    ]:
        ask = question(statistic, name, Shape(keys, "public", clip), relation, laplace=True)
        vectors, release = noised(ask, heavy(0, PLACES, 1.0, 2), Outcome())
        for k in (1, 2, 3):
            paid = sum(
                k * moved * max(v.radius[name] / v.scale[name] for name in v.sums)
                for v, moved in zip(vectors, apart, strict=True)
            )
            assert release.guarantee.epsilon(units=k) == pytest.approx(paid, rel=1e-9)
        assert 0.999 < release.guarantee.epsilon() <= 1.0


# -- b. names: only what passes the threshold, never what nobody holds ---


class Shifted:
    """Noise that is always the same number of scales."""

    def __init__(self, patch: pytest.MonkeyPatch, scales: float) -> None:
        def drawn(scale: Any, *, source: Any) -> IntArray:
            return np.floor(np.asarray(scale) * scales).astype(np.int64)

        for module in (run_module, top_module):
            patch.setattr(module, "rounded_gaussian", drawn)
        patch.setattr(run_module, "discrete_laplace", drawn)
        patch.setattr(
            top_module, "truncated_geometric",
            lambda rate, cutoff, size, *, source: np.full(size, cutoff if scales > 0 else 0),
        )  # fmt: skip


NAMING: dict[str, Callable[..., Any]] = {
    "count": lambda t, **o: dg.count(t, "x", by="item", clip=3.0, **o),
    "mean": lambda t, **o: dg.mean(t, "x", by="item", clip=3.0, bounds=(0, 1), **o),
    "top": lambda t, **o: dg.top(t, "item", method="gaussian", **o),
    "names": lambda t, **o: dg.top(t, "item", counts=False, method="gaussian", **o),
    "truncated": lambda t, **o: dg.top(t, "item", method="truncated", **o),
}


@pytest.mark.search(keep=8)
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("way", NAMING)
@pytest.mark.parametrize("unit", [dg.Element("item"), dg.User()], ids=["element", "user"])
def test_no_item_is_named_below_the_threshold(
    way: str, unit: Unit, integers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"unit": unit, "epsilon": 2.0, "delta": 1e-6, "max_items": 1}
    kind = pa.int64() if integers else pa.string()

    def released(holders: dict[int, int]) -> Any:
        who = [1000 * item + i for item, number in holders.items() for i in range(number)]
        items = [item for item, number in holders.items() for _ in range(number)]
        rows = {"who": who, "item": pa.array(items).cast(kind), "x": np.full(len(who), 0.5)}
        return NAMING[way](dg.read(pa.table(rows), user="who", threads=1), **options)

    event = released({1: 1}).guarantee.event.parts[0]
    passing = event.cutoff + 1 if way == "truncated" else event.threshold
    least = math.ceil(passing + (0.0 if way == "truncated" else 1e-6))
    with monkeypatch.context() as patch:
        Shifted(patch, 0.0)
        release = released({1: least + 1, 2: least, 3: least - 1, 4: 1})
        assert sorted(map(str, release.items.to_pylist())) == ["1", "2"]


@pytest.mark.parametrize("way", NAMING)
def test_no_item_is_named_that_nobody_adds_to(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # One user holds many; beyond max_items they count 0, and so does what has no number.
    rows: dict[str, Any] = {"who": np.ones(500, np.int64), "item": np.arange(500) % 100,
                            "x": np.where(np.arange(500) % 100 < 50, np.nan, 1.0)}  # fmt: skip
    table = dg.read(pa.table(rows), user="who", threads=1)
    Shifted(monkeypatch, 1000.0)
    release = NAMING[way](table, unit=dg.User(), epsilon=2.0, delta=1e-6, max_items=7)
    assert len(release) == 7
    if way in ("count", "mean"):
        assert min(release.items.to_pylist()) >= 50


# -- c. statistical audits ---

# Each assertion fails by chance with probability below this.
CHANCE = 1e-7
TESTS = 5_000


def rates(present: Values, absent: Values, threshold: float) -> tuple[float, float]:
    """A lower bound on P(statistic ≥ threshold | one side), an upper one on the other."""
    hits, false = int((present >= threshold).sum()), int((absent >= threshold).sum())
    low = beta.ppf(CHANCE / 2, hits, present.size - hits + 1) if hits else 0.0
    high = beta.ppf(1 - CHANCE / 2, false + 1, absent.size - false) if false < absent.size else 1.0
    return float(low), float(high)


def mu_below(present: Values, absent: Values) -> float:
    """A lower confidence bound on μ, the distance of the two outcomes in standard deviations."""
    middle = float(np.median(np.concatenate([present, absent])))
    low, high = rates(present, absent, middle)
    return float(ndtri(low) - ndtri(high))


def epsilon_below(present: Values, absent: Values) -> float:
    """A lower confidence bound on ε at δ = 0."""
    middle = float(np.median(np.concatenate([present, absent])))
    low, high = rates(present, absent, middle)
    return math.log(low / high) if low > 0 else 0.0


class Measured(NamedTuple):
    masses: Values
    guarantee: dg.Guarantee


def measured(ask: Callable[[dg.UserTable], Any], table: dg.UserTable) -> Measured:
    """The noisy masses of a release, of which its estimates are a function."""
    seen: list[Any] = []
    real = run_module.noisy_sums

    def spy(*rest: Any) -> Any:
        seen.append(real(*rest))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        for module in (histogram_module, moments_module, quantiles_module, top_module):
            patch.setattr(module, "noisy_sums", spy)
        ask(table)
    (one,) = seen
    return Measured(one.masses, one.guarantee)


def lone(x: float | None, times: int = 20) -> dg.UserTable:
    """User i holds item i and nobody else does, each record with the same number."""
    kinds = pa.schema({"who": pa.int64(), "item": pa.int64(), "x": pa.float64()})
    who = np.repeat(np.arange(TESTS), times if x is not None else 0)
    return with_rows(pa.table([who, who, np.full(who.size, x or 0.0)], schema=kinds), threads=1)


# Name → how to ask, the numbers of the two neighbours (None: nothing), the most telling direction.
AUDITS: dict[str, tuple[Callable[..., Any], float | None, float | None, list[float]]] = {
    "count": (lambda t, **o: dg.count(t, by="item", **o), 1.0, None, [1]),
    "sum": (lambda t, **o: dg.sum(t, "x", by="item", bounds=(-1, 1), **o), 9.0, -9.0, [1]),
    "mean": (lambda t, **o: dg.mean(t, "x", by="item", bounds=(-1, 1), **o), -5.0, 5.0, [1, -1]),
    "mean of nothing": (
        lambda t, **o: dg.mean(t, "x", by="item", bounds=(-1, 1), **o),
        0.0,
        None,
        [1, 1],
    ),
    "variance": (
        lambda t, **o: dg.variance(t, "x", by="item", bounds=(-1, 1), **o),
        -5.0,
        5.0,
        [1, 0, -1],
    ),
    "quantiles": (
        lambda t, **o: dg.quantiles(t, "x", by="item", bounds=(-1, 1), bins=16, **o),
        -1.0,
        1.0,
        [1, *[0.0] * 14, -1],
    ),
    "top": (lambda t, **o: dg.top(t, "item", **o), 1.0, None, [1]),
}


def audit(name: str, unit: Unit, **options: Any) -> tuple[float, float]:
    """A lower bound on μ (or ε, under Laplace noise), and what is claimed."""
    ask, one, two, direction = AUDITS[name]
    relation: Relation = "zero_out" if two is None else "replace"
    options = {
        "unit": unit, "epsilon": 6.0, "delta": 1e-6, "relation": relation, "clip": 5.0,
        "domain": np.arange(TESTS), **options,
    }  # fmt: skip
    if name != "top":
        options = {"noise": "gaussian", **options}
    sides = [measured(lambda t: ask(t, **options), lone(x)) for x in (one, two)]
    apart = [side.masses @ np.array(direction, dtype=np.float64) for side in sides]
    loss = sides[0].guarantee.event.loss(1, relation, OWN_UNIT[unit.level])
    if loss.pure:
        return epsilon_below(apart[0], apart[1]), loss.pure
    return mu_below(apart[0], apart[1]), loss.mu


@pytest.mark.search(keep=3)
@pytest.mark.parametrize("name", AUDITS)
def test_audit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = {"method": "gaussian", "clip": 1.0} if name == "top" else {}
    unit = dg.Element("item") if name in ("count", "mean") else dg.User()
    found, claimed = audit(name, unit, **method)
    assert 0.7 * claimed < found <= claimed
    real = run_module.noise_of
    monkeypatch.setattr(run_module, "noise_of", lambda e, scale, s: real(e, scale / 2, s))
    found, claimed = audit(name, unit, **method)
    assert found > claimed


@pytest.mark.search(keep=1)
@pytest.mark.parametrize("name", ["count", "sum", "mean of nothing", "quantiles", "top"])
def test_audit_of_laplace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law = {"method": "laplace", "clip": 1.0} if name == "top" else {"noise": "laplace"}
    options = {"epsilon": 1.5, "delta": 0.0, **law}
    found, claimed = audit(name, dg.User(), **options)
    assert 0.2 * claimed < found <= claimed
    real = run_module.noise_of
    monkeypatch.setattr(run_module, "noise_of", lambda e, scale, s: real(e, scale / 4, s))
    found, claimed = audit(name, dg.User(), **options)
    assert found > claimed


@pytest.mark.search(keep=0)
def test_audit_of_wrong_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    # An exchanged unit costs √2 for masses, 2 for signed sums.
    monkeypatch.setattr(Contribution, "replace_factor", 1.0)
    for name in ("sum", "mean", "variance", "quantiles"):
        found, claimed = audit(name, dg.User(), epsilon=3.0)
        assert found > claimed


def many(
    ask: Callable[..., Any], rows: Sequence[Row], runs: int, read: Callable[[Any], float]
) -> Values:
    """What is read off a release, again and again, from fresh noise."""
    table = table_of(rows, threads=1, engine="in_memory")
    return np.array([read(ask(table, seed)) for seed in range(runs)])


# Whole releases of one number: name → how to ask, the rows of the neighbours, what to look at.
CROWD: list[Row] = [(user, "a", "p", float(user % 5) - 2) for user in range(30)]
Whole: TypeAlias = tuple[Callable[..., Any], list[Row], list[Row], Callable[[Any], float], Relation]
WHOLE: dict[str, Whole] = {
    "held": (
        lambda t, **o: dg.elements_per_user(
            t, unit=dg.User(by="item", max_elements=9), edges=[1, 5], **o
        ),
        [*CROWD, (99, "a", "p", 1.0)],
        [*CROWD, *[(99, item, "p", 1.0) for item in ITEMS for _ in range(9)]],
        lambda r: float(r.estimate[0] - r.estimate[1] + r.estimate[3] - r.estimate[5]),
        "replace",
    ),
    "sum": (
        lambda t, **o: dg.sum(t, "x", unit=dg.User(), noise="gaussian", clip=1.0, **o),
        [*CROWD, *[(99, "a", "p", 2.0)] * 9],
        [*CROWD, *[(99, "a", "p", -2.0)] * 9],
        lambda r: float(r.estimate[0]),
        "replace",
    ),
    "mean": (
        lambda t, **o: dg.mean(
            t, "x", unit=dg.User(), noise="gaussian", clip=1.0, bounds=(-2, 2), **o
        ),
        [*CROWD, *[(99, "a", "p", 0.0)] * 9],
        CROWD,
        lambda r: float(r.count[0]),
        "zero_out",
    ),
}


# With what is chosen privately beforehand: the range, the clipping bound, the names.
CHOSEN: dict[str, Whole] = {
    "count": (
        lambda t, **o: dg.count(t, unit=dg.User(), noise="gaussian", **o),
        [*CROWD, *[(99, "a", "p", 2.0)] * 99],
        CROWD,
        lambda r: float(r.estimate[0]),
        "zero_out",
    ),
    "sum": (
        lambda t, **o: dg.sum(t, "x", unit=dg.User(), noise="gaussian", **o),
        [*CROWD, *[(99, "a", "p", 900.0)] * 99],
        [*CROWD, *[(99, "a", "p", -900.0)] * 99],
        lambda r: float(r.estimate[0]),
        "replace",
    ),
    "mean": (
        lambda t, **o: dg.mean(t, "x", unit=dg.Element("item"), noise="gaussian", **o),
        [*CROWD, *[(99, "a", "p", 900.0)] * 99],
        CROWD,
        lambda r: float(r.count[0]),
        "zero_out",
    ),
}


def audit_whole(name: str, runs: int, cases: dict[str, Whole] = WHOLE) -> tuple[float, float]:
    ask, one, two, read, relation = cases[name]
    options: dict[str, Any] = {"epsilon": 12.0, "delta": 1e-6, "relation": relation}
    promise = ask(table_of(one), **options).guarantee

    def run(table: dg.UserTable, seed: int) -> Any:
        return ask(table, random_state=seed, **options)

    values = [many(lambda t, s, o=o: run(t, s + o), rows, runs, read)
              for o, rows in ((0, one), (10**6, two))]  # fmt: skip
    return mu_below(values[0], values[1]), promise.event.loss(
        1, relation, OWN_UNIT[promise.level]
    ).mu


@pytest.mark.search(keep=0)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("name", ["held"])
def test_audit_of_whole_releases(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, claimed = audit_whole(name, 400)
    assert 0.6 * claimed < found <= claimed
    real = run_module.noise_of
    for module in (run_module, holdings_module):
        monkeypatch.setattr(module, "noise_of", lambda e, scale, s: real(e, scale / 2, s))
    found, claimed = audit_whole(name, 400)
    assert found > claimed


@pytest.mark.slow
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("name", WHOLE)
def test_longer_audit_of_whole_releases(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, claimed = audit_whole(name, 3000)
    assert 0.3 * claimed < found <= claimed
    real = run_module.noise_of
    for module in (run_module, holdings_module):
        monkeypatch.setattr(module, "noise_of", lambda e, scale, s: real(e, scale / 3, s))
    found, claimed = audit_whole(name, 3000)
    assert found > claimed


@pytest.mark.slow
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("name", CHOSEN)
def test_audit_with_what_is_chosen_privately(name: str) -> None:
    found, claimed = audit_whole(name, 3000, CHOSEN)
    assert found <= claimed


# -- d. what is estimated is right ---


@functools.cache
def frame() -> pd.DataFrame:
    """Some hundred clean rows of forty users; never more than one element a bin's width apart."""
    rng = np.random.default_rng(5)
    size = 400
    item = rng.choice(ITEMS, size, p=[0.4, 0.3, 0.2, 0.1])
    return pd.DataFrame(
        {
            "who": rng.integers(0, 40, size), "item": item, "cell": rng.choice(CELLS, size),
            "x": np.round(rng.normal(3.0, 20.0, size), 3),
        }
    )  # fmt: skip


# Rows that count in no statistic of numbers.
BAD: list[Row] = [
    (None, "a", "p", 5.0), (3, None, "p", 5.0), (3, "a", None, 5.0), (4, "b", "q", math.nan),
    (5, "b", "q", math.inf), (6, "c", "r", -math.inf), (7, "c", "r", None),
]  # fmt: skip


def clean() -> list[Row]:
    return [*frame().itertuples(index=False, name=None)]


def dirty(bad: Sequence[Row] = BAD) -> dg.UserTable:
    """The same rows among others that do not count."""
    rows = [*bad, *clean()]
    order = np.random.default_rng(1).permutation(len(rows))
    return table_of([rows[i] for i in order], threads=1)


def left_out(keys: Sequence[str]) -> list[Row]:
    """The bad rows that no group of these keys counts."""
    return [
        row for row in BAD
        if row[0] is None or row[3] is None or not math.isfinite(row[3])
        or (row[1] is None and {"item", "topic"} & {*keys}) or (row[2] is None and "cell" in keys)
    ]  # fmt: skip


GROUPED: dict[str, tuple[tuple[str, ...], Any]] = {
    "no key": ((), None),
    "one key": (("item",), ITEMS),
    "selected": (("item",), None),
    "cells": (("topic",), None),
    "two keys": (("item", "cell"), {"item": ITEMS, "cell": CELLS}),
    "listed": (("cell", "item"), [("p", "a"), ("r", "d"), ("q", "b")]),
    "mixed": (("item", "cell"), {"cell": CELLS}),
    "both selected": (("item", "cell"), {}),
}
EXACT: dict[str, tuple[Callable[..., Any], Callable[[pd.Series[float]], float]]] = {
    "count": (lambda t, **o: dg.count(t, "x", **o), lambda x: len(x)),
    "sum": (lambda t, **o: dg.sum(t, "x", bounds=(-30, 40), **o), lambda x: x.clip(-30, 40).sum()),
    "sum above 0": (
        lambda t, **o: dg.sum(t, "x", bounds=(0, 64), **o),
        lambda x: x.clip(0, 64).sum(),
    ),
    "sum below 0": (
        lambda t, **o: dg.sum(t, "x", bounds=(-64, 0), **o),
        lambda x: x.clip(-64, 0).sum(),
    ),
    "mean": (
        lambda t, **o: dg.mean(t, "x", bounds=(-30, 40), **o),
        lambda x: x.clip(-30, 40).mean(),
    ),
    "variance": (
        lambda t, **o: dg.variance(t, "x", bounds=(-30, 40), **o),
        lambda x: x.clip(-30, 40).var(ddof=0),
    ),
}


def expected(keys: tuple[str, ...], of: Callable[[Any], float]) -> dict[tuple[Any, ...], float]:
    rows = frame().assign(topic=lambda rows: rows["item"].map(MAPPING))
    if not keys:
        return {(): of(rows["x"])}
    return {tuple(key): of(part["x"]) for key, part in rows.groupby(list(keys))}


def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    Shifted(monkeypatch, 0.0)


@pytest.mark.search(keep=24)
@pytest.mark.parametrize("grouped", GROUPED)
@pytest.mark.parametrize("name", EXACT)
def test_estimates_are_those_of_pandas(
    name: str, grouped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noiseless(monkeypatch)
    (ask, of), (keys, domain) = EXACT[name], GROUPED[grouped]
    unit: Unit = dg.Element("item") if grouped in ("selected", "two keys") else dg.User()
    release = ask(
        dirty(left_out(keys)),
        by=keys or None,
        domain=domain,
        unit=unit,
        epsilon=50,
        delta=1e-6,
        clip=1024.0,
        noise="gaussian",
    )
    found = dict(zip(rows_of(release.groups), release.estimate.tolist(), strict=True))
    right = expected(keys, of)
    if grouped not in ("mixed", "both selected", "listed"):
        assert found.keys() == right.keys()
    elif grouped == "listed":
        assert [*found] == domain
    # A step of the grid for each user and group, 2^-20 of the largest number.
    for key, estimate in found.items():
        assert estimate == pytest.approx(right.get(key, 0.0), rel=2e-5, abs=2e-2)
    assert len(found) > (0 if not keys else 2)
    if name in ("mean", "variance"):
        counts = expected(keys, len)
        for key, count in zip(found, release.count.tolist(), strict=True):
            assert count == pytest.approx(counts.get(key, 0), abs=1e-3)
        assert "count" in release.to_arrow().column_names


@pytest.mark.search(keep=3)
@pytest.mark.parametrize("bins", [16, 256, 4096])
@pytest.mark.parametrize("grouped", ["no key", "one key", "both selected"])
def test_quantiles_are_right_up_to_one_bin(
    bins: Any, grouped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noiseless(monkeypatch)
    keys, domain = GROUPED[grouped]
    ranks = [0.0, 0.05, 0.25, 0.5, 0.8, 0.95, 1.0]
    release = dg.quantiles(
        dirty(left_out(keys)), "x", ranks, by=keys or None, domain=domain, unit=dg.User(), epsilon=50,
        delta=1e-6, clip=1024.0, bounds=(-80, 80), bins=bins,
    )  # fmt: skip
    width = 160 / bins + 1e-9
    sides = [
        {q: expected(keys, lambda x, q=q, s=s: quantile_of(x, q, s)) for q in ranks}  # type: ignore[misc]
        for s in ("left", "right")
    ]
    for (*key, q), found, low, high in zip(
        rows_of(release.groups), release.estimate, release.low, release.high, strict=True
    ):
        left, right = (side[q][tuple(key)] for side in sides)
        assert left - width <= found <= right + width
        assert low <= found <= high
    assert len(release) == len(ranks) * len(sides[0][0.5])


def quantile_of(x: Any, q: float, side: str) -> float:
    """The smallest or largest number below which lie at most a share q, and above at most the rest."""
    ordered = np.sort(np.asarray(x))
    place = q * ordered.size
    index = math.ceil(place - 1e-9) - 1 if side == "left" else math.floor(place + 1e-9)
    return float(ordered[min(max(index, 0), ordered.size - 1)])


@pytest.mark.search(keep=3)
@pytest.mark.parametrize(
    "method", ["gaussian", "laplace", "gumbel", "names", "truncated", "selected"]
)
@pytest.mark.parametrize("keys", [("item",), ("item", "cell")])
def test_top_counts_different_users(
    method: str, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    noiseless(monkeypatch)
    table, rows = dirty(), frame()
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": 200.0, "delta": 1e-6, "clip": 1024.0}
    options |= {"method": {"names": "gaussian", "selected": "gaussian"}.get(method, method)}
    domain = {"item": ITEMS, "cell": CELLS}
    if method in ("gaussian", "laplace", "gumbel"):
        options["domain"] = {key: domain[key] for key in keys}
        options["delta"] = 0.0 if method == "laplace" else 1e-6
    else:
        options["counts"] = method != "names"
    if method == "gumbel":
        options["epsilon"] = 1e4
    release = dg.top(table, keys, k=3, max_items=1 if method == "names" else 20, **options)
    # What has no number is held all the same.
    held = [row[:3] for row in BAD if row[0] is not None and None not in row[1 : 1 + len(keys)]]
    rows = pd.concat([rows[["who", "item", "cell"]], pd.DataFrame(held, columns=list(NAMES[:3]))])
    right = rows.groupby(list(keys))["who"].nunique().sort_values(ascending=False)
    assert sorted(release.estimate, reverse=True) == release.estimate.tolist()
    if method == "names":
        assert len(release) > 0
        return
    found = dict(zip(rows_of(release.groups), release.estimate.tolist(), strict=True))
    for key, estimate in found.items():
        assert estimate == pytest.approx(right[key if len(keys) > 1 else key[0]], abs=1e-2)
    assert sorted(found.values(), reverse=True) == pytest.approx(right.iloc[:3].tolist(), abs=1e-2)


@pytest.mark.parametrize(
    ("unit", "by"),
    [
        (dg.Element("item"), None),
        (dg.User(), "item"),
        (dg.Element("topic"), "item"),
        (dg.Record(), "item"),
    ],
    ids=["element", "user", "topic", "record"],
)
def test_what_people_hold_is_counted_exactly(
    unit: Unit, by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    noiseless(monkeypatch)
    release = dg.elements_per_user(dirty(), by, unit=unit, epsilon=1, delta=1e-6, edges=[1, 3, 10])
    known = [row for row in [*clean(), *BAD] if row[0] is not None and row[1] is not None]
    people = pd.DataFrame(known, columns=list(NAMES)).groupby("who")["item"]
    edges = [0, 1, 3, 10, np.inf]
    right = [*np.histogram(people.nunique(), np.array(edges) + 0.5)[0],
             *np.histogram(people.size(), np.array(edges) + 0.5)[0]]  # fmt: skip
    assert release.estimate.tolist() == right
    assert release.groups.columns[0].to_pylist() == ["elements"] * 4 + ["records"] * 4
    assert release.groups.columns[1].to_pylist() == [1, 3, 10, None] * 2
    assert release.share_at_most(3) == pytest.approx((people.nunique() <= 3).mean())
    assert release.share_at_most(10, "records") == pytest.approx((people.size() <= 10).mean())


@pytest.mark.search(keep=2)
@pytest.mark.parametrize("name", [*EXACT, "quantiles"])
def test_bad_values_are_left_out_without_a_word(
    name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask: Callable[..., Any] = dg.quantiles if name == "quantiles" else EXACT[name][0]
    options: dict[str, Any] = {"by": "item", "unit": dg.User(), "epsilon": 1, "delta": 1e-6,
                               "domain": ITEMS, "random_state": 4}  # fmt: skip
    if name == "quantiles":
        ask = lambda t, **o: dg.quantiles(t, "x", bounds=(-9, 9), **o)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (ask(table, **options) for table in (dirty([]), dirty(left_out(["item"]))))
    # The same noise on the same sums: not a trace of the others.
    assert one.to_arrow().equals(two.to_arrow())
    assert capfd.readouterr() == ("", "")


# -- e. intervals ---

COVERED: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "count": (lambda t, **o: dg.count(t, clip=16.0, **o), ["gaussian", "laplace"]),
    "sum": (
        lambda t, **o: dg.sum(t, "x", bounds=(-30, 40), clip=8.0, **o),
        ["gaussian", "laplace"],
    ),
    "mean": (
        lambda t, **o: dg.mean(t, "x", bounds=(-30, 40), clip=8.0, **o),
        ["gaussian", "laplace"],
    ),
    "variance": (lambda t, **o: dg.variance(t, "x", bounds=(-30, 40), clip=8.0, **o), ["gaussian"]),
    "quantiles": (
        lambda t, **o: dg.quantiles(
            t, "x", [0.25, 0.5, 0.9], bounds=(-30, 40), bins=256, clip=8.0, **o
        ),
        ["gaussian"],
    ),
}


def coverage(name: str, noise: str, runs: int, epsilon: float) -> float:
    """How often the 95% interval holds what the estimate would be without noise."""
    ask, _ = COVERED[name]
    table = table_of(clean(), threads=1, engine="in_memory")
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": epsilon, "delta": 1e-6, "noise": noise}
    with pytest.MonkeyPatch.context() as patch:
        noiseless(patch)
        exact = ask(table, **options).estimate
    inside = []
    for seed in range(runs):
        release = ask(table, random_state=seed, **options)
        inside.append((release.low <= exact) & (exact <= release.high))
        assert np.isfinite([release.estimate, release.std_error, release.low, release.high]).all()
        assert (release.low <= release.estimate).all()
        assert (release.estimate <= release.high).all()
        if name == "mean":
            assert (release.low >= -30).all()
            assert (release.high <= 40).all()
    return float(np.mean(inside))


@pytest.mark.search(keep=1)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize(
    ("name", "noise"), [(n, law) for n, (_, laws) in COVERED.items() for law in laws]
)
def test_coverage_of_intervals(name: str, noise: str) -> None:
    assert 0.91 <= coverage(name, noise, 300, 1.0) <= 1.0


@examples(200)
@given(
    low=st.floats(-1e9, 1e9),
    width=st.floats(1e-6, 1e9),
    masses=st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=5),
)
def test_means_lie_within_their_bounds(
    low: float, width: float, masses: list[tuple[float, float]]
) -> None:
    high = low + width
    if not low < high:
        return
    many = len(masses)
    made = run_module.Measured(
        Groups.of(["g"], [pa.array(range(many))]), np.array(masses), np.full(many, 3.0), np.ones(many),
        Powers(low, high, 1), dg.Guarantee("user", "", "zero_out", 1e-6, Gaussian(1.0)),
        asked_module.Asked(),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments_module, "noisy_sums", lambda *_: made)
        release = dg.mean(
            table_of([]), "x", bounds=(low, high), unit=dg.User(), epsilon=1, delta=1e-6
        )
    for values in (release.estimate, release.low, release.high):
        assert (values >= low).all()
        assert (values <= high).all()
    assert (release.low <= release.estimate).all()
    assert (release.estimate <= release.high).all()
    assert (release.std_error <= (high - low) * (1 + 1e-9)).all()


# -- f. wrong questions ---


class Unread:
    """A source that must not be read."""

    name = title = "The table"
    untyped = False

    def columns(self) -> dict[str, str]:
        raise AssertionError("asked for its columns")

    def attach(self, connection: Any) -> str:
        raise AssertionError("rows were read")


def unread(**options: Any) -> dg.UserTable:
    return dataclasses.replace(table_of([]), source=Unread(), **options)


GOOD: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
# Each called with whatever is wrong.
SUM: Any = dg.sum
MEAN: Any = dg.mean
QUANTILES: Any = dg.quantiles
TOP: Any = dg.top
HELD: Any = dg.elements_per_user
COUNT: Any = dg.count
WRONG: list[Any] = [
    *[
        (ask, ("x",), {"bounds": bounds}, words)
        for ask in (SUM, MEAN, QUANTILES, dg.variance)
        for bounds, words in [
            ((2, 1), "bounds must be finite and increasing"),
            ((1, 1), "bounds must be finite and"),
            ((0, math.inf), "bounds must be finite"),
            ((math.nan, 1), "bounds must be finite"),
            ((-1e308, 1.7e308), "bounds must be finite"),
            (3, "bounds must be two numbers"),
            ((1,), "bounds must be two numbers"),
            ((1, 2, 3), "two numbers"),
            (("a", "b"), "two numbers"),
        ]
    ],
    *[
        (QUANTILES, ("x", q), {"bounds": (0, 1)}, words)
        for q, words in [
            ([1.5], r"q must hold ranks in \[0, 1\]"),
            ([-0.1], "q must hold ranks"),
            ([], "q must hold"),
            ([math.nan], "q must hold"),
            ([0.5, 0.5], "q must hold different ranks"),
            (0.5, "q must be a list"),
            (["x"], "q must be a list"),
        ]
    ],
    (QUANTILES, ("x",), {"bounds": (0, 1), "bins": 10}, "bins must be 16, 256 or 4096"),
    *[
        (ask, arguments, options, words)
        for ask, arguments in [(COUNT, ()), (SUM, ("x",)), (MEAN, ("x",)), (QUANTILES, ("x",))]
        for options, words in [
            ({"by": "nothing"}, "'nothing' is not a column"),
            ({"by": ["item", "item"]}, "different columns"),
            ({"by": 3}, "by must be a column, a list of columns or None"),
            ({"by": "x"}, "cannot name things"),
            ({"by": "item", "domain": {"cell": ["p"]}}, "domain"),
            (
                {"by": ["item", "cell"], "domain": {"nothing": ["p"]}},
                "domain names 'nothing', which is none",
            ),
            ({"by": ["item", "cell"], "domain": [("a",)]}, "domain must hold 2 values in each row"),
            ({"domain": ["a"]}, "domain needs by="),
            ({"by": "item", "noise": "laplace"}, "domain must be given under Laplace noise"),
            ({"noise": "gaussian", "delta": 0.0}, "delta = 0"),
            ({"noise": "uniform"}, "noise must be one of"),
            ({"unit": dg.Element(MAPPING)}, "there is no item to apply it to"),
            ({"unit": dg.Element()}, "needs a partition"),
            ({"unit": dg.Element("nothing")}, "'nothing' is not a"),
            ({"epsilon": 0}, "epsilon must be finite and above 0"),
            ({"delta": 2}, "delta must lie"),
            ({"relation": "swap"}, "relation must be"),
            ({"clip": -1}, "clip must be finite"),
            ({"max_items": 0}, "max_items must be"),
            ({"random_state": "x"}, "random_state must be"),
            ({"unit": "user"}, "unit must be"),
        ]
    ],
    (SUM, ("item",), {}, "text where numbers are asked"),
    (MEAN, ("nothing",), {}, "'nothing' is not a column"),
    (COUNT, ("cell",), {}, "text where numbers are asked"),
    (COUNT, (["x"],), {}, "name of a column"),
    (
        MEAN,
        ("x",),
        {"unit": dg.Record(), "clip": 0.5, "bounds": (0, 1)},
        "clip must be at least 1 for Record",
    ),
    (
        QUANTILES,
        ("x",),
        {"unit": dg.Record(), "clip": 1.0, "bounds": (0, 1)},
        "clip must be at least 1.7",
    ),
    (TOP, ("item",), {"k": 0}, "k must be"),
    (TOP, ("item",), {"k": 1.5}, "k must be"),
    (TOP, ("item",), {"method": "best"}, "method must be one of"),
    (TOP, ("item",), {"method": "laplace"}, "domain must be given"),
    (TOP, ("item",), {"method": "gumbel", "k": 1}, "needs a public domain"),
    (TOP, ("item",), {"method": "gumbel", "domain": ITEMS}, "needs k"),
    (TOP, ("item",), {"method": "truncated", "domain": ITEMS}, "for unknown items"),
    (TOP, ("item",), {"counts": False, "domain": ITEMS}, "for unknown items"),
    (
        TOP,
        (["item", "cell"],),
        {"counts": False, "domain": {"item": ITEMS}},
        "public for all columns, or for none",
    ),
    (
        TOP,
        (["item", "cell"],),
        {"method": "truncated", "domain": {"item": ITEMS}},
        "public for all columns",
    ),
    (TOP, ([],), {}, "item must name at least one column"),
    (TOP, ("item",), {"delta": 0.0}, "delta"),
    (TOP, ("item",), {"delta": 0.0, "domain": ITEMS, "method": "gaussian"}, "delta"),
    (HELD, (), {}, "by must be the column"),
    (HELD, ("nothing",), {}, "'nothing' is not a column"),
    (HELD, (), {"unit": dg.Element(MAPPING)}, "by must be the column"),
    (HELD, (MAPPING,), {}, "by must be the column"),
    (HELD, ("item",), {"edges": [3, 2]}, "increasing"),
    (HELD, ("item",), {"edges": []}, "edges must be"),
    (HELD, ("item",), {"edges": [0]}, "edges must be"),
    (HELD, ("item",), {"edges": [1.5]}, "edges must be"),
    (HELD, ("item",), {"edges": 5}, "edges must be"),
    (HELD, ("item",), {"delta": 0.0}, "delta"),
    (HELD, ("item",), {"noise": "x"}, "noise must be one of"),
    (HELD, ("item",), {"unit": "x"}, "unit must be"),
    (HELD, ("item",), {"epsilon": -1}, "epsilon must be"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_question_gets_one_sentence_before_anything_is_read(number: int) -> None:
    ask, arguments, options, words = WRONG[number]
    with pytest.raises((dg.ParameterError, dg.SchemaError), match=words) as caught:
        ask(unread(), *arguments, **{**GOOD, **options})
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert len(text) < 300


@pytest.mark.parametrize(
    "ask",
    [
        lambda t, **o: dg.count(t, **o),
        lambda t, **o: dg.mean(t, "x", **o),
        lambda t, **o: dg.top(t, "item", **o),
        lambda t, **o: dg.elements_per_user(t, "item", **o),
    ],
    ids=["count", "mean", "top", "held"],
)
def test_a_table_without_users_has_records_only(ask: Any) -> None:
    for unit in (dg.User(), dg.Element("item")):
        with pytest.raises(dg.ParameterError, match=r"give user= to dg\.read"):
            ask(unread(user=None), **{**GOOD, "unit": unit})
    with pytest.raises(dg.ParameterError, match=r"must come from dg\.read"):
        ask({}, **GOOD)


# -- g. the order of items ---


@examples(300)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 4)), max_size=25),
    gamma=st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.6, 2.0]),
)
def test_misordered_pairs_are_those_of_the_definition(
    pairs: list[tuple[int, int]], gamma: float
) -> None:
    truth = np.array([p for p, _ in pairs], dtype=np.float64) / 8
    estimate = np.array([e for _, e in pairs], dtype=np.float64)
    expected = sum(
        1
        for j, l in itertools.permutations(range(len(pairs)), 2)  # noqa: E741
        if truth[j] >= truth[l] + gamma and truth[j] > truth[l] and estimate[j] < estimate[l]
    )
    assert misordered_pairs(truth, estimate, gamma) == expected
    release = dg.Histogram(
        Groups.of(["item"], [pa.array(range(len(pairs)), pa.int64())]), estimate, np.ones(len(pairs)),
        np.ones(len(pairs)), dg.Guarantee("user", "", "zero_out", 1e-6, Gaussian(1.0)),
        asked_module.Asked(),
    )  # fmt: skip
    assert release.order_loss(truth, gamma) == expected
    if len(pairs) > 1:
        with pytest.raises(dg.ParameterError, match="truth must hold"):
            release.order_loss(truth[1:], gamma)
        with pytest.raises(dg.ParameterError, match="gamma"):
            release.order_loss(truth, -0.1)
