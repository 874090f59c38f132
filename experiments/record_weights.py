"""Means and fits of users weighted by records, on tables of people with unequal numbers of rows.

    python experiments/record_weights.py [--seeds 3] [--out experiments/record_weights.json]

ε = 1, δ = 1e-6, ``zero_out``, for baseball plate appearances by batter, retail lines by customer and
assessments by student. The truth of a mean is the mean of all records; the gain of a fit is how much
of the best linear model's reduction of the squared error per row it reaches. Needs ``DPGRAIN_DATA``.
A few minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dpgrain as dg
from dpgrain import learn

PROMISE = {"epsilon": 1.0, "delta": 1e-6}
RECORDED = Path(__file__).with_suffix(".json")
#: Options of each row of the table.
WEIGHTS: dict[str, dict[str, Any]] = {"users": {}, "records": {"weights": "records"}}

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class People:
    """Rows of people: columns of a mean, features of a fit, its target, and the users."""

    values: Array
    features: Array
    target: Array
    users: NDArray[Any]


@dataclass(frozen=True)
class Cell:
    """Errors on one table with one type of weights.

    Args:
        weights: ``"users"`` or ``"records"``.
        mean_error: the rms l2 distance of the private mean from the mean of all records.
        without_noise: the same for the weighted mean without noise or clipping.
        gain: the mean gain per row of the private fit, as a share of the best linear model's.
        max_records: the most frequent number of records that was chosen; 0 for equal weights.
    """

    table: str
    weights: str
    mean_error: float
    without_noise: float
    gain: float
    max_records: int


def _read(name: str) -> pd.DataFrame:
    return pd.read_parquet(Path(os.environ["DPGRAIN_DATA"]) / f"{name}.parquet")


def baseball() -> People:
    """Plate appearances by batter: how often they reach a base, and after how many pitches."""
    rows = _read("baseball_plate_appearances")
    same, home = rows["bats"] == rows["pitcher_throws"], rows["batter_is_home"]
    order, pitches = rows["batting_order"].clip(1, 9) / 9, rows["n_pitches"].clip(0, 12) / 12
    features = np.column_stack([same, home, order, pitches]).astype(float)
    values = np.column_stack([rows["hit"], rows["on_base"], pitches]).astype(float)
    return People(values, features, rows["on_base"].to_numpy(float), rows["user_id"].to_numpy())


def retail() -> People:
    """Lines of invoices by customer: quantity and price, in powers of 10."""
    rows = _read("online_retail")
    quantity = np.log10(rows["quantity"].abs().clip(1, 10_000)) / 4
    price = np.log10(rows["unit_price"].clip(0.01, 1000)) / 3
    cancelled, home = rows["cancelled"], rows["country"] == "United Kingdom"
    features = np.column_stack([price, cancelled, home]).astype(float)
    values = np.column_stack([quantity, price, cancelled]).astype(float)
    return People(values, features, quantity.to_numpy(float), rows["user_id"].to_numpy())


def students() -> People:
    """Assessments by student: score and day."""
    rows = _read("oulad_assessments").dropna(subset=["score"])
    score, day = rows["score"] / 100, rows["date_submitted"].clip(-20, 280) / 300
    tried, credit = (
        rows["num_of_prev_attempts"].clip(0, 4) / 4,
        rows["studied_credits"].clip(0, 300),
    )
    marks = [rows["gender"] == "M", rows["disability"] == "Y", rows["is_banked"]]
    features = np.column_stack([tried, credit / 300, day, *marks]).astype(float)
    values = np.column_stack([score, day, tried]).astype(float)
    return People(values, features, score.to_numpy(float), rows["user_id"].to_numpy())


TABLES = {"baseball": baseball, "retail": retail, "students": students}


def _gain(people: People, coef: Array, intercept: float) -> float:
    """The reduction of the squared error per row, as a share of the best linear model's."""
    design = np.column_stack([people.features, np.ones(len(people.target))])
    best = np.linalg.lstsq(design, people.target, rcond=None)[0]
    errors = [
        float(((people.target - fitted) ** 2).mean())
        for fitted in (people.target.mean(), people.features @ coef + intercept, design @ best)
    ]
    return (errors[0] - errors[1]) / (errors[0] - errors[2])


def measured(table: str, weights: str, seeds: int) -> Cell:
    """Means and fits of one table with one type of weights."""
    people, own = TABLES[table](), WEIGHTS[weights]
    truth, bound = people.values.mean(axis=0), math.sqrt(people.values.shape[1])
    errors, gains, chosen = [], [], []
    for seed in range(seeds):
        asked = {**PROMISE, **own, "random_state": seed}
        mean = dg.mean_of_users(people.values, users=people.users, bound=bound, **asked)
        errors.append(float(np.linalg.norm(mean.value - truth)))
        chosen.append(mean.max_records or 0)
        model = learn.LinearRegression(unit=dg.User(), **asked)
        model.fit(people.features, people.target, users=people.users)
        gains.append(_gain(people, model.coef_, float(model.intercept_)))
    most = max(set(chosen), key=chosen.count)
    frame = pd.DataFrame(people.values).groupby(people.users)
    sizes = np.minimum(frame.size().to_numpy(), max(most, 1))[:, None]
    exact = (frame.mean().to_numpy() * sizes).sum(axis=0) / sizes.sum()
    error = math.sqrt(float(np.mean(np.square(errors))))
    without = float(np.linalg.norm(exact - truth))
    return Cell(table, weights, error, without, float(np.mean(gains)), most)


def cells(seeds: int) -> Iterator[Cell]:
    """All cells of the table."""
    for table in TABLES:
        for weights in WEIGHTS:
            yield measured(table, weights, seeds)


def table(found: Sequence[Cell]) -> list[str]:
    """Lines of the table in Markdown."""
    lines = [
        "| table | weights | records that count | error of the mean | without noise | gain of fit |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for cell in found:
        most = f"{cell.max_records:,}" if cell.max_records else "all, equal users"
        numbers = f"{cell.mean_error:.4f} | {cell.without_noise:.4f} | {cell.gain:.0%}"
        lines.append(f"| {cell.table} | `{cell.weights}` | {most} | {numbers} |")
    return lines


def recorded() -> list[Cell]:
    """Cells of the recorded run."""
    return [Cell(**one) for one in json.loads(RECORDED.read_text(encoding="utf-8"))]


def main() -> None:
    """Run all cells, record them and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RECORDED)
    options = parser.parse_args()
    found = []
    for cell in cells(options.seeds):
        found.append(cell)
        options.out.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
