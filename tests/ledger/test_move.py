"""A ledger moves to another place, and at no moment both places accept charges."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.effort import Effort
from tests.ledger import cases
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.errors import AccessError, DataError, DpgrainError
from dpgrain.ledger import move
from dpgrain.ledger.stores import store_at
from dpgrain.ledger.stores.ledger_tables import SqlTransaction
from dpgrain.ledger.stores.store_protocol import FORMAT, MOVED

TINY = cases.of_users(1000.0)
# Calls of a transaction, before each of which a move is killed.
CALLS = ("append", "set_mark", "set_format", "clear_accounts", "marked", "last", "line", "in_force")


@pytest.fixture(params=["file to file", "file to server", "server to file"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    names = request.param.split(" to ")
    server = request.getfixturevalue("server") if "server" in names else ""
    made = [cases.schema_of(server) if name == "server" else str(tmp_path / f"{place}.ledger")
            for place, name in enumerate(names)]  # fmt: skip
    return made[0], made[1]


def accepts(place: str) -> bool:
    try:
        dg.Ledger(place).charge(TINY)
    except DpgrainError:
        return False
    return True


def in_process(work: Callable[[], Any]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def killed_at(call: int, source: str, target: str) -> None:
    counter = itertools.count()

    def counted(real: Any) -> Any:
        def method(*arguments: Any) -> Any:
            if next(counter) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments)

        return method

    opened = dg.Ledger(source)
    for name in CALLS:
        setattr(SqlTransaction, name, counted(getattr(SqlTransaction, name)))
    opened.move(target)


def test_moved_ledger_continues_after_its_last_line(places: tuple[str, str]) -> None:
    source, target = places
    made = cases.made(source, cases.USERS, cases.OF_DAYS)
    receipt = made.charge(TINY, mark="once")
    left = made.left(1)
    moved = made.move(target)
    assert moved.id == made.id
    assert moved.left(1) == left
    assert moved.moved_to is None
    assert moved.contains(receipt)
    assert moved.verify().number == made.verify().number + 1 == receipt.number + 2
    assert [entry.kind for entry in moved.entries[-2:]] == ["moved", "continued"]
    assert made.moved_to in (target, store_at(target).name)
    for opened in (made, dg.Ledger(source)):
        with refuses(repr(store_at(source).name), "was moved to", kind=AccessError):
            opened.charge(TINY)
        with refuses(repr(store_at(source).name), "was moved to", kind=AccessError):
            opened.rehearse(TINY)
        with refuses(repr(store_at(source).name), "was moved to", kind=AccessError):
            opened.renew(1, cases.USERS)
    with pytest.raises(DpgrainError):
        moved.charge(TINY, mark="once", again=False)
    assert moved.charge(TINY).number == receipt.number + 3
    assert dg.Ledger(source).move(target).id == made.id


def test_a_ledger_moves_twice_and_adds_promises_before_charges(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "0")
    moved = made.move(tmp_path / "1").move(tmp_path / "2")
    moved.add(cases.OF_DAYS)
    assert len(moved.promises) == 2
    assert [accepts(str(tmp_path / name)) for name in "012"] == [False, False, True]
    with refuses("promise", "before anything is charged"):
        moved.add(cases.OF_DAYS)
    moved.verify()


def test_a_ledger_moves_to_one_empty_place_only(tmp_path: Path) -> None:
    made, other = cases.made(tmp_path / "0"), cases.made(tmp_path / "1")
    with refuses(repr(str(tmp_path / "1")), "already exists"):
        made.move(tmp_path / "1")
    made.charge(TINY)
    made.move(tmp_path / "2")
    with refuses(repr(str(tmp_path / "0")), "and not to", kind=AccessError):
        made.move(tmp_path / "1")
    move.reserve(store_at(tmp_path / "3"), "another")
    with refuses(repr(str(tmp_path / "0")), "and not to", kind=AccessError):
        made.move(tmp_path / "3")
    assert not accepts(str(tmp_path / "3"))
    with refuses(repr(str(tmp_path / "0")), "and not to", kind=AccessError):
        made.move(tmp_path / "missing")
    assert other.charge(TINY).number == 2


def interrupted_move(old: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> dg.Ledger:
    """A ledger whose move ended before its lines were copied."""
    made = dg.Ledger.create(old, name="a", promises=[dg.LastingPromise.of(dg.User(), 5.0, 1e-5)])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(move, "copy", killed)
        with pytest.raises(KeyboardInterrupt):
            made.move(new)
    return made


def test_a_place_reserved_by_another_ledger_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "a.ledger", tmp_path / "b.ledger"
    interrupted_move(old, new, monkeypatch)
    new.unlink()
    move.reserve(store_at(new), "another")
    with refuses(repr(str(old)), "and not to", kind=AccessError):
        dg.Ledger(old).move(new)


def test_a_copy_of_the_reserved_place_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, other = (tmp_path / name for name in ("a.ledger", "b.ledger", "c.ledger"))
    made = interrupted_move(old, new, monkeypatch)
    shutil.copy(new, other)
    assert dg.Ledger(old).move(new).id == made.id
    with pytest.raises(dg.DataError, match="was moved to"):
        dg.Ledger(old).move(other)


def test_upgrade_leaves_a_moved_ledger_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "a.ledger", tmp_path / "b.ledger"
    promise = dg.LastingPromise.of(dg.User(), 5.0, 1e-5)
    made = dg.Ledger.create(old, name="a", promises=[promise])
    with store_at(old).writing() as page:
        page.set_format(FORMAT - 1)
    real = dg.Ledger._rebuild_accounts

    def raced(self: dg.Ledger) -> None:
        monkeypatch.undo()
        real(self)
        made.move(new)
        real(self)

    monkeypatch.setattr(dg.Ledger, "_rebuild_accounts", raced)
    opened = dg.Ledger(old)
    assert opened.moved_to == str(new)
    with pytest.raises(dg.DataError, match="was moved to"):
        opened.add(promise)


def test_earlier_versions_reject_a_moved_ledger(tmp_path: Path) -> None:
    """They do not know this line, and reject every format above their own."""
    made = cases.made(tmp_path / "0")
    made.move(tmp_path / "1")
    formats = []
    for name in ("0", "1"):
        with store_at(tmp_path / name).reading() as page:
            formats.append(page.format())
    assert formats == [MOVED, FORMAT]
    assert MOVED > FORMAT


@pytest.mark.slow(cases=2)
def test_killed_move_leaves_at_most_one_ledger(
    places: tuple[str, str], effort: Effort, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for call in itertools.count(step=effort.number(3, 1)):
        source, target = (
            cases.schema_of(request.getfixturevalue("server"))
            if place.startswith("postgres")
            else str(tmp_path / f"{call} {number}")
            for number, place in enumerate(places)
        )
        made = cases.made(source, cases.USERS, cases.OF_DAYS)
        receipt = made.charge(TINY, mark="once")
        made.close()
        ended = in_process(lambda: killed_at(call, source, target))  # noqa: B023
        if not os.WIFSIGNALED(ended):
            assert ended == 0
            break
        assert os.WTERMSIG(ended) == signal.SIGKILL
        new = accepts(target)
        assert not (accepts(source) and new), call
        moved = dg.Ledger(source).move(target)
        assert moved.contains(receipt)
        assert moved.verify()
        assert accepts(target)
        assert not accepts(source)
    assert call > 10


def test_interrupted_move_is_named_at_both_places(
    places: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = places
    made = cases.made(source)
    with monkeypatch.context() as patch:
        patch.setattr(move, "copy", lambda *_: None)
        with pytest.raises(
            AccessError, match="interrupted, repeat the move: dpgrain ledger import"
        ):
            made.move(target)
    with pytest.raises(AccessError, match=r"repeat the move \(dpgrain ledger import\)\.$"):
        made.charge(TINY)
    dg.Ledger(source).move(target)
    assert accepts(target)


def charging(place: str, started: Any, done: Any) -> None:
    opened, count = dg.Ledger(place), 0
    started.wait(60)
    try:
        while True:
            opened.charge(TINY)
            count += 1
    except DataError:
        done.put(count)


@pytest.mark.slow(cases=1)
def test_no_charge_of_other_processes_is_lost(places: tuple[str, str]) -> None:
    source, target = places
    cases.made(source).close()
    context = multiprocessing.get_context("fork")
    started, done = context.Barrier(3), context.Queue()
    workers = [context.Process(target=charging, args=(source, started, done)) for _ in range(2)]
    for worker in workers:
        worker.start()
    started.wait(60)
    time.sleep(0.3)
    moved = dg.Ledger(source).move(target)
    counts = [done.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert sum(bool(entry.guarantees) for entry in moved.entries) == sum(counts) > 0
    moved.verify()
