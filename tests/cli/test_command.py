"""Commands built from functions: shared options, examples, and errors that name options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from tests.conftest import Command as Runner
from typer.main import get_command
from typer.testing import CliRunner

from dpgrain.cli.app import app as program
from dpgrain.cli.command import Command, broken, command, group
from dpgrain.cli.options import TABLE, seldom
from dpgrain.errors import ParameterError, SchemaError

SAID: list[Any] = []


@dataclass(frozen=True, kw_only=True)
class Common:
    epsilon: Annotated[float | None, typer.Option(help="The promised ε.")] = None
    random_state: Annotated[
        int, typer.Option("--seed", help="A seed.", rich_help_panel="The guarantee")
    ] = 3


@dataclass(frozen=True, kw_only=True)
class More(Common):
    n_users: Annotated[int, typer.Option(help="How many.", min=1)]
    epsilon: Annotated[float, typer.Option(help="Another ε.")] = 1.0
    rare: Annotated[str, typer.Option(help="Hardly ever.", rich_help_panel=seldom(TABLE))] = "a"
    odd: Annotated[bool, typer.Option("--odd-one", help="Odd.", rich_help_panel=seldom(TABLE))] = (
        False
    )


@command(
    "dpgrain ask --n-users 3",
    "dpgrain ask --n-users 4 --by 'a name that has many words in it' --by another --seed 3 "
    "--epsilon 2 --rare b",
)
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
app = group(
    "What there is.",
    {"To ask": {"ask": f"{__name__}:ask"}, "Not to": {"other": f"{__name__}:other"}},
)
app.callback()(lambda: None)


def run(*words: str) -> Any:
    return CliRunner().invoke(app, words, env={"COLUMNS": "100"})


def test_options_of_a_class_are_options_of_the_command() -> None:
    SAID.clear()
    assert run("ask", "--n-users", "3", "--epsilon", "2", "--by", "a", "--by", "b").exit_code == 0
    assert [(More(n_users=3, epsilon=2.0, random_state=3), ["a", "b"])] == SAID


def test_help_shows_every_option_once_with_verbatim_examples() -> None:
    shown = run("ask", "--help").output
    for option in ("--n-users", "--epsilon", "--seed", "--by", "And tell more of it."):
        assert shown.split("Examples:")[0].count(option) == 1
    assert "Another ε." in shown
    assert "The promised ε." not in shown
    # Required options come first, and the options of all commands last.
    places = [shown.index(option) for option in ("--n-users", "--by", "--epsilon", "--seed")]
    assert places == sorted(places)
    # Lines of an example stay within a terminal, and are one command for a shell.
    assert shown.endswith(
        "Examples:\n  dpgrain ask --n-users 3\n"
        "  dpgrain ask --n-users 4 --by 'a name that has many words in it' \\\n"
        "      --by another --seed 3 --epsilon 2 --rare b\n"
    )


def test_help_lists_rare_options_and_full_help_explains_them() -> None:
    shown, whole = run("ask", "--help").output, run("ask", "--help-all").output
    assert shown.index("Options:") < shown.index("--by") < shown.index("The guarantee:")
    assert shown.index("The guarantee:") < shown.index("--seed") < shown.index("Examples:")
    assert "Rarely needed, and explained by --help-all:\n  The table  --odd-one, --rare\n" in shown
    assert "Hardly ever." not in shown
    assert re.search(r"^The table:\n  --rare TEXT +Hardly ever.  \[default: a\]\n  --odd-one +Odd.",
                     whole, re.MULTILINE)  # fmt: skip
    assert "Rarely needed" not in whole
    # The help shows an option's type in one word, and no implied bound.
    assert re.search(r"--n-users N +How many.  \[required\]", shown)
    assert re.search(r"--by TEXT … +Columns.", shown)
    assert "--help-all" not in run("other", "--help").output


def _commands(made: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in made.list_commands(None):
        one = made.get_command(None, name)
        words = (*above, name)
        yield from _commands(one, words) if hasattr(one, "list_commands") else [words]


@pytest.mark.slow
def test_help_of_every_command_fits_a_screen(
    command: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for width, most in ((100, 62), (80, 72)):
        monkeypatch.setenv("COLUMNS", str(width))
        for words in _commands(get_command(program)):
            lines = command(*words, "--help").stdout.splitlines()
            assert len(lines) <= most, words
            assert max(map(len, lines)) <= width, words
            assert any(line.startswith("Example") for line in lines), words


def test_program_help_lists_each_command_once_before_the_options(
    command: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = command("--help").stdout
    commands, options = shown.split("\nOptions:\n")
    assert "--version" in options
    assert len(shown.splitlines()) <= 41
    for heading in ("Begin here", "Publish from a table", "Learn from a table"):
        assert f"\n{heading}:\n  " in commands
    lines = [line for line in commands.splitlines() if re.match(r"  [a-z ]", line)]
    listed = dict(line.split(maxsplit=1) for line in lines)
    assert list(listed) == get_command(program).list_commands(None)  # type: ignore[attr-defined]
    assert len({line.index(listed[line.split()[0]]) for line in lines}) == 1


@pytest.mark.slow
def test_every_option_is_found_in_help(command: Runner) -> None:
    for words in _commands(get_command(program)):
        made = get_command(program)
        for word in words:
            made = made.get_command(None, word)  # type: ignore[attr-defined]
        shown, whole = (command(*words, asked).stdout for asked in ("--help", "--help-all"))
        for one in made.params:
            if one.param_type_name == "option" and not getattr(one, "hidden", False):
                assert re.search(rf"(^| ){one.opts[0]}\b", shown, re.MULTILINE), (words, one.opts)
                assert re.search(rf"^  {one.opts[0]}\b", whole, re.MULTILINE), (words, one.opts)


def test_every_command_and_group_has_help_all(command: Runner) -> None:
    groups = [(), *{words[:-1] for words in _commands(get_command(program)) if words[1:]}]
    for words in (*_commands(get_command(program)), *groups):
        assert command(*words, "--help-all").stdout.startswith("Usage: "), words


def test_examples_have_options_of_their_command() -> None:
    for words in _commands(get_command(program)):
        made = get_command(program)
        for word in words:
            made = made.get_command(None, word)  # type: ignore[attr-defined]
        known = {name for one in made.params for name in one.opts}
        assert f"dpgrain {words[0]}" in (made.epilog or ""), words
        for example in (made.epilog or "").splitlines():
            asked = {word for word in shlex.split(example) if word.startswith("--")}
            assert asked <= known, (words, asked - known)


@pytest.mark.parametrize(
    ("number", "kind", "sentence", "name"),
    [
        (4, ParameterError, "--n-users must be otherwise, not 4.", "--n-users"),
        (5, ParameterError, "--seed must be otherwise, not 5.", "--seed"),
        (6, ParameterError, "nothing must be otherwise, not 6.", "nothing"),
        (7, SchemaError, "--by 'x' is not a column.", "--by"),
        (8, ParameterError, "--epsilon and --n-users do not go together.", ""),
    ],
)
def test_errors_call_parameters_by_their_options(
    number: int, kind: type[ParameterError], sentence: str, name: str
) -> None:
    found = run("ask", "--n-users", str(number)).exception
    assert type(found) is kind
    assert (str(found), found.name) == (sentence, name)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--epsilon", "2", "--n-users", "3", "--epsilon", "2"), "--epsilon"),
        (("--n-users=3", "--n-users=4"), "--n-users"),
        (("--n-users", "3", "--odd-one", "--odd-one"), "--odd-one"),
    ],
)
def test_an_option_of_one_value_is_not_stated_twice(words: tuple[str, ...], name: str) -> None:
    found = run("ask", *words).exception
    assert isinstance(found, ParameterError)
    assert (str(found), found.name) == (f"{name} is passed twice; pass it once.", name)
    assert run("ask", "--n-users", "3", "--by", "a", "--by", "b").exit_code == 0
    assert SAID[-1][1] == ["a", "b"]


def test_group_imports_a_command_on_request() -> None:
    lazy = group(
        "What there is.", {"All": {"ask": f"{__name__}:ask", "gone": "no.such.module:gone"}}
    )
    lazy.callback()(lambda: None)
    assert CliRunner().invoke(lazy, ["ask", "--n-users", "1"]).exit_code == 0
    found = CliRunner().invoke(lazy, ["gone"])
    assert isinstance(found.exception, ModuleNotFoundError)


def test_an_option_of_an_example_stays_with_its_values() -> None:
    text = "dpgrain mean 'a b.csv' --bounds 0 100 --flag --user who"
    for width in range(20, 70):
        lines = broken(text, width).split(" \\\n")
        assert shlex.split(" ".join(lines)) == shlex.split(text)
        assert all(len(line) + 2 <= width for line in lines if len(line.split(" --")) > 2)
        assert any("--bounds 0 100" in line for line in lines)
