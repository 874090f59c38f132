"""Fits with a curator: sampling and clipping of blocks, and the public parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.learn import cases

from dpgrain._progress import Progress
from dpgrain.gradients.norms import release_norms
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.learn import LinearRegression, LogisticRegression, central
from dpgrain.learn.central import CentralFit
from dpgrain.learn.rounds import train
from dpgrain.noise import SeededSource
from dpgrain.optimize import CoinBetting, Constant, Sgd
from dpgrain.publishing import Charge
from dpgrain.units import RELATIONS, Element, Record, Relation, User

Array = NDArray[Any]


def test_parts_share_one_promise() -> None:
    options: dict[str, Any] = {"clip": "auto", "elements_per_user": "auto", "intervals": 0.15}
    options |= {"n_users": 600, "classes": [0, 1], "rounds": 60}
    model = LogisticRegression(unit=Element(), epsilon=1.0, **options)
    model.fit(cases.X, cases.BINARY, users=cases.USERS, elements=cases.ELEMENTS)
    assert len(model.guarantee_.event.parts) == 3
    assert 0.99 < model.guarantee_.epsilon() <= 1.0
    assert model.history_.clip in 2.0 ** np.arange(-12, 12.5, 0.5)
    stated: dict[str, Any] = {"n_users": 600, "classes": [0, 1], "clip": 1.0, "rounds": 60}
    alone = LogisticRegression(unit=Element(), epsilon=1.0, **stated)
    alone.fit(cases.X, cases.BINARY, users=cases.USERS, elements=cases.ELEMENTS)
    # The noise of the rounds is larger because of the other parts.
    noise = [m.guarantee_.event.parts[0].noise_multiplier for m in (model, alone)]  # type: ignore[attr-defined]
    assert 1.05 < noise[0] / noise[1] < 1.4


@pytest.mark.parametrize("relation", RELATIONS)
def test_each_part_has_its_share_under_the_relation(relation: Relation) -> None:
    """Shares refer to μ², and a part's sensitivity depends on the relation."""
    model = LogisticRegression(unit=Element(), epsilon=1.0, relation=relation, intervals=0.15)
    config = model.config()
    noise = CentralFit.calibrate(config, config.promise)
    parts = (noise.norms, noise.evidence, noise.event)
    norms, evidence, whole = (
        part.loss(1, relation, Element()).mu ** 2 for part in parts if part is not None
    )
    assert [norms / whole, evidence / whole] == pytest.approx([0.1, 0.15], rel=0.02)


@pytest.mark.parametrize("clip", ["auto", 1.0])
@pytest.mark.parametrize("n", [None, 600])
def test_all_charged_parts_are_lent_for_draws(n: Any, clip: Any) -> None:
    model = LogisticRegression(unit=User(), epsilon=1.0, clip=clip, intervals=0.1, n_users=n)
    query = model.query(cases.X, cases.BINARY, users=cases.USERS)
    with Charge(query.plan.guarantee, SeededSource(1)) as charge:
        query.run(charge)
        assert not charge.left


def test_default_fit_uses_half_the_betting_rounds() -> None:
    def rounds(**options: Any) -> int:
        config = LinearRegression(**options).config()
        return CentralFit.calibrate(config, config.promise).mean.rounds

    assert [rounds(clip=clip) for clip in (None, 1.0)] == [50, 100]
    assert rounds(n_users=1000, sampling_rate=0.1, sampling="users") == 500


def test_correlated_features_are_fitted_within_the_default_rounds() -> None:
    rng = np.random.default_rng(2)
    turn = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    along, widths = rng.normal(size=(8000, 8)), np.geomspace(1, 1 / 300, 8) ** 0.5
    X, y = (along * widths) @ turn.T, along.sum(axis=1) + rng.normal(size=8000)
    lost = {}
    # A stated solver is the library's before: bets, with the bound that a default fit would find.
    for name, stated in {
        "default": {},
        "bets": {"algorithm": CoinBetting(), "clip": "auto", "rounds": 100},
    }.items():
        options: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6, "n_users": 2000, **stated}
        model = LinearRegression(random_state=1, **options)
        model.fit(X, y, users=np.repeat(np.arange(2000), 4))
        # The features explain 8 of 9 parts of the variance.
        lost[name] = (8 / 9 - model.score(X, y)) / (8 / 9)
    assert lost["default"] < min(0.1, 0.7 * lost["bets"])


