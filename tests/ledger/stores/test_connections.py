"""Each process has a separate connection, used by one thread at a time."""

from __future__ import annotations

import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dpgrain.ledger.stores.connections import Connections


class Told:
    opened = 0

    def __init__(self) -> None:
        type(self).opened += 1
        self.number, self.users, self.most, self.closed = Told.opened, 0, 0, False

    def close(self) -> None:
        self.closed = True


@pytest.mark.slow
def test_connection_is_opened_once_and_reopened_when_lost() -> None:
    made = Connections(Told, lambda connection: connection.closed)
    with made.connected() as first:
        assert not first.closed
    with made.connected() as second:
        assert second is first
    first.close()
    with made.connected() as third:
        assert third.number == first.number + 1
    made.close()
    assert third.closed
    made.close()
    with made.connected() as fourth:
        assert fourth is not third
    del made
    gc.collect()
    assert fourth.closed, "nobody has it any more"


def test_one_thread_has_it_at_a_time() -> None:
    made = Connections(Told)

    def used(_: int) -> int:
        with made.connected() as connection:
            connection.users += 1
            connection.most = max(connection.most, connection.users)
            os.sched_yield()
            connection.users -= 1
            return connection.number

    with ThreadPoolExecutor(8) as pool:
        numbers = set(pool.map(used, range(400)))
    assert len(numbers) == 1
    with made.connected() as connection:
        assert connection.most == 1


def test_forked_process_neither_uses_nor_closes_inherited_connections() -> None:
    made = Connections(Told)
    with made.connected() as parents:
        child = os.fork()
        if child == 0:
            made.close()
            own = -1
            with made.connected() as childs:
                own = childs.number
            os._exit(0 if own == parents.number + 1 and not parents.closed else 1)
        assert os.waitpid(child, 0)[1] == 0
    with made.connected() as again:
        assert again is parents


def test_none_is_open_while_a_process_is_forked() -> None:
    made = Connections(Told)
    with made.connected() as before:
        pass
    child = os.fork()
    if child == 0:
        with made.connected() as childs:
            os._exit(0 if before.closed and not childs.closed else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert before.closed
    with made.connected() as after:
        assert after is not before


def test_fork_waits_for_another_thread_using_the_connection() -> None:
    made = Connections(Told)
    entered, seen = threading.Event(), list[bool]()

    def use() -> None:
        with made.connected() as connection:
            entered.set()
            time.sleep(0.2)
            seen.append(connection.closed)

    thread = threading.Thread(target=use)
    thread.start()
    entered.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if seen == [False] else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
