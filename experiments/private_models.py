"""Cost of privacy for a linear model on real data, by unit and budget.

Two tables with natural users, three targets, every unit the tables have:

- baseball plate appearances: whether the batter gets on base (logistic); users are batters, elements
  are the pitchers they met, or the months they played in;
- student assessments: the score (least squares) and whether it is at least 80 (logistic); users are
  students, elements are months of the course.

Features are encoded by public knowledge (a count has at most 3 balls and 2 strikes); nothing is
standardised by the data. A fifth of the users is excluded for testing. The *gain* of a fit is the
reduction of its test loss (log-loss, or squared error; mean over records) relative to predicting
the mean of the training targets. The table has the retained share of the gain of the fit without
privacy: at defaults, which choose a clipping bound inside the budget; the same with a public bound
on the norm of a row; and with ``clip=1``, for any gradients. ``weighed`` is without privacy and
clipping, but
with weight one for each unit, like in a private fit: only the average of a unit's data counts.

    python experiments/private_models.py [--data FOLDER] [--out experiments/out] [--seeds 3]
        [--only baseball] [--quick]

The tables are read from the folder of ``--data``, or the one in DPGRAIN_DATA. Random numbers are
seeded, so results repeat exactly; a seeded release is not private.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from results import write
from sklearn import linear_model

import dpgrain as dg
from dpgrain._files import data_folder
from dpgrain.errors import DataError
from dpgrain.learn import LinearRegression, LogisticRegression

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# The last one is almost without noise: the gain left by clipping, steps and one weight per unit.
EPSILONS = (0.5, 1.0, 3.0, 1000.0)
DELTA = 1e-6
BASEBALL, STUDENTS = "baseball_plate_appearances.parquet", "oulad_assessments.parquet"
# One in this many users is a test user.
_HELD_OUT = 5


@dataclass(frozen=True)
class Problem:
    """A target, its features, and user ids.

    Args:
        X: (m, d) features, on a scale that is public.
        y: (m,) the target.
        users: (m,) user id of each row.
        elements: partitions by name, (m,) each.
        bound: a public bound of the norm of a row: no feature is above 1, and of one-hot ones one is 1.
    """

    name: str
    X: NDArray[np.float32]
    y: FloatArray
    users: NDArray[Any]
    elements: dict[str, NDArray[Any]]
    logistic: bool
    bound: float

    def weights(self, unit: str) -> FloatArray:
        """(m,) what a row weighs where each unit weighs one: 1/(rows of its unit)."""
        if unit == "record":
            return np.ones(len(self.y))
        blocks = pd.factorize(self.users)[0]
        if unit != "user":
            cells = pd.factorize(self.elements[_partition(unit)])[0]
            blocks = blocks * (int(cells.max()) + 1) + cells
        codes = pd.factorize(blocks)[0]
        return np.asarray(1 / np.bincount(codes)[codes])

    def held_out(self, seed: int) -> BoolArray:
        """(m,) whether a row is of one of the users held out."""
        codes, people = pd.factorize(self.users)
        order = np.random.default_rng(seed).permutation(len(people))
        chosen = np.zeros(len(people), dtype=np.bool_)
        chosen[order[: len(people) // _HELD_OUT]] = True
        return chosen[codes]

    def loss(self, prediction: FloatArray, y: FloatArray) -> float:
        """The mean loss of predictions: probabilities of 1, or numbers."""
        if not self.logistic:
            return float(np.mean((prediction - y) ** 2))
        p = np.clip(prediction, 1e-12, 1 - 1e-12)
        return float(-np.mean(y * np.log(p) + (1 - y) * np.log1p(-p)))


def baseball(folder: Path) -> Problem:
    """Whether a batter gets on base; 15 features."""
    d = pd.read_parquet(folder / BASEBALL)
    columns = [
        _one_hot(d["balls"], range(4)),
        _one_hot(d["strikes"], range(3)),
        np.minimum(d["inning"], 10) / 10,
        (d["batting_order"] - 1) / 8,
        d["batter_is_home"],
        _one_hot(d["bats"], ("L", "R", "B")),
        d["pitcher_throws"] == "R",
        np.minimum(d["n_pitches"], 12) / 12,
    ]
    elements = {"pitcher": d["pitcher"].to_numpy(), "month": d["date"].dt.strftime("%Y-%m")}
    return _problem("baseball: on base", columns, d["on_base"], d["user_id"], elements, True)


def students(folder: Path, target: Literal["score", "good"]) -> Problem:
    """The score of an assessment, 0 to 1, or whether it is at least 80 of 100; 28 features."""
    d = pd.read_parquet(folder / STUDENTS)
    d = d[d["score"].notna()]
    # The bands of a public index; a spreadsheet has made a date of one.
    bands = ("0-10%", "Oct-20", *(f"{i}0-{i + 1}0%" for i in range(2, 9)), "90-100%")
    columns = [
        np.clip(d["date_submitted"], 0, 270) / 270,
        d["is_banked"],
        d["gender"] == "F",
        _one_hot(d["highest_education"], _DEGREES),
        d["imd_band"].map({band: i / 9 for i, band in enumerate(bands)}).fillna(0.5),
        _one_hot(d["age_band"], ("0-35", "35-55", "55<=")),
        np.minimum(d["num_of_prev_attempts"], 3) / 3,
        np.minimum(d["studied_credits"], 240) / 240,
        d["disability"] == "Y",
        _one_hot(d["region"], _REGIONS),
    ]
    y = d["score"] / 100 if target == "score" else d["score"] >= 80
    name = "students: score" if target == "score" else "students: at least 80"
    month = np.clip(d["date_submitted"], 0, 270) // 30
    return _problem(name, columns, y, d["user_id"], {"month": month}, target == "good")


_DEGREES = (
    "No Formal quals",
    "Lower Than A Level",
    "A Level or Equivalent",
    "HE Qualification",
    "Post Graduate Qualification",
)
_REGIONS = (
    "East Anglian Region",
    "East Midlands Region",
    "Ireland",
    "London Region",
    "North Region",
    "North Western Region",
    "Scotland",
    "South East Region",
    "South Region",
    "South West Region",
    "Wales",
    "West Midlands Region",
    "Yorkshire Region",
)


def _one_hot(values: Any, levels: Sequence[Any] | range) -> FloatArray:
    """(m, levels): all 0 for a value outside the levels."""
    column = np.asarray(values)
    return np.asarray(column[:, None] == np.asarray(levels)[None, :], dtype=np.float64)


def _problem(
    name: str, columns: Sequence[Any], y: Any, users: Any, elements: dict[str, Any], logistic: bool
) -> Problem:
    features = [np.asarray(column, dtype=np.float32) for column in columns]
    named = {key: np.asarray(value) for key, value in elements.items()}
    X = np.column_stack(features)
    target = np.asarray(y, dtype=np.float64)
    bound = float(np.sqrt(len(columns)))
    return Problem(name, X, target, np.asarray(users), named, logistic, bound)


# Fits ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One unit at one ε.

    Args:
        default: the retained share of the non-private gain at defaults, mean over seeds.
        bound: the same with ``feature_bound``, the public bound of a row.
        one: the same with ``clip=1``.
        weighed: the share without privacy and clipping, but with each unit weighing one.
    """

    target: str
    unit: str
    epsilon: float
    default: float
    default_se: float
    bound: float
    bound_se: float
    one: float
    one_se: float
    weighed: float
    base: float
    fitted: float
    seconds: float


