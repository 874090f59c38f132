"""The modules of experiments with networks, for tests; without PyTorch they are skipped."""

from __future__ import annotations

from tests.programs import experiment
from tests.torch.library import torch

__all__ = ["experiment", "torch"]
