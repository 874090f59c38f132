"""A ledger's charges, rejections and lines, in each store."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.ledger import cases
from tests.publishing import cases as tables
from tests.refusals import charged_before, in_sentences, no_room, refuses

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian, PureDP
from dpgrain.ledger import AnyDays, AnyHours, LastingPromise, ledger
from dpgrain.ledger.lines import StoredLine
from dpgrain.ledger.stores.ledger_tables import SqlTransaction
from dpgrain.publishing import Price
from dpgrain.publishing.caps import Caps
from dpgrain.publishing.process import open_ledger
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import LabelSet, Region, Side, Span, days

FEW: dict[str, Any] = {"unit": dg.User(), "clip": 5.0, "epsilon": 0.1, "delta": 1e-8}


def test_a_place_can_be_in_an_environment_variable(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISITS_LEDGER", place)
    assert cases.made("env:VISITS_LEDGER").id == dg.Ledger(place).id
    with refuses("place", "environment variable that is set, not 'NO_LEDGER'"):
        dg.Ledger("env:NO_LEDGER")
    with refuses("place", "must be a file"):
        dg.Ledger("/")


@pytest.mark.parametrize(
    "address",
    [
        "postgresq://me:SECRET@host/db",
        "host=host password = SECRET",
        " postgresql://me:SECRET@host",
    ],
)
def test_mistyped_address_is_neither_a_file_nor_shown(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment variable hides a password, and so does the error about it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISITS_LEDGER", address)
    for open_ledger_at in (dg.Ledger, cases.made):
        with pytest.raises(dg.ParameterError, match="begins with postgresql://") as caught:
            open_ledger_at("env:VISITS_LEDGER")
        assert "SECRET" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_releases_inside_are_charged_and_record_the_place(place: str) -> None:
    cases.made(place)
    with dg.Ledger(place) as opened:
        assert open_ledger() is opened
        one = dg.count(tables.table(), **FEW)
        model = tables.fitted_without_rounds(epsilon=0.1, delta=1e-8)
        (first,), (second,) = one.guarantee.receipts, model.receipts
    assert open_ledger() is None
    entries = opened.entries
    assert [entry.kind for entry in entries] == ["ledger", "promise", "release", "release"]
    assert (first, second) == (entries[2].receipt, entries[3].receipt)
    assert entries[2].guarantees == (dataclasses.replace(one.guarantee, receipts=()),)
    assert first.hash in str(one.guarantee)
    assert dg.Guarantee.from_json(one.guarantee.to_json()) == one.guarantee
    assert (model + model).receipts == (second,)
    assert opened.verify() == second
    # Outside nothing is charged.
    assert dg.count(tables.table(), **FEW).guarantee.receipts == ()
    assert len(opened.entries) == 4


# The mean at a sensitivity protects elements of the caller's own partition.
@pytest.mark.parametrize("name", [name for name in tables.ARRAYS if "sensitivity" not in name])
def test_every_fit_carries_its_receipt(name: str, tmp_path: Any) -> None:
    made = cases.made(tmp_path / "l", LastingPromise.of(dg.User(), 20.0, 1e-4, pure=9.0))
    asked: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-8, "unit": dg.User()}
    for left_out in {"typical records": ("unit", "delta"), "mean": ("unit",)}.get(name, ()):
        del asked[left_out]
    if name == "mean without a roster":
        del asked["unit"]
    with made:
        guarantee = tables.ARRAYS[name](**asked)
    assert [receipt.number for receipt in guarantee.receipts] == [2]


def test_oversized_release_is_rejected_before_reading(place: str) -> None:
    made = cases.made(place)
    with made:
        before = len(made.entries)
        with no_room() as caught:
            dg.count(tables.unread(), **{**FEW, "epsilon": 1.5})
        said = str(caught.value)
        assert "would fit" in said
        assert said.endswith(".")
        assert len(made.entries) == before
        assert made.left(1) == 1.0
        # The reported remaining release fits, and does not exceed the guarantee.
        epsilon = float(said.split("ε ≤ ")[-1].split(" ")[0])
        assert epsilon <= made.promises[1].epsilon
        dg.count(tables.table(), unit=dg.User(), clip=5.0, epsilon=epsilon, delta=9.9e-8)
    assert made.left(1) < 0.25


def test_charged_unreadable_release_stays_charged(place: str) -> None:
    made = cases.made(place)
    with made, pytest.raises(AssertionError, match="rows were read"):
        dg.count(tables.unread(), **FEW)
    assert [entry.kind for entry in made.entries][2:] == ["release"]


@pytest.mark.slow
def test_printed_ledger_shows_each_promise_and_remaining_budget(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l")
    assert repr(made) == f"Ledger({str(tmp_path / 'l')!r}, name={made.name!r})"
    made.charge(cases.of_users(2 / cases.USERS.caps.mu))
    first, *promises = str(made).splitlines()
    assert first == f"Ledger {made.name!r} in {str(tmp_path / 'l')!r}"
    assert promises == [f"Promise on line 1: {cases.USERS}. At least 75% remains."]


def test_shares_of_a_365th_fit_exactly_365_times(tmp_path: Any) -> None:
    made = cases.made(tmp_path / "l")
    mu = cases.USERS.caps.mu / math.sqrt(365)
    with made:
        for _ in range(365):
            made.charge(cases.of_users(1 / mu))
        assert made.left(1) < 1e-9
        with pytest.raises(dg.ParameterError, match="The promise is exhausted"):
            made.charge(cases.of_users(1e4))


def test_a_release_must_fit_into_every_promise(place: str) -> None:
    life = LastingPromise.of(dg.User(), 0.5, 1e-6)
    made = cases.made(place, cases.USERS, life)
    with made:
        made.charge(cases.of_users(1 / life.caps.mu))
        with pytest.raises(dg.ParameterError, match=r"ε = 0\.5"):
            made.charge(cases.of_users(1 / life.caps.mu))
        assert made.left(1) == pytest.approx(1 - (life.caps.mu / cases.USERS.caps.mu) ** 2)
        assert made.left(2) < 1e-9
    assert [entry.charged for entry in made.entries if entry.guarantees] != []


@pytest.mark.parametrize("part", [math.nan, -1e-3, 5e-324, -0.5, 1e-310])
@pytest.mark.parametrize("name", ["pure", "mu", "leak"])
def test_invalid_price_is_rejected(
    name: str, part: float, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cases.made(tmp_path / "l")
    wrong = dataclasses.replace(Price(mu=0.01), **{name: part})
    monkeypatch.setattr(LastingPromise, "price", lambda *_: wrong)
    with made, pytest.raises(dg.ParameterError, match=f"the {name} of a price"):
        made.charge(cases.of_users())
    assert len(made.entries) == 2


def test_huge_noise_with_underflowing_price_is_still_charged(tmp_path: Any) -> None:
    made = cases.made(tmp_path / "l")
    with made:
        made.charge(cases.of_users(1e200))
    assert made.left(1) <= 1.0
    with made._store.reading() as page:
        assert [row[4] for row in page.accounts()] == [1]


def test_several_releases_are_charged_together_or_not_at_all(place: str) -> None:
    made = cases.made(place)
    mu = cases.USERS.caps.mu
    half = cases.of_users(math.sqrt(2) / mu)
    with made:
        with no_room():
            made.charge(half, half, half)
        assert made.left(1) == 1.0
        receipt = made.charge(half, half, mark="file 1")
    entry = made.entries[receipt.number]
    assert (entry.mark, len(entry.guarantees), len(entry.charged)) == ("file 1", 2, 1)
    assert made.left(1) < 1e-6


def test_a_budget_inside_is_a_narrower_promise(place: str) -> None:
    made = cases.made(place)
    with made, dg.budget(0.5, 1e-7) as budget:
        one = dg.count(tables.table(), unit=dg.User(), clip=5.0, share=0.5)
        spent = budget.spent
        with no_room("the budget"):
            dg.count(tables.unread(), **{**FEW, "epsilon": 0.49, "delta": 1e-7})
        assert (len(made.entries), budget.spent) == (3, spent)
    assert [receipt.number for receipt in one.guarantee.receipts] == [2]
    # A rejected release uses nothing of the budget.
    with made, dg.budget(5.0, 1e-5) as wide:
        with pytest.raises(dg.ParameterError, match="the ledger 'visits'"):
            dg.count(tables.unread(), **{**FEW, "epsilon": 1.2})
        assert wide.spent == Price()
        assert wide.guarantee is None


def test_ledger_is_opened_before_a_budget_and_separately(place: str) -> None:
    made = cases.made(place)
    with dg.budget(1.0, 1e-6), pytest.raises(dg.ParameterError, match="open the ledger first"):
        made.__enter__()
    with made, pytest.raises(dg.ParameterError, match="a ledger is already open"):
        dg.Ledger(place).__enter__()
    assert open_ledger() is None


def test_choice_inside_a_ledger_equals_one_inside_a_budget(tmp_path: Any) -> None:
    from dpgrain.publishing import in_budget

    with cases.made(tmp_path / "l"):
        assert in_budget()
    assert not in_budget()


def test_promise_is_renewed_in_addition_to_its_charges(place: str) -> None:
    made = cases.made(place)
    with made:
        made.charge(cases.of_users(1 / cases.USERS.caps.mu))
        entry = made.renew(1, cases.USERS)
        assert (entry.number, entry.renews) == (3, 1)
        assert list(made.promises) == [3]
        made.charge(cases.of_users(1 / cases.USERS.caps.mu))
        with refuses("number", "promise"):
            made.renew(1, cases.USERS)
        with refuses("promise", "units"):
            made.renew(3, cases.OF_DAYS)
    made.verify()
    gaussian = LastingPromise.of(dg.User(), 1.0, 1e-6, leak=0.0)
    both = gaussian.together(gaussian)
    # Two of (1, 10⁻⁶): M = .3348, and ε = 1.403 at 2·10⁻⁶.
    assert both.price.mu == pytest.approx(0.3348, abs=5e-5)
    assert both.epsilon(2e-6) == pytest.approx(1.403, abs=5e-4)


OTHERS = {
    "relation": LastingPromise.of(dg.User(), 1.0, 1e-6, relation="replace"),
    "level": LastingPromise.of(dg.Record(), 1.0, 1e-6),
    "window": LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(7, "day")),
    "partition": LastingPromise.of(dg.Element("day"), 1.0, 1e-6),
}


@pytest.mark.parametrize("other", OTHERS)
def test_renewal_of_another_promise_is_rejected(tmp_path: Path, other: str) -> None:
    plain = LastingPromise.of(dg.User(), 1.0, 1e-6)
    made = dg.Ledger.create(tmp_path / "a.ledger", name="a", promises=[plain])
    with refuses("promise", "units"):
        made.renew(1, OTHERS[other])
    assert list(made.promises.values()) == [plain]


def test_a_promise_is_added_only_before_anything_is_charged(place: str) -> None:
    made = cases.made(place)
    entry = made.add(LastingPromise.of(dg.User(), 3.0, 1e-6))
    assert list(made.promises) == [1, entry.number]
    with made:
        made.charge(cases.of_users())
    for _ in range(2):
        with refuses("promise", "anything"):
            made.add(cases.USERS)
        made.renew(next(iter(made.promises)), next(iter(made.promises.values())))


def test_users_of_another_column_are_rejected(place: str) -> None:
    made = cases.made(place, user="person")
    with made, refuses("release", "'person'"):
        dg.count(tables.unread(), **FEW)
    assert len(made.entries) == 2


def test_expected_hash_must_exist(place: str) -> None:
    made = cases.made(place)
    with made:
        receipt = made.charge(cases.of_users())
        made.charge(cases.of_users())
    assert dg.Ledger(place, expected=receipt.hash).id == made.id
    with refuses("expected", "ledger", kind=dg.DataError):
        dg.Ledger(place, expected="0" * 64)


@pytest.mark.parametrize("promises", [LastingPromise.of(dg.User(), 1.0, 1e-6), [], ["1"], None])
def test_invalid_lists_of_promises_are_rejected(promises: Any, tmp_path: Path) -> None:
    place = tmp_path / "a.ledger"
    with refuses("promises", "list of LastingPromise"):
        dg.Ledger.create(place, name="a", promises=promises)
    assert not place.exists()


def test_a_place_is_used_once(place: str) -> None:
    made = cases.made(place)
    with pytest.raises(dg.ParameterError, match="already"):
        cases.made(place)
    assert dg.Ledger(place).id == made.id


def test_address_without_a_ledger_is_rejected(place: str) -> None:
    with pytest.raises(dg.DataError, match="ledger init"):
        dg.Ledger(place)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_ledger_is_not_copied(copied: Callable[[Any], Any], tmp_path: Any) -> None:
    with pytest.raises(dg.ParameterError, match="cannot be copied to another process"):
        copied(cases.made(tmp_path / "l"))


def test_threads_share_a_ledger(place: str) -> None:
    made = cases.made(place)
    few = cases.of_users(math.sqrt(20) / cases.USERS.caps.mu)

    def charged(_: int) -> bool:
        try:
            made.charge(few)
        except dg.ParameterError:
            return False
        return True

    with made, ThreadPoolExecutor(8) as pool:
        done = list(pool.map(charged, range(40)))
    assert sum(done) == 20
    assert made.verify().number == 1 + 20


def test_the_clock_may_go_back(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cases.made(place)
    with made:
        made.charge(cases.of_users())
        monkeypatch.setattr(ledger, "_now", lambda: "1999-01-01T00:00:00Z")
        made.charge(cases.of_users())
        monkeypatch.undo()
        made.charge(cases.of_users())
    assert made.verify().number == 4
    assert made.entries[3].at == "1999-01-01T00:00:00Z"
    once = made.left(1)
    assert 1 - once == pytest.approx(3 * (0.01 / cases.USERS.caps.mu) ** 2)


def test_accounts_of_an_older_format_are_rebuilt(place: str) -> None:
    made = cases.made(place)
    with made:
        made.charge(cases.of_users())
    with made._store.writing() as page:
        before = page.accounts()
        page.clear_accounts()
        page.set_format(0)
    again = dg.Ledger(place)
    with again._store.reading() as page:
        assert page.accounts() == before
    assert again.verify() == made.entries[-1].receipt
    with again._store.writing() as page:
        page.set_format(99)
    for opened in (lambda: dg.Ledger(place), lambda: again.charge(cases.of_users())):
        with pytest.raises(dg.DataError, match="later version"):
            opened()


def test_accounts_overcharged_by_older_formats_are_not_opened(place: str) -> None:
    """Up to the third format, text days were users of their own in a guarantee for any days."""
    promise = LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(2, "day"))
    day = Region((Side("day", LabelSet(("2026-03-01",))),))
    made = cases.made(place, promise)
    charged = dataclasses.replace(cases.of_users(1.2 / promise.caps.mu), scope=day)
    with made:
        made.charge(charged)
        with pytest.raises(dg.RefusedError, match="so every window is charged"):
            made.charge(charged)
    with made._store.writing() as page:
        last = page.last()
        assert last is not None
        values = {name: last.values[name] for name in ("releases", "charged")}
        page.append(StoredLine.after(last, "2026-03-02T00:00:00Z", "release", **values))
        page.set_format(3)
    with pytest.raises(dg.DataError, match="charged more than the promise of line 1 allows"):
        dg.Ledger(place)


def test_changed_line_is_found(place: str) -> None:
    made = cases.made(place)
    with made:
        for _ in range(3):
            made.charge(cases.of_users())
    cases.tamper(made, "UPDATE lines SET body = replace(body, '100.0', '900.0') WHERE number = 3")
    with pytest.raises(dg.DataError, match="line 3 of the ledger does not match its hash"):
        made.verify()
    with pytest.raises(dg.DataError, match="line 3"):
        dg.Ledger(place)
    # A charge reads only the last line.
    made.charge(cases.of_users())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("DELETE FROM lines WHERE number = 3", "line 3 of the ledger is missing"),
        ("DELETE FROM lines WHERE number = 4", "lacks lines seen earlier"),
        ("UPDATE lines SET hash = '00' WHERE number = 4", "lacks lines seen"),
        ("UPDATE lines SET body = '{' WHERE number = 4", "line 4 of the ledger"),
    ],
)
def test_missing_lines_are_found(place: str, change: str, told: str) -> None:
    made = cases.made(place)
    with made:
        for _ in range(3):
            made.charge(cases.of_users())
        cases.tamper(made, change)
        if "= 3" not in change:
            with pytest.raises(dg.DataError, match=told):
                made.charge(cases.of_users())
        else:
            with pytest.raises(dg.DataError, match=told):
                made.verify()


def test_a_forged_line_breaks_the_chain(place: str) -> None:
    made = cases.made(place)
    with made:
        for _ in range(3):
            made.charge(cases.of_users())
    entries = made.entries
    forged = StoredLine.after(entries[1].line, "now", "release", charged=[])
    cases.tamper(made, "DELETE FROM lines WHERE number = 2")
    with made._store.writing() as page:
        page.append(forged)
    with pytest.raises(dg.DataError, match="line 3 of the ledger does not follow"):
        made.verify()


@pytest.mark.parametrize(
    ("kind", "noted"),
    [
        ("promise", {}),
        ("promise", {"promise": 3}),
        ("promise", {"promise": {**cases.USERS.to_dict(), "caps": {"price": {"mu": []}}}}),
        ("release", {"charged": 3}),
        ("release", {"charged": [{"promise": 9, "price": {}}]}),
        ("release", {"charged": [{"promise": [1], "price": {}}]}),
        ("release", {"charged": [{"promise": 1, "price": {"mu": "1"}}]}),
        ("release", {"charged": [], "mark": 7}),
        ("release", {"releases": [3]}),
    ],
    ids=str,
)
def test_line_with_valid_hash_but_foreign_contents_is_rejected(
    kind: str, noted: dict[str, Any], place: str
) -> None:
    """Anyone with write access to the file can compute a consistent chain."""
    made = cases.made(place)
    with made._store.writing() as page:
        last = page.last()
        assert last is not None
        page.append(StoredLine.after(last, "2026-03-02T00:00:00Z", kind, **noted))
    entry = made.entries[-1]
    asked: list[Callable[[], Any]] = [made.verify, lambda: entry.guarantees, lambda: entry.private]
    errors = []
    for ask in asked:
        try:
            ask()
        except (dg.DataError, dg.ParameterError) as error:
            in_sentences(error)
            errors.append(error)
    assert errors


@pytest.mark.parametrize("name", ["id", "name", "user"])
def test_first_line_without_a_field_is_rejected(name: str, place: str) -> None:
    made = cases.made(place)
    with made._store.writing() as page:
        first = page.line(0)
        assert first is not None
        noted = {
            key: first.values[key] for key in ("language", "id", "name", "user") if key != name
        }
        forged = StoredLine.after(None, "2026-03-02T00:00:00Z", "ledger", **noted)
        assert isinstance(page, SqlTransaction)
        page._execute("DELETE FROM lines", ())
        page.append(forged)
    with pytest.raises(dg.DataError, match=f"line 0 of the ledger has no field '{name}'"):
        dg.Ledger(place)


def test_changed_accounts_are_found(place: str) -> None:
    made = cases.made(place)
    with made:
        made.charge(cases.of_users())
    cases.tamper(made, "UPDATE accounts SET mu = 0")
    with pytest.raises(dg.DataError, match=r"accounts of .* do not match its lines"):
        made.verify()


def test_older_copy_is_noticed_by_later_readers(tmp_path: Any) -> None:
    import shutil

    made = cases.made(tmp_path / "l")
    made.charge(cases.of_users())
    made.close()
    shutil.copy(tmp_path / "l", tmp_path / "old")
    receipt = made.charge(cases.of_users())
    made.close()
    shutil.copy(tmp_path / "old", tmp_path / "l")
    with pytest.raises(dg.DataError, match="replaced by an older copy"):
        made.charge(cases.of_users())
    with refuses("expected", "older", kind=dg.DataError):
        dg.Ledger(tmp_path / "l", expected=receipt.hash)
    dg.Ledger(tmp_path / "l").verify()


def test_continued_older_copy_is_noticed_by_its_lines(tmp_path: Path) -> None:
    # The copy now has the same number of lines, and its last one describes another release.
    made = cases.made(tmp_path / "l")
    before = (tmp_path / "l").read_bytes()
    made.charge(cases.of_users())
    made.close()
    (tmp_path / "l").write_bytes(before)
    elsewhere = dg.Ledger(tmp_path / "l")
    elsewhere.charge(cases.of_users(200.0))
    with pytest.raises(dg.DataError, match="replaced by an older copy"):
        made.charge(cases.of_users())
    assert len(elsewhere.entries) == len(made.entries)


def test_a_ledger_knows_its_own_lines(place: str, tmp_path: Any) -> None:
    made, other = cases.made(place), cases.made(tmp_path / "other")
    receipt = made.charge(cases.of_users())
    assert made.contains(receipt)
    assert not other.contains(receipt)
    for wrong in ({"number": receipt.number + 1}, {"hash": "f" * 64}):
        with pytest.raises(dg.DataError, match="replaced by an older copy"):
            made.contains(dataclasses.replace(receipt, **wrong))
    with refuses("receipt"):
        made.contains(str(receipt))  # type: ignore[arg-type]


# -- processes ---


def charging(place: str, times: int, noise_multiplier: float, results: Any) -> None:
    opened, done = dg.Ledger(place), 0
    for _ in range(times):
        try:
            opened.charge(cases.of_users(noise_multiplier))
            done += 1
        except dg.ParameterError:
            pass
    results.put(done)


@pytest.mark.slow
@pytest.mark.parametrize("charges", [1000, 200])
def test_processes_race_and_none_is_lost(place: str, charges: int) -> None:
    """8 processes request more charges than fit: exactly the fitting ones are made and recorded."""
    cases.made(place)
    fit = charges * 7 // 10
    noise = math.sqrt(fit) / cases.USERS.caps.mu
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    asked = (place, charges // 8, noise, results)
    workers = [context.Process(target=charging, args=asked) for _ in range(8)]
    for worker in workers:
        worker.start()
    done = [results.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert sum(done) == fit
    opened = dg.Ledger(place)
    assert opened.verify().number == 1 + fit
    assert opened.left(1) < 1e-6


def test_forked_process_continues_when_parent_closes_the_ledger(place: str) -> None:
    """The last one to close a file of SQLite removes its log; a forked process must count as one."""
    made = cases.made(place)
    made.charge(cases.of_users())
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def charges() -> None:
        own = dg.Ledger(place)
        for _ in range(2):
            theirs.recv()
            theirs.send(own.charge(cases.of_users()).number)

    worker = context.Process(target=charges)
    worker.start()
    for number in (3, 4):
        ours.send("charge")
        assert ours.recv() == number
        made.close()
    worker.join(60)
    assert dg.Ledger(place).verify().number == 4


def marking(place: str, start: Any, marks: list[str], results: Any) -> None:
    opened, done = dg.Ledger(place), []
    start.wait(60)
    for mark in marks:
        with suppress(dg.ParameterError):
            opened.charge(cases.of_users(), mark=mark, again=False)
            done.append(mark)
    results.put(done)


@pytest.mark.slow
def test_one_of_several_equal_concurrent_charges_succeeds(place: str) -> None:
    cases.made(place, LastingPromise.of(dg.User(), 9.0, 1e-6))
    context = multiprocessing.get_context("fork")
    results, start, marks = context.Queue(), context.Barrier(4), [f"day {i}" for i in range(25)]
    asked = (place, start, marks, results)
    workers = [context.Process(target=marking, args=asked) for _ in range(4)]
    for worker in workers:
        worker.start()
    done = [mark for _ in workers for mark in results.get(timeout=300)]
    for worker in workers:
        worker.join(60)
    assert sorted(done) == sorted(marks)
    assert dg.Ledger(place).verify().number == 1 + len(marks)


def test_mark_is_queried_in_the_transaction_of_the_charge(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one charges the same between what a charge prepares and its line."""
    made, other = cases.made(place), dg.Ledger(place)
    usual = dg.Ledger._charges

    def meanwhile(self: dg.Ledger, *asked: Any) -> Any:
        monkeypatch.undo()
        other.charge(cases.of_users(), mark="January", again=False)
        return usual(self, *asked)

    monkeypatch.setattr(dg.Ledger, "_charges", meanwhile)
    with charged_before(2):
        made.charge(cases.of_users(), mark="January", again=False)
    assert made.verify().number == 2
    # Another mark, or a requested repetition, is charged.
    for mark, again in (("February", False), ("January", True), ("", False), ("", False)):
        made.charge(cases.of_users(), mark=mark, again=again)
    with charged_before(4):
        other.charge(cases.of_users(), mark="January", again=False)


