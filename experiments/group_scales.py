"""Errors of sums and counts by group of whole users, with and without scales of groups.

The groups of each table are public. Errors of releases with privately chosen scales are divided by
errors of releases with one bound and the same guarantee: the root mean square over all groups, and
the geometric mean over groups. An error includes the variance of the noise, and the clipped part.

    python experiments/group_scales.py [--runs 10] [--table retail]

The tables are read from the folder in DPGRAIN_DATA. It takes sixteen minutes on a busy machine.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

import dpgrain as dg
from dpgrain._files import data_folder
from dpgrain.statistics import plan

DELTA = 1e-6
EPSILONS = (1.0, 3.0)
# Users, groups and numbers of the rows, and the public bound of the numbers; None for counts.
Rows: TypeAlias = tuple[Any, Any, Any, float | None]
FloatArray: TypeAlias = NDArray[np.float64]


def _of_file(name: str, user: str, group: str, number: str = "", bound: float = 0) -> Any:
    """Return a function from the folder of the data to rows."""

    def rows(folder: Path) -> Rows:
        columns = dict.fromkeys([user, group, *filter(None, [number])])
        table = pq.read_table(folder / name, columns=list(columns))
        groups = table[group]
        if pa.types.is_timestamp(groups.type):
            groups = pc.strftime(groups, "%Y-%m")
        numbers = table[number].to_numpy() if number else np.ones(table.num_rows)
        return table[user].to_numpy(), groups.to_numpy(), numbers, bound or None

    return rows


def _made(group_of_heavy: bool, groups: int, power: float = 0.0) -> Callable[[Path], Rows]:
    """Return a function to synthetic rows: some people have 260 records in one group, or Zipf."""

    def rows(_: Path) -> Rows:
        rng = np.random.default_rng(0)
        records = rng.geometric(0.25, 20_000)
        share = 1.0 / np.arange(1, groups + 1) ** power
        group = rng.choice(groups, records.sum(), p=share / share.sum())
        who = np.repeat(np.arange(20_000), records)
        if group_of_heavy:
            heavy = rng.poisson(260, 160)
            who = np.append(who, np.repeat(np.arange(20_000, 20_160), heavy))
            group = np.append(group, np.zeros(heavy.sum(), dtype=int))
        return who, group, np.ones(who.size), None

    return rows


RETAIL, IRC = "online_retail.parquet", "irc_ubuntu.parquet"
OULAD, BASEBALL = "oulad_assessments.parquet", "baseball_plate_appearances.parquet"
TABLES: dict[str, Callable[[Path], Rows]] = {
    "retail: lines by country": _of_file(RETAIL, "user_id", "country"),
    "retail: quantity by country": _of_file(RETAIL, "user_id", "country", "quantity", 500),
    "retail: lines by month": _of_file(RETAIL, "user_id", "time"),
    "retail: quantity by month": _of_file(RETAIL, "user_id", "time", "quantity", 500),
    "irc: messages by month": _of_file(IRC, "user_id", "date"),
    "irc: tokens by month": _of_file(IRC, "user_id", "date", "n_tokens", 50),
    "oulad: assessments by region": _of_file(OULAD, "user_id", "region"),
    "oulad: credits by education": _of_file(
        OULAD, "user_id", "highest_education", "studied_credits", 300
    ),
    "baseball: appearances by outcome": _of_file(BASEBALL, "user_id", "outcome"),
    "baseball: pitches by outcome": _of_file(BASEBALL, "user_id", "outcome", "n_pitches", 15),
    "baseball: appearances by inning": _of_file(BASEBALL, "user_id", "inning"),
    "baseball: appearances by order": _of_file(BASEBALL, "user_id", "batting_order"),
    "made: one heavy group of 40": _made(group_of_heavy=True, groups=40),
    "made: 40 like groups": _made(group_of_heavy=False, groups=40),
    "made: 40 groups by Zipf": _made(group_of_heavy=False, groups=40, power=1.0),
}


def errors(rows: Rows, epsilon: float, runs: int, *, scales: bool) -> FloatArray:
    """Return the root mean squared error of each group: of the noise, and by clipping."""
    who, group, numbers, bound = rows
    names, codes = np.unique(group, return_inverse=True)
    table = dg.read(pa.table({"who": who, "group": codes, "x": numbers}), user="who", threads=1)
    options: dict[str, Any] = {
        "by": "group", "domain": list(range(names.size)), "unit": dg.User(), "epsilon": epsilon,
        "delta": DELTA, "noise": "gaussian", "progress": False,
    }  # fmt: skip
    pairs, pair = np.unique(who.astype(np.int64) * names.size + codes, return_inverse=True)
    amount, of = np.bincount(pair, np.clip(numbers, 0, bound)), pairs % names.size
    owner = np.unique(pairs // names.size, return_inverse=True)[1]
    least, squares = plan.SCALED_LEAST if scales else math.inf, np.zeros(names.size)
    with mock.patch.object(plan, "SCALED_LEAST", least):
        for seed in range(runs):
            if bound is None:
                release = dg.count(table, random_state=seed, **options)
            else:
                release = dg.sum(table, "x", bounds=(0, bound), random_state=seed, **options)
            order = np.array(release.items.to_pylist())
            clip, sd = np.zeros((2, names.size))
            clip[order], sd[order] = release.clip, release.std_error
            norm = np.sqrt(np.bincount(owner, (amount / clip[of]) ** 2))
            lost = amount * (1 - 1 / np.maximum(norm, 1))[owner]
            squares += np.bincount(of, lost, names.size) ** 2 + sd**2
    return np.asarray(np.sqrt(squares / runs))


def ratios(rows: Rows, epsilon: float, runs: int) -> tuple[float, float]:
    """Return the ratios of errors: root mean square, and geometric mean over groups."""
    with_scales, without = (errors(rows, epsilon, runs, scales=each) for each in (True, False))
    total = math.sqrt(float((with_scales**2).sum() / (without**2).sum()))
    return total, float(np.exp(np.log(with_scales / without).mean()))


def lines(runs: int, tables: Any = tuple(TABLES)) -> Iterator[tuple[str, list[float]]]:
    """Yield the ratios of each table, for each ε."""
    folder = data_folder()
    for name in tables:
        rows = TABLES[name](folder)
        yield name, [ratio for epsilon in EPSILONS for ratio in ratios(rows, epsilon, runs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--table", default="")
    chosen = parser.parse_args()
    print(f"| table | {' | '.join(f'ε = {epsilon:g}' for epsilon in EPSILONS)} |")
    print(f"| --- |{' ---: |' * len(EPSILONS)}")
    every = []
    for name, found in lines(chosen.runs, [name for name in TABLES if chosen.table in name]):
        cells = [f"{a:.2f} / {b:.2f}" for a, b in zip(found[::2], found[1::2], strict=True)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        if not name.startswith("made"):
            every.append(found)
    if every:
        mean = np.exp(np.log(np.array(every).reshape(-1, 2)).mean(axis=0))
        print(f"\ngeometric mean of the tables: {mean[0]:.2f} / {mean[1]:.2f}")


if __name__ == "__main__":
    main()
