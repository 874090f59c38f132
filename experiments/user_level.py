"""The cost of learning with user-level privacy: means, convex problems, finite classes, real data.

Four parts, each with a table, a CSV and a figure; δ = 1e-6, one user's data replaced (the papers'
relation) unless stated otherwise:

- a: means of users' vectors. The *privacy error* is the rms distance of a release to the users'
  sample mean. Every mean of :func:`dpgrain.mean_of_users`, with the concentration radius from
  theory and without, compared with the printed algorithms, the group property, a range per
  coordinate, and clipping with the best norm, or also centre, in hindsight; and floors.
- b: stochastic convex problems of known risk. The *excess* is the population risk at the solution less
  the least. Every recipe of :mod:`dpgrain.papers`, records by the group property, and plain clipping
  at the Lipschitz bound, at equal (ε, δ). *Evaluations*: gradients of records.
- c: finite hypothesis classes, which is ``finite_classes.py``.
- d: real tables with natural users: handwritten digits by writer, plate appearances by batter,
  assessments by student. The retained share of the gain of the fit without privacy, and the
  accuracy, on test users, under ``zero_out``.

    python experiments/user_level.py [--part a] [--data FOLDER] [--out experiments/out] [--seeds 3]
        [--quick] [--full]

``--full`` adds the slowest runs of part b: a thousand rounds of a mean that compares all pairs of
users with many records, and ten thousand users. Tables are read from the folder of ``--data``, or
the one in DPGRAIN_DATA. Random numbers are seeded, so results repeat; a seeded release is not
private.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import baselines as bl
import finite_classes as fc
import numpy as np
import private_models as pm
from instances import (
    AbsoluteProblem,
    LogisticProblem,
    MeanProblem,
    Problem,
    Records,
    RidgeProblem,
    direction,
    gaussian_users,
    sphere,
)
from numpy.typing import NDArray
from results import write
from sklearn import linear_model

import dpgrain as dg
from dpgrain import ParameterError, papers
from dpgrain.errors import RunEnded
from dpgrain.learn import LogisticRegression, minimise
from dpgrain.means import Vectors
from dpgrain.noise import SeededSource
from dpgrain.optimize import CoinBetting, LossFunction
from dpgrain.papers import Moreau, SoftCoreMean
from dpgrain.papers import floors as limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]

DELTA = 1e-6
MNIST = "mnist_by_writer.npz"
# Pairs of users times coordinates above this: means that compare users are released once.
_SLOW = 2e9
# Data and noise must use different random numbers.
_NOISE = 1_000_000


# Means -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One problem of means: m records of N(μ, I) a user, ‖μ‖ = √d, records bounded by 10√d.

    Args:
        heterogeneity: Δ, the share of records that are one point, the same for all users.
    """

    n: int = 3000
    m: int = 100
    d: int = 30
    epsilon: float = 1.0
    heterogeneity: float = 0.0

    @property
    def bound(self) -> float:
        """The public bound of a record's norm."""
        return 10 * math.sqrt(self.d)

    @property
    def radius(self) -> float:
        """τ of theory: no user is farther from the mean but with a probability of 1%."""
        return bl.gaussian_radius(self.n, self.m, self.d, 0.01)

    def centre(self, seed: int) -> FloatArray:
        """(d,) the mean of the law of a seed's records."""
        length, share = math.sqrt(self.d), self.heterogeneity
        mean = length * direction(self.d)
        if share == 0:
            return mean
        # The point is drawn first.
        (point,) = sphere(np.random.default_rng(seed), 1, self.d)
        return np.asarray((1 - share) * mean + share * length * point)

    def draw(self, seed: int) -> FloatArray:
        """(n, d) users' means."""
        generator = np.random.default_rng(seed)
        return gaussian_users(
            self.n, self.m, self.d, generator, heterogeneity=self.heterogeneity, common=True
        )


Release = Callable[[FloatArray, Cell, int], float]


@dataclass(frozen=True)
class MeanRow:
    """One mean on one problem.

    Args:
        error: rms distance to the sample mean; NaN if it was rejected.
        failed: releases that ended without a mean, of all.
    """

    sweep: str
    n: int
    m: int
    d: int
    epsilon: float
    heterogeneity: float
    method: str
    error: float
    failed: int
    releases: int
    seconds: float
    reason: str = ""


def _ours(method: Any, *, known: bool = False) -> Release:
    """A mean of the library, with the radius of theory or without one."""

    def distance(vectors: FloatArray, cell: Cell, seed: int) -> float:
        found = dg.mean_of_users(
            vectors,
            bound=cell.bound,
            radius=cell.radius if known else None,
            method=method,
            epsilon=cell.epsilon,
            delta=DELTA,
            relation="replace",
            n_users=len(vectors),
            random_state=_NOISE + seed,
        )
        return float(np.linalg.norm(found.value - vectors.mean(axis=0)))

    return distance


def _baseline(release: bl.Baseline, options: Callable[[Cell, int], dict[str, Any]]) -> Release:
    """A baseline that is run."""

    def distance(vectors: FloatArray, cell: Cell, seed: int) -> float:
        generator, given = np.random.default_rng(_NOISE + seed), options(cell, seed)
        value = release(vectors, cell.epsilon, DELTA, "replace", generator, **given)
        return float(np.linalg.norm(value - vectors.mean(axis=0)))

    return distance


