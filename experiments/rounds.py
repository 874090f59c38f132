"""How many rounds of noisy gradients a fit needs, by the solver that steps against them.

Two tables with natural users, three targets (see ``private_models.py``), and simulated users, 4,000
with four records of ten correlated features each: the principal axes have variances from 1 to 1/κ,
and equal importance. Fits protect users, and elements (pitchers, months of a course, single
records). Rows of test users are scored, with equal weight for each unit, like in a fit.

For each solver and number of rounds: the *excess* of the test loss above the fit without privacy,
as a share of the features' gain (0: as without privacy; 1: as the mean of the targets), and the AUC
of classes or r² of numbers; means over seeds, with the standard error of the first.

    python experiments/rounds.py [--data FOLDER] [--out experiments/out] [--seeds 8] [--quick]

All have the same guarantee, so that fewer rounds have less noise each. ``clip`` is the clipping
bound: chosen inside the budget, or 1. Random numbers are seeded, so results repeat exactly; a
seeded release is not private. If the bound is explicit, coin betting is the library's solver.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import private_models as pm
from numpy.typing import NDArray
from sklearn import linear_model, metrics

import dpgrain as dg
from dpgrain._files import data_folder
from dpgrain.errors import DataError
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.learn import LinearRegression, LogisticRegression
from dpgrain.learn.central import CentralFit
from dpgrain.learn.fit_config import FitConfig
from dpgrain.learn.fit_data import FitData
from dpgrain.learn.rows import ArrayRows
from dpgrain.noise.sources import random_source
from dpgrain.optimize import Adagrad, CoinBetting, Solver
from dpgrain.publishing import Charge

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Unit = Literal["user", "element"]

EPSILONS, DELTA = (0.5, 1.0, 3.0), 1e-6
ROUNDS, CLIPS = (25, 50, 100), ("auto", 1.0)
CONDITIONS = (1, 30, 1000)
_USERS, _RECORDS, _FEATURES, _HELD_OUT = 4_000, 4, 10, 1_000
COLUMNS = (
    "problem",
    "unit",
    "epsilon",
    "clip",
    "solver",
    "rounds",
    "seed",
    "excess",
    "score",
)
# Solvers of the rounds after the warm-up; None for the library's.
SOLVERS: dict[str, Solver[Any] | None] = {
    "coin betting": CoinBetting(),
    "full matrix": None,
    "AdaGrad": Adagrad(),
}


@dataclass(frozen=True)
class Rows:
    """Features, targets, and user ids.

    Args:
        X: (m, d) features.
        y: (m,) the target.
        users: (m,) user id of each row.
        elements: (m,) the cell of each row.
    """

    X: NDArray[Any]
    y: FloatArray
    users: IntArray
    elements: IntArray

    def taken(self, there: NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, field.name)[there] for field in fields(self)))

    def weights(self, unit: Unit) -> FloatArray:
        """(m,) what a row weighs where each unit weighs one."""
        blocks = self.users
        if unit == "element":
            blocks = blocks * (int(self.elements.max()) + 1) + self.elements
        codes = pd.factorize(blocks)[0]
        return np.asarray(1 / np.bincount(codes)[codes])


@dataclass(frozen=True)
class Split:
    """One split of a problem's users, with one protected unit."""

    name: str
    unit: Unit
    logistic: bool
    fitted: Rows
    scored: Rows

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The held-out losses of the mean of targets, and of the fit without privacy."""
        kind = linear_model.LogisticRegression(C=1e6, max_iter=5000, tol=1e-8)
        model: Any = kind if self.logistic else linear_model.LinearRegression()
        rows, weights = self.fitted, self.fitted.weights(self.unit)
        model.fit(rows.X.astype(np.float64), rows.y, weights)
        mean = np.average(rows.y, weights=weights)
        alone = np.zeros(rows.X.shape[1] + 1)
        alone[-1] = np.log(mean / (1 - mean)) if self.logistic else mean
        best = np.append(np.ravel(model.coef_), np.ravel(model.intercept_))
        return self._loss(alone), self._loss(best)

    def scores(self, theta: FloatArray) -> tuple[float, float]:
        """The excess of coefficients, the intercept last, and their AUC or r²."""
        base, best = self.ends
        z, weights = self._margins(theta), self.scored.weights(self.unit)
        score = metrics.roc_auc_score if self.logistic else metrics.r2_score
        right = score(self.scored.y, z, sample_weight=weights)
        return (self._loss(theta) - best) / (base - best), float(right)

    def _margins(self, theta: FloatArray) -> FloatArray:
        return np.asarray(self.scored.X.astype(np.float64) @ theta[:-1] + theta[-1])

    def _loss(self, theta: FloatArray) -> float:
        z, y = self._margins(theta), self.scored.y
        losses = np.logaddexp(0, z) - y * z if self.logistic else (z - y) ** 2
        return float(np.average(losses, weights=self.scored.weights(self.unit)))


def simulated(condition: int, logistic: bool, seed: int) -> tuple[Rows, NDArray[np.bool_]]:
    """Users with correlated features, and whether a row is held out."""
    rng = np.random.default_rng(1000 + seed)
    users = np.repeat(np.arange(_USERS + _HELD_OUT), _RECORDS)
    variances = np.geomspace(1, 1 / condition, _FEATURES)
    variances *= _FEATURES / variances.sum()
    turn = np.linalg.qr(rng.normal(size=(_FEATURES, _FEATURES)))[0]
    along = rng.normal(size=(len(users), _FEATURES))
    z = along @ (rng.choice([-1.0, 1.0], size=_FEATURES) * np.sqrt(3 / _FEATURES)) + 0.5
    ones = rng.random(len(z)) < 1 / (1 + np.exp(-z))
    y = ones.astype(np.float64) if logistic else z + rng.normal(size=len(z))
    cells = np.tile(np.arange(_RECORDS), _USERS + _HELD_OUT)
    return Rows((along * np.sqrt(variances)) @ turn.T, y, users, cells), users >= _USERS


def splits(folder: Path | None, seed: int) -> Iterator[Split]:
    """Every problem and unit, split by a seed."""
    made = []
    if folder is not None:
        tables = pm.baseball(folder), pm.students(folder, "good"), pm.students(folder, "score")
        for table in tables:
            people, partition = pd.factorize(table.users)[0], next(iter(table.elements.values()))
            rows = Rows(table.X, table.y, people, pd.factorize(partition)[0])
            made.append((table.name, table.logistic, rows, table.held_out(seed)))
    for logistic in (True, False):
        for condition in CONDITIONS:
            name = f"{'logistic' if logistic else 'squares'}, κ = {condition:,}"
            made.append((name, logistic, *simulated(condition, logistic, seed)))
    units: tuple[Unit, ...] = ("user", "element")
    for name, logistic, rows, test in made:
        for unit in units:
            yield Split(name, unit, logistic, rows.taken(~test), rows.taken(test))


@dataclass(frozen=True, eq=False)
class _Config(FitConfig):
    """Parameters of a fit with another solver.

    Args:
        steps: the solver after the warm-up; None for the library's.
    """

    steps: Solver[Any] | None = None

    def after_warming_up(self, moved: FloatArray, noise: float) -> Solver[Any]:
        """Builds the rounds after the warm-up."""
        return self.steps or super().after_warming_up(moved, noise)


def fitted(
    split: Split, epsilon: float, solver: str, rounds: int, clip: float | None, seed: int
) -> FloatArray:
    """The coefficients of one private fit, the intercept last."""
    rows = split.fitted
    options: dict[str, Any] = {
        "unit": dg.User() if split.unit == "user" else dg.Element(),
        "epsilon": epsilon,
        "delta": DELTA,
        "clip": clip,
        "rounds": rounds,
        "n_users": len(np.unique(rows.users)),
    }
    kind = LogisticRegression(classes=[0, 1], **options)
    model: Any = kind if split.logistic else LinearRegression(**options)
    given = {field.name: getattr(model.config(), field.name) for field in fields(FitConfig)}
    config = _Config(**given, steps=SOLVERS[solver])
    elements = None if split.unit == "user" else rows.elements
    data = FitData.create(
        model, ArrayRows(rows.X, rows.y, rows.users, elements), config.promise.unit
    )
    fit = CentralFit.calibrate(config, config.promise, data.targets, rows.X.shape[1])
    told = array_guarantee(
        config.promise, fit.event, fit.facts, users=rows.users, elements=elements
    )
    # On public rows: no budget is charged.
    with Charge(told, random_source(seed)) as charge:
        return fit.run(data, charge).theta


def measured(folder: Path | None, seeds: int, epsilons: Sequence[float]) -> Iterator[pd.DataFrame]:
    """Every fit of one seed after the other, a row each."""
    for seed in range(seeds):
        found = []
        for split in splits(folder, seed):
            for epsilon in epsilons:
                for clip in CLIPS:
                    for solver, rounds in ways(clip):
                        bound = None if clip == "auto" else float(clip)
                        theta = fitted(split, epsilon, solver, rounds, bound, seed)
                        excess, score = split.scores(theta)
                        cell = (split.name, split.unit, epsilon, clip, solver, rounds)
                        found.append((*cell, seed, excess, score))
        yield pd.DataFrame(found, columns=list(COLUMNS))


def ways(clip: float | str) -> list[tuple[str, int]]:
    """The tried solvers and rounds for a bound."""
    if clip != "auto":
        return [("coin betting", rounds) for rounds in ROUNDS]
    tried = [(name, rounds) for name in list(SOLVERS)[:2] for rounds in ROUNDS]
    return [*tried, ("AdaGrad", 50)]


def lines(found: pd.DataFrame, clip: float | str) -> Iterator[str]:
    """Make a table of means over seeds, in Markdown."""
    tried = ways(clip)
    yield "| | unit | ε | " + " | ".join(f"{name}, {rounds}" for name, rounds in tried) + " |"
    yield "| --- | --- | ---: |" + " ---: |" * len(tried)
    own = found[found["clip"] == clip]
    keys = ["problem", "unit", "epsilon"]
    for _, rows in own.groupby(keys, sort=False):
        cells = [str(rows[name].iloc[0]) for name in keys]
        for solver, rounds in tried:
            there = rows[(rows["solver"] == solver) & (rows["rounds"] == rounds)]
            excess, right = there["excess"].to_numpy(), float(np.mean(there["score"].to_numpy()))
            error = float(np.std(excess, ddof=1)) / np.sqrt(len(excess))
            cells.append(f"{float(np.mean(excess)):.3f} ± {error:.3f}, {right:.3f}")
        yield f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of the tables; else DPGRAIN_DATA")
    parser.add_argument("--out", type=Path, default=Path("experiments/out"), help="output folder")
    parser.add_argument("--seeds", type=int, default=8, help="splits of the users")
    parser.add_argument("--quick", action="store_true", help="two seeds, one ε, no tables")
    given = parser.parse_args(arguments)
    if given.seeds < 2:
        parser.error("--seeds must be at least 2, for standard errors.")
    folder: Path | None = None
    if not given.quick:
        try:
            folder = data_folder(stated=given.data)
        except DataError as error:
            print(f"The tables are left out: {error}")
    epsilons, seeds = ((1.0,), 2) if given.quick else (EPSILONS, given.seeds)
    given.out.mkdir(parents=True, exist_ok=True)
    found = pd.DataFrame()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.DeltaWarning)
        for part in measured(folder, seeds, epsilons):
            found = pd.concat([found, part])
            found.to_csv(given.out / "rounds.csv", index=False)
    for clip in CLIPS:
        print(f"\nClipping bound: {clip}\n", *lines(found, clip), sep="\n")


if __name__ == "__main__":
    main()
