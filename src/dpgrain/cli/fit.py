"""The command ``dpgrain fit``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from dpgrain import learn
from dpgrain._files import check_outputs
from dpgrain._later import later
from dpgrain.cli import options as given
from dpgrain.cli.command import PROMISE, RESULTS, TABLE, command, seldom
from dpgrain.cli.document import model_as_json, tell_json
from dpgrain.cli.options import clip_of, columns_of, level_of, number
from dpgrain.cli.printing import console, grid, plain, say, written
from dpgrain.cli.spelling import spelled_inside
from dpgrain.cli.table import People, Publishing, tell_curator
from dpgrain.errors import ParameterError
from dpgrain.learn.kinds import KINDS
from dpgrain.units import OWN_UNIT, Trust, Unit, User

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
    labels = later("dpgrain.inputs.labels")
    learn_features = later("dpgrain.learn.features")
    columns_of_tables = later("dpgrain.releases.columns")
    summary, pages = later("dpgrain.learn.summary"), later("dpgrain.report")

Kind: TypeAlias = Literal["logistic", "linear", "huber", "quantile", "svm", "poisson"]
# The groups of options that only this command has.
_FEATURES, _TRAINING, _OF_KIND = "Features", "Training", "Of one kind of model"
_CLASSIFIERS = ("logistic", "svm")


@dataclass(frozen=True, kw_only=True)
class Promise:
    """The options that say what is promised, and to whom."""

    user: given.User = None
    epsilon: given.Epsilon[float | None] = None
    delta: given.Delta[float | None] = None
    unit: given.ProtectedOrElement = None
    element: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of cells.", rich_help_panel=PROMISE),
    ] = None
    max_elements: given.MaxElements = None
    relation: given.Neighbours = "zero_out"

    def protected(self) -> Unit:
        """Return the privacy unit.

        Raises:
            ParameterError: if options are missing, or do not go together.
        """
        level = level_of(self.unit, self.element, self.max_elements)
        if level != "record" and self.user is None:
            raise ParameterError(f"--unit {level} needs --user: the column of whose a row is.")
        if self.element is None and (level == "element" or self.max_elements is not None):
            raise ParameterError("Give --element: the column of cells.")
        if self.element is not None and level != "element" and self.max_elements is None:
            raise ParameterError(
                f"--element goes with --unit element or --max-elements, not {level}."
            )
        return User(self.max_elements) if level == "user" else OWN_UNIT[level]

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of an estimator that these options state."""
        return {
            "unit": self.protected(),
            "relation": self.relation,
            "epsilon": self.epsilon,
            "delta": self.delta,
        }


@dataclass(frozen=True, kw_only=True)
class Features:
    """The options that say which columns a model may use, and how."""

    features: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS …",
            help="Columns of numbers, or of yes and no, as a,b,c.",
            rich_help_panel=_FEATURES,
        ),
    ] = None
    categories: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=A|B …",
            help="A column of names and its levels, each a feature of 0 and 1; leave one out.",
            rich_help_panel=_FEATURES,
        ),
    ] = None
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="COLUMN=LOW:HIGH …",
            help="Public range of a feature, which is cut to it and scaled to [0, 1].",
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
            raise ParameterError(
                "Give --features or --categories: the columns that the model may use."
            )
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
                    f"--range {column!r} is not a column of --features; add it there."
                )
            if column in bounds:
                raise ParameterError(f"--range {column!r} is given twice; leave one of them out.")
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
            f"--categories {text!r} names one level, {levels!r}; separate levels by |, as in "
            f"{column}={levels.replace(',', '|')}."
        )
    return learn_features.Category(column, tuple(levels.split("|")))


