"""Errors are also Python's types that callers catch, and know their parameter."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpgrain
from dpgrain.errors import (
    AccessError,
    DataError,
    DpgrainError,
    ParameterError,
    RefusedError,
    RunEnded,
    SchemaError,
    raise_without_context,
    reraise_keyboard_interrupt,
)


@pytest.mark.parametrize(
    ("kind", "of_python"),
    [
        (ParameterError, ValueError),
        (RefusedError, ValueError),
        (SchemaError, ValueError),
        (DataError, OSError),
        (AccessError, DataError),
    ],
)
def test_errors_are_of_catchable_types(
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
    reraise_keyboard_interrupt(error)
    with pytest.raises(KeyboardInterrupt):
        reraise_keyboard_interrupt(KeyboardInterrupt())


def test_rejection_is_identifiable_and_knows_the_charged_line() -> None:
    error = RefusedError("it was charged before.", line=2)
    assert isinstance(error, ParameterError)
    assert error.line == 2
    assert RefusedError("there is no room.").line is None


# The errors that people meet, and the function that makes one about a parameter.
KINDS = {"ParameterError", "RefusedError", "SchemaError", "DataError", "AccessError", "wrong"}


def ends_of_messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line, and the last words, of each message that a module writes out."""
    for call in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args):
            continue
        said = call.args[-1]
        last = said.values[-1] if isinstance(said, ast.JoinedStr) else said
        if call.func.id in KINDS and isinstance(last, ast.Constant):
            yield call.lineno, str(last.value)


@pytest.mark.slow
def test_messages_are_sentences_of_one_line() -> None:
    source = Path(dpgrain.__file__).parent
    found = {
        f"{path.relative_to(source)}:{line}": end
        for path in source.rglob("*.py")
        for line, end in ends_of_messages(path)
    }
    assert len(found) > 600
    # A question suggests the likely remedy.
    assert [place for place, end in found.items() if not end.endswith((".", "?"))] == []
    assert [place for place, end in found.items() if "\n" in end] == []


def test_error_without_context_does_not_quote_a_row() -> None:
    def read(cell: str) -> None:
        try:
            float(cell)
        except ValueError:
            raise_without_context(ParameterError("X must be numbers.", name="X"))

    with pytest.raises(ParameterError) as caught:
        read("Ann, 17 May")
    assert caught.value.__context__ is None
