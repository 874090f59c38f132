"""Commands built from functions with options, or frozen dataclasses of options, as parameters.

A command is built, and its module imported, when it runs or its help is shown.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar, get_type_hints

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dpgrain._files import exclusive_files
from dpgrain.cli.help import HELP_ALL, GroupedCommand
from dpgrain.cli.options import Json, seldom, several_in
from dpgrain.cli.parameters import ParameterOption
from dpgrain.cli.printing import as_json, say_error
from dpgrain.cli.spelling import flags_of, options, spelled
from dpgrain.errors import ParameterError, SchemaError

_SETTINGS = {"help_option_names": ["--help", "-h"], "max_content_width": 120}
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


@dataclass(frozen=True)
class Command:
    """A command of the program."""

    function: Callable[..., None]
    name: str
    examples: tuple[str, ...]
    options: Callable[[], Sequence[ParameterOption]] = tuple

    @property
    def summary(self) -> str:
        """First line of the help."""
        return (self.function.__doc__ or "").partition("\n")[0]

    def build(self) -> Any:
        """Return the command for the parser."""
        more = self.options()
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        epilog = "\n".join(self.examples)
        app.command(self.name, cls=GroupedCommand, epilog=epilog, context_settings=_SETTINGS)(
            _flat(self.function, more)
        )
        built: Any = get_command(app)
        built.described = {one.declared.name: one.described for one in more}
        built.callback = _with_errors(built)
        return built


def command(
    *examples: str, options: Callable[[], Sequence[ParameterOption]] = tuple
) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function, with its name."""

    def decorate(function: Callable[..., None]) -> Command:
        return Command(function, function.__name__.replace("_", "-"), examples, options)

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


def _flat(function: Callable[..., None], more: Sequence[ParameterOption]) -> Callable[..., None]:
    """Return the function with all options as parameters, required ones first."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters = [
        one.replace(kind=_KEYWORD, annotation=hints[one.name])
        for one in inspect.signature(function).parameters.values()
        if one.name not in (*groups, "stated")
    ]
    parameters += [one.declared for one in more]
    parameters += [one for kind in groups.values() for one in _options_of(kind)]
    panels = (
        getattr(one, "rich_help_panel", None) or ""
        for each in parameters
        for one in getattr(each.annotation, "__metadata__", ())
    )
    shows_all = not any(panel.endswith(seldom("")) for panel in panels)
    help_all = Annotated[bool, help_all_option(hidden=shows_all)]
    for name, hint in (("as_json", Json), ("help_all", help_all)):
        parameters.append(inspect.Parameter(name, _KEYWORD, default=False, annotation=hint))
    parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)

    def run(**values: Any) -> None:
        del values["help_all"]
        token = as_json.set(values.pop("as_json"))
        if "stated" in hints:
            # Omitted parameters keep the defaults of the library's function.
            given = {one: values.pop(one.declared.name) for one in more}
            stated = {one: value for one, value in given.items() if value is not None}
            values["stated"] = {one.declared.name: one.read(each) for one, each in stated.items()}
        for name, kind in groups.items():
            values[name] = kind(**_fields(kind, values))
        try:
            with exclusive_files():
                function(**values)
        finally:
            as_json.reset(token)

    run.__doc__ = function.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _options_of(kind: Any) -> list[inspect.Parameter]:
    """Return the options of a dataclass, before the options of its base classes."""
    hints = get_type_hints(kind, include_extras=True)
    defaults = {
        part.name: inspect.Parameter.empty if part.default is MISSING else part.default
        for part in fields(kind)
    }
    names = [name for parent in kind.__mro__ for name in vars(parent).get("__annotations__", ())]
    return [
        one
        for name in dict.fromkeys(names)
        for one in several_in(hints[name])
        or [inspect.Parameter(name, _KEYWORD, default=defaults[name], annotation=hints[name])]
    ]


def _fields(kind: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of a dataclass from the values of its options."""
    result = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        listed = several_in(hint)
        result[name] = {one.name: values.pop(one.name) for one in listed} or values.pop(name, None)
    return result


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
        homes = {name: f"{self.module}:{name}" for name in self.names}
        app = group(self.summary, {"Commands": homes}, add_completion=False)
        app.callback()(_only_help)
        return get_command(app)
