"""Histograms end to end: right answers, a true price, and attacks that find it when it is not."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from tests.apart import CHANCE, epsilon_below, mu_below
from tests.refusals import refuses
from tests.statistics import histograms
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Contribution, Gaussian, Laplace, Selection
from dpgrain.auditing.epsilon_bounds import probability_lower_bound
from dpgrain.noise import SystemSource
from dpgrain.publishing import draws
from dpgrain.publishing.charge import Charge
from dpgrain.statistics import run as run_module
from dpgrain.statistics.bounds import ChosenBounds, RoughBounds
from dpgrain.statistics.plan import grid_bits, selection_delta
from dpgrain.statistics.run import select
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines import kernel
from dpgrain.tables.engines import memory as memory_module
from dpgrain.tables.engines.feed import Feed
from dpgrain.tables.engines.kernel import WEIGHT_BITS, Grid
from dpgrain.tables.engines.memory import Memory
from dpgrain.tables.engines.protocol import Engine
from dpgrain.tables.groups import Groups
from dpgrain.tables.split import Weight
from dpgrain.tables.user_sums import UserContributions
from dpgrain.units import RELATIONS, Relation, Unit
from dpgrain.words.release_text import rounded

Norm: TypeAlias = Literal["l2", "l1"]
Row: TypeAlias = tuple[int, str, str | None, float]  # user, item, cell, weight


OWN: dict[str, Unit] = {"record": dg.Record(), "element": dg.Element(), "user": dg.User()}


# -- a. end to end -----------------------------------------------------------------------------------


@functools.cache
def no_rows() -> dg.UserTable:
    return histograms.table_of([], engine=InMemory, threads=1)


def in_memory(rows: Sequence[Row]) -> dg.UserTable:
    source: Any = no_rows().source
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    made = pa.table(columns, schema=source.table.schema)
    return dataclasses.replace(no_rows(), source=dataclasses.replace(source, table=made))


@functools.cache
def rows_of_300_users() -> tuple[Row, ...]:
    rng = np.random.default_rng(11)
    rows: list[Row] = []
    for user in range(300):
        items = rng.permutation(histograms.ITEMS)[:2].tolist()
        for item in items:
            for _ in range(rng.integers(1, 6)):
                rows.append((user, item, histograms.MAPPING[item], float(rng.integers(1, 9)) / 2))
    return tuple(rows)


def exact_sums(
    rows: tuple[Row, ...], unit: str, bound: dict[str, float], norm: Norm, *, weighted: bool
) -> dict[str, float]:
    """The clipped sums, by the definition, in floating point."""
    blocks: dict[Any, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    cell_of = histograms.MAPPING
    for i, (user, item, cell, weight) in enumerate(rows):
        part: Any = {
            "record": i, "own": item, "mapping": cell_of[item], "function": cell_of[item],
            "column": cell, "user": 0, "capped": item, "capped mapping": cell_of[item],
            "capped column": cell,
        }[unit]  # fmt: skip
        blocks[user, part][item] += weight if weighted else 1.0
    sums = dict.fromkeys(histograms.ITEMS, 0.0)
    for block in blocks.values():
        size = sum(block.values()) if norm == "l1" else math.hypot(*block.values())
        for item, total in block.items():
            sums[item] += total * min(1.0, bound[item] / size)
    return sums


@pytest.mark.parametrize("unit", histograms.UNITS)
@pytest.mark.parametrize("clip", ["auto", 3.0])
@pytest.mark.parametrize(
    ("noise", "known"), [("gaussian", True), ("gaussian", False), ("laplace", True)]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_end_to_end(
    unit: str, clip: Any, noise: Any, known: bool, weighted: bool, tmp_path: Path
) -> None:
    rows = rows_of_300_users()
    relation: Relation = "zero_out" if weighted else "replace"
    release = dg.histogram(
        histograms.table_of(list(rows)),
        "item",
        unit=histograms.UNITS[unit],
        epsilon=20.0,
        delta=1e-6,
        relation=relation,
        clip=clip,
        noise=noise,
        domain=histograms.ITEMS if known else None,
        weight="w" if weighted else None,
    )
    names = release.items.to_pylist()
    assert sorted(names) == histograms.ITEMS
    bound = dict(zip(names, release.clip.tolist(), strict=True))
    norm: Norm = "l1" if noise == "laplace" else "l2"
    exact = exact_sums(rows, unit, bound, norm, weighted=weighted)
    far = 12 if noise == "laplace" else 6
    for name, estimate, error in zip(names, release.estimate, release.std_error, strict=True):
        assert abs(estimate - exact[name]) <= far * error + 1e-3
    promise = release.guarantee
    assert promise.private
    assert promise.delta == (0.0 if noise == "laplace" else 1e-6)
    asked = 20.0
    assert 0.99 * asked <= promise.epsilon() <= asked
    assert dg.Guarantee.from_json(promise.to_json()) == promise
    loaded = dg.Histogram.load(release.save(tmp_path / "release.parquet"))
    assert loaded.to_arrow().equals(release.to_arrow())
    assert loaded.guarantee == release.guarantee
    assert (loaded.metadata, loaded.noise, loaded.nonnegative) == (
        release.metadata,
        release.noise,
        release.nonnegative,
    )


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_standard_errors_and_intervals_are_honest(noise: Any) -> None:
    domain = list(range(4000))
    table = dg.read(pa.table({"who": [1], "item": [0]}), user="who")
    release = dg.histogram(
        table, "item", unit=dg.Element("item"), epsilon=1, delta=1e-6, clip=2.0, domain=domain,
        noise=noise,
    )  # fmt: skip
    (claimed,) = set(release.std_error.tolist())
    kurtosis = 6.0 if noise == "laplace" else 3.0
    tolerance = 6 * math.sqrt((kurtosis - 1) / 4 / len(domain))
    assert release.estimate.std() == pytest.approx(claimed, rel=tolerance)
    inside = np.mean((release.low <= 0) & (release.high >= 0))
    assert inside == pytest.approx(0.95, abs=6 * math.sqrt(0.95 * 0.05 / 4000))
    assert abs(release.estimate.mean()) < 6 * claimed / math.sqrt(4000)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".json"])
@pytest.mark.parametrize("items", [["a", "b"], [7, -5]])
def test_written_files_contain_the_release(ending: str, items: list[Any], tmp_path: Path) -> None:
    table = dg.read(pa.table({"who": [1, 2], "item": items}), user="who")
    release = dg.histogram(
        table, "item", unit=dg.User(), epsilon=1, delta=1e-6, clip=1.0, domain=items
    )
    path = release.write(tmp_path / f"out{ending}")
    if ending == ".parquet":
        found = pq.read_table(path)
    elif ending == ".csv":
        found = pyarrow.csv.read_csv(path)
    else:
        found = pa.Table.from_pylist(json.loads(path.read_text()))
    if ending != ".parquet":
        assert found.column_names[-2:] == ["notes", "covers"]
        found = found.drop_columns(["notes", "covers"])
    whole = release.to_arrow()
    assert found.to_pydict() == (rounded(release, whole) if ending == ".csv" else whole).to_pydict()
    assert [*tmp_path.iterdir()] == [path]
    with refuses("output", "parquet"):
        release.write(tmp_path / "out.xlsx")
    with pytest.raises(dg.DataError, match="cannot be written"):
        release.write(tmp_path / "nowhere" / f"out{ending}")
    with pytest.raises(dg.DataError, match="not a saved release"):
        dg.Histogram.load(path)


def test_nonnegative_and_largest() -> None:
    table = dg.read(pa.table({"who": [1], "item": [0]}), user="who")
    release = dg.histogram(
        table, "item", unit=dg.Record(), epsilon=1, delta=1e-6, domain=range(200), nonnegative=True
    )
    assert (release.estimate >= 0).all()
    assert (release.estimate == 0).any()
    assert (release.low >= 0).all()
    assert release.nonnegative
    top = release.largest(5).estimate.tolist()
    assert top == sorted(release.estimate.tolist(), reverse=True)[:5]
    assert repr(release).startswith("Number of records per item (200 public items)\n")
    assert len(release.to_pandas()) == 200


@pytest.mark.slow(cases=5)
@pytest.mark.parametrize("unit", histograms.UNITS)
@pytest.mark.parametrize("clip", ["auto", 2.0])
def test_nothing_selected_is_an_empty_release(unit: str, clip: Any, tmp_path: Path) -> None:
    rows: list[Row] = [(1, "a", "x", 2.0), (2, "b", None, 3.0)]
    for weight, some in itertools.product([None, "w"], [rows, []]):
        release = dg.histogram(
            histograms.table_of(some), "item",
            unit=histograms.UNITS[unit] if "mapping" not in unit else dg.Element(len),
            epsilon=0.5, delta=1e-9, clip=clip, weight=weight,
        )  # fmt: skip
        assert len(release) == 0
        assert len(dg.Histogram.load(release.save(tmp_path / "r.parquet"))) == 0


# -- b. the same integers however they are read ---


def contributions(engine: Engine, blocks: UnitBlocks, unit: float | None) -> UserContributions:
    groups = Groups.of(["item"], [pa.array(histograms.ITEMS)])
    cells = blocks.cells(groups, public=True)
    value, split = (None, None) if unit is None else ("w", Weight(unit))
    return UserContributions(engine, blocks, groups, cells, value, split)


def true_sums(table: dg.UserTable, unit: Unit, *, weighted: bool, clip: float = 3.0) -> IntArray:
    with table.open_engine() as engine:
        data = contributions(
            engine, UnitBlocks.for_unit(unit, table, ["item"]), 2.0**-20 if weighted else None
        )
        counts = data.norm_counts(np.array([1.0, 4, 16]), "l2")
        grid = Grid(np.array([clip]), 28)
        return np.concatenate([data.sums(grid), counts.reshape(-1)])


def fed(
    held: int | None, each: int, memory: Memory, scan: Any, shift: int, threads: int,
    users: int | None = None,
) -> Feed:  # fmt: skip
    return Feed(scan, shift, held or memory.keys, threads, call=each, sums=memory.sums, users=users)


@pytest.mark.slow
@pytest.mark.parametrize("unit", histograms.UNITS)
def test_same_integers_for_any_batches_threads_and_order(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(rows_of_300_users())
    expected = {
        w: true_sums(histograms.table_of(rows), histograms.UNITS[unit], weighted=w)
        for w in (False, True)
    }
    rng = np.random.default_rng(5)

    for threads, batch, call, short in [(1, 2048, 1 << 18, False), (3, 4096, 7, True)]:
        monkeypatch.setattr(memory_module, "_MAX_ROWS", batch)
        feed = partial(fed, 64 if short else None, call)
        monkeypatch.setattr(Feed, "within", feed)
        shuffled = [rows[i] for i in rng.permutation(len(rows))]
        # Users' names do not matter either, even if distant, negative or text.
        renamed = [(2**61 * (u % 3 - 1) + u, i, c, w) for u, i, c, w in shuffled]
        for weighted in (False, True):
            found = true_sums(
                histograms.table_of(renamed, threads=threads),
                histograms.UNITS[unit],
                weighted=weighted,
            )
            np.testing.assert_array_equal(found, expected[weighted])


# -- c. the search for neighbours that change the sums by more than is charged ---


CELLS = [None, "p", "q", "r"]


class Sold(NamedTuple):
    name: str
    sums: Gaussian | Laplace
    bins: Gaussian | Laplace
    clip: float
    weighted: bool

    @property
    def norm(self) -> Norm:
        return self.sums.contribution.norm


@functools.cache
def sold(name: str, norm: Norm, clip: float, weighted: bool, epsilon: float = 1.0) -> Sold:
    """The events that a real release of this kind bills."""
    options: dict[str, Any] = {
        "unit": histograms.UNITS[name], "epsilon": epsilon, "delta": 1e-6, "domain": histograms.ITEMS,
        "noise": "laplace" if norm == "l1" else "gaussian", "weight": "w" if weighted else None,
    }  # fmt: skip
    table = histograms.table_of([(1, "a", "p", 1.0)])
    fixed = dg.histogram(table, "item", clip=clip, **options).guarantee.event
    assert isinstance(fixed, Gaussian | Laplace)
    # A record that counts 1 has nothing to choose.
    options["weight"] = "w" if name == "record" else options["weight"]
    chosen = dg.histogram(table, "item", clip="auto", **options).guarantee.event
    bins = chosen.events[0]  # type: ignore[attr-defined]
    return Sold(name, fixed, bins, clip, weighted)


@functools.cache
def blocks_of(name: str) -> UnitBlocks:
    return UnitBlocks.for_unit(histograms.UNITS[name], no_rows(), ["item"])


@functools.lru_cache(maxsize=4096)
def released_integers(rows: tuple[Row, ...], what: Sold) -> tuple[IntArray, IntArray]:
    with in_memory(rows).open_engine() as engine:
        data = contributions(engine, blocks_of(what.name), 2.0**-30 if what.weighted else None)
        grid = Grid(np.array([what.clip]), grid_bits(what.sums.noise_multiplier), what.norm)
        return data.sums(grid), data.norm_counts(np.array([1.0, 2, 4, 8, 16]), what.norm)


class Asked(NamedTuple):
    unit: str  # record, element, user
    relation: Relation
    units: int


def cell_of(name: str) -> Callable[[Row], Any]:
    if name.endswith("column"):
        return lambda row: row[2]
    if name in ("own", "capped"):
        return lambda row: row[1]
    return lambda row: histograms.MAPPING[row[1]]


Pair: TypeAlias = tuple[list[Row], list[Row]]
WEIGHTS = [1.0, 1.0, 0.25, 3.0, 1000.0, 1e300, -5.0, math.nan, math.inf, 0.0]


def random_rows(rng: np.random.Generator, user: int) -> list[Row]:
    rows: list[Row] = []
    for _ in range(int(rng.integers(0, 7))):
        row = (
            user,
            str(rng.choice(histograms.ITEMS)),
            CELLS[rng.integers(0, 4)],
            float(rng.choice(WEIGHTS)),
        )
        rows += [row] * int(rng.choice([1, 1, 2, 7, 60]))
    return rows


def random_pair(rng: np.random.Generator, name: str, asked: Asked) -> Pair:
    others = random_rows(rng, 100)
    cell = cell_of(name)
    if asked.unit == "user":
        rows = [row for user in range(asked.units) for row in random_rows(rng, user)]
        new = [row for user in range(asked.units) for row in random_rows(rng, user)]
        return others + rows, others + (new if asked.relation == "replace" else [])
    rows = random_rows(rng, 0)
    if asked.unit == "record":
        rows = rows or [(0, "a", None, 1.0)]
        changed = set(rng.permutation(len(rows))[: asked.units].tolist())
        kept = [row for i, row in enumerate(rows) if i not in changed]
        new = [(random_rows(rng, 0) or rows)[0] for _ in changed]
    else:
        cells = {"a", "b", "c", "d", "x", "y", "z", *CELLS}
        cells = {cell(row) for row in rows} or cells
        changed_cells = set(sorted(cells, key=str)[i] for i in rng.permutation(len(cells))[: asked.units])  # noqa: C401, E501  # fmt: skip
        kept = [row for row in rows if cell(row) not in changed_cells]
        new = [row for row in random_rows(rng, 0) if cell(row) in changed_cells]
    return others + rows, others + kept + (new if asked.relation == "replace" else [])


def heavy(user: int, *places: tuple[str, str | None], times: int = 50) -> list[Row]:
    return [(user, item, cell, 1.0) for item, cell in places for _ in range(times)]


def crafted_pairs(name: str, asked: Asked) -> Iterator[Pair]:
    places = [("a", "p"), ("a", "q"), ("a", "r"), ("b", "p"), ("b", "q"), ("c", "r"), ("d", None)]
    cell = cell_of(name)
    if asked.unit == "user":
        for first, second in itertools.permutations([places[:1], places[3:4], places[3:], []], 2):
            users = range(asked.units)
            left = [row for user in users for row in heavy(user, *first)]
            right = [row for user in users for row in heavy(user, *second)]
            yield left, right if asked.relation == "replace" else []
        return
    for size in (1, 2, 3, 7):
        for chosen in itertools.islice(itertools.combinations(places, size), 8):
            rows = heavy(0, *chosen)
            if asked.unit == "record":
                single = heavy(0, *chosen[: asked.units], times=1)
                rest = heavy(0, *chosen[asked.units :])
                moved = heavy(0, *chosen[-1:] * len(single), times=1)
                yield rest + single, rest + (moved if asked.relation == "replace" else [])
                continue
            cells = sorted({cell(row) for row in rows}, key=str)
            for emptied in itertools.islice(itertools.combinations(cells, asked.units), 4):
                kept = [row for row in rows if cell(row) not in emptied]
                yield rows, kept
                if asked.relation == "replace":
                    inside = [p for p in places if cell((0, *p, 1.0)) in emptied]
                    for place in inside:
                        yield rows, kept + heavy(0, place)


def ratio(
    pair: Pair, what: Sold, asked: Asked, contributions: tuple[Contribution, Contribution]
) -> float:
    """The distance of neighbours' integers, over the charged one; at most 1."""
    unit = OWN[asked.unit]
    left, right = (released_integers(tuple(rows), what) for rows in pair)
    grid = Grid(np.array([what.clip]), grid_bits(what.sums.noise_multiplier), what.norm)
    worst = 0.0
    for a, b, contribution, one in zip(
        left, right, contributions, (Fraction(float(grid.radius[0])), Fraction(1)), strict=True
    ):
        billed = contribution.sensitivity(asked.units, asked.relation, unit)
        if math.isinf(billed):
            continue
        moved = [abs(int(x)) for x in (a - b).reshape(-1)]
        if what.norm == "l1":
            found = float(sum(moved) / one)
        else:
            found = math.sqrt(Fraction(sum(x * x for x in moved)) / one**2)
        worst = max(worst, found / billed)
    return worst