def run(problem: Problem, *, epsilons: Sequence[float] = EPSILONS, seeds: int = 3) -> Iterator[Row]:
    """Fit a problem at every unit and ε, with a new split of the users for each seed."""
    tests = [problem.held_out(seed) for seed in range(seeds)]
    references = [reference(problem, test) for test in tests]
    base, fitted = np.mean(references, axis=0)
    for unit in ("record", *(f"element ({name})" for name in problem.elements), "user"):
        weights = problem.weights(unit)
        fits = [reference(problem, test, weights) for test in tests]
        kept = [(z - f) / (z - b) for (z, b), (_, f) in zip(references, fits, strict=True)]
        for epsilon in epsilons:
            options: list[dict[str, Any]] = [{}, {"feature_bound": problem.bound}, {"clip": 1.0}]
            shares, seconds = np.zeros((seeds, len(options))), 0.0
            for seed, (test, (zero, best)) in enumerate(zip(tests, references, strict=True)):
                for i, option in enumerate(options):
                    began = time.perf_counter()
                    found = private(problem, test, unit, epsilon, seed, **option)
                    seconds += (time.perf_counter() - began) / shares.size
                    shares[seed, i] = (zero - found) / (zero - best)
            # No error from a single seed.
            spread = shares.std(axis=0, ddof=1) if seeds > 1 else np.full(len(options), np.nan)
            columns = np.column_stack([shares.mean(axis=0), spread / np.sqrt(seeds)]).ravel()
            numbers: list[float] = [
                *columns.tolist(),
                float(np.mean(kept)),
                float(base),
                float(fitted),
                seconds,
            ]
            yield Row(problem.name, unit, epsilon, *numbers)


