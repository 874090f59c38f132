"""Options shared by several commands, and readers of their values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import typer

from dpgrain.errors import ParameterError
from dpgrain.publishing.parameters import parameters_of
from dpgrain.releases.table_options import OPTIONS, TableOption
from dpgrain.units import Level, Relation

# Type of an option that some commands require.
Stated = TypeVar("Stated")

# Groups of options in help, in this order after a command's own groups.
PROMISE, TABLE, CLIPPING = "The guarantee", "The table", "Groups and clipping"
PEOPLE, RESULTS = "One row per user", "Output"

#: Options that change the table of a command, except those of some commands.
CHANGES = tuple(one for one in OPTIONS if one.flag != "--cells")
CELLS = tuple(one for one in OPTIONS if one.flag == "--cells")


def seldom(group: str) -> str:
    """Return the group of rarely needed options, which only ``--help-all`` explains."""
    return f"{group} (seldom)"


def option(text: str, *names: str, group: str | None = None, **settings: Any) -> Any:
    """Return an option with its help text, its names if they differ, and its group in help."""
    return typer.Option(*names, help=text, rich_help_panel=group, **settings)


def argument(text: str, metavar: str) -> Any:
    """Return a positional argument with its help text and its name in help."""
    return typer.Argument(help=text, metavar=metavar)


_promise = partial(option, group=PROMISE)
_rare_promise = partial(option, group=seldom(PROMISE))
_table = partial(option, group=TABLE)
_rare = partial(option, group=seldom(TABLE))
_output = partial(option, group=RESULTS)
_people = partial(option, group=seldom(PEOPLE))


@dataclass(frozen=True)
class ParameterOption:
    """An option for a parameter of the library."""

    declared: inspect.Parameter
    # From the parsed value to the value of the library.
    read: Callable[[Any], Any] = lambda value: value
    # The option with a value.
    example: str = ""
    # The whole description; ``--help`` shows the first sentence.
    described: str = ""

    @property
    def needed(self) -> bool:
        """True if the option is required."""
        return self.declared.default is inspect.Parameter.empty


def declared(name: str, hint: Any, default: Any) -> ParameterOption:
    """Return an option as it is annotated."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    return ParameterOption(inspect.Parameter(name, keyword, default=default, annotation=hint))


def reading_options() -> list[ParameterOption]:
    """Return the options for parameters of :func:`dpgrain.read` about the format of files."""
    own = {"delimiter": Delimiter, "decimal": Decimal, "thousands": Thousands, "dates": Dates}
    return [
        declared(name, own.get(name, Annotated[str, _rare(one.help)]), one.default)
        for name, one in parameters_of("dpgrain.tables.table", "read").items()
        if one.hint is str  # others are the place of the rows, or have a syntax of their own
    ]


def change_options(listed: Iterable[TableOption]) -> list[ParameterOption]:
    """Return the options that change a table."""
    kind = list[str] | None
    return [
        declared(one.name, Annotated[kind, _rare(one.text, one.flag, metavar=one.metavar)], None)
        for one in listed
    ]


def several_in(hint: Any) -> list[ParameterOption]:
    """Return the options of a field annotated with a function for them; empty for other fields."""
    first = getattr(hint, "__metadata__", (None,))[0]
    return first() if callable(first) else []


# ---------------------------------------------------------------------------------- the guarantee

Epsilon: TypeAlias = Annotated[
    Stated, _promise("Privacy parameter ε, such as 1; smaller protects more.", metavar="ε")
]
Delta: TypeAlias = Annotated[Stated, _promise("Privacy parameter δ, such as 1e-6.", metavar="δ")]
Neighbours: TypeAlias = Annotated[
    Relation, _rare_promise("Neighbouring data: a unit removed, or replaced by another.")
]
Protected: TypeAlias = Annotated[Level, _promise("What to protect.", "--unit")]
ProtectedOrElement: TypeAlias = Annotated[
    Level | None,
    _promise("What to protect: a row, a user's rows in a cell, or all of them.", "--unit"),
]
MaxElements: TypeAlias = Annotated[
    int | None, _rare_promise("With --unit user: maximum number of a user's elements used.")
]

# -------------------------------------------------------------------------------------- the table

