"""How commands open a table, and what they tell its curator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from dpgrain.errors import ParameterError
from dpgrain.terminal import console

if TYPE_CHECKING:
    from dpgrain.tables.table import UserTable

Mark: TypeAlias = Literal[".", ","]

Delimiter: TypeAlias = Annotated[str, typer.Option(help="Delimiter of a CSV file.")]
Types: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        help="COLUMN=TYPE, or A,B,C=TYPE: what a column of text holds, such as paid=double; what does "
        "not fit is left out. All columns of CSV are text without it. May repeat.",
    ),
]
Decimal: TypeAlias = Annotated[
    Mark, typer.Option(help="What stands before decimals in a column of --type.")
]
Check: TypeAlias = Annotated[
    bool, typer.Option("--check", help="Only list bad values, for the curator: NOT private.")
]


def opened(
    source: str,
    *,
    user: str | None = None,
    n_users: int | None = None,
    memory: str = "1GB",
    delimiter: str = ",",
    types: Sequence[str] | None = None,
    decimal: Mark = ".",
    cells: Sequence[str] | None = None,
) -> UserTable:
    """The table of a command.

    Args:
        source: the file or glob.
        user: as for :func:`dpgrain.read`, as are the arguments not named here.
        n_users: see there.
        memory: see there.
        delimiter: see there.
        types: texts COLUMN=TYPE.
        decimal: see there.
        cells: texts NAME=COLUMN:FILE, each a column of cells.

    Raises:
        ParameterError: if a text is not of its form.
        DpgrainError: as :func:`dpgrain.read`.
    """
    from dpgrain.tables.table import read

    def reading(stated: dict[str, str], **more: Any) -> UserTable:
        return read(source, types=stated, delimiter=delimiter, **more)

    stated: dict[str, str] = {}
    if types:
        columns = reading({}).schema
        for text in types:
            names, equals, kind = text.rpartition("=")
            if not (names and equals and kind):
                raise ParameterError(
                    f"--type must be COLUMN=TYPE, such as paid=double, not {text!r}."
                )
            # A column may have a comma in its name.
            for name in [names] if names in columns else names.split(","):
                stated[name.strip()] = kind
    table = reading(stated, user=user, n_users=n_users, memory=memory, decimal=decimal)
    for text in cells or []:
        name, _, rest = text.partition("=")
        column, _, path = rest.partition(":")
        if not (name and column and path):
            raise ParameterError(f"--cells must be NAME=COLUMN:FILE, not {text!r}.")
        table = table.with_cells(name, column, Path(path))
    return table


def tell_curator(
    table: UserTable,
    *,
    items: Sequence[str] = (),
    weight: str | None = None,
    values: Sequence[str] = (),
    bounds: tuple[float, float] | None = None,
    domain: Any = None,
) -> None:
    """Print what :meth:`~dpgrain.UserTable.check` tells; arguments as there."""
    if not items:
        domain = None
    told = table.check(items, weight, value=values, bounds=bounds, domain=domain)
    console().print(told, markup=False, highlight=False)
