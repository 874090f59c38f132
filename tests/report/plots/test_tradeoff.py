"""The trade-off of an audit, with the claim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refuses

from dpgrain.accounting import Gaussian
from dpgrain.auditing.epsilon_bounds import ScoreCounts
from dpgrain.auditing.verdict import Audit, AuditLine, Bound
from dpgrain.report.plots.tradeoff import claimed_power, plot_tradeoff, save_audits

DELTAS = tuple(10.0**-power for power in range(1, 8))
ALARMS = np.linspace(0, 1, 50)


def audit(mu: float, claimed: float) -> Audit:
    """An audit of Gaussian noise, and a claim for another."""
    one, other = np.random.default_rng(1).normal(size=(2, 50_000)) * mu
    counted = ScoreCounts.empty().add_scores(one + mu**2 / 2, other - mu**2 / 2, 9 * mu + mu**2)
    curve = tuple((delta, Gaussian(1 / claimed).epsilon(delta)) for delta in DELTAS)
    line = AuditLine(1, "zero_out", 1.0, Bound(0.5, 1.5), Bound(None), "", counted.curve())
    return Audit("user", 1e-6, 0.99, (line,), (curve,), 50_000)


def lowest(found: Audit) -> float:
    claim, drawn, _ = plot_tradeoff(found).lines
    x, y = (np.asarray(part, dtype=np.float64) for part in drawn.get_data())
    alarms, misses = (np.asarray(part, dtype=np.float64) for part in claim.get_data())
    return float((y - np.interp(x, alarms, misses)).min())


def test_draws_stay_above_true_claims_and_fall_below_others() -> None:
    assert lowest(audit(1.0, 1.0)) > -0.01
    assert lowest(audit(2.0, 1.0)) < -0.1


def test_a_claim_allows_no_test_to_be_better() -> None:
    claim = claimed_power(ALARMS, ((0.0, 0.0),))
    assert claim == pytest.approx(1 - ALARMS)
    assert (claimed_power(ALARMS, ((1e-6, float("inf")),)) == 0).all()


def test_missing_parts_are_not_drawn() -> None:
    found = audit(1.0, 1.0)
    with refuses("units", "4"):
        plot_tradeoff(found, units=4)
    with refuses("audit", "real rows"):
        plot_tradeoff(replace(found, curator=True))
    nothing = replace(found, lines=(replace(found.lines[0], curve=()),))
    assert plot_tradeoff(nothing).texts


def test_several_are_drawn_side_by_side(tmp_path: Path) -> None:
    save_audits({"one": audit(1.0, 1.0), "two": audit(2.0, 1.0)}, tmp_path / "audits.png")
    assert (tmp_path / "audits.png").stat().st_size > 10_000
