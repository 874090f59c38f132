"""A file can state what the functions take, and nothing is written down a second time."""

from __future__ import annotations

import dataclasses
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
from dpgrain.releases.kinds import KINDS, Asked

# What the file says of all releases, or the run decides; and what no text can state.
ELSEWHERE = {
    *("table", "unit", "relation", "epsilon", "delta", "share", "random_state", "progress"),
    *("X", "users", "dimension", "n_users"),
}
NO_TEXT = {"n_features", "verbose"}


@pytest.mark.parametrize("name", KINDS["statistic"])
def test_keys_are_the_parameters_of_the_function(name: str) -> None:
    kind = KINDS["statistic"][name]
    own = {key.name for key in kind.own}
    assert set(kind.keys) == set(inspect.signature(getattr(dg, name)).parameters) - ELSEWHERE | own


@pytest.mark.parametrize("name", FITS)
def test_keys_are_the_parameters_of_the_estimator(name: str) -> None:
    kind = KINDS["fit"][name]
    own = {key.name for key in kind.own}
    parameters = set(inspect.signature(getattr(learn, FITS[name])).parameters)
    assert set(kind.keys) == parameters - ELSEWHERE - NO_TEXT | own


def test_every_statistic_of_the_library_is_a_kind() -> None:
    named = {name for name in dg.__all__ if _publishes(getattr(dg, name))}
    # One quantile is a list of one; candidates of a choice are functions, which no file can state.
    assert named - set(KINDS["statistic"]) == {"quantile", "select"} & named


def _publishes(value: Any) -> bool:
    return inspect.isfunction(value) and {"epsilon", "share"} <= set(
        inspect.signature(value).parameters
    )


def _asked(own: dict[str, Any], folder: Path) -> Asked:
    return Asked(cases.unread(), dg.User(), "zero_out", own, folder)


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
    kind = KINDS["statistic"]["count"]
    told = kind.query(_asked(own, tmp_path), 1.0, 1e-6).plan
    items = 4 if form == "by column" else 2
    assert dg.Fact("items", (items,)) in told.guarantee.public


@pytest.mark.parametrize(
    ("own", "key", "said"),
    [
        ({"by": "topic", "domain": "no.txt"}, "domain", "is not a file"),
        ({"by": "topic", "domain": 5}, "domain", "domain must be a file, a list"),
    ],
)
def test_a_domain_that_is_wrong_is_named(
    own: dict[str, Any], key: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(dg.ParameterError, match=said) as told:
        KINDS["statistic"]["count"].query(_asked(own, tmp_path), 1.0, 1e-6)
    assert told.value.name == key


def test_a_fit_and_a_mean_say_which_unit_they_need(tmp_path: Path) -> None:
    own = {"columns": ["age"], "bound": 3.0}
    asked = dataclasses.replace(_asked(own, tmp_path), unit=dg.Record())
    with refuses("statistic", "'user'"):
        KINDS["statistic"]["mean_of_users"].query(asked, 1.0, 1e-6)
    own = {"target": "bought", "features": ["age"], "range": {"seconds": [0, 1]}}
    with refuses("range", "'seconds'"):
        KINDS["fit"]["logistic"].query(_asked(own, tmp_path), 1.0, 1e-6)
    asked = dataclasses.replace(_asked(own, tmp_path), unit=dg.Element(Path("cells.csv")))
    with refuses("element", "column"):
        KINDS["fit"]["logistic"].query(asked, 1.0, 1e-6)
