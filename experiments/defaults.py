"""The cost of the default clipping bound of models, compared with explicit bounds.

Real tables with natural users (whether a batter gets on base, students' scores, hourly calories) and
simulated users: skewed errors of mean 0, a tenth of the users with four times as many records and the
opposite slope, and classifiers of users with few or many records. All fits protect whole users, so that
each user counts once. The reference is the fit without privacy that weights each record by
1/(records of its user).

Each bound has three figures, means over seeds: the excess loss of the average person, as a share of
the features' gain (0 is best; 1 is the mean of the targets); the same for the average record, above
the least for records; and the distance of the coefficients from the weighted fit's, as a share of
their norm.

    python experiments/defaults.py [--data FOLDER] [--seeds 4] [--quick]

*default*: the library's. *1*: ``clip=1``. *median*: half the median norm of users' gradients at the
weighted fit, known in hindsight: the least noise, and the most bias. Tables are read from the
folder of ``--data``, or the one in DPGRAIN_DATA; without them only simulated users remain. Random
numbers are seeded, so results repeat exactly; a seeded release is not private.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import private_models as pm
from numpy.typing import NDArray
from sklearn import linear_model

import dpgrain as dg
from dpgrain._files import data_folder
from dpgrain.errors import DataError
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.learn import LinearRegression, LogisticRegression
from dpgrain.optimize import Logistic, Squared

FloatArray = NDArray[np.float64]

EPSILONS, SIZES, DELTA = (0.3, 1.0, 3.0), (1_000, 10_000), 1e-6


@dataclass(frozen=True)
class Problem:
    """A target, its features, and user ids.

    Args:
        X: (m, d) features, on a scale that is public.
        y: (m,) the target.
        users: (m,) user id of each row, from 0.
    """

    name: str
    X: FloatArray
    y: FloatArray
    users: NDArray[np.int64]
    logistic: bool

    @property
    def n(self) -> int:
        """The number of users."""
        return int(self.users.max()) + 1

    @cached_property
    def weights(self) -> dict[str, FloatArray]:
        """Weights of rows: for the average person, and for the average record."""
        counts = np.bincount(self.users)
        return {"person": 1 / counts[self.users], "record": np.ones(len(self.y))}

    @cached_property
    def best(self) -> dict[str, FloatArray]:
        """The coefficients without privacy, the intercept last, for both weights."""
        return {whom: self._fitted(weights) for whom, weights in self.weights.items()}

    @cached_property
    def gains(self) -> dict[str, float]:
        """The features' reduction of the loss below the mean of the targets, for both."""
        found = {}
        for whom, weights in self.weights.items():
            mean = np.average(self.y, weights=weights)
            alone = np.zeros(self.X.shape[1] + 1)
            alone[-1] = np.log(mean / (1 - mean)) if self.logistic else mean
            found[whom] = self.loss(alone, whom) - self.loss(self.best[whom], whom)
        return found

    def _fitted(self, weights: FloatArray) -> FloatArray:
        kind = linear_model.LogisticRegression(C=1e6, max_iter=3000, tol=1e-8)
        model: Any = kind if self.logistic else linear_model.LinearRegression()
        model.fit(self.X, self.y, weights)
        return np.append(np.ravel(model.coef_), np.ravel(model.intercept_))

    def loss(self, theta: FloatArray, whom: str) -> float:
        """The mean loss of coefficients for the average person, or record."""
        z = self.X @ theta[:-1] + theta[-1]
        losses = np.logaddexp(0, z) - self.y * z if self.logistic else (z - self.y) ** 2
        return float(np.average(losses, weights=self.weights[whom]))

    def half_median(self) -> float:
        """Half the median norm of users' mean gradients at the weighted fit; not private."""
        blocks = LinearBlocks.arrange(self.X, self.y, self.users, intercept=True)
        loss = Logistic() if self.logistic else Squared()
        vectors = LinearGradients(blocks, loss, self.best["person"]).vectors()
        return float(np.median(np.linalg.norm(vectors, axis=1))) / 2


