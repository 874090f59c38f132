"""The sensitivity search: no pair of neighbours may move a clipped sum farther than is claimed.

A small world of one person's records is built exactly as the sums are (clipped blocks, disjoint or
shared coordinates, dropped elements), and pairs of neighbours are searched for the largest move.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.effort import Effort
from tests.refusals import refuses

from dpgrain.accounting import Contribution, Event, Gaussian, Loss, Selection
from dpgrain.accounting.events.partition_selection import selection_leak
from dpgrain.accounting.losses.gaussian import gaussian_delta
from dpgrain.errors import ParameterError
from dpgrain.publishing.prices import Price, price
from dpgrain.units import RELATIONS, Element, Level, Record, Relation, Unit, User

FloatArray = NDArray[np.float64]
UNIT: dict[Level, Unit] = {"record": Record(), "element": Element(), "user": User()}
COMMON, REMOVED, ADDED = 0, 1, 2
SLACK = 1e-9


@dataclass(frozen=True)
class World:
    """A sum over one person's records, and a change of that person's data."""

    contribution: Contribution
    level: Level
    relation: Relation
    units: int = 1
    cells: int = 5
    clips: bool = True
    condition: int | None = None

    @property
    def dimension(self) -> int:
        return 1 if self.contribution.coordinates == "one" else 2

    @property
    def unit(self) -> Unit:
        return User(max_elements=self.condition) if self.level == "user" else UNIT[self.level]

    @property
    def claim(self) -> float:
        return self.contribution.sensitivity(self.units, self.relation, self.unit)

    def norm(self, vectors: FloatArray) -> FloatArray:
        order = 2 if self.contribution.norm == "l2" else 1
        return np.asarray(np.linalg.norm(vectors, order, axis=-1, keepdims=True))

    def clip(self, vectors: FloatArray) -> FloatArray:
        return vectors / np.maximum(self.norm(vectors), 1.0) if self.clips else vectors

    def total(self, cell: NDArray[np.intp], vector: FloatArray) -> FloatArray:
        c = self.contribution
        member = np.equal.outer(np.arange(self.cells), cell)
        if c.max_elements is not None:
            held = member.any(axis=1)
            member &= (held & (np.cumsum(held) <= c.max_elements))[:, None]
        if c.block == "record":
            vector = self.clip(vector)
        blocks = member.astype(np.float64) @ vector
        if c.block == "element":
            blocks = self.clip(blocks)
        placed = blocks.ravel() if c.layout == "disjoint" else blocks.sum(axis=0)
        return self.clip(placed) if c.block == "user" else placed

    def moved(self, pair: Pair) -> float:
        """How far the sum moves between the two data sets of a pair."""
        sides = [pair.role != ADDED, pair.role != REMOVED]
        if self.condition is not None:
            for side in sides:
                if np.unique(pair.cell[side]).size > self.condition:
                    return 0.0
        one, other = (self.total(pair.cell[side], pair.vector[side]) for side in sides)
        return float(self.norm(one - other)[0])

    def shaped(self, vectors: FloatArray) -> FloatArray:
        """Possible vectors of one record."""
        if self.contribution.coordinates != "signed":
            vectors = np.abs(vectors)
        size = self.contribution.record_size
        if math.isinf(size):
            return vectors
        return vectors * (size / np.maximum(self.norm(vectors), size))

    def neighbours(self, rng: np.random.Generator) -> Pair:
        """A random pair, with extreme directions and sizes more often than not."""
        k = self.units
        changed = rng.permutation(self.cells)[: min(k, self.cells)]
        rest = np.setdiff1d(np.arange(self.cells), changed)
        if self.level == "record":
            removed = rng.integers(self.cells, size=k)
            added = rng.integers(self.cells, size=k)
            common = np.repeat(np.arange(self.cells), rng.integers(0, 4, size=self.cells))
        elif self.level == "element":
            removed = changed[: rng.integers(changed.size + 1)] if rng.random() < 0.3 else changed
            added = changed[rng.integers(changed.size + 1) :] if rng.random() < 0.3 else changed
            common = rest[rng.random(rest.size) < rng.choice([0.0, 0.5, 1.0])]
        else:
            order = rng.permutation(self.cells)
            held = self.contribution.max_elements or self.condition or self.cells
            removed = order[:held]
            other = np.roll(order, -held) if rng.random() < 0.5 else order
            added = other[: held if rng.random() < 0.5 else rng.integers(held + 1)]
            common = order[:0]
        if self.relation == "zero_out":
            added = added[:0]
        cell = np.concatenate([common, removed, added]).astype(np.intp)
        role = np.repeat([COMMON, REMOVED, ADDED], [common.size, removed.size, added.size])
        return Pair(cell, self.vectors(rng, role), role)

    def vectors(self, rng: np.random.Generator, role: NDArray[np.intp]) -> FloatArray:
        n, d = role.size, self.dimension
        axes = np.concatenate([np.eye(d), -np.eye(d)])
        match rng.integers(3):
            case 0:  # every role has its own direction and size
                direction = axes[rng.integers(2 * d, size=3)][role]
                size = rng.choice([0.01, 0.3, 1.0, 30.0, 2000.0], size=3)[role]
            case 1:
                direction = axes[rng.integers(2 * d, size=n)]
                size = rng.choice([0.01, 0.3, 1.0, 30.0, 2000.0], size=n)
            case _:
                direction = rng.normal(size=(n, d))
                size = np.exp(rng.normal(size=n))
        return self.shaped(direction * size[:, None])


@dataclass(frozen=True)
class Pair:
    """Two data sets of one person: records in both, in the first only, in the second only."""

    cell: NDArray[np.intp]
    vector: FloatArray
    role: NDArray[np.intp]


def search(world: World, *, seed: int = 0, random: int = 300, climb: int = 200) -> float:
    """The largest move found, by random pairs and then by hill-climbing from the best of them."""
    rng = np.random.default_rng(seed)
    found = [(world.moved(pair), pair) for pair in crafted(world)]
    for _ in range(random):
        pair = world.neighbours(rng)
        found.append((world.moved(pair), pair))
    best, pair = max(found, key=lambda entry: entry[0])
    for step in range(climb):
        size = 0.5 * 0.97**step
        noise = rng.normal(size=pair.vector.shape) * size * (0.1 + np.abs(pair.vector))
        tried = Pair(pair.cell, world.shaped(pair.vector + noise), pair.role)
        if (moved := world.moved(tried)) > best:
            best, pair = moved, tried
    return best


def crafted(world: World) -> Iterator[Pair]:
    """Pairs made by hand to be as bad as can be."""
    k, cells, d = min(world.units, world.cells), world.cells, world.dimension
    large = 1e6 * np.eye(d)
    signed = world.contribution.coordinates == "signed"
    opposite = -large[0] if signed else large[-1]

    def pair(*rows: tuple[int, FloatArray, int]) -> Pair:
        cell, vector, role = zip(*rows, strict=True)
        return Pair(np.array(cell), world.shaped(np.array(vector)), np.array(role))

    zero_out = world.relation == "zero_out"
    if world.level == "element":
        out = [(c, large[0], REMOVED) for c in range(k)]
        back = [] if zero_out else [(c, opposite, ADDED) for c in range(k)]
        others = [(c, opposite, COMMON) for c in range(k, cells)]
        yield pair(*out, *others)
        yield pair(*out, *back)
        yield pair(*out, *back, *others)
    if world.level == "user":
        held = world.contribution.max_elements or world.condition or cells
        kept = [(c, large[0], REMOVED) for c in range(min(held, cells))]
        yield pair(*kept)
        if not zero_out:
            yield pair(*kept, *((c, opposite, ADDED) for c, _, _ in kept))
    if world.level == "record":
        # One record outweighs, in k cells, the rest of its block.
        heavy = [(c, 1e3 * large[0], REMOVED) for c in range(k)]
        yield pair(*heavy, *((c, opposite, COMMON) for c in range(cells)))
        yield pair(*heavy, *((c, opposite, COMMON) for c in range(k, cells)))
        if not zero_out:
            yield pair(
                *(
                    row
                    for _ in range(world.units)
                    for row in ((0, large[0], REMOVED), (0, opposite, ADDED))
                )
            )
            landing = [(c, 1e3 * large[0], ADDED) for c in range(k, min(2 * k, cells))]
            yield pair(*heavy, *landing, *((c, opposite, COMMON) for c in range(cells)))
            # A block flips, a new one appears and a counted one is displaced.
            front = [(c, 1e3 * large[0], ADDED) for c in range(k)]
            flips = [(c + k, 1e3 * large[0], REMOVED) for c in range(k) if c + k < cells]
            yield pair(*front, *flips, *((c, opposite, COMMON) for c in range(k, cells)))
        # A small record in a block that just reaches its bound.
        size = world.contribution.record_size
        if math.isfinite(size) and d > 1:
            beside = [(0, size * np.eye(d)[0], REMOVED) for _ in range(world.units)]
            steps = math.ceil(1 / size)
            yield pair(*beside, *((0, np.eye(d)[1] / steps, COMMON) for _ in range(steps)))


def assert_bounded(world: World, **how: int) -> float:
    found, claim = search(world, **how), world.claim
    assert found <= claim + SLACK, f"{world} moves {found}, claimed {claim}"
    return found


COORDINATES: tuple[Literal["one", "nonnegative", "signed"], ...] = ("one", "nonnegative", "signed")
LAYOUTS: tuple[Literal["disjoint", "shared"], ...] = ("disjoint", "shared")
NORMS: tuple[Literal["l2", "l1"], ...] = ("l2", "l1")


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("level", ["record", "element", "user"])
@pytest.mark.parametrize("norm", NORMS)
def test_blocks_of_elements_are_never_moved_farther(
    level: Level, relation: Relation, norm: Literal["l2", "l1"], effort: Effort
) -> None:
    worlds = itertools.product(COORDINATES, LAYOUTS, (None, 1, 2), (math.inf, 0.25))
    for coordinates, layout, maximum, size in effort.some(worlds):
        c = Contribution("element", layout, coordinates, norm, maximum, record_size=size)
        if level == "user" and maximum is None:
            assert_bounded(World(c, level, relation, condition=2), random=60, climb=40)
            continue
        for units in (1,) if level == "user" else (1, 2, 4):
            world = World(c, level, relation, units, cells=6)
            assert_bounded(world, random=60, climb=40)
            assert_bounded(replace(world, contribution=replace(c, cells=6)), random=20, climb=20)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("level", ["record", "element", "user"])
@pytest.mark.parametrize("norm", NORMS)
def test_blocks_of_users_are_never_moved_farther(
    level: Level, relation: Relation, norm: Literal["l2", "l1"], effort: Effort
) -> None:
    worlds = itertools.product(COORDINATES, LAYOUTS, (None, 2), (math.inf, 0.25, 0.02))
    for coordinates, layout, maximum, size in effort.some(worlds):
        if coordinates == "one" and layout == "disjoint":
            continue  # a user's block of one number is on one coordinate
        c = Contribution("user", layout, coordinates, norm, maximum, record_size=size)
        for units in (1,) if level == "user" else (1, 2, 4):
            assert_bounded(World(c, level, relation, units), random=60, climb=40)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("norm", NORMS)
def test_blocks_of_records_are_never_moved_farther(
    coordinates: Literal["one", "nonnegative", "signed"],
    relation: Relation,
    norm: Literal["l2", "l1"],
) -> None:
    layout: Literal["disjoint", "shared"] = "shared" if coordinates == "one" else "disjoint"
    for units in (1, 2, 4):
        c = Contribution("record", layout, coordinates, norm)
        assert_bounded(World(c, "record", relation, units), random=100, climb=50)
    assert c.sensitivity(unit=Element()) == c.sensitivity(unit=User()) == math.inf


def _tight(
    expected: float,
    level: Level,
    relation: Relation,
    units: int = 1,
    cells: int = 9,
    condition: int | None = None,
    **of: Any,
) -> Any:
    world = World(Contribution(**of), level, relation, units, cells, condition=condition)
    named = ", ".join(f"{key}={value}" for key, value in of.items())
    return pytest.param(world, expected, id=f"{level} x{units} {relation} {named}".strip())


R2, R3 = math.sqrt(2), math.sqrt(3)
TIGHT = [
    _tight(1, "element", "zero_out"),
    _tight(2, "element", "zero_out", 4),
    _tight(R2, "element", "replace"),
    _tight(math.sqrt(8), "element", "replace", 4),
    _tight(1, "element", "replace", coordinates="one"),
    _tight(R3, "element", "replace", 3, coordinates="one"),
    _tight(2, "element", "replace", coordinates="signed"),
    _tight(4, "element", "replace", 4, coordinates="signed"),
    _tight(3, "element", "zero_out", 3, layout="shared"),
    _tight(3 * R2, "element", "replace", 3, layout="shared"),
    _tight(6, "element", "replace", 3, layout="shared", coordinates="signed"),
    _tight(3, "element", "zero_out", 3, norm="l1"),
    _tight(6, "element", "replace", 3, norm="l1"),
    _tight(3, "element", "replace", 3, norm="l1", coordinates="one"),
    # Emptied elements admit others.
    _tight(R2, "element", "zero_out", max_elements=3),
    _tight(2, "element", "zero_out", 2, max_elements=3),
    _tight(R2, "element", "replace", max_elements=3, coordinates="one"),
    _tight(2, "element", "replace", max_elements=3, coordinates="signed"),
    _tight(2 * R2, "element", "replace", 2, max_elements=3, coordinates="signed"),
    _tight(R2, "element", "zero_out", max_elements=1, layout="shared"),
    # Whole users.
    _tight(2, "user", "zero_out", condition=4),
    _tight(math.sqrt(8), "user", "replace", condition=4),
    _tight(math.sqrt(8), "user", "replace", max_elements=4, coordinates="one"),
    _tight(4, "user", "replace", max_elements=4, coordinates="signed"),
    _tight(4, "user", "zero_out", max_elements=4, layout="shared"),
    _tight(8, "user", "replace", max_elements=4, layout="shared", coordinates="signed"),
    _tight(1, "user", "zero_out", block="user"),
    _tight(R2, "user", "replace", block="user"),
    _tight(2, "user", "replace", block="user", coordinates="signed"),
    # Units inside a block.
    _tight(R2, "record", "zero_out"),
    _tight(2, "record", "zero_out", coordinates="signed"),
    _tight(1, "record", "zero_out", coordinates="one"),
    _tight(2, "record", "replace"),
    _tight(R2, "record", "replace", coordinates="one"),
    _tight(2 * R2, "record", "replace", coordinates="signed"),
    _tight(2 * R2, "record", "zero_out", 2, layout="shared"),
    _tight(R2, "element", "zero_out", block="user"),
    _tight(R2, "record", "zero_out", block="user"),
    _tight(2, "record", "zero_out", block="user", layout="shared", coordinates="signed"),
    _tight(0.25, "record", "zero_out", block="user", record_size=0.25),
    _tight(R2 / 4, "record", "replace", block="user", record_size=0.25),
    _tight(0.5, "record", "replace", block="user", coordinates="signed", record_size=0.25),
    _tight(0.01, "record", "zero_out", block="user", norm="l1", record_size=0.005),
    # Blocks of one record.
    _tight(3, "record", "zero_out", 3, block="record"),
    _tight(3 * R2, "record", "replace", 3, block="record"),
    _tight(2, "record", "replace", block="record", coordinates="signed"),
]


@pytest.mark.parametrize(("world", "expected"), TIGHT)
def test_the_bound_is_attained(world: World, expected: float) -> None:
    assert world.claim == pytest.approx(expected, rel=1e-12)
    assert assert_bounded(world) >= 0.99 * expected


@pytest.mark.slow(full=True)
@pytest.mark.parametrize("seed", range(4))
def test_a_long_search_finds_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks: tuple[Level, ...] = ("element", "user")
    levels: tuple[Level, ...] = ("record", "element", "user")
    for _ in range(400):
        block, level = blocks[rng.integers(2)], levels[rng.integers(3)]
        c = Contribution(
            block,
            LAYOUTS[rng.integers(2)],
            COORDINATES[rng.integers(3)],
            NORMS[rng.integers(2)],
            max_elements=[None, 1, 2, 3][rng.integers(4)],
            record_size=[math.inf, 1.0, 0.3, 0.05][rng.integers(4)],
        )
        if block == "user" and c.coordinates == "one" and c.layout == "disjoint":
            continue
        units = 1 if level == "user" else int(rng.integers(1, 5))
        condition = 3 if level == "user" and c.max_elements is None else None
        relation = RELATIONS[rng.integers(2)]
        world = World(c, level, relation, units, int(rng.integers(2, 8)), condition=condition)
        assert_bounded(world, seed=seed, random=400, climb=300)


def test_curve_is_a_root_on_disjoint_linear_on_shared() -> None:
    for k in range(1, 50):
        assert Contribution().sensitivity(k) == pytest.approx(math.sqrt(k), rel=1e-15)
        assert Contribution(layout="shared").sensitivity(k) == k
        assert Contribution(norm="l1").sensitivity(k) == k
        alone = Contribution(layout="pooled", per_coordinate=1)
        assert alone.sensitivity(k) == pytest.approx(math.sqrt(k), rel=1e-15)
        assert Contribution(layout="pooled", per_coordinate=50).sensitivity(k) == k
        assert Contribution(layout="pooled", per_coordinate=3, norm="l1").sensitivity(k) == k


@pytest.mark.parametrize(
    "fields",
    [
        {"layout": "pooled"},
        {"per_coordinate": 3},
        {"layout": "shared", "per_coordinate": 3},
        {"layout": "pooled", "per_coordinate": 3, "block": "user"},
        {"layout": "pooled", "per_coordinate": 3, "coordinates": "signed"},
    ],
    ids=str,
)
def test_only_elements_are_pooled(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=r"must (be passed|have) .* not"):
        Contribution(**fields)


def test_description_adds_only_the_pooling() -> None:
    pooled = Gaussian(3.0, Contribution(layout="pooled", per_coordinate=4))
    assert Event.from_json(pooled.to_json()) == pooled
    assert "per_coordinate" not in Gaussian(3.0).to_json()


@pytest.mark.parametrize("relation", RELATIONS)
def test_several_users_move_a_sum_proportionally(relation: Relation) -> None:
    for c in (Contribution("user"), Contribution("element", max_elements=4)):
        one = c.sensitivity(1, relation, User())
        assert c.sensitivity(3, relation, User()) == pytest.approx(3 * one, rel=1e-15)


def test_whole_user_is_bounded_by_known_limits() -> None:
    assert Contribution().sensitivity(unit=User()) == math.inf
    assert Contribution().sensitivity(unit=User(max_elements=9)) == 3
    assert Contribution(cells=16).sensitivity(unit=User()) == 4
    assert Contribution(cells=16, max_elements=9).sensitivity(unit=User(max_elements=4)) == 2
    assert Contribution(max_elements=9).sensitivity(3, unit=User()) == 9
    # No more elements than there are cells.
    assert Contribution(cells=4).sensitivity(100) == 2
    assert Contribution(cells=4).sensitivity(100, "replace") == pytest.approx(2 * R2)


@pytest.mark.parametrize("units_in_pool", [None, 1, 4])
@pytest.mark.parametrize("block", ["record", "element", "user"])
@pytest.mark.parametrize("level", ["record", "element", "user"])
def test_more_units_and_replace_never_cost_less(
    block: Level, level: Level, units_in_pool: int | None
) -> None:
    for layout, coordinates, norm, maximum in itertools.product(
        LAYOUTS, COORDINATES, NORMS, (None, 1, 3)
    ):
        if block == "record" and maximum is not None:
            continue
        c = Contribution(block, layout, coordinates, norm, maximum)
        pooled = block == "element" and coordinates == "nonnegative" and layout == "shared"
        if pooled and units_in_pool:
            c = replace(c, layout="pooled", per_coordinate=units_in_pool)
        unit = UNIT[level]
        curves = [[c.sensitivity(k, r, unit) for k in range(1, 12)] for r in RELATIONS]
        assert all(curve == sorted(curve) for curve in curves)
        assert all(a <= b for a, b in zip(*curves, strict=True))


def test_unknown_relation_or_unit_is_rejected_by_name() -> None:
    with refuses("relation", "'swap'"):
        Contribution().sensitivity(1, "swap")  # type: ignore[arg-type]
    with refuses("unit", "'user'"):
        Contribution().sensitivity(1, "replace", "user")  # type: ignore[arg-type]


# Selection: the exact hockey-stick divergence of small cases, outcome by outcome.

CUTS = np.linspace(-12.0, 12.0, 241)


def released(mean: float, sd: float) -> FloatArray:
    """The law of a noisy count that is always released, on a fine partition of the line."""
    from scipy.special import ndtr

    return np.diff(ndtr((CUTS - mean) / sd), prepend=0.0, append=1.0)


def named(value: float, event: Selection) -> FloatArray:
    """Output distribution for an item of only the changed units: absent, or with its count."""
    law = released(value, event.noise_multiplier)
    first = int(np.searchsorted(CUTS, event.threshold - SLACK))
    assert CUTS[first] == pytest.approx(event.threshold)
    return np.concatenate([[law[: first + 1].sum()], law[first + 1 :]])


def absent(event: Selection) -> FloatArray:
    law = np.zeros_like(named(0.0, event))
    law[0] = 1.0
    return law


def joint(*laws: FloatArray) -> FloatArray:
    product = np.ones(1)
    for law in laws:
        product = np.multiply.outer(product, law).ravel()
    return product


def stick(p: FloatArray, q: FloatArray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def assert_covered(loss: Loss, p: FloatArray, q: FloatArray) -> None:
    for epsilon in (0.0, 0.05, 0.3, 1.0, 2.0, 4.0):
        claimed = loss.delta(epsilon)
        assert stick(p, q, epsilon) <= claimed + SLACK
        assert stick(q, p, epsilon) <= claimed + SLACK


EVENTS = [
    Selection(sd, threshold, items)
    for sd, threshold, items in itertools.product((0.4, 1.0, 2.0), (1.2, 2.0, 4.0), (1, 2, 4))
]


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_selecting_a_single_unit_item_leaks_within_the_claim(event: Selection) -> None:
    for t in range(1, event.max_items + 1):
        gone, there = absent(event), named(1 / math.sqrt(t), event)
        nobody = released(0.0, event.noise_multiplier)
        someone = released(1 / math.sqrt(t), event.noise_multiplier)
        assert_covered(event.loss(), there, gone)
        if t > 1:
            # Other users also have one of the unit's t items.
            assert_covered(event.loss(), joint(someone, there), joint(nobody, gone))
            # Replaced: its own item is another one, and so are the shares of the common items.
            assert_covered(
                event.loss(relation="replace"),
                joint(someone, nobody, named_or_not(t, event), named_or_not(0, event)),
                joint(nobody, someone, named_or_not(0, event), named_or_not(t, event)),
            )


def named_or_not(t: int, event: Selection) -> FloatArray:
    """Whether an item is selected if one block has it with t − 1 others; t = 0: none has it."""
    if t == 0:
        return np.array([0.0, 1.0])
    law = named(1 / math.sqrt(t), event)
    return np.array([1 - law[0], law[0]])


@pytest.mark.proof("search", "Selection")
@pytest.mark.parametrize("event", EVENTS, ids=repr)
@pytest.mark.parametrize("k", [2, 3])
def test_units_sharing_one_item_leak_within_the_claim(event: Selection, k: int) -> None:
    shared = replace(event, contribution=Contribution(layout="shared"))
    people = replace(event, contribution=Contribution(block="user"))
    records = replace(event, contribution=Contribution(block="record"))
    for t in range(1, event.max_items + 1):
        there = named(k / math.sqrt(t), event)
        for loss in (shared.loss(k), people.loss(k), records.loss(k)):
            assert_covered(loss, there, absent(event))
            some = 1 - there[0]
            # All t items of the pile, only their names being seen.
            assert_covered(
                loss, np.array([(1 - some) ** t, 1 - (1 - some) ** t]), np.array([1.0, 0.0])
            )


@pytest.mark.proof("search", "Selection")
@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_elements_on_separate_items_leak_within_the_claim(event: Selection) -> None:
    for k, t in itertools.product((1, 2, 4), range(1, event.max_items + 1)):
        none = float(named(1 / math.sqrt(t), event)[0]) ** (t * k)
        p, q = np.array([none, 1 - none]), np.array([1.0, 0.0])
        assert_covered(event.loss(k), p, q)
        assert_covered(event.loss(unit=User(max_elements=k)), p, q)
        # Replaced by other items: two events apart.
        assert_covered(event.loss(k, "replace"), joint(p, q), joint(q, p))


def test_leak_on_shared_item_is_not_linear_in_units() -> None:
    """► sd 4 and a leak of 10⁻⁷: an item of five units passes with 27·5 times that."""
    from scipy.special import ndtr, ndtri

    event = Selection(4.0, 1 - 4 * ndtri(1e-7), max_items=1, contribution=Contribution("user"))
    one, five = event.loss(), event.loss(5)
    assert one.leak == pytest.approx(1e-7, rel=1e-6)
    passes = float(ndtr((5 - event.threshold) / 4))
    assert passes == pytest.approx(27 * 5 * 1e-7, rel=0.01)
    assert passes <= five.leak
    caps = Price(mu=10.0, leak=1e-3)
    assert price(event, "zero_out", User(), caps, units=5).leak >= passes


def test_selection_leak_is_the_worst_block() -> None:
    from scipy.special import ndtr

    for sd, threshold, items in itertools.product((0.3, 1.0, 5.0), (1.5, 8.0, 30.0), (1, 3, 50)):
        sizes = np.arange(1, items + 1)
        naive = float((1 - ndtr((threshold - 1 / np.sqrt(sizes)) / sd) ** sizes).max())
        assert selection_leak(threshold, sd, items) == pytest.approx(naive, rel=1e-6, abs=1e-15)
    # Far tails do not round to zero.
    assert 0 < selection_leak(31.0, 1.0, 1) < 1e-190


@pytest.mark.parametrize("wrong", ["threshold", "noise_multiplier", "max_items"])
def test_selection_leak_rejects_invalid_arguments(wrong: str) -> None:
    asked: dict[str, Any] = {"threshold": 9.0, "noise_multiplier": 4.0, "max_items": 1, wrong: 0}
    with refuses(wrong):
        selection_leak(**asked)


def test_selection_charges_the_whole_leak_for_unbounded_blocks() -> None:
    event = Selection(4.0, threshold=25.0, max_items=1)
    assert event.loss(unit=User()).leak == 1.0
    assert event.epsilon(1e-6, unit=User()) == math.inf
    assert replace(event, contribution=Contribution(block="record")).loss(unit=User()).leak == 1.0


def test_leak_is_charged_in_both_directions() -> None:
    # An item of only one unit, selected half of the time: absence has likelihood ½.
    event = Selection(1.0, threshold=1.0, max_items=1)
    assert selection_leak(1.0, 1.0, 1) == pytest.approx(0.5)
    assert event.loss().leak == 1.0
    assert stick(absent(event), named(1.0, event), 0.0) == pytest.approx(0.5)
    assert gaussian_delta(0.0, event.loss().mu) < 0.5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("block", "cell"),
        ("layout", "apart"),
        ("coordinates", "two"),
        ("norm", "linf"),
        ("max_elements", 0),
        ("max_elements", 1.5),
        ("per_coordinate", 0),
        ("cells", -1),
        ("record_size", math.nan),
        ("record_size", -1.0),
    ],
)
def test_invalid_values_are_rejected_by_name(field: str, value: Any) -> None:
    with refuses(field, f"not {value!r}"):
        replace(Contribution(), **{field: value})


@pytest.mark.parametrize("units", [0, -1, 1.5, True])
def test_units_are_a_whole_number(units: Any) -> None:
    with refuses("units", f"not {units!r}"):
        Contribution().sensitivity(units)


def test_a_small_record_may_move_a_pooled_block() -> None:
    with refuses("record_size", "must be omitted with layout 'pooled'"):
        Contribution(layout="pooled", per_coordinate=3, record_size=0.01)
