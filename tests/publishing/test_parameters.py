"""Signatures and docstrings have names, types, defaults and descriptions of parameters."""

from __future__ import annotations

import inspect

import pytest

import dpgrain as dg
from dpgrain.publishing.parameters import parameters_of


@pytest.mark.parametrize("door", [dg.count, dg.sum, dg.top, dg.mean_of_users, dg.select])
def test_every_parameter_of_a_door_is_described(door: object) -> None:
    assert [one.name for one in parameters_of(door).values() if not one.text] == []  # type: ignore[arg-type]


def test_lines_of_descriptions_fit() -> None:
    lines = (inspect.getdoc(dg.histogram) or "").splitlines()
    assert max(map(len, lines)) <= 100


def test_a_default_is_that_of_the_signature() -> None:
    count, top = parameters_of(dg.count), parameters_of(dg.top)
    assert (count["max_items"].default, top["max_items"].default) == (1000, None)
    assert count["table"].required
    assert not count["epsilon"].required
