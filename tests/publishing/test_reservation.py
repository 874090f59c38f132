"""A reserved release is published once, by the process that reserved it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from typing import Any

import pytest
from tests.publishing import cases
from tests.refusals import refused_when_forked, refuses

import dpgrain as dg
from dpgrain.publishing.reservation import Reservation


def _guarantee(**options: Any) -> dg.Guarantee:
    table = options.pop("table", None) or cases.table()
    asked = {**cases.USER, "epsilon": 0.5, "delta": 1e-7, "clip": 5.0, **options}
    return dg.count.query(table, **asked).plan.guarantee


def _held(*guarantees: dg.Guarantee) -> Reservation:
    return Reservation(reduce(add, guarantees), guarantees)


def test_each_release_is_taken_once() -> None:
    held = _held(_guarantee(), _guarantee(), _guarantee(epsilon=0.2))
    for promise in (_guarantee(), _guarantee(epsilon=0.2), _guarantee()):
        held.take(promise)
    for promise in (_guarantee(), _guarantee(epsilon=0.2)):
        with pytest.raises(dg.ParameterError, match="not part of the reservation"):
            held.take(promise)


@pytest.mark.parametrize(
    "other",
    [
        lambda: _guarantee(epsilon=0.4),
        lambda: _guarantee(relation="replace"),
        lambda: _guarantee(table=dg.read(cases.ROWS.rename_columns(["me", *"pbc"]), user="me")),
        lambda: _guarantee(table=cases.table().where(page="a")),
    ],
    ids=["noise", "relation", "users", "region"],
)
def test_different_release_is_rejected(other: Callable[[], dg.Guarantee]) -> None:
    with pytest.raises(dg.ParameterError, match=r"not part of the reservation|do not compose"):
        _held(_guarantee()).take(other())


def test_of_many_threads_one_takes_it() -> None:
    held, promise = _held(_guarantee(), _guarantee()), _guarantee()
    start = threading.Barrier(16)

    def take(_: int) -> bool:
        start.wait()
        try:
            held.take(promise)
        except dg.ParameterError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(take, range(16))) == 2


def test_release_happens_once() -> None:
    asked = {**cases.USER, "epsilon": 0.5, "delta": 1e-7, "clip": 5.0}
    query = dg.count.query(cases.table(), **asked)
    held = _held(query.plan.guarantee)
    assert held.publish(query).guarantee == query.plan.guarantee
    with refuses("this", "already published"):
        held.publish(dg.count.query(cases.unread(), **asked))


def test_copy_in_another_process_is_rejected() -> None:
    held = _held(promise := _guarantee())
    refused_when_forked(lambda: held.take(promise), "another process")
    held.take(promise)
