"""The largest items count different users; no item without users is selected."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.refusals import refuses
from tests.replay import recorded, replayed
from tests.statistics import cases
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain._types import IntArray
from dpgrain.accounting import AdaptiveSelection, Contribution
from dpgrain.noise import SeededSource
from dpgrain.publishing import draws
from dpgrain.publishing.charge import Charge
from dpgrain.statistics import run as run_module
from dpgrain.statistics.plan import grid_bits
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines import feed as feed_module
from dpgrain.tables.user_sums import UserContributions
from dpgrain.units import RELATIONS, Relation, Unit

NAMING: dict[str, Callable[..., Any]] = {
    "count": lambda t, **o: dg.count(t, "x", by="item", clip=3.0, **o),
    "mean": lambda t, **o: dg.mean(t, "x", by="item", clip=3.0, bounds=(0, 1), **o),
    "top": lambda t, **o: dg.top(t, "item", method="gaussian", **o),
    "names": lambda t, **o: dg.top(t, "item", counts=False, method="gaussian", **o),
    "truncated": lambda t, **o: dg.top(t, "item", method="truncated", **o),
}


@pytest.mark.parametrize("unit", [dg.User(), dg.Element("item"), dg.User(max_elements=3)])
@pytest.mark.parametrize("relation", RELATIONS)
def test_names_by_weighted_counts_keep_the_whole_delta(unit: Unit, relation: Relation) -> None:
    table = dg.read(pa.table({"who": [1, 2, 2], "item": ["a", "a", "b"]}), user="who")
    for delta in (1e-9, 1e-3):
        release = dg.top(
            table, "item", unit=unit, relation=relation, epsilon=1.0, delta=delta,
            method="gaussian", counts=False,
        )  # fmt: skip
        assert 0.95 < release.guarantee.epsilon() <= 1.0


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
        cases.Shifted(patch, 0.0)
        release = released({1: least + 1, 2: least, 3: least - 1, 4: 1})
        assert sorted(map(str, release.items.to_pylist())) == ["1", "2"]


@pytest.mark.parametrize("way", ["count", "names"])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_counts_rounded_up_to_the_threshold_do_not_pass(
    way: str, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = dg.read(pa.table({"who": [1], "item": ["a"], "x": [0.5]}), user="who", threads=1)
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": epsilon, "delta": 1e-6, "max_items": 1}
    event = NAMING[way](rows, **options).guarantee.event.parts[0]
    steps = 2.0 ** grid_bits(event.noise_multiplier)
    # The count and its noise, in steps of the grid: values that round to the last are half a step
    # beyond.
    threshold = event.threshold * steps
    for noisy, named in ((math.floor(threshold), 0), (math.ceil(threshold) + 1, 1)):
        with monkeypatch.context() as patch:
            cases.Shifted(patch, (noisy - steps + 0.5) / (event.noise_multiplier * steps))
            assert len(NAMING[way](rows, **options)) == named


@pytest.mark.parametrize("way", NAMING)
def test_item_without_contributions_is_never_selected(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One user has many; beyond max_items they count 0, like items without a number.
    rows: dict[str, Any] = {"who": np.ones(500, np.int64), "item": np.arange(500) % 100,
                            "x": np.where(np.arange(500) % 100 < 50, np.nan, 1.0)}  # fmt: skip
    table = dg.read(pa.table(rows), user="who", threads=1)
    cases.Shifted(monkeypatch, 1000.0)
    release = NAMING[way](table, unit=dg.User(), epsilon=2.0, delta=1e-6, max_items=7)
    assert len(release) == 7
    if way in ("count", "mean"):
        assert min(release.items.to_pylist()) >= 50


@pytest.mark.parametrize(
    "method", ["gaussian", "laplace", "gumbel", "names", "truncated", "selected"]
)
@pytest.mark.parametrize("keys", [("item",), ("item", "cell")])
def test_top_counts_different_users(
    method: str, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases.noiseless(monkeypatch)
    table, rows = cases.dirty(), cases.frame()
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": 200.0, "delta": 1e-6, "clip": 1024.0}
    options |= {"method": {"names": "gaussian", "selected": "gaussian"}.get(method, method)}
    domain = {"item": cases.ITEMS, "cell": cases.CELLS}
    if method in ("gaussian", "laplace", "gumbel"):
        options["domain"] = {key: domain[key] for key in keys}
        options["delta"] = 0.0 if method == "laplace" else 1e-6
    else:
        options["counts"] = method != "names"
    if method == "gumbel":
        options["epsilon"] = 1e4
    release = dg.top(table, keys, k=3, max_items=1 if method == "names" else 20, **options)
    # Items without a number still count as present.
    held = [
        row[:3] for row in cases.BAD if row[0] is not None and None not in row[1 : 1 + len(keys)]
    ]
    rows = pd.concat(
        [rows[["who", "item", "cell"]], pd.DataFrame(held, columns=list(cases.NAMES[:3]))]
    )
    right = rows.groupby(list(keys))["who"].nunique().sort_values(ascending=False)
    assert sorted(release.estimate, reverse=True) == release.estimate.tolist()
    if method == "names":
        assert len(release) > 0
        return
    found = dict(zip(cases.rows_of(release.groups), release.estimate.tolist(), strict=True))
    for key, estimate in found.items():
        assert estimate == pytest.approx(right[key if len(keys) > 1 else key[0]], abs=1e-2)
    assert sorted(found.values(), reverse=True) == pytest.approx(right.iloc[:3].tolist(), abs=1e-2)


# ---------------------------------------------------------------------------------------- two rounds


def held_by_many(engine: Any = InMemory, **options: Any) -> dg.UserTable:
    rng = np.random.default_rng(5)
    who = np.repeat(np.arange(800), 26)
    others = np.stack([20 + rng.permutation(50)[:6] for _ in range(800)])
    items = np.concatenate([np.tile(np.arange(20), (800, 1)), others], axis=1)
    return dg.read(
        pa.table({"who": who, "item": items.ravel()}), user="who", engine=engine, **options
    )


def named_by(method: Any, engine: Any = InMemory, **options: Any) -> dg.Histogram:
    asked: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6, "random_state": 3}
    return dg.top(held_by_many(engine), "item", method=method, **(asked | options))


def test_two_rounds_select_items_wasted_by_one() -> None:
    one, two = (named_by(method, counts=False) for method in ("gaussian", "adaptive"))
    assert len(one) < 30
    assert len(two) > 45
    assert set(range(20)) <= set(two.items.to_pylist())


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("relation", RELATIONS)
def test_two_rounds_are_the_valid_default_for_users(counts: bool, relation: Relation) -> None:
    release = named_by("auto", counts=counts, relation=relation)
    assert 0.95 < release.guarantee.epsilon() <= 1.0
    kinds = [type(part).__name__ for part in release.guarantee.event.parts]
    assert kinds[:2] == ["Selection", "AdaptiveSelection"]
    assert (
        release.items.to_pylist()
        == named_by("adaptive", counts=counts, relation=relation).items.to_pylist()
    )


def test_user_with_one_item_participates_once() -> None:
    parts = named_by("auto", max_items=1).guarantee.event.parts
    assert "AdaptiveSelection" not in [type(part).__name__ for part in parts]


def test_weighted_counts_of_two_rounds_equal_the_first() -> None:
    release = named_by("adaptive", counts=False, epsilon=30.0, max_items=30)
    found = dict(zip(release.items.to_pylist(), release.estimate.tolist(), strict=True))
    assert found[0] == pytest.approx(800 / math.sqrt(26), abs=4 * release.std_error[0])


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
@pytest.mark.parametrize("counts", [True, False])
def test_two_rounds_name_the_same_on_every_engine(engine: Any, counts: bool) -> None:
    one, two = (named_by("adaptive", name, counts=counts) for name in (InMemory, engine))
    assert one.items.to_pylist() == two.items.to_pylist()
    assert one.estimate.tolist() == two.estimate.tolist()


def test_data_beyond_memory_are_routed_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = named_by("adaptive", counts=False)
    monkeypatch.setattr(feed_module, "_CALL_KEYS", 64)
    monkeypatch.setattr(feed_module.Feed, "narrowed", lambda *_: None)
    real = feed_module.Feed.within

    def small(memory: Any, *rest: Any) -> Any:
        return real(dataclasses.replace(memory, keys=3000, counted=3000, call=64), *rest)

    monkeypatch.setattr(feed_module.Feed, "within", small)
    parts = named_by("adaptive", "duckdb", counts=False)
    assert parts.items.to_pylist() == whole.items.to_pylist()


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_second_round_on_other_rows_selects_nothing(
    monkeypatch: pytest.MonkeyPatch, engine: Any
) -> None:
    # A new user of an item reveals whether another one gave to it in the first round, and the
    # weight of all its new users would turn with it.
    con = duckdb.connect()
    con.execute("CREATE TABLE people AS SELECT range % 800 AS who FROM range(20000)")
    rows = con.sql("SELECT who, (random() * 60)::INT AS item FROM people")
    real = feed_module.Feed.within

    def small(memory: Any, *rest: Any) -> Any:
        return real(dataclasses.replace(memory, keys=3000, counted=3000, call=64), *rest)

    monkeypatch.setattr(feed_module.Feed, "within", small)
    table = dg.read(rows, user="who", engine=engine, rows="as given")

    def ask() -> dg.Histogram:
        return dg.top(table, "item", unit=dg.User(), epsilon=1.0, delta=1e-6, method="adaptive")

    if engine is InMemory:
        # All is read once.
        assert len(ask()) > 0
        return
    with pytest.raises(dg.DataError, match="returned different rows when it was read again"):
        ask()


def test_items_beyond_all_first_ones_do_not_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[IntArray] = []

    def up(sums: IntArray, scale: Any, *, source: Any) -> IntArray:
        drawn.append(sums)
        return sums + np.int64(2.5 * np.max(scale, initial=0))

    monkeypatch.setattr(draws, "with_gaussian", up)
    named_by("adaptive", counts=False, max_items=1)
    first, second = drawn
    assert 0 < (first == 0).sum() < first.size
    assert second.size <= (first > 0).sum()


def test_continuing_item_is_selected_even_without_contributions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One person's rows decide the recipients, so zeros must receive noise like other values.
    guarantee = named_by("adaptive", counts=False).guarantee
    part: Any = guarantee.event.parts[1]
    monkeypatch.setattr(draws, "with_gaussian", lambda sums, *_, **__: sums + 10**9)
    with Charge(guarantee, SeededSource(1)) as charge:
        _, passed = charge.select(part, np.array([0, 5]), 1.0, 1.0)
    assert passed.tolist() == [True, True]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("user", [0, 1, 2])
def test_user_moves_both_rounds_within_the_charge_given_history(
    user: int, relation: Relation
) -> None:
    source: Any = held_by_many().source
    rows = source.table.to_pandas()
    mine = rows["who"] == user
    other = rows[~mine]
    if relation == "replace":
        new = pd.DataFrame({"who": user, "item": np.arange(user, 70, 3)})
        other = pd.concat([other, new])

    def ask(frame: pd.DataFrame) -> dg.Histogram:
        return dg.top(
            dg.read(frame, user="who"), "item", unit=dg.User(), relation=relation, epsilon=1.0,
            delta=1e-6, method="adaptive", counts=False, random_state=1,
        )  # fmt: skip

    ask(rows)
    with recorded() as draws:
        event = ask(rows).guarantee.event
    with replayed(draws) as again:
        ask(other)
    lost = [one.lost(two)[0] for one, two in zip(draws, again, strict=True)]
    assert len(lost) == 2
    for moved, part in zip(lost, event.parts, strict=True):
        billed = part.loss(1, relation).mu ** 2
        assert 0.5 * billed < moved <= billed * (1 + 1e-9)
    # Items below the floor, already selected, or beyond a user's first ones do not participate.
    first: Any = event.parts[0]
    second: Any = event.parts[1]
    counts = draws[0].answer * (first.noise_multiplier / draws[0].scale[0])
    between = (counts >= second.floor) & (counts < first.threshold) & (draws[0].sums > 0)
    assert 0 < draws[1].sums.size == between.sum() < 50


class History:
    """A charge with stated first noisy counts of each item, which records the sums."""

    def __init__(self, items: list[int], counts: dict[int, float]) -> None:
        self.items, self.counts, self.sums = items, counts, list[dict[int, float]]()

    def select(self, part: Any, sums: IntArray, radius: float, step: float) -> Any:
        given = dict(zip(self.items, (sums / radius).tolist(), strict=True))
        self.sums.append(given)
        if isinstance(part, AdaptiveSelection):
            return sums, np.zeros(sums.size, dtype=bool)
        noisy = np.array([self.counts[item] / step for item in self.items]).astype(np.int64)
        passed = (sums > 0) & (noisy * step >= part.threshold)
        ahead = ~passed & (sums > 0) & (noisy * step >= TWICE.floor + step)
        self.items = [item for item, on in zip(self.items, ahead, strict=True) if on]
        return noisy, passed


TWICE = AdaptiveSelection(1.0, 8.0, 1.0, 12.0, 2.0, 5, Contribution("user"))


def sums_of_two_rounds(
    people: list[list[int]], counts: dict[int, float], engine: Any
) -> list[dict[int, float]]:
    pairs = [(who, item) for who, items in enumerate(people) for item in items]
    frame = pd.DataFrame(pairs, columns=["who", "item"])
    with dg.read(frame, user="who", engine=engine).open_engine() as opened:
        blocks = UnitBlocks("user")
        held = opened.distinct(["item"])
        data = UserContributions(opened, blocks, held, blocks.cells(held, public=False))
        history = History(data.dictionary.groups.columns[0].to_pylist(), counts)
        charge: Any = history
        run_module.select_and_count(data, TWICE.first, charge, TWICE)
    return history.sums


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("seed", range(12))
def test_one_sided_items_do_not_affect_other_users_weights(seed: int, relation: Relation) -> None:
    # In one history of the items of both sides, for any counts of the others: then the number of
    # items, and of remaining ones, differs.
    rng = np.random.default_rng(seed)
    engine = (InMemory, "duckdb")[seed % 2]
    counts = dict(enumerate(rng.uniform(0.0, 13.0, 60)))
    people = [rng.choice(20, rng.integers(1, 12), replace=False).tolist() for _ in range(50)]
    mine = rng.choice(60, rng.integers(1, 30), replace=False).tolist()
    other = rng.choice(60, 9, replace=False).tolist() if relation == "replace" else []
    sides = [sums_of_two_rounds([*people, own], counts, engine) for own in (mine, other)]
    common = set.intersection(*({item for item in one[0] if one[0][item] > 0} for one in sides))
    for one, two in zip(*sides, strict=True):
        assert common & one.keys() == common & two.keys()
        moved = sum((one[item] - two[item]) ** 2 for item in common & one.keys())
        assert moved <= (2 if relation == "replace" else 1) * (1 + 1e-9)
        for side in (one, two):
            assert sum(side[item] ** 2 for item in side.keys() - common) <= 1 + 1e-9
    assert sides[0][1].keys() != sides[1][1].keys() or len(mine) < 15


@pytest.mark.parametrize("unit", [dg.Element("item"), dg.User(3, by="item"), dg.Record()])
def test_two_rounds_are_rejected_for_partial_users(unit: Unit) -> None:
    with refuses("method", "'adaptive'", "User()"):
        named_by("adaptive", unit=unit)


def test_two_rounds_are_rejected_for_known_items() -> None:
    with refuses("method", "'adaptive'", "omit domain"):
        named_by("adaptive", domain=[1, 2])


@pytest.mark.parametrize("odd", [{"clip": np.array([])}, {"counts": np.array([])}])
def test_arrays_instead_of_numbers_are_rejected(odd: dict[str, Any]) -> None:
    table = dg.read(pa.table({"who": [1], "item": ["a"]}), user="who")
    with pytest.raises(dg.ParameterError, match="not a value of type ndarray"):
        dg.top(table, "item", k=3, unit=dg.User(), epsilon=1.0, delta=1e-6, **odd)


def test_no_bound_exceeds_the_number_of_public_groups() -> None:
    """Each user counts at most once in each of nine groups."""
    rng = np.random.default_rng(0)
    rows = {"who": rng.integers(0, 3000, 60_000), "g": rng.integers(0, 9, 60_000)}
    table = dg.read(pa.table(rows), user="who")
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    for seed in range(4):
        release = dg.top(
            table, "g", domain=range(9), k=9, unit=dg.User(), random_state=seed, **options
        )
        assert release.clip.max() <= (9 if release.metadata.noise == "laplace" else 3)
