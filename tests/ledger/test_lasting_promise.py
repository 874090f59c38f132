"""A ledger's guarantee: units, windows, limits."""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import signal
from collections.abc import Callable
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.ledger import cases
from tests.ledger.test_accounts import DAY, ONE, REGIONS, asked, largest, page_of
from tests.publishing import cases as tables
from tests.publishing.test_caps import Left, best_delta
from tests.refusals import no_room, refuses

import dpgrain as dg
from dpgrain.accounting import (
    ApproximateDP,
    Contribution,
    Event,
    Gaussian,
    Loss,
    PureDP,
    SampledGaussian,
)
from dpgrain.accounting.events.base import Neighbours
from dpgrain.accounting.losses.pairs import MixturePair
from dpgrain.ledger import AnyDays, AnyHours, LastingPromise, accounts
from dpgrain.ledger.accounts import AlreadyReleasedError, Charged
from dpgrain.ledger.lasting_promise import split_planned
from dpgrain.ledger.stores.store_protocol import Transaction
from dpgrain.ledger.window import Meeting
from dpgrain.publishing import Price
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import Region

MEETINGS: tuple[Meeting, ...] = get_args(Meeting)
TOPICS = Partition((Rule("topic"),))
PROMISES = [
    cases.USERS,
    cases.OF_DAYS,
    LastingPromise.of(dg.Record(), 1.0, relation="replace"),
    LastingPromise.of(dg.Element(["day", "country"]), 1.0, 1e-6, pure=0.1, leak=1e-8),
    LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(30, "day", "Europe/Paris")),
    LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyHours(720, "at")),
    LastingPromise.of(dg.Element("topic"), 1.0, 1e-6, window=AnyDays(7, "day")),
]


@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_promise_is_read_as_written(promise: LastingPromise) -> None:
    assert LastingPromise.from_dict(promise.to_dict()) == promise


@pytest.mark.parametrize(
    ("unit", "more", "told"),
    [
        (dg.Element(), {}, "Element of a column"),
        (dg.Element({"a": 1}), {}, "cannot store mappings"),
        (dg.Element([]), {}, "Element of a column"),
        (dg.User(max_elements=3), {}, "without max_elements"),
        ("user", {}, "unit must be"),
        (dg.User(), {"epsilon": 0}, "epsilon must be"),
        (dg.User(), {"delta": 1}, "delta must"),
        (dg.User(), {"pure": 2.0}, "pure must be at most"),
        (dg.User(), {"leak": 1.0}, "leak must be at most"),
        (dg.User(), {"relation": "add"}, "relation must be"),
        (dg.Record(), {"window": AnyDays(3, "day")}, "window is for users"),
        (dg.Element("day"), {"window": AnyDays(3, "day")}, "already defines the elements"),
    ],
)
def test_impossible_promises_are_rejected(unit: Any, more: dict[str, Any], told: str) -> None:
    with pytest.raises(dg.ParameterError, match=told):
        LastingPromise.of(unit, **{"epsilon": 1.0, "delta": 1e-6, **more})


def test_caps_without_a_guarantee_are_rejected() -> None:
    values = {**cases.USERS.to_dict(), "caps": {"pure": 0.0, "mu": 0.3, "leak": 1e-7}}
    with refuses("caps", "promise"):
        LastingPromise.from_dict(values)
    less = {**cases.USERS.to_dict(), "caps": {"pure": -1e30, "mu": 0.2, "leak": 1e-7}}
    with refuses("pure", "at least 0"):
        LastingPromise.from_dict(less)


@pytest.mark.parametrize(
    ("promise", "reached"),
    [
        (cases.USERS, cases.on()),
        (cases.OF_DAYS, cases.on("2026-01-03", "2026-01-05")),
        (LastingPromise.of(dg.Record(), 1.0), cases.on("2026-01-03", "2026-01-05", "FR")),
        (LastingPromise.of(dg.Element("country"), 1.0), cases.on(country="FR")),
        (PROMISES[4], cases.on("2026-01-03", "2026-01-05")),
        (PROMISES[5], cases.on()),
        (PROMISES[6], cases.on("2026-01-03", "2026-01-05")),
        (
            LastingPromise.of(dg.Element(Partition((Rule("day", "month"),))), 1.0),
            cases.on("2026-01-01", "2026-01-31"),
        ),
    ],
    ids=str,
)
def test_release_reaches_the_units_of_its_region(promise: LastingPromise, reached: Region) -> None:
    assert promise.reach(cases.on("2026-01-03", "2026-01-05", "FR")) == reached