def _printed(vectors: FloatArray, cell: Cell, _: int) -> float:
    return bl.printed_error(
        vectors, cell.epsilon, DELTA, "replace", radius=cell.radius, failure=0.01
    )


def _printed_corollary(vectors: FloatArray, cell: Cell, _: int) -> float:
    return bl.printed_corollary(
        vectors, cell.epsilon, DELTA, "replace", records=cell.m, bound=cell.bound
    )


def _linear_floor(_vectors: FloatArray, cell: Cell, _: int) -> float:
    noise = bl.multiplier(cell.epsilon, DELTA, "replace")
    return limits.min_noise_of_clipped_sums(noise, cell.n, cell.d) / math.sqrt(cell.m)


def _floor(_vectors: FloatArray, cell: Cell, _: int) -> float:
    # Distributions on {±1}^d with the same spread; it includes the error of the records themselves.
    return math.sqrt(cell.d) * limits.min_error_of_records(
        cell.epsilon, DELTA, cell.n, records=cell.m, dimension=cell.d, relation="replace"
    )


def _order(_vectors: FloatArray, cell: Cell, _: int) -> float:
    # For records at distance √d from their mean.
    spread = math.sqrt(cell.d)
    return spread * limits.mean_order(cell.epsilon, cell.n, dimension=cell.d, records=cell.m)


CENTRE, NEAR, PLAIN = "true centre", "true centre, r ≥ median", "best clip"
# The choice from public numbers, without a radius and with the theoretical one.
AUTO, AUTO_KNOWN = "auto", "auto, τ"
PRINTED = "printed, radius known"
MEANS: dict[str, Release] = {
    AUTO: _ours("auto"),
    AUTO_KNOWN: _ours("auto", known=True),
    "recentred": _ours("recentred"),
    "recentred, τ": _ours("recentred", known=True),
    "softcore, τ": _ours("softcore", known=True),
    "softcore": _ours("softcore"),
    "winsorized, τ": _ours("winsorized", known=True),
    "winsorized": _ours("winsorized"),
    "clip to the bound": _ours("clip"),
    PLAIN: _baseline(bl.plainly_clipped, lambda _, __: {}),
    CENTRE: _baseline(bl.clipped_around, lambda cell, seed: {"centre": cell.centre(seed)}),
    NEAR: _baseline(
        bl.clipped_around, lambda cell, seed: {"centre": cell.centre(seed), "least": 0.5}
    ),
    "per coordinate": _baseline(bl.per_coordinate, lambda cell, _: {"bound": cell.bound}),
    "group property": _baseline(
        bl.by_group_property, lambda cell, _: {"records": cell.m, "bound": cell.bound}
    ),
    PRINTED: _printed,
    "printed, Cor. 1": _printed_corollary,
    "floor of clipped sums": _linear_floor,
    "floor of any mean": _floor,
    "order √d/(nε√m)": _order,
}
_COMPARING = ("softcore, τ", "softcore", "winsorized")
_CLOSED = (
    PRINTED,
    "printed, Cor. 1",
    "floor of clipped sums",
    "floor of any mean",
    "order √d/(nε√m)",
)


