"""What was reserved is made once, by the thread and the process that reserved it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.publishing import cases
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.publishing.rehearsal import rehearsed
from dpgrain.publishing.reservation import Reservation, open_reservation, reservation


def _count(**options: Any) -> dg.Guarantee:
    table = options.pop("table", None) or cases.table()
    asked = {**cases.USER, "epsilon": 0.5, "delta": 1e-7, "clip": 5.0, **options}
    return dg.count(table, **asked).guarantee


def _guarantee(**options: Any) -> dg.Guarantee:
    return rehearsed(lambda: _count(**options))


def test_each_release_is_taken_once() -> None:
    held = Reservation([_guarantee(), _guarantee(), _guarantee(epsilon=0.2)])
    for promise in (_guarantee(), _guarantee(epsilon=0.2), _guarantee()):
        held.take(promise)
    for promise in (_guarantee(), _guarantee(epsilon=0.2)):
        with pytest.raises(dg.ParameterError, match="not among those"):
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
def test_what_differs_is_refused(other: Callable[[], dg.Guarantee]) -> None:
    with pytest.raises(dg.ParameterError, match=r"not among those|do not compose"):
        Reservation([_guarantee()]).take(other())


def test_a_reservation_is_of_one_thread_and_not_nested() -> None:
    seen: list[Any] = []
    with open_reservation([_guarantee()]):
        assert reservation() is not None
        thread = threading.Thread(target=lambda: seen.append(reservation()))
        thread.start()
        thread.join()
        inner = open_reservation([_guarantee()])
        with refuses("releases", "reserved"), inner:
            pass
        assert reservation() is not None
    assert seen == [None]
    assert reservation() is None


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_copy_in_another_process_is_refused() -> None:
    held = Reservation([promise := _guarantee()])
    child = os.fork()
    if child == 0:
        try:
            held.take(promise)
        except dg.ParameterError as error:
            os._exit(7 if "another process" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    held.take(promise)
