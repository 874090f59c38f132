"""Experiments as modules, for their tests."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

# Experiments import each other.
sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))


def experiment(name: str) -> Any:
    return importlib.import_module(name)
