"""Each public name of ``dpgrain.torch`` has a complete docstring, and one function publishes."""

from __future__ import annotations

import pytest
from tests.claims.test_asked_and_told import publishes
from tests.test_docstrings import lacks, public_names
from tests.torch.library import torch  # noqa: F401 - skips these tests without PyTorch

# isort: split
import dpgrain.torch
import dpgrain.torch.losses

pytest.importorskip("transformers")
PUBLIC = public_names([dpgrain.torch, dpgrain.torch.losses])


@pytest.mark.parametrize("name", PUBLIC)
def test_nothing_is_lacking(name: str) -> None:
    assert lacks(PUBLIC[name]) == []


def test_tests_of_networks_cover_every_publishing_function() -> None:
    """Training publishes; ``test_privacy_arguments.py`` compares its guarantee with the request."""
    assert {name for name, value in PUBLIC.items() if publishes(value)} == {"dpgrain.torch.train"}