def run_mean(sweep: str, cell: Cell, name: str, seeds: int) -> MeanRow:
    """One method on one problem, with new data and noise for each seed."""
    releases = seeds
    if name in _CLOSED or (name in _COMPARING and cell.n**2 * cell.d > _SLOW):
        releases = 1
    distances, began, reason = [], time.perf_counter(), ""
    for seed in range(releases):
        vectors = cell.draw(seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", dg.DeltaWarning)
                distances.append(MEANS[name](vectors, cell, seed))
        except ParameterError as refusal:
            reason = str(refusal)
            break
    there = [distance for distance in distances if math.isfinite(distance)]
    error = math.sqrt(float(np.mean(np.square(there)))) if there else math.nan
    if not there and not reason:
        reason = "users did not agree"
    seconds = (time.perf_counter() - began) / max(len(distances), 1)
    shape = (cell.n, cell.m, cell.d, cell.epsilon, cell.heterogeneity)
    failed = len(distances) - len(there)
    return MeanRow(sweep, *shape, name, error, failed, len(distances), seconds, reason)


def mean_cells(quick: bool = False) -> dict[str, tuple[Cell, ...]]:
    """The problems of part a, by varied parameter."""
    if quick:
        one = Cell(n=1000, d=5)
        return {"headline": (one,), "m": (replace(one, m=10), one)}
    base, large = Cell(), Cell(n=10_000, d=100)
    return {
        "headline": (large, replace(large, d=1000)),
        "n": tuple(replace(base, n=n) for n in (300, 1000, 3000, 10_000)),
        "m": tuple(replace(base, m=m) for m in (1, 10, 100, 1000)),
        "d": tuple(replace(base, d=d) for d in (3, 10, 30, 100, 300)),
        "epsilon": tuple(replace(base, epsilon=epsilon) for epsilon in (0.3, 1.0, 3.0, 10.0)),
        "heterogeneity": tuple(replace(base, heterogeneity=share) for share in (0.0, 0.01, 0.1)),
    }


def run_means(cells: dict[str, tuple[Cell, ...]], seeds: int) -> Iterator[MeanRow]:
    """Every mean on every problem."""
    known: dict[tuple[Cell, str], MeanRow] = {}
    for sweep, some in cells.items():
        for cell in some:
            for name in MEANS:
                if (cell, name) not in known:
                    known[cell, name] = run_mean(sweep, cell, name, seeds)
                yield replace(known[cell, name], sweep=sweep)


def headlines(rows: Sequence[MeanRow]) -> list[str]:
    """Targets of the headline cells, and whether they are met."""
    lines = []
    for d in sorted({row.d for row in rows if row.sweep == "headline"}):
        errors = {row.method: row.error for row in rows if row.sweep == "headline" and row.d == d}
        for name in (AUTO, AUTO_KNOWN):
            for base, most in ((CENTRE, 1.5), (NEAR, 1.5), (PLAIN, 0.5), (PRINTED, 1 / 50)):
                ratio = errors[name] / errors[base]
                met = "met" if ratio <= most else "NOT met"
                lines.append(
                    f"d = {d:5,}: {name:8} ÷ {base:24} {ratio:7.4f}, asked ≤ {most:g}: {met}"
                )
    return lines


@dataclass(frozen=True)
class LongRow:
    """A long run of the soft core with few users.

    Args:
        done: the rounds before it ended; T if it did not.
        error: rms distance of a round's mean to the sample mean, in radii τ.
    """

    n: int
    d: int
    rounds: int
    seed: int
    done: int
    error: float


def run_long(seeds: int, *, n: int = 500, d: int = 10, rounds: int = 1000) -> Iterator[LongRow]:
    """Rounds of the soft core, each with new vectors of every user."""
    radius = bl.gaussian_radius(n * rounds, 100, d, 0.01)
    mean = SoftCoreMean.calibrate(
        epsilon=1.0, delta=DELTA, n_users=n, rounds=rounds, radius=radius, relation="replace"
    )
    for seed in range(seeds):
        generator, run = np.random.default_rng(seed), mean.start(SeededSource(_NOISE + seed))
        squares: list[float] = []
        try:
            for _ in range(rounds):
                vectors = gaussian_users(n, 100, d, generator)
                far = run.estimate(Vectors(vectors)) - vectors.mean(axis=0)
                squares.append(float(far @ far))
        except RunEnded:
            pass
        error = math.sqrt(float(np.mean(squares))) / radius if squares else math.nan
        yield LongRow(n, d, rounds, seed, len(squares), error)


def show_means(rows: Sequence[MeanRow]) -> str:
    """One table for each sweep: a line for each method."""
    text = []
    for sweep in dict.fromkeys(row.sweep for row in rows):
        some = [row for row in rows if row.sweep == sweep]
        shapes = list(dict.fromkeys(_shape(row) for row in some))
        text.append(f"\n{sweep}; columns: " + "; ".join(shapes))
        for name in dict.fromkeys(row.method for row in some):
            found = [row for row in some if row.method == name]
            text.append(f"{name:25}" + "".join(f"{_number(row.error):>11}" for row in found))
    reasons = dict.fromkeys(f"{row.method}: {row.reason}" for row in rows if row.reason)
    return "\n".join([*text, "", *(f"— {reason}" for reason in reasons)])


def _shape(row: MeanRow) -> str:
    text = f"n={row.n:,} m={row.m} d={row.d} ε={row.epsilon:g}"
    return text + (f" Δ={row.heterogeneity:g}" if row.sweep == "heterogeneity" else "")


def _number(value: float) -> str:
    return "—" if math.isnan(value) else f"{value:.3g}"


# Convex problems -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One convex problem and its size.

    Args:
        slow: whether to run a thousand rounds of means that compare all pairs of users.
    """

    problem: Problem
    n: int = 2000
    m: int = 10
    slow: bool = True

    @property
    def known(self) -> papers.Known:
        """Its public parameters."""
        problem = self.problem
        return papers.Known(
            distance=problem.distance,
            lipschitz=problem.lipschitz,
            smoothness=problem.smoothness,
            strength=problem.strength,
            records=self.m,
        )

    @property
    def smooth(self) -> tuple[papers.Known, LossFunction]:
        """The same for recipes that need a smooth loss: kinks become Moreau envelopes."""
        problem, known = self.problem, self.known
        if math.isfinite(known.smoothness):
            return known, problem.loss
        smoothness = known.lipschitz * math.sqrt(self.n * self.m) / known.distance
        loss: Any = problem.loss
        return replace(known, smoothness=smoothness), Moreau(loss, smoothness)


@dataclass(frozen=True)
class ConvexRow:
    """One recipe on one problem.

    Args:
        excess: mean over seeds; NaN if the recipe rejected it.
        start: the excess of the start, which needs no data.
    """

    problem: str
    n: int
    m: int
    d: int
    heterogeneity: float
    recipe: str
    excess: float
    excess_se: float
    start: float
    rounds: int
    evaluations: float
    seconds: float
    reason: str = ""


CONCENTRATED, SGD = "concentrated (ours)", "sgd, ball"
RECIPES = (
    CONCENTRATED,
    "winsorized erm",
    "phased erm",
    SGD,
    "sgd, as it is",
    "sgd, strongly convex",
    "clipped at G",
    "group property",
)
_LONG = (SGD, "sgd, as it is", "sgd, strongly convex")
# Run once; with this number of records, all are.
_ONCE, _MANY = (*_LONG, "group property"), 100_000


def recipe_of(task: Task, name: str) -> tuple[papers.Recipe, LossFunction]:
    """A recipe, and the loss it is for."""
    known, problem = task.known, task.problem
    smooth, envelope = task.smooth
    kind: papers.Kind = "strongly_convex" if problem.strength else "convex"
    match name:
        case "winsorized erm":
            return papers.WinsorizedErm(smooth, kind=kind), envelope
        case "phased erm":
            return papers.PhasedErmSco(smooth), envelope
        case "sgd, ball":
            return papers.UserLevelSgd(known, smoothing="ball"), problem.loss
        case "sgd, as it is":
            return papers.UserLevelSgd(known, smoothing="none"), problem.loss
        case "sgd, strongly convex":
            return papers.UserLevelSgdStronglyConvex(known), problem.loss
        case "clipped at G":
            return papers.Concentrated(
                replace(known, radius=known.lipschitz), share=1.0
            ), problem.loss
        case _:
            return papers.Concentrated(known), problem.loss


def solve(task: Task, name: str, records: Records, seed: int) -> tuple[FloatArray, int, int]:
    """The solution, its rounds, and gradients of records.

    Raises:
        ParameterError: if the recipe rejects the parameters.
    """
    X, y, users = records
    problem = task.problem
    if name == "group property":
        epsilon, delta = bl.group_share(1.0, DELTA, task.m)
        found = minimise(
            problem.loss,
            X,
            y,
            problem.start,
            solver=CoinBetting(wealth=problem.distance / math.sqrt(problem.dimension)),
            unit=dg.Record(),
            epsilon=epsilon,
            delta=delta,
            relation="replace",
            clip=problem.lipschitz,
            sampling="full",
            n_users=len(y),
            random_state=seed,
        )
        return found.theta, len(found.history.points), len(found.history.points) * len(y)
    recipe, loss = recipe_of(task, name)
    start = tuple(problem.start)
    program = recipe.plan(papers.Task.of(task.n, start, 1.0, DELTA, "replace"))
    found = minimise(
        loss,
        X,
        y,
        problem.start,
        solver=recipe,
        users=users,
        unit=dg.User(),
        epsilon=1.0,
        delta=DELTA,
        relation="replace",
        n_users=task.n,
        random_state=seed,
    )
    return found.theta, len(found.history.points), evaluations(program, task.m)


def evaluations(program: papers.Program, m: int) -> int:
    """Record gradients of a program, with m records per user."""
    phases = zip(program.stages, program.localisation.phases(), strict=True)
    return m * sum(stage.mean.rounds * len(phase.users) for stage, phase in phases)


def run_recipe(task: Task, name: str, seeds: int) -> ConvexRow:
    """One recipe on one problem, with new data and noise for each seed."""
    problem, excesses, reason = task.problem, [], ""
    rounds = asked = 0
    began = time.perf_counter()
    for seed in range(1 if name in _ONCE or task.n * task.m > _MANY else seeds):
        records = problem.draw(task.n, task.m, np.random.default_rng(seed))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", dg.DeltaWarning)
                theta, rounds, asked = solve(task, name, records, _NOISE + seed)
        except ParameterError as error:
            reason = str(error)
            break
        excesses.append(problem.excess(theta))
    seconds = (time.perf_counter() - began) / max(len(excesses), 1)
    count = len(excesses)
    spread = float(np.std(excesses, ddof=1) / math.sqrt(count)) if count > 1 else math.nan
    return ConvexRow(
        type(problem).__name__.removesuffix("Problem").lower(),
        task.n,
        task.m,
        problem.dimension,
        problem.heterogeneity,
        name,
        float(np.mean(excesses)) if excesses else math.nan,
        spread,
        problem.excess(problem.start),
        rounds,
        asked,
        seconds,
        reason,
    )


def problems(d: int) -> tuple[Problem, ...]:
    """Convex and smooth, with kinks, and strongly convex twice."""
    root = math.sqrt(d)
    return (
        LogisticProblem(d, 2 * root),
        AbsoluteProblem(d, root),
        RidgeProblem(d, root),
        MeanProblem(d, 1.0),
    )


def tasks(quick: bool = False, full: bool = False) -> list[Task]:
    """The problems of part b."""
    if quick:
        return [Task(one, n=300, m=m, slow=False) for one in problems(5) for m in (3, 30)]
    sizes = [(2000, m, 10, full or m == 10) for m in (3, 10, 30, 100)]
    sizes += [(2000, 10, 50, full), *([(10_000, 10, 10, True)] if full else [])]
    found = [Task(one, n, m, slow) for n, m, d, slow in sizes for one in problems(d)]
    for share in (0.01, 0.1):
        mixed = LogisticProblem(10, 2 * math.sqrt(10), heterogeneity=share, common=True)
        found.append(Task(mixed, 2000, 100, False))
    return found


def run_convex(todo: Iterable[Task], seeds: int) -> Iterator[ConvexRow]:
    """Every recipe on every problem."""
    for task in todo:
        for name in RECIPES:
            if name == "sgd, strongly convex" and not task.problem.strength:
                continue
            if name in _LONG and not task.slow:
                continue
            if name == "group property" and not task.slow and task.n * task.m > _MANY:
                continue
            yield run_recipe(task, name, seeds)


def slopes(rows: Sequence[ConvexRow]) -> list[str]:
    """How the excess falls with m: the fitted power."""
    lines = []
    for problem in dict.fromkeys(row.problem for row in rows):
        for name in dict.fromkeys(row.recipe for row in rows):
            line = _by_m(rows, problem, name)
            if len(line) < 3:
                continue
            logs = np.log([[row.m, row.excess] for row in line])
            power = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
            lines.append(f"{problem:10} {name:22} excess ~ m^{power:.2f}")
    return lines


def _by_m(rows: Sequence[ConvexRow], problem: str, name: str) -> list[ConvexRow]:
    """The rows of one recipe on one problem, by m, at the size with the most of them."""
    some = [
        row
        for row in rows
        if (row.problem, row.recipe, row.heterogeneity) == (problem, name, 0)
        and row.excess > 0
        and (row.n, row.d) == (rows[0].n, rows[0].d)
    ]
    return sorted(some, key=lambda row: row.m)


def not_best(rows: Sequence[ConvexRow]) -> list[str]:
    """Cells in which another recipe has the lower excess, or nearly as few evaluations."""
    lines = []
    for ours in (row for row in rows if row.recipe == CONCENTRATED):
        cell = (ours.problem, ours.n, ours.m, ours.d, ours.heterogeneity)
        others = [r for r in rows if (r.problem, r.n, r.m, r.d, r.heterogeneity) == cell]
        where = f"{ours.problem} n={ours.n:,} m={ours.m} d={ours.d} Δ={ours.heterogeneity:g}"
        for row in others:
            if row.excess < ours.excess:
                ratio = ours.excess / row.excess
                lines.append(f"{where}: {row.recipe} is better, ours ÷ it {ratio:.2f}")
            if row.recipe == SGD and row.evaluations < 10 * ours.evaluations:
                lines.append(f"{where}: fewer than ten times our evaluations")
    return lines


CONVEX_HEADER = (
    f"{'problem':9} {'n':>6} {'m':>4} {'d':>3} {'Δ':>5}  {'recipe':21} {'excess':>19} {'start':>8} "
    f"{'rounds':>6} {'evaluations':>12} {'s/run':>6}"
)


def convex_line(row: ConvexRow) -> str:
    """A row of the table."""
    excess = "—" if math.isnan(row.excess) else f"{row.excess:.3g}"
    if not math.isnan(row.excess_se):
        excess += f" ± {row.excess_se:.2g}"
    return (
        f"{row.problem:9} {row.n:6,} {row.m:4} {row.d:3} {row.heterogeneity:5g}  {row.recipe:21} "
        f"{excess:>19} {row.start:8.3g} {row.rounds:6,} {row.evaluations:12,.0f} {row.seconds:6.1f}"
    )


# Real data -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A classification with natural users, and the test users.

    Args:
        X: (m, d) features with row norms of at most ``bound``.
        y: (m,) labels, from 0.
        users: (m,) user id of each row, from 0.
        test: (m,) the rows of users held out.
        bound: a public bound of the norm of a row.
        records: a typical number of rows of a user.
    """

    name: str
    X: FloatArray
    y: NDArray[np.int64]
    users: NDArray[np.int64]
    test: NDArray[np.bool_]
    bound: float
    records: int

    @property
    def known(self) -> papers.Known:
        """For recipes: gradients are at most as long as a row with its intercept, or √2 times that."""
        longest = math.sqrt(self.bound**2 + 1)
        if self.y.max() > 1:
            longest *= math.sqrt(2)
        return papers.Known(distance=10.0, lipschitz=longest, records=self.records)


def digits(folder: Path) -> Table:
    """Digits by writer: 7 × 7 pixels, each image of length 1; no writer is in both parts."""
    with np.load(folder / MNIST) as file:
        images, labels = file["images"], file["labels"].astype(np.int64)
        writers, test = file["writer_id"], file["is_test"].astype(np.bool_)
    pooled = images.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)
    pooled /= np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
    users = np.unique(writers, return_inverse=True)[1]
    return Table("digits by writer", pooled, labels, users, test, 1.0, 100)


