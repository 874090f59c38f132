"""The command ``dpgrain fit``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from dpgrain import learn
from dpgrain._files import check_outputs, check_page
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import PROMISE, RESULTS, TABLE, seldom
from dpgrain.cli.declared import declared
from dpgrain.cli.document import model_as_json, tell_json
from dpgrain.cli.doors import Option, made_of, options_of
from dpgrain.cli.options import columns_of, level_of, number
from dpgrain.cli.printing import console, grid, plain, say, tell_guarantee, written
from dpgrain.cli.spelling import spelled_inside
from dpgrain.cli.table import People, Publishing, tell_curator
from dpgrain.errors import ParameterError
from dpgrain.learn.kinds import KINDS
from dpgrain.publishing.parameters import Parameter
from dpgrain.units import PLAIN_UNITS, Unit, User

if TYPE_CHECKING:
    from dpgrain import report as pages
    from dpgrain.inputs import labels
    from dpgrain.learn import LinearModel, summary
    from dpgrain.learn import features as learn_features
    from dpgrain.learn.features import Category, Number
    from dpgrain.learn.features import Encoding as Columns
    from dpgrain.releases import columns as columns_of_tables
    from dpgrain.tables.table import UserTable
else:
    labels = lazy_import("dpgrain.inputs.labels")
    learn_features = lazy_import("dpgrain.learn.features")
    columns_of_tables = lazy_import("dpgrain.releases.columns")
    summary, pages = lazy_import("dpgrain.learn.summary"), lazy_import("dpgrain.report")

Kind: TypeAlias = Literal["logistic", "linear", "huber", "quantile", "svm", "poisson"]
# The groups of options that only this command has.
_FEATURES, _TRAINING, _OF_KIND = "Features", "Training", "Options of some models"
_CLASSIFIERS = ("logistic", "svm")
# Parameters of estimators that the command asks for in other words, or decides.
_ELSEWHERE = ("unit", "share", "n_features", "tune", "verbose")
# The groups of help of parameters that a fit shares with other commands, or that are asked for first.
_GROUPS = {"epsilon": PROMISE, "delta": PROMISE, "relation": seldom(PROMISE), "n_users": TABLE}
_GROUPS |= {"intervals": ""}


@dataclass(frozen=True, kw_only=True)
class Features:
    """The options that say which columns a model may use, and how."""

    features: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS …",
            help="Numeric or boolean columns, such as a,b,c.",
            rich_help_panel=_FEATURES,
        ),
    ] = None
    categories: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=A|B …",
            help="A categorical column and its levels, each a 0/1 feature; omit one level.",
            rich_help_panel=_FEATURES,
        ),
    ] = None
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="COLUMN=LOW:HIGH …",
            help="Public range of a feature, which is clamped to it and scaled to [0, 1].",
            rich_help_panel=_FEATURES,
        ),
    ] = None

    def encoding(self, known: Sequence[str]) -> Columns:
        """Return the rule by which columns become features.

        Args:
            known: the columns of the table.

        Raises:
            ParameterError: if a text is not of its form, or there is no column.
        """
        names = columns_of(self.features or [], known)
        bounds = self._bounds(names)
        listed: list[Number | Category] = [
            learn_features.Number(name, bounds.get(name)) for name in names
        ]
        listed += map(_category, self.categories or [])
        if not listed:
            raise ParameterError("Pass --features or --categories, the columns of the model.")
        return learn_features.Encoding(tuple(listed))

    def _bounds(self, names: Sequence[str]) -> dict[str, tuple[float, float]]:
        bounds: dict[str, tuple[float, float]] = {}
        for text in self.ranges or []:
            column, _, ends = text.rpartition("=")
            low, colon, high = ends.partition(":")
            if not (column and colon):
                raise ParameterError(f"--range must be COLUMN=LOW:HIGH, not {text!r}.")
            if column not in names:
                raise ParameterError(
                    f"--range {column!r} must be a column of --features; add it there."
                )
            if column in bounds:
                raise ParameterError(f"--range {column!r} is passed twice; remove one.")
            bounds[column] = _end(low), _end(high)
        return bounds


def _end(text: str) -> float:
    return number("--range", text, "COLUMN=LOW:HIGH with numbers")


def _category(text: str) -> Category:
    column, equals, levels = text.partition("=")
    if not (column and equals and levels):
        raise ParameterError(f"--categories must be 'COLUMN=A|B|C', not {text!r}.")
    if "," in levels and "|" not in levels:
        raise ParameterError(
            f"--categories {text!r} has only one level, {levels!r}; separate levels with |, "
            f"as in {column}={levels.replace(',', '|')}."
        )
    return learn_features.Category(column, tuple(levels.split("|")))


def _parameters() -> dict[str, dict[str, Parameter]]:
    """Return the parameters of the estimator of each kind, by name."""
    return {kind: declared("dpgrain.learn.estimators", name) for kind, name in KINDS.items()}


def _options() -> list[Option]:
    """Return the options that are parameters of estimators; those of few kinds say of which."""
    of = _parameters()
    every: dict[str, Parameter] = {}
    for parameters in of.values():
        every = {**parameters, **every}
    options = list[Option]()
    for name, one in every.items():
        if name in _ELSEWHERE:
            continue
        kinds = [kind for kind, parameters in of.items() if name in parameters]
        group = _GROUPS.get(name, seldom(_TRAINING))
        if len(kinds) < len(of):
            group = seldom(_OF_KIND)
            one = replace(one, text=f"With {' and '.join(kinds)}: {one.text}")
        if len(kinds) < len(of) or name in ("epsilon", "delta"):
            # Those of another kind must not be stated; ε and δ must, but for --check.
            one = replace(one, default=None)
        options += options_of([one], group=group)
    return options


@dataclass(frozen=True, kw_only=True)
class Asked(Publishing, People, Features):
    """The options beside the parameters of an estimator: the rows, and where the model goes."""

    kind: Annotated[
        Kind,
        typer.Argument(
            help="Type of model: logistic, linear, huber, quantile, svm or poisson.",
            metavar="KIND",
        ),
    ]
    source: given.Table
    target: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column to predict: labels or numbers.")
    ]
    user: given.User = None
    unit: given.ProtectedOrElement = None
    element: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of cells.", rich_help_panel=PROMISE),
    ] = None
    max_elements: given.MaxElements = None
    output: Annotated[
        Path | None,
        typer.Option(help="Model file to write (.json).", rich_help_panel=RESULTS),
    ] = None
    report: given.Report = None
    top: Annotated[
        int, typer.Option(help="Number of coefficients to print.", min=1, rich_help_panel=RESULTS)
    ] = 40

    def run(self, stated: dict[str, Any]) -> None:
        """Fit a model, write it and print it; or, with ``--check``, show the curator bad values.

        Args:
            stated: the parameters of the estimator that are stated, by name.

        Raises:
            ParameterError: if options are missing, or do not go together.
        """
        if not self.check:
            self._require(stated)
        rows = self.read(self.source, user=self.user, n_users=stated.get("n_users"))
        table = self.of(rows).with_expressions(self.target, self.element)
        encoding = self.encoding(list(table.schema))
        if self.target in [column.column for column in encoding.columns]:
            raise ParameterError(
                f"--target {self.target!r} must not also be a feature; remove it from one of them."
            )
        classes = stated.get("classes")
        if self.check or self.output is None:
            _check(self, table, encoding, classes)
            return
        parameters = {**self._of_kind(stated), "unit": self.protected()}
        if classes is not None:
            parameters["classes"] = _labels(classes, self.target, table)
        check_outputs([self.output, self.report])
        check_page(self.report, name="--report")
        estimator: LinearModel = getattr(learn, KINDS[self.kind])(**parameters)
        with self.charging():
            model = columns_of_tables.fit_columns(
                estimator, table, encoding, self.target, self.element
            )
        model.save(self.output)
        if self.report is not None:
            pages.write_fit_report(model, self.report)
        if self.as_json:
            told = {"kind": self.kind, "target": self.target, **model_as_json(model)}
            tell_json(told, self.output, self.report)
            return
        tell_model(model, self.top, self.output)
        written(self.output, self.report)

    def _require(self, stated: dict[str, Any]) -> None:
        """Refuse a fit of which something is not stated that has no default."""
        for option, value, such in (
            ("--output", self.output, "model.json"),
            ("--epsilon", stated.get("epsilon"), "1"),
            ("--delta", stated.get("delta"), "1e-6"),
        ):
            if value is None:
                raise ParameterError(f"Pass {option}, such as {option} {such}.")
        if self.output is not None and self.output.suffix.lower() != ".json":
            raise ParameterError(f"--output must end in .json, not {str(self.output)!r}.")

    def _of_kind(self, stated: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of this kind of model; those of another kind are refused."""
        of = _parameters()
        for name in stated:
            if name not in of[self.kind]:
                kinds = " and ".join(kind for kind in of if name in of[kind])
                raise ParameterError(f"--{name} is for {kinds}, not for {self.kind}.")
        return stated

    def protected(self) -> Unit:
        """Return the privacy unit.

        Raises:
            ParameterError: if options are missing, or do not go together.
        """
        level = level_of(self.unit, self.element, self.max_elements)
        if level != "record" and self.user is None:
            raise ParameterError(f"--unit {level} requires --user, the user id column.")
        if self.element is None and (level == "element" or self.max_elements is not None):
            raise ParameterError("Pass --element, the column of cells.")
        if self.element is not None and level != "element" and self.max_elements is None:
            raise ParameterError(
                f"--element is for --unit element or --max-elements, not for --unit {level}."
            )
        return User(self.max_elements) if level == "user" else PLAIN_UNITS[level]


