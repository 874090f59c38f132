"""The commands that publish a statistic of a table: each is made from the statistic's parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain import statistics
from dpgrain._files import check_outputs, check_page, exists
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.declared import declared, docstring
from dpgrain.cli.document import release_as_json, tell_json
from dpgrain.cli.doors import Option, made_of, options_of
from dpgrain.cli.options import level_of
from dpgrain.cli.printing import say, tell_release, write_plot, written
from dpgrain.cli.table import People, Publishing, domain_of, tell_curator, with_cells
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.publishing.parameters import Parameter
from dpgrain.units import Element, Record, Unit, User

if TYPE_CHECKING:
    from dpgrain.statistics import release as releases
    from dpgrain.statistics.release import Release
    from dpgrain.tables.table import UserTable
else:
    releases = lazy_import("dpgrain.statistics.release")

# Endings of pictures.
_PICTURES = (".png", ".svg", ".pdf")
# Parameters of statistics that commands ask for in other words, or decide.
_ELSEWHERE = ("table", "unit", "share", "random_state", "progress")
# Rows that are printed; of a statistic whose rows have an order, such as a distribution, twice as many.
_PRINTED = 20

# The first line of the help of each command, which a list of all shows before statistics are loaded,
# and examples.
_EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "count": (
        "Publish the number of records, overall or by group.",
        "dpgrain count visits.parquet --user person --by page --element topic --epsilon 1 --delta 1e-6",
    ),
    "sum": (
        "Publish the sum of a column, overall or by group.",
        "dpgrain sum sales.parquet --user customer --value paid --bounds 0 500 --unit user --epsilon 1 "
        "--delta 1e-6",
    ),
    "mean": (
        "Publish the mean of a column, overall or by group.",
        "dpgrain mean scores.parquet --user student --value score --bounds 0 100 --by region "
        "--unit user --epsilon 1 --delta 1e-6",
        "dpgrain mean sales.parquet --user customer --n-users 5000 --per-user spent=amount:sum "
        "--value spent --unit user --epsilon 1 --delta 1e-6",
    ),
    "variance": (
        "Publish the variance of a column, overall or by group.",
        "dpgrain variance scores.parquet --user student --value score --bounds 0 100 --unit user "
        "--epsilon 1 --delta 1e-6",
    ),
    "std": (
        "Publish the standard deviation of a column.",
        "dpgrain std scores.parquet --user student --value score --bounds 0 100 --by region "
        "--unit user --epsilon 1 --delta 1e-6",
    ),
    "covariance": (
        "Publish the covariance of two columns.",
        "dpgrain covariance scores.parquet --user student --value score --other hours --bounds 0 100 "
        "--other-bounds 0 60 --unit user --epsilon 1 --delta 1e-6",
    ),
    "correlation": (
        "Publish the correlation of two columns.",
        "dpgrain correlation scores.parquet --user student --value score --other hours --bounds 0 100 "
        "--other-bounds 0 60 --by region --unit user --epsilon 1 --delta 1e-6",
    ),
    "quantiles": (
        "Publish quantiles of a column, overall or by group.",
        "dpgrain quantiles scores.parquet --user student --value score --bounds 0 100 --q 0.5,0.9 "
        "--unit user --epsilon 1 --delta 1e-6",
    ),
    "distribution": (
        "Publish the share of numbers at or above each threshold.",
        "dpgrain distribution visits.parquet --user person --n-users 5000 --per-user visits=count "
        "--value visits --at 1,2,5,10 --unit user --epsilon 1 --delta 1e-6",
        "dpgrain distribution visits.parquet --user person --per-user visits=count --per-user-by "
        "country --by country --value visits --unit user --epsilon 1 --delta 1e-6 --report "
        "visits.html",
    ),
    "histogram": (
        "Publish how often people have each item, or how much.",
        "dpgrain histogram speeches.parquet --user speaker --item word --element topic --epsilon 1 "
        "--delta 1e-6 --report words.html",
    ),
    "top": (
        "Publish the items that most people have.",
        "dpgrain top speeches.parquet --user speaker --item word --element word --epsilon 1 "
        "--delta 1e-6 --k 50",
    ),
    "elements_per_user": (
        "Publish how many records and elements people hold.",
        "dpgrain elements-per-user visits.parquet --user person --element topic --epsilon 0.2 "
        "--delta 1e-6",
    ),
}


def __getattr__(name: str) -> StatisticCommand:
    if name not in statistics.OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return StatisticCommand(name)


@dataclass(frozen=True)
class StatisticCommand:
    """The command of a statistic.

    Args:
        statistic: the name of the statistic.
    """

    statistic: str

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters of the function that publishes it, by name."""
        return declared(statistics.OFFERED[self.statistic], self.statistic)

    @property
    def summary(self) -> str:
        """The first line of the help."""
        if self.statistic in _EXAMPLES:
            return _EXAMPLES[self.statistic][0]
        return self._paragraphs[0]

    @property
    def _paragraphs(self) -> list[str]:
        """The paragraphs of the function's docstring before its arguments."""
        text = docstring(statistics.OFFERED[self.statistic], self.statistic)
        return text.partition("Args:\n")[0].strip().split("\n\n")

    def made(self) -> Any:
        """Return the command as the parser of options knows it."""
        name, parameters = self.statistic.replace("_", "-"), self.parameters
        options = options_of(each for each in parameters.values() if each.name not in _ELSEWHERE)

        def run(asked: Asked, stated: dict[str, Any]) -> None:
            asked.run(getattr(statistics, self.statistic), stated, any_noise="noise" in parameters)

        return made_of(
            name,
            "\n\n".join([self.summary, *self._paragraphs[1:]]),
            Asked,
            options,
            run,
            *(_EXAMPLES.get(self.statistic, ())[1:] or [_example(name, options)]),
        )


