"""The cost of learning if only a shuffler is trusted: measured excess, messages and noise.

Every user has one record; δ = 1e-6, a user's record exchanged for another. Three parts, each with a
table, a CSV and a figure:

- a: the paper's Table 1 as curves. The *excess* is the population risk at the solution minus the
  least, the worst in a family of problems with the same public bounds. A theorem covers the worst
  problem of each size, so its exponents are comparable with this; on one fixed problem the excess
  falls faster. Every recipe of the shuffle and the pan-private model, compared with the central
  model, a tree of noisy sums (central, one participation per user) and local privacy. Then the same
  on typical problems: logistic, absolute, ridge, mean.
- b: the sizes of a device's report and the analyzer's input, compared with the printed ones.
- c: noise of a vector sum, compared with the central model's and the printed noise; honest
  fractions, drop-outs, and devices with arbitrary reports.

    python experiments/shuffle.py [--part a] [--out experiments/out] [--seeds 2] [--quick]

Random numbers are seeded, so results repeat; a seeded release is not private.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shuffle_baselines as sb
from instances import (
    Problem,
    beta_nodes,
    sphere,
)
from numpy.typing import NDArray
from results import write
from user_level import Task, _legend, _log_axes, problems

import dpgrain as dg
from dpgrain import ParameterError, papers
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.noise import RandomSource, SeededSource
from dpgrain.optimize import CoinBetting, LossFunction, run
from dpgrain.papers import Moreau
from dpgrain.shuffle import PoissonSum, Shuffler, VectorSum

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]
# Records, and their targets.
Data = tuple[NDArray[np.float32], FloatArray]

DELTA = 1e-6
# Data and noise must use different random numbers.
_NOISE = 1_000_000


# Families of problems --------------------------------------------------------------------------


@dataclass(frozen=True)
class Distance:
    """c‖θ − x‖ + k/2·‖θ − x‖².

    >>> Distance(1.0, 1.0).gradient(np.ones(1), np.array([[3.0]]), np.zeros(1)).tolist()
    [[-3.0]]
    """

    steepness: float
    curvature: float

    def value(self, theta: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """The loss of each record, (m,)."""
        far = np.linalg.norm(theta - X, axis=1)
        return np.asarray(self.steepness * far + self.curvature / 2 * far**2)

    def gradient(self, theta: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """(m, p); 0 at the kink."""
        away = np.asarray(theta - X, dtype=np.float64)
        far = np.linalg.norm(away, axis=1, keepdims=True)
        slope = self.steepness / np.where(far > 0, far, 1.0) + self.curvature
        return np.asarray(slope * away)

    def proximal(self, theta: Any, X: Any, y: Any, step: float) -> FloatArray:  # noqa: ARG002
        """For each record argmin_v loss(v) + ‖v − θ‖²/(2·step), (m, p)."""
        away = np.asarray(theta - X, dtype=np.float64)
        far = np.linalg.norm(away, axis=1, keepdims=True)
        left = np.maximum(1 - step * self.steepness / np.where(far > 0, far, 1.0), 0)
        return np.asarray(X + left / (1 + step * self.curvature) * away)


@dataclass(frozen=True)
class Bowl(Problem):
    """The distance to records on a sphere around the truth: a cone, a parabola, or both.

    Args:
        spread: the radius of the sphere; a cone is round within it.

    By symmetry the truth is the minimiser. Q_u is one point of the sphere.
    """

    steepness: float = 1.0
    curvature: float = 0.0
    spread: float = 0.05

    @property
    def loss(self) -> LossFunction:
        """c‖θ − x‖ + k/2·‖θ − x‖²."""
        return Distance(self.steepness, self.curvature)

    @property
    def lipschitz(self) -> float:
        """At the end of the ball that is farthest from a record."""
        return self.steepness + self.curvature * (1.5 * self.distance + self.spread)

    @property
    def smoothness(self) -> float:
        """k, or infinite at the tip of a cone."""
        return math.inf if self.steepness else self.curvature

    @property
    def strength(self) -> float:
        """k."""
        return self.curvature

    @property
    def minimiser(self) -> FloatArray:
        """The truth."""
        return self._truth

    def excess(self, theta: FloatArray) -> float:
        """An integral over the one coordinate of the sphere that matters."""
        far = float(np.linalg.norm(theta - self._truth))
        found = self.curvature / 2 * far**2
        if self.steepness:
            nodes, weights = self._nodes
            distances = np.sqrt(far**2 + self.spread**2 - 2 * far * self.spread * (2 * nodes - 1))
            found += self.steepness * float(weights @ distances - self.spread)
        return found

    @cached_property
    def _nodes(self) -> tuple[FloatArray, FloatArray]:
        half = (self.dimension - 1) / 2
        return beta_nodes(half, half)

    def _records(self, count: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        z = self._truth + self.spread * sphere(generator, count, self.dimension)
        return z, np.zeros(count)

    def _others(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._truth + self.spread * points, np.zeros(len(points))


@dataclass(frozen=True)
class Family:
    """Problems with the same public bounds; a theorem covers the worst of them."""

    name: str
    members: tuple[Problem, ...]
    known: papers.Known

    @property
    def dimension(self) -> int:
        """d."""
        return self.members[0].dimension

    @property
    def start(self) -> float:
        """The excess of the worst member at the start."""
        return max(one.excess(one.start) for one in self.members)


def smooth_family(d: int, count: int) -> Family:
    """Parabolas ½k‖θ − x‖², k = 1, ⅓, ⅑, …: flat ones are not reached, steep ones overshot."""
    members = tuple(Bowl(d, 1.0, 0.0, False, 0.0, 3.0**-k, 1.0) for k in range(count))
    known = papers.Known(distance=1.0, lipschitz=members[0].lipschitz, smoothness=1.0)
    return Family("smooth", members, known)


def kinked_family(d: int, count: int) -> Family:
    """Cones c‖θ − x‖, c = 1, ⅓, ⅑, …"""
    members = tuple(Bowl(d, 1.0, 0.0, False, 3.0**-k) for k in range(count))
    return Family("kinks", members, papers.Known(distance=1.0, lipschitz=1.0))


def strong_family(d: int, count: int) -> Family:  # noqa: ARG001
    """The parabola k = 1, with known strong convexity."""
    one = Bowl(d, 1.0, 0.0, False, 0.0, 1.0, 1.0)
    known = papers.Known(distance=1.0, lipschitz=one.lipschitz, smoothness=1.0, strength=1.0)
    return Family("strong, smooth", (one,), known)


def strong_kinked_family(d: int, count: int) -> Family:
    """Cones on a parabola k = ½, with known strong convexity."""
    members = tuple(Bowl(d, 1.0, 0.0, False, 3.0**-k, 0.5) for k in range(count))
    known = papers.Known(distance=1.0, lipschitz=members[0].lipschitz, strength=0.5)
    return Family("strong, kinks", members, known)


FAMILIES: tuple[Callable[[int, int], Family], ...] = (
    smooth_family,
    kinked_family,
    strong_family,
    strong_kinked_family,
)


# Excess (part a) -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A size."""

    n: int = 30_000
    d: int = 30
    epsilon: float = 0.3


