"""Command ``dpgrain fit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import dpgrain as dg
from dpgrain._files import check_outputs, check_page
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import command
from dpgrain.cli.document import finish, model_as_json
from dpgrain.cli.input_table import PerUserOptions, PublishingOptions, print_check
from dpgrain.cli.options import (
    PROMISE,
    RESULTS,
    TABLE,
    ParameterOption,
    argument,
    columns_of,
    level_of,
    number,
    option,
    seldom,
)
from dpgrain.cli.parameter_options import options_of
from dpgrain.cli.printing import plain, print_guarantee, print_table, say
from dpgrain.cli.spelling import spelled_inside
from dpgrain.errors import ParameterError
from dpgrain.learn.estimator_names import ESTIMATORS
from dpgrain.publishing.parameters import Parameter, parameters_of
from dpgrain.units import PLAIN_UNITS, Unit, User

if TYPE_CHECKING:
    from dpgrain import learn
    from dpgrain import report as pages
    from dpgrain.inputs import labels
    from dpgrain.learn import features
    from dpgrain.learn.features import FeatureEncoding
    from dpgrain.releases import table_queries
    from dpgrain.words import fit_text
else:
    features = lazy_import("dpgrain.learn.features")
    labels = lazy_import("dpgrain.inputs.labels")
    table_queries = lazy_import("dpgrain.releases.table_queries")
    fit_text, pages = lazy_import("dpgrain.words.fit_text"), lazy_import("dpgrain.report")

Kind: TypeAlias = Literal["logistic", "linear", "huber", "quantile", "svm", "poisson"]
# Groups of options that only this command has.
_FEATURES, _TRAINING, _OF_KIND = "Features", "Training", "Options of some models"
_CLASSIFIERS = ("logistic", "svm")
# Parameters of estimators that other options or the command determine.
_ELSEWHERE = ("unit", "share", "n_features", "tune", "verbose")
# Groups of parameters other than training.
_GROUPS = {
    "epsilon": PROMISE,
    "delta": PROMISE,
    "relation": seldom(PROMISE),
    "n_users": TABLE,
    "intervals": "",
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FeatureOptions:
    """Options for the columns of a model."""

    features: Annotated[
        list[str] | None,
        option("Numeric or boolean columns, such as a,b,c.", group=_FEATURES, metavar="COLUMNS …"),
    ] = None
    categories: Annotated[
        list[str] | None,
        option(
            "Column and levels, each a 0/1 feature; omit one.",
            group=_FEATURES,
            metavar="COLUMN=A|B …",
        ),
    ] = None
    ranges: Annotated[
        list[str] | None,
        option(
            "Public range; clamped and scaled to [0, 1].",
            "--range",
            group=_FEATURES,
            metavar="COLUMN=LOW:HIGH …",
        ),
    ] = None

    def parameters(self, known: Sequence[str]) -> dict[str, Any]:
        """Return the columns, levels and ranges as parameters."""
        names = columns_of(self.features or [], known)
        ranges = self._ranges(names)
        levels: dict[str, list[str]] = {}
        for text in self.categories or []:
            name, parts = _category(text)
            levels.setdefault(name, []).extend(parts)
        if not (names or levels):
            raise ParameterError("Pass --features or --categories, the columns of the model.")
        return {"features": names, "categories": levels, "range": ranges}

    def _ranges(self, names: Sequence[str]) -> dict[str, tuple[float, float]]:
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


def _category(text: str) -> tuple[str, list[str]]:
    column, equals, levels = text.partition("=")
    if not (column and equals and levels):
        raise ParameterError(f"--categories must be 'COLUMN=A|B|C', not {text!r}.")
    if "," in levels and "|" not in levels:
        raise ParameterError(
            f"--categories {text!r} has only one level, {levels!r}; separate levels with |, "
            f"as in {column}={levels.replace(',', '|')}."
        )
    return column, levels.split("|")


def _parameters() -> Mapping[str, Mapping[str, Parameter]]:
    """Return the parameters of the estimator of each kind, by name."""
    return {
        kind: parameters_of("dpgrain.learn.estimators", name) for kind, name in ESTIMATORS.items()
    }


def _options() -> list[ParameterOption]:
    """Return options for the parameters of estimators; some mention the kinds that have them."""
    of = _parameters()
    every: dict[str, Parameter] = {}
    for parameters in of.values():
        every = {**parameters, **every}
    options: list[ParameterOption] = []
    for name, one in every.items():
        if name in _ELSEWHERE:
            continue
        kinds = [kind for kind, parameters in of.items() if name in parameters]
        group = _GROUPS.get(name, seldom(_TRAINING))
        if len(kinds) < len(of):
            group = seldom(_OF_KIND)
            one = replace(one, text=f"With {' and '.join(kinds)}: {one.text}")
        if len(kinds) < len(of) or name in ("epsilon", "delta"):
            # Only some kinds have the parameter, and --check needs no ε and δ.
            one = replace(one, default=None)
        options += options_of([one], group=group)
    return options


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitOptions(PublishingOptions, PerUserOptions, FeatureOptions):
    """Options other than the parameters of an estimator: the rows and the outputs."""

    kind: Annotated[
        Kind, argument("Type of model: logistic, linear, huber, quantile, svm or poisson.", "KIND")
    ]
    source: given.Table
    target: Annotated[str, option("Column to predict: labels or numbers.", metavar="COLUMN")]
    user: given.User = None
    unit: given.ProtectedOrElement = None
    element: Annotated[str | None, option("Column of cells.", group=PROMISE, metavar="COLUMN")] = (
        None
    )
    max_elements: given.MaxElements = None
    output: Annotated[
        Path | None, option("Required: model file to write (.json).", group=RESULTS)
    ] = None
    report: given.Report = None
    top: Annotated[int, option("Number of coefficients to print.", group=RESULTS, min=1)] = 40

    def protected(self) -> Unit:
        """Return the privacy unit."""
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


@command(
    "dpgrain fit logistic visits.parquet --target bought --features pages,minutes --range "
    "'pages=0:50' --range 'minutes=0:60' --categories 'device=phone|tablet' --user person "
    "--element week --epsilon 1 --delta 1e-6 --intervals 0.2 --output model.json",
    "dpgrain fit linear sales.parquet --per-user spent=amount:sum --per-user days=day:nunique "
    "--target spent --features days --range 'days=0:30' --user customer --unit user --epsilon "
    "1 --delta 1e-6 --output model.json",
)
def fit(rest: FitOptions, stated: Annotated[dict[str, Any], _options]) -> None:
    """Fit a regression or a classifier.

    Non-numeric features become 0 or the low end of their range; rows without target or user are
    dropped; --check counts both. A --range improves the fit.
    """
    rows = rest.read(rest.source, user=rest.user, n_users=stated.get("n_users"))
    table = rest.of(rows).with_expressions(rest.target, rest.element)
    columns = rest.parameters(list(table.schema))
    encoding = table_queries.column_encoding(*columns.values())
    if rest.target in [column.column for column in encoding.columns]:
        raise ParameterError(
            f"--target {rest.target!r} must not also be a feature; remove it from one of them."
        )
    classes = stated.get("classes")
    if rest.check:
        _check(rest, table, encoding, classes)
        return
    of = _parameters()
    for name in stated:
        if name not in of[rest.kind]:
            kinds = " and ".join(kind for kind in of if name in of[kind])
            raise ParameterError(f"--{name} is for {kinds}, not for {rest.kind}.")
    parameters = {**stated, **columns, "unit": rest.protected(), "element": rest.element}
    if classes is not None:
        parameters["classes"] = _labels(classes, rest.target, table)
    features.required_columns(table, encoding, rest.target, rest.kind in _CLASSIFIERS, rest.element)
    output = _required_output(rest.output, stated)
    check_outputs([output, rest.report])
    check_page(rest.report, name="--report")
    with rest.charging():
        model = table_queries.fit_columns(table, rest.kind, rest.target, **parameters)
    model.save(output)
    if rest.report is not None:
        pages.report(model, rest.report)
    print_model(model, rest.top, output)
    own = {"kind": rest.kind, "target": rest.target}
    finish(lambda: {**own, **model_as_json(model)}, output, rest.report)


def _required_output(output: Path | None, stated: dict[str, Any]) -> Path:
    """Return the path of the model file; raise if a required option is missing or it is no .json."""
    options = {
        "--output model.json": output,
        "--epsilon 1": stated.get("epsilon"),
        "--delta 1e-6": stated.get("delta"),
    }
    missing = [example for example, value in options.items() if value is None]
    if output is None or missing:
        raise ParameterError(
            f"Pass {', '.join(example.split()[0] for example in missing)}, such as "
            f"{' '.join(missing)}."
        )
    if output.suffix.lower() != ".json":
        raise ParameterError(f"--output must end in .json, not {str(output)!r}.")
    return output


def _check(
    rest: FitOptions,
    table: dg.UserTable,
    encoding: FeatureEncoding,
    classes: list[str] | None,
) -> None:
    """Print exact counts of non-numeric features and unused targets."""
    cells = [] if rest.element is None else [rest.element]
    if rest.kind not in _CLASSIFIERS:
        what: dict[str, Any] = {"items": cells, "values": [rest.target]}
    else:
        known = classes and {rest.target: _labels(classes, rest.target, table)}
        what = {"items": list(dict.fromkeys([*cells, rest.target])), "domain": known}
    print_check(table, zero=encoding.numbers, **what)


def _labels(names: list[str], target: str, table: dg.UserTable) -> list[Any]:
    """Return the labels with the type of the target column."""
    table.require(target, "target")
    if not table.is_integer(target):
        return table_queries.column_labels(names, table.schema[target])
    result = [labels.as_integer(name) for name in names]
    if None in result:
        raise ParameterError(
            f"--classes must be integers, like the column {target!r}, not {','.join(names)!r}."
        )
    return result


def print_model(model: learn.LinearModel, top: int, kept: Path | None) -> None:
    """Print coefficients, notes and the guarantee, in one line if the file ``kept`` has it."""
    found = fit_text.coefficients(model)
    title = f"{type(model).__name__}: {len(found.rows):,} coefficients"
    rows = [[plain(text) for text in (row.name, *found.cells(row))] for row in found.rows[:top]]
    print_table(title, found.headings, rows)
    if len(found.rows) > top:
        say("All of them: the model file, or a larger --top.")
    for note in found.notes:
        say(spelled_inside(note), style="yellow" if note.startswith("Warning") else None)
    print_guarantee(model.guarantee_, kept)
