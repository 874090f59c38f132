"""The commands ``dpgrain fit`` and ``dpgrain predict``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from dpgrain.cli_table import Check, Decimal, Delimiter, Types, opened, tell_curator
from dpgrain.errors import ParameterError
from dpgrain.terminal import console, plain
from dpgrain.units import OWN_UNIT, Level, Relation, Trust, Unit, User

if TYPE_CHECKING:
    from dpgrain.learn import LinearModel
    from dpgrain.learn.features import Encoding as Columns
    from dpgrain.tables.table import UserTable

Kind: TypeAlias = Literal["logistic", "linear", "huber", "quantile", "svm", "poisson"]
_NAMES: dict[Kind, str] = {
    "logistic": "LogisticRegression",
    "linear": "LinearRegression",
    "huber": "HuberRegressor",
    "quantile": "QuantileRegressor",
    "svm": "LinearSVC",
    "poisson": "PoissonRegressor",
}
_CLASSIFIERS = ("logistic", "svm")

_Table: TypeAlias = Annotated[
    str, typer.Argument(help="Parquet or CSV file, or a glob in quotes.", metavar="TABLE")
]


def fit(
    kind: Annotated[Kind, typer.Argument(help="What is fitted.", metavar="KIND")],
    table: _Table,
    target: Annotated[str, typer.Option(help="Column to predict: labels, or numbers.")],
    out: Annotated[Path | None, typer.Option(help="Where the model goes (.json).")] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(help="Columns of numbers, or of yes and no, as a,b,c; may repeat."),
    ] = None,
    categories: Annotated[
        list[str] | None,
        typer.Option(
            help="'col=v1|v2|v3': a column of names and its public levels, each a feature of 0 and "
            "1. Leave one out: names that are not listed are 0 in all. May repeat."
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            help="'col=low:high': the public range of a column of --features, which is clipped to it "
            "and scaled to [0, 1]. May repeat.",
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Column of whose a row is.")] = None,
    element: Annotated[str | None, typer.Option(help="Column of cells.")] = None,
    unit: Annotated[
        Level | None, typer.Option(help="What is protected; element where --element is given.")
    ] = None,
    max_elements: Annotated[
        int | None,
        typer.Option(help="With --unit user: elements of a user that are used.", min=1),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The promised ε, such as 1.")] = None,
    delta: Annotated[float | None, typer.Option(help="The promised δ, such as 1e-6.")] = None,
    relation: Annotated[
        Relation, typer.Option(help="Neighbours: unit removed or exchanged.")
    ] = "zero_out",
    trust: Annotated[
        Trust,
        typer.Option(
            help="Who sees data: a curator; none but a shuffler of noisy messages; or a stream whose "
            "state may be seen once (users are then places in a roster, from 0)."
        ),
    ] = "central",
    clip: Annotated[
        str | None,
        typer.Option(
            help="Clipping bound of a unit's mean gradient, a number or 'auto'; by default 'auto' for "
            "--unit user, otherwise 1."
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Noisy gradients; by default 100 passes.", min=1)
    ] = None,
    sampling_rate: Annotated[
        float | None, typer.Option(help="Probability to be in a round's sample.")
    ] = None,
    feature_bound: Annotated[
        float | None, typer.Option(help="Public bound on the norm of a row; longer ones are cut.")
    ] = None,
    l2: Annotated[float, typer.Option(help="Strength of the ridge.")] = 0.0,
    n_users: Annotated[
        int | None,
        typer.Option(
            help="Public number of enrolled users; without it about how many there are is published "
            "with 3% of the budget.",
            min=1,
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="All labels, as a,b; without it those that enough people have are selected privately, "
            "with 3% of the budget."
        ),
    ] = None,
    quantile: Annotated[
        float | None, typer.Option(help="With quantile: which one; the median without it.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="With huber: the error beyond which the loss is a line.")
    ] = None,
    intervals: Annotated[
        float, typer.Option(help="Share of the budget kept for intervals, such as 0.2.")
    ] = 0.0,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report.")] = None,
    top: Annotated[int, typer.Option(help="Coefficients to print.", min=1)] = 40,
    seed: Annotated[
        int | None, typer.Option(help="For tests and research: makes the fit NOT private.")
    ] = None,
    delimiter: Delimiter = ",",
    types: Types = None,
    decimal: Decimal = ".",
    check: Check = False,
) -> None:
    """Fit a linear model under differential privacy: logistic, linear, huber, quantile, svm, poisson.

    What is not a number counts 0, a row without target or user is left out. Give --range or
    --feature-bound: gradients are clipped, and columns of large numbers are clipped most.
    """
    from dpgrain._files import check_outputs

    if not check:
        if out is None:
            raise ParameterError("Give --out, such as --out model.json.")
        if epsilon is None:
            raise ParameterError("Give --epsilon, such as --epsilon 1.")
        if delta is None:
            raise ParameterError("Give --delta, such as --delta 1e-6.")
    data = opened(
        table,
        user=user,
        n_users=n_users,
        delimiter=delimiter,
        types=types,
        decimal=decimal,
    )
    columns = _encoding(features or [], categories or [], ranges or [], data)
    if target in [column.column for column in columns.columns]:
        raise ParameterError(f"--target {target!r} is also a feature; leave it out of one of them.")
    if check or out is None:
        numbers = [*columns.numbers, *([] if kind in _CLASSIFIERS else [target])]
        tell_curator(data, items=[] if element is None else [element], values=numbers)
        return
    protected = _unit(unit, user, element, max_elements)
    options: dict[str, Any] = {
        "unit": protected,
        "relation": relation,
        "trust": trust,
        "epsilon": epsilon,
        "delta": delta,
        "clip": clip if clip in (None, "auto") else _number("--clip", clip),
        "rounds": rounds,
        "sampling_rate": sampling_rate,
        "feature_bound": feature_bound,
        "l2": l2,
        "n_users": n_users,
        "intervals": intervals,
        "random_state": seed,
        **_own(kind, {"classes": classes, "quantile": quantile, "threshold": threshold}),
    }
    if classes is not None:
        options["classes"] = _labels(classes, target, data)
    check_outputs([out, report], [*_files(data)])
    model = _fitted(kind, options, data, columns, target, element)
    _write(model, out, report)
    _tell(model, top)
    for path in (out, report):
        if path is not None:
            console().print(f"Written: {path}", markup=False, highlight=False)


def predict(
    model: Annotated[Path, typer.Argument(help="A model of `dpgrain fit`.", metavar="MODEL")],
    table: _Table,
    out: Annotated[
        Path | None, typer.Option(help="Where predictions go: .csv or .parquet.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Column of the table to write beside the predictions; may repeat."),
    ] = None,
    delimiter: Delimiter = ",",
    types: Types = None,
    decimal: Decimal = ".",
    check: Check = False,
) -> None:
    """Predict each row of a table with a fitted model, in the order of the rows."""
    import pyarrow as pa

    from dpgrain._files import check_outputs
    from dpgrain.learn import load
    from dpgrain.learn.features import Encoding as Columns
    from dpgrain.learn.features import Number, load_rows

    if not check and (out is None or out.suffix.lower() not in (".csv", ".parquet")):
        raise ParameterError(f"--out must end in .csv or .parquet, not {str(out or '')!r}.")
    fitted = load(model)
    columns = getattr(fitted, "encoding_", None)
    if columns is None:
        names = getattr(fitted, "feature_names_in_", None)
        if names is None:
            raise ParameterError(
                f"The model {str(model)!r} does not say which columns its features are; fit it with "
                "`dpgrain fit`, or on a data frame."
            )
        columns = Columns(tuple(Number(str(name)) for name in names))
    data = opened(table, delimiter=delimiter, types=types, decimal=decimal)
    if check or out is None:
        tell_curator(data, values=columns.numbers)
        return
    check_outputs([out], [model, *_files(data)])
    rows = load_rows(data, columns, keep=keep or [])
    found: dict[str, Any] = {name: rows.kept.column(name) for name in rows.kept.column_names}
    added: dict[str, Any] = {"prediction": pa.array([])}
    if len(rows.features):
        added = {"prediction": pa.array(fitted.predict(rows.features))}
        if hasattr(fitted, "predict_proba"):
            shares = fitted.predict_proba(rows.features)
            for place, label in enumerate(fitted.classes_):
                added[f"probability {label}"] = pa.array(shares[:, place])
    taken = [name for name in added if name in found]
    if taken:
        raise ParameterError(f"--keep {taken[0]!r} has the name of a column of predictions.")
    _write_table(pa.table({**found, **added}), out)
    say = console()
    say.print(
        f"{len(rows.features):,} rows predicted. The promise is for the model, not for this file: a "
        "prediction tells of the row that it was made from.",
        highlight=False,
    )
    say.print(f"Written: {out}", markup=False, highlight=False)


def _fitted(
    kind: Kind,
    options: dict[str, Any],
    table: UserTable,
    encoding: Columns,
    target: str,
    element: str | None,
) -> LinearModel:
    """Read the rows, fit, and say in the promise what columns were used."""
    from dataclasses import replace

    import numpy as np

    from dpgrain import learn
    from dpgrain.learn.features import load_rows

    model: LinearModel = getattr(learn, _NAMES[kind])(**options)
    # What is wrong with parameters is said before a long table is read.
    model.asked()
    labels = kind in _CLASSIFIERS
    rows = load_rows(
        table, encoding, target=target, labels=labels, element=element, named=model.trust == "pan"
    )
    features, targets, users, elements = rows.features, rows.target, rows.users, rows.elements
    if not len(features):
        # An empty table is a neighbour like any other: a row of nobody stands in for it.
        features = features.reindex([0])
        targets = np.array([np.nan])
        users = None if users is None else np.array([np.nan])
        elements = None if elements is None else np.array([None], dtype=object)
    model.fit(features, targets, users=users, elements=elements)
    made = model.guarantee_
    guarantee = replace(
        made,
        elements=repr(element) if made.elements else "",
        public=(*made.public, *encoding.facts),
        user=table.user or "",
    )
    return model.of_columns(encoding, target, guarantee)


def _write(model: LinearModel, out: Path, report: Path | None) -> None:
    from dpgrain.report import write_fit_report

    model.save(out)
    if report is not None:
        write_fit_report(model, report)


def _write_table(table: Any, path: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    from dpgrain._files import whole_file

    with whole_file(path) as part:
        if path.suffix.lower() == ".csv":
            pyarrow.csv.write_csv(table, part)
        else:
            pyarrow.parquet.write_table(table, part, compression="zstd")


def _tell(model: LinearModel, top: int) -> None:
    """Print the coefficients, with intervals where there are any, and the promise."""
    from rich.table import Table

    from dpgrain.learn.summary import coefficients

    found = coefficients(model)
    shown = found.rows[:top]
    table = Table(title=f"{type(model).__name__}: {len(found.rows):,} coefficients")
    table.add_column("coefficient", overflow="fold")
    table.add_column("value", justify="right")
    if found.intervals:
        for name in ("corrected", "95% low", "95% high"):
            table.add_column(name, justify="right")
    for row in shown:
        table.add_row(plain(row.name), *(found.text(value) for value in row.values))
    out = console()
    out.print(table)
    if len(found.rows) > top:
        out.print("All of them: the model file, or a larger --top.", highlight=False)
    if found.intervals:
        out.print(
            "Intervals are centred at the corrected average of the rounds; predictions use the value.",
            highlight=False,
        )
    if found.caution:
        out.print(f"Take care: {found.caution}", style="yellow", highlight=False)
    out.print(str(model.guarantee_), markup=False, highlight=False)


def _encoding(
    features: Sequence[str], categories: Sequence[str], ranges: Sequence[str], table: UserTable
) -> Columns:
    """How columns become features, from the options."""
    from dpgrain.learn.features import Category, Number
    from dpgrain.learn.features import Encoding as Columns

    names: list[str] = []
    for text in features:
        # A column may have a comma in its name.
        names += [text] if text in table.schema else [name.strip() for name in text.split(",")]
    bounds: dict[str, tuple[float, float]] = {}
    for text in ranges:
        column, _, ends = text.rpartition("=")
        low, colon, high = ends.partition(":")
        if not (column and colon):
            raise ParameterError(f"--range must be COLUMN=LOW:HIGH, not {text!r}.")
        if column not in names:
            raise ParameterError(f"--range {column!r} is not a column of --features; add it there.")
        if column in bounds:
            raise ParameterError(f"--range {column!r} is given twice; leave one of them out.")
        bounds[column] = _number("--range", low), _number("--range", high)
    listed: list[Number | Category] = [Number(name, bounds.get(name)) for name in names]
    for text in categories:
        column, equals, levels = text.partition("=")
        if not (column and equals and levels):
            raise ParameterError(f"--categories must be 'COLUMN=A|B|C', not {text!r}.")
        if "," in levels and "|" not in levels:
            raise ParameterError(
                f"--categories {text!r} names one level, {levels!r}; separate levels by |, as in "
                f"{column}={levels.replace(',', '|')}."
            )
        listed.append(Category(column, tuple(levels.split("|"))))
    if not listed:
        raise ParameterError("Give --features or --categories: the columns that the model may use.")
    return Columns(tuple(listed))


def _unit(
    level: Level | None, user: str | None, element: str | None, max_elements: int | None
) -> Unit:
    if level is None:
        if element is None:
            raise ParameterError(
                "Say what is protected: --element COLUMN, --unit user or --unit record."
            )
        level = "element"
    if max_elements is not None and level != "user":
        raise ParameterError("--max-elements goes with --unit user.")
    if level != "record" and user is None:
        raise ParameterError(f"--unit {level} needs --user: the column of whose a row is.")
    if element is None and (level == "element" or max_elements is not None):
        raise ParameterError("Give --element: the column of cells.")
    if element is not None and level != "element" and max_elements is None:
        raise ParameterError(f"--element goes with --unit element or --max-elements, not {level}.")
    return User(max_elements) if level == "user" else OWN_UNIT[level]


def _own(kind: Kind, options: dict[str, Any]) -> dict[str, Any]:
    """The options of one kind of model; those of another are refused."""
    of = {"classes": _CLASSIFIERS, "quantile": ("quantile",), "threshold": ("huber",)}
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if kind not in of[name]:
            raise ParameterError(f"--{name} goes with {' and '.join(of[name])}, not {kind}.")
    return given


def _labels(text: str, target: str, table: UserTable) -> list[Any]:
    """The labels, as the target column has them."""
    from dpgrain.inputs.labels import whole

    table.require(target, "target")
    labels = [label.strip() for label in text.split(",")]
    if not table.is_integer(target):
        return labels
    found = [whole(label) for label in labels]
    if None in found:
        raise ParameterError(
            f"--classes must be whole numbers, as the column {target!r} is, not {text!r}."
        )
    return found


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        what = "a number or 'auto'" if name == "--clip" else "COLUMN=LOW:HIGH with numbers"
        raise ParameterError(f"{name} must be {what}, not {text!r}.") from None


def _files(table: UserTable) -> list[str]:
    return list(getattr(table.source, "paths", ()))