def tables(folder: Path) -> Iterator[Table]:
    """The existing tables; prints the missing ones."""
    for name, records in ((MNIST, 100), (pm.BASEBALL, 79), (pm.STUDENTS, 7)):
        if not (folder / name).is_file():
            print(f"left out, since {folder} lacks {name}; set DPGRAIN_DATA or --data.")
            continue
        if name == MNIST:
            yield digits(folder)
            continue
        problem = pm.baseball(folder) if name == pm.BASEBALL else pm.students(folder, "good")
        users = np.unique(problem.users, return_inverse=True)[1]
        yield Table(
            "on base by batter" if name == pm.BASEBALL else "≥ 80 by student",
            problem.X.astype(np.float64),
            problem.y.astype(np.int64),
            users,
            problem.held_out(0),
            problem.bound,
            records,
        )


@dataclass(frozen=True)
class RealRow:
    """One fit of one table.

    Args:
        kept: the retained share of the gain in log-loss over the classes' shares, mean over seeds.
    """

    table: str
    users: int
    epsilon: float
    method: str
    kept: float
    kept_se: float
    accuracy: float
    seconds: float
    reason: str = ""


# Largest number of users for means that compare all pairs, and their rounds.
_MOST_USERS, _FEW_ROUNDS = 5000, 50
_PLAIN = ("default", "clip=1")
REAL: dict[str, Callable[[Table], dict[str, Any]]] = {
    "default": lambda _: {},
    "clip=1": lambda _: {"clip": 1.0},
    "concentrated": lambda table: {"algorithm": papers.Concentrated(table.known)},
    "user-level sgd": lambda table: {
        "algorithm": papers.UserLevelSgd(table.known, _FEW_ROUNDS, "none")
    },
}


