"""A fit is requested, planned and charged before anything of its rows is read."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning
from tests.learn.cases import BINARY, USERS, X, fit_tuned
from tests.refusals import refuses

import dpgrain as dg
from dpgrain import learn, papers
from dpgrain.errors import ParameterError
from dpgrain.learn.query import FitQuery
from dpgrain.learn.tuning import TunedQuery
from dpgrain.optimize import Ball, Constant, Last, Sgd, Squared
from dpgrain.publishing import Promise, Query, publish
from dpgrain.publishing.origins import PickleOrigin

STEPS = Sgd(Constant(0.1), Ball(2.0), Last())


class Unread:
    def __init__(self, values: Any) -> None:
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, which: Any) -> Any:
        assert which == slice(0, 0), "rows were read"
        return np.empty((0, *self.shape[1:]), dtype=self.dtype)

    def _read(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("rows were read")

    __array__ = __iter__ = tolist = _read


def _model(**options: Any) -> Any:
    return learn.LogisticRegression(**{"classes": [0, 1], "rounds": 4, **options})


def _minimum(rows: Any, **options: Any) -> Any:
    X, y, users = rows
    asked = {"solver": STEPS, "rounds": 4, **options}
    return learn.minimise.query(Squared(), X, y, np.zeros(3), users=users, **asked)


def _fit(rows: Any, **options: Any) -> Any:
    X, y, users = rows
    return _model(**options).query(X, y, users=users)


#: Requirements on the rows, which have not been read.
ASKED: dict[str, Callable[..., Query[Any]]] = {
    "fit": _fit,
    "fit exactly": lambda rows, **o: _fit(rows, exact=True, **o),
    "labels": lambda rows, **o: _fit(rows, **{"classes": None, **o}),
    "intervals": lambda rows, **o: _fit(rows, intervals=0.2, **o),
    "recipe": lambda rows, **o: _fit(
        rows, **{"n_users": 600, "algorithm": papers.Concentrated(), "rounds": None, **o}
    ),
    "shuffled": lambda rows, **o: _fit(rows, n_users=600, trust="shuffle", **o),
    "tuned": lambda rows, **o: _fit(rows, tune={"l2": [0.0, 0.1]}, **o),
    "minimum": _minimum,
    "minimum by a recipe": lambda rows, **o: _minimum(
        rows, **{"n_users": 600, "solver": papers.Concentrated(), **o}
    ),
}
UNREAD = (Unread(X), Unread(BINARY), Unread(USERS))


@pytest.mark.parametrize("asked", ASKED)
def test_fit_beyond_the_budget_has_read_nothing(asked: str) -> None:
    with dg.budget(0.1, 1e-6) as whole:
        with pytest.raises(dg.RefusedError):
            publish(ASKED[asked](UNREAD, epsilon=2.0))
        assert whole.left == 1.0
    # It would be seen.
    with pytest.raises(AssertionError, match="rows were read"):
        publish(ASKED[asked](UNREAD, epsilon=2.0))


@pytest.mark.parametrize("asked", ASKED)
def test_plan_reads_nothing_and_equals_the_charge(asked: str) -> None:
    told = ASKED[asked](UNREAD, epsilon=2.0, random_state=1).plan.guarantee
    made = publish(ASKED[asked]((X, BINARY, USERS), epsilon=2.0, random_state=1))
    guarantee = made.guarantee if hasattr(made, "guarantee") else made.guarantee_
    assert guarantee.event == told.event
    assert guarantee.public == told.public


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("asked", ASKED)
def test_share_is_settled_only_by_plans(asked: str) -> None:
    with dg.budget(8.0, 1e-5, leak=5e-6) as whole:
        query = ASKED[asked](UNREAD, share=0.5).settled()
        assert whole.left == 1.0
        query = ASKED[asked]((X, BINARY, USERS), share=0.5, random_state=1)
        publish(query)
        assert 0.49 < 1 - whole.left <= 0.5 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["fit", "tuned"])
def test_share_reports_its_cost(asked: str) -> None:
    rows = X, BINARY, USERS
    with dg.budget(8.0, 1e-5, leak=5e-6):
        model = publish(ASKED[asked](rows, share=0.5, random_state=1))
    used = model.parameters_
    assert used["share"] is None
    assert (model.share, model.epsilon) == (0.5, 1.0)
    again = publish(
        ASKED[asked](rows, epsilon=used["epsilon"], delta=used["delta"], random_state=1)
    )
    assert np.array_equal(again.coef_, model.coef_)
    assert again.guarantee_.event == model.guarantee_.event


def test_no_event_is_drawn_but_its_parts() -> None:
    """A fit charged for fewer parts than it draws stops at the first missing one."""
    query = _fit((X, BINARY, USERS), random_state=1)
    assert isinstance(query, FitQuery)
    plan = query.plan
    parts = plan.guarantee.event.parts
    assert len(parts) == 3
    fields = {name: getattr(query, name) for name in query.__dataclass_fields__}
    for left_out in parts:
        rest = [part for part in parts if part is not left_out]
        less = _Less(**fields)
        told = replace(plan.guarantee, event=sum(rest[1:], start=rest[0]))
        object.__setattr__(less, "told", replace(plan, guarantee=told))
        with pytest.raises(RuntimeError, match="no charged draws left"):
            publish(less)


class _Less(FitQuery):
    """A fit with a foreign plan."""

    @property
    def plan(self) -> Any:
        return vars(self)["told"]


@pytest.mark.slow
def test_uncharged_setting_is_not_fitted() -> None:
    grid = [{"rounds": 3}, {"rounds": 5}]
    query = _model(tune=grid, random_state=1).query(X, BINARY, users=USERS)
    assert isinstance(query, TunedQuery)
    plan, other = query.plan, _model(tune=[{"rounds": 9}]).query(X, BINARY, users=USERS)
    assert isinstance(other, TunedQuery)

    class Other(TunedQuery):
        @property
        def plan(self) -> Any:
            return plan

        @property
        def candidates(self) -> Any:
            return other.candidates * 2

    wrong = Other(**{name: getattr(query, name) for name in query.__dataclass_fields__})
    wrong.__dict__["runs_noise"] = query.runs_noise
    with pytest.raises(RuntimeError, match="not part of the charge"):
        publish(wrong)


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a number": ({}, {"rounds": 9, "l2": 0.5, "epsilon": 3.0, "unit": dg.Record()}),
    "a number of a tuned fit": ({"tune": {"l2": [0.0, 0.1]}}, {"rounds": 9, "tune": None}),
    "a recipe": ({"n_users": 600, "trust": "shuffle"}, {"trust": "central", "rounds": 2}),
    "classes": ({"classes": np.array([0, 1])}, {"classes": None}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_changes_no_query(change: str) -> None:
    options, changes = CHANGES[change]
    model = _model(random_state=1, **options)
    expected = model.query(X, BINARY, users=USERS)
    query = model.query(X, BINARY, users=USERS)
    model.set_params(**changes).fit(X, BINARY, users=USERS)
    model.coef_[:] = 7.0
    assert query.plan == expected.plan
    one, other = publish(query), publish(expected)
    assert np.array_equal(one.coef_, other.coef_)
    assert one.guarantee_ == other.guarantee_
    assert repr(one.parameters_) == repr(other.parameters_)
    assert (model.coef_ == 7.0).all()


def test_a_changed_value_changes_no_query() -> None:
    """Lists, arrays and grids that a caller changes in place are copied."""
    lists: dict[str, Any] = {"classes": [0, 1], "tune": {"l2": [0.0, 0.1]}}
    arrays: dict[str, Any] = {
        "classes": np.array([0, 1]),
        "tune": {"l2": np.array([0.0, 0.1])},
    }
    for values in (lists, arrays):
        model = _model(random_state=1, **values)
        query = model.query(X, BINARY, users=USERS)
        plan = query.plan
        values["classes"][1] = 5
        values["tune"]["l2"][0] = 9.0
        again = query.with_promise(query.promise)
        assert again.plan == plan
        assert publish(again).classes_.tolist() == [0, 1]


def test_a_published_query_returns_another_model() -> None:
    model = _model(random_state=2)
    query = model.query(X, BINARY, users=USERS)
    one, other = publish(query), publish(query)
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "n_features_in_")
    assert one is not other
    assert type(one) is type(model)
    assert repr(one.get_params()) == repr(model.get_params())
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.coef_, model.fit(X, BINARY, users=USERS).coef_)
    assert model.guarantee_ == one.guarantee_
    assert not one.guarantee_.private


def test_a_fit_leaves_nothing_of_an_earlier_fit() -> None:
    model = _model(random_state=2, tune={"l2": [0.0, 0.1]})
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model.fit(frame, BINARY, users=USERS)
    assert model.tuned_["l2"] in (0.0, 0.1)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    model.set_params(tune=None).fit(X, BINARY, users=USERS)
    assert not hasattr(model, "tuned_")
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == X.shape[1]


@pytest.mark.parametrize("asked", ["fit", "tuned", "minimum"])
def test_a_copy_has_the_blocks_of_its_promise(asked: str) -> None:
    query: Any = ASKED[asked]((X, BINARY, USERS), epsilon=1.0, random_state=1)
    for unit in (dg.Record(), dg.User(max_elements=3)):
        other = Promise.of(unit, 1.0, 1e-6, "zero_out")
        with refuses("promise", "create a new query"):
            query.with_promise(other)
    records = replace(query, promise=Promise.of(dg.Record(), 1.0, 1e-6, "zero_out"))
    result = publish(records)
    guarantee = result.guarantee if hasattr(result, "guarantee") else result.guarantee_
    assert guarantee.level == "record"
    # Blocks are single rows: the same gradients as of a query for records.
    expected = publish(
        ASKED[asked]((X, BINARY, USERS), epsilon=1.0, unit=dg.Record(), random_state=1)
    )
    history = "history" if asked == "minimum" else "history_"
    found = [getattr(each, history).gradients for each in (result, expected)]
    assert np.array_equal(*found)


def test_model_sent_elsewhere_is_not_fitted_there() -> None:
    with dg.budget(8.0, 1e-5):
        model = pickle.loads(pickle.dumps(_model()))
    model._sent = PickleOrigin(-1, budget=True, ledger=None)
    with pytest.raises(ParameterError, match="was sent here while a budget was open"):
        model.query(X, BINARY, users=USERS)


def test_a_warning_of_the_form_is_given_once() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        _model(random_state=1).fit(X, BINARY[:, None], users=USERS)
    assert [each.category for each in seen].count(DataConversionWarning) == 1


@pytest.mark.slow
def test_tuning_by_hand_takes_a_share() -> None:
    with dg.budget(8.0, 1e-5, leak=5e-6) as whole:
        fit_tuned(_model(share=0.5), X, BINARY, users=USERS, grid={"l2": [0.0, 0.1]})
        assert 0.49 < 1 - whole.left <= 0.5 + 1e-9
