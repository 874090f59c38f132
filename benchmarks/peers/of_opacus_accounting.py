"""The ε of rounds of samples, by Opacus' default accountant."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from opacus.accountants import PRVAccountant
from serving import serve

warnings.simplefilter("ignore")


def prv(noise: float, rate: float, rounds: int, delta: float) -> Callable[[], float]:
    """Its ε, with its own choice of errors."""

    def epsilon() -> float:
        accountant = PRVAccountant()
        accountant.history = [(noise, rate, rounds)]
        return float(accountant.get_epsilon(delta))

    return epsilon


serve({"prv": prv})
