"""A fit states its trusted party, and its default follows from the arguments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.papers.recipes import programs

from dpgrain import learn
from dpgrain.learn import load
from dpgrain.means.shuffled import Shuffled
from dpgrain.optimize import Ball, CoinBetting, Constant, Sgd
from dpgrain.papers import PanPrivate
from dpgrain.units import Trust

Array = NDArray[Any]


@pytest.mark.slow
@pytest.mark.parametrize("trust", programs.TRUSTS)
def test_estimators_state_their_trusted_party(trust: Trust, tmp_path: Path) -> None:
    model = learn.LogisticRegression(
        trust=trust, epsilon=8.0, n_users=400, random_state=0, classes=[0, 1]
    )
    model.fit(programs.X, programs.Y.astype(int), users=programs.USERS)
    assert model.guarantee_.epsilon() <= 8.0
    assert programs.TRUSTS[trust] in str(model.guarantee_)
    assert "a solution within" not in str(model.guarantee_)
    assert model.n_iter_ == {"shuffle": 100, "pan": 10}[trust]
    assert (2 * np.log2(model.history_.clip / 2)).is_integer()
    assert model.score(programs.X, programs.Y.astype(int)) > 0.55
    again = load(model.save(tmp_path / "model.json"))
    assert again.get_params() == {**model.get_params(), "random_state": None}
    assert again.guarantee_ == model.guarantee_
    page = model.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert {"shuffle": "a trusted shuffler", "pan": "may be seen once"}[trust] in page
    assert learn.LogisticRegression().trust == "central"


def test_arguments_determine_the_default() -> None:
    steps = Sgd(Constant(0.1), Ball(1.0))
    kinds: list[tuple[Trust, Any]] = [("shuffle", Shuffled), ("pan", PanPrivate)]
    for trust, kind in kinds:
        model = learn.LinearRegression(
            trust=trust,
            clip=0.25,
            rounds=4,
            algorithm=steps,
            epsilon=8.0,
            n_users=400,
            random_state=0,
        )
        model.fit(programs.X, programs.Y, users=programs.USERS)
        recipe = model.config().recipe
        assert recipe is not None
        program = recipe.plan(replace(programs.TASK, start=(0.0,) * 3))
        stage: Any = program.stages[0]
        assert isinstance(stage.mean, kind)
        assert (stage.mean.clip, stage.mean.rounds, stage.solver) == (0.25, 4, steps)
        assert model.guarantee_.event == program.event
        assert model.n_iter_ == 4
    auto = learn.LinearRegression(trust="pan").config().recipe
    assert auto is not None
    assert auto.plan(programs.TASK).stages[0].solver == CoinBetting()
