"""A custom event is charged like the library's; invalid ones raise a clear error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.cases import made
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import Event, Loss, Neighbours, PureDP
from dpgrain.publishing.budget import charge
from dpgrain.units import Level


@dataclass(frozen=True)
class Own(Event):
    epsilon0: float

    @property
    def level(self) -> Level:
        return "user"

    def cost(self, neighbours: Neighbours) -> Loss:
        return Loss(pure=self.epsilon0 * neighbours.steps("user", "replace"))


@dataclass(frozen=True)
class NoLoss(Own):
    def cost(self, neighbours: Neighbours) -> Any:
        return self.epsilon0


@dataclass(frozen=True)
class NoLevel(Own):
    @property
    def level(self) -> Any:
        return "people"


class NoData(Event):
    """An event that cannot be compared or written."""

    @property
    def level(self) -> Level:
        return "user"

    def cost(self, neighbours: Neighbours) -> Loss:
        return Loss(pure=0.5)


def promise(event: Any) -> dg.Guarantee:
    return dg.Guarantee("user", "", "zero_out", 1e-6, event)


def in_a_ledger(path: Path, guarantee: Any) -> None:
    ledger = made(path / "ledger", dg.LastingPromise.of(dg.User(), 3.0, 1e-6))
    ledger.charge(guarantee)


CHARGES: dict[str, Callable[[Path, Any], Any]] = {
    "budget": lambda path, guarantee: dg.budget(3.0, 1e-6).charge(guarantee),
    "function": lambda path, guarantee: charge(guarantee),
    "plan": lambda path, guarantee: dg.budget(3.0, 1e-6, plan=[guarantee]),
    "ledger": in_a_ledger,
}


@pytest.mark.parametrize("where", CHARGES)
def test_an_event_of_one_s_own_is_charged(where: str, tmp_path: Path) -> None:
    CHARGES[where](tmp_path, promise(Own(0.5)))


def test_it_costs_as_much_as_the_known_event() -> None:
    own, known = dg.budget(3.0, 1e-6), dg.budget(3.0, 1e-6)
    own.charge(promise(Own(0.5)))
    known.charge(promise(PureDP(0.5)))
    assert own.spent == known.spent
    with pytest.raises(dg.RefusedError):
        own.charge(promise(Own(3.0)))
    assert Event.from_json(Own(0.5).to_json()) == Own(0.5)
    assert Own(0.5).epsilon(units=3) == 1.5


@pytest.mark.parametrize("where", [name for name in CHARGES if name != "plan"])
@pytest.mark.parametrize("nothing", [Own(0.5), 0.5, None, "ε", Own], ids=repr)
def test_invalid_guarantee_is_rejected(where: str, nothing: Any, tmp_path: Path) -> None:
    with refuses("guarantee"):
        CHARGES[where](tmp_path, nothing)


WRONG: list[tuple[Callable[[], Event], str]] = [
    (lambda: NoLoss(0.5), "cost of NoLoss must return a Loss, such as .*, not 0.5"),
    (lambda: NoLevel(0.5), "level of NoLevel must be 'record', 'element' or 'user', not 'people'"),
    (NoData, "NoData must be a frozen dataclass"),
]


@pytest.mark.parametrize("where", ["budget", "plan", "ledger"])
@pytest.mark.parametrize(("make", "told"), WRONG, ids=["loss", "level", "data"])
def test_event_violating_the_protocol_is_rejected(
    where: str, make: Callable[[], Event], told: str, tmp_path: Path
) -> None:
    with pytest.raises(dg.ParameterError, match=told):
        CHARGES[where](tmp_path, promise(make()))
