"""Errors and coverage of statistics with privately chosen bounds, by shape, unit and ε.

Usage:

    python benchmarks/found_bounds.py [--seeds 8] [--shape "small integers"] [--statistic mean]
    python benchmarks/found_bounds.py --real [--epsilon 1]

With ``--real``, the shapes are public tables in the folder that DPGRAIN_DATA names. Each line is
one shape, statistic, unit and ε with default options. It shows the error of a release (root mean
square over groups) divided by the expected error at the best range and clipping bound, which
requires access to the data: the median and the 90th percentile over seeds; the share of intervals
that contain the true value; the share of wrong values without a warning; and the share of values
with a warning. A value is wrong if it is outside of its interval, or below ``at_least`` if there is
one: intervals of clipped sums are for the clipped total. A single number with optimal bounds has
the ratios 0.7 and 1.6.
"""

from __future__ import annotations

import argparse
import itertools
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import dpgrain as dg
from dpgrain._files import data_folder
from dpgrain.statistics.sums_query import SumsQuery

USERS = 3000
EPSILONS = (0.3, 1.0, 3.0)
UNITS: dict[str, Callable[[], Any]] = {
    "record": dg.Record,
    "element": lambda: dg.Element("g"),
    "user": dg.User,
}
STATISTICS = ("mean", "mean by", "sum", "sum by", "std", "count", "count by")
# Clipping bounds and tails of ranges tried in hindsight.
CLIPS = 2.0 ** np.arange(-1, 9, 0.5)
TAILS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2)


@dataclass(frozen=True)
class Rows:
    """Rows of users, groups and values."""

    who: np.ndarray
    group: np.ndarray
    value: np.ndarray

    @property
    def groups(self) -> int:
        """Number of public groups."""
        return int(self.group.max()) + 1

    @cached_property
    def table(self) -> dg.UserTable:
        """The rows as a table."""
        columns = {"who": self.who, "g": self.group, "x": self.value}
        return dg.read(pa.table(columns), user="who", threads=1)


def _rows(
    seed: int,
    groups: int,
    value: Any,
    *,
    single: bool = False,
    sizes: Any = None,
    skew: bool = False,
) -> Rows:
    rng = np.random.default_rng(seed)
    rows = np.ones(USERS, np.int64) if single else rng.geometric(0.25, USERS)
    if skew:
        # A median of 3 rows, and a twentieth of the users with at least 23.
        rows = np.ceil(rng.lognormal(1.0, 1.3, USERS)).astype(np.int64)
    who = np.repeat(np.arange(USERS), rows)
    shares = np.ones(groups) if sizes is None else np.array(sizes, dtype=float)
    group = rng.choice(groups, who.size, p=shares / shares.sum())
    # Each group has a row, so that its mean is defined.
    group[:groups] = np.arange(groups)
    # Users differ; users with many rows have larger values.
    level = rng.normal(size=USERS) + 0.5 * np.log(rows)
    scaled = (group,) if value is _by_scales else ()
    return Rows(who, group, value(rng, level[who], *scaled))


def _answers(rng: np.random.Generator, level: np.ndarray) -> np.ndarray:
    return (rng.random(level.size) < 1 / (1 + np.exp(1.5 - level))).astype(float)


def _stars(rng: np.random.Generator, level: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(3 + level / 2 + rng.normal(size=level.size)), 1, 5)


def _incomes(rng: np.random.Generator, level: np.ndarray) -> np.ndarray:
    return np.round(np.exp(10 + 0.4 * level + 0.8 * rng.normal(size=level.size)), 2)


def _heavy(rng: np.random.Generator, level: np.ndarray) -> np.ndarray:
    return np.round(20 * np.exp(0.3 * level) * (1 + rng.pareto(1.8, level.size)), 2)


def _signed(rng: np.random.Generator, level: np.ndarray) -> np.ndarray:
    return np.round(50 + 200 * (level + rng.normal(size=level.size)), 2)


def _mostly_zeros(rng: np.random.Generator, level: np.ndarray) -> np.ndarray:
    bought = rng.random(level.size) < 0.1
    return np.where(bought, np.round(np.exp(3 + 0.4 * level + rng.normal(size=level.size)), 2), 0)


