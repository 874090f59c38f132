"""The ε of rounds of samples, by every library that reports it, and its cost."""

from __future__ import annotations

import statistics
from typing import Any

from .environments import asked, serving

DELTA = 1e-6
#: Standard deviation of the noise in clipping bounds, rate of the samples, rounds.
QUESTIONS = {
    "1,000 rounds, σ = 1, rate 1%": (1.0, 0.01, 1000),
    "10,000 rounds, σ = 1, rate 1%": (1.0, 0.01, 10_000),
    "500 rounds, σ = 2, rate 10%": (2.0, 0.1, 500),
}
METHODS = {
    "dpgrain": ("dpgrain", "account"),
    "dp_accounting, PLD": ("dp_accounting", "pld"),
    "dp_accounting, RDP": ("dp_accounting", "rdp"),
    "Opacus, PRV": ("opacus", "prv"),
}


def run(runs: int) -> dict[str, Any]:
    """Query each accountant several times; medians of seconds."""
    return {
        question: {
            name: _asked(environment, method, told, min(runs, 3))
            for name, (environment, method) in METHODS.items()
        }
        for question, told in QUESTIONS.items()
    }


def _asked(
    environment: str, method: str, told: tuple[float, float, int], runs: int
) -> dict[str, Any]:
    program = f"{environment}_accounting" if environment != "dp_accounting" else environment
    with serving(environment, program=program) as process:
        answers = [asked(process, method, *told, DELTA) for _ in range(runs)]
    failed = [answer["failed"] for answer in answers if "failed" in answer]
    if failed:
        return {"failed": failed[0]}
    seconds = statistics.median(answer["seconds"] for answer in answers)
    return {"epsilon": answers[0]["value"], "seconds": seconds}