def run_table(
    table: Table, epsilons: Sequence[float], seeds: int, methods: Sequence[str] = tuple(REAL)
) -> Iterator[RealRow]:
    """Every fit of one table, the one without privacy first; recipes with one seed."""
    train, test = ~table.test, table.test
    X, y, users = table.X[train], table.y[train], table.users[train]
    users = np.unique(users, return_inverse=True)[1]
    people, truth = int(users.max()) + 1, table.y[test]
    shares = np.bincount(y) / len(y)
    base = _log_loss(np.tile(shares, (len(truth), 1)), truth)
    began = time.perf_counter()
    best = linear_model.LogisticRegression(C=1e4, max_iter=1000).fit(X, y)
    chances = best.predict_proba(table.X[test])
    least = _log_loss(chances, truth)
    seconds = time.perf_counter() - began
    right = float(np.mean(chances.argmax(axis=1) == truth))
    guessed = float(np.mean(truth == shares.argmax()))
    yield RealRow(table.name, people, math.inf, "likeliest class", 0.0, math.nan, guessed, 0.0)
    yield RealRow(table.name, people, math.inf, "not private", 1.0, math.nan, right, seconds)
    for epsilon in epsilons:
        for name in methods:
            if name == "user-level sgd" and people > _MOST_USERS:
                why = f"left out: {_FEW_ROUNDS} rounds of all pairs of {people:,} users"
                nothing = math.nan
                yield RealRow(
                    table.name, people, epsilon, name, nothing, nothing, nothing, nothing, why
                )
                continue
            kept, correct, reason, began = [], [], "", time.perf_counter()
            for seed in range(seeds if name in _PLAIN else 1):
                model = LogisticRegression(
                    unit=dg.User(),
                    epsilon=epsilon,
                    delta=DELTA,
                    n_users=people,
                    classes=list(range(len(shares))),
                    random_state=_NOISE + seed,
                    **REAL[name](table),
                )
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", dg.DeltaWarning)
                        model.fit(X, y, users=users)
                except ParameterError as error:
                    reason = str(error)
                    break
                chances = model.predict_proba(table.X[test])
                kept.append((base - _log_loss(chances, truth)) / (base - least))
                correct.append(float(np.mean(chances.argmax(axis=1) == truth)))
            seconds = (time.perf_counter() - began) / max(len(kept), 1)
            spread = (
                float(np.std(kept, ddof=1) / math.sqrt(len(kept))) if len(kept) > 1 else math.nan
            )
            means = (float(np.mean(x)) if x else math.nan for x in (kept, correct))
            share, accuracy = means
            yield RealRow(
                table.name, people, epsilon, name, share, spread, accuracy, seconds, reason
            )


