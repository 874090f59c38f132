"""Errors are also those of Python's that callers catch, and know their parameter."""

from __future__ import annotations

import pytest

from dpgrain.errors import (
    DataError,
    DpgrainError,
    ParameterError,
    RefusedError,
    RunEnded,
    SchemaError,
    only_interrupts,
)


@pytest.mark.parametrize(
    ("kind", "of_python"),
    [
        (ParameterError, ValueError),
        (RefusedError, ValueError),
        (SchemaError, ValueError),
        (DataError, OSError),
    ],
)
def test_errors_are_those_that_callers_catch(
    kind: type[DpgrainError], of_python: type[Exception]
) -> None:
    assert issubclass(kind, DpgrainError)
    assert issubclass(kind, of_python)
    assert not issubclass(RunEnded, of_python)


def test_a_sentence_calls_its_parameter_by_another_name() -> None:
    error = SchemaError("by 'x' is not a column.", name="by")
    assert error.about("--by") == "--by 'x' is not a column."
    assert str(error) == "by 'x' is not a column."


@pytest.mark.parametrize("error", [ValueError(), SystemExit(), GeneratorExit()])
def test_nothing_but_an_interrupt_gets_through(error: BaseException) -> None:
    only_interrupts(error)
    with pytest.raises(KeyboardInterrupt):
        only_interrupts(KeyboardInterrupt())


def test_a_refusal_is_told_apart_and_knows_the_line_that_has_charged_the_same() -> None:
    error = RefusedError("it was charged before.", line=2)
    assert isinstance(error, ParameterError)
    assert error.line == 2
    assert RefusedError("there is no room.").line is None
