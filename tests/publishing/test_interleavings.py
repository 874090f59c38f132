"""Two threads in one budget: at any line of the first, the outcome is that of some order.

The pauses of the first follow from the code (``tests.interleaving``).
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from tests.effort import Effort
from tests.interleaving import Interleaving, Seam

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.publishing import Price
from dpgrain.publishing.budget import open_budget
from dpgrain.publishing.publish import before_publishing
from dpgrain.publishing.publish import reserve as reserve_releases

MU = dg.budget(1.0, 1e-6).caps.price.mu
# A child that waits this long for an abandoned lock is ended, in seconds.
PATIENCE_SECONDS = 10


def taking(share: float) -> dg.Guarantee:
    event = Gaussian(1 / (MU * share**0.5), Contribution(block="user"))
    return dg.Guarantee("user", "", "zero_out", 1e-9, event)


PLANNED = taking(0.05)
Do: TypeAlias = Callable[[dg.Budget], Any]


def charge(share: float) -> Do:
    return lambda _: before_publishing(taking(share))


def reserve(_: dg.Budget) -> Any:
    """Two releases charged as one, and then made."""
    one, two = taking(0.3), taking(0.31)
    held = reserve_releases(one + two, [one, two])
    return held.take(one), held.take(two)


def opens(_: dg.Budget) -> float:
    with dg.budget(1.0, 1e-6) as other:
        before_publishing(taking(0.5))
        return other.left


def forked(_: dg.Budget) -> str:
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        # Later Pythons warn about a fork with threads, which is intended here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE_SECONDS)
        for publishes in (charge(0.1), opens):
            try:
                said = f"published: {publishes(dg.budget(1.0))}"
            except BaseException as error:
                said = f"{error} "
            os.write(writes, said.encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as file:
        said = file.read()
    assert os.waitpid(child, 0)[1] == 0, "a process that was forked has ended otherwise"
    return said


# Actions in an open budget: each of two charges of .6 fits only without the other.
DEEDS: dict[str, Do] = {
    "charge": charge(0.6),
    "charge little": charge(0.3),
    "charge what is planned": lambda _: before_publishing(PLANNED),
    "reserve": reserve,
    "charge by hand": lambda b: b.charge(taking(0.6)),
    "refuse": charge(2.0),
    "open another": opens,
    "leave": lambda b: b.__exit__(),
    "look": lambda b: (open_budget() is b, f"{b.left:.6f}"),
    "fork": forked,
}


@pytest.fixture
def pair() -> Iterator[Interleaving]:
    found = Interleaving("dpgrain.publishing")
    with found.in_force():
        yield found


def outcome(
    pair: Interleaving, names: tuple[str, str], at: Seam | None = None, turned: bool = False
) -> Any:
    """The answers of both threads, and the final state of the budget."""
    b = dg.budget(1.0, 1e-6, plan=[PLANNED])
    one, two = (lambda name=name: DEEDS[name](b) for name in names)
    with b:
        answers = pair.run(two, one)[::-1] if turned else pair.run(one, two, at)
        told = tuple((answer.value, answer.raised.partition(":")[0]) for answer in answers)
        return told, b.guarantee, rounded(b.spent), b._planned, open_budget() is b


def rounded(price: Price) -> tuple[float, ...]:
    """A price without the last digits, which follow from the order of a sum."""
    return tuple(float(f"{part:.12g}") for part in (price.pure, price.mu, price.leak))


FIRST = [name for name in DEEDS if name != "fork"]


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize("second", DEEDS)
@pytest.mark.parametrize("first", FIRST)
def test_two_threads_come_one_after_the_other(
    first: str, second: str, pair: Interleaving, effort: Effort
) -> None:
    names = first, second
    known = [outcome(pair, names, turned=turned) for turned in (False, True)]
    with dg.budget(1.0, 1e-6, plan=[PLANNED]) as alone:
        seams = pair.lines(lambda: DEEDS[first](alone))
    for seam in effort.some(seams):
        found = outcome(pair, names, seam)
        assert found in known, f"{names} came neither in this order nor in the other: {seam}"
        assert found[2][1] <= MU * (1 + 1e-9)
