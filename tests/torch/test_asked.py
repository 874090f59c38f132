"""What is asked of a run is checked before anything is charged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.library import torch
from tests.torch.means import PEOPLE, engine_of, means
from tests.torch.runs import WIDTH, made
from tests.torch.test_engine import RECORDS, USERS

# isort: split
import dpgrain as dg
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean
from dpgrain.papers import SoftCore
from dpgrain.units import Record, User

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "class": ({"mean": SoftCore}, "mean must be a private mean of dpgrain.means"),
    "number": ({"mean": 1.0}, "mean must be a private mean of dpgrain.means"),
    "steps": ({"steps": 4}, "steps must be omitted with mean="),
    "noise": ({"noise": "banded"}, "noise must be omitted with mean="),
    "bands": ({"bands": 3}, "bands must be omitted with mean="),
    "norm": ({"max_grad_norm": 1.0}, "max_grad_norm must be omitted with mean="),
    "unit": ({"unit": Record()}, "mean must have the blocks of unit=Record"),
    "kept": (
        {"unit": User(max_elements=2), "elements": np.zeros(len(PEOPLE))},
        "mean must have the blocks",
    ),
    "bound": ({"mean": ClippedMean(1e-20, 1.0, 40, 1, level="user")}, "clip must be between"),
    "roster": (
        {"mean": SoftCore.calibrate(epsilon=50.0, delta=1e-6, rounds=1, n_users=30, radius=1.0)},
        "n_users = 30 must be at least the number of distinct ids in users",
    ),
}


@pytest.mark.parametrize(("wrong", "words"), WRONG.values(), ids=WRONG)
def test_what_does_not_go_with_a_mean_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        engine_of(**{"mean": means()["soft core"], **wrong})


BANDED: dict[str, tuple[dict[str, Any], str]] = {
    "no noise": ({"noise": "pink"}, "noise must be one of 'independent', 'banded'"),
    "alone": ({"bands": 3}, "bands = 3 requires noise='banded'"),
    "unknown": (
        {"noise": "banded"},
        "bands is required with noise='banded' and noise_multiplier",
    ),
    "exact": ({"noise": "banded", "bands": 2, "exact": True}, "exact must be False with noise"),
    "many": ({"noise": "banded", "bands": 3}, "bands = 3 must be at most 1/sampling_rate = 2"),
    "none": ({"noise": "banded", "bands": 0}, "bands must be an integer"),
}


@pytest.mark.parametrize(("wrong", "words"), BANDED.values(), ids=BANDED)
def test_wrong_bands_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        made(np.ones((RECORDS, WIDTH)), User(), users=USERS, sampling_rate=0.5, **wrong)


def test_a_budget_refuses_a_mean_before_anything_is_read() -> None:
    with dg.budget(0.1, 1e-9), pytest.raises(ParameterError, match="has no room"):
        engine_of(means()["winsorized"])
    with refuses("sampling_rate"):
        made(np.ones((RECORDS, WIDTH)), User(), users=USERS, sampling_rate=None)


def test_the_guarantee_says_what_it_rests_on() -> None:
    def public(**options: Any) -> str:
        return str(made(np.ones((6, WIDTH)), User(), **options)[0].guarantee)

    assert "no record makes reading, the network or the loss fail" in public()
    assert "collate_fn" not in public()
    said = public(collate_fn=torch.utils.data.default_collate)
    assert "collate_fn computes each row only from the record at the same position" in said
