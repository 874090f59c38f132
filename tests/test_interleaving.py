"""Forced interleavings: races are found at their line, and locks are respected."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.interleaving import Interleaving


class Counter:
    def __init__(self, lock: Any) -> None:
        self.lock, self.total = lock, 0

    def add(self) -> int:
        before = self.total
        self.total = before + 1
        return self.total

    def add_alone(self) -> int:
        with self.lock:
            return self.add()


def totals(pair: Interleaving, add: Callable[[Counter], int], lock: Callable[[], Any]) -> set[int]:
    """The totals of two adders for every pause of the first."""
    found = set()
    for seam in pair.lines(lambda: add(Counter(lock()))):
        counter = Counter(lock())
        pair.run(lambda: add(counter), lambda: add(counter), seam)  # noqa: B023
        found.add(counter.total)
    return found


def test_lost_update_is_detected_and_locks_are_respected() -> None:
    pair = Interleaving(__name__)
    with pair.in_force():
        assert totals(pair, Counter.add, lambda: None) == {1, 2}
        assert totals(pair, Counter.add_alone, lambda: threading.Lock()) == {2}


def test_pause_at_a_lock_needs_no_list() -> None:
    pair = Interleaving(__name__)
    with pair.in_force():
        counter = Counter(threading.Lock())
        seams = pair.seams(counter.add_alone)
        assert len(seams) == 2, "one to take it, and one to let it go"
        one, two = pair.run(counter.add_alone, counter.add_alone, seams[1])
    assert (one.value, two.value) == (2, 3), "the second waits until the first is done"


def test_actor_error_is_its_answer() -> None:
    def fail() -> None:
        raise ValueError("no")

    one, two = Interleaving(__name__).run(fail, lambda: 3)
    assert (one.raised, two.value) == ("ValueError: no", 3)


def test_deadlock_of_two_actors_is_reported() -> None:
    pair = Interleaving(__name__)
    with pair.in_force():
        first, second = threading.Lock(), threading.Lock()

        def both(one: Any, two: Any) -> None:
            with one, two:
                pass

        seams = pair.seams(lambda: both(first, second))
        with pytest.raises(AssertionError, match="both wait for each other"):
            pair.run(lambda: both(first, second), lambda: both(second, first), seams[1])


def test_module_locks_are_known_while_in_force() -> None:
    held = SimpleNamespace(lock=threading.Lock())
    globals()["held"] = held
    usual, pair = held.lock, Interleaving(__name__)
    try:
        with pair.in_force():
            assert held.lock is not usual
            assert len(pair.seams(lambda: held.lock.acquire())) == 1
        assert held.lock is usual
        assert held.lock.locked()
    finally:
        del globals()["held"]