def test_unbounded_unit_of_other_cells_is_rejected() -> None:
    topics = LastingPromise.of(dg.Element("topic"), 1.0, 1e-6)
    with refuses("contribution", "unbounded"):
        topics.price(cases.of_days(10.0, cases.on()))
    with refuses("contribution", "unbounded"):
        cases.USERS.price(cases.of_days(10.0, cases.on()))


def test_user_is_charged_for_the_days_read() -> None:
    """7 whole blocks on disjoint coordinates cost 7 times one."""
    week = cases.of_days(10.0, cases.on("2026-01-01", "2026-01-07"))
    # The seven days, and the cell of records without a day, which the region leaves out.
    assert cases.USERS.price(week).mu == pytest.approx(0.1 * 7**0.5)
    any_30 = LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(30, "day"))
    assert any_30.price(week).mu == pytest.approx(0.1 * 7**0.5)


def test_a_renewed_promise_is_to_the_same_units() -> None:
    new = PROMISES[4].renewed(2.0, 1e-7)
    assert (new.window, new.level, new.epsilon) == (PROMISES[4].window, "user", 2.0)
    assert isinstance(new.caps, Price)


def test_renewal_with_a_non_numeric_delta_is_rejected() -> None:
    delta: Any = "few"
    with refuses("delta", "'few'"):
        PROMISES[4].renewed(2.0, delta)


def test_hours_with_part_of_a_block_pay_for_it() -> None:
    """If signs may differ, losing a part may move a block twice as far as its removal."""
    promise = LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyHours(720, "at"))
    event = Gaussian(10.0, Contribution(block="user", coordinates="signed"))
    asked = dg.Guarantee("user", "", "zero_out", 1e-9, event)
    prices = {meeting: promise.price(asked, None, meeting).mu for meeting in MEETINGS}
    assert prices == pytest.approx({"whole": 0.1, "parts": 0.2, "any": 0.2})


FIT = dg.Guarantee("record", "", "zero_out", 1e-9, SampledGaussian(3.0, 0.01, 300, level="record"))
NOISY = [cases.of_users(8.0), cases.of_users(8.0), cases.of_users(12.0)]
PLANNED = LastingPromise.of(dg.User(), 1.0, 1e-6, plan=NOISY)


def used(made: dg.Ledger, number: int = 1) -> set[int]:
    with made._store.reading() as page:
        return page.used_plan(number)


# -- promises ---


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("unit", "plan"),
    [
        (dg.User(), NOISY),
        (dg.Record(), [FIT, FIT, dg.Guarantee("record", "", "zero_out", 0.0, PureDP(0.05))]),
        (dg.Element(cases.DAYS), [cases.of_days(8.0, cases.on("2026-01-01"))] * 2),
    ],
    ids=["Gaussian", "fits and pure", "days"],
)
def test_whole_equals_the_guarantee(unit: Any, plan: list[dg.Guarantee]) -> None:
    """The plan and the caps, recomposed as one event by the accountant, come to ε at δ."""
    promise = LastingPromise.of(unit, 1.0, 1e-6, plan=plan)
    assert 0.99 < promise.whole.epsilon(1e-6) <= 1.0
    rest = Gaussian(1 / promise.caps.mu, Contribution(block=plan[0].level))
    together = reduce(add, plan) + dataclasses.replace(plan[0], event=rest)
    assert 0.99 < together.epsilon(1e-6 - promise.caps.leak) <= 1 + 1e-6
    # Plans leave more budget than charges.
    bare = LastingPromise.of(unit, 1.0, 1e-6, leak=1e-7)
    charged = reduce(add, map(bare.price, plan)).remainder(bare.caps)
    assert promise.caps.mu >= charged.mu * (1 - 1e-5)
    assert promise.caps.leak >= charged.leak
    assert LastingPromise.from_dict(promise.to_dict()) == promise
    assert f"{len(plan)} planned" in str(promise)


def test_a_promise_without_a_plan_is_written_as_ever() -> None:
    assert "plan" not in cases.USERS.to_dict()
    assert "planned" not in Charged(1, Price()).to_dict()