def _pressures(rng: np.random.Generator, level: np.ndarray) -> np.ndarray:
    return np.round(1010 + 3 * level + 8 * rng.normal(size=level.size), 1)


def _by_scales(rng: np.random.Generator, level: np.ndarray, group: np.ndarray) -> np.ndarray:
    return np.round(_incomes(rng, level) * 2.0**-group, 2)


TINY = (2000, 700, 700, 200, 180, 12, 1, 1)
SHAPES: dict[str, Callable[[int], Rows]] = {
    "0/1": lambda seed: _rows(seed, 8, _answers),
    "small integers": lambda seed: _rows(seed, 8, _stars),
    "incomes": lambda seed: _rows(seed, 8, _incomes),
    "heavy tail": lambda seed: _rows(seed, 8, _heavy),
    "one record each": lambda seed: _rows(seed, 8, _incomes, single=True),
    "many groups": lambda seed: _rows(seed, 240, _incomes),
    "tiny groups": lambda seed: _rows(seed, 8, _answers, sizes=TINY),
    "signed": lambda seed: _rows(seed, 8, _signed),
    "mostly zeros": lambda seed: _rows(seed, 8, _mostly_zeros),
    "far from zero": lambda seed: _rows(seed, 8, _pressures),
    "heavy users": lambda seed: _rows(seed, 8, _incomes, skew=True),
    "other scales": lambda seed: _rows(seed, 8, _by_scales),
}


# Public tables: the file, a numeric expression, and the groups.
REAL: dict[str, tuple[str, str, str]] = {
    "scores": ("oulad_assessments", "score", "region"),
    "hits": ("baseball_plate_appearances", "hit", "batting_order"),
    "pitches": ("baseball_plate_appearances", "n_pitches", "inning"),
    "sales": ("online_retail", "round(quantity * unit_price, 2)", "country"),
    "messages": ("irc_ubuntu", "n_tokens", "minute // 60"),
    "speeches": ("congress_speeches", "n_tokens", "year(date)"),
}


def real_rows(name: str) -> Rows:
    """Return the rows of a public table; raise ``DataError`` if its file is missing."""
    file, value, group = REAL[name]
    path = data_folder(f"{file}.parquet") / f"{file}.parquet"
    rows = duckdb.execute(
        f"SELECT user_id, dense_rank() OVER (ORDER BY {group}) - 1 AS g, ({value})::DOUBLE AS x "
        f"FROM '{path}' WHERE {group} IS NOT NULL AND isfinite(x)"
    ).fetchnumpy()
    return Rows(*(np.asarray(rows[column]) for column in ("user_id", "g", "x")))


def rows_of(shape: str) -> Rows:
    """Return the rows of a made shape or of a public table."""
    return SHAPES[shape](0) if shape in SHAPES else real_rows(shape)


@dataclass(frozen=True)
class Line:
    """Result of one shape, statistic, unit and ε."""

    shape: str
    statistic: str
    unit: str
    epsilon: float
    median: float
    high: float
    coverage: float
    silent: float
    warned: float


def lines(
    seeds: int,
    shapes: Any = tuple(SHAPES),
    statistics: Any = STATISTICS,
    units: Any = tuple(UNITS),
    epsilons: Any = EPSILONS,
) -> Iterator[Line]:
    """Measure each combination."""
    for shape in shapes:
        rows = rows_of(shape)
        for statistic, unit, epsilon in itertools.product(statistics, units, epsilons):
            yield measured(rows, shape, statistic, unit, epsilon, seeds)


def measured(rows: Rows, shape: str, statistic: str, unit: str, epsilon: float, seeds: int) -> Line:
    """Measure one combination."""
    drawn = Draws.of(rows, shape, statistic, unit, epsilon, seeds)
    best = best_error(rows, statistic, unit, epsilon)
    ratios = np.sqrt(np.mean(np.square(drawn.error), axis=1)) / best
    return Line(
        shape, statistic, unit, epsilon, float(np.median(ratios)), float(np.quantile(ratios, 0.9)),
        1 - float(drawn.outside.mean()), drawn.silent, float(drawn.warned.mean()),
    )  # fmt: skip


