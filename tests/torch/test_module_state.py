"""A network's structure is the same until something changes that decides what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.torch.library import torch

# isort: split
from dpgrain.torch.module_state import call_form, module_structure

nn = torch.nn
CALLED: Any = ((torch.ones(3, 2),), {})


class Half(torch.nn.Module):
    def forward(self, weight: Any) -> Any:
        return weight / 2


def network() -> Any:
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1), nn.Linear(2, 2))
    net.kept = {"shares": [0.5, float("nan")], "names": {"a", "b"}, "last": torch.zeros(2)}
    return net


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a number": lambda net: setattr(net[1], "p", 0.2),
    "a number in a list": lambda net: net.kept["shares"].append(1.0),
    "a name in a set": lambda net: net.kept["names"].add("c"),
    "another object": lambda net: setattr(net, "other", object()),
    "a mode": lambda net: net[1].eval(),
    "a layer": lambda net: net.append(nn.Tanh()),
    "a layer in its place": lambda net: net.__setitem__(1, nn.Dropout(0.1)),
    "a frozen weight": lambda net: net[0].weight.requires_grad_(False),
    "a hook": lambda net: net[0].register_forward_hook(lambda *_: None),
    "a hook backwards": lambda net: net[0].register_full_backward_pre_hook(lambda *_: None),
    "a function": lambda net: setattr(net[0], "forward", lambda x: x),
    "a parametrization": lambda net: nn.utils.parametrize.register_parametrization(
        net[0], "weight", Half()
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_detected(name: str) -> None:
    net = network()
    before = module_structure(net, CALLED)
    assert module_structure(net, CALLED) == before
    CHANGES[name](net)
    assert module_structure(net, CALLED) != before


def test_trainable_modules_are_equal() -> None:
    net = network()
    before = module_structure(net, CALLED)
    with torch.no_grad():
        net[0].weight.add_(1)
    net.kept["last"] = torch.ones(2)
    assert module_structure(net, ((torch.zeros(9, 2),), {})) == before


def test_a_call_by_name_is_the_same_call() -> None:
    net = nn.Linear(2, 2)
    x = torch.ones(3, 2)
    assert call_form(net, ((x,), {})) == call_form(net, ((), {"input": x}))
    others: list[Any] = [((x.long(),), {}), ((x[0],), {}), ((x, True), {}), ((), {"x": x})]
    for other in others:
        assert call_form(net, other) != call_form(net, ((x,), {}))
