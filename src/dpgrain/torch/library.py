"""PyTorch, or an error message with the command that installs it."""

from __future__ import annotations

try:
    import torch
except ImportError as error:
    raise ImportError(
        "dpgrain.torch needs PyTorch: pip install 'dpgrain[torch]'.", name="torch"
    ) from error

__all__ = ["torch"]