def simulated(n: int) -> Iterator[Problem]:
    """Randomly drawn users, in problems of n users."""
    rng = np.random.default_rng(n)
    for rows in (1, 5):
        users = np.repeat(np.arange(n), rows)
        X = rng.uniform(-1, 1, size=(len(users), 3))
        y = 0.3 + X @ [1.0, -1.0, 0.5] + rng.exponential(1, len(users)) - 1
        yield Problem(f"skewed errors, {rows} a user", X, y, users, False)
    users = np.repeat(np.arange(n), np.where(np.arange(n) < n // 10, 20, 5))
    X = rng.uniform(-1, 1, size=(len(users), 1))
    y = np.where(users < n // 10, 1, -1) * X[:, 0] + 0.3 * rng.normal(size=len(users))
    yield Problem("heavy users differ", X, y, users, False)
    for name, counts in (
        ("1 or 2", rng.integers(1, 3, n)),
        ("5", np.full(n, 5)),
        ("100", np.full(n, 100)),
    ):
        users = np.repeat(np.arange(n), counts)
        X = rng.normal(size=(len(users), 3))
        ones = rng.random(len(users)) < 1 / (1 + np.exp(-(X @ [2.0, -1.0, 0.0])))
        yield Problem(f"classes, {name} a user", X, ones.astype(np.float64), users, True)


def real(folder: Path) -> Iterator[Problem]:
    """The tables with natural users, with public ranges of features."""
    for table in (pm.baseball(folder), pm.students(folder, "score"), pm.students(folder, "good")):
        X, users = table.X.astype(np.float64), pd.factorize(table.users)[0]
        yield Problem(table.name, X, table.y, users, table.logistic)
    d = pd.read_parquet(folder / "fitbit_hourly.parquet")
    day, weekend = (d["hour"] >= 8) & (d["hour"] < 22), d["weekday"] >= 5
    ranges = [np.minimum(d["steps"] / 4000, 1), np.minimum(d["intensity"] / 180, 1)]
    X = np.column_stack([*ranges, day, weekend]).astype(np.float64)
    y, users = d["calories"].to_numpy() / 100, pd.factorize(d["user_id"])[0]
    yield Problem("people: calories", X, y, users, False)


def fitted(problem: Problem, epsilon: float, seed: int, clip: float | None) -> FloatArray:
    """The coefficients of one private fit, the intercept last."""
    options: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "clip": clip}
    options |= {"random_state": seed, "n_users": problem.n}
    model: Any = (
        LogisticRegression(classes=[0, 1], **options)
        if problem.logistic
        else LinearRegression(**options)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.DeltaWarning)
        model.fit(problem.X, problem.y, users=problem.users)
    return np.append(np.ravel(model.coef_), np.ravel(model.intercept_))


@dataclass(frozen=True)
class Row:
    """One problem at one ε: for each bound the three figures.

    Args:
        n: the number of users.
        figures: by the name of the bound, the excess for the average person, for the average record,
            and the distance of the coefficients.
    """

    problem: str
    n: int
    epsilon: float
    figures: dict[str, tuple[float, float, float]]


def measured(problem: Problem, epsilon: float, seeds: int) -> Row:
    """Fit a problem with every bound."""
    figures = {}
    best = problem.best["person"]
    for name, clip in (("default", None), ("1", 1.0), ("median", problem.half_median())):
        found = np.zeros((seeds, 3))
        for seed in range(seeds):
            theta = fitted(problem, epsilon, seed, clip)
            for place, whom in enumerate(("person", "record")):
                above = problem.loss(theta, whom) - problem.loss(problem.best[whom], whom)
                found[seed, place] = above / problem.gains[whom]
            found[seed, 2] = np.linalg.norm(theta - best) / np.linalg.norm(best)
        person, record, distance = found.mean(axis=0).tolist()
        figures[name] = (person, record, distance)
    return Row(problem.name, problem.n, epsilon, figures)


HEADER = (
    "| | n | ε | default | `clip=1` | half the median norm |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: |"
)


def line(row: Row) -> str:
    """A row of the table."""
    cells = [
        f"{person:.3f}, {record:.3f}, {distance:.2f}"
        for person, record, distance in row.figures.values()
    ]
    return f"| {row.problem} | {row.n:,} | {row.epsilon:g} | {' | '.join(cells)} |"


def problems(stated: Path | None, sizes: Sequence[int]) -> Iterator[Problem]:
    """The simulated users, then the tables, if they are there."""
    for n in sizes:
        yield from simulated(n)
    try:
        yield from real(data_folder(stated=stated))
    except (DataError, FileNotFoundError) as error:
        print(f"The tables are left out: {error}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of the tables; else DPGRAIN_DATA")
    parser.add_argument("--seeds", type=int, default=4, help="fits of each kind")
    parser.add_argument("--quick", action="store_true", help="one seed, one ε, 1,000 users")
    given = parser.parse_args(arguments)
    if given.seeds < 1:
        parser.error("--seeds must be at least 1.")
    epsilons, sizes = ((1.0,), SIZES[:1]) if given.quick else (EPSILONS, SIZES)
    print(HEADER)
    for problem in problems(given.data, sizes):
        for epsilon in epsilons:
            row = measured(problem, epsilon, 1 if given.quick else given.seeds)
            print(line(row), flush=True)


if __name__ == "__main__":
    main()