@dataclass(frozen=True)
class Draws:
    """Releases of one combination, by seed and group.

    Args:
        error: (seeds, groups) estimates minus true values.
        outside: True for true values outside of the interval.
        wrong: True for true values outside of the interval, or below ``at_least`` if there is one.
        warned: True for numbers with a warning.
    """

    error: np.ndarray
    outside: np.ndarray
    wrong: np.ndarray
    warned: np.ndarray

    @staticmethod
    def of(rows: Rows, shape: str, statistic: str, unit: str, epsilon: float, seeds: int) -> Draws:
        """Publish a statistic with several seeds."""
        truth, draws = true_values(rows, statistic), []
        first = zlib.crc32(f"{shape} {statistic} {unit} {epsilon}".encode())
        for seed in range(first, first + seeds):
            release = published(rows, statistic, unit, epsilon, random_state=seed)
            error = np.where(np.isnan(release.estimate), 0.0, release.estimate) - truth
            outside = ~((release.low <= truth) & (truth <= release.high))
            # Clipped sums are read as "at least".
            least = getattr(release, "at_least", None)
            least = np.full(truth.size, np.nan) if least is None else least
            wrong = np.where(np.isnan(least), outside, truth < least)
            draws.append((error, outside, wrong, [bool(text) for text in release.row_warnings]))
        return Draws(*map(np.array, zip(*draws, strict=True)))

    @property
    def silent(self) -> float:
        """Share of wrong numbers without a warning."""
        return float((self.wrong & ~self.warned).mean())


def _options(rows: Rows, statistic: str, unit: str, epsilon: float) -> dict[str, Any]:
    by = {"by": "g", "domain": list(range(rows.groups))} if statistic.endswith("by") else {}
    return {"unit": UNITS[unit](), "epsilon": epsilon, "delta": 1e-6, "progress": False, **by}


def published(rows: Rows, statistic: str, unit: str, epsilon: float, **options: Any) -> Any:
    """Publish a statistic."""
    name = statistic.split()[0]
    options |= {} if name == "count" else {"value": "x"}
    function = getattr(dg, name)
    return function(rows.table, **_options(rows, statistic, unit, epsilon), **options)


def true_values(rows: Rows, statistic: str) -> np.ndarray:
    """Return the true values of the groups."""
    group = rows.group if statistic.endswith("by") else np.zeros_like(rows.group)
    functions: dict[str, Callable[[np.ndarray], Any]] = {
        "mean": np.mean,
        "sum": np.sum,
        "std": np.std,
        "count": np.size,
    }
    of = functions[statistic.split()[0]]
    return np.array([of(rows.value[group == g]) for g in range(group.max() + 1)])