@pytest.mark.parametrize("unit", [None, Record(), Element(), User(max_elements=2)], ids=repr)
def test_blocks_are_clipped_to_the_norms_near_the_solution(unit: Any) -> None:
    stated: dict[str, Any] = {"unit": unit, "rounds": 50, "n_users": 600, "classes": [0, 1]}
    cells = None if unit in (None, Record()) else cases.ELEMENTS
    passed: dict[str, Any] = {"users": cases.USERS, "elements": cells}
    model = LogisticRegression(**stated).fit(cases.X, cases.BINARY, **passed)
    rounds, norms = model.guarantee_.event.parts
    # All rounds are accounted for, also those that search the neighbourhood, with the same noise.
    assert rounds.rounds == 50  # type: ignore[attr-defined]
    assert model.n_iter_ == len(model.history_.points) == 40
    assert model.n_warm_up_ == 10
    assert model.history_.points[0].any()
    # So is each noisy query of norms.
    assert norms.count == len(model.fitted_.norms) == 2  # type: ignore[attr-defined]
    assert norms.level == rounds.level
    history = model.history_
    assert history.noise_sd == pytest.approx(rounds.noise_multiplier * history.clip / 600)  # type: ignore[attr-defined]
    assert history.clip in 2.0 ** np.arange(-12, 12.5, 0.5)
    assert "the first fifth of the rounds estimates the solution" in str(model.guarantee_)
    for options in ({"clip": 1.0}, {"algorithm": Sgd(Constant(1.0))}):
        plain = LogisticRegression(**stated, **options).fit(cases.X, cases.BINARY, **passed)
        assert (plain.n_warm_up_, plain.n_iter_, plain.history_.clip) == (0, 50, 1.0)
        assert not plain.history_.points[0].any()
        assert "a clipping bound of 1" in str(plain.guarantee_)


@pytest.mark.parametrize("rounds", [1, 12])
@pytest.mark.parametrize("held", [1.0, "auto"])
@pytest.mark.parametrize("clip", [None, 1.0, "auto"])
@pytest.mark.parametrize("algorithm", ["auto", Sgd(Constant(1.0))], ids=["betting", "sgd"])
def test_uncharged_values_are_not_published(
    algorithm: Any, clip: Any, held: Any, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    steps: list[Any] = []

    def look(gradients: Any, event: Any, source: Any) -> Any:
        events.append(event)
        return release_norms(gradients, event, source)

    def step(at: Any, mean: Any, *given: Any, **options: Any) -> Any:
        steps.append(mean)
        return train(at, mean, *given, **options)

    monkeypatch.setattr(central, "release_norms", look)
    monkeypatch.setattr(central, "train", step)
    model = LogisticRegression(
        algorithm=algorithm, clip=clip, elements_per_user=held, rounds=rounds, intervals=0.2
    )
    model.set_params(n_users=600, classes=[0, 1])
    model.fit(cases.X, cases.BINARY, users=cases.USERS)
    parts = model.guarantee_.event.parts
    charged = parts[0]
    assert sum(mean.rounds for mean in steps) == charged.rounds == rounds  # type: ignore[attr-defined]
    assert {mean.noise_multiplier for mean in steps} == {charged.noise_multiplier}  # type: ignore[attr-defined]
    norms = parts[1] if events else None
    assert len(events) == (0 if norms is None else norms.count)  # type: ignore[attr-defined]
    assert all(event is not None and event == norms for event in events)


@pytest.mark.parametrize("n", [2000, 20_000])
def test_regression_comes_to_the_mean_of_skewed_errors(n: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 1))
    y = X[:, 0] + rng.exponential(1, n) - 1
    model = LinearRegression(epsilon=3.0, unit=Record(), n_users=n, random_state=0).fit(X, y)
    # The median of the errors is −0.31: a bound at the median of norms leads there.
    assert abs(model.intercept_) < 0.1
    assert abs(model.coef_[0] - 1) < 0.15


