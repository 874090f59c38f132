"""Models written to files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpgrain import learn


def save(model: learn.LinearModel, path: Path) -> Path:
    return model.save(path)


GENERATOR = np.random.default_rng(0)
