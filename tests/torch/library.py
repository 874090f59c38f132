"""PyTorch; where it is absent, whoever imports this is skipped, with the reason."""

from __future__ import annotations

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'dpgrain[torch]'"
)
torch.set_num_threads(1)

__all__ = ["torch"]