def worst_ratio(
    what: Sold,
    asked: Asked,
    seed: int,
) -> float:
    """The largest violation among the crafted pairs and some random ones."""
    rng = np.random.default_rng(seed)
    billed = (what.sums.contribution, what.bins.contribution)
    pairs = itertools.chain(
        crafted_pairs(what.name, asked) if seed == 0 and not what.weighted else (),
        (random_pair(rng, what.name, asked) for _ in range(8)),
    )
    return max(ratio(pair, what, asked, billed) for pair in pairs)


SEARCHED = [
    (name, unit)
    for name in histograms.UNITS
    for unit in ("record", "element", "user")
    if not (name == "record" and unit != "record")
]


@pytest.mark.slow
@pytest.mark.proof("search", "Gaussian", "Laplace")
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize(("name", "unit"), SEARCHED)
def test_no_neighbours_move_the_sums_beyond_the_charge(name: str, unit: str, norm: Norm) -> None:
    for relation, count, weighted in itertools.product(RELATIONS, (1, 2, 3), (False, True)):
        what = sold(name, norm, 5.0, weighted)
        assert worst_ratio(what, Asked(unit, relation, count), seed=0) <= 1 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("clip", [math.sqrt(100_000_001), math.sqrt(3), math.sqrt(2), 5.0, 9.7])
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("epsilon", [1.0, 1e-5])
def test_a_record_at_the_edge_of_its_clipped_element(
    clip: float, norm: Norm, epsilon: float
) -> None:
    # With little epsilon the grid is coarse, and truncation is part of a record's effect.
    what = sold("mapping", norm, clip, False, epsilon)
    events = (what.sums.contribution, what.bins.contribution)
    asked = Asked("record", "zero_out", 1)
    for many, few in [(10_000, 1), *itertools.product(range(1, 15), range(1, 5))]:
        rows = heavy(0, ("a", "p"), times=many) + heavy(0, ("b", "p"), times=few)
        for pair in [(rows, rows[1:]), (rows, rows[:-1])]:
            assert ratio(pair, what, asked, events) <= 1