@dataclass(frozen=True)
class Solution:
    """Where a method has ended.

    Args:
        theta: (d,).
    """

    theta: FloatArray
    rounds: int
    users: int


Solve = Callable[[Problem, papers.Known, Data, Cell, int], Solution]


@dataclass(frozen=True)
class Method:
    """How a problem is solved.

    Args:
        trust: the trusted party: ``"curator"``, ``"stream"``, ``"shuffler"``, ``"nobody"``.
        solve: from a problem and its data to a solution.
        exponents: of n, d, ε in the theorem; None where there is none.
        most: largest number of users, because every round includes everyone.
        recipe: a recipe of the library, from public parameters.
    """

    name: str
    trust: str
    solve: Solve
    exponents: tuple[float, float, float] | None = None
    theorem: str = ""
    most: int = 10**9
    recipe: Callable[[papers.Known], papers.Recipe] | None = None

    @staticmethod
    def of(
        name: str,
        trust: str,
        recipe: Callable[[papers.Known], papers.Recipe],
        exponents: tuple[float, float, float],
        theorem: str,
        most: int = 10**9,
    ) -> Method:
        """A recipe of the library."""
        return Method(name, trust, _recipe(recipe), exponents, theorem, most, recipe)


class Gradients:
    """Contributions of users with a record each, computed on request.

    Args:
        theta: (p,).
    """

    def __init__(self, loss: LossFunction, theta: FloatArray, data: Data) -> None:
        self._loss, self._theta, self._data = loss, theta, data

    @property
    def blocks(self) -> int:
        """How many users there are."""
        return len(self._data[1])

    @property
    def dimension(self) -> int:
        """p."""
        return len(self._theta)

    def vectors(self, drawn: NDArray[np.int64] | None = None) -> FloatArray:
        """(users, p) their gradients."""
        X, y = self._data
        rows: Any = slice(None) if drawn is None else drawn
        return np.asarray(self._loss.gradient(self._theta, X[rows], y[rows]), dtype=np.float64)

    def clipped_sum(self, clip: float, drawn: NDArray[np.int64] | None = None) -> FloatArray:
        """(p,) their sum, none longer than the bound."""
        gradients = self.vectors(drawn)
        norms = np.sqrt(np.einsum("ij,ij->i", gradients, gradients))
        return np.asarray(np.minimum(1, clip / np.maximum(norms, clip)) @ gradients)


def follow(
    program: papers.Program, loss: Any, data: Data, start: FloatArray, source: RandomSource
) -> FloatArray:
    """The solution of a program with one row per user: :func:`dpgrain.learn.minimise` unlabelled.

    Labels of users are not read, which takes longer than many a run here.
    """
    X, y = data
    for phase, stage in zip(program.localisation.phases(), program.stages, strict=True):
        rows = slice(phase.users.start, phase.users.stop)
        smooth = Moreau(loss, stage.smoothing) if isinstance(stage.smoothing, float) else loss
        rounds = stage.mean.start(source, np.arange(len(phase.users)) if stage.mean.fresh else None)

        def oracle(
            theta: FloatArray, own: Data = (X[rows], y[rows]), of: Any = smooth, run: Any = rounds
        ) -> FloatArray:
            return np.asarray(run.estimate(Gradients(of, theta, own)))

        start = run(stage.solver, oracle, start, stage.mean.rounds)
    return start


def _recipe(make: Callable[[papers.Known], papers.Recipe]) -> Solve:
    """A recipe of the library."""

    def solve(problem: Problem, known: papers.Known, data: Data, cell: Cell, seed: int) -> Solution:
        task = papers.Task.of(cell.n, tuple(problem.start), cell.epsilon, DELTA, "replace")
        program = make(known).plan(task)
        theta = follow(program, problem.loss, data, problem.start, SeededSource(_NOISE + seed))
        users = len(program.localisation.phases()[-1].users)
        last = program.stages[-1]
        return Solution(
            theta, program.rounds, users // last.mean.rounds if last.mean.fresh else users
        )

    return solve


def _local(problem: Problem, known: papers.Known, data: Data, cell: Cell, seed: int) -> Solution:
    generator = np.random.default_rng(_NOISE + seed)
    theta = sb.local_sgd(problem.loss, *data, known, cell.epsilon, generator)
    return Solution(theta, cell.n, 1)


def _tree(problem: Problem, known: papers.Known, data: Data, cell: Cell, seed: int) -> Solution:
    generator = np.random.default_rng(_NOISE + seed)
    theta = sb.tree_ftrl(problem.loss, *data, known, cell.epsilon, DELTA, generator)
    return Solution(theta, cell.n, 1)


