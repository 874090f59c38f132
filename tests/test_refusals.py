"""What tests ask of refusals tells them from others: another name, an heir, half a sentence."""

from __future__ import annotations

import pytest
from tests.refusals import charged_before, no_room, refuses

from dpgrain.errors import DpgrainError, ParameterError, RefusedError, SchemaError


def fail(error: DpgrainError) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        ParameterError("epsilon must be above 0, not -1."),
        ParameterError("epsilon must be above 0, not -1.", name="epsilon"),
        ParameterError("The 'epsilon' of a price must be above 0, not -1."),
    ],
)
def test_a_refusal_is_about_its_name(error: DpgrainError) -> None:
    with refuses("epsilon", "not -1") as caught:
        fail(error)
    assert caught.value is error
    for other in ("delta", "epsilo", "price"):
        with pytest.raises(AssertionError, match="not about"), refuses(other):
            fail(error)
    with pytest.raises(AssertionError, match="without"), refuses("epsilon", "not -2"):
        fail(error)


@pytest.mark.parametrize(
    "error",
    [
        RefusedError("epsilon must fit."),
        ParameterError("epsilon must be above 0, and delta is wrong.", name="delta"),
        ParameterError("epsilon must be above 0"),
        ParameterError("epsilon must be above 0,\nnot -1."),
        ParameterError("epsilon must be a number, not <tests.Own object at 0x7fb201d36ad0>."),
    ],
    ids=["an heir", "another name", "no full stop", "two lines", "an address"],
)
def test_what_is_no_refusal_of_it_is_seen(error: DpgrainError) -> None:
    with pytest.raises(AssertionError), refuses("epsilon"):
        fail(error)


def test_kinds_are_told_apart() -> None:
    with refuses("by", kind=SchemaError):
        fail(SchemaError("by 'x' is not a column."))
    with pytest.raises(SchemaError), refuses("by"):
        fail(SchemaError("by 'x' is not a column."))


def test_a_release_without_room_is_told_from_one_that_was_charged_before() -> None:
    full, again = RefusedError("there is no room."), RefusedError("it was charged.", line=2)
    with no_room():
        fail(full)
    with charged_before(2):
        fail(again)
    for block, error in ((no_room(), again), (charged_before(2), full), (charged_before(3), again)):
        with pytest.raises(AssertionError), block:
            fail(error)