# -- d. a statistical audit ---

Values: TypeAlias = NDArray[np.float64]


TESTS = 20_000


def audited(unit: Unit, rows: dict[str, Any], domain: Any, **options: Any) -> dg.Histogram:
    table = dg.read(pa.table(rows), user="who")
    options = {"epsilon": 3.0, "delta": 1e-6, "clip": 5.0, **options}
    return dg.histogram(table, "item", unit=unit, domain=domain, **options)


def by_item(release: dg.Histogram) -> Values:
    order = np.argsort(release.items.to_numpy(), kind="stable")
    return np.asarray(release.estimate[order])


def nobody() -> dict[str, Any]:
    return {"who": pa.array([], pa.int64()), "item": pa.array([], pa.int64())}


def one_each(times: int = 20) -> dict[str, Any]:
    return {"who": np.repeat(np.arange(TESTS), times), "item": np.repeat(np.arange(TESTS), times)}


def zeroed(unit: Unit, **options: Any) -> tuple[float, dg.Guarantee]:
    times = 1 if isinstance(unit, dg.Record) else 20
    domain = np.arange(TESTS)
    present = audited(unit, one_each(times), domain, **options)
    absent = audited(unit, nobody(), domain, **options)
    return mu_below(by_item(present), by_item(absent)), present.guarantee


