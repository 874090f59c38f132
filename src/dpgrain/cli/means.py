"""``dpgrain mean-of-users`` publishes the mean of users' vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._files import check_outputs
from dpgrain._formatting import first_duplicate
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.declared import declared
from dpgrain.cli.document import mean_as_json, tell_json
from dpgrain.cli.doors import made_of, options_of
from dpgrain.cli.options import columns_of
from dpgrain.cli.printing import say, tell_guarantee, written
from dpgrain.cli.spelling import spelled_inside
from dpgrain.cli.table import Publishing, tell_curator
from dpgrain.errors import ParameterError
from dpgrain.publishing.parameters import Parameter

if TYPE_CHECKING:
    from dpgrain.means.of_users import MeanOfUsers
    from dpgrain.releases import columns as of_columns
    from dpgrain.releases import writing
    from dpgrain.tables.table import UserTable
else:
    of_columns = lazy_import("dpgrain.releases.columns")
    writing = lazy_import("dpgrain.releases.writing")

# Parameters that the table states, or that a command does not take.
_ELSEWHERE = ("X", "users", "share", "n_users", "dimension", "random_state")
_COLUMNS = Parameter(
    "columns", list[str] | str, None, "columns of the vectors, such as a,b,c, one per coordinate."
)
_ENDINGS = (".json", ".csv", ".parquet")


@dataclass(frozen=True, kw_only=True)
class Asked(Publishing):
    """The options beside the parameters of a mean: the rows, and where the release goes."""

    source: given.Table
    user: given.User = None
    n_users: given.Users = None
    top: given.Top = 20
    output: given.Output = None

    def run(self, stated: dict[str, Any]) -> None:
        """Publish the mean of users' vectors; or, with ``--check``, show the curator bad values.

        Args:
            stated: the parameters, as options state them.

        Raises:
            ParameterError: if options are missing, or a value is out of range.
        """
        table = self.read(self.source, user=self.user, n_users=self.n_users)
        columns = stated.pop("columns", [])
        names = _named([columns] if isinstance(columns, str) else columns, table)
        if self.check:
            tell_curator(table, as_json=self.as_json, zero=names)
            return
        self._check(table, stated)
        table.require_numbers(names, "--columns", also=["BOOLEAN"])
        with self.charging():
            result = of_columns.mean_of_columns(table, names, n_users=self.n_users, **stated)
        if self.output is not None:
            writing.write_mean(result, names, self.output)
        if self.as_json:
            tell_json(mean_as_json(result, names), self.output)
            return
        has_it = self.output is not None and self.output.suffix.lower() == ".json"
        _tell(result, names, self.top, self.output if has_it else None)
        written(self.output)

    def _check(self, table: UserTable, stated: dict[str, Any]) -> None:
        """Refuse options that are missing, before rows are read."""
        if table.user is None:
            raise ParameterError("Pass --user, the user id column.")
        if "bound" not in stated:
            raise ParameterError(
                "Pass --bound, a public bound on the norm of a row of --columns, such as "
                "--bound 10."
            )
        if "epsilon" not in stated:
            raise ParameterError("Pass --epsilon, such as --epsilon 1.")
        if not stated["delta"]:
            raise ParameterError("Pass --delta, such as --delta 1e-6.")
        if self.output is not None and self.output.suffix.lower() not in _ENDINGS:
            raise ParameterError(
                f"--output must end in {', '.join(_ENDINGS)}, not {str(self.output)!r}."
            )
        check_outputs([self.output])


class _MeanCommand:
    """The command of a mean of users."""

    summary = "Publish the mean of users' vectors."

    def made(self) -> Any:
        """Return the command as the parser of options knows it."""
        known = [
            # --check needs no bound.
            Parameter(one.name, one.hint, None if one.needed else one.default, one.text)
            for one in declared("dpgrain.means.of_users", "mean_of_users").values()
            if one.name not in _ELSEWHERE
        ]
        return made_of(
            "mean-of-users",
            self.summary,
            Asked,
            options_of([_COLUMNS, *known]),
            Asked.run,
            "dpgrain mean-of-users days.parquet --user person --columns steps,sleep,pulse --bound "
            "20000 --epsilon 1 --delta 1e-6 --output mean.json",
        )


mean_of_users = _MeanCommand()


def _named(columns: Sequence[str], table: UserTable) -> list[str]:
    """Return the columns that ``--columns`` names, each once, that of users not among them."""
    names = columns_of(columns, list(table.schema))
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


def _tell(found: MeanOfUsers, names: list[str], top: int, kept: Path | None) -> None:
    """Print the mean, or that there is none, and the guarantee: in full, unless a file has it."""
    for line in found.lines(names, top):
        say(spelled_inside(line).replace("all: .value", "all: --output FILE, or a larger --top"))
    say(f"Method: {found.method}, {found.reason}.")
    tell_guarantee(found.guarantee, kept)
