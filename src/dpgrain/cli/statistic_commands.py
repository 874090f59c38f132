"""Commands that publish a statistic of a table, with options made from its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import dpgrain as dg
from dpgrain._files import atomic_write, check_outputs, check_page, exists
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import Command
from dpgrain.cli.document import finish, release_as_json
from dpgrain.cli.input_table import (
    PerUserOptions,
    PublishingOptions,
    changed,
    domain_of,
    print_check,
)
from dpgrain.cli.options import ParameterOption, columns_of, level_of
from dpgrain.cli.parameter_options import options_of
from dpgrain.cli.printing import check_picture, print_release, say, write_plot
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.publishing.parameters import docstring, parameters_of
from dpgrain.statistics import OFFERED
from dpgrain.units import Element, Record, Unit, User

if TYPE_CHECKING:
    from dpgrain.statistics import release as releases
else:
    releases = lazy_import("dpgrain.statistics.release")

# Parameters of statistics that other options or the command determine.
_ELSEWHERE = ("table", "unit", "share", "random_state", "progress")
# Rows printed by default; twice as many for statistics with ordered rows, such as distributions.
_PRINTED = 20

_EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "count": (
        "dpgrain count visits.parquet --user person --by page --element topic --epsilon 1 --delta 1e-6",
    ),
    "sum": (
        "dpgrain sum sales.parquet --user customer --value paid --bounds 0 500 --unit user --epsilon 1 "
        "--delta 1e-6",
    ),
    "mean": (
        "dpgrain mean scores.parquet --user student --value score --bounds 0 100 --by region "
        "--unit user --epsilon 1 --delta 1e-6",
        "dpgrain mean sales.parquet --user customer --n-users 5000 --per-user spent=amount:sum "
        "--value spent --unit user --epsilon 1 --delta 1e-6",
    ),
    "variance": (
        "dpgrain variance scores.parquet --user student --value score --bounds 0 100 --unit user "
        "--epsilon 1 --delta 1e-6",
    ),
    "std": (
        "dpgrain std scores.parquet --user student --value score --bounds 0 100 --by region "
        "--unit user --epsilon 1 --delta 1e-6",
    ),
    "covariance": (
        "dpgrain covariance scores.parquet --user student --value score --other hours --bounds 0 100 "
        "--other-bounds 0 60 --unit user --epsilon 1 --delta 1e-6",
    ),
    "correlation": (
        "dpgrain correlation scores.parquet --user student --value score --other hours --bounds 0 100 "
        "--other-bounds 0 60 --by region --unit user --epsilon 1 --delta 1e-6",
    ),
    "quantiles": (
        "dpgrain quantiles scores.parquet --user student --value score --bounds 0 100 --q 0.5,0.9 "
        "--unit user --epsilon 1 --delta 1e-6",
    ),
    "distribution": (
        "dpgrain distribution visits.parquet --user person --n-users 5000 --per-user visits=count "
        "--value visits --at 1,2,5,10 --unit user --epsilon 1 --delta 1e-6",
        "dpgrain distribution visits.parquet --user person --per-user visits=count --per-user-by "
        "country --by country --value visits --unit user --epsilon 1 --delta 1e-6 --report "
        "visits.html",
    ),
    "histogram": (
        "dpgrain histogram speeches.parquet --user speaker --item word --element topic --epsilon 1 "
        "--delta 1e-6 --report words.html",
    ),
    "top": (
        "dpgrain top speeches.parquet --user speaker --item word --element word --epsilon 1 "
        "--delta 1e-6 --k 50",
    ),
    "marginals": (
        "dpgrain marginals visits.parquet --user person --by page,topic --domain page=pages.txt "
        "--domain topic=topics.txt --unit user --epsilon 1 --delta 1e-6",
    ),
    "elements_per_user": (
        "dpgrain elements-per-user visits.parquet --user person --element topic --epsilon 0.2 "
        "--delta 1e-6",
    ),
}


def __getattr__(name: str) -> Command:
    """Return the command of a statistic."""
    if name not in OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = OFFERED[name]

    def options() -> list[ParameterOption]:
        known = parameters_of(module, name).values()
        return options_of(one for one in known if one.name not in _ELSEWHERE)

    def run(given_options: StatisticOptions, stated: dict[str, Any]) -> None:
        given_options.run(getattr(dg, name), stated)

    run.__annotations__["stated"] = Annotated[dict[str, Any], options]
    run.__doc__ = docstring(module, name).partition("Args:\n")[0].strip()
    words = name.replace("_", "-")
    return Command(run, words, _EXAMPLES.get(name) or (_example(words, options()),))


def _example(name: str, options: Sequence[ParameterOption]) -> str:
    """Return an example with the required options."""
    stated = " ".join(option.example for option in options if option.needed)
    return (
        f"dpgrain {name} visits.parquet --user person {stated} --unit user --epsilon 1 --delta 1e-6"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StatisticOptions(PublishingOptions, PerUserOptions):
    """Options of every statistic: the rows, the privacy unit and the outputs."""

    source: given.Table
    user: given.User = None
    n_users: given.Users = None
    cells: given.Cells
    unit: given.ProtectedOrElement = None
    element: given.Cell = None
    max_elements: given.MaxElements = None
    top: given.TopOrAll = None
    output: given.Output = None
    report: given.Report = None
    save: given.Save = None
    plot: given.Plot = None
    memory: given.Memory = "1GB"

    def run(self, function: Callable[..., dg.Release], stated: dict[str, Any]) -> None:
        """Publish a statistic with the stated parameters; or only check values, with ``--check``."""
        rows = self.read(self.source, user=self.user, n_users=self.n_users, memory=self.memory)
        table = self.of(changed(rows, given.CELLS, self.cells))
        for name in ("by", "item"):
            if isinstance(stated.get(name), list):
                columns = columns_of(stated[name], table.schema)
                stated[name] = columns[0] if len(columns) == 1 else columns
        keys = _listed(stated.get("by")) + _listed(stated.get("item"))
        values = _listed(stated.get("value")) + _listed(stated.get("other"))
        if stated.get("edges") is not None and "item" in stated:
            keys, values = [], keys
        if "domain" in stated:
            stated["domain"] = domain_of(stated["domain"], keys, table)
        if self.check:
            if not (keys or values) and self.element in table.schema:
                keys = _listed(self.element)
            known = {
                name: stated[name] for name in ("weight", "bounds", "domain") if name in stated
            }
            print_check(table, items=keys, values=values, **known)
            return
        unit = self.protected(table, keys, _missing(stated))
        with _delta_is_named(stated["delta"], any_noise="noise" in stated):
            self.publish(function, table, unit=unit, **stated)

    def protected(
        self, table: dg.UserTable, keys: Sequence[str], missing: Sequence[str] = ()
    ) -> Unit:
        """Return the privacy unit; ``--element`` is a column or a file of cells."""
        if self.user is None:
            missing = [*missing, "--user COLUMN, unless you protect records"]
        level = level_of(self.unit, self.element, self.max_elements, missing)
        if level != "record" and table.user is None:
            raise ParameterError(
                f"--unit {level} requires --user, the user id column; or use --unit record."
            )
        people = columns_of(self.per_user_by or (), table.schema)
        if (
            self.per_user
            and level != "user"
            and not (level == "element" and self.element in people)
        ):
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
        if level == "user":
            return User(self.max_elements, by)
        return Record() if level == "record" else Element(by)

    def publish(self, function: Callable[..., dg.Release], table: dg.UserTable, **own: Any) -> None:
        """Check the outputs, publish, write, and only then print."""
        if own.get("epsilon") is None:
            raise ParameterError(f"Pass {', and '.join(_missing(own))}.")
        if self.output is not None:
            releases.check_format(self.output)
        check_picture(self.plot)
        outputs = [self.output, self.report, self.save, self.plot]
        check_outputs(outputs)
        check_page(self.report, name="--report")
        if self.save is not None and self.save.suffix.lower() != ".parquet":
            raise ParameterError(f"--save must end in .parquet, not {str(self.save)!r}.")
        with self.charging():
            release = function(table, **own)
        if self.output is not None:
            with atomic_write(self.output, promise=release.guarantee.to_dict()) as part:
                release.write(part)
        if self.report is not None:
            release.report(self.report)
        if self.save is not None:
            release.save(self.save)
        if self.plot is not None:
            write_plot(release.plot(), self.plot)
        ordered = release.metadata.statistic.in_order
        print_release(
            release, self.top or _PRINTED * (2 if ordered else 1), kept=self.save or self.report
        )
        if own["delta"] and not release.guarantee.delta:
            say(
                f"--delta {own['delta']:g} was not needed: with this noise, the guarantee has "
                "δ = 0."
            )
        finish(lambda: release_as_json(release), *outputs)


def _missing(stated: Mapping[str, Any]) -> list[str]:
    """List the privacy parameters that a release needs and that are not stated."""
    needs_delta = (stated.get("by") or stated.get("item")) and stated.get("domain") is None
    return [
        *(["--epsilon, such as --epsilon 1"] if stated.get("epsilon") is None else []),
        *(["--delta, such as --delta 1e-6"] if needs_delta and not stated.get("delta") else []),
    ]


@contextmanager
def _delta_is_named(delta: float, *, any_noise: bool) -> Iterator[None]:
    """Replace the error about a missing δ by one that names ``--delta``."""
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
    """Return the columns of an option: none, one or several."""
    return [columns] if isinstance(columns, str) else list(columns or ())
