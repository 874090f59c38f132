"""Model files: a loaded model predicts the same, and a broken one raises one sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.learn import models
from tests.refusals import refuses

import dpgrain as dg
from dpgrain import learn, papers
from dpgrain.errors import DataError, ParameterError
from dpgrain.learn import load
from dpgrain.optimize import Ball, Power, Sgd, Tail
from dpgrain.units import Record

ROWS = pd.DataFrame(models.GENERATOR.normal(size=(400, 3)), columns=["a", "b", "c"])
LABELS: dict[str, Any] = {
    "text": np.where(ROWS.a > 0, "ja", "nein"),
    "three": np.array(["x", "y", "z"], dtype=object)[(ROWS.a > 0).astype(int) + (ROWS.b > 0)],
    "numbers": np.where(ROWS.a > 0, 7, -1),
    "truth": (ROWS.a > 0).to_numpy(),
    "halves": np.where(ROWS.a > 0, 0.5, 1.5),
}


def _models() -> list[tuple[learn.LinearModel, Any]]:
    few: dict[str, Any] = {"rounds": 5, "epsilon": 3.0}
    found: list[tuple[learn.LinearModel, Any]] = [
        (learn.LogisticRegression(**few), y) for key, y in LABELS.items() if key != "halves"
    ]
    y = (ROWS.a + 1).to_numpy()
    solver = Sgd(Power(0.5, 0.6), Ball(3.0), Tail(3))
    return [
        *found,
        (learn.LogisticRegression(classes=["ja", "nein", "doch"], **few), LABELS["text"]),
        (learn.LinearSVC(feature_bound=1.5, **few), LABELS["numbers"]),
        (learn.LinearRegression(algorithm=solver, clip="auto", **few), y),
        (learn.HuberRegressor(threshold=0.3, unit=dg.Record(), fit_intercept=False, **few), y),
        (learn.QuantileRegressor(quantile=0.9, l2=0.01, **few), y),
        (learn.PoissonRegressor(intervals=0.3, **few), np.abs(y)),
        (learn.LogisticRegression(intervals=0.3, random_state=3, **few), LABELS["three"]),
    ]


@pytest.mark.parametrize(("model", "y"), _models(), ids=lambda v: type(v).__name__)
def test_a_loaded_model_is_the_same(model: learn.LinearModel, y: Any, tmp_path: Path) -> None:
    model.fit(ROWS, y)
    again = load(models.save(model, tmp_path / "model.json"))
    assert type(again) is type(model)
    wanted, found = model.predict(ROWS), again.predict(ROWS)
    assert found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes() or found.tolist() == wanted.tolist()
    for method in ("predict_proba", "decision_function"):
        if hasattr(model, method):
            assert (getattr(model, method)(ROWS) == getattr(again, method)(ROWS)).all()
    assert again.guarantee_ == model.guarantee_
    assert again.coef_.shape == model.coef_.shape
    assert type(again.intercept_) is type(model.intercept_)
    assert (again.history_.gradients == model.history_.gradients).all()
    assert (again.n_iter_, again.n_warm_up_) == (model.n_iter_, model.n_warm_up_)
    parameters = model.get_params() | {"random_state": None}
    assert repr(again.get_params()) == repr(parameters)
    if model.evidence_ is not None:
        assert str(again.confidence_intervals(0.8)) == str(model.confidence_intervals(0.8))
    # And what was loaded can be written again.
    first = (tmp_path / "model.json").read_text(encoding="utf-8")
    assert models.save(again, tmp_path / "again.json").read_text(encoding="utf-8") == first


def test_non_numbers_survive(tmp_path: Path) -> None:
    model = learn.LinearRegression(rounds=2).fit(ROWS, ROWS.a)
    model.coef_ = np.array([np.inf, np.nan, 1.0])
    path = models.save(model, tmp_path / "model.json")
    json.loads(path.read_text(), parse_constant=pytest.fail)
    assert str(load(path).coef_) == str(model.coef_)


def test_old_files_do_not_mention_a_warm_up(tmp_path: Path) -> None:
    model = learn.LinearRegression(rounds=5).fit(ROWS, ROWS.a)
    path = models.save(model, tmp_path / "model.json")
    values = json.loads(path.read_text())
    assert values.pop("warm_up") == model.n_warm_up_ == 1
    path.write_text(json.dumps(values))
    again = load(path)
    assert (again.n_iter_, again.n_warm_up_) == (4, 0)


def test_a_seed_is_not_written(tmp_path: Path) -> None:
    model = learn.LinearRegression(rounds=2, random_state=123456789).fit(ROWS, ROWS.a)
    path = models.save(model, tmp_path / "model.json")
    assert "123456789" not in path.read_text()
    assert not load(path).guarantee_.private


def test_a_classifier_without_classes_is_damaged(tmp_path: Path) -> None:
    few = learn.LogisticRegression(classes=[0, 1], rounds=2)
    path = models.save(few.fit(ROWS, np.arange(len(ROWS)) % 2), tmp_path / "model.json")
    # The classes are also a parameter, which is not a list here.
    _change(path, classes=None)
    with pytest.raises(ParameterError, match="is damaged"):
        load(path)


def _change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"format": "other"}, "is not a model of dpgrain"),
        ({"version": 99}, "format version 99"),
        ({"estimator": "Popen"}, "is damaged"),
        ({"estimator": "LinearModel"}, "is damaged"),
        ({"coef": [1.0, 2.0]}, "is damaged"),
        ({"coef": "much"}, "is damaged"),
        ({"intercept": None}, "is damaged"),
        ({"parameters": {"nothing": 1}}, "is damaged"),
        ({"parameters": {"unit": {"kind": "run"}}}, "is damaged"),
        ({"guarantee": {}}, "is damaged"),
        ({"history": {}}, "is damaged"),
        ({"features": ["a"]}, "is damaged"),
        ({"encoding": [{"column": "a", "range": None}]}, "is damaged"),
        ({"classes": {"type": "int64", "labels": ["x"]}}, "is damaged"),
        ({"evidence": {"curvature": []}}, "is damaged"),
        (
            {"parameters": {**learn.LinearRegression().get_params(), "feature_bound": "x"}},
            "damaged",
        ),
        ({"tuned": {"feature_bound": 1e-320}}, "is damaged"),
    ],
    ids=lambda v: str(v)[:40],
)
def test_damaged_models(values: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = models.save(learn.LinearRegression(rounds=2).fit(ROWS, ROWS.a), tmp_path / "model.json")
    _change(path, **values)
    with pytest.raises(ParameterError, match=sentence) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    for name in values:
        written = json.loads(path.read_text())
        del written[name]
        path.write_text(json.dumps(written))
        if name not in ("classes", "tuned"):
            with pytest.raises(ParameterError):
                load(path)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff\xfe\x00", b"PK\x03\x04", b"null", b"[" * 10**5]
)
def test_foreign_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with refuses("file", "dpgrain"):
        load(path)


class Derived(learn.LinearRegression):
    """An estimator that is not the library's."""


