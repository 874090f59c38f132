"""Keys of release files are parameters of functions, and entries are their queries."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses
from tests.releases import cases

import dpgrain as dg
from dpgrain import learn
from dpgrain.learn.estimator_names import ESTIMATORS as FITS
from dpgrain.publishing import Query
from dpgrain.releases.functions import FUNCTIONS, keys_of_function, query_of
from dpgrain.units import Unit

# Options that the file sets for all releases, or the run decides; and those without a text form.
ELSEWHERE = {
    *("table", "unit", "relation", "epsilon", "delta", "share", "random_state", "progress"),
    *("X", "users", "dimension", "n_users"),
}
NO_TEXT = {"n_features", "verbose"}


# Keys for columns of a table.
OF_MEANS, OF_FITS = {"columns"}, {"target", "features", "categories", "range"}


@pytest.mark.parametrize("name", FUNCTIONS["statistic"])
def test_keys_are_the_parameters_of_the_function(name: str) -> None:
    own = OF_MEANS if name == "mean_of_users" else set()
    parameters = set(inspect.signature(getattr(dg, name)).parameters)
    assert set(keys_of_function("statistic", name)) == parameters - ELSEWHERE | own


@pytest.mark.parametrize("name", FITS)
def test_keys_are_the_parameters_of_the_estimator(name: str) -> None:
    parameters = set(inspect.signature(getattr(learn, FITS[name])).parameters)
    assert set(keys_of_function("fit", name)) == parameters - ELSEWHERE - NO_TEXT | OF_FITS


def test_every_statistic_of_the_library_is_a_kind() -> None:
    named = {name for name in dg.__all__ if _publishes(getattr(dg, name))}
    # One quantile is a list of one; candidates of a choice are functions, which no file can state.
    assert named - set(FUNCTIONS["statistic"]) == {"quantile", "select"} & named


def _publishes(value: Any) -> bool:
    return inspect.isfunction(value) and {"epsilon", "share"} <= set(
        inspect.signature(value).parameters
    )


def _query(
    word: str, name: str, own: dict[str, Any], folder: Path, unit: Unit = dg.User()
) -> Query[Any]:
    promise: dict[str, Any] = {"relation": "zero_out", "epsilon": 1.0, "delta": 1e-6}
    return query_of(word, name, cases.unread(), own, folder, unit=unit, **promise)


@pytest.mark.parametrize("form", ["txt", "csv", "parquet", "list", "by column", "tuples"])
def test_a_domain_in_every_form(form: str, tmp_path: Path) -> None:
    labels = ["t0", "t1"]
    table = pa.table({"topic": labels, "page": ["p1", "p2"]})
    pq.write_table(table, tmp_path / "d.parquet")
    (tmp_path / "d.csv").write_text("topic\nt0\nt1\n")
    (tmp_path / "d.txt").write_text("t0\nt1\n")
    own: dict[str, Any] = {"by": "topic"}
    if form == "list":
        own["domain"] = labels
    elif form == "by column":
        own = {"by": ["topic", "page"], "domain": {"topic": "d.txt", "page": ["p1", "p2"]}}
    elif form == "tuples":
        own = {"by": ["topic", "page"], "domain": [["t0", "p1"], ["t1", "p2"]]}
    else:
        own["domain"] = f"d.{form}"
    told = _query("statistic", "count", own, tmp_path).plan
    items = 4 if form == "by column" else 2
    assert dg.Fact("items", (items,)) in told.guarantee.public


@pytest.mark.parametrize(
    ("own", "key", "said"),
    [
        ({"by": "topic", "domain": "no.txt"}, "domain", "is not a file"),
        ({"by": "topic", "domain": 5}, "domain", "domain must be a file, a list"),
    ],
)
def test_invalid_domain_is_named(own: dict[str, Any], key: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(dg.ParameterError, match=said) as told:
        _query("statistic", "count", own, tmp_path)
    assert told.value.name == key


def test_fit_and_mean_state_their_required_unit(tmp_path: Path) -> None:
    own: dict[str, Any] = {"columns": ["age"], "bound": 3.0}
    with refuses("statistic", "'user'"):
        _query("statistic", "mean_of_users", own, tmp_path, dg.Record())
    own = {"target": "bought", "features": ["age"], "range": {"seconds": [0, 1]}}
    with refuses("range", "'seconds'"):
        _query("fit", "logistic", own, tmp_path)
    with refuses("element", "column"):
        _query("fit", "logistic", own, tmp_path, dg.Element(Path("cells.csv")))
