"""Statistical claims with power: an interval 3% too narrow is seen, and noise 2% too small.

Each claim is tested on one release with as many cells as it takes, which follows from how often a
right one may be refused (``FALSE_ALARM``) and a wrong one pass (``MISSED``). Each test then asks the same
of an interval that is narrowed, or of noise that is shrunk, and that must be refused. Seeds are fixed.
Intervals that hold more often than they say, by design, have a floor that was measured, below which
they are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.statistics import cases

import dpgrain as dg
from dpgrain.means.total_error import CONFIDENCE, Number
from dpgrain.noise import (
    BinomialLaw,
    PoissonLaw,
    SeededSource,
    discrete_laplace,
    gumbel_order,
    rounded_gaussian,
    truncated_geometric,
)
from dpgrain.noise import exponential as exponential_module
from dpgrain.noise.choice import choose_scores
from dpgrain.noise.counts import counts_of

FloatArray = NDArray[np.float64]

# A right claim is refused, and a wrong one passes, with these probabilities at most.
FALSE_ALARM, MISSED = 1e-6, 1e-3
NARROWED, SHRUNK = 0.97, 0.98
# Standard deviations of a normal number beyond which these probabilities lie.
_ALARM_SDS, _MISS_SDS = (float(stats.norm.isf(p)) for p in (FALSE_ALARM, MISSED))


def cells_for(held: float, narrowed: float) -> int:
    """How many cells tell a share of cells whose interval holds from a smaller one.

    >>> cells_for(0.95, 0.9427)
    57651
    """
    sds = [math.sqrt(share * (1 - share)) for share in (held, narrowed)]
    return math.ceil(((_ALARM_SDS * sds[0] + _MISS_SDS * sds[1]) / (held - narrowed)) ** 2)


def draws_for(spread: float) -> int:
    """How many draws tell a scale from one 2% smaller, by a mean of this standard deviation ÷ mean."""
    return math.ceil(((_ALARM_SDS + _MISS_SDS) * spread / (1 - SHRUNK)) ** 2)


def too_few(holds: NDArray[np.bool_], share: float) -> bool:
    """Whether so few intervals hold what they are about that they do not do so with this probability."""
    return bool(stats.binom.cdf(int(holds.sum()), holds.size, share) < FALSE_ALARM)


def too_many(holds: NDArray[np.bool_], share: float) -> bool:
    """Whether so many intervals hold what they are about that they do so more often than this."""
    return bool(stats.binom.sf(int(holds.sum()) - 1, holds.size, share) < FALSE_ALARM)


# ------------------------------------------------------------------------------------- intervals


@dataclass(frozen=True)
class Claim:
    """What is published of many cells, and how often its intervals hold what it is without noise.

    Args:
        publish: publishes it, of a table.
        holds: the share of cells whose interval holds it, at least; 95%, or a floor that was measured
            where more is held by design.
        narrowed: the share that is held at most where intervals are 3% narrower.
        above: the share that is held at most.
        rows: how many rows each cell has, each of a user.
        lows: how many intervals of a cell must hold together.
    """

    publish: Callable[..., dg.Release]
    holds: float
    narrowed: float
    above: float
    rows: int = 1
    together: int = 1

    @property
    def cells(self) -> int:
        """How many cells it takes to see a narrower interval."""
        return cells_for(self.holds, self.narrowed)


# What is held by an interval of two-sided normal and Laplace noise that is 3% narrower.
NORMAL = 2 * stats.norm.cdf(NARROWED * stats.norm.isf(0.025)) - 1
LAPLACE = 1 - 0.05**NARROWED


def by_cell(ask: Callable[..., Any], *words: Any, **options: Any) -> Callable[..., dg.Release]:
    """What is published of each of the public cells of a table."""

    def publish(table: dg.UserTable, cells: int, **more: Any) -> dg.Release:
        asked = {"by": "cell", "domain": range(cells), "unit": dg.User(), **options, **more}
        asked["domain"] = list(asked["domain"])
        asked.setdefault("delta", 1e-6 if asked.get("noise") == "gaussian" else 0.0)
        found: dg.Release = ask(table, *words, **asked)
        return found

    return publish


def held(table: dg.UserTable, cells: int, **options: Any) -> dg.Release:
    """How many people have how much, in as many bins as there are cells."""
    return dg.elements_per_user(
        table, "cell", unit=dg.User(), epsilon=0.02, edges=range(1, cells), **options
    )


GAUSSIAN: dict[str, Any] = {"noise": "gaussian"}
LAPLACIAN: dict[str, Any] = {"noise": "laplace"}
SUM: dict[str, Any] = {"bounds": (-10, 10), "clip": 10.0, "epsilon": 0.1}
# So much that no bound of what is estimated is met, and intervals are those of the noise alone.
RATIO: dict[str, Any] = {"bounds": (0, 10), "clip": 10.0}
CLAIMS = {
    "count": Claim(
        by_cell(dg.count, clip=1.0, epsilon=0.02, **GAUSSIAN), 0.95, NORMAL, 0.95
    ),
    "count, Laplace": Claim(
        by_cell(dg.count, clip=1.0, epsilon=0.02, **LAPLACIAN), 0.95, LAPLACE, 0.95
    ),
    "sum": Claim(by_cell(dg.sum, "x", **SUM, **GAUSSIAN), 0.95, NORMAL, 0.95),
    "sum, Laplace": Claim(by_cell(dg.sum, "x", **SUM, **LAPLACIAN), 0.95, LAPLACE, 0.95),
    "mean": Claim(
        by_cell(dg.mean, "x", epsilon=1000.0, **RATIO, **GAUSSIAN), 0.95, NORMAL, 0.95, rows=8
    ),
    # Two Laplace numbers together have lighter tails than the one they are taken for.
    "mean, Laplace": Claim(
        by_cell(dg.mean, "x", epsilon=200.0, **RATIO, **LAPLACIAN), 0.952, 0.9485, 0.956, rows=8
    ),
    "variance": Claim(
        by_cell(dg.variance, "x", epsilon=5000.0, **RATIO, **GAUSSIAN), 0.95, 0.944, 0.952, rows=8
    ),
}


def table_of(cells: int, rows: int) -> dg.UserTable:
    """A table in which each user has one row, and each cell so many."""
    cell = np.repeat(np.arange(cells), rows)
    x = np.random.default_rng(0).choice([0.0, 2.0, 5.0, 9.0], size=cell.size)
    columns = {"who": np.arange(cell.size), "cell": cell, "x": x}
    return dg.read(pa.table(columns), user="who", engine="in_memory", threads=1)


def without_noise(publish: Callable[[], Any]) -> Any:
    """What is published if no noise is drawn."""
    with pytest.MonkeyPatch.context() as patch:
        cases.noiseless(patch)
        return publish()


def holding(
    release: dg.Release, truth: FloatArray, times: float, together: int = 1
) -> NDArray[np.bool_]:
    """Whether the intervals of each cell hold the truth, if they were so many times as wide."""
    middle, half = (release.low + release.high) / 2, times * (release.high - release.low) / 2
    found: NDArray[np.bool_] = np.abs(truth - middle) <= half
    return found.reshape(-1, together).all(axis=1)


@pytest.mark.parametrize("name", CLAIMS)
def test_intervals_hold_as_often_as_they_say(name: str) -> None:
    claim = CLAIMS[name]
    table = table_of(claim.cells, claim.rows)
    publish = partial(claim.publish, table, claim.cells)
    truth = without_noise(partial(publish, random_state=0)).estimate
    release = publish(random_state=1)
    holds = holding(release, truth, 1.0, claim.together)
    print(name, claim.cells, holds.mean(), holding(release, truth, NARROWED, claim.together).mean())
    assert not too_few(holds, claim.holds), f"{holds.mean():.4f} hold"
    assert not too_many(holds, claim.above), f"{holds.mean():.4f} hold"
    # What the test is worth.
    assert too_few(holding(release, truth, NARROWED, claim.together), claim.holds)
