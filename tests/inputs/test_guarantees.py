"""Default rates do not read the number of users."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.claims import unstated

import dpgrain.inputs.guarantees as promise_module
from dpgrain.learn import (
    LinearRegression,
)
from dpgrain.units import User


def test_default_rates_do_not_read_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    # With this limit, a rate that read the number would sample only the larger population.
    monkeypatch.setattr(promise_module, "_FULL_USERS", unstated.N)
    rates = {}
    for n, stated in itertools.product((unstated.N, unstated.N + 1), (False, True)):
        found: Any = unstated.fit(
            unstated.Table(n),
            kind=LinearRegression,
            unit=User(),
            relation="zero_out",
            rounds=None,
            delta=1e-6,
            n_users=n if stated else None,
        )
        event = found.guarantee_.event.parts[0]
        rates[n, stated] = (event.sampling_rate, event.rounds)
    assert (
        rates[unstated.N, False]
        == rates[unstated.N + 1, False]
        == rates[unstated.N, True]
        == (1.0, 50)
    )
    assert rates[unstated.N + 1, True][0] == unstated.N / (unstated.N + 1)
