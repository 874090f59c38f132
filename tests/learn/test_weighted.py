"""Fits of users weighted by records: contributions of blocks, texts and neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from tests.refusals import refuses
from tests.replay import recorded, replayed

import dpgrain as dg
from dpgrain import learn, papers
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.norms import NormHistogram
from dpgrain.gradients.records import RecordBlocks
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.inputs.record_limit import RecordCounts
from dpgrain.numerics.row_clipping import clipped
from dpgrain.optimize import Ball, CoinBetting, Logistic, Power, Sgd, Softmax, Squared
from dpgrain.optimize.models import Truncated
from dpgrain.units import RELATIONS, Relation

Array = NDArray[np.float64]
FORMS: dict[str, Any] = {
    "dense": np.asarray,
    "sparse": sparse.csr_array,
    "single": lambda X: X.astype(np.float32),
}
SIZES = (1, 2, 3, 40, 90, 300)


def blocks(most: int, outputs: int, form: str) -> tuple[LinearGradients, RecordBlocks, Any]:
    rng, codes = np.random.default_rng(0), np.repeat(np.arange(len(SIZES)), SIZES)
    X = rng.normal(size=(len(codes), 5)) * rng.uniform(0.1, 5, size=(len(codes), 1))
    loss: Any = Squared() if outputs == 1 else Softmax(outputs)
    y = rng.normal(size=len(codes)) if outputs == 1 else rng.integers(0, outputs, len(codes)) * 1.0
    rows = LinearBlocks.arrange(FORMS[form](X), y, codes, intercept=False, max_records=most)
    theta = rng.normal(size=5 * outputs)
    return (
        LinearGradients(rows, loss, theta),
        RecordBlocks.arrange(X, y, codes, max_records=most),
        loss,
    )


def weighted(records: RecordBlocks, loss: Any, theta: Array, most: int) -> Array:
    vectors = []
    for first, last in zip(records.starts[:-1], records.starts[1:], strict=True):
        own = loss.gradient(theta, records.X[first:last], records.y[first:last])
        vectors.append(own.mean(axis=0) * min(last - first, most) / most)
    return np.array(vectors)


@pytest.mark.parametrize("most", [1, 2, 50, 10_000])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("form", ["dense", "sparse", "single"])
def test_blocks_have_the_weights_of_their_records(most: int, outputs: int, form: str) -> None:
    fast, records, loss = blocks(most, outputs, form)
    exact = weighted(records, loss, fast.theta, most)
    close: dict[str, Any] = (
        {"rtol": 1e-4, "atol": 1e-4} if form == "single" else {"rtol": 1e-9, "atol": 1e-12}
    )
    assert np.allclose(fast.vectors(), exact, **close)
    slow = records.gradients(loss, fast.theta)
    assert np.allclose(slow.vectors(), exact)
    for clip in (0.05, 0.5, 1e9):
        whole = clipped(exact, clip).sum(axis=0)
        scale: dict[str, Any] = {name: value * len(exact) for name, value in close.items()}
        assert np.allclose(fast.clipped_sum(clip), whole, **scale)
        assert np.allclose(slow.clipped_sum(clip), whole)
    some = records.select(np.array([1, 4])).gradients(loss, fast.theta)
    assert np.allclose(some.vectors(), exact[[1, 4]])


@pytest.mark.parametrize("most", [2, 50, 4096])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("form", ["dense", "sparse", "single"])
def test_no_block_adds_more_than_the_bound(most: int, outputs: int, form: str) -> None:
    longest = 0.0
    for size in (1, 2, 60, 3000, 40_000):
        rng = np.random.default_rng(size)
        X = rng.normal(size=(size, 3)) * 10.0 ** rng.integers(-2, 6)
        y = np.full(size, 1.0)
        rows = LinearBlocks.arrange(
            FORMS[form](X), y, np.zeros(size, dtype=int), intercept=True, max_records=most
        )
        loss: Any = Squared() if outputs == 1 else Softmax(outputs)
        at = LinearGradients(rows, loss, rng.normal(size=4 * outputs))
        longest = max(longest, float(np.linalg.norm(at.clipped_sum(1.0))))
    assert 0.9 < longest <= 1.0 + 1e-12


def sample(n: int = 2000, many: int = 30) -> tuple[Array, Array, NDArray[np.intp]]:
    """Half of the users have one row and another slope than those with many."""
    rng, users = (
        np.random.default_rng(0),
        np.repeat(np.arange(n), np.where(np.arange(n) < n // 2, 1, many)),
    )
    X = rng.uniform(-1, 1, size=(len(users), 2))
    slope = np.where(users < n // 2, 0.5, 1.5)
    return X, slope * X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=len(users)), users


def fit(X: Any, y: Any, users: Any, **options: Any) -> learn.LinearRegression:
    values = {"weights": "records", "epsilon": 2.0, "random_state": 1}
    return learn.LinearRegression(**{**values, **options}).fit(X, y, users=users)


def test_a_fit_describes_the_average_record() -> None:
    X, y, users = sample()
    for most in (30, None):
        assert abs(fit(X, y, users, max_records=most).coef_[0] - 1.47) < 0.06
    plain = fit(X, y, users, weights="users")
    assert abs(plain.coef_[0] - 1.0) < 0.06
    assert fit(X, y, users, max_records=1).coef_.tolist() == plain.coef_.tolist()


def check_draws(
    publish: Callable[..., Any],
    guarantee: str,
    relation: Relation,
    max_records: int | None,
    intervals: float,
) -> None:
    """Check that a user who is removed, or gets other records, changes draws as much as charged."""
    X, y, users = sample(60, 6)
    last = users == users.max()
    asked = {"relation": relation, "max_records": max_records, "intervals": intervals, "rounds": 5}
    asked |= {"epsilon": 8.0, "n_users": 60, "exact": True}
    shown = 0.0
    for far in (1e3, -1e3):
        left, right = np.where(last, far, y), (np.where(last, -far, y), users, X)
        if relation == "zero_out":
            right = (y[~last], users[~last], X[~last])
        with recorded() as first:
            found = publish(X, left, users, **asked)
        with replayed(first) as second:
            publish(right[2], right[0], right[1], **asked)
        lost = math.fsum(a.lost(b)[0] for a, b in zip(first, second, strict=True))
        bound = getattr(found, guarantee).event.loss(1, relation).mu ** 2
        assert lost <= bound * (1 + 1e-6)
        shown = max(shown, lost / bound)
    assert shown > 0.3


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("max_records", [None, 3])
@pytest.mark.parametrize("intervals", [0.0, 0.2])
def test_all_draws_of_a_fit_are_charged(
    relation: Relation, max_records: int | None, intervals: float
) -> None:
    check_draws(fit, "guarantee_", relation, max_records, intervals)


def test_texts_files_and_intervals_state_the_average(tmp_path: Path) -> None:
    X, y, users = sample(8000, 9)
    model = fit(X, y, users, max_records=9, intervals=0.3, n_users=8000, l2=1e-3)
    what = "average record, up to 9 per user, not the average person"
    assert what in str(model)
    assert what in model.explain()
    assert "effective ridge is 0.001 divided by it" in " ".join(model.explain().split())
    assert what in str(model.confidence_intervals())
    assert "of which at most 9 count" in str(model.guarantee_)
    again = learn.load(model.save(tmp_path / "model.json"))
    assert what in str(again)
    assert what in again.explain()
    assert again.fitted_.max_records == 9
    assert again.max_records_ == model.max_records_ == 9
    found = fit(X, y, users)
    assert found.max_records_ in (8, 12, 16)
    assert "about" in found.explain().partition("Step")[2][:300]
    plan = learn.LinearRegression(weights="records").query(X, y, users=users).plan
    assert "record limit" in plan.parts
    assert plan.guarantee.epsilon() <= 1.0


def test_intervals_contain_the_coefficients_of_the_average_record() -> None:
    X, y, users = sample(8000, 9)
    found = fit(X, y, users, max_records=9, intervals=0.3, n_users=8000, rounds=100)
    ends = found.confidence_intervals()
    assert ends.resolved
    truth = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
    assert ((ends.low < truth) & (truth < ends.high)).all()
    assert (ends.high - ends.low).max() < 0.3


def test_a_bound_is_found_above_a_gap() -> None:
    counts = np.zeros(50)
    counts[[5, 40]] = 500.0, 400.0
    norms = NormHistogram(counts, 5.0)
    assert norms.bound(10.0, 1.0) < 0.1
    assert norms.bound(10.0, 1.0, gaps=True) > 1.0
    assert NormHistogram(counts, 1e6).bound(10.0, 1.0, gaps=True) == 1.0


def test_a_mean_weight_is_estimated_from_the_counts() -> None:
    counts = np.zeros(42)
    counts[[0, 3]] = 100.0, 100.0
    assert RecordCounts(4, counts).mean_weight(200) == pytest.approx(0.625)
    assert RecordCounts(4).mean_weight(200) is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"weights": "users", "max_records": 3}, ["max_records", "omitted"]),
        ({"weights": "rows"}, ["weights", "'records'"]),
        ({"unit": dg.Record()}, ["weights", "Record()"]),
        ({"tune": {"l2": [0.0, 1.0]}}, ["weights", "tune"]),
        ({"trust": "shuffle", "n_users": 60}, ["weights", "shuffle"]),
    ],
)
def test_wrong_parameters_are_rejected_by_name(wrong: dict[str, Any], words: list[str]) -> None:
    X, y, users = sample(60, 6)
    with refuses(*words):
        fit(X, y, users, **wrong)


def test_a_logistic_fit_accepts_weights() -> None:
    X, y, users = sample(2000, 9)
    model = learn.LogisticRegression(weights="records", max_records=9, random_state=0)
    assert model.fit(X, y > 0, users=users).coef_[0, 0] > 0
    assert isinstance(model.loss(None), Logistic)


def minimum(X: Any, y: Any, users: Any, **options: Any) -> learn.Minimum:
    values: dict[str, Any] = {"weights": "records", "epsilon": 2.0, "random_state": 1}
    values |= {"solver": CoinBetting(), "clip": 2.0}
    return learn.minimise(Squared(), X, y, [0.0, 0.0], users=users, **{**values, **options})


def test_minimum_describes_the_average_record() -> None:
    X, y, users = sample()
    for most in (30, None):
        found = minimum(X, y, users, max_records=most)
        assert abs(found.theta[0] - 1.47) < 0.1
        assert found.max_records == most or most is None
        assert f"average record, up to {found.max_records} per user" in str(found)
    plain = minimum(X, y, users, weights="users")
    assert abs(plain.theta[0] - 1.0) < 0.1
    assert (plain.max_records, "average person" in str(plain)) == (None, True)
    assert minimum(X, y, users, max_records=1).theta.tolist() == plain.theta.tolist()


def test_steps_of_models_have_weights() -> None:
    X, y, users = sample(400, 6)
    options = {"solver": Sgd(Power(3.0), Ball(3.0)), "model": Truncated(), "max_records": 6}
    found = minimum(X, y, users, epsilon=30.0, rounds=30, **options)
    assert found.theta[0] > 1.2


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("max_records", [None, 3])
@pytest.mark.parametrize("intervals", [0.0, 0.2])
def test_all_draws_of_a_minimum_are_charged(
    relation: Relation, max_records: int | None, intervals: float
) -> None:
    check_draws(minimum, "guarantee", relation, max_records, intervals)


def test_a_minimum_has_intervals_of_the_average_record() -> None:
    X, y, users = sample(8000, 9)
    found = minimum(X, y, users, max_records=9, intervals=0.3, n_users=8000, rounds=100)
    ends = found.confidence_intervals()
    assert ends.resolved
    truth = np.linalg.lstsq(X, y, rcond=None)[0]
    assert ((ends.low < truth) & (truth < ends.high)).all()
    assert (ends.high - ends.low).max() < 0.3
    assert ends.names == ("θ0", "θ1")
    assert "average record, up to 9 per user" in str(ends)
    assert str(ends) in str(found)
    parts = learn.minimise.query(
        Squared(), X, y, [0.0, 0.0], solver=CoinBetting(), users=users, epsilon=1.0,
        weights="records", intervals=0.1,
    ).plan.parts  # fmt: skip
    assert {*parts} == {"rounds", "evidence", "number of users", "record limit"}
    with refuses("intervals", "confidence_intervals"):
        minimum(X, y, users, rounds=2).confidence_intervals()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"weights": "users", "max_records": 3}, ["max_records", "omitted"]),
        ({"unit": dg.Record()}, ["weights", "Record()"]),
        ({"solver": papers.Concentrated(papers.Known(distance=1.0))}, ["weights", "recipe"]),
        ({"weights": "users", "intervals": 1.0}, ["intervals", "[0, 1)"]),
        (
            {
                "weights": "users",
                "intervals": 0.1,
                "solver": papers.Concentrated(papers.Known(distance=1.0)),
            },
            ["intervals", "recipe"],
        ),
        (
            {
                "weights": "users",
                "intervals": 0.1,
                "model": Truncated(),
                "solver": Sgd(Power(0.5), Ball(3.0)),
            },
            ["intervals", "model"],
        ),
    ],
)
def test_minimise_rejects_wrong_weights_and_intervals(
    wrong: dict[str, Any], words: list[str]
) -> None:
    X, y, users = sample(60, 6)
    with refuses(*words):
        minimum(X, y, users, n_users=60, **wrong)


class OnlyGradients:
    """A loss without margins, so that its curvature is unknown."""

    def value(self, theta: Array, X: Array, y: Array) -> Array:
        return np.asarray((X @ theta - y) ** 2 / 2)

    def gradient(self, theta: Array, X: Array, y: Array) -> Array:
        return np.asarray((X @ theta - y)[:, None] * X)


class OwnSquared(Squared):
    """A caller's loss, whose curvature could fail on one record."""


@pytest.mark.parametrize(
    "loss", [OnlyGradients(), OwnSquared()], ids=lambda loss: type(loss).__name__
)
def test_intervals_reject_losses_of_callers(loss: Any) -> None:
    X, y, users = sample(60, 6)
    with refuses("intervals", type(loss).__name__, "Squared()"):
        learn.minimise(
            loss, X, y, [0.0, 0.0], solver=CoinBetting(), users=users, epsilon=1.0, intervals=0.1,
        )  # fmt: skip
