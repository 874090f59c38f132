"""If the number of users or the labels are unknown, no published result may reveal them.

Two searches over products of results, units, relations and options. In the first the neighbour has
one user more, and everything public must be equal. In the second that user adds
nothing to any sum and the noisy number of users is the same: then nothing at all may differ.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from tests.claims import unstated
from tests.refusals import refuses
from typer.testing import CliRunner

import dpgrain as dg
from dpgrain import papers
from dpgrain.accounting import Gaussian, Selection
from dpgrain.choices.select import select
from dpgrain.cli.app import app
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import arrange
from dpgrain.inputs.population import ENROLLED
from dpgrain.learn import (
    HuberRegressor,
    LinearModel,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    minimise,
)
from dpgrain.learn.classes import (
    SELECTION_DELTA,
    Targets,
    plan_selection,
    select_labels,
    unselected_targets,
)
from dpgrain.means.problem import Problem, get_method
from dpgrain.means.total_error import UserCount
from dpgrain.means.user_mean import AUTO, mean_of_users
from dpgrain.noise import SeededSource
from dpgrain.optimize import Constant, Sgd, Squared
from dpgrain.publishing import Promise
from dpgrain.report import report as write_report
from dpgrain.units import RELATIONS, Element, Record, Relation, Unit, User

Array: TypeAlias = NDArray[Any]


class Case:
    def __init__(self, run: Callable[..., Any], name: str, **options: Any) -> None:
        self.run, self.name, self.options = run, name, options

    def __call__(self, table: unstated.Table, unit: Unit, relation: Relation, **more: Any) -> Any:
        return self.run(table, unit=unit, relation=relation, **{**self.options, **more})

    def __str__(self) -> str:
        told = ",".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.name}({told})"[:70]


def average(table: unstated.Table, *, unit: Unit, **options: Any) -> Any:
    made = {"delta": unstated.DELTA, "bound": 2.0, "random_state": 1, **options}
    return mean_of_users(table.X, users=table.users, **made)


def choose(table: unstated.Table, *, unit: Unit, **options: Any) -> Any:
    def loss(threshold: float, X: Array) -> Array:
        return abs(X[:, 0]) * threshold

    cells = table.elements if isinstance(unit, Element) else None
    made = {"delta": unstated.DELTA, "random_state": 1, **options}
    return select(
        [0.5, 1.0, 0.25], loss, table.X, users=table.users, unit=unit, elements=cells, **made
    )


def least(table: unstated.Table, *, unit: Unit, **options: Any) -> Any:
    made = {"delta": unstated.DELTA, "rounds": 5, "random_state": 1, **options}
    return minimise(
        Squared(),
        table.X,
        table.y,
        np.zeros(unstated.D),
        solver=Sgd(Constant(0.1)),
        users=table.users,
        elements=table.cells(unit),
        unit=unit,
        **made,
    )


def typical(table: unstated.Table, *, unit: Unit, delta: float = 0.0, **options: Any) -> Any:
    return papers.typical_records(table.users, **{"random_state": 1, **options})


REGRESSORS = (LinearRegression, HuberRegressor, QuantileRegressor, PoissonRegressor)
CLASSIFIERS = (LogisticRegression, LinearSVC)
FITS = [
    *(Case(unstated.fit, kind.__name__, kind=kind) for kind in REGRESSORS),
    *(Case(unstated.fit, kind.__name__, kind=kind, classes=[0, 1]) for kind in CLASSIFIERS),
    *(
        Case(unstated.fit, "logistic", kind=LogisticRegression, classes=[0, 1], **options)
        for options in (
            {"clip": "auto"},
            {"clip": 0.5},
            {"intervals": 0.2},
            {"elements_per_user": "auto"},
            {"exact": True, "clip": 1.0},
            {"algorithm": Sgd(Constant(0.1))},
            {"rounds": None},
            {"feature_bound": 2.0, "l2": 0.1},
        )
    ),
    Case(least, "minimise"),
    Case(least, "minimise", exact=True),
]
# Results that a seed does not fix: draws, choices of labels and estimated centres depend on the
# rows.
DRAWN = [
    *(Case(unstated.fit, kind.__name__, kind=kind, unlabelled=True) for kind in CLASSIFIERS),
    Case(unstated.fit, "logistic", kind=LogisticRegression, classes=[0, 1], sampling_rate=0.5),
    Case(
        unstated.fit,
        "logistic",
        kind=LogisticRegression,
        classes=[0, 1],
        sampling_rate=0.5,
        sampling="users",
    ),
    Case(least, "minimise", sampling_rate=0.5),
]
TUNED = [
    Case(
        unstated.fit, "logistic", kind=LogisticRegression, classes=[0, 1], tune={"clip": [0.1, 1.0]}
    ),
]
WHOLE = [
    *(Case(average, "mean", method=method) for method in ("auto", "clip")),
    Case(average, "mean", method="auto", radius=0.5),
    # A list of users does not state how many of them have records.
    Case(average, "mean", method="clip", n_users=2 * unstated.N),
    Case(average, "mean", method="auto", n_users=50 * unstated.N),
]
AROUND = [Case(average, "mean", method="recentred")]
CHOICES = [
    Case(choose, "select"),
    Case(choose, "select", method="exponential"),
    Case(choose, "select", method="repeat"),
    Case(choose, "select", score=True),
    Case(choose, "select", score=True, method="repeat"),
]
TYPICAL = [Case(typical, "typical_records")]


def product(*groups: tuple[list[Case], tuple[Unit, ...]]) -> list[Any]:
    """All cases with all valid units and both relations."""
    found = []
    for cases, units in groups:
        for case, unit, relation in itertools.product(cases, units, RELATIONS):
            found.append(pytest.param(case, unit, relation, id=f"{case}-{unit}-{relation}"))
    return found


USER: tuple[Unit, ...] = (User(),)
PLAIN: tuple[Unit, ...] = (User(), Element(), Record())
PUBLISHED = product(
    (FITS + DRAWN, unstated.UNITS), (WHOLE + AROUND + TYPICAL + TUNED, USER), (CHOICES, PLAIN)
)


def public_part(found: Any) -> dict[str, Any]:
    """The public part of a release, without noisy numbers."""
    promise = found.guarantee_ if isinstance(found, LinearModel) else found.guarantee
    told: dict[str, Any] = {"promise": promise.to_dict(), "sentence": str(promise)}
    for name in ("n_iter_", "n_features_in_", "classes_", "n_users"):
        # A model's n_users is the stated one.
        if isinstance(found, LinearModel) and hasattr(found, name):
            told[name] = repr(getattr(found, name))
    if isinstance(found, LinearModel) and hasattr(found, "fitted_"):
        told["sampled"] = repr(found.fitted_.sampled)
    for history in (getattr(found, "history_", None), getattr(found, "history", None)):
        if history is not None:
            told["rounds"] = history.points.shape
    return told


def published(run: Callable[[], Any]) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            found: Any = run()
        except ParameterError as error:
            found = str(error)
    return found, [str(warning.message) for warning in seen]


# -- one user more or less --


# Stated numbers are public under both relations.
@pytest.mark.parametrize(
    ("case", "unit", "relation", "stated"),
    [
        pytest.param(*asked.values, stated, id=f"{asked.id}-{stated}")
        for asked in PUBLISHED
        for stated in (None, unstated.N)
        if stated is None or asked.values[2] == "zero_out"
    ],
)
def test_additional_user_changes_nothing_public(
    case: Case, unit: Unit, relation: Relation, stated: int | None
) -> None:
    # Enough to find labels that half of the users have.
    options: dict[str, Any] = {"epsilon": 30.0, "n_users": stated}
    one = Case(case.run, case.name, **{k: v for k, v in case.options.items() if k != "unlabelled"})
    pair = [
        published(partial(one, table, unit, relation, **options))
        for table in (unstated.Table(unstated.N), unstated.Table(unstated.N + 1))
    ]
    (found, said), (other, heard) = pair
    assert not isinstance(found, str), found
    assert said == heard
    told = public_part(found)
    assert told == public_part(other)
    counts = re.findall(r"([\d,]+) (?:enrolled )?users", told["sentence"])
    assert (f"{unstated.N:,}" in counts) == (stated is not None)
    assert f"{unstated.N + 1:,}" not in counts
    promise = found.guarantee_ if isinstance(found, LinearModel) else found.guarantee
    assert promise.epsilon() <= options["epsilon"]


SILENT = product((FITS, unstated.UNITS), (WHOLE, USER), (CHOICES[:3], PLAIN))


def everything(found: Any, folder: Path) -> list[str]:
    if not isinstance(found, LinearModel):
        if hasattr(found, "history"):
            arrays = (found.theta, found.history.points, found.history.gradients)
            return [repr(found.guarantee), str(found.n_users), *(a.tobytes().hex() for a in arrays)]
        return [repr(found)]
    told = [found.save(folder / "model.json").read_text(), repr(found.guarantee_)]
    usual = found.config().promise.unit == User() and found.relation == "zero_out"
    if usual and (found.intervals or isinstance(found, PoissonRegressor)):
        # Plots take their time: of one unit and relation, and two models.
        told.append(write_report(found, folder / "page.html").read_text())
    return told


@pytest.mark.parametrize(("case", "unit", "relation"), SILENT)
def test_user_without_contributions_changes_only_the_noisy_number(
    case: Case, unit: Unit, relation: Relation, tmp_path: Path
) -> None:
    few = 0
    for seed in range(6):
        # So little signal that the number of users is lost in noise, and often taken as 1.
        options = {"epsilon": 0.01, "delta": 1e-9, "random_state": seed}
        if case.name == "typical_records":
            options.pop("delta")
        pair = [
            case(unstated.Table(n, silent=True), unit, relation, **options)
            for n in (unstated.N, unstated.N + 1)
        ]
        numbers = [getattr(found, "n_users_", getattr(found, "n_users", 1)) for found in pair]
        if numbers != [1, 1]:
            # The noise is the same, and so is all of the difference; but that a stated roster gives way
            # to the noisy number where this is clearly another.
            assert numbers[1] - numbers[0] in (0, 1) or 2 * unstated.N in numbers
            continue
        few += 1
        # Coin by coin the same noise was drawn, so what is left are the rows.
        told = [everything(found, tmp_path) for found in pair]
        assert told[0] == told[1]
        break
    # A clipped mean of a stated roster measures the number with the sum, and never takes it as 1.
    assert few >= 1 or "method=clip,n_users=" in str(case)


# -- the noisy number of users --


@pytest.mark.parametrize(("case", "unit", "relation"), product((FITS, (User(), Element()))))
def test_divisors_come_from_the_noisy_number(case: Case, unit: Unit, relation: Relation) -> None:
    numbers = set()
    for seed in range(3):
        found = case(
            unstated.Table(unstated.N), unit, relation, epsilon=1.0, delta=1e-6, random_state=seed
        )
        history = found.history_ if isinstance(found, LinearModel) else found.history
        promise: Any = found.guarantee_ if isinstance(found, LinearModel) else found.guarantee
        n = found.n_users_ if isinstance(found, LinearModel) else found.n_users
        numbers.add(n)
        noise = promise.event.parts[0].noise_multiplier * history.clip
        if case.options.get("elements_per_user") != "auto":
            assert history.noise_sd == pytest.approx(noise / n)
        assert any(part.contribution == ENROLLED for part in promise.event.parts[1:])
    assert len(numbers) > 1


def test_the_mean_is_divided_by_the_noisy_number() -> None:
    # So little noise in the sum that it is seen what it was divided by.
    X = np.full((unstated.N, 1), 1.0)
    numbers = set()
    for seed in range(8):
        found = mean_of_users(
            X, bound=1.0, epsilon=10.0, delta=1e-6, method="clip", random_state=seed
        )
        assert abs(found.value[0] - min(unstated.N / found.n_users, 1.0)) < 0.1
        assert "a division by the noisy number of users, published with the sum" in str(
            found.guarantee
        )
        numbers.add(found.n_users)
    assert len(numbers) > 1
    # Its part of the error is reported.
    found = mean_of_users(X, bound=1.0, epsilon=5.0, delta=1e-6, method="clip", random_state=1)
    stated = mean_of_users(
        X, bound=1.0, epsilon=5.0, delta=1e-6, method="clip", random_state=1, n_users=unstated.N
    )
    assert found.std_error > 1.5 * stated.std_error


# -- labels --


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpgrain.CareWarning")
@pytest.mark.parametrize("unit", unstated.UNITS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_one_persons_label_is_not_found(unit: Unit, relation: Relation) -> None:
    table = unstated.Table(unstated.N + 1)
    y = np.where(table.users == unstated.N, 12345, table.y)
    cells = table.cells(unit)
    for seed in range(20):
        model = LogisticRegression(
            unit=unit, relation=relation, epsilon=60.0, rounds=1, random_state=seed
        )
        model.fit(table.X, y, users=table.users, elements=cells)
        assert model.classes_.tolist() == [0, 1]
        assert "12345" not in str(model.guarantee_)
    # Values shared by this number of users are found, and distinguished only by value.
    kinds = (np.int8, float)
    objects = np.array([kinds[i % 2](label) for i, label in enumerate(table.y)], dtype=object)
    model.fit(table.X, objects, users=table.users, elements=cells)
    assert model.classes_.tolist() == [0, 1]
    assert model.classes_.dtype == np.int64


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", unstated.UNITS)
def test_cost_of_labels(unit: Unit, relation: Relation) -> None:
    event = plan_selection(Promise(unit, 1.0, 1e-6, relation))
    assert event.loss(1, relation, unit).leak <= SELECTION_DELTA * 1e-6
    assert event.loss(1, relation, unit).leak > 0.9 * SELECTION_DELTA * 1e-6
    mu = dg.accounting.losses.gaussian.gaussian_mu(1.0, 0.9e-6)
    assert event.loss(1, relation, unit).mu == pytest.approx(mu * math.sqrt(0.03))


def test_a_block_counts_for_one_label() -> None:
    """One of a user's labels counts, with probability proportional to its rows."""
    event = Selection(1e-6, 0.5, 1)
    # Each of 400 users has three rows with 0 and one with 1.
    users, y = np.repeat(np.arange(400), 4), np.tile([0, 0, 0, 1], 400)
    rows = arrange(len(y), users, None, User())
    found = unselected_targets(y)
    seen: list[Array] = []

    labels, places = select_labels(found, rows, event, SeededSource(1))
    assert labels.tolist() == [0, 1]
    assert np.array_equal(places, y)
    # A threshold between both counts distinguishes them: about 300 and 100 of 400, within 6 sds.
    for threshold, many in ((248.0, 1), (48.0, 2)):
        passed = Selection(1e-6, threshold, 1)
        try:
            seen.append(select_labels(found, rows, passed, SeededSource(2))[0])
            assert many == 2
        except ParameterError:
            assert many == 1
    assert [labels.tolist() for labels in seen] == [[0, 1]]


