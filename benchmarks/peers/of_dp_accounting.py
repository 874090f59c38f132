"""The ε of rounds of samples, by both accountants of dp_accounting."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import dp_accounting as dp
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from serving import serve

logging.disable()


def by(accountant: Any) -> Callable[..., Callable[[], float]]:
    """Prepares an accountant's answer."""

    def account(noise: float, rate: float, rounds: int, delta: float) -> Callable[[], float]:
        sampled = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
        event = dp.SelfComposedDpEvent(sampled, rounds)
        return lambda: float(accountant().compose(event).get_epsilon(delta))

    return account


serve({"pld": by(PLDAccountant), "rdp": by(RdpAccountant)})
