"""Private runs of the experiments: their noise, their learning rates, their curves, their files."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experiments.networks import experiment, torch

from dpgrain.accounting import SampledGaussian
from dpgrain.optimize import Last, Tail
from dpgrain.units import Element, User

nw: Any = experiment("networks")


def records(n: int = 40, m: int = 10, k: int = 5) -> Any:
    users, elements = np.repeat(np.arange(n), m), np.tile(np.arange(m) % k, n)
    return nw.Records(np.arange(n * m), users, elements, n)


class Line:
    def __init__(self, rows: int = 400) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(rows, 1)

    def loss(self, module: Any, places: Any) -> Any:
        return (module(self.x[places]) - 2 * self.x[places]).square().mean()

    def figure(self, module: Any, whole: bool) -> float:
        with torch.no_grad():
            return float(self.loss(module, torch.arange(400 if whole else 40)))


def line() -> Any:
    torch.manual_seed(1)
    return torch.nn.Linear(1, 1)


def test_elements_per_user_are_counted() -> None:
    assert records(k=5).blocks_per_user == 5
    assert records(n=3, m=4, k=10).blocks_per_user == 4


@pytest.mark.parametrize("unit", [User(), Element(), User(max_elements=3)])
def test_noise_keeps_the_promise(unit: Any) -> None:
    noise = nw.noise_for(unit, 2.0, 50, 0.1)
    level: Any = "user" if unit == User() else "element"
    kept = unit.max_elements if unit != Element() else None
    event = SampledGaussian(noise, 0.1, 50, "pairs", "shared", level, max_elements=kept)
    assert 1.99 < event.epsilon(1e-6, unit=unit) <= 2.0
    assert nw.noise_for(unit, math.inf, 50, 0.1) < 0.001


def test_sampled_users_have_a_larger_epsilon() -> None:
    """With one element per user nothing reveals whether the user was sampled."""
    noise = nw.noise_for(Element(), 2.0, 50, 0.1)
    assert nw.pairs_drawn(noise, 50, 0.1, Element()) == pytest.approx(2.0, abs=0.01)
    assert nw.with_users_drawn(noise, 50, 0.1, 1) == pytest.approx(2.0, abs=0.01)
    assert nw.with_users_drawn(noise, 50, 0.1, 10) > 4
    assert nw.pairs_drawn(noise, 50, 0.1, User(max_elements=10)) > 10


def test_noise_moves_weights_by_the_drift() -> None:
    asked = nw.Asked(User(), 1.0, 100, 1, 200, 0.2, clip=0.5, learning_rate=1e9, drift=3.0)
    rate, weights = asked.lowered(400), 400
    rng = np.random.default_rng(0)
    sd = asked.noise_multiplier * asked.clip / (0.2 * 100)
    moved = rate * rng.normal(scale=sd, size=(200, weights)).sum(axis=0)
    assert np.linalg.norm(moved) == pytest.approx(3.0, rel=0.15)
    assert replace(asked, learning_rate=1e-9).lowered(400) == 1e-9


def test_a_plan_has_the_steps_of_the_longest_reach() -> None:
    asked = nw.Asked(User(), 3.0, 1000, 1, 10, 0.4, learning_rate=0.1, drift=3.0)
    plan = asked.planned(400)
    assert plan.rate * plan.steps == pytest.approx(asked.rate * asked.steps)
    for steps in (plan.steps // 2, plan.steps * 2):
        other = replace(asked, steps=steps, rate=plan.rate * plan.steps / steps)
        assert other.reach(400) <= plan.reach(400)
    # If noise is the only error, the plan is the same without it.
    silent = replace(asked, epsilon=math.inf).planned(400)
    assert (silent.steps, silent.rate, silent.epsilon) == (plan.steps, plan.rate, math.inf)
    # With more noise that may move the weights, the learning rate is the limit for longer.
    assert replace(asked, drift=30.0).planned(400).steps > plan.steps


def test_the_average_of_the_weights_is_measured() -> None:
    """A run that goes up and down about its end is nearer to it on average."""
    asked = nw.Asked(User(), 1.0, 40, 1, 40, 0.3, learning_rate=0.5, drift=1e9)
    data = Line()

    def last(average: Any) -> float:
        runs = [
            nw.private(line(), data.loss, data.figure, records(), replace(asked, average=average),
                       seed=seed)
            for seed in range(3)
        ]  # fmt: skip
        return sum(float(run.last) for run in runs)

    assert last(Tail(10)) < 0.7 * last(Last())


@pytest.mark.parametrize(("unit", "blocks"), [(User(), 1), (Element(), 5)])
def test_a_run_learns_and_is_measured_on_the_way(unit: Any, blocks: int) -> None:
    asked = nw.Asked(unit, math.inf, 40, blocks, 60, 0.3, learning_rate=0.2, drift=1e9)
    data = Line()
    curve = nw.private(line(), data.loss, data.figure, records(), asked, seed=0, points=6)
    assert curve.steps == (0, 10, 20, 30, 40, 50, 60)
    assert curve.figures[0] > 1
    assert curve.last < 0.01 < curve.figures[1]
    assert curve.learning_rate == 0.2


def test_a_run_repeats_and_noise_is_felt() -> None:
    asked = nw.Asked(User(), 1.0, 40, 1, 20, 0.3, learning_rate=0.2, drift=1e9)
    data = Line()

    def last(seed: int, **change: Any) -> float:
        numbers = replace(asked, **change)
        run = nw.private(line(), data.loss, data.figure, records(), numbers, seed=seed)
        return float(run.last)

    assert last(0) == last(0) != last(1)
    assert abs(last(0) - last(1)) > 10 * abs(last(0, epsilon=math.inf) - last(1, epsilon=math.inf))


def test_steps_without_records_are_counted() -> None:
    """With almost no one sampled, most steps return nothing."""
    asked = nw.Asked(User(), math.inf, 40, 1, 50, 0.002)
    data = Line()
    curve = nw.private(line(), data.loss, data.figure, records(), asked, seed=3, points=5)
    assert curve.steps[-1] == 50
    assert len(curve.steps) < 7


def test_without_privacy() -> None:
    data = Line()
    curve = nw.plain(
        line(),
        data.loss,
        data.figure,
        np.arange(400),
        epochs=2,
        batch=50,
        learning_rate=0.05,
        seed=0,
    )
    assert curve.steps == (0, 8, 16)
    assert curve.noise_multiplier == 0
    assert curve.last < curve.figures[0]


def test_accuracy_counts_the_first_classes() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 2.0]])
    truth = torch.tensor([0, 1, 0])
    assert nw.accuracy(torch.nn.Identity(), scores, truth, rows=2) == pytest.approx(1 / 3)
    assert nw.accuracy(torch.nn.Identity(), scores, truth, top=2) == pytest.approx(2 / 3)


def some_curve(last: float = 0.5) -> Any:
    return nw.Curve((0, 10), (0.1, last), last, 1.0, 0.1, 2.0)


def test_a_finished_cell_is_not_made_again(tmp_path: Path) -> None:
    made = []

    def make() -> Any:
        made.append(1)
        return some_curve()

    first = nw.kept(tmp_path / "cells", "one", make)
    assert nw.kept(tmp_path / "cells", "one", make) == first == some_curve()
    assert len(made) == 1


def test_interrupted_cell_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nw.kept(tmp_path, "one", broken)
    assert not list(tmp_path.iterdir())
    assert nw.kept(tmp_path, "one", some_curve).last == 0.5


def test_pictures_and_tables(tmp_path: Path) -> None:
    lines = [nw.Line("both", [some_curve(0.4), some_curve(0.6)], "tab:red")]
    at, values = replace(lines[0], scale=0.5).points()
    assert at.tolist() == [0, 5]
    assert values.tolist() == [[0.1, 0.4], [0.1, 0.6]]
    for logarithmic in (False, True):
        panels = {"a": lines, "b": lines}
        file = tmp_path / f"some_{logarithmic}.png"
        nw.draw(file, panels, y="figure", level=(0.7, "best"), logarithmic=logarithmic)
        assert file.stat().st_size > 1000
    assert nw.said(math.inf) == "∞"


def test_without_tables_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPGRAIN_DATA", raising=False)
    with pytest.raises(SystemExit, match="DPGRAIN_DATA is not set"):
        nw.tables("absent.npz")
