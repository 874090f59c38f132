"""A command is a function with examples, and with options that several commands have in common.

A parameter of a command is an option (:mod:`dpgrain.cli.options`) or a frozen dataclass of options.
The dataclass says once what several commands ask for, and has the methods that use it. Commands are
made, and their modules imported, when they are run or asked for help.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from typing import Any, ClassVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from dpgrain.cli.printing import errors
from dpgrain.errors import ParameterError, SchemaError

# Help is at most so wide, where the terminal is.
_WIDEST_HELP = 120
# What an option is called takes at most so much of that.
_OPTION_WIDTH = 34


class _Grouped(TyperCommand):
    """A command whose help shows its options in groups: those of its own first."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            if (told := one.get_help_record(ctx)) is not None:
                own = "Arguments" if one.param_type_name == "argument" else "Options"
                name = getattr(one, "rich_help_panel", None) or own
                groups.setdefault(name, []).append(told)
        for name, lines in groups.items():
            if lines:
                with formatter.section(name):
                    formatter.write_dl(lines, col_max=_OPTION_WIDTH)


@dataclass(frozen=True)
class Command:
    """A command of the program.

    Args:
        function: the function that it runs, whose docstring is the help.
        name: the name of the command.
        examples: examples of its use, each a whole line.
    """

    function: Callable[..., None]
    name: str
    examples: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The first line of the help."""
        return (self.function.__doc__ or "").partition("\n")[0]

    def made(self) -> Any:
        """Return the command as the parser of options knows it."""
        lines = "\n".join(self.examples)
        heading = "Examples" if len(self.examples) > 1 else "Example"
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        # The mark \b keeps lines as they are, to be copied.
        alone.command(
            self.name,
            cls=_Grouped,
            epilog=f"\b\n{heading}:\n{lines}",
            context_settings={"max_content_width": _WIDEST_HELP},
        )(_flat(self.function))
        made = get_command(alone)
        made.callback = _interruptible(_named_by_options(made))
        return made


def command(*examples: str, name: str) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function, with examples of its use."""
    return lambda function: Command(function, name, examples)


def _flat(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with the options of its dataclasses as parameters of its own."""
    hints = get_type_hints(function, include_extras=True)
    shared: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[one.name])
        for one in inspect.signature(function).parameters.values()
        if one.name not in shared
    ]
    for kind in shared.values():
        parameters += _options_of(kind)
    # Options that must be given stand first.
    parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)

    def run(**values: Any) -> None:
        made = {
            name: kind(**{part.name: values.pop(part.name) for part in fields(kind)})
            for name, kind in shared.items()
        }
        function(**made, **values)

    run.__doc__ = function.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _options_of(kind: Any) -> list[inspect.Parameter]:
    """Return a dataclass's options, those that fewest commands have before those that all have."""
    hints = get_type_hints(kind, include_extras=True)
    defaults = {
        part.name: inspect.Parameter.empty if part.default is MISSING else part.default
        for part in fields(kind)
    }
    declared = [name for parent in kind.__mro__ for name in vars(parent).get("__annotations__", ())]
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults[name],
            annotation=hints[name],
        )
        for name in dict.fromkeys(declared)
    ]


def _named_by_options(made: Any) -> Callable[..., None]:
    """Make a command's errors call parameters by the names of its options."""
    run = made.callback
    options = {one.name: one.opts[0] for one in made.params if one.opts[0].startswith("--")}

    def named(*args: Any, **values: Any) -> None:
        try:
            run(*args, **values)
        except (ParameterError, SchemaError) as error:
            if error.name not in options:
                raise
            option = options[error.name]
            raise type(error)(error.about(option), name=option) from error

    return named


def _interruptible(run: Callable[..., None]) -> Callable[..., None]:
    """Make an interrupt from the keyboard end the process with one line, and not without a word."""

    def interruptible(*args: Any, **values: Any) -> None:
        try:
            run(*args, **values)
        except KeyboardInterrupt as interrupt:
            sentences = ["Interrupted.", *getattr(interrupt, "__notes__", ())]
            errors().print(" ".join(sentences), markup=False, highlight=False)
            raise SystemExit(130) from None

    return interruptible


class _Commands(TyperGroup):
    """Commands that are imported and made when they are asked for."""

    homes: ClassVar[Mapping[str, str]]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # A misspelt command is told the nearest ones, for which their names must be known.
        self.commands = dict.fromkeys(self.homes)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature is Typer's
        return list(self.homes)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        return self._found(cmd_name).made() if cmd_name in self.homes else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._found(name).summary) for name in self.homes])

    def _found(self, name: str) -> Any:
        module, _, attribute = self.homes[name].partition(":")
        return getattr(import_module(module), attribute)


def group(summary: str, homes: Mapping[str, str], **options: Any) -> typer.Typer:
    """Make a group of commands.

    Args:
        summary: the help of the group.
        homes: the place of each command, as MODULE:NAME: a :class:`Command`, or what is like one.
        options: the options of :class:`typer.Typer`.
    """
    return typer.Typer(
        cls=type("Commands", (_Commands,), {"homes": homes}),
        help=summary,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Help without markup needs no library that takes as long to load as all else together.
        rich_markup_mode=None,
        **options,
    )


@dataclass(frozen=True)
class Group:
    """A group that is a command of another.

    Args:
        summary: the help of the group.
        homes: the place of each command, as MODULE:NAME.
    """

    summary: str
    homes: Mapping[str, str]

    def made(self) -> Any:
        """Return the group as the parser of options knows it."""
        made = group(self.summary, self.homes, add_completion=False)
        made.callback()(lambda: None)
        return get_command(made)
