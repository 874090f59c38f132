"""Audits of networks: all training loops satisfy their claims; halved noise is detected."""

from __future__ import annotations

from typing import Any

import pytest
from tests.experiments.networks import experiment

# isort: split
from tests.charges import weakened

from dpgrain.torch import steps

runs: Any = experiment("audited_runs")
networks: Any = experiment("audited_networks")
ways: Any = experiment("ways_of_audit")

SMALL = ways.Size(canaries=1500, confidence=0.9999)
CASES = {str(case): case.way for case in networks.networks()}

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_training_keeps_its_claim(name: str) -> None:
    _, line = CASES[name].line(runs.EPSILON, SMALL)
    # At a δ above the guarantee's its curve claims less.
    assert line.claim == pytest.approx(runs.EPSILON, rel=1e-3) or line.claim < runs.EPSILON
    assert line.verdict != "violated"
    assert max(line.named.epsilon or 0.0, line.free.epsilon) > 0.1 * line.claim


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_half_of_the_noise_is_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = steps.in_floating_point
    monkeypatch.setattr(
        "dpgrain.torch.steps.in_floating_point",
        lambda found, of, sd, *others: exact(found, of, weakened(sd, 2), *others),
    )
    assert any(CASES[name].line(runs.EPSILON, SMALL)[1].verdict == "violated" for _ in range(5))
