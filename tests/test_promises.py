"""A promise for another unit or relation, or with a larger δ, is not what was asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.promises import share_of_asked

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.publishing.guarantee import Guarantee

TOLD = Guarantee("user", "", "zero_out", 1e-6, Gaussian(5.0, Contribution("user")))
ASKED = {"epsilon": 0.9, "delta": 1e-6}


def share(told: Guarantee, unit: dg.User | dg.Record | None = None) -> float:
    asked = dg.User() if unit is None else unit
    return share_of_asked(told, unit=asked, relation="zero_out", promise=ASKED)


def test_the_share_is_the_epsilon_that_is_promised() -> None:
    assert share(TOLD) == pytest.approx(TOLD.epsilon() / 0.9)


@pytest.mark.parametrize(
    "told", [replace(TOLD, relation="replace"), replace(TOLD, delta=1.1e-6)], ids=["relation", "δ"]
)
def test_another_promise_is_refused(told: Guarantee) -> None:
    with pytest.raises(AssertionError, match="promised"):
        share(told)


def test_another_unit_is_refused() -> None:
    with pytest.raises(AssertionError, match="asked for records, promised users"):
        share(TOLD, dg.Record())


def test_a_share_of_a_budget_is_that_of_its_caps() -> None:
    with dg.budget(epsilon=2.0, delta=1e-6):
        half, all_ = (
            share_of_asked(TOLD, unit=dg.User(), relation="zero_out", promise={"share": part})
            for part in (0.5, 1.0)
        )
    assert half == pytest.approx(2 * all_)