def _example(name: str, options: Sequence[Option]) -> str:
    """Return an example of a command that has none of its own: what must be stated."""
    stated = " ".join(option.example for option in options if option.needed)
    return (
        f"dpgrain {name} visits.parquet --user person {stated} --unit user --epsilon 1 --delta 1e-6"
    )


@dataclass(frozen=True, kw_only=True)
class Asked(Publishing, People):
    """The options of every statistic: the rows, what is protected, and where the release goes."""

    source: given.Table
    user: given.User = None
    n_users: given.Users = None
    cells: given.Cells = None
    unit: given.ProtectedOrElement = None
    element: given.Cell = None
    max_elements: given.MaxElements = None
    top: given.TopOrAll = None
    output: given.Output = None
    report: given.Report = None
    save: given.Save = None
    plot: given.Plot = None
    memory: given.Memory = "1GB"

    def run(self, door: Callable[..., Release], stated: dict[str, Any], *, any_noise: bool) -> None:
        """Publish a statistic; or, with ``--check``, show the curator bad values.

        Args:
            door: the function of the library.
            stated: its parameters, as the options of its own state them.
            any_noise: True if the law of its noise is one of them.

        Raises:
            ParameterError, SchemaError: if options are missing, or do not go together.
        """
        table = self.table()
        keys = _listed(stated.get("by")) + _listed(stated.get("item"))
        values = _listed(stated.get("value")) + _listed(stated.get("other"))
        if stated.get("edges") is not None and "item" in stated:
            keys, values = [], keys
        if "domain" in stated:
            stated["domain"] = domain_of(stated["domain"], keys, table)
        if self.check:
            if not (keys or values) and self.element in table.schema:
                keys = _listed(self.element)
            told = {name: stated[name] for name in ("weight", "bounds", "domain") if name in stated}
            tell_curator(table, as_json=self.as_json, items=keys, values=values, **told)
            return
        unit = self.protected(table, keys)
        with _delta_is_named(stated["delta"], any_noise=any_noise):
            self.publish(door, table, unit=unit, **stated)

    def table(self) -> UserTable:
        """Return the rows, with columns of cells; or one row of each user."""
        rows = self.read(self.source, user=self.user, n_users=self.n_users, memory=self.memory)
        return self.of(with_cells(rows, self.cells or []))

    def protected(self, table: UserTable, keys: list[str]) -> Unit:
        """Return the privacy unit; ``--element`` names a column, or else a file.

        Args:
            table: the rows.
            keys: the columns that distinguish groups, to whose items the cells of a file belong.

        Raises:
            ParameterError: if options are missing, or do not go together.
            SchemaError: if there is no such column, and no such file.
        """
        level = level_of(self.unit, self.element, self.max_elements)
        if level != "record" and table.user is None:
            raise ParameterError(
                f"--unit {level} requires --user, the user id column; or use --unit record."
            )
        of_cells = level == "element" and self.element in (self.per_user_by or ())
        if self.per_user and level != "user" and not of_cells:
            raise ParameterError(
                f"--per-user requires --unit user, not {level}, because each row is derived "
                "from all of a person's data; or use elements by a column of --per-user-by."
            )
        if self.element is None and (level == "element" or self.max_elements is not None):
            raise ParameterError("Pass --element, the column of cells, such as --element page.")
        by: Any = self.element
        if by is not None and by not in table.schema and Path(by).suffix:
            if not exists(Path(by)):
                raise SchemaError(
                    f"--element {by!r} must be a column of the table or a file; {table.suggest(by)}."
                )
            if not keys:
                raise ParameterError(
                    f"--element {by!r} maps items to cells, and there are no items here; add "
                    "a column with --cells NAME=COLUMN:FILE, and pass --element NAME."
                )
            by = Path(by)
        units: dict[str, Unit] = {
            "record": Record(),
            "element": Element(by),
            "user": User(self.max_elements, by),
        }
        return units[level]

    def publish(self, door: Callable[..., Release], table: UserTable, **own: Any) -> None:
        """Check, publish, write, and only then print."""
        if own.get("epsilon") is None:
            raise ParameterError("Pass --epsilon, such as --epsilon 1.")
        if self.output is not None:
            releases.check_format(self.output)
        if self.plot is not None and self.plot.suffix.lower() not in _PICTURES:
            raise ParameterError(
                f"--plot must end in {', '.join(_PICTURES)}, not {str(self.plot)!r}."
            )
        outputs = [self.output, self.report, self.save, self.plot]
        check_outputs(outputs)
        check_page(self.report, name="--report")
        if self.save is not None and self.save.suffix.lower() != ".parquet":
            raise ParameterError(f"--save must end in .parquet, not {str(self.save)!r}.")
        with self.charging():
            release = door(table, **own)
        if self.output is not None:
            release.write(self.output)
        if self.report is not None:
            release.report(self.report)
        if self.save is not None:
            release.save(self.save)
        if self.plot is not None:
            write_plot(release.plot(), self.plot)
        if self.as_json:
            tell_json(release_as_json(release), *outputs)
            return
        ordered = release.asked.statistic.in_order
        top = self.top or _PRINTED * (2 if ordered else 1)
        tell_release(release, top, kept=self.save or self.report)
        if own["delta"] and not release.guarantee.delta:
            say(
                f"--delta {own['delta']:g} was not needed: with this noise, the guarantee has "
                "δ = 0."
            )
        written(*outputs)


@contextmanager
def _delta_is_named(delta: float, *, any_noise: bool) -> Iterator[None]:
    """Say that ``--delta`` is missing, where it is and the release needs one."""
    try:
        yield
    except ParameterError as error:
        if delta or error.name not in ("delta", "domain"):
            raise
        other = "; or --noise laplace, which needs none" if any_noise else ""
        if error.name == "domain":
            other = ", for selecting groups; or --domain, the public list of groups"
        raise ParameterError(f"Pass --delta, such as --delta 1e-6{other}.") from error


def _listed(columns: Any) -> list[str]:
    """Return the columns that an option states: none, one or several."""
    return [columns] if isinstance(columns, str) else list(columns or ())
