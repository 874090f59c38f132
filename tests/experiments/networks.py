"""The modules of experiments with networks, for tests; without PyTorch they are skipped."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from tests.torch.library import torch

# Experiments import each other.
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))


def experiment(name: str) -> Any:
    """The module of an experiment."""
    return importlib.import_module(name)


__all__ = ["experiment", "torch"]