def best_error(rows: Rows, statistic: str, unit: str, epsilon: float) -> float:
    """Return the smallest expected error of one range and one clipping bound, without cancellation.

    Losses above and below the range, and those of clipping, count in full: a range whose losses
    cancel is accurate on this table only.
    """
    name = statistic.split()[0]
    group = rows.group if statistic.endswith("by") else np.zeros_like(rows.group)
    groups, truth = int(group.max()) + 1, true_values(rows, statistic)
    rows_per_group = np.bincount(group, minlength=groups)
    block = {
        "record": np.arange(group.size),
        "element": rows.who * rows.groups + rows.group,
        "user": rows.who,
    }[unit]
    block = np.unique(block, return_inverse=True)[1]
    pairs, pair = np.unique(block * groups + group, return_inverse=True)
    best = math.inf
    counts = name == "count"
    numbers: dict[str, Any] = {} if counts else {"value": "x", "bounds": (0.0, 1.0)}
    query: SumsQuery[Any] = getattr(dg, name).query(
        rows.table, clip=1.0, **numbers, **_options(rows, statistic, unit, epsilon)
    )
    sd, l1 = query.events.std_error, query.norm == "l1"
    degree = {"mean": 1, "std": 2}.get(name, 0)
    values = np.ones_like(rows.value) if counts else rows.value
    low_tails = (0.0, 0.001, 0.01, 0.1) if degree or values.min() < 0 else (0.0,)
    for low_tail, tail in itertools.product(low_tails, TAILS[:1] if counts else TAILS):
        low, high = np.quantile(values, [low_tail, 1 - tail]).tolist()
        if not degree:
            low, high = min(low, 0.0), max(high, 0.0)
        if high <= low:
            continue
        within = np.clip(values, low, high)
        beyond = [np.bincount(group, np.abs(part), groups) for part in _beyond(values, low, high)]
        if degree:
            u = (within - low) / (high - low)
            weights = [
                math.comb(degree, j) * u**j * (1 - u) ** (degree - j) for j in range(degree + 1)
            ]
        else:
            # Sums are in units of the largest magnitude.
            high = max(high, -low)
            weights = [within / high]
        sums = np.stack([np.bincount(pair, w) for w in weights], axis=1)
        size = np.abs(sums).sum(axis=1) if l1 else (sums**2).sum(axis=1)
        norm = np.bincount(pairs // groups, size)
        norm = norm if l1 else np.sqrt(norm)
        for clip in (1.0,) if unit == "record" else CLIPS:
            scale = np.minimum(1.0, clip / np.maximum(norm, 1e-12))[pairs // groups, None]
            if degree:
                whole, kept = (_masses(pairs, groups, s) for s in (sums, scale * sums))
                before, _ = _estimate(whole, 0.0)
                after, off = _estimate(kept, clip * sd)
                outside = (
                    np.maximum(*beyond) / rows_per_group
                    if name == "mean"
                    else np.abs((high - low) * before - truth)
                )
                bias = outside + (high - low) * np.abs(after - before)
                error = bias**2 + ((high - low) * off) ** 2
            else:
                lost = high * (1 - scale[:, 0]) * sums[:, 0]
                clipped = (np.bincount(pairs % groups, np.abs(p), groups) for p in _signs(lost))
                bias = np.maximum(*(b + c for b, c in zip(beyond, clipped, strict=True)))
                error = bias**2 + (clip * sd * high) ** 2
            best = min(best, math.sqrt(float(np.mean(error))))
    return best


def _beyond(values: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of values above and below a range."""
    return np.maximum(values - high, 0), np.minimum(values - low, 0)


def _signs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positive and the negative parts of values."""
    return np.maximum(values, 0), np.minimum(values, 0)


def _masses(pairs: np.ndarray, groups: int, sums: np.ndarray) -> np.ndarray:
    """Return the total masses of each group, of shape (groups, masses)."""
    return np.stack([np.bincount(pairs % groups, s, groups) for s in sums.T], axis=1)


def _estimate(masses: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean or the standard deviation in a range of width 1, and the noise."""
    count = np.maximum(masses.sum(axis=1), 1e-9)
    if masses.shape[1] == 2:
        u = masses[:, 1] / count
        return u, np.minimum(noise * np.hypot(1 - u, u) / count, math.sqrt(1 / 12))
    m, q = (masses[:, 1] / 2 + masses[:, 2]) / count, masses[:, 2] / count
    v = np.maximum(q - m**2, 1e-12)
    base = q - 2 * m**2
    slope = np.sqrt(base**2 + (-m - base) ** 2 + (1 - 2 * m - base) ** 2)
    return np.sqrt(v), np.minimum(noise * slope / count / (2 * np.sqrt(v)), 0.25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--shape", choices=[*SHAPES, *REAL], action="append")
    parser.add_argument("--statistic", choices=STATISTICS, action="append")
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument("--real", action="store_true", help="public tables instead of made ones")
    chosen = parser.parse_args()
    shapes = chosen.shape or (REAL if chosen.real else SHAPES)
    print("| shape | statistic | unit | ε | median | 90% | coverage | silent | warned |")
    print("|---|---|---|--:|--:|--:|--:|--:|--:|")
    every = []
    for line in lines(
        chosen.seeds, shapes, chosen.statistic or STATISTICS, epsilons=chosen.epsilon or EPSILONS
    ):
        every.append(line)
        print(
            f"| {line.shape} | {line.statistic} | {line.unit} | {line.epsilon} | {line.median:.2f} "
            f"| {line.high:.2f} | {line.coverage:.2f} | {line.silent:.2f} | {line.warned:.2f} |",
            flush=True,
        )
    medians, highs = [line.median for line in every], [line.high for line in every]
    print(
        f"\nmedian of medians {np.median(medians):.2f}, of 90th percentiles {np.median(highs):.2f}; "
        f"silent above 10%: {sum(line.silent > 0.1 for line in every)} of {len(every)}"
    )


if __name__ == "__main__":
    main()
