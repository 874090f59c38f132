"""Compare seeded releases with stored ones by their numbers only.

A golden contains only what must survive a redesign: the published numbers, ε for 1, 2 and 5 units
at three δ, and the order of draws with their scales. Column names, sentences and classes may
change.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from tests.replay import Draw, recorded

import dpgrain as dg

Vectors: TypeAlias = list[list[float]]

UNITS = (1, 2, 5)
DELTAS = (1e-9, 1e-6, 1e-3)
_LAWS = {
    "with_gaussian": "gaussian",
    "with_laplace": "laplace",
    "with_truncated_geometric": "truncated geometric",
    "gumbel_order": "gumbel",
    "permute_and_flip": "permute and flip",
}


def observe(publish: Callable[[], Any]) -> dict[str, Any]:
    """Return the numbers, the privacy curve and the draws of one seeded release."""
    publish()  # Draws are recorded in loaded modules only.
    with recorded() as draws:
        release = publish()
    guarantee = getattr(release, "guarantee", None) or getattr(release, "guarantee_", None)
    return {
        "numbers": _vectors(release),
        "epsilon": [] if guarantee is None else _curve(guarantee),
        "draws": [_summary(draw) for draw in draws],
    }


def check(name: str, observed: Mapping[str, Any], file: Path, tolerance: float = 1e-6) -> None:
    """Compare a release with its golden in a file, or store it (``DPGRAIN_GOLDENS=write``)."""
    goldens = json.loads(file.read_text()) if file.exists() else {}
    if os.environ.get("DPGRAIN_GOLDENS") == "write":
        goldens[name] = observed
        lines = (f"{json.dumps(each)}: {json.dumps(goldens[each])}" for each in sorted(goldens))
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    else:
        compare(observed, goldens[name], tolerance)


def compare(
    observed: Mapping[str, Any], golden: Mapping[str, Any], tolerance: float = 1e-6
) -> None:
    assert [law for law, *_ in observed["draws"]] == [law for law, *_ in golden["draws"]]
    for now, then in zip(observed["draws"], golden["draws"], strict=True):
        assert now[1:] == pytest.approx(then[1:], rel=tolerance)
    assert observed["epsilon"] == pytest.approx(golden["epsilon"], rel=1e-6)
    left = list(observed["numbers"])
    for vector in golden["numbers"]:
        alike = pytest.approx(vector, rel=tolerance, abs=1e-12, nan_ok=True)
        same = [each for each in left if each == alike]
        assert same, f"{vector[:8]} is no longer published"
        left.remove(same[0])


def _curve(guarantee: dg.Guarantee) -> list[float]:
    return [_rounded(guarantee.epsilon(delta, units=k)) for k in UNITS for delta in DELTAS]


def _summary(draw: Draw) -> list[Any]:
    """Return the law of a draw, the number of noisy values, and its smallest and largest scale."""
    scales = np.asarray(draw.scale[0], dtype=float)
    return [_LAWS[draw.law], np.size(draw.sums), _rounded(scales.min()), _rounded(scales.max())]


def _vectors(release: Any) -> Vectors:
    """Return the published numbers: columns, coefficients or fields, regardless of their names."""
    if hasattr(release, "to_arrow"):
        values: Iterable[Any] = (column.to_pylist() for column in release.to_arrow().columns)
    elif hasattr(release, "coef_"):
        values = release.coef_, release.intercept_, getattr(release.history_, "gradients", None)
    elif is_dataclass(release):
        values = (getattr(release, field.name) for field in fields(release))
    else:
        values = [release]
    vectors = (_vector(value) for value in values)
    return [vector for vector in vectors if vector]


def _vector(value: Any) -> list[float]:
    entries = (
        value if isinstance(value, list) else np.ravel(np.asarray(value, dtype=object)).tolist()
    )
    if not all(entry is None or isinstance(entry, Real) for entry in entries):
        return []
    numbers = [float("nan") if entry is None else float(entry) for entry in entries]
    return [] if np.isnan(numbers).all() else [_rounded(number) for number in numbers]


def _rounded(number: float) -> float:
    return float(f"{float(number):.10g}")