def test_promise_added_in_the_meantime_is_also_charged(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one adds a promise between what a charge prepares and its line."""
    made, other = cases.made(place), dg.Ledger(place)
    usual = dg.Ledger._charges

    def meanwhile(self: dg.Ledger, *asked: Any) -> Any:
        monkeypatch.undo()
        other.add(cases.OF_DAYS)
        return usual(self, *asked)

    monkeypatch.setattr(dg.Ledger, "_charges", meanwhile)
    made.charge(cases.of_users())
    assert made.left(1) < 1
    assert made.left(2) < 1
    made.verify()


def test_rehearsal_is_rejected_like_a_charge_and_leaves_nothing(place: str) -> None:
    made = cases.made(place)
    large, small = cases.of_users(1 / (0.8 * cases.USERS.caps.mu)), cases.of_users()
    with made._store.reading() as page:
        before = page.accounts()
    made.rehearse(large, mark="a")
    with made._store.reading() as page:
        assert (page.accounts(), page.marked("a")) == (before, None)
    assert len(made.entries) == 2
    made.charge(large, mark="a")
    said = []
    for ask in (made.rehearse, made.charge):
        with pytest.raises(dg.ParameterError, match="would fit") as caught:
            ask(large)
        said.append(str(caught.value))
    assert said[0] == said[1]
    with charged_before(2):
        made.rehearse(small, mark="a", again=False)
    assert made.charge(small).number == made.verify().number == 3


def test_line_marks_are_rebuilt_and_checked(place: str) -> None:
    made = cases.made(place)
    made.charge(cases.of_users(), mark="a")
    cases.tamper(made, "DELETE FROM marks")
    with pytest.raises(dg.DataError, match=r"accounts of .* do not match its lines"):
        made.verify()
    # Ledgers of the second format have no marks for their lines.
    cases.tamper(made, "DROP TABLE marks")
    with made._store.writing() as page:
        page.set_format(2)
    again = dg.Ledger(place)
    with charged_before(2):
        again.charge(cases.of_users(), mark="a", again=False)
    again.verify()


def test_forked_workers_share_the_ledger(place: str) -> None:
    made = cases.made(place)
    with made:
        made.charge(cases.of_users())
        for _ in range(2):
            child = os.fork()
            if child == 0:
                try:
                    receipts = dg.count(tables.table(), **FEW).guarantee.receipts
                    os._exit(0 if len(receipts) == 1 else 1)
                except BaseException:
                    os._exit(2)
            assert os.waitpid(child, 0)[1] == 0
        made.charge(cases.of_users())
    assert made.verify().number == 5


WORKER = """
import sys
import numpy as np, pyarrow as pa
import dpgrain as dg
from dpgrain.publishing.caps import Caps
table = dg.read(pa.table({"who": np.arange(40)}), user="who", threads=1)
found = dg.count(table, unit=dg.User(), clip=1.0, epsilon=0.1, delta=1e-8)
print(len(found.guarantee.receipts))
if len(sys.argv) > 1:
    try:
        dg.Ledger(sys.argv[1]).__enter__()
    except dg.ParameterError as error:
        print(error)
"""


def spawned(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WORKER, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("other", [False, True])
def test_spawned_workers_share_the_ledger(place: str, other: bool, tmp_path: Any) -> None:
    made = cases.made(place)
    with made:
        words = [str(cases.made(tmp_path / "other").place)] if other else []
        said = spawned(*words)
        assert said.splitlines()[0] == "1"
        assert ("DPGRAIN_LEDGER points to another ledger" in said) == other
    assert made.verify().number == 2
    assert spawned().split() == ["0"]
    assert "DPGRAIN_LEDGER" not in os.environ


# -- regions ---


def test_day_is_charged_once_for_any_number_of_days(place: str) -> None:
    """365 daily releases at the whole μ: a day of a person costs ε = 1."""
    made = cases.made(place, cases.OF_DAYS)
    noise = 1 / cases.OF_DAYS.caps.mu
    some = [f"2026-{month:02}-{day:02}" for month in (1, 2) for day in (1, 14, 15, 28)]
    with made:
        for day in some:
            made.charge(cases.of_days(noise, cases.on(day)))
        for day in some:
            with no_room():
                made.charge(cases.of_days(noise * 100, cases.on(day)))
        assert made.left(1, cases.on("2026-01-02", "2026-01-13")) == 1.0
        assert made.left(1, cases.on("2026-01-02", "2026-01-14")) < 1e-9
    made.verify()


def test_a_month_is_charged_to_its_days(place: str) -> None:
    made = cases.made(place, cases.OF_DAYS)
    half = math.sqrt(2) / cases.OF_DAYS.caps.mu
    with made:
        made.charge(cases.of_days(half, cases.on("2026-01-01", "2026-01-31")))
        made.charge(cases.of_days(half, cases.on("2026-01-31", "2026-02-02")))
        some = ("2025-12-31", "2026-01-01", "2026-01-30", "2026-01-31", "2026-02-01", "2026-02-03")
        left = [round(made.left(1, cases.on(day)), 6) for day in some]
    assert left == [1, 0.5, 0.5, 0, 0.5, 1]


DAY = [f"2026-03-{number:02}" for number in range(31)]


def brute(promise: LastingPromise, charges: list[tuple[dg.Guarantee, Any]], cell: Any) -> float:
    """The part of M² that one cell has been charged, summed release by release."""
    met = [g for g, region in charges if promise.reach(region).meets(promise.reach(cell))]
    return sum(1 / (g.event.noise_multiplier * promise.caps.mu) ** 2 for g in met)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_accounts_equal_the_charges_of_each_cell(seed: int, place: str) -> None:
    """Random regions of days and countries: each cell's account is the sum of its charges."""
    import random

    draw = random.Random(seed)
    both = Partition((Rule("day", "day"), Rule("country")))
    promise = LastingPromise.of(dg.Element(both), 9.0, 1e-6)
    made = cases.made(place, promise)
    charges: list[tuple[dg.Guarantee, Any]] = []
    with made:
        for _ in range(25):
            first = draw.randint(1, 20)
            last = min(first + draw.choice([0, 0, 3, 9]), 20)
            country = draw.choice(["", "FR", "DE", "IT"])
            region = cases.on(
                *((DAY[first], DAY[last]) if draw.random() < 0.8 else ("", "")), country
            )
            event = Gaussian(draw.uniform(20, 60), Contribution(block="element"))
            guarantee = dg.Guarantee(
                "element", str(both), "zero_out", 1e-9, event, scope=region, partition=both
            )
            made.charge(guarantee)
            charges.append((guarantee, region))
        for number, country in itertools.product(range(1, 22), ["FR", "DE", "IT", "ES"]):
            cell = cases.on(DAY[number], DAY[number], country)
            expected = brute(promise, charges, cell)
            assert made.left(1, cell) == pytest.approx(max(1 - expected, 0), abs=1e-12)
    made.verify()


def test_any_days_have_an_account_for_each_start(place: str) -> None:
    """A person in any 3 days: releases within 3 days add up, and no others."""
    promise = LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(3, "day"))
    made = cases.made(place, promise)
    third = math.sqrt(3) / promise.caps.mu
    day = [f"2026-03-{number:02}" for number in range(1, 31)]
    with made:
        for each in day:
            made.charge(cases.of_users(third, scope=cases.on(each)))
        with no_room():
            made.charge(cases.of_users(third, scope=cases.on(day[10])))
        assert made.left(1, cases.on(day[0])) < 1e-9
        # A window that starts on the last day has two days left.
        with made._store.reading() as page:
            fullest = max(row[4] for row in page.accounts())
    assert fullest <= (1 << 60) + 1000
    made.verify()


