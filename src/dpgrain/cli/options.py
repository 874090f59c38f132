"""Options shared by several commands, and readers of their values."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import typer

from dpgrain.errors import ParameterError
from dpgrain.units import Law, Level, Relation

# Type of an option that some commands require.
Stated = TypeVar("Stated")

# Groups of options in help, in this order after a command's own groups.
PROMISE, TABLE, CLIPPING = "The guarantee", "The table", "Groups and clipping"
PEOPLE, RESULTS = "One row per user", "Output"

# An expression contains commas only inside of brackets or quotes.
_BRACKETS = re.compile(r"[(\[{'\"]")


def seldom(group: str) -> str:
    """Return the group of rarely needed options, which only ``--help-all`` explains.

    >>> seldom(TABLE)
    'The table (seldom)'
    """
    return f"{group} (seldom)"


def option(text: str, *names: str, group: str | None = None, **settings: Any) -> Any:
    """Return an option with its help text, its names if they differ, and its group in help."""
    return typer.Option(*names, help=text, rich_help_panel=group, **settings)


def argument(text: str, metavar: str) -> Any:
    """Return a positional argument with its help text and its name in help."""
    return typer.Argument(help=text, metavar=metavar)


# ---------------------------------------------------------------------------------- the guarantee

Epsilon: TypeAlias = Annotated[
    Stated,
    option("Privacy parameter ε, such as 1; smaller protects more.", group=PROMISE, metavar="ε"),
]
Delta: TypeAlias = Annotated[
    Stated, option("Privacy parameter δ, such as 1e-6.", group=PROMISE, metavar="δ")
]
Neighbours: TypeAlias = Annotated[
    Relation,
    option("Neighbouring data: a unit removed, or replaced by another.", group=seldom(PROMISE)),
]
Protected: TypeAlias = Annotated[Level, option("What to protect.", "--unit", group=PROMISE)]
ProtectedOrElement: TypeAlias = Annotated[
    Level | None,
    option(
        "What to protect: a row, a user's records in a cell, or all of a user's records.",
        "--unit",
        group=PROMISE,
    ),
]
MaxElements: TypeAlias = Annotated[
    int | None,
    option("With --unit user: maximum number of a user's elements used.", group=seldom(PROMISE)),
]
MaxItems: TypeAlias = Annotated[
    int,
    option("Maximum number of one unit's items used in selection.", group=seldom(CLIPPING), min=1),
]
Noise: TypeAlias = Annotated[Law, option("Noise distribution.", group=seldom(PROMISE))]

# -------------------------------------------------------------------------------------- the table

Table: TypeAlias = Annotated[
    str, argument("Parquet or CSV file, a folder, or a glob in quotes.", "TABLE")
]
Named: TypeAlias = Annotated[
    str | None,
    option(
        "Database table; TABLE is then postgresql://… without a password, or env:VARIABLE.",
        "--table",
        group=seldom(TABLE),
        metavar="NAME",
    ),
]
Query: TypeAlias = Annotated[
    str | None,
    option(
        "Database query instead of --table; requires --rows 'as given'.",
        group=seldom(TABLE),
        metavar="SQL",
    ),
]
RowsAs: TypeAlias = Annotated[
    str | None,
    option(
        "Accept the rows of a query. The guarantee then assumes that no user's rows affect "
        "other users' rows.",
        "--rows",
        group=seldom(TABLE),
        metavar="'as given'",
    ),
]
User: TypeAlias = Annotated[str | None, option("User id column.", group=TABLE, metavar="COLUMN")]
Users: TypeAlias = Annotated[int | None, option("Public number of enrolled users.", group=TABLE)]
Cells: TypeAlias = Annotated[
    list[str] | None,
    option(
        "NAME=COLUMN:FILE adds a column of cells; FILE has a value and its cell per row.",
        group=seldom(TABLE),
    ),
]
PerUser: TypeAlias = Annotated[
    list[str] | None,
    option(
        "NAME=EXPRESSION over all of a user's rows, such as \"er=any(kind = 'er')\" or "
        "'each=total(paid) / count()'; or NAME=count, NAME=COLUMN:FUNCTION.",
        group=seldom(PEOPLE),
    ),
]
PerUserBy: TypeAlias = Annotated[
    list[str] | None,
    option("Column to keep, with one row per value.", group=seldom(PEOPLE), metavar="COLUMN …"),
]
PerUserFilter: TypeAlias = Annotated[
    list[str] | None,
    option(
        "Only users that meet a condition, such as 'visits > 2'.",
        group=seldom(PEOPLE),
        metavar="CONDITION",
    ),
]
Delimiter: TypeAlias = Annotated[
    str,
    option(
        "CSV delimiter, if not a comma; '\\t': tab.",
        group=TABLE,
        metavar="MARK",
        show_default=False,
    ),
]
Types: TypeAlias = Annotated[
    list[str] | None,
    option(
        "Type of a text column, such as paid=double (all CSV columns are text). Values "
        "that do not parse are dropped.",
        "--type",
        group=TABLE,
        metavar="COLUMN=TYPE …",
    ),
]
Days: TypeAlias = Annotated[
    list[str] | None,
    option(
        "NAME=COLUMN or NAME=COLUMN:ZONE adds the dates of timestamps, such as "
        "day=at:Europe/Paris.",
        group=seldom(TABLE),
    ),
]
Derived: TypeAlias = Annotated[
    list[str] | None,
    option(
        "Add a derived column, such as 'month=month(at)' or 'left=price * 0.8'; --by and "
        "--value also accept expressions.",
        "--derive",
        group=seldom(TABLE),
        metavar="NAME=EXPRESSION",
    ),
]
Filters: TypeAlias = Annotated[
    list[str] | None,
    option(
        "Only rows that meet a condition, such as \"amount > 0 and kind = 'er'\".",
        "--filter",
        group=seldom(TABLE),
        metavar="CONDITION",
    ),
]
JoinPublic: TypeAlias = Annotated[
    list[str] | None,
    option(
        "Add the columns of a public file, joined by a common column, such as zip=areas.csv.",
        "--join-public",
        group=seldom(TABLE),
        metavar="COLUMN=FILE",
    ),
]
Join: TypeAlias = Annotated[
    list[str] | None,
    option(
        "Add the columns of the same people's rows in another file (the first row of "
        "each), with USER as its user id column.",
        "--join",
        group=seldom(TABLE),
        metavar="FILE or USER=FILE",
    ),
]
Where: TypeAlias = Annotated[
    list[str] | None,
    option(
        "COLUMN=VALUE or COLUMN=FIRST..LAST: only records of this public region are read. "
        "COLUMN= selects missing values. Repeat it for any of several values.",
        group=seldom(TABLE),
    ),
]
Mark: TypeAlias = Literal[".", ","]
Decimal: TypeAlias = Annotated[
    Mark, option("Decimal separator in columns of --type.", group=seldom(TABLE))
]
Form: TypeAlias = Literal[
    "2025-12-31", "31.12.2025", "31/12/2025", "31-12-2025", "12/31/2025", "20251231"
]
Dates: TypeAlias = Annotated[Form, option("Date format in columns of --type.", group=seldom(TABLE))]
Engine: TypeAlias = Annotated[
    Literal["duckdb", "in_memory", "spark"],
    option(
        "Engine that reads the rows; spark is for tables larger than one machine.",
        group=seldom(TABLE),
    ),
]
Master: TypeAlias = Annotated[
    str | None,
    option(
        "With --engine spark: address of the cluster, such as spark://host:7077, local[4], "
        "or sc://host of Spark Connect.",
        group=seldom(TABLE),
        metavar="ADDRESS",
    ),
]
Check: TypeAlias = Annotated[
    bool,
    option("Only count invalid values, for internal use: NOT private.", "--check", group=TABLE),
]
Ledger: TypeAlias = Annotated[
    str | None,
    option("Charge the release to a ledger file or address.", group=PROMISE, metavar="LEDGER"),
]
Memory: TypeAlias = Annotated[
    str, option("Working memory, such as 1GB.", group=seldom(TABLE), metavar="SIZE")
]

Cell: TypeAlias = Annotated[
    str | None,
    option("Column of cells, or a file that maps items to cells.", group=PROMISE, metavar="COLUMN"),
]

# ------------------------------------------------------------------------------------- the output

TopOrAll: TypeAlias = Annotated[
    int | None,
    option(
        "Number of estimates to print; by default 20, or 40 if they have an order.",
        "--top",
        group=RESULTS,
        min=1,
    ),
]
Top: TypeAlias = Annotated[
    int, option("Number of estimates to print.", "--top", group=RESULTS, min=1)
]
Output: TypeAlias = Annotated[
    Path | None, option("Write all estimates: .parquet, .csv or .json.", group=RESULTS)
]
Report: TypeAlias = Annotated[Path | None, option("Write an HTML report.", group=RESULTS)]
Save: TypeAlias = Annotated[
    Path | None, option("Save the release with its guarantee (.parquet).", group=seldom(RESULTS))
]
Plot: TypeAlias = Annotated[
    Path | None, option("Draw the release: .png, .svg or .pdf.", group=RESULTS)
]
Json: TypeAlias = Annotated[bool, option("Print JSON, for programs.", "--json", group=RESULTS)]


def clip_of(text: str) -> Any:
    """Return the value of ``--clip``: a number or ``"auto"``."""
    return text if text == "auto" else number("--clip", text, "a number or 'auto'")


def number(flag: str, text: str, kind: str) -> float:
    """Return a number, or raise an error that an option must be of this kind."""
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"{flag} must be {kind}, not {text!r}.") from None


def level_of(level: Level | None, element: str | None, max_elements: int | None) -> Level:
    """Return the protected level, by ``--unit``, ``--element`` and ``--max-elements``."""
    if level is None and element is None:
        raise ParameterError(
            "Choose what to protect: pass --element COLUMN, --unit user or --unit record."
        )
    if max_elements is not None and level != "user":
        raise ParameterError("--max-elements requires --unit user.")
    return level or "element"


def columns_of(texts: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the columns listed by texts such as ``a,b``; names and expressions may contain commas.

    >>> columns_of(["a,b", "c, d", "if(a > 1, a, 0)"], ["a", "b", "c, d"])
    ['a', 'b', 'c, d', 'if(a > 1, a, 0)']
    """
    names: list[str] = []
    for text in texts:
        parts = [name.strip() for name in text.split(",")]
        is_expression = _BRACKETS.search(text) and not all(part in known for part in parts)
        names += [text] if text in known or is_expression else parts
    return names
