"""The commands that publish a statistic of a table: histogram, top, count, sum, mean, and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from dpgrain import statistics
from dpgrain._files import check_outputs
from dpgrain._later import later
from dpgrain.cli import options as given
from dpgrain.cli.command import command, seldom
from dpgrain.cli.document import release_as_json, tell_json
from dpgrain.cli.options import clip_of, level_of, number
from dpgrain.cli.printing import say, tell_release, write_plot, written
from dpgrain.cli.table import People, Publishing, domain_of, tell_curator, with_cells
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.means.methods import METHODS
from dpgrain.units import OWN_UNIT, Element, Record, Unit, User

if TYPE_CHECKING:
    from dpgrain.cli import means
    from dpgrain.statistics import release as releases
    from dpgrain.statistics.release import Release
    from dpgrain.tables.table import UserTable

    MeanMethod: TypeAlias = str
else:
    means = later("dpgrain.cli.means")
    MeanMethod = Literal["auto", *METHODS]
    releases = later("dpgrain.statistics.release")


# The options of `dpgrain mean` that ask for the mean of vectors.
_VECTORS = "The mean of vectors"
# Pictures may be of these kinds.
_PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True, kw_only=True)
class Asked(Publishing, People):
    """The options of every statistic: the rows, the promise, and where the release goes."""

    source: given.Table
    user: given.User = None
    n_users: given.Users = None
    cells: given.Cells = None
    epsilon: given.Epsilon[float | None] = None
    delta: given.Delta[float] = 0.0
    unit: given.ProtectedOrElement = None
    element: given.Cell = None
    relation: given.Neighbours = "zero_out"
    top: given.Top = 20
    output: given.Output = None
    report: given.Report = None
    save: given.Save = None
    plot: given.Plot = None
    memory: given.Memory = "1GB"

    def table(self) -> UserTable:
        """Return the rows, with columns of cells; or one row of each user."""
        rows = self.read(self.source, user=self.user, n_users=self.n_users, memory=self.memory)
        return self.of(with_cells(rows, self.cells or []))

    def protected(
        self, table: UserTable, keys: Sequence[str] = (), max_elements: int | None = None
    ) -> Unit:
        """Return the privacy unit; ``--element`` names a column, or else a file.

        Args:
            table: the rows.
            keys: the columns that tell groups apart, to whose items the cells of a file belong.
            max_elements: the largest number of elements of a user that count.

        Raises:
            ParameterError: if options are missing, or do not go together.
            SchemaError: if there is no such column, and no such file.
        """
        level = level_of(self.unit, self.element, max_elements)
        if level != "record" and table.user is None:
            raise ParameterError(
                f"--unit {level} needs --user, the column of whose a record is; or ask for --unit "
                "record."
            )
        if self.per_user and level != "user":
            raise ParameterError(
                f"--per-user goes with --unit user, not {level}: each row is made of all that a person "
                "holds."
            )
        if self.element is None and (level == "element" or max_elements is not None):
            raise ParameterError("Give --element, the column of cells, such as --element page.")
        by: Any = self.element
        if by is not None and by not in table.schema and Path(by).suffix:
            if not Path(by).exists():
                raise SchemaError(
                    f"--element {by!r} is no column of the table, and no file; {table.like(by)}."
                )
            if not keys:
                raise ParameterError(
                    f"--element {by!r} gives cells to items, and there are none here: add a column by "
                    "--cells NAME=COLUMN:FILE, and give --element NAME."
                )
            by = Path(by)
        units: dict[str, Unit] = {
            "record": Record(),
            "element": Element(by),
            "user": User(max_elements, by),
        }
        return units[level]

    def publish(
        self, statistic: Callable[..., Release], table: UserTable, *subject: Any, **more: Any
    ) -> None:
        """Check, publish, write, and only then print."""
        if self.epsilon is None:
            raise ParameterError("Give --epsilon, such as --epsilon 1.")
        if self.output is not None:
            releases.check_format(self.output)
        if self.plot is not None and self.plot.suffix.lower() not in _PICTURES:
            raise ParameterError(
                f"--plot must end in {', '.join(_PICTURES)}, not {str(self.plot)!r}."
            )
        outputs = [self.output, self.report, self.save, self.plot]
        check_outputs(outputs)
        promise = {"epsilon": self.epsilon, "delta": self.delta, "relation": self.relation}
        with self.charging(), self._delta_is_named("noise" in more):
            release = statistic(table, *subject, **promise, **more)
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
        tell_release(release, self.top)
        if self.delta and not release.guarantee.delta:
            say(f"--delta {self.delta:g} was not needed: this noise keeps the promise with δ = 0.")
        written(*outputs)

    @contextmanager
    def _delta_is_named(self, any_noise: bool) -> Iterator[None]:
        """Say that ``--delta`` is missing, where it is and the release needs one."""
        try:
            yield
        except ParameterError as error:
            if self.delta or error.name not in ("delta", "domain"):
                raise
            other = "; or --noise laplace, which needs none" if any_noise else ""
            if error.name == "domain":
                other = ", with which groups are selected; or --domain, the public list of them"
            raise ParameterError(f"Give --delta, such as --delta 1e-6{other}.") from error


@dataclass(frozen=True, kw_only=True)
class Clipped(Asked):
    """The options of statistics that clip what a unit adds, and may select groups."""

    max_elements: given.MaxElements = None
    clip: given.Clip = "auto"
    domain: given.Domain = None
    max_items: given.MaxItems = 1000

    def run(
        self,
        statistic: Callable[..., Release],
        *subject: Any,
        keys: Sequence[str],
        values: Sequence[str] = (),
        **own: Any,
    ) -> None:
        """Publish a statistic; or, with ``--check``, tell the curator of bad values.

        Args:
            statistic: the function of the library.
            subject: its arguments after the table.
            keys: the columns that tell groups apart.
            values: the columns of numbers.
            own: the options of this statistic alone.
        """
        table = self.table()
        domain = domain_of(self.domain or [], keys, table)
        if self.check:
            told: dict[str, Any] = {n: own[n] for n in ("weight", "bounds") if n in own}
            told |= {"items": keys, "values": values, "domain": domain}
            tell_curator(table, as_json=self.as_json, **told)
            return
        self.publish(
            statistic,
            table,
            *subject,
            unit=self.protected(table, keys, self.max_elements),
            clip=clip_of(self.clip),
            domain=domain,
            max_items=self.max_items,
            **own,
        )


@dataclass(frozen=True, kw_only=True)
class Grouped(Clipped):
    """The options of statistics that are published overall, or by group."""

    by: given.By = None
    noise: given.AnyNoise = "auto"

    def by_group(
        self, statistic: Callable[..., Release], *subject: Any, values: Sequence[str], **own: Any
    ) -> None:
        """Publish a statistic, or check, with the arguments of :meth:`run`."""
        keys = self.by or []
        self.run(
            statistic,
            *subject,
            keys=keys,
            values=values,
            by=keys or None,
            noise=self.noise,
            **own,
        )


@dataclass(frozen=True, kw_only=True)
class OfParts(Grouped):
    """The options of statistics of one column of numbers, of which none is cut off."""

    value: given.Value


@dataclass(frozen=True, kw_only=True)
class OfNumbers(OfParts):
    """The options of statistics of one column of numbers."""

    bounds: given.Bounds = None

    def of_value(self, statistic: Callable[..., Release], *more: Any, **own: Any) -> None:
        """Publish a statistic of the column, or check, with the arguments of :meth:`run`."""
        values = [self.value]
        self.by_group(statistic, self.value, *more, values=values, bounds=self.bounds, **own)


@command(
    "dpgrain histogram speeches.parquet --user speaker --item word --element topic --epsilon 1 "
    "--delta 1e-6 --report words.html",
    name="histogram",
)
def histogram(
    asked: Clipped,
    item: given.Item,
    weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of what a record counts; 1 without it."),
    ] = None,
    edges: Annotated[
        str | None,
        typer.Option(metavar="EDGES", help="Edges of bins of numbers, as 1,2,5,10; or auto."),
    ] = None,
    noise: given.Noise = "gaussian",
    nonnegative: Annotated[
        bool, typer.Option("--nonnegative", help="Set negative estimates to 0.")
    ] = False,
) -> None:
    """Publish how often people have each item, or how much."""
    asked.run(
        statistics.histogram,
        _one_or_all(item),
        keys=[] if edges else item,
        weight=weight,
        edges=None if edges is None else "auto" if edges == "auto" else _numbers("--edges", edges),
        noise=noise,
        nonnegative=nonnegative,
    )


@dataclass(frozen=True, kw_only=True)
class _OfTop(Clipped):
    max_items: given.MaxItems = 200


@command(
    "dpgrain top speeches.parquet --user speaker --item word --element word --epsilon 1 "
    "--delta 1e-6 --k 50",
    name="top",
)
def top(
    asked: _OfTop,
    item: given.Item,
    k: Annotated[
        int | None, typer.Option(help="Items to publish; all that pass without it.", min=1)
    ] = None,
    method: Annotated[
        Literal["auto", "gaussian", "truncated", "laplace", "gumbel"],
        typer.Option(help="How items are chosen; auto takes what is best for the public numbers."),
    ] = "auto",
) -> None:
    """Publish the items that most people have.

    Items need not be known beforehand.
    """
    asked.run(statistics.top, _one_or_all(item), keys=item, k=k, method=method)


@command(
    "dpgrain count visits.parquet --user person --by page --element topic --epsilon 1 --delta 1e-6",
    name="count",
)
def count(
    asked: Grouped,
    value: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Count only records with a finite number here."),
    ] = None,
) -> None:
    """Publish the number of records, overall or by group."""
    asked.by_group(statistics.count, value, values=[] if value is None else [value])


@command(
    "dpgrain sum sales.parquet --user customer --value paid --bounds 0 500 --unit user --epsilon 1 "
    "--delta 1e-6",
    name="sum",
)
def total(asked: OfNumbers) -> None:
    """Publish the sum of a column, overall or by group."""
    asked.of_value(statistics.sum)


@dataclass(frozen=True, kw_only=True)
class _OfMeans(OfNumbers):
    value: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of numbers; or --columns, for vectors.")
    ] = ""


@command(
    "dpgrain mean scores.parquet --user student --value score --bounds 0 100 --by region "
    "--unit user --epsilon 1 --delta 1e-6",
    "dpgrain mean sales.parquet --user customer --n-users 5000 --per-user spent=amount:sum "
    "--value spent --unit user --epsilon 1 --delta 1e-6",
    "dpgrain mean days.parquet --user person --columns steps,sleep,pulse --bound 20000 --unit user "
    "--epsilon 1 --delta 1e-6 --output mean.json",
    name="mean",
)
def mean(
    context: typer.Context,
    asked: _OfMeans,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS …",
            help="Columns, as a,b,c: the mean of users' vectors, each the mean of a user's rows.",
            rich_help_panel=_VECTORS,
        ),
    ] = None,
    bound: Annotated[
        float | None,
        typer.Option(
            help="Bound on the norm of a row; longer ones are cut.", rich_help_panel=_VECTORS
        ),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(
            help="About how far users' vectors lie from their mean, if that is known.",
            rich_help_panel=seldom(_VECTORS),
        ),
    ] = None,
    method: Annotated[
        MeanMethod,
        typer.Option(
            metavar="METHOD",
            help=f"Which private mean: auto by the public numbers, or {', '.join(METHODS)}.",
            rich_help_panel=seldom(_VECTORS),
        ),
    ] = "auto",
) -> None:
    """Publish the mean of a column, overall or by group."""
    means.check_options([name for name in context.params if _is_given(context, name)])
    if columns:
        table = asked.table()
        means.run(asked, table, columns, bound=bound, radius=radius, method=method)
    else:
        asked.of_value(statistics.mean)


def _is_given(context: typer.Context, name: str) -> bool:
    """Return whether an option was stated, also with the value it has by default."""
    stated = context.get_parameter_source(name)
    return stated is not None and stated.name == "COMMANDLINE"


@command(
    "dpgrain distribution visits.parquet --user person --n-users 5000 --per-user visits=count "
    "--value visits --at 1,2,5,10 --unit user --epsilon 1 --delta 1e-6",
    "dpgrain distribution visits.parquet --user person --per-user visits=count --per-user-by country "
    "--by country --value visits --unit user --epsilon 1 --delta 1e-6 --report visits.html",
    name="distribution",
)
def distribution(
    asked: OfParts,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="Thresholds, as 1,2,5,10; found privately without it.",
        ),
    ] = None,
) -> None:
    """Publish the share of numbers at or above each threshold.

    It is overall or by group, with a band around it.
    """
    thresholds = None if at is None else _numbers("--at", at)
    asked.by_group(statistics.distribution, asked.value, thresholds, values=[asked.value])


@command(
    "dpgrain variance scores.parquet --user student --value score --bounds 0 100 --unit user "
    "--epsilon 1 --delta 1e-6",
    name="variance",
)
def variance(asked: OfNumbers) -> None:
    """Publish the variance of a column, overall or by group."""
    asked.of_value(statistics.variance)


@dataclass(frozen=True, kw_only=True)
class _OfQuantiles(OfNumbers):
    noise: given.Noise = "gaussian"


@command(
    "dpgrain quantile scores.parquet --user student --value score --bounds 0 100 --q 0.5,0.9 "
    "--unit user --epsilon 1 --delta 1e-6",
    name="quantile",
)
def quantile(
    asked: _OfQuantiles,
    q: Annotated[
        list[str] | None,
        typer.Option(metavar="RANKS …", help="Ranks, as 0.25,0.5; 0.5, the median, without it."),
    ] = None,
    bins: Annotated[
        int | None,
        typer.Option(help="16, 256 or 4096: how fine; 4096, by group 256, without it."),
    ] = None,
) -> None:
    """Publish the median of a column, or other quantiles.

    They are overall or by group, and several cost what one costs.
    """
    ranks = [rank for text in q or ["0.5"] for rank in _numbers("--q", text, "0.25,0.5,0.75")]
    asked.of_value(statistics.quantiles, ranks, bins=bins)


@dataclass(frozen=True, kw_only=True)
class _OfHoldings(Asked):
    top: given.Top = 40


@command(
    "dpgrain elements-per-user visits.parquet --user person --element topic --epsilon 0.2 "
    "--delta 1e-6",
    name="elements-per-user",
)
def elements_per_user(asked: _OfHoldings, noise: given.Noise = "gaussian") -> None:
    """Publish how many records and elements people hold."""
    table = asked.table()
    element = asked.element
    if asked.check:
        cells = [element] if element and element in table.schema else []
        tell_curator(table, as_json=asked.as_json, items=cells)
        return
    if element is None:
        raise ParameterError("Give --element, the column of cells, such as --element page.")
    if table.user is None:
        raise ParameterError(
            "Give --user, the column of whose a record is: elements are counted by it."
        )
    unit = asked.protected(table, [element])
    unit = unit if unit.level == "element" else OWN_UNIT[unit.level]
    asked.publish(statistics.elements_per_user, table, element, unit=unit, noise=noise)


def _numbers(option: str, text: str, such: str = "1,2,5,10") -> list[float]:
    """Return the numbers that a text with commas states."""
    return [number(option, part, f"numbers such as {such}") for part in text.split(",")]


def _one_or_all(item: list[str]) -> str | list[str]:
    return item if len(item) > 1 else item[0]