def _not_private(
    problem: Problem,
    known: papers.Known,
    data: Data,
    cell: Cell,
    seed: int,  # noqa: ARG001
) -> Solution:
    """The central model's run, on exact gradients."""
    loss: Any = problem.loss

    def oracle(theta: FloatArray) -> FloatArray:
        return np.asarray(loss.gradient(theta, *data).mean(axis=0))

    solver = CoinBetting(wealth=known.distance / math.sqrt(cell.d))
    return Solution(run(solver, oracle, problem.start, 100), 100, cell.n)


def _central(known: papers.Known) -> papers.Recipe:
    return papers.Concentrated(replace(known, radius=known.lipschitz), share=1.0)


# The rates of the central model, without and with strength.
_FULL, _STRONG = (-1.0, 0.5, -1.0), (-2.0, 1.0, -2.0)
_SMOOTH, _KINKS, _BENT = (-4 / 5, 2 / 5, -4 / 5), (-2 / 3, 1 / 3, -2 / 3), (-4 / 3, 2 / 3, -4 / 3)
CENTRAL, LOCAL, TREE, EXACT = "central", "local", "tree of sums", "not private"
SGD, AGD, SMOOTHED, RESTARTS = "shuffle sgd", "shuffle agd", "shuffle agd, smoothed", "restarts"
GD, PAN = "shuffle gd, all users", "pan-private"
# Largest numbers of users for methods that include everyone: with a thousand rounds, and others.
_SOME, _MANY = 10_000, 30_000
_CENTRAL = Method.of(CENTRAL, "curator", _central, _FULL, "Bassily et al.", _MANY)
_EXACT = Method(EXACT, "curator", _not_private, most=_MANY)
_LOCAL = Method(LOCAL, "nobody", _local, (-0.5, 0.5, -1.0), "Duchi et al.")
_TREE = Method(TREE, "curator", _tree, (-0.5, 0.25, -0.5), "Kairouz et al.")
_SGD = Method.of(SGD, "shuffler", papers.ShuffleSgd, (-0.5, 0.25, -0.5), "Thm 4.1")
_AGD = Method.of(AGD, "shuffler", papers.ShuffleAgd, _SMOOTH, "Thm 4.3")
_SMOOTHED = Method.of(SMOOTHED, "shuffler", papers.ShuffleAgdSmoothed, _KINKS, "Thm 4.7")
_RESTARTS = Method.of(RESTARTS, "shuffler", papers.ShuffleRestarts, _STRONG, "Thm 4.8")
_GD = Method.of(GD, "shuffler", papers.ShuffleGd, _FULL, "Thm 4.9", _SOME)
_PAN = Method.of(PAN, "stream", papers.PanPrivateAgd, _SMOOTH, "Thm C.3")
_STRONG_LOCAL = replace(_LOCAL, exponents=(-1.0, 1.0, -2.0))
_STRONG_CENTRAL = replace(_CENTRAL, exponents=_STRONG)
_STRONG_GD = replace(_GD, exponents=_STRONG)
METHODS: dict[str, tuple[Method, ...]] = {
    "smooth": (_AGD, _SGD, _GD, _PAN, _CENTRAL, _TREE, _LOCAL, _EXACT),
    "kinks": (
        _SMOOTHED,
        _SGD,
        _GD,
        replace(_PAN, exponents=_KINKS),
        _CENTRAL,
        _TREE,
        _LOCAL,
        _EXACT,
    ),
    "strong, smooth": (
        _RESTARTS,
        _STRONG_GD,
        replace(_PAN, exponents=_STRONG),
        _STRONG_CENTRAL,
        _STRONG_LOCAL,
        _EXACT,
    ),
    "strong, kinks": (
        replace(_RESTARTS, exponents=_BENT),
        _STRONG_GD,
        replace(_PAN, exponents=_BENT),
        _STRONG_CENTRAL,
        _STRONG_LOCAL,
        _EXACT,
    ),
}


@dataclass(frozen=True)
class ExcessRow:
    """One method on one family at one size.

    Args:
        worst: which member, from 0.
        start: the excess of the worst member at the start.
    """

    sweep: str
    family: str
    method: str
    trust: str
    n: int
    d: int
    epsilon: float
    excess: float
    excess_se: float
    worst: int
    start: float
    rounds: int
    users: int
    seconds: float
    reason: str = ""


def run_family(
    sweep: str, family: Family, method: Method, cell: Cell, data: Sequence[Data]
) -> ExcessRow:
    """One method on every problem of a family, on the same data: one data set for each seed."""
    shape = (sweep, family.name, method.name, method.trust, cell.n, cell.d, cell.epsilon)
    found: list[list[float]] = []
    began, solution, reason = time.perf_counter(), Solution(np.zeros(0), 0, 0), ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.DeltaWarning)
            for problem in family.members:
                found.append([])
                for seed, one in enumerate(data):
                    solution = method.solve(problem, family.known, one, cell, seed)
                    found[-1].append(problem.excess(solution.theta))
    except ParameterError as refusal:
        nothing, reason = (math.nan, math.nan, -1), str(refusal)
        return ExcessRow(*shape, *nothing, family.start, 0, 0, math.nan, reason)
    seconds = (time.perf_counter() - began) / (len(found) * len(data))
    worst = int(np.argmax(np.mean(found, axis=1)))
    excesses = found[worst]
    spread = float(np.std(excesses, ddof=1) / math.sqrt(len(data))) if len(data) > 1 else math.nan
    mean = float(np.mean(excesses))
    return ExcessRow(
        *shape, mean, spread, worst, family.start, solution.rounds, solution.users, seconds
    )


# A curve is fitted where it is above what exact gradients leave, and below the start, by these.
_ABOVE, _BELOW = 3.0, 0.7