def test_people_with_another_slope_have_their_share() -> None:
    rng, n = np.random.default_rng(0), 5000
    rows = np.where(np.arange(n) < n // 10, 50, 5)
    users = np.repeat(np.arange(n), rows)
    X = rng.uniform(-1, 1, size=(len(users), 1))
    slope = np.where(users < n // 10, 1.0, -1.0)
    y = slope * X[:, 0] + 0.3 * rng.normal(size=len(users))
    model = LinearRegression(epsilon=3.0, n_users=n, random_state=0).fit(X, y, users=users)
    assert model.coef_[0] == pytest.approx(-0.8, abs=0.03)


@pytest.mark.parametrize("unit", [User(), Record()], ids=repr)
def test_classifiers_of_sparse_users_are_not_overconfident(unit: Any) -> None:
    rng, n = np.random.default_rng(0), 5000
    users = np.repeat(np.arange(n), rng.integers(1, 3, n))
    X = rng.normal(size=(len(users), 3))
    y = rng.random(len(users)) < 1 / (1 + np.exp(-(X @ [2.0, -1.0, 0.0])))
    model = LogisticRegression(unit=unit, epsilon=2.0, n_users=n, random_state=0)
    model.fit(X, y, users=users)
    assert np.allclose(model.coef_[0], [2.0, -1.0, 0.0], atol=0.25)


@pytest.mark.parametrize("sampling", ["pairs", "users", "full"])
def test_how_blocks_are_drawn(sampling: Any) -> None:
    rate = None if sampling == "full" else 0.3
    model = LogisticRegression(
        unit=Element(),
        epsilon=3.0,
        sampling=sampling,
        sampling_rate=rate,
        rounds=40,
        n_users=600,
        classes=[0, 1],
    )
    model.fit(cases.X, cases.BINARY, users=cases.USERS, elements=cases.ELEMENTS)
    event = model.guarantee_.event.parts[0]
    assert (event.sampling_rate, event.rounds) == (rate or 1.0, 40)  # type: ignore[attr-defined]
    assert event.sampling == ("users" if sampling == "users" else "pairs")  # type: ignore[attr-defined]
    assert model.guarantee_.epsilon() <= 3.0
    assert len(model.history_.norms) == model.n_iter_ == 32


def test_exact_sums_give_about_the_same_model() -> None:
    fits = [
        LogisticRegression(random_state=0, epsilon=50.0, exact=exact).fit(
            cases.X, cases.BINARY, users=cases.USERS
        )
        for exact in (True, False)
    ]
    assert np.allclose(fits[0].coef_, fits[1].coef_, atol=0.1)
    assert "floating point" not in str(fits[0].guarantee_)


def test_the_kernels_see_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = LinearBlocks.arrange

    def spy(*args: Any, **options: Any) -> LinearBlocks:
        seen.append(options["blocks"])
        return real(*args, **options)

    monkeypatch.setattr(LinearBlocks, "arrange", staticmethod(spy))
    for unit, elements in ((Record(), None), (Element(), cases.ELEMENTS), (User(), None)):
        LogisticRegression(unit=unit, rounds=1).fit(
            cases.X, cases.BINARY, users=cases.USERS, elements=elements
        )
    assert seen == [3600, 1800, 600]


def test_exact_sums_name_their_floating_point_remainder() -> None:
    model = LogisticRegression(exact=True, intervals=0.2, rounds=1).fit(
        cases.X, cases.BINARY, users=cases.USERS
    )
    assert "second moments are added in floating point" in str(model.guarantee_)


def test_one_bar_shows_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Progress, "stage", lambda bar, text: _told(bar, text, told))
    X = np.random.default_rng(0).normal(size=(400, 2))
    LinearRegression(unit=Record(), n_users=400, rounds=20, random_state=0).fit(X, X[:, 0])
    assert told == [f"Round {number} of 20" for number in range(1, 21)]


def _told(bar: Progress, text: str, told: list[str]) -> None:
    bar._done += bool(bar._text)
    bar._text = text
    told.append(text)
