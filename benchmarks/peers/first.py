"""The first result of each library: the cost of installation, the lines, and the run."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.datasets import load_digits

from dpgrain.datasets import catalogue, loans

from .environments import ENVIRONMENTS, HERE, ran

SCRIPTS = HERE / "shortest"
TABLES = ("dpgrain", "opendp", "pipeline_dp", "tumult", "diffprivlib")
NETWORKS = ("dpgrain_torch", "opacus", "jax_privacy")


def run() -> dict[str, Any]:
    """Run the shortest script of each library that counts loans, or trains a network."""
    folder = ENVIRONMENTS / "first"
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder)
    return {name: _first(name, folder) for name in (*TABLES, *NETWORKS)}


def _first(environment: str, folder: Path) -> dict[str, Any]:
    script = SCRIPTS / f"with_{environment}.py"
    found = ran(environment, script, folder)
    print(environment, found.pop("printed", found), flush=True)
    return found | {"lines": lines(script.read_text(encoding="utf-8"))}


def lines(program: str) -> int:
    """The lines of a program that are neither empty nor its docstring."""
    said = ast.get_docstring(ast.parse(program), clean=False) or ""
    code = [line for line in program.splitlines() if line.strip()]
    return len(code) - len(said.splitlines())


def _write(folder: Path) -> None:
    """The table of loans with its public titles, and small pictures of digits."""
    pq.write_table(loans(), folder / "loans.parquet")
    (folder / "titles.json").write_text(json.dumps(sorted(catalogue())), encoding="utf-8")
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype(np.float32), y.astype(np.int64)
    held = np.random.default_rng(0).permutation(len(x)) < len(x) // 5
    np.savez(folder / "digits.npz", x=x[~held], y=y[~held], z=x[held], truth=y[held])
