"""The options that commands have in common, each defined once, and the readers of their texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import typer

from dpgrain.cli.command import CLIPPING, PEOPLE, PROMISE, RESULTS, TABLE, seldom
from dpgrain.errors import ParameterError
from dpgrain.units import Law, Level, Relation

# An option may have to be given for one command and not for another.
Stated = TypeVar("Stated")

# ------------------------------------------------------------------------------------ the promise

Epsilon: TypeAlias = Annotated[
    Stated,
    typer.Option(
        metavar="ε",
        help="Privacy parameter ε, such as 1; smaller protects more.",
        rich_help_panel=PROMISE,
    ),
]
Delta: TypeAlias = Annotated[
    Stated,
    typer.Option(metavar="δ", help="Privacy parameter δ, such as 1e-6.", rich_help_panel=PROMISE),
]
Neighbours: TypeAlias = Annotated[
    Relation,
    typer.Option(
        help="Neighbouring data: a unit removed, or replaced by another.",
        rich_help_panel=seldom(PROMISE),
    ),
]
Protected: TypeAlias = Annotated[
    Level, typer.Option("--unit", help="What to protect.", rich_help_panel=PROMISE)
]
ProtectedOrElement: TypeAlias = Annotated[
    Level | None,
    typer.Option(
        "--unit",
        help="What to protect: one row, one user's records in one cell, or all of a user's "
        "records.",
        rich_help_panel=PROMISE,
    ),
]
MaxElements: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="With --unit user: maximum number of a user's elements used.",
        rich_help_panel=seldom(PROMISE),
    ),
]
MaxItems: TypeAlias = Annotated[
    int,
    typer.Option(
        help="Maximum number of one unit's items used in selection.",
        min=1,
        rich_help_panel=seldom(CLIPPING),
    ),
]
Noise: TypeAlias = Annotated[
    Law,
    typer.Option(help="Noise distribution.", rich_help_panel=seldom(PROMISE)),
]

# -------------------------------------------------------------------------------------- the table

Table: TypeAlias = Annotated[
    str, typer.Argument(help="Parquet or CSV file, a folder, or a glob in quotes.", metavar="TABLE")
]
Named: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NAME",
        help="Database table; TABLE is then postgresql://… without a password, or env:VARIABLE.",
        rich_help_panel=seldom(TABLE),
    ),
]
Query: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Database query instead of --table; requires --rows 'as given'.",
        rich_help_panel=seldom(TABLE),
    ),
]
RowsAs: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--rows",
        metavar="'as given'",
        help="Accept the rows of a query. The guarantee then assumes that no user's rows affect "
        "other users' rows.",
        rich_help_panel=seldom(TABLE),
    ),
]
User: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="User id column.", rich_help_panel=TABLE),
]
Users: TypeAlias = Annotated[
    int | None, typer.Option(help="Public number of enrolled users.", rich_help_panel=TABLE)
]
Cells: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=COLUMN:FILE adds a column of cells; FILE has a value and its cell per row.",
        rich_help_panel=seldom(TABLE),
    ),
]
PerUser: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=EXPRESSION over all of a user's rows, such as \"er=any(kind = 'er')\" or "
        "'each=total(paid) / count()'; or NAME=count, NAME=COLUMN:FUNCTION.",
        rich_help_panel=seldom(PEOPLE),
    ),
]
PerUserBy: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN …",
        help="Column to keep, with one row per value.",
        rich_help_panel=seldom(PEOPLE),
    ),
]
PerUserFilter: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Only users that meet a condition, such as 'visits > 2'.",
        rich_help_panel=seldom(PEOPLE),
    ),
]
Delimiter: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="MARK",
        help="CSV delimiter, if not a comma; '\\t': tab.",
        show_default=False,
        rich_help_panel=TABLE,
    ),
]
Types: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="COLUMN=TYPE …",
        help="Type of a text column, such as paid=double (all CSV columns are text). Values "
        "that do not parse are dropped.",
        rich_help_panel=TABLE,
    ),
]
Days: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=COLUMN or NAME=COLUMN:ZONE adds the dates of timestamps, such as "
        "day=at:Europe/Paris.",
        rich_help_panel=seldom(TABLE),
    ),
]
Derived: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--derive",
        metavar="NAME=EXPRESSION",
        help="Add a derived column, such as 'month=month(at)' or 'left=price * 0.8'; --by and "
        "--value also accept expressions.",
        rich_help_panel=seldom(TABLE),
    ),
]
Filters: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="CONDITION",
        help="Only rows that meet a condition, such as \"amount > 0 and kind = 'er'\".",
        rich_help_panel=seldom(TABLE),
    ),
]
JoinPublic: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--join-public",
        metavar="COLUMN=FILE",
        help="Add the columns of a public file, joined by a common column, such as zip=areas.csv.",
        rich_help_panel=seldom(TABLE),
    ),
]
Join: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--join",
        metavar="FILE or USER=FILE",
        help="Add the columns of the same people's rows in another file (the first row of "
        "each), with USER as its user id column.",
        rich_help_panel=seldom(TABLE),
    ),
]
Where: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="COLUMN=VALUE or COLUMN=FIRST..LAST: only records of this public region are read. "
        "COLUMN= selects missing values. Repeat it for any of several values.",
        rich_help_panel=seldom(TABLE),
    ),
]
Mark: TypeAlias = Literal[".", ","]
Decimal: TypeAlias = Annotated[
    Mark,
    typer.Option(help="Decimal separator in columns of --type.", rich_help_panel=seldom(TABLE)),
]
Form: TypeAlias = Literal[
    "2025-12-31", "31.12.2025", "31/12/2025", "31-12-2025", "12/31/2025", "20251231"
]
Dates: TypeAlias = Annotated[
    Form,
    typer.Option(help="Date format in columns of --type.", rich_help_panel=seldom(TABLE)),
]
Engine: TypeAlias = Annotated[
    Literal["duckdb", "spark"],
    typer.Option(
        help="Engine that reads the rows; spark is for tables larger than one machine.",
        rich_help_panel=seldom(TABLE),
    ),
]
Master: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="With --engine spark: address of the cluster, such as spark://host:7077, local[4], "
        "or sc://host of Spark Connect.",
        rich_help_panel=seldom(TABLE),
    ),
]
Check: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Only count invalid values, for internal use: NOT private.",
        rich_help_panel=TABLE,
    ),
]
Ledger: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LEDGER",
        help="Charge the release to this ledger, a file or an address.",
        rich_help_panel=PROMISE,
    ),
]
Memory: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="SIZE", help="Working memory, such as 1GB.", rich_help_panel=seldom(TABLE)
    ),
]

Cell: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of cells, or a file that maps items to cells.",
        rich_help_panel=PROMISE,
    ),
]

# --------------------------------------------------------------------------------------- the ends

TopOrAll: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--top",
        help="Number of estimates to print; by default 20, or 40 if they have an order.",
        min=1,
        rich_help_panel=RESULTS,
    ),
]
Top: TypeAlias = Annotated[
    int, typer.Option("--top", help="Number of estimates to print.", min=1, rich_help_panel=RESULTS)
]
Output: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Write all estimates: .parquet, .csv or .json.", rich_help_panel=RESULTS),
]
Report: TypeAlias = Annotated[
    Path | None, typer.Option(help="Write an HTML report.", rich_help_panel=RESULTS)
]
Save: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="Save the release with its guarantee (.parquet).", rich_help_panel=seldom(RESULTS)
    ),
]
Plot: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Draw the release: .png, .svg or .pdf.", rich_help_panel=RESULTS),
]
Json: TypeAlias = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, for programs.", rich_help_panel=RESULTS),
]


def clip_of(text: str) -> Any:
    """Return the clipping bound that ``--clip`` states: a number, or ``"auto"``.

    Raises:
        ParameterError: if it is neither.
    """
    return text if text == "auto" else number("--clip", text, "a number or 'auto'")


def number(option: str, text: str, kind: str) -> float:
    """Return the number that a text is.

    Args:
        option: the option that states it.
        text: the text.
        kind: the words for what the option must be, in messages.

    Raises:
        ParameterError: if the text is no number.
    """
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"{option} must be {kind}, not {text!r}.") from None


def level_of(level: Level | None, element: str | None, max_elements: int | None) -> Level:
    """Return the level that is protected, by the options that say so.

    Raises:
        ParameterError: if none does, or if ``--max-elements`` is stated for another unit than users.
    """
    if level is None and element is None:
        raise ParameterError(
            "Choose what to protect: pass --element COLUMN, --unit user or --unit record."
        )
    if max_elements is not None and level != "user":
        raise ParameterError("--max-elements requires --unit user.")
    return level or "element"


def columns_of(texts: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the columns that texts such as ``a,b`` name; a column's own name may have a comma.

    Args:
        texts: the texts that were stated.
        known: the columns of the table.
    """
    names: list[str] = []
    for text in texts:
        names += [text] if text in known else [name.strip() for name in text.split(",")]
    return names
