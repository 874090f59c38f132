"""Options equal the parameters of a command's function: types, defaults, help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import pytest
from tests.conftest import Command

import dpgrain as dg
from dpgrain import statistics
from dpgrain.cli import statistic_commands as commands
from dpgrain.cli.command import Command as CliCommand
from dpgrain.cli.means_command import mean_of_users
from dpgrain.cli.parameter_options import options_of
from dpgrain.cli.statistic_commands import _ELSEWHERE
from dpgrain.errors import ParameterError
from dpgrain.publishing.parameters import Parameter, parameters_of
from dpgrain.releases.functions import keys_of_function

NEEDED = inspect.Parameter.empty


@pytest.mark.parametrize("name", statistics.OFFERED)
def test_statistic_has_equal_parameters_in_every_entry_point(name: str) -> None:
    asked = {
        each: one
        for each, one in parameters_of(statistics.OFFERED[name], name).items()
        if each not in (*_ELSEWHERE, "domain")
    }
    options = {one.name: one for one in getattr(commands, name).build().params}
    for each, one in asked.items():
        option = options[each]
        assert option.required == one.required
        # Missing options are left to the function.
        assert option.default in (None, one.default) or one.required
        assert option.help == one.help
        assert "(" not in (option.metavar or "")
    keys = keys_of_function("statistic", name)
    elsewhere = ("epsilon", "delta", "relation")
    assert set(asked) - set(elsewhere) <= set(keys)


@pytest.mark.parametrize("name", statistics.OFFERED)
def test_command_list_matches_each_function(name: str) -> None:
    first = (getattr(dg, name).__doc__ or "").partition("\n")[0]
    assert getattr(commands, name).summary == first


def test_means_of_users_help_matches_its_function() -> None:
    assert mean_of_users.summary == (dg.mean_of_users.__doc__ or "").partition("\n")[0]


def read(parameter: Parameter, *words: str) -> Any:
    handed: list[dict[str, Any]] = []

    def run(stated: dict[str, Any]) -> None:
        handed.append(stated)

    run.__annotations__["stated"] = Annotated[dict[str, Any], lambda: options_of([parameter])]
    made = CliCommand(run, "try", ())
    made.build().main(list(words), standalone_mode=False)
    return handed[0].get(parameter.name, "left out")


@pytest.mark.parametrize(
    ("hint", "default", "words", "value"),
    [
        (int | None, None, ["--x", "3"], 3),
        (int | None, None, [], "left out"),
        (bool, False, ["--x"], True),
        (bool, True, ["--no-x"], False),
        (Literal[16, 256] | None, None, ["--x", "16"], 16),
        (Literal["a", "b"], "a", ["--x", "b"], "b"),
        (float | Literal["auto"] | dg.AutoClip, "auto", ["--x", "2.5"], 2.5),
        (float | Literal["auto"] | dg.AutoClip, "auto", [], "auto"),
        (Sequence[float] | Literal["auto"] | None, None, ["--x", "auto"], "auto"),
        (Sequence[float] | None, None, ["--x", "1,2.5", "--x", "7"], [1.0, 2.5, 7.0]),
        (Sequence[float], (0.5,), [], "left out"),
        (Sequence[int], (1, 2), ["--x", "1,5"], [1, 5]),
        (tuple[float, float] | None, None, ["--x", "0", "1"], (0.0, 1.0)),
        (float, NEEDED, ["--x", "4"], 4.0),
    ],
)
def test_text_is_parsed_by_its_parameter_type(
    hint: Any, default: Any, words: list[str], value: Any
) -> None:
    made = read(Parameter("x", hint, default, "a number."), *words)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize(
    ("hint", "text", "sentence"),
    [
        (float | Literal["auto"], "much", "--x must be a number or 'auto', not 'much'"),
        (Sequence[float] | Literal["auto"], "1,much", "--x must be numbers such as 1,2,5,10"),
        (Sequence[int], "1,2.5", "--x must be integers such as 1,2,5,10, not '2.5'"),
    ],
)
def test_text_of_another_type_is_rejected_by_name(hint: Any, text: str, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        read(Parameter("x", hint, None, "a number."), "--x", text)


def test_columns_are_one_or_several() -> None:
    several = Parameter("by", str | Sequence[str] | None, None, "a column.")
    assert read(several, "--by", "a") == ["a"]
    assert read(several, "--by", "a", "--by", "b") == ["a", "b"]
    assert read(several) == "left out"


def test_parameters_without_text_form_have_no_option() -> None:
    assert not options_of([Parameter("loss", Callable[..., float], None, "a function.")])


def test_list_may_be_one_text_or_several(command: Command) -> None:
    text = " ".join(command("quantiles", "--help").stdout.split())
    assert "--q NUMBERS … The ranks, each in [0, 1]" in text


def test_help_all_has_the_whole_description(command: Command) -> None:
    short, whole = (
        " ".join(command("quantiles", option).stdout.split()) for option in ("--help", "--help-all")
    )
    assert "0.5 is the median." in short
    assert "By default, these three" not in short
    assert "0.5 is the median. By default, these three." in whole


def test_names_may_have_commas_when_stated_separately() -> None:
    classes = Parameter("classes", Sequence[Any] | None, None, "all labels.")
    assert read(classes, "--classes", "no, yes") == ["no", "yes"]
    assert read(classes, "--classes", "no", "--classes", "yes, sir") == ["no", "yes, sir"]
