"""Calls of the room of networks that ended in errors of Python are refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from tests.fuzz.watch import watched
from tests.torch.library import torch
from tests.torch.test_checkpoint import saved

# isort: split
from dpgrain.torch import PrivacyEngine, record_losses, through_linear_maps, train

_ROWS, _NO_FUNCTION = torch.zeros(4, 2), cast(Any, 10**30)
_NET: Mapping[str, Any] = {
    "module": torch.nn.Linear(2, 1),
    "dataset": torch.utils.data.TensorDataset(_ROWS, _ROWS[:, :1]),
}


def _trained(**odd: Any) -> Any:
    return train(
        loss=torch.nn.functional.mse_loss,
        optimizer=torch.optim.SGD(_NET["module"].parameters(), lr=0.1),
        **_NET,
        epsilon=1.0,
        delta=1e-6,
        n_users=4,
        **odd,
    )


def _resumed(path: Any) -> Any:
    optimizer = torch.optim.SGD(_NET["module"].parameters(), lr=0.1)
    return PrivacyEngine.resume(path, optimizer=optimizer, **_NET)


FOUND: Mapping[str, Callable[[Path], Any]] = {
    "no module": lambda _: through_linear_maps(False),
    "no loss": lambda _: record_losses(_NO_FUNCTION, _ROWS, _ROWS),
    "a number as a checkpoint": lambda _: _trained(checkpoint=3.5),
    "a number to resume": lambda _: _resumed(3.5),
    "a name that is not UTF-8": lambda _: _resumed("\ud800"),
    "a number to save": lambda folder: saved(folder / "last.pt").save(3.5),
}


@pytest.mark.parametrize("what", FOUND)
def test_what_was_found_is_refused(what: str, tmp_path: Path) -> None:
    assert watched(lambda: FOUND[what](tmp_path)) is None
