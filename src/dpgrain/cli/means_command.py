"""Command ``dpgrain mean-of-users``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import dpgrain as dg
from dpgrain._files import atomic_write, check_outputs
from dpgrain._formatting import first_duplicate
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import command
from dpgrain.cli.document import finish, mean_as_json
from dpgrain.cli.input_table import PublishingOptions, print_check
from dpgrain.cli.options import ParameterOption, columns_of
from dpgrain.cli.parameter_options import options_of
from dpgrain.cli.printing import print_guarantee, say
from dpgrain.cli.spelling import spelled_inside
from dpgrain.errors import ParameterError
from dpgrain.publishing.parameters import parameters_of
from dpgrain.releases.functions import FUNCTIONS, endings

if TYPE_CHECKING:
    from dpgrain.releases import outputs, table_queries
    from dpgrain.words import mean_text
else:
    mean_text = lazy_import("dpgrain.words.mean_text")
    table_queries = lazy_import("dpgrain.releases.table_queries")
    outputs = lazy_import("dpgrain.releases.outputs")

# Parameters that the table determines, or that are not offered.
_ELSEWHERE = ("table", "X", "users", "share", "n_users", "dimension", "random_state")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MeanOptions(PublishingOptions):
    """Options other than the parameters of a mean: the rows and the output."""

    source: given.Table
    user: given.User = None
    n_users: given.Users = None
    top: given.Top = 20
    output: given.Output = None


def _options() -> list[ParameterOption]:
    # --check needs no bound.
    return options_of(
        replace(one, default=None if one.required else one.default)
        for home in FUNCTIONS["statistic"]["mean_of_users"]
        for one in parameters_of(*home).values()
        if one.name not in _ELSEWHERE
    )


@command(
    "dpgrain mean-of-users days.parquet --user person --columns steps,sleep,pulse --bound 20000 "
    "--epsilon 1 --delta 1e-6 --output mean.json",
)
def mean_of_users(rest: MeanOptions, stated: Annotated[dict[str, Any], _options]) -> None:
    """Publish the mean of users' vectors."""
    table = rest.read(rest.source, user=rest.user, n_users=rest.n_users)
    names = _checked(stated.pop("columns", []), table)
    if rest.check:
        print_check(table, zero=names)
        return
    _check(table, stated, rest.output)
    table.require_numbers(names, "--columns", also=["BOOLEAN"])
    with rest.charging():
        mean = table_queries.mean_of_columns(table, names, n_users=rest.n_users, **stated)
    if rest.output is not None:
        with atomic_write(rest.output, promise=mean.guarantee.to_dict()) as part:
            outputs.write_mean(mean, names, part)
    for line in mean_text.lines(mean, names, rest.top):
        say(spelled_inside(line).replace("all: .value", "all: --output FILE, or a larger --top"))
    say(f"Method: {mean.method}, {mean.reason}.")
    has_it = rest.output is not None and rest.output.suffix.lower() == ".json"
    print_guarantee(mean.guarantee, rest.output if has_it else None)
    finish(lambda: mean_as_json(mean, names), rest.output)


def _check(table: dg.UserTable, stated: dict[str, Any], output: Path | None) -> None:
    """Raise if required options are missing, before rows are read."""
    if table.user is None:
        raise ParameterError("Pass --user, the user id column.")
    if "bound" not in stated:
        raise ParameterError(
            "Pass --bound, a public bound on the norm of a row of --columns, such as --bound 10."
        )
    if "epsilon" not in stated:
        raise ParameterError("Pass --epsilon, such as --epsilon 1.")
    if not stated["delta"]:
        raise ParameterError("Pass --delta, such as --delta 1e-6.")
    suited = endings("statistic", "mean_of_users")
    if output is not None and output.suffix.lower() not in suited:
        raise ParameterError(f"--output must end in {', '.join(suited)}, not {str(output)!r}.")
    check_outputs([output])


def _checked(columns: Sequence[str], table: dg.UserTable) -> list[str]:
    """Return the columns of ``--columns``, without repetitions and the user id."""
    names = columns_of(columns, table.schema)
    if not names:
        raise ParameterError(
            "Pass --columns, the columns of the vectors, such as --columns steps,sleep."
        )
    if (twice := first_duplicate(names)) is not None:
        raise ParameterError(f"--columns {twice!r} is passed twice; remove one.")
    for name in names:
        table.require(name, "--columns")
        if name == table.user:
            raise ParameterError(f"--columns {name!r} is the column of --user; omit it.")
    return names