def mu_of(
    promise: dg.Guarantee, relation: Relation = "zero_out", unit: Unit | None = None
) -> float:
    return promise.event.loss(1, relation, unit or OWN[promise.level]).mu


@pytest.mark.proof("audit", "Gaussian")
@pytest.mark.parametrize(
    ("unit", "clip"),
    [(dg.Record(), 1.0), (dg.Element("item"), 5.0), (dg.User(), 5.0), (dg.User(1), 5.0)],
)
def test_audit_zero_out(unit: Unit, clip: float) -> None:
    found, promise = zeroed(unit, clip=clip)
    claimed = mu_of(promise)
    assert 0.7 * claimed < found <= claimed


def paired(unit: Unit, relation: Relation) -> tuple[float, dg.Guarantee]:
    """User i moves everything from item 2i to item 2i + 1 of one cell."""
    domain = np.arange(2 * TESTS)
    rows = one_each()
    releases = [
        audited(
            unit, {"who": rows["who"], "item": 2 * rows["item"] + side}, domain, relation=relation
        )
        for side in (0, 1)
    ]
    apart = [by_item(release).reshape(-1, 2) @ [1.0, -1.0] for release in releases]
    return mu_below(apart[0], apart[1]), releases[0].guarantee


@pytest.mark.proof("audit", "Gaussian")
@pytest.mark.parametrize("unit", [dg.User(), dg.Element(lambda item: item // 2)])
def test_audit_replace(unit: Unit) -> None:
    found, promise = paired(unit, "replace")
    claimed = mu_of(promise, "replace")
    assert 0.7 * claimed < found <= claimed
    # The price of zero_out would be a false claim.
    assert found > mu_of(promise, "zero_out")


def captured_looks(rows: dict[str, Any]) -> tuple[FloatArray, FloatArray, dg.Guarantee]:
    """The noisy counts by cell, by pool of one cell each, and the guarantee."""
    looks: list[FloatArray] = []
    real = run_module.pooled_bounds  # type: ignore[attr-defined]

    def rough(counts: FloatArray, *_: Any) -> RoughBounds:
        # Every cell is a separate pool, so that each is a trial, with the bound 5.
        looks.append(counts)
        cells = np.arange(len(counts))
        weight = np.full(cells.size, 1 << WEIGHT_BITS)
        return RoughBounds(np.full(cells.size, 5.0), cells >= 0, cells, weight)

    def pooled(rough: RoughBounds, rows: FloatArray, *rest: Any) -> ChosenBounds:
        looks.append(rows)
        chosen: ChosenBounds = real(rough, rows, *rest)
        return chosen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "rough_bounds", rough)
        patch.setattr(run_module, "pooled_bounds", pooled)
        patch.setattr(dg.AutoClip, "shares", lambda *_, **__: (0.3, 0.3))
        release = audited(dg.Element("item"), rows, np.arange(TESTS), clip="auto")
    return *looks, release.guarantee  # type: ignore[return-value]


def looked(present: FloatArray, absent: FloatArray) -> float:
    """The distance of the two sides in the most informative bin, from below."""
    column = int(present.sum(axis=0).argmax())
    return mu_below(present[:, column], absent[:, column])


@pytest.mark.slow
def test_audit_of_the_chosen_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    *present, promise = captured_looks(one_each())
    *absent, _ = captured_looks(nobody())
    billed = [part.loss().mu for part in promise.event.parts]
    for one, two, mu in zip(present, absent, billed[:2], strict=True):
        assert 0.6 * mu < looked(one, two) <= mu
    # Each block counts twice.
    real = kernel._add_limited
    monkeypatch.setattr(kernel, "_add_limited", lambda u, r, w, *rest: real(
        u.repeat(2), r.repeat(2), w.repeat(2), *rest))  # fmt: skip
    twice = captured_looks(one_each())[1]
    assert looked(twice, absent[1]) > billed[1]


def half_of_them() -> tuple[float, dg.Guarantee]:
    """The distance of cells with a user and cells without one in one release."""
    # Cells learn from each other, so tables that differ in all users are not neighbours.
    held = np.repeat(2 * np.arange(TESTS), 20)
    release = audited(
        dg.Element("item"), {"who": held, "item": held}, np.arange(2 * TESTS), clip="auto"
    )
    sums = by_item(release).reshape(-1, 2)
    return mu_below(sums[:, 0], sums[:, 1]), release.guarantee


@pytest.mark.slow
@pytest.mark.proof("audit", "Compose")
def test_audit_of_auto_clip_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found, promise = half_of_them()
    assert 0.6 * mu_of(promise) < found <= mu_of(promise)
    real = draws.with_noise
    monkeypatch.setattr(draws, "with_noise", lambda e, x, scale, s: real(e, x, scale / 2, s))
    found, promise = half_of_them()
    assert found > mu_of(promise)


@pytest.mark.proof("audit", "Laplace")
def test_audit_of_laplace() -> None:
    domain = np.arange(TESTS)
    options: dict[str, Any] = {"noise": "laplace", "epsilon": 1.0, "delta": 0.0}
    present = audited(dg.Element("item"), one_each(), domain, **options)
    absent = audited(dg.Element("item"), nobody(), domain, **options)
    claimed = present.guarantee.epsilon()
    found = epsilon_below(by_item(present), by_item(absent), 5.0)
    assert 0.8 * claimed < found <= claimed
    # Halved noise reveals twice the claim.
    half = epsilon_below(by_item(present) * 2 - 5.0, by_item(absent) * 2 - 5.0, 5.0)
    assert half <= claimed
    stronger = audited(dg.Element("item"), one_each(), domain, **{**options, "epsilon": 2.0})
    weaker = audited(dg.Element("item"), nobody(), domain, **{**options, "epsilon": 2.0})
    assert epsilon_below(by_item(stronger), by_item(weaker), 5.0) > claimed


def share_named(unit: Unit) -> tuple[float, float]:
    """A lower bound on the share of selected single-user items, and the claimed leak."""
    release = audited(unit, one_each(1), None, epsilon=1.0, delta=0.05, max_items=1)
    select = release.guarantee.event.events[0]  # type: ignore[attr-defined]
    named = len(release)
    return probability_lower_bound(named, TESTS, CHANCE), select.loss().leak


@pytest.mark.proof("audit", "Selection")
@pytest.mark.parametrize("unit", [dg.Element("item"), dg.Record(), dg.User()])
def test_audit_of_selection(unit: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    found, claimed = share_named(unit)
    assert found <= claimed <= selection_delta(unit.level) * 0.05
    real = Charge.select

    def careless(charge: Charge, event: Selection, *rest: Any) -> Any:
        lower = dataclasses.replace(event, threshold=0.8 * event.threshold)
        charge._left[lower] += 1
        return real(charge, lower, *rest)

    # A name published below the threshold.
    monkeypatch.setattr(Charge, "select", careless)
    found, claimed = share_named(unit)
    assert found > claimed


def test_selection_of_one_user_with_any_number_of_items() -> None:
    # The leak covers max_items items; others must not pass by luck.
    size = 100_000
    table = dg.read(pa.table({"who": np.ones(size), "item": np.arange(size)}).cast(
        pa.schema({"who": pa.int64(), "item": pa.int64()})), user="who")  # fmt: skip
    event = Selection(1.0, 3.0, 10, Contribution(block="user"))
    blocks = UnitBlocks.for_unit(dg.User(), table, ["item"])
    with table.open_engine() as engine:
        held = engine.distinct(["item"])
        data = UserContributions(engine, blocks, held, blocks.cells(held, public=False))
        told = dg.Guarantee("user", "", "zero_out", 1e-6, event)
        assert len(select(data, event, Charge(told, SystemSource()))) <= 10
    rows = pa.table({"who": np.ones(size, dtype=np.int64), "item": np.arange(size),
                     "w": np.full(size, 1e-9)})  # fmt: skip
    light = dg.read(rows, user="who")
    options: dict[str, Any] = {"weight": "w", "epsilon": 1, "delta": 1e-6, "max_items": 10}
    assert len(dg.histogram(light, "item", unit=dg.User(), clip=1.0, **options)) == 0


# -- e. plans, warnings, seeds, parameters ---


def test_delta_warning() -> None:
    rows: list[Row] = [(1, "a", "p", 1.0)]
    options: dict[str, Any] = {"epsilon": 1.0, "clip": 1.0, "domain": histograms.ITEMS}
    table = histograms.table_of(rows, n_users=1000)
    with pytest.warns(dg.DeltaWarning, match="delta = 0.001 is large for 1,000 users") as caught:
        dg.histogram(table, "item", unit=dg.User(), delta=1e-3, **options)
    assert caught[0].filename == __file__
    with pytest.warns(dg.DeltaWarning, match="1,000 users and 4 cells: choose at most 2.5e-05"):
        dg.histogram(table, "item", unit=dg.Element("item"), delta=1e-4, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dg.histogram(table, "item", unit=dg.Element("item"), delta=2.4e-5, **options)
        dg.histogram(table, "item", unit=dg.User(), delta=1e-4, **options)
        dg.histogram(table, "item", unit=dg.Record(), delta=0.1, **options)
        dg.histogram(histograms.table_of(rows), "item", unit=dg.User(), delta=0.1, **options)


@pytest.mark.slow
def test_a_seed_is_reproducible_and_not_private() -> None:
    table = histograms.table_of(list(rows_of_300_users()))
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
    cases: list[tuple[Any, Any]] = [
        ("auto", None),
        ("auto", histograms.ITEMS),
        (1.0, None),
        (1.0, histograms.ITEMS),
    ]
    for clip, domain in cases:
        one, two = (
            dg.histogram(table, "item", clip=clip, domain=domain, random_state=7, **options)
            for _ in range(2)
        )
        assert one.to_arrow().equals(two.to_arrow())
        assert not one.guarantee.private
        assert str(one.guarantee).startswith("NOT PRIVATE: the random seed is known.")
        true = dg.histogram(table, "item", clip=clip, domain=domain, **options)
        assert "NOT PRIVATE" not in str(true.guarantee)
        assert not true.to_arrow().equals(one.to_arrow())


@pytest.mark.usefixtures("_no_rows_are_read")
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"epsilon": 0}, "epsilon must be positive and finite, not 0"),
        ({"epsilon": -1.0}, "epsilon.*-1"),
        ({"epsilon": math.inf}, "epsilon.*inf"),
        ({"epsilon": math.nan}, "epsilon.*nan"),
        ({"epsilon": "1"}, "epsilon must be a number, not '1'"),
        ({"epsilon": True}, "epsilon must be a number, not True"),
        ({"epsilon": 1e-9, "delta": 1e-12}, "choose a larger epsilon"),
        ({"delta": 0}, "delta must be above 0 with Gaussian noise, not 0; use noise='laplace'"),
        ({"delta": 1.0}, r"delta must be in \[0, 1\), not 1.0"),
        ({"delta": -1e-9}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"clip": 0}, "clip must be positive and finite"),
        ({"clip": -3}, "clip.*-3"),
        ({"clip": math.nan}, "clip.*nan"),
        ({"clip": math.inf}, "clip.*inf"),
        ({"clip": 1e-320}, "clip must be between 1e-100 and 1e100"),
        ({"clip": "foo"}, "clip must be 'auto'.*'foo'"),
        ({"unit": "user"}, "unit must be Record"),
        ({"unit": dg.User}, "unit must be Record"),
        ({"unit": dg.Element()}, r"Element\(\) requires a partition"),
        ({"unit": dg.User(by="cell")}, "requires max_elements"),
        ({"unit": dg.Element(5)}, "the partition must be a column name.*not int"),
        ({"unit": dg.Element("nothing")}, "element 'nothing' is not a column"),
        ({"unit": dg.Element({})}, "mapping from items to cells must not be empty"),
        ({"unit": dg.Element(dg.Elements.from_function(len, missing="error"))}, "public domain"),
        (
            {"unit": dg.Element(dg.Elements.from_mapping({"q": 1}, missing="error")), "domain": ["a"]},
            "1 items of the domain have no cell",
        ),
        (
            {"unit": dg.Element(dg.Elements.from_mapping({"q": 1}, missing="drop")), "domain": ["a"]},
            "domain has no item with a cell",
        ),
        ({"relation": "add"}, "relation must be one of 'zero_out', 'replace'"),
        ({"noise": "uniform"}, "noise must be one of"),
        ({"noise": "laplace"}, "domain is required with Laplace noise"),
        ({"noise": "laplace", "clip": "auto"}, "domain is required with Laplace noise"),
        ({"weight": "item"}, "weight 'item' must be numeric, not text"),
        ({"weight": "nothing"}, "weight 'nothing' is not a column"),
        ({"domain": []}, "domain must not be empty"),
        ({"domain": ["a", "b", "a"]}, "domain contains item 'a' twice"),
        ({"domain": ["1", 1]}, "domain contains item '1' twice"),
        ({"domain": ["a", (1, 2)]}, "not nested"),
        ({"domain": ["a", None]}, "domain contains None"),
        ({"domain": "abc"}, "domain must be a list of items, not the text"),
        ({"domain": 5}, "domain must be a list of items, not 5"),
        ({"domain": ["\ud800"]}, "not valid text"),
        ({"max_items": 0}, "max_items must be an integer"),
        ({"random_state": -1}, "random_state must be at least 0"),
        ({"random_state": "x"}, "random_state must be None"),
    ],
)  # fmt: skip
def test_parameter_errors_come_before_any_row(wrong: dict[str, Any], words: str) -> None:
    table = histograms.table_of([(1, "a", "p", 1.0)])
    with pytest.raises((dg.ParameterError, dg.SchemaError), match=words) as caught:
        dg.histogram(table, "item", **{**histograms.GOOD, **wrong})
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text