class _FitCommand:
    """The command of a fit."""

    summary = "Fit a regression or a classifier."

    def made(self) -> Any:
        """Return the command as the parser of options knows it."""
        return made_of(
            "fit",
            f"{self.summary}\n\nNon-numeric features are set to 0 or the low end of their range; rows "
            "without a target or user are dropped. --check counts both. Pass --range: features on "
            "a similar scale give the best fits.",
            Asked,
            _options(),
            Asked.run,
            "dpgrain fit logistic visits.parquet --target bought --features pages,minutes --range "
            "'pages=0:50' --range 'minutes=0:60' --categories 'device=phone|tablet' --user person "
            "--element week --epsilon 1 --delta 1e-6 --intervals 0.2 --output model.json",
            "dpgrain fit linear sales.parquet --per-user spent=amount:sum --per-user days=day:nunique "
            "--target spent --features days --range 'days=0:30' --user customer --unit user --epsilon "
            "1 --delta 1e-6 --output model.json",
        )


fit = _FitCommand()


def _check(asked: Asked, table: UserTable, encoding: Columns, classes: list[str] | None) -> None:
    """Show the curator cells that are no numbers, and targets that count for nothing."""
    cells = [] if asked.element is None else [asked.element]
    if asked.kind not in _CLASSIFIERS:
        told: dict[str, Any] = {"items": cells, "values": [asked.target], "zero": encoding.numbers}
        tell_curator(table, as_json=asked.as_json, **told)
        return
    stated = None
    if classes is not None:
        stated = {asked.target: _labels(classes, asked.target, table)}
    items = list(dict.fromkeys([*cells, asked.target]))
    told = {"items": items, "zero": encoding.numbers, "domain": stated}
    tell_curator(table, as_json=asked.as_json, **told)


def _labels(names: list[str], target: str, table: UserTable) -> list[Any]:
    """Return the labels, as the target column has them."""
    table.require(target, "target")
    if not table.is_integer(target):
        return columns_of_tables.labels_named(names, table.schema[target])
    result = [labels.whole(name) for name in names]
    if None in result:
        raise ParameterError(
            f"--classes must be integers, like the column {target!r}, not {','.join(names)!r}."
        )
    return result


def tell_model(model: LinearModel, top: int, kept: Path | None) -> None:
    """Print the coefficients, notes and the guarantee: in full, unless a file has it."""
    found = summary.coefficients(model)
    title = f"{type(model).__name__}: {len(found.rows):,} coefficients"
    table = grid(title, *found.headings)
    for row in found.rows[:top]:
        table.add_row(plain(row.name), *map(plain, found.cells(row)))
    console().print(table)
    if len(found.rows) > top:
        say("All of them: the model file, or a larger --top.")
    for note in found.notes:
        say(spelled_inside(note), style="yellow" if note.startswith("Warning") else None)
    tell_guarantee(model.guarantee_, kept)