LENGTH_OF_DAY = 24 * 3600 * 10**6


def of_moments(noise: float, number: int, coordinates: Any) -> dg.Guarantee:
    """Gaussian noise on sums of the blocks of a user's day, of the day of a number."""
    event = Gaussian(noise, Contribution(block="element", coordinates=coordinates))
    partition = Partition((Rule("at", "day"),))
    scope = Region(
        (Side("at", Span("time", number * LENGTH_OF_DAY, (number + 1) * LENGTH_OF_DAY)),)
    )
    return dg.Guarantee("element", "", "zero_out", 1e-9, event, scope=scope, partition=partition)


@pytest.mark.parametrize(
    ("window", "coordinates", "mu"),
    [
        (AnyDays(30, "at"), "one", 0.0432),
        (AnyDays(30, "at"), "signed", 0.0432),
        (AnyHours(720, "at"), "one", 0.0425),
        (AnyHours(720, "at"), "nonnegative", 0.0412),
        (AnyHours(720, "at"), "signed", 0.0389),
    ],
)
def test_daily_releases_for_any_30_days_and_720_hours(
    window: Any, coordinates: str, mu: float, tmp_path: Any
) -> None:
    """► (1, 10⁻⁶) with only Gaussians: 30 whole days, or 29 and two parts, at a cost of s² each."""
    promise = LastingPromise.of(dg.User(), 1.0, 1e-6, window=window, leak=0.0)
    assert promise.caps.mu == pytest.approx(0.2367, abs=5e-5)
    part = {"one": 1, "nonnegative": 2, "signed": 4}[coordinates]
    whole = 30 if window == AnyDays(30, "at") else 29 + 2 * part
    most = promise.caps.mu / math.sqrt(whole)
    assert most == pytest.approx(mu, abs=5e-5)
    made = cases.made(tmp_path / "l", promise)
    with made:
        for number in range(40):
            made.charge(of_moments(1 / most, number, coordinates))
            # Each window is full after its number of days, and later days fill later ones.
            assert (made.left(1) < 1e-9) == (number + 1 >= (30 if whole == 30 else 31))
        with no_room():
            made.charge(of_moments(1000 / most, 20, coordinates))
    made.verify()
    # A little more noise is needed: less than that does not fit into any 31 days.
    more = cases.made(tmp_path / "more", promise)
    with more:
        last = 29 if whole == 30 else 30
        for number in range(last):
            more.charge(of_moments(0.995 / most, number, coordinates))
        with no_room():
            more.charge(of_moments(0.995 / most, last, coordinates))


