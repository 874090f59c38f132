"""Tables, group shapes and neighbours for searches, audits and comparisons of statistics."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.special import log_ndtr
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import (
    AdaptiveSelection,
    Event,
    Selection,
    TruncatedGeometric,
)
from dpgrain.noise import noisy_sums as noise_sums
from dpgrain.noise import noisy_sums as sums_module
from dpgrain.publishing import draws
from dpgrain.statistics import bounds as bounds_module
from dpgrain.statistics import run as run_module
from dpgrain.statistics.bounds import ChosenBounds, RoughBounds
from dpgrain.statistics.plan import ItemChoice
from dpgrain.statistics.ranges import AutoRange, AutoTree
from dpgrain.tables.engines.kernel import WEIGHT_BITS, Grid, Pools
from dpgrain.tables.engines.protocol import Users
from dpgrain.tables.groups import Dictionary, Groups
from dpgrain.tables.split import OfAllGroups
from dpgrain.tables.user_sums import UserContributions
from dpgrain.units import PLAIN_UNITS, Level, Relation, Unit

# The package's attributes of these names are functions.
histogram_module, top_module, quantiles_module, marginals_module = (
    importlib.import_module(f"dpgrain.statistics.{name}")
    for name in ("histogram", "top", "quantiles", "marginals")
)


Row: TypeAlias = tuple[int | None, str | None, str | None, float | None]  # who, item, cell, x
Pair: TypeAlias = tuple[list[Row], list[Row]]


ITEMS = ["a", "b", "c", "d"]
CELLS = ["p", "q", "r"]
MAPPING = {"a": "x", "b": "x", "c": "y", "d": "z"}
NAMES = ("who", "item", "cell", "x")


def item_topic(item: str) -> str:
    return MAPPING[item]


UNITS: dict[str, Unit] = {
    "record": dg.Record(),
    "own": dg.Element("item"),
    "mapping": dg.Element(MAPPING),
    "function": dg.Element(item_topic),
    "column": dg.Element("cell"),
    "made": dg.Element("topic"),
    "made drop": dg.Element("few"),
    "user": dg.User(),
    "capped": dg.User(2, by="item"),
    "capped function": dg.User(2, by=item_topic),
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
    table = table.with_cells("topic", of="item", by=item_topic)
    few = dg.Elements.from_mapping({"a": "x", "c": "x"}, missing="drop")
    return table.with_cells("few", of="item", by=few)


def with_rows(rows: pa.Table, **options: Any) -> dg.UserTable:
    known = empty_table(rows.schema)
    source: Any = known.source
    return dataclasses.replace(known, source=dataclasses.replace(source, table=rows), **options)


def rows_of(groups: Groups) -> list[tuple[Any, ...]]:
    if not groups.names:
        return [()]
    return list(zip(*(column.to_pylist() for column in groups.columns), strict=True))


@dataclasses.dataclass(frozen=True)
class Noised:
    """One vector at the time of adding noise.

    ``radius`` is the clipping bound of each coordinate in grid steps, ``scale`` the noise scale.
    """

    law: str
    sums: dict[Any, int]
    scale: dict[Any, float]
    radius: dict[Any, float]
    event: Event | None


class Outcome(NamedTuple):
    """The outcome of earlier parts of a release: the same for both neighbours."""

    clip: tuple[float, ...] = (1.0, 3.3, 40.0)
    low: float = -4.0
    high: float = 2.0


class Recorder:
    """Records every vector of a release before noise is added."""

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
    recorder = Recorder()

    def law(name: str) -> Callable[..., IntArray]:
        def without(sums: IntArray, scale: Any, *_: Any, source: Any) -> IntArray:
            recorder.add(name, np.asarray(scale, dtype=np.float64), sums.reshape(-1))
            return sums

        return without

    def choosing(counts: IntArray, scale: float, best: int, *, source: Any) -> IntArray:
        recorder.add("gumbel", np.full(counts.size, scale), counts)
        return np.arange(best)

    real_noise = draws.with_noise

    def with_noise(event: Event, *rest: Any) -> IntArray:
        recorder.event = event
        return real_noise(event, *rest)  # type: ignore[arg-type]

    real_sums, real_norms = UserContributions.sums, UserContributions.norm_counts
    real_pooled, real_clipped = UserContributions.pooled_counts, UserContributions.clipped_units
    real_directions = UserContributions.directions
    real_holders, real_narrowed = UserContributions.holders, UserContributions._narrowed
    real_holdings, real_select = UserContributions.holdings, run_module.select

    def sums(self: UserContributions, grid: Grid, **options: Any) -> IntArray:
        joined = isinstance(self._split, OfAllGroups)
        recorder.labels = [()] if joined else rows_of(self.dictionary.groups)
        rows = np.zeros(1, np.int64) if joined else self.dictionary.cell_rows(grid.radius.size)
        recorder.radius = grid.radius[rows]
        return real_sums(self, grid, **options)

    def norm_counts(self: UserContributions, *rest: Any, **options: Any) -> IntArray:
        recorder.labels, recorder.radius = None, np.ones(1)
        return real_norms(self, *rest, **options)

    def holders(self: UserContributions, **options: Any) -> IntArray:
        recorder.labels, recorder.radius = rows_of(self.dictionary.groups), np.ones(1)
        return real_holders(self, **options)

    def narrowed(self: UserContributions, other: Dictionary) -> Users | None:
        # Selected items need not exist here: then the vector has to be read.
        known = {*rows_of(self.dictionary.groups)}
        return real_narrowed(self, other) if known >= {*rows_of(other.groups)} else None

    def holdings(self: UserContributions, edges: IntArray) -> IntArray:
        recorder.labels, recorder.radius = None, np.ones(1)
        return real_holdings(self, edges)

    def select(data: UserContributions, event: Selection, charge: Any, again: Any = None) -> Groups:
        real_select(data, event, charge, again)
        names = data.dictionary.groups.names
        known: dict[str, list[Any]] = {
            "item": ITEMS,
            "cell": CELLS,
            "topic": sorted({*MAPPING.values()}),
            "few": ["x"],
            "visits": [*range(1, 300)],
        }
        return Groups.product(names, [pa.array(known[name]) for name in names])

    def pooled_counts(
        self: UserContributions, pools: Pools, *rest: Any, **options: Any
    ) -> IntArray:
        recorder.labels, recorder.radius = None, np.full(1, 2.0**WEIGHT_BITS)
        return real_pooled(self, pools, *rest, **options)

    def clipped_units(self: UserContributions, clip: Grid, units: Grid, **options: Any) -> IntArray:
        recorder.labels, recorder.radius = rows_of(self.dictionary.groups), units.radius
        return real_clipped(self, clip, units, **options)

    def directions(self: UserContributions, edges: FloatArray, units: Grid) -> IntArray:
        recorder.labels, recorder.radius = None, units.radius
        return real_directions(self, edges, units)

    def scales(noisy: FloatArray, *_: Any) -> FloatArray:
        return np.asarray(2.0 ** -(np.arange(len(noisy)) % 3))

    def chosen(noisy: FloatArray, edges: FloatArray, *_: Any) -> ChosenBounds:
        bounds = np.resize(np.array(outcome.clip) * edges[0], len(noisy))
        return ChosenBounds(bounds, np.ones(len(noisy), dtype=np.bool_))

    def rough(noisy: FloatArray, edges: FloatArray, *rest: Any) -> RoughBounds:
        # As after an outcome in which all cells share a row, so that they may pile up.
        found = chosen(noisy, edges, *rest)
        size = len(noisy)
        pool, weight = np.zeros(size, dtype=np.int64), np.full(size, 1 << WEIGHT_BITS)
        return RoughBounds(found.bounds, found.seen, pool, weight)

    def pooled(rough: RoughBounds, *_: Any) -> ChosenBounds:
        return ChosenBounds(rough.bounds, rough.seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "with_gaussian", law("gaussian"))
        patch.setattr(sums_module, "with_gaussian", law("gaussian"))
        patch.setattr(sums_module, "with_laplace", law("laplace"))
        patch.setattr(draws, "with_truncated_geometric", law("truncated"))
        patch.setattr(draws, "gumbel_order", choosing)
        patch.setattr(draws, "with_noise", with_noise)
        patch.setattr(run_module, "select", select)
        # Few cells also share a second noisy query.
        patch.setattr(bounds_module, "POOL_LEAST", 2)
        patch.setattr(run_module, "choose_bounds", chosen)
        patch.setattr(marginals_module, "choose_bounds", chosen)
        patch.setattr(run_module, "bound_of_ratios", chosen)
        patch.setattr(run_module, "group_scales", scales)
        patch.setattr(run_module, "rough_bounds", rough)
        patch.setattr(run_module, "pooled_bounds", pooled)
        for rule in (AutoRange, AutoTree):
            patch.setattr(rule, "choose", lambda *_: (outcome.low, outcome.high))
        patch.setattr(UserContributions, "sums", sums)
        patch.setattr(UserContributions, "norm_counts", norm_counts)
        patch.setattr(UserContributions, "pooled_counts", pooled_counts)
        patch.setattr(UserContributions, "clipped_units", clipped_units)
        patch.setattr(UserContributions, "directions", directions)
        patch.setattr(UserContributions, "holders", holders)
        patch.setattr(UserContributions, "_narrowed", narrowed)
        patch.setattr(UserContributions, "holdings", holdings)
        yield recorder


Ask: TypeAlias = Callable[[dg.UserTable], Any]


def noised(
    ask: Ask, rows: Sequence[Row], outcome: Outcome, engine: Any = InMemory
) -> tuple[list[Noised], Any]:
    return noised_table(ask, table_of(rows, threads=1, engine=engine), outcome)


def noised_table(ask: Ask, table: dg.UserTable, outcome: Outcome) -> tuple[list[Noised], Any]:
    with recording(outcome) as recorder:
        release = ask(table)
    parts = list(release.guarantee.event.parts)
    drawn: list[Noised] = []
    kinds: dict[str, Any] = {
        "gaussian": (Selection, AdaptiveSelection),
        "truncated": TruncatedGeometric,
        "gumbel": ItemChoice,
    }
    for vector in recorder.vectors:
        event = vector.event
        if event is None:
            event = next(part for part in parts if isinstance(part, kinds[vector.law]))
        # All noise is charged once, and every charge is used.
        parts.remove(event)
        drawn.append(dataclasses.replace(vector, event=event))
    assert not parts
    return drawn, release


class Asked(NamedTuple):
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
    """The privacy loss between two neighbours, over the charged one; at most 1."""
    unit, moved = PLAIN_UNITS[asked.level], differences(one, two)
    loss = billed.loss(asked.units, asked.relation, unit)
    if math.inf in (loss.mu, loss.pure) or loss.leak == 1:
        return 0.0
    if one.law == "gumbel":
        steps = [*moved.values(), 0]
        found = (max(steps) - min(steps)) / one.scale[next(iter(one.scale))]
        assert isinstance(billed, ItemChoice)
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
    """The probability that an item of only one side is selected; the larger of both sides."""
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
    """The largest share of the charge that some pair shows in some vector."""
    worst = 0.0
    for left, right in pairs:
        sides = [noised(ask, rows, outcome)[0] for rows in (left, right)]
        assert len(sides[0]) == len(sides[1])
        for one, two in zip(*sides, strict=True):
            assert one.event == two.event
            assert one.event is not None
            worst = max(worst, ratio(one, two, asked, bill(one.event)))
    return worst


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


class Shape(NamedTuple):
    """How groups are built and blocks are clipped."""

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
    "mean with values outside": lambda t, s, **o: dg.mean(
        t, "x", by=s.keys or None, clip=s.clip, bounds=(-4, 4), estimate_clipping=True, **o
    ),
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


def seen(
    case: tuple[str, str, tuple[str, ...], str, Any],
    asked: Asked,
    *,
    laplace: bool = False,
    outcome: Outcome = Outcome(),
) -> float:
    statistic, name, keys, domain, clip = case
    ask = question(statistic, name, Shape(keys, domain, clip), asked.relation, laplace=laplace)
    return worst_ratio(ask, crafted_pairs(name, asked), asked, outcome)


def own_level(name: str) -> Level:
    return UNITS[name].level


class Shifted:
    def __init__(self, patch: pytest.MonkeyPatch, scales: float) -> None:
        def drawn(scale: Any, size: int, *, source: Any) -> IntArray:
            return np.floor(np.broadcast_to(scale, (size,)) * scales).astype(np.int64)

        for law in ("rounded_gaussian", "discrete_laplace"):
            patch.setattr(noise_sums, law, drawn)
        patch.setattr(
            noise_sums, "truncated_geometric",
            lambda rate, cutoff, size, *, source: np.full(size, cutoff if scales > 0 else 0),
        )  # fmt: skip


@functools.cache
def frame() -> pd.DataFrame:
    """About a hundred clean rows of forty users; at most one element per bin width."""
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


def unclipped(self: Any, sums: FloatArray, grid: Grid, unit: float) -> FloatArray:
    row = self.cell if grid.bounds.size > 1 else np.zeros_like(self.cell)
    return np.asarray(np.floor(sums * np.repeat(unit / grid.step[row], self.lengths)))
