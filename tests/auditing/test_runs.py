"""Audit runs read only the given rows, and answer without noise or as instructed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.auditing.test_worst_case_tables import query
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import Gaussian
from dpgrain.auditing.runs import AuditCharge, NoiselessCharge, noisy_run, run_on_neighbours
from dpgrain.auditing.worst_case_tables import neighbour_tables
from dpgrain.noise import SeededSource
from dpgrain.publishing.charge import Charge


def twins(unit: Any = None, **how: Any) -> Any:
    asked = query(unit or dg.User(), clip=2.0, noise="gaussian", **how)
    pair = next(neighbour_tables(asked, 1, "zero_out", 3))
    return asked, pair, run_on_neighbours(asked, asked.plan.guarantee, pair)


@pytest.mark.slow
def test_runs_show_sums_and_radius() -> None:
    asked, _, _ = twins()
    moved = []
    for pair in neighbour_tables(asked, 1, "zero_out", 3):
        found = run_on_neighbours(asked, asked.plan.guarantee, pair)
        ((one, other),) = found.draws
        assert one.part == asked.plan.guarantee.event
        moved.append(np.linalg.norm((one.sums - other.sums).ravel()) / np.max(one.rest[0]))
    # One record of 5 counts 1, and twenty records count 2.
    assert moved[0] == pytest.approx(0.5)
    assert max(moved) == pytest.approx(1.0)
    assert (one.answer == one.sums).all()
    assert (other.answer == one.answer).all()
    assert not found.has_hidden_draws


@pytest.mark.slow
def test_runs_have_the_charged_noise() -> None:
    asked, pair, found = twins()
    ((one, _),) = found.draws
    drawn = [
        noisy_run(asked, asked.plan.guarantee, pair.one, SeededSource(seed)) for seed in range(30)
    ]
    noise = np.array([(run[0].answer - one.sums).ravel() / np.max(one.rest[0]) for run in drawn])
    sd = float(np.sqrt((noise**2).mean()))
    assert sd == pytest.approx(one.part.noise_multiplier, rel=0.5)


def test_a_ticket_is_drawn_once() -> None:
    asked, pair, _ = twins()
    part = asked.plan.guarantee.event
    with NoiselessCharge(asked.plan.guarantee, pair.one) as charge:
        charge.noisy(part, np.zeros(2, dtype=np.int64), 1.0)
        with pytest.raises(RuntimeError, match="no charged draws left"):
            charge.noisy(part, np.zeros(2, dtype=np.int64), 1.0)


def test_queries_outside_audits_need_manual_audits() -> None:
    asked, pair, _ = twins()
    part = Gaussian(3.0)
    with AuditCharge(asked.plan.guarantee, SeededSource(1), pair.one) as charge:
        with refuses("query", "arrays"):
            charge.read(lambda: 1)
        with refuses("query", "outside a table"):
            charge.open(object())  # type: ignore[arg-type]
        with refuses("query", "several"):
            charge.one_of(part, part)
        with refuses("query", "best"):
            charge.best_of(part, 1, lambda *_: (0.0, 0))  # type: ignore[arg-type]


def test_all_draws_of_a_charge_are_watched() -> None:
    """A new draw method must also be watched by audits."""
    own = {"guarantee", "left", "open", "read", "secret", "lend", "one_of", "best_of"}
    ways = {name for name in vars(Charge) if not name.startswith("_")} - own
    assert ways <= set(vars(AuditCharge))