@pytest.mark.parametrize(
    "domain", [[7, 9], (7, 9), {7, 9}, {7: "x", 9: "y"}, np.array([7, 9]), [np.int64(7), np.int32(9)],
               pa.array([7, 9]), pa.chunked_array([[7], [9]]), iter([7, 9])]
)  # fmt: skip
def test_forms_of_a_domain(domain: Any) -> None:
    table = dg.read(pa.table({"who": [1], "item": [7]}), user="who")
    release = dg.histogram(table, "item", **{**histograms.GOOD, "domain": domain})
    assert sorted(release.items.to_pylist()) == [7, 9]


def prescriptions() -> dg.UserTable:
    """Amounts of 900 users by two common specialties, and of three users by a rare one."""
    rng = np.random.default_rng(2)
    what = np.array(["surgeon"] * 1200 + ["dentist"] * 900 + ["osteopath"] * 3)
    who = np.append(rng.integers(0, 900, 2100), [1, 2, 3])
    paid = np.append(rng.gamma(2.0, 200.0, 2100), [27.0, 27.0, 27.0])
    return dg.read(pa.table({"who": who, "what": what, "paid": paid}), user="who")


@pytest.mark.parametrize("bounds", [(0, 3000), None])
def test_a_sum_within_the_noise_has_no_estimate(bounds: Any, tmp_path: Path) -> None:
    release = dg.sum(
        prescriptions(), "paid", by="what", domain=["surgeon", "dentist", "osteopath"],
        bounds=bounds, unit=dg.Element("what"), epsilon=1.0, delta=1e-6, random_state=2,
    )  # fmt: skip
    rows = {row["what"]: row for row in release.to_arrow().to_pylist()}
    rare = rows["osteopath"]
    assert [rare[name] for name in ("estimate", "std_error", "low", "high")] == [None] * 4
    assert rows["surgeon"]["low"] < 480_000
    assert "Blank estimates did not stand out from the noise" in str(release)
    assert "osteopath,," in release.write(tmp_path / "out.csv").read_text().replace('"', "")
    shrunk = release.shrunk()
    assert np.isnan(shrunk.estimate).tolist() == np.isnan(release.estimate).tolist()