@dataclass(frozen=True)
class Slope:
    """How the excess scales with one of n, d, ε.

    Args:
        points: number of sizes with an excess dominated by privacy.
        measured: the exponent; not a number with fewer than two.
    """

    family: str
    method: str
    sweep: str
    points: int
    measured: float
    stated: float
    theorem: str


def slopes(rows: Sequence[ExcessRow]) -> list[Slope]:
    """Exponents compared with the theorems', if the cost of privacy dominates."""
    found = []
    for family, methods in METHODS.items():
        for method in methods:
            for k, sweep in enumerate(SWEEPS):
                line = curve(rows, sweep, family, method.name)
                line = [row for row in line if _private_error(row, rows)]
                if method.exponents is None or not any(r.family == family for r in rows):
                    continue
                power = math.nan
                if len(line) > 1:
                    logs = np.log([[getattr(row, sweep), row.excess] for row in line])
                    power = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
                stated = method.exponents[k]
                found.append(
                    Slope(family, method.name, sweep, len(line), power, stated, method.theorem)
                )
    return found


def curve(rows: Sequence[ExcessRow], sweep: str, family: str, method: str) -> list[ExcessRow]:
    """The rows of a curve, in order."""
    line = [r for r in rows if (r.sweep, r.family, r.method) == (sweep, family, method)]
    line = [row for row in line if not math.isnan(row.excess)]
    return sorted(line, key=lambda row: float(getattr(row, sweep)))


def _private_error(row: ExcessRow, rows: Sequence[ExcessRow]) -> bool:
    # With more users exact gradients leave less: the largest number is enough.
    size = (row.family, row.d)
    exact = [r for r in rows if r.method == EXACT and (r.family, r.d) == size and r.n <= row.n]
    least = max(exact, key=lambda r: r.n).excess if exact else 0.0
    fresh = row.trust in ("shuffler", "stream") and row.method != GD
    # The noise of a batch must exceed its records' variation: dν² > G²/b.
    most = row.d * (2 / gaussian_mu(row.epsilon, DELTA)) ** 2 if fresh else math.inf
    return row.users < most and _ABOVE * least < row.excess < _BELOW * row.start


SWEEPS = ("n", "d", "epsilon")


# Users if all of them participate in every round, except in the sweep over n.
_FEW = 3000


def cells(quick: bool = False) -> dict[str, tuple[Cell, ...]]:
    """The sizes of part a, by varied parameter."""
    if quick:
        return {"n": (Cell(1000, 5, 1.0), Cell(3000, 5, 1.0))}
    base = Cell()
    return {
        "n": tuple(replace(base, n=n) for n in (1000, 3000, 10_000, 30_000, 100_000, 300_000)),
        "d": tuple(replace(base, d=d) for d in (10, 30, 100)),
        "epsilon": tuple(replace(base, epsilon=epsilon) for epsilon in (0.1, 0.3, 1.0, 3.0)),
    }


def run_families(
    sizes: dict[str, tuple[Cell, ...]], seeds: int, members: int = 6
) -> Iterator[ExcessRow]:
    """Every method on every family at every size."""
    known: dict[tuple[str, str, Cell], ExcessRow] = {}
    for sweep, some in sizes.items():
        for at in some:
            for make in FAMILIES:
                family = make(at.d, members)
                drawn: dict[int, list[Data]] = {}
                for method in METHODS[family.name]:
                    own = method.most < 10**9 and sweep != "n"
                    cell = replace(at, n=_FEW) if own else at
                    key = (family.name, method.name, cell)
                    if cell.n > method.most:
                        continue
                    if key not in known:
                        if cell.n not in drawn:
                            one = family.members[0]
                            drawn[cell.n] = [_drawn(one, cell.n, seed) for seed in range(seeds)]
                        known[key] = run_family(sweep, family, method, cell, drawn[cell.n])
                    yield replace(known[key], sweep=sweep)


def _drawn(problem: Problem, n: int, seed: int) -> Data:
    X, y, _ = problem.draw(n, 1, np.random.default_rng(seed))
    return X, y


def show_excess(rows: Sequence[ExcessRow]) -> str:
    """A table for each family and sweep: a line for each method."""
    text = []
    for family in dict.fromkeys(row.family for row in rows):
        for sweep in dict.fromkeys(row.sweep for row in rows):
            some = [row for row in rows if (row.family, row.sweep) == (family, sweep)]
            at = sorted({float(getattr(row, sweep)) for row in some})
            head = "".join(f"{value:>11,g}" for value in at)
            text.append(f"\n{f'{family}; start {some[0].start:.3g}':41}  {sweep + ' =':>9}{head}")
            for name in dict.fromkeys(row.method for row in some):
                by = {float(getattr(r, sweep)): r for r in some if r.method == name}
                line = "".join(_number(by[v].excess) if v in by else _number(math.nan) for v in at)
                last = by[max(by)]
                shape = f"{last.rounds:,} × {last.users:,} of {last.n:,}"
                text.append(f"{name:24} {shape:>26} {line}  {last.seconds:6.1f} s")
    reasons = dict.fromkeys(f"— {row.method}: {row.reason}" for row in rows if row.reason)
    return "\n".join([*text, *reasons])


def _number(value: float) -> str:
    return f"{'—' if math.isnan(value) else f'{value:.3g}':>11}"


def show_slopes(found: Sequence[Slope]) -> str:
    """Measured exponents compared with the theorems'."""
    text = [f"{'family':15} {'method':24}" + "".join(f"{s:>22}" for s in SWEEPS)]
    for family, name in dict.fromkeys((slope.family, slope.method) for slope in found):
        line = {s.sweep: s for s in found if (s.family, s.method) == (family, name)}
        parts = ""
        for sweep in SWEEPS:
            one = line[sweep]
            measured = "—" if math.isnan(one.measured) else f"{one.measured:.2f}"
            parts += f"{f'{measured} ({one.stated:.2f})':>22}"
        text.append(f"{family:15} {name:24}{parts}   {line['n'].theorem}")
    return "\n".join(text)