@pytest.mark.parametrize("seed", range(8))
def test_each_window_of_hours_pays_for_its_releases(seed: int, tmp_path: Any) -> None:
    """For any released hours, the account of a start is exactly the sum of its charges."""
    draws, hour = random.Random(seed), 3600 * 10**6
    length = draws.choice([5, 24, 30])
    promise = LastingPromise.of(dg.User(), 30.0, 1e-6, window=AnyHours(length, "at"))
    made = cases.made(tmp_path / "l", promise)
    kinds: tuple[Any, ...] = ("whole", "any")
    whole, part = (promise.price(cases.of_users(50.0), None, kind).mu for kind in kinds)
    assert part > whole
    spans: list[tuple[int, int, bool]] = []
    for _ in range(12):
        low = draws.randrange(0, 60)
        high, missing = low + draws.randrange(1, 40), draws.random() < 0.2
        side = Side("at", Span("time", low * hour, high * hour), missing=missing)
        made.charge(cases.of_users(50.0, scope=Region((side,))))
        spans.append((low * hour, high * hour, missing))
    with made._store.reading() as page:
        rows = [(row[2], row[4]) for row in page.accounts()]
    for start in (draws.randrange(-40 * hour, 110 * hour) for _ in range(300)):
        squares = 0.0
        for low, high, missing in spans:
            if start < high and low < start + length * hour:
                held = start <= low and high <= start + length * hour and not missing
                squares += (whole if held else part) ** 2
        (account,) = [units for first, units in rows if first <= start][-1:]
        assert account / 2**60 * promise.caps.mu**2 == pytest.approx(squares, rel=1e-9, abs=1e-12)