def test_sum_in_a_positive_range_has_a_lower_bound() -> None:
    release = dg.sum(
        prescriptions(), "paid", unit=dg.User(), epsilon=2.0, delta=1e-6, random_state=1
    )
    assert release.at_least is not None
    assert 0 < release.at_least[0] < 900_000


PER_USER: dict[str, Any] = {"unit": dg.User(), "epsilon": 3.0, "delta": 1e-6}
PUBLIC: dict[str, Any] = {"by": "group", "domain": list(range(13)), "noise": "gaussian"}


@functools.cache
def with_heavy_group() -> tuple[dg.UserTable, FloatArray]:
    """Users with a few records in groups 1 to 12, others with hundreds in group 0; the counts."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(6160), [*rng.geometric(0.25, 6000), *rng.poisson(260, 160)])
    group = np.where(who < 6000, rng.integers(1, 13, who.size), 0)
    table = dg.read(pa.table({"who": who, "group": group}), user="who", threads=1)
    return table, np.bincount(group).astype(np.float64)


@pytest.mark.parametrize("relation", RELATIONS)
def test_heavy_group_leaves_others_accurate(relation: Relation) -> None:
    table, truth = with_heavy_group()
    options: dict[str, Any] = {**PER_USER, **PUBLIC, "relation": relation}
    common = dg.count(table, clip=300.0, random_state=0, **options)
    releases = [dg.count(table, random_state=seed, **options) for seed in range(12)]
    for release in releases:
        assert release.clip[0] >= 4 * release.clip[1:].max()
        ratio = release.std_error / release.clip
        assert ratio == pytest.approx(np.full(13, ratio[0]))
        assert "norm 1 after division by the bound of each group" in str(release)
    # Less noise than at a common bound that clips no one in the heavy group.
    assert np.median([each.std_error[1:].max() for each in releases]) < common.std_error[0] / 2
    error = np.array([(each.estimate - truth) / each.std_error for each in releases])
    assert np.abs(error[:, 1:]).mean() < 1.5
    assert np.mean([each.more["at_least"] <= truth for each in releases]) > 0.93
    inside = [(each.low <= truth) & (truth <= each.high) for each in releases]
    warned = [[bool(text) for text in each.row_warnings] for each in releases]
    assert np.mean(np.array(inside) | np.array(warned)) > 0.93


def test_scales_require_several_gaussian_sums_of_users() -> None:
    table, _ = with_heavy_group()

    def has_scales(**options: Any) -> bool:
        parts = dg.count.query(table, **{**PER_USER, **options}).plan.parts
        assert ("group scales" in parts) == ("scaled bounds" in parts)
        return "group scales" in parts

    assert has_scales(by="group")
    assert has_scales(**PUBLIC)
    assert not has_scales()
    for other in (
        {"domain": [0, 1]}, {"clip": 3.0}, {"noise": "laplace"},
        {"unit": dg.Element("group")}, {"unit": dg.Record()},
    ):  # fmt: skip
        assert not has_scales(**{**PUBLIC, **other})


def test_groups_without_scales_have_one_bound() -> None:
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(3000), rng.geometric(0.25, 3000))
    rows = pa.table({"who": who, "group": rng.integers(0, 13, who.size)})
    release = dg.count(dg.read(rows, user="who"), random_state=0, **PER_USER, **PUBLIC)
    assert np.unique(release.clip).size == 1
    assert "to at most l2 norm" in str(release)