# Typical problems --------------------------------------------------------------------------------


def house_families(d: int) -> tuple[Family, ...]:
    """The problems of ``user_level.py``, each separately, for one record per user."""
    found = []
    for problem in problems(d):
        known = Task(problem, 1, 1).known
        found.append(
            Family(type(problem).__name__.removesuffix("Problem").lower(), (problem,), known)
        )
    return tuple(found)


def kind_of(family: Family) -> str:
    """Which methods a family is for."""
    strong, kinks = family.known.strength > 0, math.isinf(family.known.smoothness)
    return {
        (False, False): "smooth",
        (False, True): "kinks",
        (True, False): "strong, smooth",
        (True, True): "strong, kinks",
    }[strong, kinks]


def run_house(sizes: Sequence[Cell], seeds: int) -> Iterator[ExcessRow]:
    """Every method on every problem."""
    for cell in sizes:
        for family in house_families(cell.d):
            data = [_drawn(family.members[0], cell.n, seed) for seed in range(seeds)]
            for method in METHODS[kind_of(family)]:
                if cell.n <= method.most:
                    yield run_family("n", family, method, cell, data)


# Messages (part b) -----------------------------------------------------------------------------


@dataclass(frozen=True)
class MessageRow:
    """The cost of one vector sum.

    Args:
        messages: the one-bit messages that a report stands for.
        printed_report: bytes of a device with the printed numbers, its bits counted on the device.
        printed_messages: the one-bit messages with the printed numbers, which the paper sends.
        printed_seconds: of an analyzer that takes the printed messages one by one; extrapolated.
    """

    n: int
    d: int
    epsilon: float
    report: int
    poisson_report: int
    messages: float
    poisson_messages: float
    printed_report: int
    printed_messages: float
    seconds: float
    printed_seconds: float


# Reports, and messages, with measured time.
_REPORTS, _MESSAGES = 200, 200_000


def run_messages(sizes: Iterable[Cell]) -> Iterator[MessageRow]:
    """Bytes, messages and time, ours and printed."""
    for cell in sizes:
        made: dict[str, Any] = {
            "n_users": cell.n,
            "dim": cell.d,
            "l2_bound": 1.0,
            "epsilon": cell.epsilon,
            "delta": DELTA,
        }
        ours, poisson = VectorSum(**made), PoissonSum(**made)
        printed = VectorSum(**made, analysis="printed")
        yield MessageRow(
            cell.n,
            cell.d,
            cell.epsilon,
            ours.randomizer().report_bytes,
            poisson.randomizer().report_bytes,
            ours.randomizer().messages,
            poisson.randomizer().messages,
            printed.randomizer().report_bytes,
            printed.randomizer().messages,
            _seconds(ours),
            _seconds_a_message(ours) * cell.n * printed.randomizer().messages,
        )


def _seconds(protocol: VectorSum) -> float:
    """Shuffler and analyzer, for all reports of a batch."""
    count = min(protocol.n_users, _REPORTS)
    few = protocol.randomizer()
    reports = [few.report(None, seed) for seed in range(count)]
    packing = few.packing
    shuffler = Shuffler(packing, count, count)
    began = time.perf_counter()
    for report in reports:
        shuffler.receive(report)
    each = (time.perf_counter() - began) / count
    bag = shuffler.release()
    began = time.perf_counter()
    protocol.analyzer().estimate(bag)
    return each * protocol.n_users + time.perf_counter() - began


def _seconds_a_message(protocol: VectorSum) -> float:
    """The analyzer, for a one-bit message."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, protocol.dim, _MESSAGES)
    messages = np.column_stack([labels, generator.integers(0, 2, _MESSAGES)])
    began = time.perf_counter()
    protocol.analyzer().estimate_messages(messages, protocol.n_users)
    return (time.perf_counter() - began) / _MESSAGES


@dataclass(frozen=True)
class RecipeRow:
    """A recipe's requirements on a device.

    Args:
        asked: number of rounds of a device of the last phase.
        sent: bytes of such a device, all its rounds together.
        printed: the one-bit messages with the printed numbers, for the same batches and rounds.
    """

    family: str
    recipe: str
    corollary: str
    rounds: int
    batch: int
    asked: int
    sent: int
    messages: float
    printed: float


_COROLLARIES = {
    (SGD, "kinks"): "B.8",
    (AGD, "smooth"): "B.9",
    (SMOOTHED, "kinks"): "B.10",
    (GD, "smooth"): "B.11",
    (GD, "kinks"): "B.11",
}


def run_recipes(cell: Cell) -> Iterator[RecipeRow]:
    """Each recipe's requirements on a device."""
    for make in FAMILIES:
        family = make(cell.d, 1)
        for method in METHODS[family.name]:
            if method.recipe is None or method.trust != "shuffler":
                continue
            start = (0.0,) * cell.d
            task = papers.Task.of(cell.n, start, cell.epsilon, DELTA, "replace")
            program = method.recipe(family.known).plan(task)
            mean: Any = program.stages[-1].mean
            sums = mean.protocol
            printed = VectorSum(
                n_users=sums.n_users,
                dim=cell.d,
                epsilon=cell.epsilon,
                delta=DELTA,
                rounds=sums.rounds,
                analysis="printed",
            )
            yield RecipeRow(
                family.name,
                method.name,
                _COROLLARIES.get((method.name, family.name), ""),
                program.rounds,
                mean.batch,
                sums.rounds,
                sums.rounds * sums.randomizer().report_bytes,
                sums.rounds * sums.randomizer().messages,
                sums.rounds * printed.randomizer().messages,
            )


