"""A network's structure is the same until something changes that decides what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.torch.library import torch

# isort: split
from dpgrain.torch import module_state
from dpgrain.torch.module_state import WatchedModule, call_form, stored_values

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


def replace_class(net: Any) -> None:
    net[1].__class__ = nn.Dropout1d


def replace_dict(net: Any) -> None:
    net.__dict__ = {**vars(net), "kept": {}}


def replace_type(net: Any) -> None:
    net.kept["last"].data = net.kept["last"].double()


def move_item(net: Any) -> None:
    """Move an item to the next list, so that all items keep their order."""
    net.kept["lists"][1].insert(0, net.kept["lists"][0].pop())


# Changes of the structure that no hook of a module sees.
HIDDEN: dict[str, Callable[[Any], Any]] = {
    "a class": replace_class,
    "a dictionary of attributes": replace_dict,
    "a type of numbers": replace_type,
    "a list of an item": move_item,
    "an attribute less": lambda net: delattr(net, "kept"),
    "a number in its place": lambda net: net.kept["shares"].__setitem__(0, 0.25),
    "a hook in the dictionary": lambda net: net[0]._forward_hooks.update({1: print}),
    "a parameter in the dictionary": lambda net: net[0]._parameters.update(other=None),
}


@pytest.mark.parametrize("name", [*CHANGES, *HIDDEN])
def test_a_watched_module_detects_changes(name: str) -> None:
    net = network()
    net.kept["lists"] = [[1, 2], [3]]
    watched = WatchedModule(net)
    structure, values = watched.structure(CALLED), watched.state(contents=False).values
    assert watched.structure(CALLED) == structure
    {**CHANGES, **HIDDEN}[name](net)
    assert watched.structure(CALLED) != structure
    assert watched.structure(CALLED) == WatchedModule(net).structure(CALLED)
    assert watched.state(contents=False).values == stored_values(net)
    assert watched.state(contents=False).values is not values


def test_watched_module_detects_global_hooks_and_class_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = network()
    watched = WatchedModule(net)
    before = watched.structure(CALLED)
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert watched.structure(CALLED) != before
    hook.remove()
    assert watched.structure(CALLED) == before
    monkeypatch.setattr(nn.Dropout, "forward", lambda _self, x: x)
    assert watched.structure(CALLED) != before


def freeze(net: Any) -> None:
    net.bias900.requires_grad = False


@pytest.mark.parametrize(
    "change",
    [lambda net: net.__setitem__(900, nn.BatchNorm1d(2)), freeze],
    ids=["a layer", "a frozen parameter"],
)
def test_a_watched_module_detects_changes_among_many(change: Callable[[Any], Any]) -> None:
    net = nn.Sequential(*(nn.Identity() for _ in range(1001)))
    for place in range(1001):
        net.register_parameter(f"bias{place}", nn.Parameter(torch.zeros(1)))
    watched = WatchedModule(net)
    before = watched.structure(CALLED)
    assert watched.structure(CALLED) == before
    change(net)
    assert watched.structure(CALLED) != before


def test_a_replaced_buffer_among_many_is_named() -> None:
    net = nn.Identity()
    for place in range(1001):
        net.register_buffer(f"number{place}", torch.zeros(1))
    watched = WatchedModule(net)
    before = watched.state(contents=False)
    net.number900 = torch.ones(1)
    assert watched.changes(before, only_scalars=False) == ["buffer 'number900'"]


STATES: dict[str, Callable[[Any], Any]] = {
    "attribute 'kept'": lambda net: net.kept["last"].add_(1),
    "attribute 'training' of layer '1'": lambda net: net[1].eval(),
    "buffer 'number'": lambda net: net.number.add_(1),
    "parameter '0.weight'": lambda net: net[0].weight.detach().add_(1),
    "parameter '0.bias'": lambda net: setattr(net[0], "bias", nn.Parameter(torch.zeros(2))),
}


@pytest.mark.parametrize("name", STATES)
def test_changes_of_a_state_are_named(name: str) -> None:
    net = network()
    net.register_buffer("number", torch.zeros(()))
    watched = WatchedModule(net)
    before = watched.state(contents=False)
    assert not watched.changes(before, only_scalars=False)
    STATES[name](net)
    assert watched.changes(before, only_scalars=False) == [name]
    assert not watched.changes(watched.state(contents=False), only_scalars=False)


def test_an_unchanged_module_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = []

    class Walk(module_state._Walk):
        def __init__(self, module: Any) -> None:
            walks.append(module)
            super().__init__(module)

    monkeypatch.setattr(module_state, "_Walk", Walk)
    net = network()
    watched = WatchedModule(net)
    for _ in range(3):
        before = watched.structure(CALLED), watched.state(contents=True)
        with torch.no_grad():
            net[0].weight.add_(1)
        assert watched.changes(before[1], only_scalars=False) == ["parameter '0.weight'"]
        assert watched.structure(CALLED) == before[0]
    assert walks == [net]


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_detected(name: str) -> None:
    net = network()
    before = WatchedModule(net).structure(CALLED)
    assert WatchedModule(net).structure(CALLED) == before
    CHANGES[name](net)
    assert WatchedModule(net).structure(CALLED) != before


def test_trainable_modules_are_equal() -> None:
    net = network()
    before = WatchedModule(net).structure(CALLED)
    with torch.no_grad():
        net[0].weight.add_(1)
    net.kept["last"] = torch.ones(2)
    assert WatchedModule(net).structure(((torch.zeros(9, 2),), {})) == before


def test_a_call_by_name_is_the_same_call() -> None:
    net = nn.Linear(2, 2)
    x = torch.ones(3, 2)
    assert call_form(net, ((x,), {})) == call_form(net, ((), {"input": x}))
    others: list[Any] = [((x.long(),), {}), ((x[0],), {}), ((x, True), {}), ((), {"x": x})]
    for other in others:
        assert call_form(net, other) != call_form(net, ((x,), {}))
