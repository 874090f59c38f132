"""What several doors share is described once, and stands in the docstring of each."""

from __future__ import annotations

import inspect

import pytest

import dpgrain as dg
from dpgrain.publishing.parameters import SHARED, arguments, parameters_of, with_shared_parameters

OWN = """Count.

    Args:
        item: the column.

            A paragraph of its own.
        epsilon: as
            stated here.

    Returns:
        A number.
    """


def test_what_is_shared_stands_where_the_parameter_does() -> None:
    made = arguments(with_shared_parameters(OWN, ["table", "item", "epsilon", "seed"]) or "")
    assert list(made) == ["table", "item", "epsilon"]
    assert made["table"] == SHARED["table"]
    assert made["epsilon"] == "as stated here."


def test_the_rest_of_a_docstring_stays() -> None:
    made = with_shared_parameters(OWN, ["item", "epsilon", "progress"])
    assert made is not None
    assert made.startswith("Count.\n")
    assert made.endswith("    Returns:\n        A number.\n    ")
    assert (
        "            A paragraph of its own.\n        epsilon: as\n            stated here.\n"
        in made
    )
    assert "stated here.\n        progress: " in made


def test_a_docstring_without_arguments_stays_as_it_is() -> None:
    assert with_shared_parameters("Count.", ["table"]) == "Count."
    assert with_shared_parameters(None, ["table"]) is None


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
