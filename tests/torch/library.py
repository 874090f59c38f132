"""PyTorch; importing this without PyTorch skips the module, with the reason."""

from __future__ import annotations

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'dpgrain[torch]'"
)
torch.set_num_threads(1)

__all__ = ["torch"]