def test_labels_by_their_type() -> None:
    table = unstated.Table(unstated.N)
    truths = LogisticRegression(rounds=1, random_state=0).fit(table.X, np.ones(len(table.y), bool))
    assert truths.classes_.tolist() == [False, True]
    assert "the labels False, True, as booleans have them" in str(truths.guarantee_)
    # Categories are usually estimated: they state nothing.
    with refuses("classes", "1"):
        LogisticRegression(rounds=1).fit(table.X, pd.Series(table.y, dtype="category"))


def test_label_without_a_value_is_missing() -> None:
    found = unselected_targets(np.array(["b", None, "a", b"b", np.nan, "b"], dtype=object))
    assert found.labels == (("text", "b"), ("text", "a"))
    assert np.isnan(found.values[[1, 4]]).all()
    assert found.values[[0, 2, 3, 5]].tolist() == [0, 1, 0, 0]
    empty = unselected_targets(np.zeros(0))
    assert (empty.labels, empty.values.shape) == ((), (0,))
    rows, event = (
        arrange(0, [], None, User()),
        plan_selection(Promise(User(), 1.0, 1e-6, "zero_out")),
    )
    with refuses("classes", "labels"):
        select_labels(Targets(np.zeros(0), (), ()), rows, event, SeededSource(0))