@pytest.mark.slow
def test_planned_fits_leave_more_than_their_prices() -> None:
    """Four sampled runs and pure noise leave room where their prices do not fit at all."""
    bare = LastingPromise.of(dg.Record(), 1.0, 1e-6)
    pure = dg.Guarantee("record", "", "zero_out", 0.0, PureDP(0.1))
    plan = [FIT] * 4 + [pure] * 2
    planned = LastingPromise.of(dg.Record(), 1.0, 1e-6, plan=plan)
    assert reduce(add, map(bare.price, plan)).share_of(bare.caps) > 1.5
    assert planned.caps.mu > 0.05


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ([cases.of_users(2.0)], "plan less"),
        ([3], "plan must contain queries, functions"),
        ([cases.of_days(10.0, cases.on())], "is unbounded"),
    ],
)
def test_impossible_plans_are_rejected(plan: list[Any], told: str) -> None:
    with pytest.raises(dg.ParameterError, match=told):
        LastingPromise.of(dg.User(), 1.0, 1e-6, plan=plan)


def test_plan_beyond_the_promise_is_not_read() -> None:
    values = PLANNED.to_dict()
    values["plan"].append(NOISY[0].to_dict())
    with refuses("caps", "promise"):
        LastingPromise.from_dict(values)


@dataclasses.dataclass(frozen=True)
class OneWay(Event):
    """An event with different orders of its pair, also for replaced data."""

    level = "record"

    def cost(self, neighbours: Neighbours) -> Loss:
        pair = MixturePair(((0.9, 0.0), (0.1, 0.5)), ((1.0, 0.0),))
        return Loss(pairs=((pair, neighbours.units),))


@pytest.mark.slow
def test_mixed_orders_are_rejected() -> None:
    one = dg.Guarantee("record", "", "replace", 1e-9, OneWay())
    with pytest.raises(dg.ParameterError, match="differs between the two orders"):
        LastingPromise.of(dg.Record(), 1.0, 1e-6, relation="replace", plan=[one])
    removed = dataclasses.replace(one, relation="zero_out")
    assert LastingPromise.of(dg.Record(), 1.0, 1e-6, plan=[removed]).plan == (removed,)


def test_renewal_adds_to_the_plan() -> None:
    """► two of (1, 10⁻⁶) with only Gaussians: ε = 1.403 at 2·10⁻⁶, planned or not."""
    one = LastingPromise.of(dg.User(), 1.0, 1e-6, leak=0.0, plan=NOISY)
    two = one.renewed(1.0, 1e-6, leak=0.0, plan=NOISY[:1])
    assert (len(one.plan), len(two.plan)) == (3, 1)
    assert two.together(one).epsilon(2e-6) == pytest.approx(1.403, abs=5e-4)
    assert one.renewed(1.0, 1e-6).plan == ()


# -- ledgers ---


def test_planned_release_is_free_once(place: str) -> None:
    made = cases.made(place, PLANNED)
    with made:
        for _ in range(2):
            made.charge(NOISY[0])
        assert (made.left(1), used(made)) == (1.0, {0, 1})
        receipt = made.charge(NOISY[0])
        assert made.left(1) == pytest.approx(1 - (1 / 8 / PLANNED.caps.mu) ** 2)
        with no_room():
            made.charge(NOISY[0])
        made.charge(NOISY[2])
    assert used(made) == {0, 1, 2}
    assert [each.planned for entry in made.entries for each in entry.charged] == [0, 1, None, 2]
    assert made.entries[receipt.number].charged[0].price.mu == pytest.approx(1 / 8)
    made.verify()


@pytest.mark.parametrize(
    "other",
    [
        {"event": Gaussian(8.0 * (1 + 1e-12), Contribution(block="user"))},
        {"scope": cases.on("2026-01-01")},
        {"user": "who"},
        {"relation": "replace"},
    ],
    ids=str,
)
def test_another_release_is_charged(other: dict[str, Any], tmp_path: Any) -> None:
    made = cases.made(tmp_path / "l", PLANNED)
    one = dataclasses.replace(NOISY[0], **other)
    (charged,) = made.projected_charges(1, one)
    assert (charged.planned, charged.price.mu > 0) == (None, True)
    # Its description, and the δ of the report, do not make it another release.
    told = dataclasses.replace(NOISY[0], public=(dg.Fact("bins"),), delta=1e-7)
    assert made.projected_charges(1, told)[0].planned == 0