def show_messages(rows: Sequence[MessageRow]) -> str:
    """Bytes and messages of a device."""
    text = [
        f"{'n':>7} {'d':>5} {'ε':>4} {'bytes':>8} {'Poisson':>8} {'printed':>8} "
        f"{'messages':>9} {'Poisson':>9} {'printed':>9} {'ratio':>9} {'seconds':>8} {'printed':>9}"
    ]
    for r in rows:
        text.append(
            f"{r.n:7,} {r.d:5,} {r.epsilon:4g} {r.report:8,} {r.poisson_report:8,} "
            f"{r.printed_report:8,} {r.messages:9.2e} {r.poisson_messages:9.2e} "
            f"{r.printed_messages:9.2e} {r.printed_messages / r.messages:9,.0f} {r.seconds:8.2g} "
            f"{r.printed_seconds:9.2g}"
        )
    return "\n".join(text)


def show_recipes(rows: Sequence[RecipeRow]) -> str:
    """The recipes' requirements on a device."""
    text = [
        f"{'family':15} {'recipe':22} {'Cor.':>5} {'rounds':>7} {'users':>7} {'asked':>6} {'bytes':>9} "
        f"{'messages':>9} {'printed':>9} {'ratio':>9}"
    ]
    text += [
        f"{r.family:15} {r.recipe:22} {r.corollary:>5} {r.rounds:7,} {r.batch:7,} {r.asked:6,} "
        f"{r.sent:9,} {r.messages:9.2e} {r.printed:9.2e} {r.printed / r.messages:9,.0f}"
        for r in rows
    ]
    return "\n".join(text)


def message_cells(quick: bool = False) -> list[Cell]:
    """The sizes of part b."""
    if quick:
        return [Cell(100, 10, 1.0), Cell(1000, 10, 1.0)]
    sizes = [Cell(n, 100, 1.0) for n in (100, 1000, 10_000, 100_000)]
    sizes += [Cell(1000, d, 1.0) for d in (1, 10, 1000)]
    return sizes + [Cell(1000, 100, epsilon) for epsilon in (0.1, 0.3, 3.0)]


# Noise (part c) --------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoiseRow:
    """The noise of one vector sum, sd of a coordinate ÷ Δ₂.

    Args:
        influence: the most that one corrupt device can add, l2 ÷ Δ₂; in the central model 1.
        poisson_influence: the same with Poisson noise, with far truncated counts.
    """

    sweep: str
    n: int
    d: int
    epsilon: float
    honest: float
    binomial: float
    poisson: float
    central: float
    printed: float
    influence: float
    poisson_influence: float
    printed_influence: float


NOISE_SWEEPS = (*SWEEPS, "honest")


def noise_cells(quick: bool = False) -> list[tuple[str, Cell, float]]:
    """The sizes of part c."""
    base = Cell(1000, 100, 1.0)
    if quick:
        return [("n", Cell(n, 10, 1.0), 1.0) for n in (100, 1000)]
    found = [("n", replace(base, n=n), 1.0) for n in (10, 100, 1000, 10_000, 100_000)]
    found += [("d", replace(base, d=d), 1.0) for d in (1, 10, 100, 1000)]
    found += [("epsilon", replace(base, epsilon=e), 1.0) for e in (0.1, 0.3, 1.0, 3.0, 10.0)]
    return found + [("honest", base, share) for share in (0.34, 0.5, 0.7, 0.9, 1.0)]


def run_noise(sizes: Iterable[tuple[str, Cell, float]]) -> Iterator[NoiseRow]:
    """Noise, ours, central and printed."""
    for sweep, cell, honest in sizes:
        made: dict[str, Any] = {
            "n_users": cell.n,
            "dim": cell.d,
            "l2_bound": 1.0,
            "epsilon": cell.epsilon,
            "delta": DELTA,
            "honest_fraction": honest,
        }
        shape = (sweep, cell.n, cell.d, cell.epsilon, honest)
        central = 2 / gaussian_mu(cell.epsilon, DELTA)
        printed = sb.PrintedSum(cell.n, cell.d, 1.0, cell.epsilon, DELTA, honest)
        ours, poisson = VectorSum(**made), PoissonSum(**made)
        yield NoiseRow(
            *shape,
            ours.noise_sd,
            poisson.noise_sd,
            central,
            printed.noise_sd,
            ours.influence / 2,
            poisson.influence / 2,
            printed.influence / 2,
        )


def show_noise(rows: Sequence[NoiseRow]) -> str:
    """Noise and ratios."""
    text = [
        f"{'sweep':8} {'n':>7} {'d':>5} {'ε':>4} {'γ':>5} {'ours':>8} {'Poisson':>8} {'central':>8} "
        f"{'printed':>8} {'÷ central':>10} {'÷ printed':>10}  {'one device adds':>16} "
        f"{'Poisson':>9} {'printed':>9}"
    ]
    text += [
        f"{r.sweep:8} {r.n:7,} {r.d:5,} {r.epsilon:4g} {r.honest:5g} {r.binomial:8.4g} "
        f"{r.poisson:8.4g} {r.central:8.4g} {r.printed:8.4g} {r.binomial / r.central:10.4f} "
        f"{f'1/{r.printed / r.binomial:.0f}':>10}  {r.influence:16.4g} {r.poisson_influence:9.4g} "
        f"{r.printed_influence:9.4g}"
        for r in rows
    ]
    return "\n".join(text)


@dataclass(frozen=True)
class FaultRow:
    """One round in which some devices do not report, or do not follow the protocol.

    Args:
        corrupt: devices that send the most that is let through, for every coordinate.
        promised: the remaining ε for devices that follow the protocol.
        error: rms error of a coordinate of the sum of honest reports, without the bias.
        bias: l2, the measured contribution of corrupt devices.
        influence: l2, their largest contribution: half of the largest difference between counts.
        central: l2, the contribution of the same number of people in the central model: vectors of
            norm 1.
    """

    n: int
    d: int
    epsilon: float
    honest: float
    dropped: int
    corrupt: int
    promised: float
    error: float
    stated: float
    bias: float
    influence: float
    central: float