# -- what needs to be stated --


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            lambda X, y: LogisticRegression(trust="shuffle").fit(X, y > 0, users=range(len(X))),
            "n_users must be passed with trust='shuffle'",
        ),
        (
            lambda X, y: LogisticRegression(trust="pan").fit(X, y > 0, users=range(len(X))),
            "n_users must be passed with trust='pan'",
        ),
        (
            lambda X, y: LogisticRegression(algorithm=papers.Concentrated()).fit(
                X, y > 0, users=range(len(X))
            ),
            "n_users must be passed with a recipe",
        ),
        (
            lambda X, y: LogisticRegression(algorithm=papers.Concentrated(), n_users=50).fit(
                X, y, users=range(len(X))
            ),
            "classes is required with a recipe",
        ),
        (
            lambda X, y: LogisticRegression(tune={"clip": [1.0, 2.0]}).fit(X, y),
            "classes is required with tune",
        ),
        (
            lambda X, y: minimise(
                Squared(),
                X,
                y,
                [0.0, 0.0],
                solver=papers.Concentrated(),
                users=range(len(X)),
                epsilon=1.0,
            ),
            "n_users must be passed with a recipe",
        ),
        (
            lambda X, y: mean_of_users(X, bound=1.0, epsilon=1.0, delta=1e-6, method="softcore"),
            "n_users is required with the method 'softcore'",
        ),
        (
            lambda X, y: mean_of_users(X, bound=1.0, epsilon=1.0, delta=1e-6, method="winsorized"),
            "n_users is required with the method 'winsorized'",
        ),
    ],
)
def test_functions_needing_the_number_state_it(run: Callable[..., Any], message: str) -> None:
    table = unstated.Table(unstated.N)
    with dg.budget(50.0, 1e-3) as budget, pytest.raises(ParameterError, match=message) as told:
        run(table.X, table.y)
    # Before anything is charged, in one message, without a number of rows.
    assert budget.guarantee is None
    assert str(len(table.y)) not in str(told.value)
    assert str(told.value).count(". ") == 0


