"""The promise of a fit or a mean of columns is known before anything is read."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.refusals import refuses
from tests.releases import cases

import dpgrain as dg
from dpgrain import learn
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.features import CategoryColumn, FeatureEncoding, NumberColumn
from dpgrain.publishing import Query
from dpgrain.releases.table_queries import column_labels, fit_columns, mean_of_columns

ENCODING = FeatureEncoding(
    (NumberColumn("age", (0.0, 100.0)), CategoryColumn("topic", ("t0", "t1")))
)
PROMISE: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6}

MODELS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "labels": (learn.LogisticRegression, "bought", {"classes": [0, 1]}),
    "labels unstated": (learn.LogisticRegression, "bought", {}),
    "numbers": (learn.LinearRegression, "seconds", {}),
}
UNITS: dict[str, tuple[Any, str | None]] = {
    "user": (dg.User(), None),
    "element": (dg.Element(), "topic"),
    "user of few elements": (dg.User(max_elements=2), "topic"),
    "record": (dg.Record(), None),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"intervals": 0.2},
    {"sampling_rate": 0.5, "clip": 1.0},
    {"clip": "auto", "elements_per_user": "auto"},
]


@pytest.mark.parametrize("unit", sorted(set(UNITS) - {"user"}))
def test_a_fit_of_rows_of_people_protects_whole_people(unit: str) -> None:
    protected, element = UNITS[unit]
    people = cases.unread().per_user(by="topic", age=("age", "mean"), bought=("bought", "max"))
    model = learn.LogisticRegression(classes=[0, 1], unit=protected, n_users=600, **PROMISE)
    with refuses("unit", "User"):
        dg.publish(model.query(ColumnRows(people, ENCODING, "bought", element), None))


@pytest.mark.parametrize(
    ("model", "unit", "options", "roster"),
    list(itertools.product(MODELS, UNITS, OPTIONS, (None, 600))),
    ids=str,
)
def test_a_fit_keeps_the_promise_of_its_plan(
    model: str, unit: str, options: dict[str, Any], roster: int | None
) -> None:
    kind, target, own = MODELS[model]
    protected, element = UNITS[unit]

    def fit(table: dg.UserTable) -> Query[learn.LinearModel]:
        asked = {**PROMISE, **own, **options, "rounds": 4, "random_state": 1}
        estimator = kind(unit=protected, n_users=roster, **asked)
        query: Query[learn.LinearModel] = estimator.query(
            ColumnRows(table, ENCODING, target, element), None
        )
        return query

    told = fit(cases.unread()).plan.guarantee
    made = dg.publish(fit(cases.table())).guarantee_
    assert made.event == told.event
    assert (made.level, made.elements, made.user) == (told.level, told.elements, told.user)
    assert made.user == "who"
    assert dg.Fact("scaled-feature", ("age", 0, 100)) in made.public


@pytest.mark.parametrize("model", MODELS)
def test_fit_beyond_the_budget_opens_no_table(model: str) -> None:
    kind, target, own = MODELS[model]
    for options in ({}, {"tune": {"l2": [0.0, 0.1]}, "classes": [0, 1]}):
        if "tune" in options and model == "numbers":
            continue
        estimator = kind(**{**PROMISE, **own, **options, "n_users": 600})
        with dg.budget(0.5, 1e-5) as whole:
            with pytest.raises(dg.RefusedError):
                dg.publish(estimator.query(ColumnRows(cases.unread(), ENCODING, target), None))
            assert whole.left == 1.0


@pytest.mark.filterwarnings("ignore:more than half of the users were clipped")
@pytest.mark.parametrize("trust", ["shuffle", "pan"])
def test_a_fit_without_a_curator_as_well(trust: Any) -> None:
    rows = cases.ROWS
    roster = dg.read(rows, user="who", n_users=600)

    def fit(table: dg.UserTable) -> Query[learn.LinearModel]:
        model = learn.LinearRegression(
            trust=trust, n_users=600, rounds=3, random_state=1, **PROMISE
        )
        return model.query(ColumnRows(table, ENCODING, "seconds"), None)

    made = dg.publish(fit(roster)).guarantee_
    assert fit(cases.unread()).plan.guarantee.event == made.event


@pytest.mark.parametrize(
    ("method", "radius"), list(itertools.product(("auto", "clip", "recentred"), (None, 20.0)))
)
@pytest.mark.parametrize("roster", [None, 600])
def test_a_mean_keeps_the_promise_of_its_plan(
    method: str, radius: float | None, roster: int | None
) -> None:
    def mean(table: dg.UserTable) -> Query[dg.MeanOfUsers]:
        options = {**PROMISE, "bound": 200.0, "radius": radius, "method": method}
        asked = {**options, "n_users": roster, "random_state": 1}
        return mean_of_columns.query(table, ["seconds", "age"], **asked)

    told = mean(cases.unread()).plan
    assert told.guarantee.event == dg.publish(mean(cases.table())).guarantee.event
    assert (told.expected is None) == (radius is None or roster is None)


@pytest.mark.parametrize("method", ["auto", "clip", "recentred"])
def test_a_mean_reads_nothing_before_it_is_paid_for(method: str) -> None:
    asked: dict[str, Any] = {"bound": 200.0, "method": method, "n_users": 600, "random_state": 1}
    table = cases.unread()
    query = mean_of_columns.query(table, ["seconds", "age"], **PROMISE, **asked)
    made = mean_of_columns(cases.table(), ["seconds", "age"], **PROMISE, **asked)
    assert replace(query.plan.guarantee, private=False) == made.guarantee
    with dg.budget(1.0, 1e-6) as budget:
        with pytest.raises(dg.RefusedError):
            mean_of_columns(table, ["seconds", "age"], **PROMISE, **asked)
        assert budget.left == 1.0
        with pytest.raises(AssertionError, match="rows were read"):
            mean_of_columns(table, ["seconds", "age"], share=0.5, **asked)
        assert budget.left < 0.6


def test_mean_states_its_rows_and_users(tmp_path: Path) -> None:
    table = dg.read(cases.parquet(tmp_path), user="who").where(topic=["t0", "t1"])
    told = mean_of_columns.query(table, ["age"], bound=9.0, **PROMISE).plan.guarantee
    assert (told.user, told.scope, told.provenance) == ("who", table.scope, "checked")
    assert not told.scope.everything


def test_a_mean_needs_users() -> None:
    with refuses("user", "column"):
        mean_of_columns(dg.read(cases.ROWS), ["age"], bound=1.0, **PROMISE)


def test_an_empty_table_is_fitted_like_any_other() -> None:
    empty = dg.read(cases.ROWS.slice(0, 0), user="who")
    model = learn.LinearRegression(rounds=3, random_state=1, **PROMISE)
    told = model.query(ColumnRows(cases.unread(), ENCODING, "seconds"), None).plan
    assert (
        dg.publish(model.query(ColumnRows(empty, ENCODING, "seconds"), None)).guarantee_.event
        == told.guarantee.event
    )


def test_boolean_labels_are_booleans_and_others_stay() -> None:
    assert column_labels([False, "True"], "BOOLEAN") == [False, True]
    assert column_labels([True, 0], "BIGINT") == [True, 0]
    assert column_labels(["Yes"], "VARCHAR") == ["Yes"]
    with refuses("classes", "false and true"):
        column_labels([0, 1], "BOOLEAN")


def boolean_rows(*, missing: bool = False) -> pa.Table:
    age = np.random.default_rng(0).uniform(0, 100, 1200)
    bought = [None if missing and place % 10 == 0 else bool(a > 50) for place, a in enumerate(age)]
    topic = pa.array(["t0", "t1"] * 600)
    columns = {"who": np.arange(1200), "age": age, "bought": pa.array(bought), "topic": topic}
    return pa.table(columns)


@pytest.mark.parametrize("rows", ["whole", "with nulls", "none"])
def test_labels_of_a_boolean_target_are_public(rows: str) -> None:
    table = boolean_rows(missing=rows == "with nulls").slice(0, 0 if rows == "none" else None)
    model = learn.LogisticRegression(rounds=3, n_users=1200, random_state=1, **PROMISE)
    query = model.query(ColumnRows(dg.read(table, user="who"), ENCODING, "bought"), None)
    made = dg.publish(query)
    assert made.classes_.dtype == np.bool_
    assert made.classes_.tolist() == [False, True]
    assert made.guarantee_.event == query.plan.guarantee.event
    assert dg.Fact("boolean-labels", ("False, True",)) in made.guarantee_.public
    assert "selected-labels" not in [fact.kind for fact in made.guarantee_.public]
    if rows != "none":
        assert made.coef_[0, 0] > 0


def test_rows_without_a_boolean_target_are_dropped() -> None:
    options: dict[str, Any] = {"rounds": 3, "n_users": 1200, "random_state": 1, **PROMISE}
    rows = boolean_rows(missing=True)
    there = rows.filter(rows["bought"].is_valid())
    fits = [
        dg.publish(
            learn.LogisticRegression(**options).query(
                ColumnRows(dg.read(table, user="who"), ENCODING, "bought"), None
            )
        )
        for table in (rows, there)
    ]
    assert fits[0].coef_[0] == pytest.approx(fits[1].coef_[0])


def test_stated_labels_of_a_boolean_target_match() -> None:
    options: dict[str, Any] = {"classes": ["false", "TRUE"], "n_users": 1200, **PROMISE}
    table = dg.read(boolean_rows(), user="who")
    made = fit_columns(table, "logistic", "bought", features=["age"], rounds=3, **options)
    assert made.classes_.tolist() == [False, True]
    assert made.coef_[0, 0] > 0


def test_a_table_is_not_fitted_as_an_array() -> None:
    with refuses("X", "dpgrain fit", "release file"):
        learn.LogisticRegression().fit(cases.unread(), "bought", users="who")