def reference(
    problem: Problem, test: BoolArray, weights: FloatArray | None = None
) -> tuple[float, float]:
    """Held-out losses of the mean of the training targets, and of the fit without privacy.

    Args:
        test: (m,) the rows held out.
        weights: (m,) of rows in the fit; by default all weigh the same.
    """
    weighed = None if weights is None else weights[~test]
    X, y = problem.X[~test].astype(np.float64), problem.y[~test]
    Z = problem.X[test].astype(np.float64)  # noqa: N806
    if problem.logistic:
        model = linear_model.LogisticRegression(C=1e6, max_iter=2000).fit(X, y, weighed)
        prediction = model.predict_proba(Z)[:, 1]
    else:
        prediction = linear_model.LinearRegression().fit(X, y, weighed).predict(Z)
    truth = problem.y[test]
    mean = np.full(len(truth), y.mean())
    return problem.loss(mean, truth), problem.loss(prediction, truth)


def _partition(unit: str) -> str:
    return unit.removeprefix("element (").removesuffix(")")


def private(
    problem: Problem, test: BoolArray, unit: str, epsilon: float, seed: int, **option: Any
) -> float:
    """The held-out loss of one private fit; all but one option as by default."""
    elements = None
    protected: dg.Record | dg.Element | dg.User = dg.Record() if unit == "record" else dg.User()
    if unit.startswith("element"):
        protected = dg.Element()
        elements = problem.elements[_partition(unit)][~test]
    options: dict[str, Any] = {
        "unit": protected,
        "epsilon": epsilon,
        "delta": DELTA,
        "random_state": seed,
        "n_users": len(np.unique(problem.users[~test])),
        **option,
    }
    if problem.logistic:
        options["classes"] = [0, 1]
    model: Any = LogisticRegression(**options) if problem.logistic else LinearRegression(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.DeltaWarning)
        model.fit(problem.X[~test], problem.y[~test], users=problem.users[~test], elements=elements)
    rows = problem.X[test]
    prediction = model.predict_proba(rows)[:, 1] if problem.logistic else model.predict(rows)
    return problem.loss(np.asarray(prediction, dtype=np.float64), problem.y[test])


# Tables ----------------------------------------------------------------------------------------


HEADER = (
    f"{'target':22} {'unit':17} {'ε':>4} {'default':>15} {'bound':>15} "
    f"{'clip=1':>15} {'weighed':>8} {'base':>8} {'fitted':>8} {'s/fit':>6}"
)


def line(row: Row) -> str:
    """A row of the table."""
    kept = [
        f"{share:7.1%} ± {error:5.1%}"
        for share, error in (
            (row.default, row.default_se),
            (row.bound, row.bound_se),
            (row.one, row.one_se),
        )
    ]
    return (
        f"{row.target:22} {row.unit:17} {row.epsilon:4g} "
        f"{kept[0]:>15} {kept[1]:>15} {kept[2]:>15} "
        f"{row.weighed:8.1%} {row.base:8.5f} {row.fitted:8.5f} {row.seconds:6.2f}"
    )


def problems(folder: Path, names: Sequence[str] = (BASEBALL, STUDENTS)) -> Iterator[Problem]:
    """The problems with existing tables; prints the missing ones."""
    for name in names:
        if not (folder / name).is_file():
            print(f"left out, since {folder} lacks {name}; set DPGRAIN_DATA or --data.")
        elif name == BASEBALL:
            yield baseball(folder)
        else:
            yield students(folder, "score")
            yield students(folder, "good")


def found(stated: Path | None) -> Path:
    """The folder of the tables; without one the experiment ends with one sentence."""
    try:
        return data_folder(stated=stated)
    except DataError as error:
        sys.exit(str(error))


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of the tables; else DPGRAIN_DATA")
    parser.add_argument("--out", type=Path, default=Path("experiments/out"), help="output folder")
    parser.add_argument("--seeds", type=int, default=3, help="splits of the users")
    parser.add_argument("--quick", action="store_true", help="one seed, one ε")
    tables = {"baseball": BASEBALL, "students": STUDENTS}
    parser.add_argument("--only", choices=list(tables), help="fit one table")
    given = parser.parse_args(arguments)
    if given.seeds < 1:
        parser.error("--seeds must be at least 1.")
    epsilons, seeds = ((3.0,), 1) if given.quick else (EPSILONS, given.seeds)
    rows: list[Row] = []
    names = (tables[given.only],) if given.only else tuple(tables.values())
    for problem in problems(found(given.data), names):
        if not rows:
            print(HEADER)
        for row in run(problem, epsilons=epsilons, seeds=seeds):
            print(line(row), flush=True)
            rows.append(row)
    if not rows:
        sys.exit("None of the tables is there: let DPGRAIN_DATA, or --data, name their folder.")
    write(given.out, "private_models", rows)


if __name__ == "__main__":
    main()
