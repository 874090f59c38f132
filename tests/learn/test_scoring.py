"""Private scores of predictions: sensitivity, interval coverage, and errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import r2_score, roc_auc_score
from tests.effort import Effort
from tests.refusals import refuses
from tests.untouched import Untouched

import dpgrain as dg
from dpgrain.errors import RefusedError
from dpgrain.learn import LogisticRegression, auc, r2
from dpgrain.learn.auc import AucQuery
from dpgrain.learn.r2 import R2Query
from dpgrain.learn.scoring import Predictions, ScoreQuery
from dpgrain.noise import SeededSource
from dpgrain.publishing.charge import Charge
from dpgrain.units import RELATIONS, Relation

STEPS = 2**24
ODD = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, "x", None, 0.5], dtype=object)


class Unread(Untouched):
    """Rows that must not be read."""

    def __getitem__(self, which: Any) -> Any:
        assert which == slice(0, 0), "rows were read"
        return np.empty((0, *self.shape[1:]), dtype=self.dtype)


def people(rng: np.random.Generator, users: int, most: int = 200) -> dict[str, Any]:
    sizes = np.minimum(rng.zipf(1.7, users), most)
    whose = np.repeat(np.arange(users), sizes)
    odds = rng.normal(size=len(whose)) + rng.normal(size=users)[whose] - 0.8
    probability = 1 / (1 + np.exp(-odds))
    return {
        "users": whose,
        "probability": probability,
        "label": rng.random(len(whose)) < probability,
        "weight": 1 / sizes[whose],
        "target": odds,
        "predicted": odds + rng.normal(scale=0.7, size=len(whose)),
    }


def query_of(name: str, of: dict[str, Any], **asked: Any) -> ScoreQuery[Any]:
    if name == "auc":
        query: Any = auc.query(of["label"], of["probability"], positive=True, **asked)
    else:
        query = r2.query(of["target"], of["predicted"], lower=-3.0, upper=3.0, **asked)
    assert isinstance(query, ScoreQuery)
    return query


@pytest.mark.parametrize(
    ("name", "users", "epsilon"),
    [
        (name, users, epsilon)
        for name in ("auc", "r2")
        for users, epsilon in ((60, 1.0), (1500, 0.5), (4000, 3.0))
    ],
)
def test_intervals_have_95_percent_coverage_of_the_score(
    name: str, users: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = people(np.random.default_rng(users), users)
    weights = of["weight"]
    if name == "auc":
        truth = roc_auc_score(of["label"], of["probability"], sample_weight=weights)
    else:
        y, predicted = (np.clip(of[which], -3, 3) for which in ("target", "predicted"))
        truth = r2_score(y, predicted, sample_weight=weights)
    query = query_of(name, of, users=of["users"], epsilon=epsilon)
    sums = query._sums()  # type: ignore[attr-defined]
    monkeypatch.setattr(type(query), "_sums", lambda _: sums)
    held, informed = 0, []
    for seed in range(400):
        with Charge(query.plan.guarantee, SeededSource(seed)) as charge:
            found = query.run(charge)
        assert not charge.left
        held += found.low <= truth <= found.high
        informed.append(found.high - found.low)
    # Of 400 releases 380 on average, 367 with a probability of 10⁻³ for fewer.
    assert held >= 367
    if users == 4000:
        assert np.median(informed) < 0.15


@pytest.mark.parametrize("name", ["auc", "r2"])
def test_almost_noiseless_score_has_a_narrow_interval(name: str) -> None:
    of = people(np.random.default_rng(5), 2000)
    query = query_of(name, of, users=of["users"], epsilon=1e7)
    with Charge(query.plan.guarantee, SeededSource(1)) as charge:
        found = query.run(charge)
    if name == "auc":
        truth = roc_auc_score(of["label"], of["probability"], sample_weight=of["weight"])
        share = np.average(of["label"], weights=of["weight"])
        assert found.positive == pytest.approx(share, abs=1e-5)
        assert found.positive_low <= share <= found.positive_high
        for band in found.calibration:
            there = (of["probability"] >= band.from_) & (of["probability"] < band.to)
            part = np.average(of["label"][there], weights=of["weight"][there])
            assert band.positive == pytest.approx(part, abs=1e-4)
            assert band.low <= part <= band.high
        assert sum(band.share for band in found.calibration) == pytest.approx(1)
        # The remaining error: probabilities are distinguished by hundredths.
        assert found.high - found.low < 0.02
    else:
        y, predicted = (np.clip(of[which], -3, 3) for which in ("target", "predicted"))
        truth = r2_score(y, predicted, sample_weight=of["weight"])
        assert found.high - found.low < 1e-4
    assert found.low <= truth <= found.high
    assert found.units == pytest.approx(2000, abs=0.1)


@pytest.mark.parametrize("name", ["auc", "r2"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", [dg.Record(), dg.User(), dg.Element()])
def test_no_neighbour_moves_sums_beyond_the_charge(
    unit: Any, relation: Relation, name: str, effort: Effort
) -> None:
    """Each sum moves by an l1 norm of at most 1, or 2 where a unit is exchanged; squares by 1."""
    rng, most = np.random.default_rng(7), 0.0
    fields = ("label", "probability") if name == "auc" else ("target", "predicted")
    for _ in effort.some(range(80)):
        of = people(rng, int(rng.integers(1, 5)), 5)
        m = len(of["users"])
        for field in fields:
            cells = of[field].astype(object)
            odd = rng.random(m) < 0.3
            cells[odd] = rng.choice(ODD, odd.sum())
            of[field] = cells
        cells = rng.choice(["p", "q"], m) if unit == dg.Element() else None
        asked = {"epsilon": 1.0, "unit": unit, "relation": relation}
        whole = query_of(name, of, users=of["users"], elements=cells, **asked)
        place = int(rng.integers(m))
        gone = of["users"] == of["users"][place]
        if unit == dg.Record():
            gone = np.arange(m) == place
        elif cells is not None:
            gone &= cells == cells[place]
        other = {field: part.copy() for field, part in of.items()}
        if relation == "replace":
            for field in fields:
                extreme = [False, True] if field == "label" else [-9.0, 0.0, 0.99, 9.0]
                other[field][gone] = rng.choice([*extreme, *ODD], gone.sum())
        else:
            other = {field: part[~gone] for field, part in other.items()}
            cells = None if cells is None else cells[~gone]
        near = query_of(name, other, users=other["users"], elements=cells, **asked)
        billed = 2.0 if relation == "replace" else 1.0
        pairs = zip(_vectors(whole), _vectors(near), strict=True)
        for one, two in pairs:
            # Squared errors are between 0 and 1, so replacing one changes at most 1.
            bound = billed if len(one) > 1 else 1.0
            moved = float(np.abs(one - two).sum()) / STEPS
            assert moved <= bound
            most = max(most, moved / billed)
    assert most > 0.6
    assert 0.999 < whole.plan.guarantee.epsilon() <= 1.0


def _vectors(query: ScoreQuery[Any]) -> tuple[Any, ...]:
    sums = query._sums()  # type: ignore[attr-defined]
    return sums if isinstance(sums, tuple) else (sums,)


@pytest.mark.parametrize("name", ["auc", "r2"])
def test_rejected_release_has_read_nothing(name: str) -> None:
    of = {
        field: Unread(30, dtype="f8") for field in ("label", "probability", "target", "predicted")
    }
    users = Unread(30, dtype="i8")
    query = query_of(name, of, users=users, epsilon=1.0)
    assert 0.999 < query.plan.guarantee.epsilon() <= 1.0
    with dg.budget(0.5, pure=0.5), pytest.raises(RefusedError):
        dg.publish(query)


def test_score_of_no_users_is_unknown() -> None:
    of = people(np.random.default_rng(1), 12)
    found = auc(of["label"], of["probability"], positive=True, users=of["users"], epsilon=0.05)
    assert (found.low, found.high) == (0.0, 1.0)
    other = r2(
        of["target"], of["predicted"], lower=-9.0, upper=9.0, users=of["users"], epsilon=0.05
    )
    assert np.isneginf(other.low)
    assert np.isnan(other.value)
    told = json.loads(other.to_json())
    assert told["value"] is None
    assert told["low"] is None


def test_a_model_scores_people_it_reads_after_the_charge() -> None:
    rng = np.random.default_rng(0)
    users = rng.integers(0, 2000, 6000)
    X = rng.normal(size=(6000, 2))
    y = X[:, 0] + rng.normal(size=6000) / 2 > 0
    model = dg.learn.LogisticRegression(epsilon=3.0, random_state=0).fit(X, y, users=users)
    found = model.score_privately(X, y, users=users, epsilon=1.0, random_state=1)
    assert isinstance(found, dg.learn.Accuracy)
    same = dg.learn.accuracy(
        y, model.predict(X), classes=[False, True], users=users, epsilon=1.0, random_state=1
    )
    assert (found.value, found.base) == (same.value, same.base)
    ranked = model.score_privately(X, y, measure="auc", users=users, epsilon=1.0, random_state=1)
    assert ranked.low < roc_auc_score(y, model.predict_proba(X)[:, 1]) < ranked.high
    assert len(str(ranked).splitlines()) == 14
    told = json.loads(ranked.to_json())
    assert len(told["calibration"]) == 10
    line = dg.learn.LinearRegression(epsilon=3.0, random_state=0).fit(X, X[:, 0], users=users)
    explained = line.score_privately(
        X, X[:, 0], lower=-3, upper=3, users=users, epsilon=1.0, random_state=1
    )
    assert explained.value > 0.9
    assert "predicting the mean has 0" in str(explained)
    with dg.budget(0.5, pure=0.5), pytest.raises(RefusedError):
        model.score_privately(
            Unread(6000, 2, dtype="f8"), Unread(6000, dtype="i8"), users=users, epsilon=1.0
        )


@pytest.mark.parametrize(
    ("of", "asked", "word"),
    [
        ("r2", {"lower": 2.0, "upper": 2.0}, "below upper"),
        ("r2", {"lower": float("nan"), "upper": 2.0}, "lower"),
        ("r2", {"lower": 0.0, "upper": 1.0, "unit": dg.User(max_elements=3)}, "without max"),
        ("auc", {"positive": None}, "positive"),
        ("auc", {"positive": 1, "epsilon": -1.0}, "epsilon"),
    ],
)
def test_invalid_arguments_are_rejected(of: str, asked: dict[str, Any], word: str) -> None:
    publish = auc if of == "auc" else r2
    with pytest.raises(dg.ParameterError, match=word):
        publish.query(np.ones(4), np.ones(4), users=np.arange(4), **{"epsilon": 1.0, **asked})


def test_predictions_and_targets_have_equal_length() -> None:
    with refuses("predicted", "one value per value of y"):
        auc.query(np.ones(4), np.ones(3), positive=1, epsilon=1.0)
    with refuses("predicted", "one value per value of y"):
        r2.query(np.ones(4), np.ones(3), lower=0.0, upper=1.0, epsilon=1.0)


def test_each_score_has_its_query() -> None:
    of = people(np.random.default_rng(0), 5)
    assert isinstance(query_of("auc", of, epsilon=1.0), AucQuery)
    assert isinstance(query_of("r2", of, epsilon=1.0), R2Query)


def score_of(name: str, of: dict[str, Any], **asked: Any) -> str:
    query = query_of(name, of, epsilon=1.0, **asked)
    with Charge(query.plan.guarantee, SeededSource(0)) as charge:
        return str(query.run(charge))


def test_weights_of_rows_are_printed() -> None:
    of = people(np.random.default_rng(0), 300)
    weights = ", each weighted by 1 ÷ its user's number of rows: "
    for name, title in (("auc", "AUC of rows"), ("r2", "R² of rows")):
        assert score_of(name, of, users=of["users"]).startswith(title + weights)
        assert score_of(name, of).startswith(f"{title}: ")


@pytest.mark.parametrize("positive", [False, True])
def test_a_model_changed_later_changes_no_predictions(positive: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    model = LogisticRegression(epsilon=5.0, rounds=2, random_state=0).fit(X, X[:, 0] > 0)
    predictions = Predictions.create(model, X, positive=positive)
    expected = predictions.computed()
    model.coef_ *= -1.0
    model.intercept_ += 9.0
    assert np.array_equal(predictions.computed(), expected)
    model.set_params(fit_intercept=False).fit(X[:, :1], X[:, 0] < 0)
    assert np.array_equal(predictions.computed(), expected)
