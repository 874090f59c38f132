"""Commands made of functions: options in common, examples, and errors that name options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from tests.conftest import Command as Runner
from typer.testing import CliRunner

from dpgrain.cli.command import Command, command, group
from dpgrain.errors import ParameterError, SchemaError

SAID: list[Any] = []


@dataclass(frozen=True, kw_only=True)
class Common:
    epsilon: Annotated[float | None, typer.Option(help="The promised ε.")] = None
    random_state: Annotated[
        int, typer.Option("--seed", help="A seed.", rich_help_panel="The promise")
    ] = 3


@dataclass(frozen=True, kw_only=True)
class More(Common):
    n_users: Annotated[int, typer.Option(help="How many.")]
    epsilon: Annotated[float, typer.Option(help="Another ε.")] = 1.0


@command("dpgrain ask --n-users 3", "dpgrain ask --n-users 4 --by x", name="ask")
def ask(more: More, by: Annotated[list[str] | None, typer.Option(help="Columns.")] = None) -> None:
    """Ask for something.

    And tell more of it.
    """
    SAID.append((more, by))
    wrong = {4: "n_users", 5: "random_state", 6: "nothing"}.get(more.n_users)
    if wrong:
        raise ParameterError(f"{wrong} must be otherwise, not {more.n_users}.", name=wrong)
    if more.n_users == 7:
        raise SchemaError("by 'x' is not a column.", name="by")
    if more.n_users == 8:
        raise ParameterError("epsilon and n_users do not go together.")


other = Command(lambda: None, "other", ())
app = group("What there is.", {"ask": f"{__name__}:ask", "other": f"{__name__}:other"})
app.callback()(lambda: None)


def run(*words: str) -> Any:
    return CliRunner().invoke(app, words, env={"COLUMNS": "100"})


def test_options_of_a_class_are_options_of_the_command() -> None:
    SAID.clear()
    assert run("ask", "--n-users", "3", "--epsilon", "2", "--by", "a", "--by", "b").exit_code == 0
    assert [(More(n_users=3, epsilon=2.0, random_state=3), ["a", "b"])] == SAID


def test_help_shows_every_option_once_and_examples_as_they_are() -> None:
    shown = run("ask", "--help").output
    for option in ("--n-users", "--epsilon", "--seed", "--by", "And tell more of it."):
        assert shown.split("Examples:")[0].count(option) == 1
    assert "Another ε." in shown
    assert "The promised ε." not in shown
    # What must be given stands first, and what all commands have last.
    places = [shown.index(option) for option in ("--n-users", "--by", "--epsilon", "--seed")]
    assert places == sorted(places)
    assert "Examples:\n  dpgrain ask --n-users 3\n  dpgrain ask --n-users 4 --by x" in shown


def test_help_shows_options_in_groups_and_fits_a_screen(command: Runner) -> None:
    shown = run("ask", "--help").output
    assert shown.index("Options:") < shown.index("--by") < shown.index("The promise:")
    assert shown.index("The promise:") < shown.index("--seed") < shown.index("Examples:")
    for name in ("histogram", "count", "quantile", "top", "distribution", "elements-per-user"):
        found = command(name, "--help").stdout
        assert len(found.splitlines()) <= 66
        assert "The table:" in found


@pytest.mark.parametrize(
    ("number", "kind", "sentence", "name"),
    [
        (4, ParameterError, "--n-users must be otherwise, not 4.", "--n-users"),
        (5, ParameterError, "--seed must be otherwise, not 5.", "--seed"),
        (6, ParameterError, "nothing must be otherwise, not 6.", "nothing"),
        (7, SchemaError, "--by 'x' is not a column.", "--by"),
        (8, ParameterError, "epsilon and n_users do not go together.", ""),
    ],
)
def test_errors_call_parameters_by_their_options(
    number: int, kind: type[ParameterError], sentence: str, name: str
) -> None:
    found = run("ask", "--n-users", str(number)).exception
    assert type(found) is kind
    assert (str(found), found.name) == (sentence, name)


def test_a_group_imports_a_command_when_it_is_asked_for() -> None:
    lazy = group("What there is.", {"ask": f"{__name__}:ask", "gone": "no.such.module:gone"})
    lazy.callback()(lambda: None)
    assert CliRunner().invoke(lazy, ["ask", "--n-users", "1"]).exit_code == 0
    found = CliRunner().invoke(lazy, ["gone"])
    assert isinstance(found.exception, ModuleNotFoundError)
