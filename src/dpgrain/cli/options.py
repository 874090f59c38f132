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
        metavar="ε", help="The promised ε, such as 1; less hides more.", rich_help_panel=PROMISE
    ),
]
Delta: TypeAlias = Annotated[
    Stated,
    typer.Option(metavar="δ", help="The promised δ, such as 1e-6.", rich_help_panel=PROMISE),
]
Neighbours: TypeAlias = Annotated[
    Relation,
    typer.Option(
        help="Neighbours: a unit removed, or exchanged for another.",
        rich_help_panel=seldom(PROMISE),
    ),
]
Protected: TypeAlias = Annotated[
    Level, typer.Option("--unit", help="What is protected.", rich_help_panel=PROMISE)
]
ProtectedOrElement: TypeAlias = Annotated[
    Level | None,
    typer.Option(
        "--unit",
        help="Protected is a row, a user's cell, or a user.",
        rich_help_panel=PROMISE,
    ),
]
MaxElements: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="With --unit user: elements of a user that are used.",
        rich_help_panel=seldom(PROMISE),
    ),
]
MaxItems: TypeAlias = Annotated[
    int,
    typer.Option(
        help="Items of one unit that take part in selecting.",
        min=1,
        rich_help_panel=seldom(CLIPPING),
    ),
]
Noise: TypeAlias = Annotated[
    Law,
    typer.Option(help="Law of the noise.", rich_help_panel=seldom(PROMISE)),
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
        help="Table of a database: TABLE is postgresql://… without a password, or env:VARIABLE.",
        rich_help_panel=seldom(TABLE),
    ),
]
Query: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Query of a database, in place of --table, which needs --rows 'as given'.",
        rich_help_panel=seldom(TABLE),
    ),
]
RowsAs: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--rows",
        metavar="'as given'",
        help="Rows are as a query made them, who may decide over those of others; the promise says so.",
        rich_help_panel=seldom(TABLE),
    ),
]
User: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column that says whose each record is.", rich_help_panel=TABLE
    ),
]
Users: TypeAlias = Annotated[
    int | None, typer.Option(help="Public number of enrolled users.", rich_help_panel=TABLE)
]
Cells: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=COLUMN:FILE adds a column of cells: FILE has a value and its cell in a row.",
        rich_help_panel=seldom(TABLE),
    ),
]
PerUser: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=EXPRESSION of all of a user's rows, such as \"er=any(kind = 'er')\" or "
        "'each=total(paid) / count()'; or NAME=count, NAME=COLUMN:FUNCTION.",
        rich_help_panel=seldom(PEOPLE),
    ),
]
PerUserBy: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN …",
        help="Column to keep, with a row for each value.",
        rich_help_panel=seldom(PEOPLE),
    ),
]
PerUserFilter: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Only users for whom a condition of their numbers is true, such as 'visits > 2'.",
        rich_help_panel=seldom(PEOPLE),
    ),
]
Delimiter: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="MARK",
        help=r"Mark between columns of CSV, where not a comma; '\t': tab.",
        show_default=False,
        rich_help_panel=TABLE,
    ),
]
Types: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="COLUMN=TYPE …",
        help="Type of columns of text, as all of CSV are, such as paid=double; what does not fit is "
        "left out.",
        rich_help_panel=TABLE,
    ),
]
Days: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=COLUMN or NAME=COLUMN:ZONE adds a column of days of times, such as "
        "day=at:Europe/Paris.",
        rich_help_panel=seldom(TABLE),
    ),
]
Derived: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--derive",
        metavar="NAME=EXPRESSION",
        help="Add a column made of others, such as 'month=month(at)' or 'left=price * 0.8'; --by and "
        "--value take expressions, too.",
        rich_help_panel=seldom(TABLE),
    ),
]
Filters: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="CONDITION",
        help="Only rows for which a condition is true, such as \"amount > 0 and kind = 'er'\".",
        rich_help_panel=seldom(TABLE),
    ),
]
JoinPublic: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--join-public",
        metavar="COLUMN=FILE",
        help="Add the columns of a public file, found by a column that both have, such as "
        "zip=areas.csv.",
        rich_help_panel=seldom(TABLE),
    ),
]
Join: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--join",
        metavar="FILE or USER=FILE",
        help="Add the columns of the same people's rows in another file (of each the first), whose "
        "column of users is USER.",
        rich_help_panel=seldom(TABLE),
    ),
]
Where: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="COLUMN=VALUE or COLUMN=FIRST..LAST: only records of this public region are read. "
        "COLUMN= means missing values. Given again: any of the values.",
        rich_help_panel=seldom(TABLE),
    ),
]
Mark: TypeAlias = Literal[".", ","]
Decimal: TypeAlias = Annotated[
    Mark,
    typer.Option(
        help="What stands before decimals in a column of --type.", rich_help_panel=seldom(TABLE)
    ),
]
Form: TypeAlias = Literal[
    "2025-12-31", "31.12.2025", "31/12/2025", "31-12-2025", "12/31/2025", "20251231"
]
Dates: TypeAlias = Annotated[
    Form,
    typer.Option(help="How days are written in a column of --type.", rich_help_panel=seldom(TABLE)),
]
Engine: TypeAlias = Annotated[
    Literal["duckdb", "in_memory", "spark"],
    typer.Option(
        help="What reads the rows; spark is for tables beyond one machine.",
        rich_help_panel=seldom(TABLE),
    ),
]
Master: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="With --engine spark: the address of the cluster, such as spark://host:7077, local[4], or "
        "sc://host of Spark Connect.",
        rich_help_panel=seldom(TABLE),
    ),
]
Check: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Only count bad values, for the curator: NOT private.",
        rich_help_panel=TABLE,
    ),
]
Ledger: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LEDGER",
        help="Charge it to this ledger, a file or an address.",
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
        help="Column of cells, or a file of item and cell.",
        rich_help_panel=PROMISE,
    ),
]

# --------------------------------------------------------------------------------------- the ends

TopOrAll: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--top",
        help="Estimates to print; 20 without it, and 40 where they have an order.",
        min=1,
        rich_help_panel=RESULTS,
    ),
]
Top: TypeAlias = Annotated[
    int, typer.Option("--top", help="Estimates to print.", min=1, rich_help_panel=RESULTS)
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
            "Say what is protected: --element COLUMN, --unit user or --unit record."
        )
    if max_elements is not None and level != "user":
        raise ParameterError("--max-elements goes with --unit user.")
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