Table: TypeAlias = Annotated[
    str, argument("Parquet or CSV file, a folder, or a glob in quotes.", "TABLE")
]
Named: TypeAlias = Annotated[
    str | None,
    _rare(
        "Database table; TABLE is then postgresql://… without a password, or env:VARIABLE.",
        "--table",
        metavar="NAME",
    ),
]
Query: TypeAlias = Annotated[
    str | None,
    _rare("Database query instead of --table; requires --rows 'as given'.", metavar="SQL"),
]
RowsAs: TypeAlias = Annotated[
    str | None,
    _rare(
        "Accept the rows of a query. The guarantee then assumes that no user's rows affect "
        "other users' rows.",
        "--rows",
        metavar="'as given'",
    ),
]
User: TypeAlias = Annotated[str | None, _table("User id column.", metavar="COLUMN")]
Users: TypeAlias = Annotated[int | None, _table("Public number of enrolled users.")]
PerUser: TypeAlias = Annotated[
    list[str] | None,
    _people(
        "NAME=EXPRESSION over all of a user's rows, such as \"er=any(kind = 'er')\" or "
        "'each=total(paid) / count()'; or NAME=count, NAME=COLUMN:FUNCTION."
    ),
]
PerUserBy: TypeAlias = Annotated[
    list[str] | None, _people("Column to keep, with one row per value.", metavar="COLUMN …")
]
PerUserFilter: TypeAlias = Annotated[
    list[str] | None,
    _people("Only users that meet a condition, such as 'visits > 2'.", metavar="CONDITION"),
]
#: Texts of options that change a table, by the names of the options.
Reading: TypeAlias = Annotated[Mapping[str, Any], reading_options]
Changes: TypeAlias = Annotated[Mapping[str, list[str]], partial(change_options, CHANGES)]
Cells: TypeAlias = Annotated[Mapping[str, list[str]], partial(change_options, CELLS)]
Delimiter: TypeAlias = Annotated[
    str, _table("CSV delimiter, if not a comma; '\\t': tab.", metavar="MARK", show_default=False)
]
Types: TypeAlias = Annotated[
    list[str] | None,
    _table(
        "Type of a text column, such as paid=double (all CSV columns are text). Values "
        "that do not parse are dropped.",
        "--type",
        metavar="COLUMN=TYPE …",
    ),
]
Where: TypeAlias = Annotated[
    list[str] | None, _rare(next(one.text for one in OPTIONS if one.flag == "--where"))
]
Mark: TypeAlias = Literal[".", ","]
Decimal: TypeAlias = Annotated[Mark, _rare("Decimal separator in columns of --type.")]
Thousands: TypeAlias = Annotated[
    str,
    _rare("Mark between groups of three digits in columns of --type, such as ,.", metavar="MARK"),
]
Form: TypeAlias = Literal[
    "2025-12-31", "31.12.2025", "31/12/2025", "31-12-2025", "12/31/2025", "20251231"
]
Dates: TypeAlias = Annotated[Form, _rare("Date format in columns of --type.")]
Engine: TypeAlias = Annotated[
    Literal["duckdb", "spark"],
    _rare("Engine that reads the rows; spark is for tables larger than one machine."),
]
Master: TypeAlias = Annotated[
    str | None,
    _rare(
        "With --engine spark: address of the cluster, such as spark://host:7077, local[4], "
        "or sc://host of Spark Connect.",
        metavar="ADDRESS",
    ),
]
Check: TypeAlias = Annotated[
    bool, _table("Only count invalid values, for internal use: NOT private.", "--check")
]
Ledger: TypeAlias = Annotated[
    str | None, _promise("Charge the release to a ledger file or address.", metavar="LEDGER")
]
Memory: TypeAlias = Annotated[str, _rare("Working memory, such as 1GB.", metavar="SIZE")]

Cell: TypeAlias = Annotated[
    str | None, _promise("Column of cells, or a file that maps items to cells.", metavar="COLUMN")
]

# ------------------------------------------------------------------------------------- the output

TopOrAll: TypeAlias = Annotated[
    int | None,
    _output(
        "Number of estimates to print; by default 20, or 40 if they have an order.", "--top", min=1
    ),
]
Top: TypeAlias = Annotated[int, _output("Number of estimates to print.", "--top", min=1)]
Output: TypeAlias = Annotated[Path | None, _output("Write all estimates: .parquet, .csv or .json.")]
Report: TypeAlias = Annotated[Path | None, _output("Write an HTML report.")]
Save: TypeAlias = Annotated[
    Path | None, option("Save the release with its guarantee (.parquet).", group=seldom(RESULTS))
]
Plot: TypeAlias = Annotated[Path | None, _output("Draw the release: .png, .svg or .pdf.")]
Json: TypeAlias = Annotated[bool, _output("Print JSON, for programs.", "--json")]


def number(flag: str, text: str, kind: str) -> float:
    """Return a number, or raise an error that an option must be of this kind."""
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"{flag} must be {kind}, not {text!r}.") from None


def integers(flag: str, texts: Sequence[str], kind: str) -> list[int]:
    """Return the integers in texts such as ``1,2,5``, or raise an error about an option."""
    parts = [part for text in texts for part in text.split(",")]
    numbers = [number(flag, part, kind) for part in parts]
    for part, each in zip(parts, numbers, strict=True):
        if not each.is_integer():
            raise ParameterError(f"{flag} must be {kind}, not {part!r}.")
    return list(map(int, numbers))


def level_of(
    level: Level | None,
    element: str | None,
    max_elements: int | None,
    missing: Sequence[str] = (),  # other options named in the error about a missing level
) -> Level:
    """Return the protected level, by ``--unit``, ``--element`` and ``--max-elements``."""
    if level is None and element is None:
        also = f"; also pass {', and '.join(missing)}" if missing else ""
        raise ParameterError(
            f"Choose what to protect: pass --element COLUMN, --unit user or --unit record{also}."
        )
    if max_elements is not None and level != "user":
        raise ParameterError("--max-elements requires --unit user.")
    return level or "element"


def columns_of(texts: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the columns in texts such as ``a,b``, also of names with commas."""
    names: list[str] = []
    for text in texts:
        parts = [name.strip() for name in text.split(",")]
        if not all(part in known for part in parts):
            parts = [name.strip() for name in _split_outside_brackets(text)]
        names += [text] if text in known else parts
    return names


def types_of(texts: Sequence[str], known: Collection[str]) -> dict[str, str]:
    """Return the type of each column in texts such as ``a,b=double,c=date``."""
    types: dict[str, str] = {}
    for text in texts:
        own, names = dict[str, str](), ""
        for part in [text] if text.rpartition("=")[0] in known else _split_outside_brackets(text):
            names += f",{part}" if names else part
            listed, _, kind = names.rpartition("=")
            if listed and kind and "=" in part:
                own |= dict.fromkeys(columns_of([listed], known), kind)
                names = ""
        if names or not own:
            raise ParameterError(
                f"--type must be COLUMN=TYPE, such as paid=double, not {names or text!r}."
            )
        types |= own
    return types


def _split_outside_brackets(text: str) -> list[str]:
    """Split a text at commas outside of brackets and quotes; whole if one of them is open."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"`":
            quote = sign
        else:
            depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not quote and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [text] if quote or depth else parts