# -- the number of users decides --


@pytest.mark.slow
def test_noisy_queries_follow_the_number_within_the_charge() -> None:
    """Whatever the number, no more is spent than before it was known."""
    number = Gaussian(20.0, ENROLLED)
    for relation, radius in itertools.product(RELATIONS, (None, 0.5)):
        promise = Promise(dg.User(), 1.0, 1e-6, relation)
        problem = Problem(1, 3, promise, 10.0, radius, number, stated=False)
        for method in (AUTO, get_method("recentred")):
            assert method.make_without_n is not None
            spent = method.make_without_n(problem)
            limit = spent.event.loss(1, relation)
            assert (spent.event + number).epsilon(1e-6, relation=relation) <= 1.0
            made = set()
            for n in (1, 30, 1000, 3000, 10_000, 100_000, 10**9):
                assert spent.then is not None
                plan = spent.then(UserCount(n, number.noise_multiplier))
                made.add((plan.method, plan.mean.rounds))
                cost = plan.event.loss(1, relation)
                gaussians = [
                    part.loss(1, relation).mu ** 2
                    for part in plan.event.parts
                    if not isinstance(part, dg.accounting.ExponentialMechanism)
                ]
                before = [
                    part.loss(1, relation).mu ** 2
                    for part in spent.event.parts
                    if not isinstance(part, dg.accounting.ExponentialMechanism)
                ]
                # Each type separately, like the limits of a filter.
                assert sum(gaussians) <= sum(before)
                assert sum(gaussians) > 0.999 * sum(before)
                assert cost.pure <= limit.pure
                choices = [
                    part
                    for part in (*plan.event.parts, *spent.event.parts)
                    if isinstance(part, dg.accounting.ExponentialMechanism)
                ]
                assert len({part.scale for part in choices}) <= 1
                assert plan.mean.n_users == (1 if plan.method == "clip" else n)
            assert len(made) > 1


