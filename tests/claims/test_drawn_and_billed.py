"""The charge covers all noise: no neighbour changes a sum by more than the event's sensitivity."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.claims.publishers import People, publishers
from tests.claims.test_replay import NAMES, product_of
from tests.effort import Effort
from tests.products import covering
from tests.promises import Publisher
from tests.replay import Draw, recorded, replayed

import dpgrain as dg
from dpgrain.accounting import Event, Gaussian
from dpgrain.errors import ParameterError
from dpgrain.units import PLAIN_UNITS, Relation, Unit

# Rounding of sums of squares.
_ROUNDING = 1e-6
# Share of the bill that some neighbours reach at least, of some combination of each function.
_LEAST = 0.7
# Combinations of each function in a sample.
_FEW = 4
OTHERS = People.of(0)
HEAVY = 999


def _rows(x: float, held: str) -> People:
    places = [(item, cell) for item in held for cell in "pq" for _ in range(20)]
    items, chosen = (np.array(column, dtype=str) for column in zip(*places, strict=True))
    numbers = np.tile([x, -x], (len(places), 1))
    return People(np.full(len(places), HEAVY), items, chosen, numbers)


def _together(*parts: People) -> People:
    return People(*(
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("users", "items", "cells", "X")
    ))  # fmt: skip


def _cut(people: People, which: Any) -> People:
    return People(people.users[which], people.items[which], people.cells[which], people.X[which])


def neighbours(unit: Unit, relation: Relation) -> Iterator[tuple[People, People]]:
    """Yield people who differ in one unit of a user with many."""
    for x, held, others in ((4.0, "abc", "abc"), (-0.3, "a", "b")):
        mine, new = _rows(x, held), _rows(-x, others)
        if unit.level == "record":
            gone, came = slice(1, None), _cut(new, slice(0, 1))
        elif unit.level == "element":
            gone, came = mine.cells != "p", _cut(new, new.cells == "p")
        else:
            gone, came = slice(0, 0), new
        kept = _cut(mine, gone)
        with_new = (OTHERS, kept, came) if relation == "replace" else (OTHERS, kept)
        yield _together(OTHERS, mine), _together(*with_new)


def _publish(publisher: Publisher, asked: dict[str, Any]) -> Any:
    units = {"unit": asked["unit"]} if len(publisher.units) > 1 else {}
    rest = {name: value for name, value in asked.items() if name not in ("unit", "promise")}
    return publisher.publish(**units, **asked["promise"], **rest, random_state=5)


def share_of_bill(one: list[Draw], two: list[Draw], event: Event, asked: dict[str, Any]) -> float:
    """The larger share of μ² and of ε of an event that two runs' sums, on all draws, come to."""
    loss = event.loss(1, asked["relation"], PLAIN_UNITS[asked["unit"].level])
    lost = [a.lost(b) for a, b in zip(one, two, strict=True)]
    normal, pure = (math.fsum(part) for part in zip(*lost, strict=True))
    billed = ((normal, loss.mu**2), (pure, loss.pure))
    return max(0.0 if x == 0 else x / most if most else math.inf for x, most in billed)


def _found(
    name: str, asked: dict[str, Any], bill: Callable[[Event], Event] = lambda event: event
) -> float | None:
    """The largest share of the sensitivity among neighbours; None if rejected."""
    worst = 0.0
    for left, right in neighbours(asked["unit"], asked["relation"]):
        one, two = publishers(left)[name], publishers(right)[name]
        try:
            with recorded() as first:
                result = _publish(one, asked)
        except ParameterError:
            return None
        with replayed(first) as second:
            _publish(two, asked)
        guarantee = getattr(result, "guarantee_", None) or result.guarantee
        worst = max(worst, share_of_bill(first, second, bill(guarantee.event), asked))
    return worst


# Options with a larger charge than the sums' changes: samples, and stopping tests.
_PLAIN = {"sampling": ("full",), "sampling_rate": (None,)}
_PLAIN_OF = {"dpgrain.mean_of_users": {"method": ("clip",), "radius": (None, 0.5)}}


def _product(name: str) -> dict[str, Any]:
    product, plain = product_of(name), {**_PLAIN, **_PLAIN_OF.get(name, {})}
    return {**product, **{option: plain[option] for option in plain if option in product}}


@pytest.mark.proof("search", "Compose")
@pytest.mark.filterwarnings("ignore::dpgrain.CareWarning")
@pytest.mark.slow(cases=8)
@pytest.mark.parametrize("name", NAMES)
def test_all_draws_together_are_charged(name: str, effort: Effort) -> None:
    # A full run tries combinations of four.
    tried = covering(_product(name), 2 if effort.level else 4)
    random.Random(name).shuffle(tried)
    shares = ((share, asked) for asked in tried if (share := _found(name, asked)) is not None)
    found = list(itertools.islice(shares, _FEW if effort.level == 1 else None))
    assert [each for each in found if each[0] > 1 + _ROUNDING] == []
    assert max(share for share, _ in found) > _LEAST


@pytest.mark.slow
def test_insufficient_charge_is_detected() -> None:
    asked = {"unit": dg.User(), "relation": "replace", "promise": {"epsilon": 1.0, "delta": 1e-6}}
    asked |= {"n_users": 50, "where": False, "clip": 3.0, "noise": "gaussian", "value": None}
    asked |= {"domain": ["a", "b"], "by": "item"}

    def smaller(event: Event) -> Event:
        assert isinstance(event, Gaussian)
        return replace(event, noise_multiplier=1.02 * event.noise_multiplier)

    right, wrong = _found("dpgrain.count", asked), _found("dpgrain.count", asked, smaller)
    assert right is not None
    assert wrong is not None
    assert right <= 1 + _ROUNDING < wrong