def _log_loss(chances: FloatArray, truth: NDArray[np.int64]) -> float:
    return float(-np.mean(np.log(np.maximum(chances[np.arange(len(truth)), truth], 1e-12))))


REAL_HEADER = (
    f"{'table':18} {'users':>6} {'ε':>4}  {'method':15} {'gain kept':>16} "
    f"{'accuracy':>9} {'s/fit':>6}"
)  # fmt: skip


def real_line(row: RealRow) -> str:
    """A row of the table."""
    kept = "—" if math.isnan(row.kept) else f"{row.kept:.1%}"
    if not math.isnan(row.kept_se):
        kept += f" ± {row.kept_se:.1%}"
    accuracy = "—" if math.isnan(row.accuracy) else f"{row.accuracy:.1%}"
    seconds = "" if math.isnan(row.seconds) else f"{row.seconds:.1f}"
    return (
        f"{row.table:18} {row.users:6,} {row.epsilon:4g}  {row.method:15} {kept:>16} {accuracy:>9} "
        f"{seconds:>6}"
    )


# Figures ---------------------------------------------------------------------------------------

_STYLES: dict[str, tuple[str, str]] = {
    "recentred": ("tab:blue", "-"),
    AUTO: ("navy", "-"),
    AUTO_KNOWN: ("tab:cyan", "-"),
    "softcore, τ": ("tab:green", "-"),
    "winsorized, τ": ("tab:olive", "-"),
    "clip to the bound": ("tab:purple", "-"),
    PLAIN: ("tab:orange", "--"),
    NEAR: ("tab:red", "--"),
    "group property": ("tab:brown", "-."),
    PRINTED: ("black", "-."),
    "floor of clipped sums": ("grey", ":"),
    "floor of any mean": ("silver", ":"),
}
_MARKERS = "os^vDP*X"