@dataclass(frozen=True, kw_only=True)
class Training:
    """The options that are parameters of estimators, by the same names."""

    trust: Annotated[
        Trust,
        typer.Option(
            help="Who sees data: a curator; none but a shuffler of noisy messages; or a stream whose "
            "state may be seen once (users are then places in a roster, from 0).",
            rich_help_panel=seldom(_TRAINING),
        ),
    ] = "central"
    clip: Annotated[
        str | None,
        typer.Option(
            metavar="BOUND",
            help="Clipping bound of a unit's mean gradient: a number, or auto (the default with a "
            "curator), which finds one that few pass inside the budget.",
            rich_help_panel=seldom(_TRAINING),
        ),
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Noisy gradients; by default 50 passes, or 100 where the clipping bound is stated.",
            min=1,
            rich_help_panel=seldom(_TRAINING),
        ),
    ] = None
    sampling_rate: Annotated[
        float | None,
        typer.Option(
            help="Probability to be in a round's sample.", rich_help_panel=seldom(_TRAINING)
        ),
    ] = None
    feature_bound: Annotated[
        float | None,
        typer.Option(
            help="Public bound on the norm of a row; longer ones are cut.",
            rich_help_panel=seldom(_TRAINING),
        ),
    ] = None
    l2: Annotated[
        float, typer.Option(help="Strength of the ridge.", rich_help_panel=seldom(_TRAINING))
    ] = 0.0
    n_users: Annotated[
        int | None,
        typer.Option(
            help="Public number of users; released roughly without it.",
            min=1,
            rich_help_panel=TABLE,
        ),
    ] = None
    intervals: Annotated[
        float, typer.Option(help="Share of the budget for intervals, such as 0.2.")
    ] = 0.0
    random_state: Annotated[
        int | None,
        typer.Option(
            "--seed",
            help="For tests and research: makes the fit NOT private.",
            rich_help_panel=seldom(_TRAINING),
        ),
    ] = None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of an estimator that these options state."""
        clip = None if self.clip is None else clip_of(self.clip)
        return {**vars(self), "clip": clip}


@command(
    "dpgrain fit logistic visits.parquet --target bought --features pages,minutes "
    "--range 'pages=0:50' --range 'minutes=0:60' --categories 'device=phone|tablet' --user person "
    "--element week --epsilon 1 --delta 1e-6 --intervals 0.2 --output model.json",
    "dpgrain fit linear sales.parquet --per-user spent=amount:sum --per-user days=day:nunique "
    "--target spent --features days --range 'days=0:30' --user customer --unit user --epsilon 1 "
    "--delta 1e-6 --output model.json",
    name="fit",
)
def fit(
    kind: Annotated[
        Kind,
        typer.Argument(
            help="What is fitted: logistic, linear, huber, quantile, svm or poisson.",
            metavar="KIND",
        ),
    ],
    table: given.Table,
    target: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column to predict: labels, or numbers.")
    ],
    columns: Features,
    promise: Promise,
    reading: Publishing,
    people: People,
    training: Training,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="LABELS",
            help="With logistic and svm: all labels, as a,b; those that enough people have are "
            "selected privately without it, with 3% of the budget.",
            rich_help_panel=seldom(_OF_KIND),
        ),
    ] = None,
    quantile: Annotated[
        float | None,
        typer.Option(
            help="With quantile: which one; the median without it.",
            rich_help_panel=seldom(_OF_KIND),
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="With huber: the error beyond which the loss is a line.",
            rich_help_panel=seldom(_OF_KIND),
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Where the model goes (.json).", rich_help_panel=RESULTS),
    ] = None,
    report: given.Report = None,
    top: Annotated[
        int, typer.Option(help="Coefficients to print.", min=1, rich_help_panel=RESULTS)
    ] = 40,
) -> None:
    """Fit a model: a logistic, a linear or another regression.

    What is not a number counts 0, a row without target or user is left out: --check counts them. Give
    --range: features on one scale are learned best. Each user, element or record counts once.
    """
    if not reading.check:
        for option, value, such in (
            ("--output", output, "model.json"),
            ("--epsilon", promise.epsilon, "1"),
            ("--delta", promise.delta, "1e-6"),
        ):
            if value is None:
                raise ParameterError(f"Give {option}, such as {option} {such}.")
        if output is not None and output.suffix.lower() != ".json":
            raise ParameterError(f"--output must end in .json, not {str(output)!r}.")
    data = people.of(reading.read(table, user=promise.user, n_users=training.n_users))
    encoding = columns.encoding(list(data.schema))
    if target in [column.column for column in encoding.columns]:
        raise ParameterError(f"--target {target!r} is also a feature; leave it out of one of them.")
    if reading.check or output is None:
        _check(reading, kind, data, encoding, target, promise.element, classes)
        return
    own = {"classes": classes, "quantile": quantile, "threshold": threshold}
    parameters = {**promise.parameters(), **training.parameters(), **_own(kind, own)}
    if classes is not None:
        parameters["classes"] = _labels(classes, target, data)
    check_outputs([output, report])
    estimator: LinearModel = getattr(learn, KINDS[kind])(**parameters)
    with reading.charging():
        model = columns_of_tables.fit_columns(estimator, data, encoding, target, promise.element)
    model.save(output)
    if report is not None:
        pages.write_fit_report(model, report)
    if reading.as_json:
        tell_json({"kind": kind, "target": target, **model_as_json(model)}, output, report)
        return
    tell_model(model, top)
    written(output, report)


def _check(
    reading: Publishing,
    kind: Kind,
    table: UserTable,
    encoding: Columns,
    target: str,
    element: str | None,
    classes: str | None,
) -> None:
    """Tell the curator of cells that are no numbers, and of targets that count for nothing."""
    cells = [] if element is None else [element]
    if kind not in _CLASSIFIERS:
        values = [*encoding.numbers, target]
        tell_curator(table, as_json=reading.as_json, items=cells, values=values)
        return
    stated = None if classes is None else {target: _labels(classes, target, table)}
    items = list(dict.fromkeys([*cells, target]))
    told: dict[str, Any] = {"items": items, "values": encoding.numbers, "domain": stated}
    tell_curator(table, as_json=reading.as_json, **told)


def _own(kind: Kind, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of one kind of model; those of another are refused."""
    of = {"classes": _CLASSIFIERS, "quantile": ("quantile",), "threshold": ("huber",)}
    stated = {name: value for name, value in options.items() if value is not None}
    for name in stated:
        if kind not in of[name]:
            raise ParameterError(f"--{name} goes with {' and '.join(of[name])}, not {kind}.")
    return stated


def _labels(text: str, target: str, table: UserTable) -> list[Any]:
    """Return the labels, as the target column has them."""
    table.require(target, "target")
    names = [label.strip() for label in text.split(",")]
    if not table.is_integer(target):
        return names
    result = [labels.whole(name) for name in names]
    if None in result:
        raise ParameterError(
            f"--classes must be whole numbers, as the column {target!r} is, not {text!r}."
        )
    return result


def tell_model(model: LinearModel, top: int) -> None:
    """Print the coefficients, with intervals where there are any, and the promise."""
    found = summary.coefficients(model)
    title = f"{type(model).__name__}: {len(found.rows):,} coefficients"
    table = grid(title, *found.headings)
    for row in found.rows[:top]:
        table.add_row(plain(row.name), *map(plain, found.cells(row)))
    console().print(table)
    if len(found.rows) > top:
        say("All of them: the model file, or a larger --top.")
    if found.intervals:
        say(
            "Intervals are centred at the corrected average of the rounds; predictions use the value."
        )
    for caution in found.cautions:
        say(f"Take care: {spelled_inside(caution)}", style="yellow")
    for sentence in found.meaning:
        say(sentence)
    say(str(model.guarantee_))
