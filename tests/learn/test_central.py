"""Fits with a curator: how blocks are drawn and clipped, and what they take as public."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.learn import cases

from dpgrain.gradients.linear import LinearBlocks
from dpgrain.learn import (
    LogisticRegression,
)
from dpgrain.optimize import Constant, Sgd
from dpgrain.units import Element, Record, User

Array = NDArray[Any]


def test_parts_share_one_promise() -> None:
    options: dict[str, Any] = {"clip": "auto", "elements_per_user": "auto", "intervals": 0.15}
    options |= {"n_users": 600, "classes": [0, 1]}
    model = LogisticRegression(unit=Element(), epsilon=1.0, **options)
    model.fit(cases.X, cases.BINARY, users=cases.USERS, elements=cases.ELEMENTS)
    assert len(model.guarantee_.event.parts) == 3
    assert 0.99 < model.guarantee_.epsilon() <= 1.0
    assert model.history_.clip in 2.0 ** np.arange(-12, 12.5, 0.5)
    alone = LogisticRegression(unit=Element(), epsilon=1.0, n_users=600, classes=[0, 1])
    alone.fit(cases.X, cases.BINARY, users=cases.USERS, elements=cases.ELEMENTS)
    # The noise of the rounds is larger for what the others take.
    noise = [m.guarantee_.event.parts[0].noise_multiplier for m in (model, alone)]  # type: ignore[attr-defined]
    assert 1.05 < noise[0] / noise[1] < 1.4


def test_whole_users_are_clipped_to_what_is_found_near_the_solution() -> None:
    stated: dict[str, Any] = {"rounds": 50, "n_users": 600, "classes": [0, 1]}
    model = LogisticRegression(**stated).fit(cases.X, cases.BINARY, users=cases.USERS)
    rounds, norms = model.guarantee_.event.parts
    # All rounds are accounted for, those that look for the neighbourhood too, with the same noise.
    assert rounds.rounds == 50  # type: ignore[attr-defined]
    assert model.n_iter_ == len(model.history_.points) == 40
    assert model.history_.points[0].any()
    assert norms.level == "user"
    history = model.history_
    assert history.noise_sd == pytest.approx(rounds.noise_multiplier * history.clip / 600)  # type: ignore[attr-defined]
    assert history.clip * 2 in 2.0 ** np.arange(-12, 12.5, 0.5)
    assert "the first fifth of the rounds takes the directions" in str(model.guarantee_)
    for options in ({"clip": 1.0}, {"intervals": 0.2}, {"algorithm": Sgd(Constant(1.0))}):
        plain = LogisticRegression(**stated, **options).fit(
            cases.X, cases.BINARY, users=cases.USERS
        )
        assert (plain.n_iter_, plain.history_.clip) == (50, 1.0)
        assert not plain.history_.points[0].any()
        assert "a clipping bound of 1" in str(plain.guarantee_)
    # What intervals cover is less than half clipped.
    wide = LogisticRegression(**stated, clip="auto", intervals=0.2).fit(
        cases.X, cases.BINARY, users=cases.USERS
    )
    assert wide.n_iter_ == 40
    assert wide.history_.clip in 2.0 ** np.arange(-12, 12.5, 0.5)


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
    event = model.guarantee_.event
    assert (event.sampling_rate, event.rounds) == (rate or 1.0, 40)  # type: ignore[attr-defined]
    assert event.sampling == ("users" if sampling == "users" else "pairs")  # type: ignore[attr-defined]
    assert model.guarantee_.epsilon() <= 3.0
    assert len(model.history_.norms) == model.n_iter_ == 40


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


def test_exact_sums_name_what_is_left_in_floating_point() -> None:
    model = LogisticRegression(exact=True, intervals=0.2, rounds=1).fit(
        cases.X, cases.BINARY, users=cases.USERS
    )
    assert "second moments are added in floating point" in str(model.guarantee_)
