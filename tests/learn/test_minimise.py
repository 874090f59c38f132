"""Private minimisation of any loss: solvers, models of the loss, units."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.errors import ParameterError
from dpgrain.gradients.records import RecordBlocks
from dpgrain.learn import LogisticRegression, minimise
from dpgrain.optimize import Absolute, Ball, CoinBetting, Last, Logistic, Power, Sgd, Squared
from dpgrain.optimize.models import Linear, Proximal, Truncated
from dpgrain.papers import AcSa, Moreau
from dpgrain.units import Element, Record, Unit, User

Array = NDArray[Any]
RNG = np.random.default_rng(0)
USERS = np.repeat(np.arange(500), 4)
ELEMENTS = np.tile([0, 0, 1, 1], 500)
X = np.column_stack([RNG.uniform(-1, 1, size=(2000, 2)), np.ones(2000)])
TRUTH = np.array([1.0, -0.5, 0.2])
Y = X @ TRUTH + 0.1 * RNG.normal(size=2000)
STEPS = Sgd(Power(1.0), Ball(3.0))


class Biweight:
    """A custom loss: not convex, two methods."""

    def value(self, theta: Array, X: Array, y: Array) -> Array:
        error = X @ theta - y
        return error**2 / (1 + error**2)  # type: ignore[no-any-return]

    def gradient(self, theta: Array, X: Array, y: Array) -> Array:
        error = X @ theta - y
        return (2 * error / (1 + error**2) ** 2)[:, None] * X  # type: ignore[no-any-return]


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("model", [None, Linear(), Truncated(), Proximal()], ids=repr)
@pytest.mark.parametrize(
    ("unit", "elements"),
    [(None, None), (Element(), ELEMENTS), (User(max_elements=1), ELEMENTS), (Record(), None)],
    ids=["user", "element", "kept", "record"],
)
def test_every_model_and_unit_finds_the_minimum(
    model: Any, unit: Unit | None, elements: Any
) -> None:
    # Models take blocks one by one, and a step on the loss itself solves a problem for each: fewer.
    rows, rounds, epsilon = (400, 60, 20.0) if model else (2000, 60, 5.0)
    if model == Proximal():
        rows, rounds, epsilon = 80, 8, 300.0
    found = minimise(
        Squared(),
        X[:rows],
        Y[:rows],
        np.zeros(3),
        solver=STEPS,
        model=model,
        users=USERS[:rows],
        elements=None if elements is None else elements[:rows],
        unit=unit,
        epsilon=epsilon,
        rounds=rounds,
        random_state=0,
    )
    assert np.linalg.norm(found.theta - TRUTH) < (0.7 if model == Proximal() else 0.35)
    assert 0.99 < found.guarantee.epsilon() / epsilon <= 1
    assert len(found.history.gradients) == rounds


@pytest.mark.parametrize(
    ("loss", "solver"),
    [
        (Biweight(), Sgd(Power(0.7))),
        (Absolute(), Sgd(Power(0.7))),
        (Moreau(Absolute(), 0.2), CoinBetting()),
        (Squared(), CoinBetting()),
    ],
    ids=["own", "kinks", "smoothed", "betting"],
)
def test_every_loss_and_solver(loss: Any, solver: Any) -> None:
    found = minimise(
        loss, X, Y, np.zeros(3), solver=solver, users=USERS, epsilon=5.0, random_state=0
    )
    assert np.linalg.norm(found.theta - TRUTH) < 0.4


def test_accelerated_steps() -> None:
    solver = AcSa(1.0, rounds=100, noise=0.02, distance=3.0, domain=Ball(3.0))
    found = minimise(Squared(), X, Y, np.zeros(3), solver=solver, users=USERS, epsilon=5.0)
    assert np.linalg.norm(found.theta - TRUTH) < 0.4


def test_it_is_the_estimators_fit() -> None:
    y = (Y > 0).astype(float)
    steps = Sgd(Power(2.0), average=Last())
    options: dict[str, Any] = {"epsilon": 3.0, "rounds": 20, "random_state": 5}
    own = minimise(Logistic(), X, y, np.zeros(3), solver=steps, users=USERS, **options)
    model = LogisticRegression(algorithm=steps, fit_intercept=False, classes=[0, 1], **options)
    assert np.allclose(own.theta, model.fit(X, y, users=USERS).coef_[0], atol=1e-9)
    assert own.guarantee.event == model.guarantee_.event


def test_non_finite_values_reveal_no_user() -> None:
    rows, y = X.copy(), Y.copy()
    rows[0, 0], y[1] = np.inf, np.nan
    clean, left = rows.copy(), np.arange(len(y)) != 1
    clean[0, 0] = 0
    options: dict[str, Any] = {
        "solver": STEPS,
        "n_users": 500,
        "epsilon": 1.0,
        "random_state": 1,
        "rounds": 3,
    }
    found = minimise(Squared(), rows, y, np.zeros(3), users=USERS, **options)
    expected = minimise(Squared(), clean[left], y[left], np.zeros(3), users=USERS[left], **options)
    assert np.array_equal(found.theta, expected.theta)


ODD: list[Any] = [1j, "abc", None, {}, np.complex128(1 + 1j), [1.0], 10**400]


@pytest.mark.parametrize("cell", ODD, ids=lambda cell: repr(cell)[:12])
def test_one_malformed_cell_or_target_affects_no_other(cell: Any) -> None:
    # Booleans, which NumPy converts to text or complex numbers with such cells.
    rows = [[a > 0, a, b] for a, b, _ in X[:200].tolist()]
    truths = [bool(y > 0) for y in Y[:200]]

    def found(rows: Any, targets: Any) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return minimise(
                Logistic(),
                rows,
                targets,
                np.zeros(3),
                solver=STEPS,
                rounds=5,
                random_state=0,
                epsilon=1.0,
            ).theta

    odd, missing = [list(row) for row in rows], np.array(rows, dtype=np.float64)
    odd[7][1], missing[7, 1] = cell, np.nan
    objects = np.empty(missing.shape, dtype=object)
    for i, row in enumerate(odd):
        objects[i, :] = row
    tables: list[Any] = [odd, list(map(tuple, odd)), objects]
    for given in tables:
        assert np.array_equal(found(given, truths), found(missing, truths))
    targets: list[Any] = [*truths[:7], cell, *truths[8:]]
    column = np.empty(len(targets), dtype=object)
    column[:] = targets
    columns: list[Any] = [targets, tuple(targets), column]
    for given in columns:
        assert np.array_equal(found(rows, given), found(rows, [*truths[:7], np.nan, *truths[8:]]))


def test_too_large_number_gives_no_warning() -> None:
    large = X[:50].astype(np.longdouble)
    large[3, 0] = np.finfo(np.longdouble).max
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        minimise(Squared(), large, Y[:50], np.zeros(3), solver=STEPS, rounds=2, epsilon=1.0)


@pytest.mark.slow
def test_block_moves_a_round_by_at_most_the_clip() -> None:
    largest = 0.0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y = Y * 10.0 ** rng.integers(-1, 4)
        someone = int(rng.integers(500))
        for model in (Linear(), Truncated()):
            options: dict[str, Any] = {
                "solver": STEPS,
                "model": model,
                "epsilon": 1.0,
                "n_users": 500,
                "random_state": 1,
                "rounds": 1,
            }
            pair = [
                minimise(
                    Squared(), X[keep], y[keep], np.zeros(3), users=USERS[keep], **options
                ).history.gradients[0]
                for keep in (USERS >= 0, someone != USERS)
            ]
            largest = max(largest, 500 * float(np.linalg.norm(pair[0] - pair[1])))
    assert 0.5 < largest <= 1 + 1e-6


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": Linear(), "solver": CoinBetting()}, "solver must be Sgd if a model"),
        ({"X": np.ones(3)}, "X and y must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"start": ["Ann"]}, "start must be a list of numbers"),
    ],
)
def test_invalid_parameters_are_reported(wrong: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {"X": X, "y": Y, "start": np.zeros(3), "solver": STEPS, "epsilon": 1.0}
    with pytest.raises(ParameterError, match=message) as caught:
        minimise(Squared(), **{**values, **wrong})
    assert caught.value.__context__ is None


def test_cancelling_records_are_bounded_by_rounding() -> None:
    # Of cancelling records of 1e17 only last digits would remain, which belong to any user.
    y = np.array([1e17, -1e17, 3.0, 1.0])
    blocks = RecordBlocks.arrange(np.ones((4, 1)), y, [0, 0, 0, 0])
    shortened = blocks.gradients(Squared(), np.zeros(1), longest=1e6).vectors()
    assert shortened.tolist() == [[-1.0]]


def test_exact_sums_name_their_assumptions() -> None:
    options: dict[str, Any] = {"solver": STEPS, "users": USERS, "epsilon": 1.0, "rounds": 2}
    exact = minimise(Squared(), X, Y, np.zeros(3), exact=True, **options)
    assert "separately from other records" in str(exact.guarantee)


@pytest.mark.parametrize("width", [2, 12])
def test_a_minimum_prints_a_summary(width: int) -> None:
    X = np.ones((500, width))
    found = minimise(
        Squared(), X, X[:, 0], [0.0] * width, solver=Sgd(Power(0.1)), rounds=3, epsilon=1.0,
        users=range(500), n_users=500, random_state=1,
    )  # fmt: skip
    lines = str(found).splitlines()
    assert repr(found) == str(found)
    assert lines[0].startswith(f"θ = ({found.theta[0]:.4g}, ")
    assert lines[0].endswith("(12 in all))") == (width == 12)
    assert lines[1].startswith("3 noisy gradients of 500 users, noise ")
    assert str(found.guarantee) in str(found)