def test_unreadable_or_unwritable_files_are_reported(tmp_path: Path) -> None:
    with refuses("model", "cannot", kind=DataError):
        load(tmp_path / "nothing.json")
    model = learn.LinearRegression(rounds=2).fit(ROWS, ROWS.a)
    with pytest.raises(DataError, match="cannot be written"):
        models.save(model, tmp_path / "no" / "model.json")
    with refuses("model", "estimator"):
        models.save(Derived(rounds=2).fit(ROWS, ROWS.a), tmp_path / "model.json")
    assert not list(tmp_path.iterdir())


KNOWN = papers.Known(distance=2.0, records=10)
BY_RECIPE: dict[str, Any] = {
    "concentrated": papers.Concentrated(KNOWN, solver=Sgd(Power(0.5, 0.6), Ball(3.0))),
    "winsorized": papers.WinsorizedErm(papers.Known(smoothness=1.0), rounds=3),
    "phased": papers.PhasedErmSco(papers.Known(smoothness=1.0), count=2),
    "sgd": papers.UserLevelSgd(KNOWN, rounds=3, smoothing="none"),
    "strong": papers.UserLevelSgdStronglyConvex(
        papers.Known(strength=0.5, radius=0.7), rounds=3, count=1
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpgrain.EndedWarning")
@pytest.mark.parametrize("name", BY_RECIPE)
def test_models_of_recipes_are_written(name: str, tmp_path: Path) -> None:
    model = learn.LinearRegression(algorithm=BY_RECIPE[name], epsilon=20.0, n_users=400)
    model.fit(ROWS, ROWS.a, users=np.arange(400))
    again = load(models.save(model, tmp_path / "model.json"))
    # Also what is infinite, such as the curvature where there are kinks.
    assert again.get_params() == model.get_params()
    assert (again.predict(ROWS) == model.predict(ROWS)).all()
    assert again.guarantee_ == model.guarantee_
    assert "ε" in model.report(tmp_path / "page.html").read_text(encoding="utf-8")


_RESTART = papers.DecreasingRestart(1.0, 0.5, 3)
BY_SOLVER: tuple[Any, ...] = (
    Sgd(_RESTART, Ball(3.0), _RESTART),
    papers.AcSa(1.0, 3),
    papers.StronglyConvexAcSa(1.0, 0.5),
    papers.GradientMapping(0.5, 2),
)


@pytest.mark.parametrize("solver", BY_SOLVER, ids=lambda solver: type(solver).__name__)
def test_models_of_the_papers_solvers_are_written(solver: Any, tmp_path: Path) -> None:
    model = learn.LinearRegression(algorithm=solver, rounds=3, unit=Record(), n_users=400).fit(
        ROWS, ROWS.a
    )
    again = load(models.save(model, tmp_path / "model.json"))
    assert again.get_params() == model.get_params()
    assert (again.coef_ == model.coef_).all()


@dataclass(frozen=True)
class Own:
    """A custom recipe."""

    def plan(self, task: papers.Task) -> papers.Program:
        return papers.Concentrated(KNOWN).plan(task)


def test_other_recipes_report_themselves_as_unwritable(tmp_path: Path) -> None:
    model = learn.LinearRegression(algorithm=Own(), n_users=400)
    model.fit(ROWS, ROWS.a, users=np.arange(400))
    with pytest.raises(ParameterError, match="algorithm has the value Own"):
        models.save(model, tmp_path / "model.json")


@pytest.mark.slow
def test_tuned_model_is_written_as_its_winner(tmp_path: Path) -> None:
    model = learn.LogisticRegression(tune={"l2": [0.0, 0.1]}, rounds=5, classes=[-1, 7])
    model.fit(ROWS, LABELS["numbers"])
    again = load(models.save(model, tmp_path / "model.json"))
    assert again.tuned_ == model.tuned_
    assert (again.l2, again.tune) == (model.tuned_["l2"], None)
    assert (again.predict(ROWS) == model.predict(ROWS)).all()
    assert again.guarantee_ == model.guarantee_
    assert "settings of l2" in str(again.guarantee_)
    assert "ε" in model.report(tmp_path / "page.html").read_text(encoding="utf-8")
