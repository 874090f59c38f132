"""Steps of a network draw the charged noise, and no further step's, also when resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.torch.test_resumption import STEPS, begun, resumed, train

# isort: split
from dpgrain.accounting import BandedGaussian, SampledGaussian
from dpgrain.torch import resumption

ENDED = "no charged draws left"


def steps_of(run: Any) -> Any:
    return run[0]._run.steps


def draw(steps: Any) -> None:
    for _ in steps.gradients(steps.empty_sum()):
        pass


@pytest.mark.parametrize(
    "options",
    [{}, {"sampling_rate": 1.0}, {"exact": True}, {"noise": "banded", "bands": 2}],
    ids=str,
)
def test_no_further_step_is_drawn(options: dict[str, Any]) -> None:
    run = begun(seed=None, **options)
    train(run)
    with pytest.raises(RuntimeError, match=ENDED):
        draw(steps_of(run))
    steps = steps_of(begun(seed=None, **options))
    for _ in range(STEPS):
        draw(steps)
    with pytest.raises(RuntimeError, match=ENDED):
        draw(steps)


@pytest.mark.parametrize("options", [{}, {"exact": True}, {"noise": "banded", "bands": 2}], ids=str)
def test_no_step_has_less_noise(options: dict[str, Any]) -> None:
    steps = steps_of(begun(seed=None, **options))
    part = steps._part
    assert isinstance(part, SampledGaussian | BandedGaussian)
    object.__setattr__(part, "noise_multiplier", part.noise_multiplier / 1.01)
    with pytest.raises(RuntimeError, match=ENDED):
        draw(steps)


@pytest.mark.parametrize("seed", [None, 1])
def test_a_resumed_run_draws_the_rest(seed: int | None, tmp_path: Path) -> None:
    run = begun(seed=seed)
    train(run, 2)
    run[0].save(tmp_path / "last.pt")
    again = resumed(tmp_path / "last.pt")
    steps = steps_of(again)
    for _ in range(STEPS - 2):
        draw(steps)
    with pytest.raises(RuntimeError, match=ENDED):
        draw(steps)


def test_file_does_not_decide_the_number_of_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps follow from its event, regardless of the counter."""
    run = begun(seed=None)
    run[0].save(tmp_path / "last.pt")
    monkeypatch.setattr(resumption, "rounds_left", lambda _: STEPS + 1)
    with pytest.raises(RuntimeError, match=ENDED):
        resumed(tmp_path / "last.pt")