def test_several_in_one_line_are_matched_one_by_one(place: str) -> None:
    made = cases.made(place, PLANNED, LastingPromise.of(dg.Element(cases.DAYS), 5.0, 1e-6))
    with made:
        made.charge(*NOISY, cases.of_users(50.0), cases.of_users(50.0))
    charged = made.entries[-1].charged
    assert [each.planned for each in charged if each.promise == 1] == [0, 1, 2, None]
    assert sum(each.promise == 2 for each in charged) == 1
    # The same again is charged to both: nothing is planned any more.
    assert [each.planned for each in made.projected_charges(1, *NOISY)] == [None]
    with no_room():
        made.charge(*NOISY, *NOISY)
    made.verify()


def test_rejection_leaves_the_plan_unchanged(place: str) -> None:
    made = cases.made(place, PLANNED, LastingPromise.of(dg.User(), 0.3, 1e-6))
    with made, pytest.raises(dg.ParameterError, match=r"ε = 0\.3"):
        made.charge(NOISY[0])
    assert used(made) == set()


def test_a_renewed_promise_has_its_own_plan(place: str) -> None:
    made = cases.made(place, PLANNED)
    with made:
        made.charge(NOISY[0])
        number = made.renew(1, PLANNED.renewed(1.0, 1e-6, plan=NOISY[:1])).number
        made.charge(NOISY[0])
        assert (used(made), used(made, number)) == ({0}, {0})
        made.charge(NOISY[0])
        assert made.left(number) < 1.0
    made.verify()


def test_marks_are_rebuilt_and_checked(place: str) -> None:
    made = cases.made(place, PLANNED)
    with made:
        made.charge(NOISY[0])
    cases.tamper(made, "DELETE FROM taken")
    with pytest.raises(dg.DataError, match=r"accounts of .* do not match its lines"):
        made.verify()
    with made._store.writing() as page:
        page.set_format(1)
    again = dg.Ledger(place)
    assert used(again) == {0}
    again.verify()


def test_a_ledger_of_the_first_format_has_no_marks(place: str) -> None:
    made = cases.made(place)
    with made:
        made.charge(cases.of_users())
    cases.tamper(made, "DROP TABLE taken")
    with made._store.writing() as page:
        page.set_format(1)
    again = dg.Ledger(place)
    again.charge(cases.of_users())
    again.verify()


def test_line_takes_nothing_missing() -> None:
    with page_of(PLANNED) as page:
        accounts.charge(page, PLANNED, Charged(1, Price(), planned=0))
        with pytest.raises(AlreadyReleasedError, match="was already published"):
            accounts.charge(page, PLANNED, Charged(1, Price(), planned=0))
        for wrong in (Charged(1, Price(), planned=3), Charged(1, Price(mu=0.1), planned=1),
                      Charged(1, Price(), planned=-1)):  # fmt: skip
            with refuses("planned", "3"):
                accounts.charge(page, PLANNED, wrong)


# -- files and functions ---

FILE = """
[budget]
unit = "user"
epsilon = 0.8
delta = 5e-7

[release.visits]
statistic = "count"
clip = 5.0
share = 0.6

[release.who]
statistic = "count"
clip = 1.0
share = 0.4
"""


def test_planned_file_is_free(place: str, tmp_path: Path) -> None:
    path = tmp_path / "releases.toml"
    path.write_text(FILE)
    plan = dg.plan_releases(path, tables.table())
    made = cases.made(place, LastingPromise.of(dg.User(), 1.0, 1e-6, plan=plan.guarantees))
    with made:
        found = dg.plan_releases(path, tables.table()).run()
        assert made.left(1) == 1.0
        assert found.guarantee.receipts == (made.entries[-1].receipt,)
        with no_room():
            plan.run(again=True)
    assert used(made) == {0, 1}


def test_a_function_may_be_planned(place: str) -> None:
    def visits() -> Any:
        return dg.count.query(tables.table(), unit=dg.User(), clip=5.0, epsilon=0.5, delta=1e-8)

    made = cases.made(place, LastingPromise.of(dg.User(), 1.0, 1e-6, plan=[visits]))
    with made, dg.budget(2.0, 1e-6):
        dg.publish(visits())
    assert (used(made), made.left(1)) == ({0}, 1.0)


# -- processes ---


