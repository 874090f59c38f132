"""Simulated logistic regression: Section 4.2 and Figure 3 of the element-level paper.

n = 1000 users with m = 50 records each, in dimension 10. A record is near one of K = 10 centres,
its element; a user has k = 2, 5 or 8 of them. T = 200 private steps (15) of length α₀/√t, each
element's mean gradient clipped; the error is ‖θ̂ − θ*‖ of the final iterate.

Two parts, drawn side by side:

- errors against ε, for elements and for users as the unit. Pairs (user, element) are sampled, for a
  valid amplification. As in the paper, the rate q and the step α₀ are the
  best for each ε in hindsight, on separate samples: their choice is not charged.
- bills: the same steps with the paper's sampling: users are sampled, and each element is accounted
  for as if it was sampled separately. Next to the stated ε: the true cost, between a test of two
  neighbours (``tests/oracle.py``, independent of the library) and the proved bound. All of these
  compose numerically, so only the false amplification separates them.

The relation is the paper's (a replaced element), δ = 1e-5. Random numbers are seeded, so results
repeat exactly; a seeded release is not private.

    python experiments/logistic_simulation.py [--repetitions 12] [--out experiments/out] [--quick]
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from results import show, track, write
from scipy.special import expit

import dpgrain as dg
from dpgrain.accounting import SampledGaussian
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.means import ClippedMean
from dpgrain.noise.sources import random_source
from dpgrain.optimize import Last, Logistic, Power, Sgd
from dpgrain.optimize import run as solve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Level = Literal["element", "user"]

CENTRES, DIMENSION, DELTA = 10, 10, 1e-5
HELD = (2, 5, 8)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
RATES = (0.1, 1.0)
STEPS = (1.0, 2.0, 4.0, 8.0, 16.0)
# The clipping bound ρ of a block's mean gradient; without noise ½ serves all k about equally well.
CLIP = 0.5
# The sampling rate of users in the second part.
BILLED_RATE = 0.1
# The paper's error bands.
_BAND = 1.64


# Data ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """How large a simulation is."""

    users: int = 1000
    records: int = 50
    rounds: int = 200


@dataclass(frozen=True)
class Sample:
    """Records of the paper's hierarchical model.

    Args:
        X: (n·m, d): the centre of the record's element plus a point of the unit sphere.
        y: (n·m,) in {0, 1}, logistic in ⟨x, θ*⟩.
        user: (n·m,).
        element: (n·m,) which centre.
        theta: (d,) θ*, on the unit sphere.
        held: k, the number of elements of a user.
    """

    X: NDArray[np.float32]
    y: NDArray[np.float32]
    user: IntArray
    element: IntArray
    theta: FloatArray
    size: Size
    held: int

    @staticmethod
    def draw(size: Size, held: int, seed: int) -> Sample:
        """Fresh centres, θ* and records; for all k the same centres and θ*."""
        common = np.random.default_rng(seed)
        centres, theta = sphere(common, CENTRES), sphere(common, 1)[0]
        g = np.random.default_rng([held, seed])
        n, m = size.users, size.records
        holds = np.argsort(g.random((n, CENTRES)), axis=1)[:, :held]
        element = np.take_along_axis(holds, g.integers(0, held, (n, m)), axis=1).ravel()
        X = centres[element] + sphere(g, n * m)
        y = g.random(n * m) < expit(X @ theta)
        user = np.repeat(np.arange(n), m)
        return Sample(X.astype(np.float32), y.astype(np.float32), user, element, theta, size, held)

    @cached_property
    def _pairs(self) -> tuple[LinearBlocks, IntArray]:
        present, codes = np.unique(self.user * CENTRES + self.element, return_inverse=True)
        return LinearBlocks.arrange(self.X, self.y, codes, intercept=False), present // CENTRES

    @cached_property
    def _users(self) -> tuple[LinearBlocks, IntArray]:
        blocks = LinearBlocks.arrange(self.X, self.y, self.user, intercept=False)
        return blocks, np.arange(self.size.users)

    def blocks(self, level: Level) -> tuple[LinearBlocks, IntArray]:
        """The clipped blocks, and their users."""
        return self._pairs if level == "element" else self._users


def sphere(g: np.random.Generator, count: int) -> FloatArray:
    """(count, d) points of the unit sphere."""
    points = g.standard_normal((count, DIMENSION))
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))


# One run ---------------------------------------------------------------------------------------


def private_mean(size: Size, level: Level, epsilon: float, rate: float, held: int) -> ClippedMean:
    """The mean of sampled blocks with noise for ε over all rounds; divided by q·n·k."""
    found = _calibrated(size, level, epsilon, rate)
    return found.scaled(clip=CLIP, blocks_per_user=held if level == "element" else 1)


def _calibrated(size: Size, level: Level, epsilon: float, rate: float) -> ClippedMean:
    key = (size, level, epsilon, rate)
    if key not in _FOUND:
        _FOUND[key] = ClippedMean.calibrate(
            epsilon=epsilon,
            delta=DELTA,
            n_users=size.users,
            rounds=size.rounds,
            unit=dg.Element() if level == "element" else dg.User(),
            relation="replace",
            sampling_rate=rate,
        )
    return _FOUND[key]


_FOUND: dict[tuple[Size, Level, float, float], ClippedMean] = {}


def error(sample: Sample, mean: ClippedMean, first: float, seed: int) -> float:
    """‖θ̂ − θ*‖ after all private steps of length α₀/√t from 0."""
    blocks, owners = sample.blocks(mean.level if mean.level == "user" else "element")
    rounds = mean.start(random_source(seed), owners)

    def gradient(theta: FloatArray) -> FloatArray:
        return rounds.estimate(_gradients(blocks, theta))

    return _distance(sample, gradient, first)


def plain_error(sample: Sample, first: float) -> float:
    """The error without noise, clipping and sampling."""
    blocks, _ = sample.blocks("element")

    def gradient(theta: FloatArray) -> FloatArray:
        return _gradients(blocks, theta).clipped_sum(math.inf) / blocks.blocks

    return _distance(sample, gradient, first)


def _gradients(blocks: LinearBlocks, theta: FloatArray) -> LinearGradients:
    return LinearGradients(blocks, Logistic(), theta)


def _distance(sample: Sample, gradient: Any, first: float) -> float:
    solver = Sgd(Power(first, 0.5), average=Last())
    found = solve(solver, gradient, np.zeros(DIMENSION), sample.size.rounds)
    return float(np.linalg.norm(found - sample.theta))


# Error against ε -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ErrorRow:
    """One line's point.

    Args:
        unit: the privacy unit: an element, a user, or none.
        held: k, of 10.
    """

    unit: str
    held: int
    epsilon: float
    rate: float
    step: float
    error: float
    se: float


def run_errors(
    size: Size,
    *,
    held: Sequence[int] = HELD,
    epsilons: Sequence[float] = EPSILONS,
    rates: Sequence[float] = RATES,
    steps: Sequence[float] = STEPS,
    repetitions: int = 12,
    tuning: int = 4,
) -> list[ErrorRow]:
    """Measure errors, with the best q and α₀ of some samples used on others.

    Args:
        tuning: further samples for the choice of q and α₀.
    """
    rows = []
    for k in held:
        samples = [Sample.draw(size, k, seed) for seed in range(repetitions + tuning)]
        rows.append(_plain_row(samples, steps, tuning))
        levels: tuple[Level, ...] = ("element", "user")
        cases = [(level, epsilon) for level in levels for epsilon in epsilons]
        for level, epsilon in track(cases, f"k = {k}"):
            means = [private_mean(size, level, epsilon, rate, k) for rate in rates]
            best = min(
                ((mean, step) for mean in means for step in steps),
                key=lambda pair: sum(error(samples[i], pair[0], pair[1], i) for i in range(tuning)),
            )
            rows.append(_row(level, k, epsilon, samples, best, tuning))
    return rows


def _plain_row(samples: Sequence[Sample], steps: Sequence[float], tuning: int) -> ErrorRow:
    step = min(steps, key=lambda s: sum(plain_error(x, s) for x in samples[:tuning]))
    errors = np.array([plain_error(sample, step) for sample in samples[tuning:]])
    return ErrorRow("none", samples[0].held, math.inf, 1.0, step, *_summary(errors))


def _row(
    unit: str,
    held: int,
    epsilon: float,
    samples: Sequence[Sample],
    best: tuple[ClippedMean, float],
    tuning: int,
) -> ErrorRow:
    mean, step = best
    runs = enumerate(samples[tuning:], start=tuning)
    errors = np.array([error(sample, mean, step, seed) for seed, sample in runs])
    return ErrorRow(unit, held, epsilon, mean.sampling_rate, step, *_summary(errors))


def _summary(errors: FloatArray) -> tuple[float, float]:
    """Mean and standard error."""
    return float(errors.mean()), float(errors.std(ddof=1) / math.sqrt(errors.size))


# Bills -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BillRow:
    """Runs that draw users.

    Args:
        held: k, of 10; a user's number of elements is public, which lowers the cost.
        billed: ε as the paper states it: as if each element was sampled separately.
        cost: proved ε of elements: an upper bound on the cost.
        noise_multiplier: noise sd ÷ ρ of a round.
        step: α₀, the best by hindsight; NaN if nothing was run.
    """

    held: int
    rate: float
    billed: float
    at_least: float
    cost: float
    noise_multiplier: float
    step: float = math.nan
    error: float = math.nan
    se: float = math.nan


def cost(mean: ClippedMean, held: int) -> float:
    """ε of the same steps for one element if users are drawn, each with k elements at most."""
    event = SampledGaussian(mean.noise_multiplier, mean.sampling_rate, mean.rounds, "users")
    return event.epsilon(DELTA, relation="replace", max_elements=held)


def at_least(mean: ClippedMean, held: int) -> float:
    """ε that those steps do not keep: an element of a user is exchanged for its opposite.

    The user's other elements point one way, so their sum reveals the user's rounds. The replaced
    one points the same way, or orthogonally.
    """
    oracle, rate = _oracle(), mean.sampling_rate
    others = float(held - 1)
    aligned = [oracle.sampled(rate, [others + side]) for side in (1.0, -1.0)]
    across = [oracle.sampled(rate, [side, others]) for side in (1.0, -1.0)]
    fixed = (mean.noise_multiplier, mean.rounds, DELTA)
    return float(
        max(
            oracle.at_least(*aligned, *fixed, points=2000),
            oracle.at_least(*across, *fixed, points=200),
        )
    )


@cache
def _oracle() -> ModuleType:
    path = Path(__file__).parent.parent / "tests" / "oracle.py"
    spec = importlib.util.spec_from_file_location("tests_oracle", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"the lower bounds need {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Columns of the table of bills: k and q.
_COLUMNS = ((2, 0.1), (5, 0.1), (8, 0.1), (8, 0.02))


def bills_table(size: Size) -> list[str]:
    """The true ε of runs that sample users, from a test to a proof, in Markdown."""
    names = " | ".join(f"k = {k}{', q = 0.02' if q < BILLED_RATE else ''}" for k, q in _COLUMNS)
    lines = [f"| billed | {names} |", f"| ---: | {' | '.join(['---:'] * len(_COLUMNS))} |"]
    for epsilon in EPSILONS:
        cells = []
        for k, q in _COLUMNS:
            mean = private_mean(size, "element", epsilon, q, k)
            low, high = f"{at_least(mean, k):.3g}", f"{cost(mean, k):.3g}"
            cells.append(low if low == high else f"{low} – {high}")
        lines.append(f"| {epsilon:g} | {' | '.join(cells)} |")
    return lines


def run_bills(
    size: Size,
    *,
    held: Sequence[int] = HELD,
    epsilons: Sequence[float] = EPSILONS,
    rates: Sequence[float] = (0.02, 0.1, 0.3, 1.0),
    rate: float = BILLED_RATE,
    steps: Sequence[float] = STEPS,
    repetitions: int = 12,
    tuning: int = 4,
) -> list[BillRow]:
    """The stated and true ε of runs that sample users; runs at ``rate`` are executed."""
    rows = []
    for k in held:
        samples = [Sample.draw(size, k, seed) for seed in range(repetitions + tuning)]
        for q in rates:
            for epsilon in track(epsilons, f"bills, k = {k}, q = {q:g}"):
                mean = private_mean(size, "element", epsilon, q, k)
                costs = (at_least(mean, k), cost(mean, k))
                row = BillRow(k, q, epsilon, *costs, mean.noise_multiplier)
                rows.append(_carried_out(row, samples, mean, steps, tuning) if q == rate else row)
    return rows


def _carried_out(
    row: BillRow, samples: list[Sample], mean: ClippedMean, steps: Sequence[float], tuning: int
) -> BillRow:
    drawn = replace(mean, sampling="users")
    step = min(steps, key=lambda s: sum(error(samples[i], drawn, s, i) for i in range(tuning)))
    found = _row("element", row.held, row.billed, samples, (drawn, step), tuning)
    return replace(row, step=step, error=found.error, se=found.se)


# Tables and figure -----------------------------------------------------------------------------


def draw(errors: Sequence[ErrorRow], bills: Sequence[BillRow]) -> Figure:
    """Errors against guaranteed ε; errors against stated and true ε."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.8), layout="constrained", sharey=True, width_ratios=(1, 1.15)
    )
    held = sorted({row.held for row in errors})
    colours = dict(
        zip(held, plt.get_cmap("viridis")(np.linspace(0.05, 0.82, len(held))), strict=True)
    )
    for k in held:
        colour = colours[k]
        for unit, style, marker in (("element", "-", "o"), ("user", "--", "s")):
            line = [row for row in errors if row.held == k and row.unit == unit]
            _band(left, [row.epsilon for row in line], line, style, marker, colour)
        (plain,) = (row for row in errors if row.held == k and row.unit == "none")
        left.axhline(plain.error, color=colour, linewidth=1, linestyle=":")
        carried = [row for row in bills if row.held == k and not math.isnan(row.error)]
        _band(right, [row.billed for row in carried], carried, "--", "o", colour, hollow=True)
        for row in carried:
            # The known range of the cost, from the lower to the upper bound.
            ends, at = [row.at_least, row.cost], [row.error] * 2
            right.plot(ends, at, "|-", color=colour, linewidth=3, alpha=0.55, markersize=7)
            right.plot([row.billed, row.at_least], at, ":", color=colour, linewidth=0.9, alpha=0.8)
    epsilons = sorted({row.epsilon for row in errors if row.unit != "none"})
    rate = next((row.rate for row in bills if not math.isnan(row.error)), BILLED_RATE)
    left.set(title="Sampled pairs: the stated ε holds", xlabel="ε", ylabel="‖θ̂ − θ*‖")
    right.set(title=f"Sampled users, q = {rate:g}: stated ε, and its true size", xlabel="ε")
    far = max(row.cost for row in bills if not math.isnan(row.error))
    for ax, last in ((left, epsilons[-1]), (right, far)):
        ticks = [e for e in (0.5, 1, 2, 4, 8, 16, 32, 64, 128) if epsilons[0] <= e <= last * 1.2]
        ax.set(xscale="log", yscale="log")
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.grid(visible=True, color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.xaxis.minorticks_off()
    values = (0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2)
    left.yaxis.set_minor_locator(NullLocator())
    left.set_yticks(values, [f"{value:g}" for value in values])
    left.set_ylim(*_limits(errors, bills))
    _legend(left, colours, [("-", "o", "element"), ("--", "s", "user"), (":", "", "not private")])
    _legend(right, {}, [("--", "o", "as stated"), ("-", "|", "true ε: at least, at most")])
    return figure


def _limits(errors: Sequence[ErrorRow], bills: Sequence[BillRow]) -> tuple[float, float]:
    rows: list[ErrorRow | BillRow] = [*errors, *bills]
    found = [row.error for row in rows if not math.isnan(row.error)]
    return 0.85 * min(found), 1.15 * max(found)


def _band(
    ax: Any,
    at: Sequence[float],
    line: Sequence[ErrorRow | BillRow],
    style: str,
    marker: str,
    colour: Any,
    *,
    hollow: bool = False,
) -> None:
    """A line with the paper's ±1.64 standard errors."""
    mean = np.array([row.error for row in line])
    half = _BAND * np.array([row.se for row in line])
    face = "white" if hollow else colour
    ax.plot(at, mean, style, color=colour, marker=marker, markersize=4.5, markerfacecolor=face)
    ax.fill_between(at, mean - half, mean + half, color=colour, alpha=0.13, linewidth=0)


def _legend(ax: Any, colours: dict[int, Any], styles: Sequence[tuple[str, str, str]]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, linewidth=3, label=f"clusters: {k}/{CENTRES}")
        for k, colour in colours.items()
    ]
    for style, marker, label in styles:
        face = "white" if label == "as stated" else "0.3"
        looks: dict[str, Any] = {"linestyle": style, "marker": marker, "markerfacecolor": face}
        handles.append(Line2D([], [], color="0.3", markersize=4.5, label=label, **looks))
    ax.legend(handles=handles, frameon=False, fontsize=8.5)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both parts, print their tables, write them and the figure."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=12, help="fresh samples per point")
    parser.add_argument("--out", type=Path, default=Path("experiments/out"), help="output folder")
    parser.add_argument("--quick", action="store_true", help="a small size, in seconds")
    given = parser.parse_args(arguments)
    if given.repetitions < 2:
        parser.error("--repetitions must be at least 2, for standard errors.")
    size, options = Size(), dict[str, Any](repetitions=given.repetitions)
    if given.quick:
        size = Size(users=200, records=10, rounds=20)
        options = {"repetitions": 2, "tuning": 1, "held": (2, 8), "epsilons": (1.0, 8.0)}
        options |= {"steps": (1.0, 4.0), "rates": (0.1, 1.0)}
    began = time.perf_counter()
    with warnings.catch_warnings():
        # δ = 1e-5 for 1000 users is the comparison's.
        warnings.simplefilter("ignore", dg.DeltaWarning)
        errors = run_errors(size, **options)
        bills = run_bills(size, **options)
    print(show(errors), show(bills), sep="\n\n")
    write(given.out, "logistic_errors", errors)
    write(given.out, "logistic_bills", bills)
    figure = draw(errors, bills)
    figure.savefig(given.out / "logistic_simulation.png", dpi=160)
    plt.close(figure)
    print(f"({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
