"""Commands built from functions with options, or frozen dataclasses of options, as parameters.

A command is built, and its module imported, when it runs or its help is shown.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar, get_type_hints

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dpgrain._files import exclusive_files
from dpgrain.cli.help import HELP_ALL, GroupedCommand
from dpgrain.cli.options import Json, ParameterOption, declared, seldom, several_in
from dpgrain.cli.printing import as_json, say_error
from dpgrain.cli.spelling import flags_of, options, spelled
from dpgrain.errors import ParameterError, SchemaError

_SETTINGS = {"help_option_names": ["--help", "-h"], "max_content_width": 120}


@dataclass(frozen=True)
class Command:
    """A command of the program."""

    function: Callable[..., None]
    name: str
    examples: tuple[str, ...]

    @property
    def summary(self) -> str:
        """First line of the help."""
        return (self.function.__doc__ or "").partition("\n")[0]

    def build(self) -> Any:
        """Return the command for the parser."""
        run, listed = _flat(self.function)
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        epilog = "\n".join(self.examples)
        app.command(self.name, cls=GroupedCommand, epilog=epilog, context_settings=_SETTINGS)(run)
        built: Any = get_command(app)
        built.described = {one.declared.name: one.described for one in listed}
        built.callback = _with_errors(built)
        return built


def command(*examples: str) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function, with its name."""

    def decorate(function: Callable[..., None]) -> Command:
        # The name of a function cannot be a word of Python, such as import.
        return Command(function, function.__name__.rstrip("_").replace("_", "-"), examples)

    return decorate


def _show_all(context: typer.Context, wanted: bool) -> None:
    """Show help with every option explained, if requested."""
    if wanted:
        context.meta[HELP_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


def help_all_option(*, hidden: bool) -> typer.models.OptionInfo:
    """Return the option ``--help-all``; hide it if ``--help`` already explains all."""
    text = "Explain all options."
    option: typer.models.OptionInfo = typer.Option(
        HELP_ALL, help=text, callback=_show_all, is_eager=True, hidden=hidden
    )
    return option


def _flat(function: Callable[..., None]) -> tuple[Callable[..., None], list[ParameterOption]]:
    """Return the function with all options as parameters, and the options, required ones first."""
    signature = inspect.signature(function).parameters
    hints = get_type_hints(function, include_extras=True)
    own = {name: hints[name] for name in signature}
    listed = _options_of(
        {name: hint for name, hint in own.items() if not is_dataclass(hint)}, signature
    )
    for kind in filter(is_dataclass, own.values()):
        listed += _options_of_class(kind)
    panels = (
        getattr(one, "rich_help_panel", None) or ""
        for each in listed
        for one in getattr(each.declared.annotation, "__metadata__", ())
    )
    shows_all = not any(panel.endswith(seldom("")) for panel in panels)
    help_all = Annotated[bool, help_all_option(hidden=shows_all)]
    listed += [declared("as_json", Json, False), declared("help_all", help_all, False)]
    listed.sort(key=lambda one: not one.needed)

    def run(**values: Any) -> None:
        token = as_json.set(values.pop("as_json"))
        try:
            taken = {name: _taken(name, hint, values) for name, hint in own.items()}
            with exclusive_files():
                function(**taken)
        finally:
            as_json.reset(token)

    run.__doc__ = function.__doc__
    parameters = [one.declared for one in listed]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run, listed


def _options_of_class(kind: Any) -> list[ParameterOption]:
    """Return the options of a dataclass, before the options of its base classes."""
    names = [name for parent in kind.__mro__ for name in vars(parent).get("__annotations__", ())]
    hints = get_type_hints(kind, include_extras=True)
    return _options_of(
        {name: hints[name] for name in names}, {part.name: part for part in fields(kind)}
    )


def _options_of(hints: Mapping[str, Any], parts: Mapping[str, Any]) -> list[ParameterOption]:
    """Return the options of parameters or fields by their hints."""
    defaults = {
        name: inspect.Parameter.empty if part.default is MISSING else part.default
        for name, part in parts.items()
    }
    return [
        one
        for name, hint in hints.items()
        for one in several_in(hint) or [declared(name, hint, defaults[name])]
    ]


def _taken(name: str, hint: Any, values: dict[str, Any]) -> Any:
    """Take a parameter of a command from the values of its options."""
    if is_dataclass(hint):
        hints: Any = get_type_hints(hint, include_extras=True)
        made: Any = hint
        return made(**{part: _taken(part, one, values) for part, one in hints.items()})
    if not (listed := several_in(hint)):
        return values.pop(name)
    # Omitted parameters keep the defaults of the library's function.
    stated = [(one, values.pop(one.declared.name)) for one in listed]
    return {one.declared.name: one.read(value) for one, value in stated if value is not None}


def _with_errors(built: Any) -> Callable[..., None]:
    """Return a command's function with errors that name options, and one line if interrupted."""
    run, known = built.callback, flags_of(built)

    def callback(*args: Any, **values: Any) -> None:
        token = options.set(known)
        try:
            run(*args, **values)
        except (ParameterError, SchemaError) as error:
            option = known.get(error.name, error.name)
            message = error.about(option) if error.name else str(error)
            if (text := spelled(message)) == str(error):
                raise
            raise type(error)(text, name=option) from error
        except KeyboardInterrupt as interrupt:
            say_error(" ".join(["Interrupted.", *getattr(interrupt, "__notes__", ())]))
            raise SystemExit(130) from None
        finally:
            options.reset(token)

    return callback


class _Commands(TyperGroup):
    """Commands in groups, imported and built on demand."""

    groups: ClassVar[Mapping[str, Mapping[str, str]]]

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.homes = {name: home for homes in self.groups.values() for name, home in homes.items()}
        # The parser suggests the nearest of these names for a misspelt command.
        self.commands = dict.fromkeys(self.homes)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature is Typer's
        return list(self.homes)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        return self._load(cmd_name).build() if cmd_name in self.homes else None

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the summary and, before the options, the commands."""
        super().format_help_text(ctx, formatter)
        widest = max(map(len, self.homes))
        for heading, homes in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{n:<{widest}}", self._load(n).summary) for n in homes])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write nothing after the options: commands are listed before them."""

    def _load(self, name: str) -> Any:
        module, _, attribute = self.homes[name].partition(":")
        return getattr(import_module(module), attribute)


def group(summary: str, groups: Mapping[str, Mapping[str, str]], **settings: Any) -> typer.Typer:
    """Make a program of several commands."""
    return typer.Typer(
        cls=type("Commands", (_Commands,), {"groups": groups}),
        help=summary,
        no_args_is_help=True,
        context_settings=_SETTINGS,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # Loading rich would take as long as everything else together.
        **settings,
    )


def _only_help(help_all: Annotated[bool, help_all_option(hidden=True)] = False) -> None:
    """Only show help when requested."""


@dataclass(frozen=True)
class CommandGroup:
    """A command of several subcommands, which are in the module of the group."""

    summary: str
    module: str
    names: tuple[str, ...]

    def build(self) -> Any:
        """Return the group for the parser."""
        homes = {name.rstrip("_"): f"{self.module}:{name}" for name in self.names}
        app = group(self.summary, {"Commands": homes}, add_completion=False)
        app.callback()(_only_help)
        return get_command(app)