def test_projected_share_charges_a_window_once_per_release(tmp_path: Any) -> None:
    promise = LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyHours(72, "day"))
    made = cases.made(tmp_path / "l", promise)
    week = cases.of_users(9 / promise.caps.mu, scope=cases.on("2026-01-01", "2026-01-02"))
    share = made.projected_share(1, week)
    # Some windows contain both days, others one of them, which costs up to 4 times as much.
    charges = [each.price.share_of(promise.caps) for each in made.projected_charges(1, week)]
    assert (len(charges), share) == (2, max(charges))
    made.charge(week)
    assert made.left(1) == pytest.approx(1 - share)


def test_missing_values_are_a_separate_cell(tmp_path: Any) -> None:
    made = cases.made(tmp_path / "l", cases.OF_DAYS)
    half = math.sqrt(2) / cases.OF_DAYS.caps.mu
    side = Side("day", days("2026-01-01", "2026-01-02"), missing=True)
    missing = Region((dataclasses.replace(side, values=days("1990-01-01", "1990-01-01")),))
    with made:
        made.charge(cases.of_days(half, Region((side,))))
        assert made.left(1, missing) == pytest.approx(0.5)
        assert made.left(1, cases.on("2026-01-01")) == pytest.approx(0.5)
        assert made.left(1, cases.on("2026-01-03")) == 1.0
        made.charge(cases.of_days(half, cases.on()))
        assert made.left(1, missing) < 1e-9


