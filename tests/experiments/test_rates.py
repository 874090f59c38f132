"""Plan steps and noise on known losses show the exponent of a theorem."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
from tests.programs import experiment

from dpgrain.papers import Known, UserLevelAgd

rates = experiment("rates")


def test_accelerated_steps_on_the_soft_core_show_their_exponent() -> None:
    theorem = rates.Theorem("one", UserLevelAgd, -1.0, "kinks", "UserLevelAgd")
    small, large = (rates.measured(theorem, n) for n in (1000, 10_000))
    assert small[1] < large[1] < 1000
    (slope,) = rates.exponents((1000, 10_000), (small[0], large[0]))
    assert -1.5 < slope < -0.8


def test_too_few_users_give_no_number() -> None:
    theorem = rates.Theorem("one", UserLevelAgd, -1.0, "kinks", "UserLevelAgd")
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


def test_default_fit_improves_on_its_start_with_more_users() -> None:
    theorem = rates.Theorem("default", None, None, "smooth", "auto")
    small, large = (rates.measured(theorem, n) for n in (500, 4000))
    assert large[0] < small[0] / 4 < 0.1
    assert small[1] == 50


ROOT = Path(__file__).parents[2]
PAGE = ROOT / "experiments" / "users.md"
BEGIN, END = "<!-- table of experiments/rates.json -->\n\n", "\n\n<!-- end of rates -->"
# Rows of the papers' pages, by theorem of the experiment.
ROWS = {
    ("shuffle-sco", "Theorem 4.1"): ("Cheu et al. 4.1",),
    ("shuffle-sco", "Theorem 4.3"): ("Cheu et al. 4.3",),
    ("shuffle-sco", "Theorem 4.7"): ("Cheu et al. 4.7",),
    ("shuffle-sco", "Theorem 4.8"): ("Cheu et al. 4.8", "Cheu et al. 4.8, smooth"),
    ("shuffle-sco", "Theorem 4.9"): ("Cheu et al. 4.9", "Cheu et al. 4.9, strong"),
    ("shuffle-sco", "Theorem C.3"): tuple(f"Cheu et al. C.3 ({case})" for case in (1, 2, 3, 4)),
    ("user-level-learning", "Theorem 4"): ("Levy et al. 4",),
    ("user-level-learning", "Theorem 5"): ("Levy et al. 5",),
    ("user-level-sco", "Theorem 4.1"): ("Asi & Liu 4.1, plain", "Asi & Liu 4.1, accelerated"),
    ("user-level-sco", "Theorem 4.11"): ("Asi & Liu 4.11, accelerated", "Asi & Liu 4.11, plain"),
}


def fitted(name: str) -> str:
    """The fitted exponent of a theorem in the recorded run."""
    users, found = rates.recorded()
    return f"{rates.slope(users, [excess for excess, _ in found[name]]):.2f}".replace("-", "−")


def test_page_shows_the_recorded_table() -> None:
    """DPGRAIN_PAGES=write renews the table."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    shown, after = rest.split(END)
    table = "\n".join(rates.table(*rates.recorded()))
    if os.environ.get("DPGRAIN_PAGES") == "write":
        PAGE.write_text(before + BEGIN + table + END + after, encoding="utf-8")
        return
    assert shown == table


def test_sizes_without_a_number_are_left_out_of_a_fit() -> None:
    assert rates.slope((10, 100, 1000), (1.0, math.nan, 1e-4)) == pytest.approx(-2)


@pytest.mark.parametrize(("page", "item"), ROWS)
def test_rows_of_theorems_state_the_fitted_exponents(page: str, item: str) -> None:
    text = (ROOT / "docs" / "papers" / f"{page}.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith(f"| {item} |"))
    stated = re.findall(r"n\^\((−[\d.]+)\)", row)
    assert [stated.count(fitted(name)) > 0 for name in ROWS[page, item]] == [True] * len(
        ROWS[page, item]
    )


@pytest.mark.parametrize("name", ["Levy et al. 5", "Cheu et al. C.3 (4)"])
def test_a_cheap_cell_repeats_the_recorded_one(name: str) -> None:
    (theorem,) = (one for one in rates.THEOREMS if one.name == name)
    excess, rounds = rates.recorded()[1][name][0]
    assert rates.measured(theorem, 1000) == (pytest.approx(excess, rel=1e-6), rounds)
