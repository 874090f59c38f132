"""Parameters of corrupt and lost devices in a simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses

from dpgrain.shuffle.simulation import corrupt_messages, reporting_devices

_ENDLESS: list[Any] = []
_ENDLESS.append(_ENDLESS)


def test_corrupt_devices_send_whole_numbers_of_each_coordinate() -> None:
    assert corrupt_messages(None, 2, 9).shape == (0, 2)
    assert corrupt_messages([1, 9], 2, 9).tolist() == [[1, 9]]


@pytest.mark.parametrize(
    "messages", [[1, 2, 3], [1, -1], [1, 10], [0.5, 1.0], [["a"], [1, 2]], "a"]
)
def test_other_messages_are_rejected(messages: Any) -> None:
    with refuses("corrupt"):
        corrupt_messages(messages, 2, 9)


def test_devices_are_lost_by_number_or_one_by_one() -> None:
    assert reporting_devices(1, 4, 4) == reporting_devices(np.int64(1), 4, 4)
    with refuses("dropped", "not 5"):
        reporting_devices(5, 4, 4)


@pytest.mark.parametrize("dropped", [True, [True], [0, 1, 0, 1], [[1], [1, 2]], _ENDLESS, "a"])
def test_other_losses_are_rejected(dropped: Any) -> None:
    with refuses("dropped"):
        reporting_devices(dropped, 4, 4)
