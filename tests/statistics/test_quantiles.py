"""Quantiles are those of the sorted values, up to one bin."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import pytest
from tests.statistics import cases

import dpgrain as dg

Row: TypeAlias = tuple[int | None, str | None, str | None, float | None]  # who, item, cell, x


@pytest.mark.search(keep=3)
@pytest.mark.parametrize("bins", [16, 256, 4096])
@pytest.mark.parametrize("grouped", ["no key", "one key", "both selected"])
def test_quantiles_are_right_up_to_one_bin(
    bins: Any, grouped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases.noiseless(monkeypatch)
    keys, domain = cases.GROUPED[grouped]
    ranks = [0.0, 0.05, 0.25, 0.5, 0.8, 0.95, 1.0]
    release = dg.quantiles(
        cases.dirty(cases.left_out(keys)), "x", ranks, by=keys or None, domain=domain, unit=dg.User(),
        epsilon=50, delta=1e-6, clip=1024.0, bounds=(-80, 80), bins=bins,
    )  # fmt: skip
    width = 160 / bins + 1e-9
    sides = [
        {q: cases.expected(keys, lambda x, q=q, s=s: quantile_of(x, q, s)) for q in ranks}  # type: ignore[misc]
        for s in ("left", "right")
    ]
    for (*key, q), found, low, high in zip(
        cases.rows_of(release.groups), release.estimate, release.low, release.high, strict=True
    ):
        left, right = (side[q][tuple(key)] for side in sides)
        assert left - width <= found <= right + width
        assert low <= found <= high
    assert len(release) == len(ranks) * len(sides[0][0.5])


def quantile_of(x: Any, q: float, side: str) -> float:
    """The smallest or largest number below which lie at most a share q, and above at most the rest."""
    ordered = np.sort(np.asarray(x))
    place = q * ordered.size
    index = math.ceil(place - 1e-9) - 1 if side == "left" else math.floor(place + 1e-9)
    return float(ordered[min(max(index, 0), ordered.size - 1)])