def draw_means(rows: Sequence[MeanRow]) -> Figure:
    """Privacy error against each of n, m, d, ε."""
    import matplotlib.pyplot as plt

    labels = {"n": "users n", "m": "records of a user m", "d": "coordinates d", "epsilon": "ε"}
    there = [sweep for sweep in labels if any(row.sweep == sweep for row in rows)]
    figure, axes = plt.subplots(
        1, len(there), figsize=(2.2 + 3.3 * len(there), 4.4), layout="constrained", sharey=True,
        squeeze=False,
    )  # fmt: skip
    for ax, sweep in zip(axes[0], there, strict=True):
        for name, (colour, style) in _STYLES.items():
            line = [r for r in rows if (r.sweep, r.method) == (sweep, name)]
            line = [row for row in line if not math.isnan(row.error)]
            if not line:
                continue
            at, errors = [getattr(row, sweep) for row in line], [row.error for row in line]
            marker = "" if style == ":" else "o"
            ax.plot(
                at, errors, style, color=colour, marker=marker, markersize=3.5, label=_named(name)
            )
        ax.set_xlabel(labels[sweep])
        _log_axes(ax, [getattr(row, sweep) for row in rows if row.sweep == sweep])
    axes[0][0].set_ylabel("rms distance to the sample mean")
    _legend(figure, axes[0])
    return figure


def _named(name: str) -> str:
    names = {
        AUTO: "auto, nothing known",
        AUTO_KNOWN: "auto, radius known",
        PLAIN: "best plain clip",
    }
    return names.get(name, name)


