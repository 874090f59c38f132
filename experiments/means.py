"""The true and printed errors of means of users, and the choices of ``method="auto"``.

Users have one vector each, within a public bound of 10: anywhere in the ball, near one point, on a
sphere around one, in two clusters, with a distant tenth, with a few at the other end, or skewed;
and real ones, steps per hour of wearers of a tracker, mean scores of students, and amounts of a
shop's customers. For every number of users, ε, dimension and method the table has

- ``rms``: the rms distance, in l2 norm, from the users' own mean;
- ``noise``: the published rms noise, ``std_error`` times √d;
- ``error``: the median of the published total error, with confidence 95%;
- ``covered``: the share of runs that it covers;
- ``chosen``: the method, with its share of runs.

With ``--missing`` a share of the roster has no records. The radius is stated as 0.5 in half of the
cells, which is true where users are near one point, and wrong elsewhere.

    python experiments/means.py [--data FOLDER] [--out experiments/out] [--repeats 20] [--quick]
        [--missing 0.5]

The tables are read from the folder of ``--data``, or the one in DPGRAIN_DATA; without it the rest
is run. Random numbers are seeded, so results repeat exactly; a seeded release is not private.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dpgrain as dg
from dpgrain._files import data_folder
from dpgrain.errors import DataError, ParameterError

FloatArray = NDArray[np.float64]

DELTA, BOUND, RADIUS = 1e-6, 10.0, 0.5
EPSILONS, DIMENSIONS = (0.3, 1.0, 3.0), (1, 5, 50)
USERS = (20, 42, 100, 300, 1000, 5000, 20_000)
METHODS = ("auto", "clip", "recentred", "winsorized", "softcore")
# Soft cores compare all pairs of users, which is slow beyond this number.
_MOST_IN_CORES = 1000
TABLES = "fitbit_hourly.parquet", "oulad_assessments.parquet", "online_retail.parquet"


@dataclass(frozen=True)
class Row:
    """Results of one method in one cell of the table."""

    data: str
    users: int
    dimension: int
    epsilon: float
    radius: float | None
    method: str
    rms: float
    noise: float
    error: float
    covered: float
    chosen: str


Law = Callable[[np.random.Generator, int, int], FloatArray]


def _directions(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    x = rng.normal(size=(n, d))
    found: FloatArray = x / np.linalg.norm(x, axis=1, keepdims=True)
    return found


def _place(d: int) -> float:
    """Return the coordinate of a point of norm 5."""
    return 5 / math.sqrt(d)


def ball(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """Return vectors that are uniform in the ball."""
    return _directions(rng, n, d) * BOUND * rng.random((n, 1)) ** (1 / d)


def point(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """Return vectors within the radius of one point."""
    return _place(d) + _directions(rng, n, d) * RADIUS * rng.random((n, 1)) ** (1 / d)


def edge(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """Return vectors at the radius from one point."""
    return _place(d) + _directions(rng, n, d) * RADIUS


def clusters(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """Return vectors of two groups of about the same size."""
    sides = np.where(rng.random((n, 1)) < 0.5, 1.0, -1.0)
    return sides * _place(d) + 0.1 * _directions(rng, n, d)


def far(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """Return vectors near one point, a tenth of them far away."""
    x = point(rng, n, d)
    x[rng.random(n) < 0.1] = -1.9 * _place(d)
    return x


def hidden(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """Return vectors near one point, ten of them at the other end of the ball."""
    x = point(rng, n, d)
    x[: min(10, n // 10)] = -2 * _place(d)
    return x


def skewed(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """Return vectors with a heavy tail on one side."""
    lengths = np.minimum(rng.lognormal(-1, 1.2, size=(n, 1)), 0.8 * BOUND)
    return lengths * abs(_directions(rng, n, d))


LAWS: dict[str, Law] = {
    law.__name__: law for law in (ball, point, edge, clusters, far, hidden, skewed)
}


def real(folder: Path) -> dict[str, tuple[FloatArray, float]]:
    """Return one number for each real user, and a public bound on it."""
    fitbit, scores, shop = (pd.read_parquet(folder / name) for name in TABLES)
    spent = (shop["quantity"] * shop["unit_price"]).groupby(shop["user_id"]).sum()
    numbers = {
        "steps": (fitbit.groupby("user_id")["steps"].mean(), 2000.0),
        "scores": (scores.dropna(subset=["score"]).groupby("user_id")["score"].mean(), 100.0),
        "spent": (spent, 20_000.0),
    }
    return {
        name: (np.clip(found.to_numpy(dtype=np.float64), -bound, bound)[:, None], bound)
        for name, (found, bound) in numbers.items()
    }


@dataclass(frozen=True)
class Cell:
    """Users of one type, and their guarantee."""

    data: str
    made: Callable[[int], FloatArray]
    users: int
    dimension: int
    epsilon: float
    radius: float | None
    bound: float = BOUND


def run(cell: Cell, method: str, repeats: int, missing: float) -> Row | None:
    """Run one method in one cell; None where there are too few users for it.

    Args:
        missing: the share of the roster that has no records.
    """
    off, noise, error, chosen = [], [], [], Counter[str]()
    for seed in range(repeats):
        X = cell.made(seed)[: max(1, round(cell.users * (1 - missing)))]
        try:
            found = dg.mean_of_users(
                X,
                bound=cell.bound,
                radius=cell.radius,
                method=method,
                epsilon=cell.epsilon,
                delta=DELTA,
                n_users=cell.users,
                random_state=seed,
            )
        except ParameterError:
            return None
        chosen[found.method] += 1
        off.append(float(np.linalg.norm(found.value - X.mean(axis=0))))
        noise.append(found.std_error * math.sqrt(cell.dimension))
        error.append(found.error)
    there = np.isfinite(off)
    return Row(
        cell.data,
        cell.users,
        cell.dimension,
        cell.epsilon,
        cell.radius,
        method,
        _rms(np.array(off)[there]),
        _rms(np.array(noise)[there]),
        float(np.median(np.array(error)[there])) if there.any() else math.nan,
        float(np.mean(np.array(off)[there] <= np.array(error)[there])) if there.any() else math.nan,
        " ".join(f"{name} {count / repeats:.2g}" for name, count in chosen.items()),
    )


def _rms(numbers: FloatArray) -> float:
    return float(np.sqrt(np.mean(numbers**2))) if len(numbers) else math.nan


def cells(tables: dict[str, tuple[FloatArray, float]], *, quick: bool) -> Iterator[Cell]:
    """Yield all cells of the table.

    Args:
        tables: real users by name, with their bounds.
    """
    users, epsilons, dimensions = (
        (USERS, EPSILONS, DIMENSIONS) if not quick else ((300,), (1.0,), (1,))
    )
    for radius, epsilon, d, n, name in itertools.product(
        (None, RADIUS), epsilons, dimensions, users, LAWS
    ):
        law = LAWS[name]
        yield Cell(
            name,
            lambda seed, law=law, n=n, d=d: law(np.random.default_rng(seed), n, d),  # type: ignore[misc]
            n,
            d,
            epsilon,
            radius,
        )
    for (name, (numbers, bound)), epsilon in itertools.product(tables.items(), epsilons):
        yield Cell(name, lambda _, x=numbers: x, len(numbers), 1, epsilon, None, bound)  # type: ignore[misc]


def rows(
    tables: dict[str, tuple[FloatArray, float]], repeats: int, missing: float, *, quick: bool
) -> Iterator[Row]:
    """Yield the rows of the table.

    Args:
        tables: real users by name, with their bounds.
        missing: the share of the roster that has no records.
    """
    for cell in cells(tables, quick=quick):
        for method in METHODS:
            if method == "softcore" and (cell.users > _MOST_IN_CORES or cell.radius is None):
                continue
            if method == "winsorized" and cell.radius is None:
                continue
            found = run(cell, method, repeats, missing)
            if found is not None:
                yield found


def summary(table: pd.DataFrame) -> str:
    """Return, by number of users, the error of ``auto`` over clipping's and over the printed one."""
    table = table.assign(radius=table["radius"].isna().map({True: "none", False: "stated"}))
    key = ["radius", "epsilon", "dimension", "users", "data"]
    clip = table[table["method"] == "clip"].set_index(key)["rms"]
    auto = table[table["method"] == "auto"].set_index(key)
    auto = auto.assign(
        beside_clip=auto["rms"] / clip,
        rms_per_noise=auto["rms"] / auto["noise"],
        rms_per_error=auto["rms"] / auto["error"],
    )
    told = auto.groupby(["radius", "users"]).agg(
        best_beside_clip=("beside_clip", "min"),
        worst_beside_clip=("beside_clip", "max"),
        most_noises_off=("rms_per_noise", "max"),
        most_errors_off=("rms_per_error", "max"),
        least_covered=("covered", "min"),
    )
    return str(told.to_string(float_format="{:.3g}".format))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it as CSV.

    Args:
        arguments: command-line arguments by default.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--missing", type=float, default=0.0)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        tables = real(data_folder(*TABLES, stated=asked.data))
    except DataError as error:
        print(error)
        tables = {}
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / "means.csv"
    with path.open("w", newline="") as file, warnings.catch_warnings():
        # A δ for few users is large, which is not the matter here.
        warnings.simplefilter("ignore")
        writer = csv.DictWriter(file, list(Row.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        for row in rows(tables, asked.repeats, asked.missing, quick=asked.quick):
            writer.writerow(asdict(row))
    print(summary(pd.read_csv(path)))
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
