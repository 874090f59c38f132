"""The looseness benchmark has cases of every event, and no claim is below a lower bound."""

from __future__ import annotations

import importlib
import itertools
import math
from typing import Any

import pytest
from tests.effort import Effort

looseness: Any = importlib.import_module("benchmarks.looseness")

# Rounding error of a claim or a lower bound.
_ROUNDING = 1e-6


def test_every_event_has_cases() -> None:
    assert set(looseness.CASES) == set(looseness.kinds())
    for kind, cases in looseness.CASES.items():
        assert next(cases()).kind == kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(looseness.CASES))
def test_no_claim_is_below_the_neighbours_bound(kind: str, effort: Effort) -> None:
    for case in effort.some(itertools.islice(looseness.CASES[kind](), 0, None, 5)):
        for found in looseness.measured(case):
            assert found.claim >= found.lower * (1 - _ROUNDING), (case.said, found.delta)


def test_an_inverse_is_rounded_down() -> None:
    epsilon = looseness.inverse(lambda x: math.exp(-x) / 2)(1e-3)
    assert epsilon <= math.log(500) <= epsilon * (1 + 1e-9)
    assert looseness.inverse(lambda x: 1e-4)(1e-3) == 0
