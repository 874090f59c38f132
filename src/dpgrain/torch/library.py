"""PyTorch, or an error message with the command that installs it."""

from __future__ import annotations

from dpgrain._lazy_import import require

require("torch")
import torch  # noqa: E402

__all__ = ["torch"]
