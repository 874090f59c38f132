"""``dpgrain mean --columns`` publishes the mean of users' vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpgrain._files import check_outputs
from dpgrain._later import later
from dpgrain._wording import first_repeated
from dpgrain.cli.document import mean_as_json, tell_json
from dpgrain.cli.options import columns_of
from dpgrain.cli.printing import console, grid, plain, say, written
from dpgrain.cli.table import tell_curator
from dpgrain.errors import ParameterError

if TYPE_CHECKING:
    from dpgrain.cli.statistics import OfNumbers
    from dpgrain.means import methods
    from dpgrain.means.of_users import MeanOfUsers
    from dpgrain.releases import columns as of_columns
    from dpgrain.releases import writing
    from dpgrain.tables.table import UserTable
else:
    of_columns, writing = later("dpgrain.releases.columns"), later("dpgrain.releases.writing")
    methods = later("dpgrain.means.methods")

# Parameters of ``dpgrain mean`` for ``--columns`` only; those after them go with it as well.
_OWN = ("columns", "bound", "radius", "method")
_SHARED = (
    "source",
    "epsilon",
    "delta",
    "user",
    "unit",
    "relation",
    "n_users",
    "delimiter",
    "types",
    "decimal",
    "where",
    "engine",
    "master",
    "check",
    "ledger",
    "top",
    "output",
    "as_json",
)
_ENDINGS = (".json", ".csv", ".parquet")
# Digits after the point that are shown, at most; smaller numbers are written with powers of ten.
_MOST_DIGITS = 12


def check_options(given: Sequence[str]) -> None:
    """Refuse options of ``--columns`` without it, and others with it.

    Args:
        given: the names of the parameters that were stated.

    Raises:
        ParameterError: if options do not go together.
    """
    if "columns" not in given and "value" not in given:
        raise ParameterError(
            "Give --value, a column of numbers; or --columns and --bound, for the mean of vectors."
        )
    if "columns" not in given:
        if wrong := [name for name in given if name in _OWN]:
            raise ParameterError(f"{_option(wrong[0])} goes with --columns, not with --value.")
        return
    if wrong := [name for name in given if name not in (*_OWN, *_SHARED)]:
        raise ParameterError(f"{_option(wrong[0])} goes with --value, not with --columns.")
    if "bound" not in given and "check" not in given:
        raise ParameterError(
            "Give --bound: a public bound on the norm of a row of --columns, such as --bound 10."
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def run(asked: OfNumbers, table: UserTable, columns: Sequence[str], **options: Any) -> None:
    """Publish the mean of users' vectors; or, with ``--check``, tell the curator of bad values.

    Args:
        asked: the options of every statistic.
        table: the table, whose user column says whose the rows are.
        columns: the names of columns, some of them several with commas in between.
        options: the options of :func:`~dpgrain.mean_of_users`.

    Raises:
        ParameterError: if options do not go together, or a value is out of range.
    """
    names = _named(columns, table)
    if asked.check:
        tell_curator(table, as_json=asked.as_json, values=names)
        return
    _check(asked, table)
    table.require_numbers(names, "--columns", also=["BOOLEAN"])
    with asked.charging():
        result = of_columns.mean_of_columns(
            table,
            names,
            epsilon=asked.epsilon,
            delta=asked.delta,
            relation=asked.relation,
            n_users=asked.n_users,
            **options,
        )
    if asked.output is not None:
        writing.write_mean(result, names, asked.output)
    if asked.as_json:
        tell_json(mean_as_json(result, names), asked.output)
        return
    _tell(result, names, asked.top)
    written(asked.output)


def _check(asked: OfNumbers, table: UserTable) -> None:
    """Refuse options that are missing, or do not go with ``--columns``, before rows are read."""
    if asked.unit != "user":
        raise ParameterError(
            "--columns goes with --unit user: each user has one vector in the mean."
        )
    if table.user is None:
        raise ParameterError("--unit user needs --user: the column of whose a row is.")
    if asked.epsilon is None:
        raise ParameterError("Give --epsilon, such as --epsilon 1.")
    if not asked.delta:
        raise ParameterError("Give --delta, such as --delta 1e-6.")
    if asked.output is not None and asked.output.suffix.lower() not in _ENDINGS:
        raise ParameterError(
            f"--output must end in {', '.join(_ENDINGS)}, not {str(asked.output)!r}."
        )
    check_outputs([asked.output])


def _named(columns: Sequence[str], table: UserTable) -> list[str]:
    """Return the columns that ``--columns`` names, each once, that of users not among them."""
    names = columns_of(columns, list(table.schema))
    if (twice := first_repeated(names)) is not None:
        raise ParameterError(f"--columns {twice!r} is given twice; leave one of them out.")
    for name in names:
        table.require(name, "--columns")
        if name == table.user:
            raise ParameterError(f"--columns {name!r} is the column of --user; leave it out.")
    return names


def _tell(found: MeanOfUsers, names: list[str], top: int) -> None:
    """Print the mean, or that there is none, and the promise."""
    if all(map(math.isfinite, found.value)):
        _tell_numbers(found, names, top)
    else:
        say(
            "There is no mean: too few users lie close together. State a larger --radius, or another "
            "--method.",
            style="yellow",
        )
    say(f"Method: {found.method}, {found.reason}.")
    say(str(found.guarantee))


def _tell_numbers(found: MeanOfUsers, names: list[str], top: int) -> None:
    table = grid(
        f"The mean of users: {min(top, len(names)):,} of {len(names):,} columns",
        "column",
        "mean",
        "± noise",
    )
    # Numbers show two digits of the noise.
    digits = max(0, 1 - math.floor(math.log10(found.std_error)))
    for name, value in list(zip(names, found.value, strict=True))[:top]:
        shown = (
            f"{number:,.{digits}f}" if digits <= _MOST_DIGITS else f"{number:.6g}"
            for number in (value, found.std_error)
        )
        table.add_row(plain(name), *shown)
    console().print(table)
    if len(names) > top:
        say("All of them: --output FILE, or a larger --top.")
    centre = methods.method_of(found.method).centre or "0"
    say(
        f"Users count in full up to {found.radius:.3g} from {centre}. What was found "
        f"is {found.off}."
    )
