"""Two users of one ledger: at any line of the first, the outcome equals one of the orders.

The answers of both and the whole ledger equal the ones of either order. The pauses of the first
follow from the ledger's code (``tests.interleaving``).
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from tests.effort import Effort
from tests.interleaving import Interleaving, Seam
from tests.ledger import cases
from tests.ledger.waiting import tell_who_waits
from tests.memory import folder_in_memory

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.ledger import LastingPromise, accounts, ledger
from dpgrain.ledger.price_units import Units
from dpgrain.ledger.stores.ledger_tables import TABLES
from dpgrain.publishing.receipt import Receipt
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import Region

CELLS = Partition((Rule("country"), Rule("day", "day")))
NOW = "2026-03-01T00:00:00Z"


def of_cells(share: float, scope: Region) -> dg.Guarantee:
    """Gaussian noise that uses a share of the guarantee for a day of a user in a country."""
    event = Gaussian(1 / (FREE.caps.mu * share**0.5), Contribution(block="element"))
    return dg.Guarantee(
        "element", str(CELLS), "zero_out", 1e-9, event, scope=scope, partition=CELLS
    )


FREE = LastingPromise.of(dg.Element(CELLS), 1.0, 1e-6)
PLANNED = of_cells(0.1, cases.on("2026-03-01", "2026-03-09"))
PROMISE = LastingPromise.of(dg.Element(CELLS), 1.2, 1e-6, plan=[PLANNED])
LIFE = LastingPromise.of(dg.Record(), 5.0, 1e-6)
FRANCE, MARCH = cases.on("", "", "FR"), cases.on("2026-03-02", "2026-03-08")

Do: TypeAlias = Callable[[dg.Ledger], Any]


def forked(opened: dg.Ledger) -> str:
    """The answer to a process forked now that charges."""
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        # Later Pythons warn about a fork with threads: intended here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            said = str(opened.charge(of_cells(0.6, MARCH)))
        except BaseException as error:
            said = str(error)
        os.write(writes, said.encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as file:
        said = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


# Actions on a ledger: each of two charges of .6 fits only without the other.
DEEDS: dict[str, Do] = {
    "charge": lambda opened: opened.charge(of_cells(0.6, MARCH)),
    "charge little": lambda opened: opened.charge(of_cells(0.3, cases.on("2026-03-05"))),
    "charge a country": lambda opened: opened.charge(of_cells(0.6, FRANCE)),
    "charge two": lambda opened: opened.charge(of_cells(0.2, FRANCE), of_cells(0.3, MARCH)),
    "charge what is planned": lambda opened: opened.charge(PLANNED),
    "charge once": lambda opened: opened.charge(of_cells(0.1, MARCH), mark="a", again=False),
    "renew": lambda opened: opened.renew(1, PROMISE.renewed(0.5, 1e-6)),
    "add": lambda opened: opened.add(LIFE),
    "refuse": lambda opened: opened.charge(of_cells(2.0, MARCH)),
    "rehearse": lambda opened: opened.rehearse(of_cells(0.6, MARCH), mark="a"),
    "read": lambda opened: (opened.verify().number >= 1, str(opened.left(1, FRANCE))),
    "fork": forked,
}


class World(NamedTuple):
    """A ledger in each type of store, rebuilt on every request."""

    pair: Interleaving
    place: Path | str
    anew: Callable[[], str]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interleaving]:
    # Locks are recorded for loaded modules; otherwise only the first ledger would load this one.
    import_module("dpgrain.ledger.stores.sqlite_store")
    found = Interleaving("dpgrain.ledger", "dpgrain.publishing")
    tell_who_waits(found, monkeypatch)
    monkeypatch.setattr(ledger, "_now", lambda: NOW)
    with found.in_force():
        yield found


@pytest.fixture
def in_file(pair: Interleaving) -> Iterator[World]:
    with folder_in_memory() as folder:
        first, place = folder / "first.ledger", folder / "visits.ledger"
        cases.made(first, PROMISE, FREE).close()

        def anew() -> str:
            for old in place.parent.glob(f"{place.name}*"):
                old.unlink()
            shutil.copy(first, place)
            return str(place)

        yield World(pair, place, anew)


@pytest.fixture
def in_database(pair: Interleaving, server: str) -> World:
    place = cases.schema_of(server)
    made = cases.made(place, PROMISE, FREE)
    store: Any = made._store
    tables = [table.partition(" (")[0].split()[-1] for table in TABLES]

    def statements(*each: str) -> None:
        with store._at_hand() as connection:
            for statement in each:
                for table in tables:
                    connection.execute(statement.format(table=table))
        made.close()

    statements("CREATE TABLE first_{table} AS SELECT * FROM {table}")

    def anew() -> str:
        statements("DELETE FROM {table}", "INSERT INTO {table} SELECT * FROM first_{table}")
        return place

    return World(pair, place, anew)


def outcome(
    world: World, names: tuple[str, str], shared: bool, at: Seam | None = None, turned: bool = False
) -> Any:
    """Both answers, and the final ledger."""
    place = world.anew()
    opened = [dg.Ledger(place)] * 2 if shared else [dg.Ledger(place), dg.Ledger(place)]
    one, two = (
        lambda name=name, own=own: DEEDS[name](own) for name, own in zip(names, opened, strict=True)
    )
    answers = world.pair.run(two, one)[::-1] if turned else world.pair.run(one, two, at)
    # A late actor gets another message than one that was never in time.
    told = tuple((answer.value, answer.raised.partition(":")[0]) for answer in answers)
    with opened[0]._store.reading() as page:
        lines = tuple((line.hash, line.body) for line in page.lines())
        kept = (
            page.accounts(),
            page.classes(1),
            page.classes(2),
            page.all_used_plans(),
            page.all_marks(),
        )
    for each in opened:
        each.close()
    return told, lines, kept


def check(place: str, told: Iterable[tuple[Any, str]]) -> None:
    """Assert that confirmed releases are recorded, and that cells were charged exactly for them."""
    holds = dg.Ledger(place)
    holds.verify()
    for value, _ in told:
        if isinstance(value, Receipt):
            assert holds.contains(value), f"{value} is lost"
    promises, entries = holds.promises, holds.entries
    # Each release reads this cell, as does the plan.
    cell = cases.on("2026-03-05", "2026-03-05", "FR")
    with holds._store.reading() as page:
        assert all(Units(*row[3:]).fits for row in page.accounts()), "more than is promised"
        for number, promise in promises.items():
            charged = [
                Units.create(each.price, promise.caps)
                for entry in entries
                for each in entry.charged
                if each.promise == number
            ]
            found = accounts.spent(page, promise, number, promise.reach(cell))
            assert found == sum(charged, Units())
    holds.close()


def in_turn(world: World, names: tuple[str, str], shared: bool) -> list[Any]:
    found = []
    for turned in (False, True):
        found.append(outcome(world, names, shared, turned=turned))
        check(str(world.place), found[-1][0])
    return found


def alone(world: World, name: str, seams: Callable[..., list[Seam]]) -> list[Seam]:
    opened = dg.Ledger(world.anew())
    found = seams(lambda: DEEDS[name](opened))
    opened.close()
    return found


def assert_one_after_the_other(
    world: World, names: tuple[str, str], shared: bool, seams: Iterable[Seam]
) -> None:
    """At any pause of the first action, the outcome equals one of the two orders."""
    known = in_turn(world, names, shared)
    for seam in seams:
        found = outcome(world, names, shared, seam)
        assert found in known, f"{names} came neither in this order nor in the other: {seam}"


# The first action forks nothing: a child would repeat its work.
FIRST = [name for name in DEEDS if name != "fork"]


def pauses(world: World, first: str, effort: Effort) -> list[Seam]:
    """Pauses of an action: before each transaction, and at some statements inside and between.

    While one writes, the other waits, so that the steps between transactions matter most.
    """
    seams = alone(world, first, world.pair.seams)
    begins = [seam for seam in seams if seam.asks.startswith("BEGIN")]
    assert begins
    assert len(seams) > 10
    return sorted({*begins, *effort.some(seams)[::2]}, key=lambda seam: seam.touched)


@pytest.mark.parametrize("shared", [False, True], ids=["processes", "threads"])
@pytest.mark.parametrize("name", FIRST)
def test_two_equal_actions_are_serialized(
    name: str, shared: bool, in_file: World, effort: Effort
) -> None:
    assert_one_after_the_other(in_file, (name, name), shared, pauses(in_file, name, effort))


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize("shared", [False, True], ids=["processes", "threads"])
@pytest.mark.parametrize(
    ("first", "second"), [(one, two) for one in FIRST for two in DEEDS if one != two]
)
def test_two_come_one_after_the_other(
    first: str, second: str, shared: bool, in_file: World, effort: Effort
) -> None:
    seams = pauses(in_file, first, effort)
    assert_one_after_the_other(in_file, (first, second), shared, seams)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("charge", "renew"), ("charge once", "charge once"), ("renew", "renew"), ("add", "charge"),
        ("charge what is planned", "charge what is planned"), ("charge two", "charge a country"),
    ],
)  # fmt: skip
def test_two_threads_are_serialized_at_every_line(
    first: str, second: str, in_file: World, effort: Effort
) -> None:
    """Shared memory of both threads also matters at lines without a lock or a store."""
    seams = alone(in_file, first, in_file.pair.lines)
    assert_one_after_the_other(in_file, (first, second), True, effort.some(seams))


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("charge", "renew"), ("charge once", "charge once"), ("renew", "renew"),
        ("charge", "charge a country"), ("read", "charge"), ("charge", "fork"),
    ],
)  # fmt: skip
def test_two_come_one_after_the_other_in_a_database(
    first: str, second: str, in_database: World, effort: Effort
) -> None:
    seams = alone(in_database, first, in_database.pair.seams)
    assert_one_after_the_other(in_database, (first, second), False, effort.some(seams))