# -- the command line --


@pytest.mark.slow
def test_command_line_shows_no_number(tmp_path: Path) -> None:
    told: list[Any] = []
    for n in (unstated.N, unstated.N + 1):
        table, folder = unstated.Table(n), tmp_path / str(n)
        folder.mkdir()
        frame = pd.DataFrame({"a": table.X[:, 0], "b": table.X[:, 1], "y": table.y})
        frame.insert(0, "who", table.users.to_numpy())
        frame.to_parquet(folder / "rows.parquet")
        common = [
            str(folder / "rows.parquet"),
            "--user",
            "who",
            "--unit",
            "user",
            "--epsilon",
            "30",
        ]
        common += ["--delta", "1e-3"]
        model, mean = folder / "model.json", folder / "mean.json"
        fitted = ["--target", "y", "--features", "a,b", "--rounds", "5", "--output", str(model)]
        averaged = ["--columns", "a,b", "--bound", "2", "--output", str(mean)]
        for arguments in (
            ["fit", "logistic", *common, *fitted],
            [
                "mean-of-users",
                *(word for word in common if word not in ("--unit", "user")),
                *averaged,
            ],
        ):
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, result.output
            assert "enrolled users" not in result.output
        told.append([json.loads(file.read_text())["guarantee"] for file in (model, mean)])
    assert told[0] == told[1]
