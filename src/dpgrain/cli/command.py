"""Commands built from functions with options, or frozen dataclasses of options, as parameters.

A command is built, and its module imported, when it runs or its help is shown.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module
from textwrap import wrap
from typing import Annotated, Any, ClassVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from dpgrain._files import exclusive_files
from dpgrain._formatting import first_duplicate
from dpgrain.cli.document import running
from dpgrain.cli.options import (
    CLIPPING,
    PEOPLE,
    PROMISE,
    RESULTS,
    TABLE,
    Json,
    ParameterOption,
    declared,
    seldom,
    several_in,
)
from dpgrain.cli.printing import as_json, say_error
from dpgrain.cli.spelling import flags_of, options, spelled
from dpgrain.errors import ParameterError, SchemaError

_ARGUMENTS, _OWN = "Arguments", "Options"
# What replaces options that users expect.
_MEANT = {
    "--quantile": "--q",
    "--quantiles": "--q",
    "--user-level": "--unit user",
    "--difference": "release.difference(a, b) in Python",
    "--ratio": "release.ratio(a, b) in Python",
}
_FIRST, _LAST = (_ARGUMENTS, _OWN), (PROMISE, TABLE, CLIPPING, PEOPLE, RESULTS)
_SELDOM = seldom("")
HELP_ALL = "--help-all"
# Maximum width of option names.
_OPTION_WIDTH = 34
# Indentation of continued lines of an example.
_INDENT = "    "
# Description of an option's value by the parser's description of its type.
_KINDS = {
    "<str>": "TEXT",
    "<list[str]>": "TEXT …",
    "<int>": "N",
    "<int range>": "N",
    "<list[int]>": "N …",
    "<float>": "X",
    "<float,float>": "LOW HIGH",
    "<path>": "FILE",
    "<list[path]>": "FILE …",
}
# The parser's messages for invalid values.
_NO_CHOICE = re.compile(r"(?:Value error, )?'(?P<value>.*)' is not one of (?P<choices>.*?)\.?")
_NO_NUMBER = re.compile(r"valid (?P<kind>number|float|integer)")
_TOO_SMALL = re.compile(r"greater than or equal to (?P<least>\d+)$")
_COMMA = re.compile(r"-?[0-9]+,[0-9]+")
# A number such as 5.000, which is 5000 in a file with decimal commas.
_GROUPED = re.compile(r"-?[1-9][0-9]{0,2}\.[0-9]{3}")
# Limits and defaults that help omits because they are obvious.
_OBVIOUS = re.compile(r"x>=\d+; |; x>=\d+|  \[(x>=\d+|default: 0\.0|default: 0)\]")


class GroupedCommand(TyperCommand):
    """A command whose help shows options in groups, and only names the rarely needed ones."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command; errors suggest the nearest known word."""
        words = _with_pairs(args, self.get_params(ctx))
        try:
            rest = list(super().parse_args(ctx, list(words)))
        except Exception as error:
            _suggest_word(error)
            _suggest_number(error, words)
            raise
        values, _, options = self.make_parser(ctx).parse_args(list(words))
        once = [one.opts[0] for one in options if not getattr(one, "multiple", False)]
        if (twice := first_duplicate(once)) is not None:
            raise ParameterError(f"{twice} is passed twice; pass it once.", name=twice)
        if values.get("decimal") == ",":
            for one in options:
                _reject_ambiguous(one.opts[0], values[one.name])
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and record its words for the JSON document."""
        words, above = [ctx.info_name], ctx.parent
        while above is not None and above.parent is not None:
            words, above = [above.info_name, *words], above.parent
        token = running.set(" ".join(words))
        try:
            return super().invoke(ctx)
        finally:
            running.reset(token)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the arguments without braces."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups of options; rarely needed ones are explained only by ``--help-all``."""
        groups, names = self._groups(ctx), {}
        for name in [name for name in groups if name.endswith(_SELDOM)]:
            group, lines = name.removesuffix(_SELDOM), groups.pop(name)
            if ctx.meta.get(HELP_ALL):
                groups.setdefault(group, []).extend(lines)
            else:
                names[group] = sorted(line[0].split()[0] for line in lines)
        own = [name for name in groups if name not in (*_FIRST, *_LAST)]
        for name in (*_FIRST, *own, *_LAST):
            if groups.get(name):
                with formatter.section(name):
                    formatter.write_dl(groups[name], col_max=_OPTION_WIDTH)
        if names:
            with formatter.section(f"Rarely needed, and explained by {HELP_ALL}"):
                _write_names(formatter, names)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - Typer's signature
        """Write the examples in lines that fit and can be copied."""
        examples = (self.epilog or "").splitlines()
        formatter.write_paragraph()
        formatter.write(f"Example{'s' if len(examples) > 1 else ''}:\n")
        for example in examples:
            formatter.write(f"{broken(example, formatter.width - 2)}\n")

    def _groups(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Return names and descriptions of options by group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            if (record := one.get_help_record(ctx)) is None:
                continue
            name, text = record
            whole = getattr(self, "described", {}).get(one.name)
            if whole and ctx.meta.get(HELP_ALL):
                text = text.replace(str(getattr(one, "help", "")), whole, 1)
            own = _ARGUMENTS if one.param_type_name == "argument" else _OWN
            line = _readable(name, text)
            if own == _ARGUMENTS:
                line = line[0], line[1].removesuffix("  [required]")
            groups.setdefault(getattr(one, "rich_help_panel", None) or own, []).append(line)
        return groups


def _with_pairs(words: Sequence[str], options: Sequence[Any]) -> list[str]:
    """Return the words of a command with ``--bounds 0,90`` as ``--bounds 0 90``."""
    pairs = {name for one in options if one.nargs == 2 for name in one.opts}
    result: list[str] = []
    for place, word in enumerate(words):
        option, _, value = word.partition("=")
        if option in pairs and _is_pair(value):
            result += [option, *value.split(",")]
            continue
        after = words[place + 1].split(",") if place + 1 < len(words) else [""]
        listed = place > 0 and words[place - 1] in pairs and _is_pair(word)
        result += word.split(",") if listed and not _is_number(after[0]) else [word]
    return result


def _reject_ambiguous(flag: str, value: Any) -> None:
    """Reject ``5.000`` next to ``--decimal ,``, which may mean 5 or 5000."""
    texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    for text in (part for each in texts for part in str(each).split(",")):
        if _GROUPED.fullmatch(text):
            number, grouped = f"{float(text):.15g}", text.replace(".", "")
            raise ParameterError(
                f"{flag} must not be {text} with --decimal ,, because it may mean {grouped} or "
                f"{number}; write {grouped} or {number if '.' not in number else number + '0'}.",
                name=flag,
            )


def _is_pair(text: str) -> bool:
    parts = text.split(",")
    return len(parts) == 2 and all(map(_is_number, parts))


def _is_number(text: str, kind: str = "float") -> bool:
    try:
        return (int if kind == "integer" else float)(text) is not None
    except ValueError:
        return False


def _suggest_word(error: Any) -> None:
    """Add the most similar option or value to the parser's error about an unknown one."""
    if meant := _MEANT.get(getattr(error, "option_name", None) or ""):
        error.message, error.possibilities = f"{error.message}. Use {meant}.", None
    if near := getattr(error, "possibilities", None):
        # Only the likeliest: a user who misspells one option did not mean two.
        error.message = f"{error.message}. Did you mean {near[0]}?"
        error.possibilities = None
    found = _NO_CHOICE.fullmatch(getattr(error, "message", None) or "")
    if found is not None:
        value, choices = found["value"], re.findall(r"'([^']+)'", found["choices"])
        likely = get_close_matches(value.casefold(), choices, 1)
        question = f" Did you mean {likely[0]}?" if likely else ""
        error.message = f"{value!r} is not one of {', '.join(choices)}.{question}"


def _suggest_number(error: Any, words: Sequence[str]) -> None:
    """Add the invalid value to the parser's error about a number."""
    message = getattr(error, "message", None) or ""
    if least := _TOO_SMALL.search(message):
        error.message = f"It must be at least {least['least']}."
    if (found := _NO_NUMBER.search(message)) is None:
        return
    names = getattr(getattr(error, "param", None), "opts", ())
    count = getattr(error.param, "nargs", 1)
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        values = [value] if equals else words[place + 1 : place + 1 + count]
        wrong = next((each for each in values if not _is_number(each, found["kind"])), None)
        if option in names and wrong is not None:
            kind = "an integer" if found["kind"] == "integer" else "a number"
            remedy = f"; write {wrong.replace(',', '.')}" if _COMMA.fullmatch(wrong) else ""
            error.message = f"{wrong!r} is not {kind}{remedy}."
            return


def _write_names(formatter: Any, names: Mapping[str, Sequence[str]]) -> None:
    """Write the names of options by group, without breaking at hyphens."""
    widest = max(map(len, names)) + 2
    for group, listed in names.items():
        lines = wrap(", ".join(listed), formatter.width - widest - 4, break_on_hyphens=False)
        for place, line in enumerate(lines):
            formatter.write(f"  {'' if place else group:<{widest}}{line}\n")


def _readable(name: str, text: str) -> tuple[str, str]:
    """Return the name of an option with a short word for its value, and its description."""
    option, space, kind = name.partition(" <")
    if space:
        value = f"<{kind}" if option.startswith("-") else ""
        name = f"{option} {_KINDS.get(value, value)}".rstrip()
    if option.startswith("--help,"):
        text = "Show this message; … marks repeatable options."
    return name, re.sub(_OBVIOUS, "", text)


def broken(example: str, width: int) -> str:
    """Break an example of a command into lines; an option stays with its values."""
    pieces = re.findall(r"(?:[^\s']|'[^']*')+", example)
    together = [pieces[0]]
    for piece in pieces[1:]:
        if piece.startswith("--") or together[-1] == pieces[0] or "--" not in together[-1]:
            together.append(piece)
        else:
            together[-1] += f" {piece}"
    lines = [f"  {together[0]}"]
    for piece in together[1:]:
        if len(lines[-1]) + len(piece) + 3 <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"  {_INDENT}{piece}")
    return " \\\n".join(lines)


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
        listed += _class_options(kind)
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


def _class_options(kind: Any) -> list[ParameterOption]:
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
