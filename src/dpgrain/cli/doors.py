"""The options of commands, made from the parameters of a door: types, defaults and help stand there."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer

from dpgrain.cli.command import CLIPPING, PROMISE, Command, seldom
from dpgrain.cli.options import number
from dpgrain.errors import ParameterError
from dpgrain.publishing.parameters import Parameter

Asked = TypeVar("Asked")

# The groups of help in which shared parameters stand; others stand first.
_GROUPS: Mapping[str, str] = {
    "epsilon": PROMISE,
    "delta": PROMISE,
    "relation": seldom(PROMISE),
    "noise": seldom(PROMISE),
    "domain": CLIPPING,
    "clip": seldom(CLIPPING),
    "max_items": seldom(CLIPPING),
}
# Names of options that are not their parameters' names.
_FLAGS = {"random_state": "--seed"}
# Types whose values a text states by itself.
_PLAIN = (bool, int, float, str)
# Words in help for values of shared parameters.
_SYMBOLS = {"epsilon": "ε", "delta": "δ", "clip": "BOUND"}
# Help of a list of groups, which is in files at the command line.
_DOMAIN = "Public list of groups or items in a file, one per line; or COLUMN=FILE for each column."


@dataclass(frozen=True)
class Option:
    """One option of a command.

    Args:
        declared: the option, as a parameter of the command's function.
        read: the function from what the parser hands over to what the door takes.
        example: the option with a value, for an example.
        described: the whole description, of which help shows the first sentence.
    """

    declared: inspect.Parameter
    read: Callable[[Any], Any]
    example: str
    described: str

    @property
    def needed(self) -> bool:
        """True if it must be given."""
        return self.declared.default is inspect.Parameter.empty


@dataclass(frozen=True)
class _Form:
    """The form in which an option states a value.

    Args:
        kind: the type for the parser.
        takes: the word for the value in help; None where the parser's own will do.
        read: the function from what the parser hands over to what the door takes.
        such: a value, for an example.
    """

    kind: Any
    takes: str | None = None
    read: Callable[[Any], Any] = lambda stated: stated
    such: str = "1"


def options_of(parameters: Iterable[Parameter], group: str | None = None) -> list[Option]:
    """Return the options that state parameters; those of a type that no text can state have none.

    Args:
        parameters: the parameters.
        group: the group of help in which they stand; by default that of parameters of their names.
    """
    forms = ((one, _form(one)) for one in parameters)
    return [_option(one, form, group) for one, form in forms if form is not None]


def _option(parameter: Parameter, form: _Form, group: str | None) -> Option:
    """Return the option that states a parameter in a form."""
    plain = isinstance(parameter.default, str | int | float) or parameter.required
    flags = [_flag(parameter)] if parameter.name in _FLAGS else []
    option = typer.Option(
        *flags,
        metavar=_SYMBOLS.get(parameter.name, form.takes),
        help=_DOMAIN if parameter.name == "domain" else parameter.help,
        rich_help_panel=group or _GROUPS.get(parameter.name),
    )
    declared = inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=parameter.default if plain else None,
        annotation=Annotated[form.kind if plain else form.kind | None, option],
    )
    described = option.help if parameter.name == "domain" else parameter.full_help
    example = f"{_flag(parameter)} {form.such}"
    return Option(declared, form.read, example, described or "")


def made_of(
    name: str,
    help: str,  # noqa: A002 - the word for it
    asked: type[Asked],
    options: Sequence[Option],
    run: Callable[[Asked, dict[str, Any]], None],
    *examples: str,
) -> Any:
    """Return a command as the parser of options knows it.

    Args:
        name: the name of the command.
        help: the help.
        asked: the dataclass of options that are no parameters of the door.
        options: the options that are.
        run: the function to run with both: the second by name, as the door takes them.
        examples: examples of its use, each a whole line.
    """
    read = {option.declared.name: option.read for option in options}

    def command(asked: Asked, **stated: Any) -> None:
        # What is not stated is left to the door, whose defaults stand in its signature alone.
        given = {each: value for each, value in stated.items() if value is not None}
        run(asked, {each: read[each](value) for each, value in given.items()})

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    declared = [inspect.Parameter("asked", kind, annotation=asked)]
    declared += [option.declared for option in options]
    command.__doc__ = help
    command.__annotations__ = {each.name: each.annotation for each in declared}
    command.__dict__["__signature__"] = inspect.Signature(declared)
    made = Command(command, name, examples).made()
    made.described = {option.declared.name: option.described for option in options}
    return made


def _form(parameter: Parameter) -> _Form | None:
    """Return the form in which an option states a value of a parameter's type; None if it cannot."""
    kinds = _alternatives(parameter.hint)
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    lists = [kind for kind in kinds if get_origin(kind) in (Sequence, list)]
    option = _flag(parameter)
    if parameter.name == "domain":
        return _Form(list[str], "FILE …")
    if parameter.names_columns:
        return (
            _Form(list[str], "COLUMN …", _one_or_all, "page")
            if lists
            else _Form(str, "COLUMN", such="x")
        )
    if lists and get_args(lists[0])[0] is Any:
        return _Form(list[str], "NAMES …", _names)
    if lists:
        whole, known = get_args(lists[0])[0] is int, parameter.default
        such = ",".join(map(str, known[:4])) if isinstance(known, tuple) else "1,2,5,10"
        kind = f"{'integers' if whole else 'numbers'} such as {such}"
        return _Form(
            list[str], "NUMBERS …", lambda texts: _numbers(option, texts, words, kind, whole=whole)
        )
    if any(get_origin(kind) is tuple for kind in kinds):
        return _Form(tuple[float, float], "LOW HIGH", such="0 1")
    if words and float in kinds:
        kind = f"a number or {' or '.join(map(repr, words))}"
        return _Form(str, "X", lambda text: text if text in words else number(option, text, kind))
    if words and all(isinstance(word, int) for word in words):
        return _Form(Literal[tuple(map(str, words))], None, int)
    if len(words) > 1:
        return _Form(Literal[tuple(words)], such=words[0])
    plain = [kind for kind in kinds if kind in _PLAIN]
    return _Form(plain[0]) if plain else None


def _flag(parameter: Parameter) -> str:
    """Return the name of the option that states a parameter."""
    return _FLAGS.get(parameter.name, f"--{parameter.name.replace('_', '-')}")


def _names(texts: list[str]) -> list[str]:
    """Return the names that one text such as ``a,b`` states, or several texts with one each."""
    return texts if len(texts) > 1 else [name.strip() for name in texts[0].split(",")]


def _alternatives(hint: Any) -> list[Any]:
    """Return the types of which a parameter may be, without None."""
    if get_origin(hint) in (Union, types.UnionType):
        return [kind for part in get_args(hint) for kind in _alternatives(part)]
    return [] if hint is types.NoneType else [hint]


def _one_or_all(columns: list[str]) -> Any:
    """Return the one column that is stated, or the list of several."""
    return columns[0] if len(columns) == 1 else columns


def _numbers(option: str, texts: list[str], words: list[str], kind: str, *, whole: bool) -> Any:
    """Return the numbers that texts such as ``1,2,5`` state; or a word that stands for them."""
    if len(texts) == 1 and texts[0] in words:
        return texts[0]
    parts = [part for text in texts for part in text.split(",")]
    listed = [number(option, part, kind) for part in parts]
    if not whole:
        return listed
    for part, each in zip(parts, listed, strict=True):
        if not each.is_integer():
            raise ParameterError(f"{option} must be {kind}, not {part!r}.")
    return [int(each) for each in listed]