def test_columns_read_in_two_ways_are_charged_fully(tmp_path: Any) -> None:
    promise = LastingPromise.of(dg.Element("code"), 1.0, 1e-6)
    made = cases.made(tmp_path / "l", promise)
    codes = Partition((Rule("code"),))

    def asked(*labels: int | str) -> dg.Guarantee:
        event = Gaussian(math.sqrt(2) / promise.caps.mu, Contribution(block="element"))
        scope = Region((Side("code", LabelSet(labels)),))
        return dg.Guarantee(
            "element", str(codes), "zero_out", 1e-9, event, scope=scope, partition=codes
        )

    with made:
        made.charge(asked("07"))
        assert made.left(1, asked("08").scope) == 1.0
        # 7 as a number may be the "07", so that all pay.
        made.charge(asked(7))
        assert made.left(1, asked("07").scope) < 1e-9
        assert made.left(1, asked("08").scope) == pytest.approx(0.5)


@pytest.mark.parametrize("number", [-(2**63), -(2**62) - 1, 2**62 - 1, 2**62, 2**63 + 5, 10**30])
def test_numbers_of_any_size_are_charged(number: int, tmp_path: Any) -> None:
    """Hashes are numbers beyond the range of a store."""
    made = cases.made(tmp_path / "l", LastingPromise.of(dg.Record(), 1.0, 1e-6))
    event = Gaussian(1 / made.promises[1].caps.mu, Contribution(block="record", coordinates="one"))
    scope = Region((Side("hash", Span("whole", number, number + 1)),))
    asked = dg.Guarantee("record", "", "zero_out", 1e-9, event, scope=scope)
    with made:
        made.charge(asked)
        assert made.left(1, scope) < 1e-9
        with no_room():
            made.charge(asked)
        other = Region((Side("hash", Span("whole", 0, 9)),))
        assert made.left(1, other) == 1.0
    made.verify()


