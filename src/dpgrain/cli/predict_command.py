"""The command ``dpgrain predict``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dpgrain import learn
from dpgrain._files import check_outputs, write_table
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import command
from dpgrain.cli.document import finish
from dpgrain.cli.input_table import PerUserOptions, TableOptions, print_check
from dpgrain.cli.options import PEOPLE, RESULTS, argument, columns_of, option, seldom
from dpgrain.cli.printing import say
from dpgrain.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

    from dpgrain.learn import features
    from dpgrain.learn.features import FeatureEncoding as Columns
    from dpgrain.learn.rows import ArrayRows
    from dpgrain.publishing import charge
else:
    pa, features = lazy_import("pyarrow"), lazy_import("dpgrain.learn.features")
    charge = lazy_import("dpgrain.publishing.charge")


@command("dpgrain predict model.json new.parquet --keep person --output predictions.csv")
def predict(
    model: Annotated[Path, argument("A model of `dpgrain fit`.", "MODEL")],
    table: given.Table,
    reading: TableOptions,
    people: PerUserOptions,
    user: Annotated[
        str | None,
        option("With --per-user: user id column.", group=seldom(PEOPLE), metavar="COLUMN"),
    ] = None,
    output: Annotated[
        Path | None, option("Required: file of the predictions (.csv or .parquet).", group=RESULTS)
    ] = None,
    keep: Annotated[
        list[str] | None,
        option(
            "Column of the table to write with the predictions.", group=RESULTS, metavar="COLUMN …"
        ),
    ] = None,
) -> None:
    """Predict each row of a table with a fitted model."""
    if not reading.check:
        _check_output(output)
    fitted = learn.load(model)
    columns = _columns(fitted, model)
    data = people.of(reading.read(table, user=user))
    if reading.check or output is None:
        print_check(data, zero=columns.numbers)
        return
    check_outputs([output])
    rows = features.load_rows(
        data, columns, charge.Curator(), keep=columns_of(keep or [], data.schema)
    )
    kept: dict[str, Any] = {name: rows.kept.column(name) for name in rows.kept.column_names}
    added = _predictions(fitted, rows)
    taken = [name for name in added if name in kept]
    if taken:
        raise ParameterError(
            f"--keep {taken[0]!r} must not be the name of a column of predictions."
        )
    write_table(pa.table({**kept, **added}), output)
    sentence = (
        "The guarantee covers the model, not this file: a prediction reveals information about "
        "its own row."
    )
    say(f"{len(rows.X):,} rows predicted. {sentence}")
    fields = {"rows": len(rows.X), "columns": list(kept | added), "sentence": sentence}
    finish(lambda: fields, output)


def _check_output(output: Path | None) -> None:
    """Raise unless predictions can go to a file of this name: they are never printed."""
    if output is None:
        raise ParameterError(
            "Pass --output, the file of the predictions, such as --output predictions.csv."
        )
    if output.suffix.lower() not in (".csv", ".parquet"):
        raise ParameterError(f"--output must end in .csv or .parquet, not {str(output)!r}.")


def _columns(fitted: Any, path: Path) -> Columns:
    """Return the columns that a model was fitted on."""
    columns: Columns | None = getattr(fitted, "encoding_", None)
    if columns is not None:
        return columns
    names = getattr(fitted, "feature_names_in_", None)
    if names is None:
        raise ParameterError(
            f"The model {str(path)!r} has no names of feature columns; fit it with `dpgrain "
            "fit`, or on a data frame."
        )
    return features.FeatureEncoding(tuple(features.NumberColumn(str(name)) for name in names))


def _predictions(fitted: Any, rows: ArrayRows) -> dict[str, Any]:
    """Return the columns of predictions, empty without rows."""
    if not len(rows.X):
        return {"prediction": pa.array([])}
    added = {"prediction": pa.array(fitted.predict(rows.X))}
    if hasattr(fitted, "predict_proba"):
        shares = fitted.predict_proba(rows.X)
        for place, label in enumerate(fitted.classes_.tolist()):
            # Booleans are written in small letters, as in the column of predictions.
            name = str(label).lower() if isinstance(label, bool) else label
            added[f"probability {name}"] = pa.array(shares[:, place])
    return added
