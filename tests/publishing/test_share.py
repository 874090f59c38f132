"""The terms of releases that share a guarantee: shares, leaks, epsilon and delta."""

from __future__ import annotations

from typing import Any

import pytest
from tests.publishing import cases
from tests.refusals import no_room, refuses

import dpgrain as dg


def test_shares_of_a_pure_budget() -> None:
    with dg.budget(1.0) as b:
        for part in (0.25, 0.75):
            release = dg.count(
                cases.table(),
                by="page",
                domain=cases.PAGES,
                noise="laplace",
                **cases.USER,
                share=part,
            )
            assert release.guarantee.epsilon() == pytest.approx(part, rel=1e-6)
    assert b.guarantee is not None
    assert b.guarantee.delta == 0
    assert 0.999 < b.guarantee.epsilon() <= 1.0
    assert b.caps.epsilon(0.0) <= 1.0
    with dg.budget(1.0), no_room():
        dg.count(cases.unread(), clip=5.0, noise="gaussian", **cases.USER, epsilon=0.1, delta=1e-6)


def test_budget_may_be_reserved_for_pure_parts() -> None:
    """►: a cap on ε is cheaper for one large pure release than its price as Gaussian noise."""
    for pure, noise, without in ((0.1, 1.068, 1.18), (0.05, 1.021, 1.037)):
        kept = dg.budget(1.0, 1e-6, pure=pure)
        more = dg.budget(1.0, 1e-6).caps.price.mu / kept.caps.price.mu
        assert more == pytest.approx(noise, abs=2e-3)
        asked: Any = {"noise": "laplace", "clip": 5.0, **cases.USER}
        with kept as b:
            dg.count(cases.table(), epsilon=pure * (1 - 1e-8), **asked)
            assert b.spent.mu == 0
            dg.count(cases.table(), clip=5.0, **cases.USER, share=1)
        with dg.budget(1.0, 1e-6) as b:
            dg.count(cases.table(), epsilon=pure, **asked)
            left = b.caps.price.mu**2 - b.spent.mu**2
            assert b.caps.price.mu / left**0.5 == pytest.approx(without, abs=5e-3)


def test_half_of_a_budget_as_a_promise() -> None:
    """►: half of (1, 10⁻⁶) is ε = .790 at δ = 5·10⁻⁸ of Gaussian noise."""
    with dg.budget(1.0, 1e-6) as b:
        assert b.caps.price.mu == pytest.approx(0.2355, abs=5e-5)
        half = dg.count(cases.table(), noise="gaussian", clip=5.0, share=0.5, **cases.USER)
    assert half.guarantee.epsilon(5e-8) == pytest.approx(0.790, abs=5e-4)


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan"), "half"])
def test_share_is_between_0_and_1(share: Any) -> None:
    with dg.budget(1.0, 1e-6), pytest.raises(dg.ParameterError, match="share must"):
        dg.count(cases.unread(), **cases.USER, share=share)


def test_share_needs_a_budget_and_replaces_epsilon() -> None:
    with refuses("share", "budget"):
        dg.count(cases.unread(), **cases.USER, share=0.5)
    with refuses("epsilon", "required"):
        dg.count(cases.unread(), **cases.USER, delta=1e-6)
    with dg.budget(1.0, 1e-6), refuses("epsilon", "omitted"):
        dg.count(cases.unread(), **cases.USER, share=0.5, epsilon=1.0)


def test_names_need_a_leak() -> None:
    with dg.budget(1.0, 1e-6, leak=0), refuses("share", "leak="):
        dg.count(cases.unread(), by="page", **cases.USER, share=0.5)
