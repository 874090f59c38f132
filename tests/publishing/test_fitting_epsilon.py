"""A refused release is told an ε that fits, and not much less than the largest."""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.ledger import cases

import dpgrain as dg
from dpgrain.ledger import AnyDays, LastingPromise

FIRST = date(2026, 1, 1)
ROWS = pa.table(
    {
        "who": [i % 40 for i in range(240)],
        "day": [FIRST + timedelta(days=i % 60) for i in range(240)],
        "paid": [float(i % 7) for i in range(240)],
    }
)
WINDOW = LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(30, "day"))
FILE = """
[budget]
unit = "user"
epsilon = {epsilon}
delta = 4e-7
[release.visits]
statistic = "count"
share = 0.6
[release.paid]
statistic = "sum"
value = "paid"
bounds = [0, 7]
share = 0.4
"""


def fitting(error: Any) -> float:
    found = re.search(r" With epsilon = ([\d.]+)(?: in \[budget\])? and all else unchanged", error)
    assert found is not None, error
    return float(found[1])


@pytest.mark.parametrize("promise", [cases.USERS, WINDOW], ids=["users", "windows"])
def test_a_refused_statistic_names_a_fitting_epsilon(
    promise: LastingPromise, tmp_path: Path
) -> None:
    table = dg.read(ROWS, user="who").where(day=(FIRST, FIRST + timedelta(days=30)))
    asked: dict[str, Any] = {"unit": dg.User(), "delta": 4e-7}
    with cases.made(tmp_path / "l", promise) as ledger:
        dg.count(table, **asked, epsilon=0.3)
        with pytest.raises(dg.RefusedError) as caught:
            dg.count(table, **asked, epsilon=2.0)
        epsilon = fitting(str(caught.value))
        with pytest.raises(dg.RefusedError):
            dg.count(table, **asked, epsilon=epsilon * 1.03)
        dg.count(table, **asked, epsilon=epsilon)
        assert ledger.left(1) < 0.1


def test_a_refused_file_names_a_fitting_epsilon(tmp_path: Path) -> None:
    table = dg.read(ROWS, user="who")
    path = tmp_path / "releases.toml"

    def plan(epsilon: float) -> dg.PlannedReleases:
        path.write_text(FILE.format(epsilon=epsilon), encoding="utf-8")
        return dg.plan_releases(path, table)

    with cases.made(tmp_path / "l"):
        plan(0.5).run()
        with pytest.raises(dg.RefusedError, match=r"in \[budget\] and all else") as caught:
            plan(0.9).run()
        epsilon = fitting(str(caught.value))
        with pytest.raises(dg.RefusedError):
            plan(epsilon * 1.03).run()
        plan(epsilon).run()


def test_a_refusal_for_another_reason_names_no_epsilon(tmp_path: Path) -> None:
    table = dg.read(ROWS, user="who")
    with (
        cases.made(tmp_path / "l"),
        dg.budget(0.1, 1e-8),
        pytest.raises(dg.RefusedError) as caught,
    ):
        dg.count(table, unit=dg.User(), epsilon=0.5, delta=1e-9)
    assert "all else unchanged" not in str(caught.value)


def test_a_refusal_of_a_budget_names_no_epsilon_that_fits_only_the_ledger(tmp_path: Path) -> None:
    table = dg.read(ROWS, user="who")
    whole: dict[str, Any] = {"unit": dg.User(), "delta": 1e-7}
    with cases.made(tmp_path / "l"):
        dg.count(table, **whole, epsilon=0.7)
        with dg.budget(0.3, 3e-7), pytest.raises(dg.RefusedError, match="the budget ε") as caught:
            dg.count(table, **whole, epsilon=0.9)
    assert "all else unchanged" not in str(caught.value)


@pytest.mark.parametrize("signed", [False, True])
def test_a_stated_epsilon_fits_whole_users_beyond_a_window(signed: bool, tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l", WINDOW)
    fits = re.search(
        r"A Gaussian release with ε ≤ ([\d.]+) at δ = \S+ per user would fit this promise",
        made.remaining_text(1),
    )
    assert fits is not None
    table = dg.read(ROWS, user="who").where(day=(FIRST, FIRST + timedelta(days=30)))
    bounds = (-7.0, 7.0) if signed else (0.0, 7.0)
    with made:
        dg.sum(
            table,
            "paid",
            bounds=bounds,
            clip=9.0,
            unit=dg.User(),
            epsilon=float(fits[1]),
            delta=WINDOW.caps.leak * 0.999,
            noise="gaussian",
        )


def test_a_refusal_names_the_full_window(tmp_path: Path) -> None:
    made = cases.made(
        tmp_path / "l", LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(2, "day"))
    )
    whole = 1 / made.promises[1].caps.mu
    made.charge(cases.of_users(whole, scope=cases.on("2026-01-05")))
    with pytest.raises(dg.RefusedError) as caught:
        made.charge(cases.of_users(9 * whole, scope=cases.on("2026-01-05", "2026-01-09")))
    text = "0% remains for the affected units (the fullest: day from 2026-01-04 to 2026-01-05)"
    assert text in str(caught.value)
