"""Gradients of blocks are made in the precision of the numbers, or nothing is charged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.torch.library import torch
from tests.torch.runs import WIDTH, made

# isort: split
import dpgrain as dg
from dpgrain.errors import ParameterError
from dpgrain.torch.precision import check_precise, precisely
from dpgrain.units import User


@pytest.fixture
def newer() -> Iterator[None]:
    """The loop sets the precision of products in PyTorch's newer way."""
    products = torch.backends.cuda.matmul
    if not hasattr(products, "fp32_precision"):
        pytest.skip("this version of PyTorch has one way alone")
    products.fp32_precision = "tf32"
    yield
    products.fp32_precision = "none"


def test_settings_are_as_they_were() -> None:
    products = torch.backends.cuda.matmul
    before = products.allow_tf32
    products.allow_tf32 = True
    try:
        with precisely():
            assert not products.allow_tf32
        assert products.allow_tf32
        check_precise()
    finally:
        products.allow_tf32 = before


@pytest.mark.usefixtures("newer")
def test_a_newer_way_is_refused_before_anything_is_charged() -> None:
    with dg.budget(epsilon=1.0, delta=1e-5) as budget:
        with pytest.raises(ParameterError, match=r"fp32_precision.*must be left at 'none'"):
            made(np.ones((6, WIDTH)), User(), target_epsilon=1.0, seed=None)
        assert budget.guarantee is None
