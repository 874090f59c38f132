"""What ``dpgrain mean --columns`` does: the mean of users' vectors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain.errors import ParameterError
from dpgrain.terminal import console, plain
from dpgrain.units import Level, Relation

if TYPE_CHECKING:
    from dpgrain.means.of_users import MeanOfUsers
    from dpgrain.tables.table import UserTable

#: The options of ``dpgrain mean`` that go with ``--columns``, by the names of their parameters.
OWN = ("columns", "bound", "radius", "method")
SHARED = (
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
    "check",
    "top",
    "output",
)
_ENDINGS = (".json", ".csv", ".parquet")
# Arguments of `mean_of_users` as its messages name them, which are options here.
_ARGUMENT = re.compile(r"\b(bound|radius|epsilon|delta|n_users)(?= =| must)")
_METHOD = re.compile(r"\bmethod='(\w+)'")


def check_options(given: list[str]) -> None:
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
    if "columns" in given:
        wrong = [name for name in given if name not in (*OWN, *SHARED)]
        if wrong:
            raise ParameterError(f"{_option(wrong[0])} goes with --value, not with --columns.")
        if "bound" not in given and "check" not in given:
            raise ParameterError(
                "Give --bound: a public bound on the norm of a row of --columns, such as --bound 10."
            )
        return
    wrong = [name for name in given if name in OWN]
    if wrong:
        raise ParameterError(f"{_option(wrong[0])} goes with --columns, not with --value.")


def publish(
    table: UserTable,
    columns: list[str],
    *,
    unit: Level | None,
    output: Path | None,
    top: int,
    **options: Any,
) -> None:
    """Check, publish, write, and only then print.

    Args:
        table: where rows come from; its user column says whose they are.
        columns: names of columns, some of them several with commas in between.
        unit: what is protected, which must be users.
        output: where the mean goes.
        top: how many numbers are printed.
        options: of :func:`~dpgrain.mean_of_users`.

    Raises:
        ParameterError: if a value is out of range, by the names of the options.
    """
    from dpgrain._files import check_outputs

    if unit != "user":
        raise ParameterError(
            "--columns goes with --unit user: each user has one vector in the mean."
        )
    if table.user is None:
        raise ParameterError("--unit user needs --user: the column of whose a row is.")
    if options["epsilon"] is None:
        raise ParameterError("Give --epsilon, such as --epsilon 1.")
    if not options["delta"]:
        raise ParameterError("Give --delta, such as --delta 1e-6.")
    if output is not None and output.suffix.lower() not in _ENDINGS:
        raise ParameterError(f"--output must end in {', '.join(_ENDINGS)}, not {str(output)!r}.")
    check_outputs([output], list(getattr(table.source, "paths", ())))
    names = named(columns, table)
    table.require_numbers(names, "--columns", also=["BOOLEAN"])
    found = _mean(table, names, options)
    if output is not None:
        _write(found, names, output)
    _tell(found, names, top)
    if output is not None:
        console().print(f"Written: {output}", markup=False, highlight=False)


def _mean(table: UserTable, names: list[str], options: dict[str, Any]) -> MeanOfUsers:
    import pandas as pd

    from dpgrain.learn.features import Encoding, Number, load_rows
    from dpgrain.means.of_users import mean_of_users

    relation: Relation = options["relation"]
    rows = load_rows(table, Encoding(tuple(Number(name) for name in names)))
    try:
        return mean_of_users(
            rows.features.to_numpy(),
            # Named, so that the promise says which column tells users apart.
            users=pd.Series(rows.users, name=table.user),
            **{**options, "relation": relation},
        )
    except ParameterError as error:
        named = _ARGUMENT.sub(lambda found: _option(found[1]), str(error))
        raise ParameterError(_METHOD.sub(r"--method \1", named)) from error


def named(columns: list[str], table: UserTable) -> list[str]:
    """The columns that ``--columns`` names.

    Raises:
        ParameterError: if one is named twice, or is that of users.
        SchemaError: if one is missing.
    """
    names: list[str] = []
    for text in columns:
        # A column may have a comma in its name.
        names += [text] if text in table.schema else [name.strip() for name in text.split(",")]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise ParameterError(f"--columns {twice[0]!r} is given twice; leave one of them out.")
    for name in names:
        table.require(name, "--columns")
        if name == table.user:
            raise ParameterError(f"--columns {name!r} is the column of --user; leave it out.")
    return names


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _write(found: MeanOfUsers, names: list[str], path: Path) -> None:
    import json

    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from dpgrain._files import whole_file

    table = pa.table(
        {"column": names, "mean": found.value, "std_error": [found.std_error] * len(names)}
    )
    with whole_file(path) as part:
        if path.suffix.lower() == ".json":
            told = {"columns": names, **found.to_dict()}
            part.write_text(json.dumps(told, ensure_ascii=False, allow_nan=False), encoding="utf-8")
        elif path.suffix.lower() == ".csv":
            pyarrow.csv.write_csv(table, part)
        else:
            pyarrow.parquet.write_table(table, part, compression="zstd")


def _tell(found: MeanOfUsers, names: list[str], top: int) -> None:
    import numpy as np
    from rich.table import Table

    from dpgrain.means.methods import method_of

    out = console()
    if np.isfinite(found.value).all():
        table = Table(
            title=f"The mean of users: {min(top, len(names)):,} of {len(names):,} columns"
        )
        table.add_column("column", overflow="fold")
        table.add_column("mean", justify="right")
        table.add_column("± noise", justify="right")
        # Two digits of the noise.
        digits = max(0, 1 - int(np.floor(np.log10(found.std_error))))
        for name, value in list(zip(names, found.value, strict=True))[:top]:
            shown = (
                f"{number:,.{digits}f}" if digits <= 12 else f"{number:.6g}"
                for number in (value, found.std_error)
            )
            table.add_row(plain(name), *shown)
        out.print(table)
        if len(names) > top:
            out.print("All of them: --output FILE, or a larger --top.", highlight=False)
        centre = method_of(found.method).centre or "0"
        out.print(
            f"Users count in full up to {found.radius:.3g} from {centre}; what is cut "
            "off beyond is not in the noise.",
            highlight=False,
        )
    else:
        out.print(
            "There is no mean: too few users lie close together. State a larger --radius, or another "
            "--method.",
            style="yellow",
            highlight=False,
        )
    out.print(f"Method: {found.method}, {found.reason}.", markup=False, highlight=False)
    out.print(str(found.guarantee), markup=False, highlight=False)
