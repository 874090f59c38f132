"""A command is a function with examples, and with options that several commands have in common.

A parameter of a command is an option (:mod:`dpgrain.cli.options`) or a frozen dataclass of options.
The dataclass says once what several commands ask for, and has the methods that use it. Commands are
made, and their modules imported, when they are run or asked for help.
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
from dpgrain.cli.printing import errors
from dpgrain.cli.spelling import options, options_of, spelled
from dpgrain.errors import ParameterError, SchemaError

# Options stand in these groups of help, in this order; those of a command's own come before them.
PROMISE, TABLE, CLIPPING = "The guarantee", "The table", "Groups and clipping"
PEOPLE, RESULTS = "One row per user", "Output"
_ARGUMENTS, _OWN = "Arguments", "Options"
_FIRST, _LAST = (_ARGUMENTS, _OWN), (PROMISE, TABLE, CLIPPING, PEOPLE, RESULTS)
_SELDOM = " (seldom)"
_HELP_ALL = "--help-all"

# This asks for help, which is at most so wide, where the terminal is.
_SETTINGS = {"help_option_names": ["--help", "-h"], "max_content_width": 120}
# Characters of the width of help that an option's name takes, at most.
_OPTION_WIDTH = 34
# Spaces by which lines of an example are indented further after the first one.
_INDENT = "    "
# What an option takes, where it does not say so itself.
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


# What is said of a value that is not among those of its option.
_NO_CHOICE = re.compile(r"(?:Value error, )?'(?P<value>.*)' is not one of (?P<choices>.*?)\.?")
# What is said of a value that is no number, where one is asked for.
_NO_NUMBER = re.compile(r"valid (?P<kind>number|float|integer)")
_TOO_SMALL = re.compile(r"greater than or equal to (?P<least>\d+)$")
_COMMA = re.compile(r"-?[0-9]+,[0-9]+")
# Help need not say that a number is at least 1, or 0 without the option.
_BY_ITSELF = re.compile(r"x>=\d+; |; x>=\d+|  \[(x>=\d+|default: 0\.0|default: 0)\]")


def seldom(group: str) -> str:
    """Return the group of options that ``--help`` only names, and ``--help-all`` explains.

    >>> seldom(TABLE)
    'The table (seldom)'
    """
    return group + _SELDOM


class _Grouped(TyperCommand):
    """A command whose help shows its options in groups, and those that are seldom needed by name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of a command; one that is misspelt is told the nearest."""
        stated = tuple(args)
        try:
            rest = list(super().parse_args(ctx, args))
        except Exception as error:
            _name_the_nearest(error)
            _name_the_number(error, stated)
            raise
        _, _, order = self.make_parser(ctx).parse_args(list(stated))
        _refuse_repeated(order)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command, whose words are known while it runs."""
        words, above = [ctx.info_name], ctx.parent
        while above is not None and above.parent is not None:
            words, above = [above.info_name, *words], above.parent
        token = running.set(" ".join(words))
        try:
            return super().invoke(ctx)
        finally:
            running.reset(token)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the arguments by their names alone."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups, of which ``--help-all`` leaves none out."""
        groups, short = self._groups(ctx), {}
        for name in list(groups):
            if name.endswith(_SELDOM):
                group, lines = name.removesuffix(_SELDOM), groups.pop(name)
                if ctx.meta.get(_HELP_ALL):
                    groups.setdefault(group, []).extend(lines)
                else:
                    short[group] = sorted(line[0].split()[0] for line in lines)
        own = [name for name in groups if name not in (*_FIRST, *_LAST)]
        for name in (*_FIRST, *own, *_LAST):
            if groups.get(name):
                with formatter.section(name):
                    formatter.write_dl(groups[name], col_max=_OPTION_WIDTH)
        if short:
            with formatter.section(f"Rarely needed, and explained by {_HELP_ALL}"):
                _write_names(formatter, short)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - Typer's signature
        """Write the examples in lines that fit, to be copied as they stand."""
        examples = (self.epilog or "").splitlines()
        formatter.write_paragraph()
        formatter.write(f"Example{'s' if len(examples) > 1 else ''}:\n")
        for example in examples:
            formatter.write(f"{broken(example, formatter.width - 2)}\n")

    def _groups(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Return the lines of each group of options."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            if (told := one.get_help_record(ctx)) is not None:
                whole = getattr(self, "described", {}).get(one.name)
                if whole and ctx.meta.get(_HELP_ALL):
                    told = told[0], told[1].replace(str(getattr(one, "help", "")), whole, 1)
                own = _ARGUMENTS if one.param_type_name == "argument" else _OWN
                name = getattr(one, "rich_help_panel", None) or own
                name_of, text = _in_words(*told)
                text = text.removesuffix("  [required]") if own == _ARGUMENTS else text
                groups.setdefault(name, []).append((name_of, text))
        return groups


def _refuse_repeated(options: Sequence[Any]) -> None:
    """Refuse an option of one value that is stated again, of which the last would be taken."""
    once = [each.opts[0] for each in options if not getattr(each, "multiple", False)]
    if (twice := first_duplicate(once)) is not None:
        raise ParameterError(f"{twice} is passed twice; pass it once.", name=twice)


def _name_the_nearest(error: Any) -> None:
    """Make the error of a word that is no option, or no value of one, say which it may have meant."""
    if near := getattr(error, "possibilities", None):
        # The first is the likeliest, and who misspells one option has not meant two.
        error.message = f"{error.message}. Did you mean {near[0]}?"
        error.possibilities = None
    result = _NO_CHOICE.fullmatch(getattr(error, "message", None) or "")
    if result is not None:
        value, choices = result["value"], re.findall(r"'([^']+)'", result["choices"])
        likely = get_close_matches(value.casefold(), choices, 1)
        asked = f" Did you mean {likely[0]}?" if likely else ""
        error.message = f"{value!r} is not one of {', '.join(choices)}.{asked}"


def _name_the_number(error: Any, stated: Sequence[str]) -> None:
    """Make the error of an option that takes a number say what was given in its place."""
    message = getattr(error, "message", None) or ""
    if least := _TOO_SMALL.search(message):
        error.message = f"It must be at least {least['least']}."
    kind = _NO_NUMBER.search(message)
    if kind is None:
        return
    names = getattr(getattr(error, "param", None), "opts", ())
    many = getattr(error.param, "nargs", 1)
    for place, word in enumerate(stated):
        option, equals, value = word.partition("=")
        values = [value] if equals else stated[place + 1 : place + 1 + many]
        wrong = next((each for each in values if not _is_number(each, kind["kind"])), None)
        if option in names and wrong is not None:
            break
    else:
        return
    whole = "an integer" if kind["kind"] == "integer" else "a number"
    remedy = f"; write {wrong.replace(',', '.')}" if _COMMA.fullmatch(wrong) else ""
    error.message = f"{wrong!r} is not {whole}{remedy}."


def _is_number(text: str, kind: str) -> bool:
    try:
        return (int if kind == "integer" else float)(text) is not None
    except ValueError:
        return False


def _write_names(formatter: Any, names: Mapping[str, Sequence[str]]) -> None:
    """Write the names of options by their groups, none of them broken at its hyphens."""
    widest = max(map(len, names)) + 2
    for group, listed in names.items():
        lines = wrap(", ".join(listed), formatter.width - widest - 4, break_on_hyphens=False)
        for place, line in enumerate(lines):
            formatter.write(f"  {'' if place else group:<{widest}}{line}\n")


def _in_words(name: str, text: str) -> tuple[str, str]:
    """Return the line of an option with what it takes in a word, and without what goes by itself."""
    option, space, kind = name.partition(" <")
    if space:
        taken = f"<{kind}" if option.startswith("-") else ""
        name = f"{option} {_KINDS.get(taken, taken)}".rstrip()
    if option.startswith("--help,"):
        text = "Show this message; … marks repeatable options."
    return name, re.sub(_BY_ITSELF, "", text)


def broken(example: str, width: int) -> str:
    """Return an example of a command in lines of a width, each but the last with a mark at its end.

    An option stays with its values.

    >>> print(broken("dpgrain count visits.parquet --by page --epsilon 1", 42))
      dpgrain count visits.parquet --by page \\
          --epsilon 1
    """
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
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(
            self.name,
            cls=_Grouped,
            epilog="\n".join(self.examples),
            context_settings=_SETTINGS,
        )(_flat(self.function))
        made = get_command(alone)
        made.callback = _interruptible(_named_by_options(made))
        return made


def command(*examples: str, name: str) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function, with examples of its use."""
    return lambda function: Command(function, name, examples)


def _show_all(context: typer.Context, asked: bool) -> None:
    """Show help with every option explained, where it is asked for."""
    if asked:
        context.meta[_HELP_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


def help_of_all(*, hidden: bool) -> typer.models.OptionInfo:
    """Return the option that explains all options; hidden if ``--help`` already does."""
    help_text = "Explain all options."
    option: typer.models.OptionInfo = typer.Option(
        _HELP_ALL, help=help_text, callback=_show_all, is_eager=True, hidden=hidden
    )
    return option


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
    panels = (
        getattr(one, "rich_help_panel", None) or ""
        for each in parameters
        for one in getattr(each.annotation, "__metadata__", ())
    )
    explained = help_of_all(hidden=not any(panel.endswith(_SELDOM) for panel in panels))
    parameters.append(
        inspect.Parameter(
            "help_all",
            inspect.Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[bool, explained],
        )
    )
    # Options that must be given stand first.
    parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)

    def run(**values: Any) -> None:
        del values["help_all"]
        made = {
            name: kind(**{part.name: values.pop(part.name) for part in fields(kind)})
            for name, kind in shared.items()
        }
        with exclusive_files():
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
    """Make a command call parameters by the names of its options, in errors and in what it prints."""
    run, known = made.callback, options_of(made)

    def named(*args: Any, **values: Any) -> None:
        token = options.set(known)
        try:
            run(*args, **values)
        except (ParameterError, SchemaError) as error:
            option = known.get(error.name, error.name)
            sentence = error.about(option) if error.name else str(error)
            if (said := spelled(sentence)) == str(error):
                raise
            raise type(error)(said, name=option) from error
        finally:
            options.reset(token)

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
    """Commands that are imported and made when they are asked for, in groups."""

    groups: ClassVar[Mapping[str, Mapping[str, str]]]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.homes = {name: home for homes in self.groups.values() for name, home in homes.items()}
        # A misspelt command is told the nearest ones, for which their names must be known.
        self.commands = dict.fromkeys(self.homes)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature is Typer's
        return list(self.homes)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        return self._found(cmd_name).made() if cmd_name in self.homes else None

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what it is, and the commands, which a reader looks for before the options."""
        super().format_help_text(ctx, formatter)
        widest = max(map(len, self.homes))
        for heading, homes in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{n:<{widest}}", self._found(n).summary) for n in homes])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write nothing behind the options, as the commands stand before them."""

    def _found(self, name: str) -> Any:
        module, _, attribute = self.homes[name].partition(":")
        return getattr(import_module(module), attribute)


def group(summary: str, groups: Mapping[str, Mapping[str, str]], **options: Any) -> typer.Typer:
    """Make a program of several commands.

    Args:
        summary: the help of the program.
        groups: by the headings of help, the place of each command, as MODULE:NAME: a
            :class:`Command`, or what is like one.
        options: the options of :class:`typer.Typer`.
    """
    return typer.Typer(
        cls=type("Commands", (_Commands,), {"groups": groups}),
        help=summary,
        no_args_is_help=True,
        context_settings=_SETTINGS,
        pretty_exceptions_enable=False,
        # Help without markup needs no library that takes as long to load as all else together.
        rich_markup_mode=None,
        **options,
    )


def _only_help(help_all: Annotated[bool, help_of_all(hidden=True)] = False) -> None:
    """Do nothing but show help when it is requested."""


@dataclass(frozen=True)
class Group:
    """Several commands that are one of the program.

    Args:
        summary: the help of them all.
        homes: the place of each command, as MODULE:NAME.
    """

    summary: str
    homes: Mapping[str, str]

    def made(self) -> Any:
        """Return the group as the parser of options knows it."""
        made = group(self.summary, {"Commands": self.homes}, add_completion=False)
        made.callback()(_only_help)
        return get_command(made)