def run_faults(quick: bool = False) -> Iterator[FaultRow]:
    """Drop-outs and corrupt devices, in a batch that 70% of suffice for."""
    n, d, epsilon, honest = (200, 50, 1.0, 0.7) if quick else (1000, 1000, 1.0, 0.7)
    protocol = VectorSum(n_users=n, dim=d, epsilon=epsilon, delta=DELTA, honest_fraction=honest)
    most = protocol.randomizer().packing.largest
    X = sphere(np.random.default_rng(0), n, d)
    for dropped, corrupt in ((0, 0), (n // 10, 0), (3 * n // 10, 0), (0, 1), (0, n // 10)):
        kept = n - dropped - corrupt
        sent = np.full((corrupt, d), most) if corrupt else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.DeltaWarning)
            found = protocol.simulate(
                X[: n - corrupt], random_state=_NOISE, dropped=dropped, corrupt=sent
            )
        away = found - X[:kept].sum(axis=0)
        bias = float(away.mean())
        yield FaultRow(
            n,
            d,
            epsilon,
            honest,
            dropped,
            corrupt,
            protocol.guarantee_with(kept / n).epsilon(),
            float(np.std(away)),
            protocol.analyzer().standard_error(n - dropped),
            abs(bias) * math.sqrt(d) if corrupt else 0.0,
            corrupt * protocol.influence / 2,
            float(corrupt),
        )


def show_faults(rows: Sequence[FaultRow]) -> str:
    """Errors and biases."""
    first = rows[0]
    text = [
        f"\nn = {first.n:,}, d = {first.d:,}, noise made for γ = {first.honest:g}",
        f"{'dropped':>8} {'corrupt':>8} {'ε left':>7} {'error':>8} {'stated':>8} {'bias':>9} "
        f"{'at most':>9} {'central':>8}",
    ]
    text += [
        f"{r.dropped:8,} {r.corrupt:8,} {r.promised:7.3f} {r.error:8.3f} {r.stated:8.3f} "
        f"{r.bias:9.4g} {r.influence:9.4g} {r.central:8.4g}"
        for r in rows
    ]
    return "\n".join(text)


# Figures ---------------------------------------------------------------------------------------

_STYLES: dict[str, tuple[str, str, str]] = {
    SGD: ("tab:purple", "-", "o"),
    AGD: ("tab:blue", "-", "s"),
    SMOOTHED: ("tab:blue", "-", "s"),
    RESTARTS: ("tab:cyan", "-", "P"),
    GD: ("tab:green", "-", "^"),
    PAN: ("tab:olive", "--", "D"),
    CENTRAL: ("black", "-", "v"),
    TREE: ("tab:orange", "--", "X"),
    LOCAL: ("tab:red", "--", "*"),
    EXACT: ("silver", ":", ""),
}
_LABELS = {"n": "users n", "d": "parameters d", "epsilon": "ε", "honest": "honest share γ"}


def draw_excess(rows: Sequence[ExcessRow]) -> Figure:
    """Excess of the worst member: a row of panels for each family, a panel for each sweep."""
    import matplotlib.pyplot as plt

    panels = list(dict.fromkeys((row.family, row.sweep) for row in rows))
    panels.sort(key=lambda panel: [row.family for row in rows].index(panel[0]))
    wide = len({sweep for _, sweep in panels})
    wide = len(panels) if wide == 1 else wide
    tall = -(-len(panels) // wide)
    figure, axes = plt.subplots(
        tall, wide, figsize=(2.4 + 3.3 * wide, 0.6 + 3.0 * tall), layout="constrained",
        squeeze=False, sharey="row",
    )  # fmt: skip
    for ax, (family, sweep) in zip(axes.ravel(), panels, strict=True):
        _curves(ax, rows, sweep, family)
        sizes = sorted({row.n for row in rows if (row.family, row.sweep) == (family, sweep)})
        hollow = f" (hollow: {sizes[0]:,})" if sizes[0] < sizes[-1] else ""
        where = "" if sweep == "n" else f", n = {sizes[-1]:,}{hollow}"
        ax.set_title(family + where, fontsize=9)
        ax.set_xlabel(_LABELS[sweep])
    for line in axes:
        line[0].set_ylabel("excess risk")
    _legend(figure, axes.ravel())
    return figure


def _curves(ax: Axes, rows: Sequence[ExcessRow], sweep: str, family: str) -> None:
    """One panel; hollow marks where there are fewer users than for other curves."""
    start, ticks = math.nan, set[float]()
    most = max(row.n for row in rows if (row.family, row.sweep) == (family, sweep))
    for name, (colour, style, marker) in _STYLES.items():
        line = curve(rows, sweep, family, name)
        if not line:
            continue
        at, excess = [getattr(row, sweep) for row in line], [row.excess for row in line]
        spread = [0.0 if math.isnan(row.excess_se) else row.excess_se for row in line]
        hollow = sweep != "n" and line[0].n < most
        ax.errorbar(
            at, excess, spread, fmt=style, marker=marker, color=colour, markersize=4.5,
            linewidth=1.3, elinewidth=0.8, markerfacecolor="white" if hollow else colour,
            label=_SHORT.get(name, name),
        )  # fmt: skip
        start, ticks = line[0].start, ticks | set(at)
    ax.axhline(start, color="grey", linestyle=":", linewidth=1.2, label="the start")
    # Numbers of users are long: every power of ten is enough.
    decades = {tick for tick in ticks if math.log10(tick) % 1 < 1e-9}
    _log_axes(ax, sorted(decades if sweep == "n" and len(decades) > 1 else ticks))


# Both in one line of the legend: problems have kinks or have not.
_SHORT = {SMOOTHED: AGD}


def draw_messages(rows: Sequence[MessageRow]) -> Figure:
    """Messages and bytes of a device, and time, against n and ε."""
    import matplotlib.pyplot as plt

    base = (1000, 100, 1.0)
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained", sharey=True)
    curves: tuple[tuple[str, str, str, str], ...] = (
        ("printed_messages", "printed, messages", "black", "-."),
        ("messages", "ours, messages", "tab:blue", "-"),
        ("poisson_messages", "ours, Poisson, messages", "tab:cyan", "-"),
        ("printed_report", "printed, bytes of counts", "grey", ":"),
        ("report", "ours, bytes of counts", "tab:orange", "--"),
    )
    for ax, sweep, place in zip(axes, SWEEPS, range(3), strict=True):
        some = [
            row
            for row in rows
            if all(k == place or (row.n, row.d, row.epsilon)[k] == base[k] for k in range(3))
        ]
        some = sorted(some or rows, key=lambda row: float(getattr(row, sweep)))
        at = [getattr(row, sweep) for row in some]
        for name, label, colour, style in curves:
            ax.plot(
                at, [getattr(row, name) for row in some], style, color=colour, marker="o",
                markersize=3.5, label=label,
            )  # fmt: skip
        ax.set(xlabel=_LABELS[sweep])
        _log_axes(ax, at)
    axes[0].set_ylabel("of one device, for one vector sum")
    _legend(figure, axes)
    return figure


# A column, its name, colour, style and width.
_Curve = tuple[str, str, str, str, float]


def draw_noise(rows: Sequence[NoiseRow]) -> Figure:
    """Noise of one sum, and one device's largest contribution, against each of n, d, ε, γ."""
    import matplotlib.pyplot as plt

    there = [sweep for sweep in NOISE_SWEEPS if any(row.sweep == sweep for row in rows)]
    figure, axes = plt.subplots(
        2, len(there), figsize=(2.2 + 3.2 * len(there), 7.2), layout="constrained", squeeze=False,
        sharey="row", sharex="col",
    )  # fmt: skip
    above: list[_Curve] = [
        ("printed", "printed", "black", "-.", 1.3),
        ("poisson", "ours, Poisson", "tab:cyan", "-", 5.0),
        ("binomial", "ours, binomial", "tab:blue", "-", 1.5),
        ("central", "central", "tab:orange", "--", 1.3),
    ]
    adds = ("printed_influence", "poisson_influence", "influence")
    below: list[_Curve] = [(name, *line[1:]) for name, line in zip(adds, above, strict=False)]
    for column, sweep in zip(axes.T, there, strict=True):
        some = [row for row in rows if row.sweep == sweep]
        at = [getattr(row, sweep) for row in some]
        for ax, curves in zip(column, (above, below), strict=True):
            for name, label, colour, style, width in curves:
                line = [getattr(row, name) for row in some]
                ax.plot(at, line, style, color=colour, marker="o", markersize=4, linewidth=width,
                        label=label)  # fmt: skip
            _log_axes(ax, at)
        column[1].axhline(1.0, color="tab:orange", linestyle="--", linewidth=1.3)
        column[1].set(xlabel=_LABELS[sweep])
    axes[0][0].set_ylabel("sd of a coordinate of the sum ÷ Δ₂")
    axes[1][0].set_ylabel("what one corrupt device can add ÷ Δ₂")
    _legend(figure, axes.ravel())
    return figure


# Parts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Command-line options."""

    out: Path
    seeds: int = 2
    quick: bool = False


def part_a(options: Options) -> None:
    """Excess risk."""
    members = 2 if options.quick else 6
    rows = list(run_families(cells(options.quick), options.seeds, members))
    print(show_excess(rows))
    found = slopes(rows)
    print("\nexponents, measured (and the theorem's), where privacy is what costs")
    print(show_slopes(found))
    write(options.out, "shuffle_excess", rows, draw_excess(rows))
    write(options.out, "shuffle_slopes", found)
    some = (500, 1000) if options.quick else (1000, 3000, 10_000, 30_000, 100_000)
    sizes = [Cell(n, 5 if options.quick else 10, 1.0) for n in some]
    house = list(run_house(sizes, options.seeds))
    print(show_excess(house))
    write(options.out, "shuffle_problems", house, draw_excess(house))


def part_b(options: Options) -> None:
    """Messages, bytes and time."""
    rows = list(run_messages(message_cells(options.quick)))
    print(show_messages(rows))
    write(options.out, "shuffle_messages", rows, draw_messages(rows))
    asked = list(run_recipes(Cell(2000, 5, 1.0) if options.quick else Cell()))
    print("\nof one device, for a whole run")
    print(show_recipes(asked))
    write(options.out, "shuffle_recipes", asked)


def part_c(options: Options) -> None:
    """Noise, drop-outs, corrupt devices."""
    rows = list(run_noise(noise_cells(options.quick)))
    print(show_noise(rows))
    write(options.out, "shuffle_noise", rows, draw_noise(rows))
    faults = list(run_faults(options.quick))
    print(show_faults(faults))
    write(options.out, "shuffle_faults", faults)


PARTS: dict[str, Callable[[Options], None]] = {"a": part_a, "b": part_b, "c": part_c}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the requested parts."""
    import matplotlib as mpl

    mpl.use("Agg")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--part", choices=list(PARTS), help="run one part")
    parser.add_argument("--out", type=Path, default=Path("experiments/out"), help="output folder")
    parser.add_argument("--seeds", type=int, default=2, help="data sets of each problem")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    given = parser.parse_args(arguments)
    if given.seeds < 1:
        parser.error("--seeds must be at least 1.")
    options = Options(given.out, 1 if given.quick else given.seeds, given.quick)
    for name, part in PARTS.items():
        if given.part in (None, name):
            began = time.perf_counter()
            print(f"\n# {name}: {part.__doc__}", flush=True)
            part(options)
            print(f"({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