def draw_convex(rows: Sequence[ConvexRow]) -> Figure:
    """Excess against m, a panel for each problem."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row.problem for row in rows))
    figure, axes = plt.subplots(
        1, len(names), figsize=(2.2 + 3.3 * len(names), 4.4), layout="constrained", squeeze=False
    )
    colours = plt.get_cmap("tab10")
    for ax, problem in zip(axes[0], names, strict=True):
        for i, name in enumerate(RECIPES):
            line = _by_m(rows, problem, name)
            if not line:
                continue
            at, excess = [row.m for row in line], [row.excess for row in line]
            width = 2.2 if name == CONCENTRATED else 1.2
            ax.plot(
                at, excess, color=colours(i), marker=_MARKERS[i], markersize=4.5, linewidth=width,
                label=name,
            )  # fmt: skip
        ours = _by_m(rows, problem, CONCENTRATED)
        ax.axhline(ours[0].start, color="grey", linestyle=":", linewidth=1.2, label="the start")
        at = [row.m for row in ours]
        falling = [ours[0].excess * 0.6 * (at[0] / m) for m in at]
        ax.plot(at, falling, color="silver", linestyle="--", linewidth=1, label="slope −1")
        ax.set(title=problem, xlabel="records of a user m")
        _log_axes(ax, at)
    axes[0][0].set_ylabel("excess risk")
    _legend(figure, axes[0])
    return figure


def draw_choices(rows: Sequence[fc.Row]) -> Figure:
    """Error against evaluations, a panel for each problem."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", sharey=True)
    colours = plt.get_cmap("tab10")
    for ax, problem in zip(axes, fc.PROBLEMS, strict=True):
        some = [row for row in rows if row.problem == problem]
        sizes = list(dict.fromkeys((row.users, row.records) for row in some))
        for i, name in enumerate(fc.METHODS):
            for marker, size in zip(_MARKERS, sizes, strict=False):
                line = [r for r in some if (r.method, (r.users, r.records)) == (name, size)]
                label = f"{name}, n = {size[0]:,}, m = {size[1]:,}"
                # Open ones of several sizes: many have no error at all.
                ax.plot(
                    [row.evaluations for row in line], [row.error for row in line],
                    color=colours(i), marker=marker, linestyle="", markersize=5 + 1.7 * i,
                    markerfacecolor="none", label=label,
                )  # fmt: skip
        ax.set(xscale="log", title=problem, xlabel="evaluations of a hypothesis")
        ax.set_yscale("symlog", linthresh=1e-4)
        ax.grid(visible=True, color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
    axes[0].set_ylabel("loss over the best hypothesis")
    _legend(figure, axes)
    return figure


def draw_real(rows: Sequence[RealRow]) -> Figure:
    """The retained share of the gain against ε, a panel for each table."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row.table for row in rows))
    figure, axes = plt.subplots(
        1, len(names), figsize=(2.2 + 3.3 * len(names), 4.0), layout="constrained", sharey=True,
        squeeze=False,
    )  # fmt: skip
    colours = plt.get_cmap("tab10")
    for ax, table in zip(axes[0], names, strict=True):
        some = [row for row in rows if row.table == table and math.isfinite(row.epsilon)]
        for i, name in enumerate(REAL):
            line = [row for row in some if row.method == name and not math.isnan(row.kept)]
            if not line:
                continue
            # Very negative values are shown at the edge.
            kept = [max(row.kept, -0.5) for row in line]
            spread = [0.0 if math.isnan(row.kept_se) else row.kept_se for row in line]
            at, colour = [row.epsilon for row in line], colours(i)
            ax.plot(at, kept, color=colour, marker=_MARKERS[i], markersize=5, label=name)
            ax.errorbar(at, kept, spread, fmt="none", color=colour, capsize=2)
        ax.axhline(1, color="grey", linestyle=":", linewidth=1.2, label="not private")
        ax.axhline(0, color="silver", linestyle="--", linewidth=1.2, label="likeliest class")
        ax.set(title=f"{table}, {some[0].users:,} users", xlabel="ε")
        _log_axes(ax, [row.epsilon for row in some], y=False)
    axes[0][0].set_ylabel("share of the gain in log-loss kept")
    _legend(figure, axes[0])
    return figure


def _log_axes(ax: Axes, ticks: Sequence[float], *, y: bool = True) -> None:
    ax.set_xscale("log")
    if y:
        ax.set_yscale("log")
    at = sorted(set(ticks))
    ax.set_xticks(at, [f"{tick:,g}" if tick < 1000 else f"{tick:,.0f}" for tick in at])
    ax.xaxis.minorticks_off()
    ax.grid(visible=True, color="0.92", linewidth=0.8)
    ax.set_axisbelow(True)


def _legend(figure: Figure, axes: Iterable[Axes]) -> None:
    """One legend for all panels, to their right."""
    found: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        found.update(
            {label: h for h, label in zip(handles, labels, strict=True) if label not in found}
        )
    figure.legend(
        list(found.values()), list(found), loc="outside right center", frameon=False, fontsize=8
    )


# Parts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Command-line options.

    Args:
        data: the folder of the tables; None: the one that DPGRAIN_DATA names.
    """

    data: Path | None
    out: Path
    seeds: int = 3
    quick: bool = False
    full: bool = False


def part_a(options: Options) -> None:
    """Means of users."""
    rows = list(run_means(mean_cells(options.quick), options.seeds))
    print(show_means(rows))
    print("\n".join(headlines(rows)))
    write(options.out, "user_level_means", rows, draw_means(rows))
    count = 2 if options.quick else max(options.seeds, 5)
    runs = list(run_long(count, rounds=100 if options.quick else 1000))
    early = sum(run.done < run.rounds for run in runs)
    error = float(np.nanmean([run.error for run in runs]))
    print(
        f"soft core, n = {runs[0].n}, d = {runs[0].d}, T = {runs[0].rounds:,}: {early} of {count} runs "
        f"ended early; a round errs by {error:.2f} radii"
    )
    write(options.out, "user_level_rounds", runs)


def part_b(options: Options) -> None:
    """Convex problems."""
    rows = []
    print(CONVEX_HEADER)
    for row in run_convex(tasks(options.quick, options.full), options.seeds):
        print(convex_line(row), flush=True)
        rows.append(row)
    report_convex(rows)
    write(options.out, "user_level_convex", rows, draw_convex(rows))


def report_convex(rows: Sequence[ConvexRow]) -> None:
    """Conclusions from the table."""
    for reason in dict.fromkeys(f"— {row.recipe}: {row.reason}" for row in rows if row.reason):
        print(reason)
    print("\n".join(slopes(rows)))
    worse = not_best(rows)
    print("\n".join(worse) if worse else "ours is the best in every cell")


def part_c(options: Options) -> None:
    """Finite classes."""
    sizes = [(1000, 100), (1000, 10_000), (10_000, 100)][: 1 if options.quick else 3]
    rows: list[fc.Row] = []
    print(fc.HEADER)
    for problem in fc.PROBLEMS:
        for users, records in sizes:
            hypotheses = 1024 if problem == "packing" else 1000
            for row in fc.run(problem, hypotheses, users, records, seeds=options.seeds):
                print(fc.line(row), flush=True)
                rows.append(row)
    write(options.out, "user_level_choices", rows, draw_choices(rows))


def part_d(options: Options) -> None:
    """Real tables."""
    rows: list[RealRow] = []
    epsilons, methods = ((1.0,), _PLAIN) if options.quick else ((0.5, 1.0, 3.0), tuple(REAL))
    for table in tables(pm.found(options.data)):
        if not rows:
            print(REAL_HEADER)
        for row in run_table(table, epsilons, options.seeds, methods):
            print(real_line(row), flush=True)
            rows.append(row)
    for reason in dict.fromkeys(f"— {row.method}: {row.reason}" for row in rows if row.reason):
        print(reason)
    if not rows:
        sys.exit("None of the tables is there: let DPGRAIN_DATA, or --data, name their folder.")
    write(options.out, "user_level_real", rows, draw_real(rows))


PARTS: dict[str, Callable[[Options], None]] = {
    "a": part_a,
    "b": part_b,
    "c": part_c,
    "d": part_d,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the requested parts."""
    import matplotlib as mpl

    mpl.use("Agg")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--part", choices=list(PARTS), help="run one part")
    parser.add_argument("--data", type=Path, help="folder of the tables; else DPGRAIN_DATA")
    parser.add_argument("--out", type=Path, default=Path("experiments/out"), help="output folder")
    parser.add_argument("--seeds", type=int, default=3, help="data sets of each problem")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--full", action="store_true", help="the slowest runs of part b, too")
    given = parser.parse_args(arguments)
    if given.seeds < 1:
        parser.error("--seeds must be at least 1.")
    if given.part in (None, "d"):
        # Reported before the simulated parts take hours.
        pm.found(given.data)
    seeds = 1 if given.quick else given.seeds
    options = Options(given.data, given.out, seeds, given.quick, given.full)
    for name, part in PARTS.items():
        if given.part in (None, name):
            began = time.perf_counter()
            print(f"\n# {name}: {part.__doc__}", flush=True)
            part(options)
            print(f"({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
