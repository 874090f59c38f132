"""Numbers of a promise are checked when they are stated."""

from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.library import torch

# isort: split
from dpgrain.torch.privacy_arguments import PrivacyArguments
from dpgrain.units import Element, Record, User

assert torch
_USERS = {"n_users": 10, "target_epsilon": 1.0, "users_column": "author"}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"n_users": 0, "target_epsilon": 1.0}, "n_users"),
        ({"n_users": 10}, "target_epsilon"),
        ({"n_users": 10, "target_epsilon": 1.0, "share": 0.5}, "target_epsilon"),
        ({"n_users": 10, "target_epsilon": -1.0}, "target_epsilon"),
        ({"n_users": 10, "target_epsilon": 1.0, "clip": 0.0}, "clip"),
        ({"n_users": 10, "target_epsilon": 1.0, "target_delta": 0.0}, "target_delta"),
        ({"n_users": 10, "target_epsilon": 1.0, "elements_column": "day"}, "elements_column"),
        ({"n_users": 10, "target_epsilon": 1.0, "loss": "mine"}, "loss"),
        ({"n_users": 10, "target_epsilon": 1.0, "unit": User()}, "unit"),
        ({**_USERS, "elements_column": "day"}, "elements_column"),
        ({**_USERS, "elements_column": "day", "unit": Record()}, "elements_column"),
        ({**_USERS, "unit": Element()}, "elements_column"),
        ({**_USERS, "unit": User(max_elements=3)}, "elements_column"),
        ({**_USERS, "sampling": "tokens"}, "sampling"),
        ({**_USERS, "sampling": "records"}, "sampling"),
        ({**_USERS, "sampling": "records", "unit": Record()}, "sampling"),
        (
            {
                **_USERS,
                "sampling": "records",
                "unit": User(max_elements=3),
                "elements_column": "day",
            },
            "sampling",
        ),
    ],
)
def test_invalid_guarantee_is_rejected(given: dict[str, Any], name: str) -> None:
    with refuses(name):
        PrivacyArguments(**given)


def test_rate_follows_the_batch_unless_stated() -> None:
    asked = PrivacyArguments(n_users=100, target_epsilon=1.0, elements_per_user=2.0)
    assert asked.rate(20) == 0.1
    assert asked.rate(1000) == 1.0
    assert PrivacyArguments(n_users=9, noise_multiplier=1.0, sampling_rate=0.3).rate(5) == 0.3