def test_second_actor_is_charged(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other uses the planned release after this one has read, and before it writes."""
    made = cases.made(place, LastingPromise.of(dg.User(), 1.0, 1e-6, plan=NOISY[2:]))
    append, turns = dg.Ledger._append, iter([1])

    def late(ledger: dg.Ledger, *noted: Any, **options: Any) -> Any:
        for _ in turns:
            dg.Ledger(place).charge(NOISY[2])
        return append(ledger, *noted, **options)

    monkeypatch.setattr(dg.Ledger, "_append", late)
    made.charge(NOISY[2])
    assert [entry.charged[0].planned for entry in made.entries[2:]] == [0, None]
    assert made.left(1) < 1.0
    made.verify()


def charging(place: str, start: Any, times: int) -> None:
    opened = dg.Ledger(place)
    start.wait(60)
    for _ in range(times):
        opened.charge(cases.of_users(200.0))
    os._exit(0)


def test_processes_race_for_planned_releases(place: str) -> None:
    plan = [cases.of_users(200.0)] * 5
    made = cases.made(place, LastingPromise.of(dg.User(), 1.0, 1e-6, plan=plan))
    context = multiprocessing.get_context("fork")
    start = context.Barrier(3)
    workers = [context.Process(target=charging, args=(place, start, 4)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    places = [each.planned for entry in made.entries for each in entry.charged]
    assert len(places) == 12
    assert sorted(one for one in places if one is not None) == [0, 1, 2, 3, 4]
    spent = (12 - 5) / 200**2 / made.promises[1].caps.mu ** 2
    assert made.left(1) == pytest.approx(1 - spent)
    made.verify()


@pytest.mark.parametrize("committed", [False, True])
def test_kill_leaves_the_plan_consistent_with_the_lines(committed: bool, place: str) -> None:
    made = cases.made(place, PLANNED)
    child = os.fork()
    if child == 0:
        try:
            opened = dg.Ledger(place)
            if committed:
                opened.charge(NOISY[0])
            else:
                with opened._store.writing() as page:
                    accounts.charge(page, PLANNED, Charged(1, Price(), planned=0))
                    os.kill(os.getpid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert used(made) == ({0} if committed else set())
    made.charge(NOISY[0])
    assert used(made) == ({0, 1} if committed else {0})
    made.verify()


# -- an analyst who chooses each release by the outcomes of those before ---

TURN = 0.07
SMALL = asked(Gaussian(1 / TURN, ONE), DAY)
UNIT_PROMISES: dict[str, tuple[Any, dict[str, Any]]] = {
    "life": (dg.User(), {}),
    "day": (dg.Element(cases.DAYS), {}),
    "day, with pure ε": (dg.Element(cases.DAYS), {"pure": 0.05}),
    "any 7 days": (dg.User(), {"window": AnyDays(7, "day")}),
}


def publish(page: Transaction, promise: LastingPromise, guarantee: dg.Guarantee) -> None:
    planned, others = split_planned(promise.plan, [guarantee], page.used_plan(1))
    for place, one in planned.items():
        accounts.charge(page, promise, Charged(1, Price(), promise.reach(one.scope), place))
    for one in others:
        accounts.charge(page, promise, Charged(1, promise.price(one), promise.reach(one.scope)))


def allowed(promise: LastingPromise) -> Callable[[int], Left]:
    def left(done: int) -> Left:
        with page_of(promise) as page:
            for turn in range(done):
                # Planned releases read only the day, the others any region that meets it.
                scope = DAY if turn < len(promise.plan) else REGIONS[turn % len(REGIONS)]
                publish(page, promise, dataclasses.replace(SMALL, scope=scope))
            # The last release has all planned ones still ahead.
            planned = len(promise.plan) - len(page.used_plan(1))
            rest = largest(page, promise, lambda mu: Gaussian(1 / mu, ONE), 1.0)
            return Left(
                math.hypot(rest, math.sqrt(planned) * TURN),
                largest(page, promise, PureDP, 2.0),
                largest(page, promise, lambda leak: ApproximateDP(0.0, leak), promise.delta),
            )

    return left


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("name", UNIT_PROMISES)
def test_no_strategy_with_a_plan_beats_a_promise(name: str, count: int) -> None:
    unit, more = UNIT_PROMISES[name]
    promise = LastingPromise.of(unit, 1.0, 1e-6, plan=[SMALL] * count, **more)
    turns = count + math.floor((promise.caps.mu / TURN) ** 2)
    found = best_delta(1.0, TURN, turns, allowed(promise))
    assert 0.2 * promise.delta < found <= promise.delta * (1 + 1e-3)
