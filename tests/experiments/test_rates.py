"""Plan steps and noise on known losses show the exponent of a theorem."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tests.programs import experiment

from dpgrain.papers import Known, UserLevelAgd

rates = experiment("rates")


def test_accelerated_steps_on_the_soft_core_show_their_exponent() -> None:
    theorem = rates.Theorem("one", UserLevelAgd, -1.0, "kinks")
    small, large = (rates.measured(theorem, n) for n in (1000, 10_000))
    assert small[1] < large[1] < 1000
    (slope,) = rates.exponents((1000, 10_000), (small[0], large[0]))
    assert -1.5 < slope < -0.8


def test_too_few_users_give_no_number() -> None:
    theorem = rates.Theorem("one", UserLevelAgd, -1.0, "kinks")
    assert math.isnan(rates.measured(theorem, 5)[0])


def test_envelope_gradient_equals_a_distant_cone() -> None:
    basin = rates.Basin(np.zeros(2), 0.5, 0.0)
    (stage,) = (
        UserLevelAgd(Known(distance=1.0), rounds=20)
        .plan(rates.Task.of(2000, (0.0, 0.0), 1.0, 1e-6))
        .stages
    )
    rng = np.random.default_rng(0)
    assert basin.gradient(np.array([3.0, 4.0]), stage, rng).round(9).tolist() == [0.3, 0.4]
    near = basin.gradient(np.array([1e-3, 0.0]), stage, rng)
    assert isinstance(stage.smoothing, float)
    assert near.round(9).tolist() == [round(1e-3 * stage.smoothing, 9), 0.0]


ROOT = Path(__file__).parents[2]
# Rows of the papers' pages, by theorem of the experiment.
ROWS = {
    ("shuffle-sco", "Theorem 4.1"): "Cheu et al. 4.1",
    ("shuffle-sco", "Theorem 4.3"): "Cheu et al. 4.3",
    ("shuffle-sco", "Theorem 4.7"): "Cheu et al. 4.7",
    ("shuffle-sco", "Theorem 4.8"): "Cheu et al. 4.8",
    ("shuffle-sco", "Theorem 4.9"): "Cheu et al. 4.9",
    ("user-level-learning", "Theorem 4"): "Levy et al. 4",
    ("user-level-learning", "Theorem 5"): "Levy et al. 5",
    ("user-level-sco", "Theorem 4.1"): "Asi & Liu 4.1, plain",
    ("user-level-sco", "Theorem 4.11"): "Asi & Liu 4.11, accelerated",
}


def recorded() -> dict[str, tuple[str, list[float]]]:
    text = (ROOT / "experiments" / "users.md").read_text(encoding="utf-8")
    lines = text.split("| | theorem's | fitted |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    numbers = [[float(each.split(" ")[0]) for each in row[3:7]] for row in cells]
    names = [theorem.name for theorem in rates.THEOREMS]
    return {name: (row[2], excess) for name, row, excess in zip(names, cells, numbers, strict=True)}


def test_fitted_exponents_match_the_recorded_numbers() -> None:
    for name, (fitted, excess) in recorded().items():
        assert fitted == f"{rates.slope(rates.USERS, excess):.2f}".replace("-", "−"), name
    assert rates.slope((10, 100, 1000), (1.0, math.nan, 1e-4)) == pytest.approx(-2)


@pytest.mark.parametrize(("page", "item"), ROWS)
def test_rows_of_theorems_state_the_fitted_exponent(page: str, item: str) -> None:
    text = (ROOT / "docs" / "papers" / f"{page}.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith(f"| {item} |"))
    assert f"n^({recorded()[ROWS[page, item]][0]})" in row