@pytest.mark.parametrize("window", [None, AnyDays(2, "day", "UTC")])
def test_day_read_in_two_ways_is_charged_fully(window: AnyDays | None, tmp_path: Any) -> None:
    """A moment may be recorded under another day than a date is: releases of both kinds meet."""
    unit = dg.User() if window else dg.Element("day")
    promise = LastingPromise.of(unit, 1.0, 1e-6, window=window)
    made = cases.made(tmp_path / "l", promise)
    event = Gaussian(math.sqrt(2) / promise.caps.mu, Contribution(block="user", coordinates="one"))
    dates = cases.on("2026-01-01")
    span = dates.sides[0].values
    assert isinstance(span, Span)
    moments = Region((Side("day", dataclasses.replace(span, axis="instant")),))
    with made:
        for scope in (dates, moments):
            made.charge(dg.Guarantee("user", "", "zero_out", 1e-9, event, scope=scope))
        assert made.left(1, cases.on("2026-02-01")) == pytest.approx(0.5)
        assert made.left(1, dates) < 1e-9
    made.verify()


def test_pure_promises_contain_pure_releases(place: str) -> None:
    made = cases.made(place, LastingPromise.of(dg.User(), 1.0))
    half = dg.Guarantee("user", "", "zero_out", 0.0, PureDP(0.499))
    with made:
        made.charge(half)
        with pytest.raises(
            dg.ParameterError, match=r"ε ≤ 0\.\d+ at δ = 0 per user would fit this promise"
        ):
            made.charge(dg.Guarantee("user", "", "zero_out", 0.0, PureDP(0.6)))
        made.charge(half)
    assert made.left(1) < 0.003


def test_a_charge_reads_the_last_line_and_scans_nothing(tmp_path: Any) -> None:
    """The hundredth charge does what the tenth did, and each statement finds rows by an index."""
    life = LastingPromise.of(dg.User(), 9.0, 1e-6)
    made = cases.made(tmp_path / "l", cases.OF_DAYS, life)
    said: list[str] = []
    counts = {}
    with made:
        for number in range(100):
            day = cases.on(f"2026-{1 + number // 28:02}-{1 + number % 28:02}")
            store: Any = made._store
            with store.reading():
                connection = store._connections._connection
            said.clear()
            connection.set_trace_callback(said.append)
            made.charge(cases.of_days(1e3, day), mark=f"day {number}", again=False)
            connection.set_trace_callback(None)
            counts[number] = len(said)
        assert counts[10] == counts[99]
        statements = [each for each in said if each.startswith(("SELECT", "UPDATE", "INSERT"))]
        plans = [
            row[3]
            for each in statements
            for row in connection.execute(f"EXPLAIN QUERY PLAN {each}").fetchall()
        ]
    assert len(plans) > 10
    # The promises in force and the format are a handful of rows.
    scans = {plan for plan in plans if plan.startswith("SCAN")}
    assert scans <= {"SCAN about", "SCAN promises USING INDEX sqlite_autoindex_promises_1",
                     "SCAN lines USING INDEX sqlite_autoindex_lines_1"}, scans  # fmt: skip
    # The last line is the first one of the index from its end.
    assert sum("FROM lines" in each for each in statements) == 2


def test_chain_of_renewals_is_reported_as_a_whole(tmp_path: Any) -> None:
    made = cases.made(tmp_path / "l")
    assert made.renewal_text(1) == ""
    for line in (1, 2):
        made.renew(line, made.promises[line].renewed(1.0, 1e-6))
    two, three = made.renewal_text(2), made.renewal_text(3)
    assert two.startswith("renews line 1; together they promise ε = 1.40")
    assert three.startswith("renews line 1 and 2; together they promise ε = ")
    # Three caps: the root of three times one, at three times its δ.
    whole = made.promises[3].caps
    assert " at δ = 3·10⁻⁶, if no renewal's budget was chosen from results." in three
    said = float(three.split("ε = ")[1].split(" ")[0])
    assert said == pytest.approx(Caps(whole + whole + whole).epsilon(3e-6), rel=1e-3)
    with refuses("number", "9"):
        made.renewal_text(9)


@pytest.mark.parametrize(
    ("promise", "expected"),
    [
        (cases.OF_DAYS, "day 2026-01-05"),
        (cases.USERS, "everything"),
        (LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(2, "day")),
         "day from 2026-01-04 to 2026-01-05"),
        (LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyHours(12, "day")),
         "day from 2026-01-04 12:00:00.000001 to 2026-01-05"),
        (LastingPromise.of(dg.Record(), 1.0, 1e-6), "country FR, day 2026-01-05"),
    ],
    ids=str,
)  # fmt: skip
def test_fullest_account_is_reported(promise: LastingPromise, expected: str, tmp_path: Any) -> None:
    made = cases.made(tmp_path / "l", promise)
    assert str(made.fullest(1)) == "everything"
    with made:
        for first, last in (("2026-01-01", "2026-01-05"), ("2026-01-05", "2026-01-09")):
            made.charge(cases.of_users(scope=cases.on(first, last)))
        made.charge(cases.of_users(scope=cases.on("2026-01-05", "2026-01-05", "FR")))
    found = made.fullest(1)
    assert made.left(1, found) == made.left(1), "nowhere is less left"
    assert str(found).startswith(expected), str(found)


def test_fullest_account_may_be_without_a_day(tmp_path: Any) -> None:
    made = cases.made(tmp_path / "l", cases.OF_DAYS)
    side = Side("day", days("2026-01-01", "2026-01-01"), missing=True)
    with made:
        made.charge(cases.of_days(100.0, Region((side,))))
        missing = Side("day", LabelSet(), missing=True, kind="DATE")
        made.charge(cases.of_days(100.0, Region((missing,))))
    assert "missing" in str(made.fullest(1))
