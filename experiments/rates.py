"""The exponents of the user-level papers' theorems, and of the shuffle model's.

    python experiments/rates.py [--users 1000 3000 …] [--plot docs/pictures/rates.png]

A recipe plans rounds, noise and steps from public numbers, and its solver is run on a loss that is
known: each round it gets the true gradient of its smoothed loss, noise of the planned size, and the
sampling error, a normal vector of the rms norm G/√(nm), the same in all rounds with the same users.
No records are generated, so a million users cost as much as a thousand. The table has the largest
mean excess over a family of losses (cones and parabolas of all steepnesses, because no single loss
is the worst for all sizes), and the exponent of n, by least squares over all sizes and over each
decade. G = R = 1, m = 100 records per user, d = 10, ε = 1, δ = 1e-6, ``zero_out``; means of two
runs. Four minutes of one processor.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain import papers
from dpgrain.errors import ParameterError
from dpgrain.optimize import run
from dpgrain.papers import Known, Program, RandomizedBall, Recipe, Stage, Task

Array = NDArray[np.float64]

USERS = (1000, 10_000, 100_000, 1_000_000)
DIMENSION, RECORDS, DELTA, SEEDS = 10, 100, 1e-6, 2
# Steepness of the losses; the worst counts.
STEEP = (1.0, 0.3, 0.1, 0.03, 0.01)
# Least curvature of the strongly convex losses.
STRENGTH = 0.5
# Points that average a randomly smoothed gradient.
_AROUND = 64


@dataclass(frozen=True)
class Basin:
    """c‖θ − t‖ + k/2·‖θ − t‖²: one record's loss, and all of them agree.

    Args:
        truth: t, (d,).
    """

    truth: Array
    cone: float
    curve: float

    def excess(self, theta: Array) -> float:
        """Above the least loss, which is 0."""
        far = float(np.linalg.norm(theta - self.truth))
        return self.cone * far + self.curve / 2 * far**2

    def gradient(self, theta: Array, stage: Stage, rng: np.random.Generator) -> Array:
        """The gradient of the loss, smoothed for a stage."""
        if isinstance(stage.smoothing, RandomizedBall):
            way = rng.normal(size=(_AROUND, len(theta)))
            way /= np.linalg.norm(way, axis=1, keepdims=True)
            reach = stage.smoothing.radius * rng.random((_AROUND, 1)) ** (1 / len(theta))
            return np.asarray(self._at(theta + reach * way).mean(axis=0))
        if stage.smoothing is None:
            return np.asarray(self._at(theta[None])[0])
        # The envelope's: β(θ − prox), by the way to the tip.
        step, away = 1 / stage.smoothing, theta - self.truth
        far = float(np.linalg.norm(away))
        left = max(1 - step * self.cone / far, 0.0) / (1 + step * self.curve) if far else 0.0
        return np.asarray((1 - left) * away / step)

    def _at(self, points: Array) -> Array:
        away = points - self.truth
        far = np.linalg.norm(away, axis=1, keepdims=True)
        return np.asarray((self.cone / np.where(far > 0, far, 1.0) + self.curve) * away)


@dataclass(frozen=True)
class Theorem:
    """A theorem, the recipe for it, and the losses it is for.

    Args:
        family: ``"kinks"``, ``"smooth"`` or ``"strong"``.
    """

    name: str
    recipe: Callable[[Known], Recipe]
    exponent: float
    family: str


@dataclass(frozen=True)
class Unlimited:
    """Accelerated steps on soft-core means, in all rounds that pay, also beyond a thousand."""

    known: Known

    def plan(self, task: Task) -> Program:
        """Plan 2/max(4τν, 1/√(nm)) rounds."""
        noise = 4 * self.known.radius_for(task.n_users, 1) * task.noise()
        left = max(noise, 1 / math.sqrt(task.n_users * self.known.records))
        return papers.UserLevelAgd(self.known, math.ceil(2 / left)).plan(task)


THEOREMS = (
    Theorem(
        "Asi & Liu 4.1, plain", lambda k: papers.UserLevelSgd(k, smoothing="moreau"), -1, "kinks"
    ),
    Theorem("Asi & Liu 4.1, accelerated", papers.UserLevelAgd, -1, "kinks"),
    Theorem("the same, T not limited", Unlimited, -1, "kinks"),
    Theorem("Levy et al. 4", papers.WinsorizedErm, -1, "smooth"),
    Theorem("Levy et al. 5", papers.PhasedErmSco, -1, "smooth"),
    Theorem("Cheu et al. 4.1", papers.ShuffleSgd, -0.5, "kinks"),
    Theorem("Cheu et al. 4.3", papers.ShuffleAgd, -0.8, "smooth"),
    Theorem("Cheu et al. 4.7", papers.ShuffleAgdSmoothed, -2 / 3, "kinks"),
    Theorem("Cheu et al. 4.9", papers.ShuffleGd, -1, "kinks"),
    Theorem(
        "Asi & Liu 4.11, plain",
        lambda k: papers.UserLevelSgdStronglyConvex(k, steps="plain"),
        -2,
        "strong",
    ),
    Theorem("Asi & Liu 4.11, accelerated", papers.UserLevelSgdStronglyConvex, -2, "strong"),
    Theorem("Cheu et al. 4.8", papers.ShuffleRestarts, -4 / 3, "strong"),
    Theorem("Cheu et al. 4.9, strong", papers.ShuffleGd, -2, "strong"),
)
#: Public parameters of each family; with parabolas of curvature up to 1.
KNOWN = {
    "kinks": Known(distance=1.0, lipschitz=1.0, records=RECORDS),
    "smooth": Known(distance=1.0, lipschitz=1.0, smoothness=1.0, records=RECORDS),
    "strong": Known(distance=1.0, lipschitz=1.0, strength=STRENGTH, records=RECORDS),
}


def basins(family: str, rng: np.random.Generator) -> list[Basin]:
    """The losses of a family, each with the truth at the distance R in a random direction."""
    way = rng.normal(size=DIMENSION)
    truth = way / np.linalg.norm(way)
    match family:
        case "kinks":
            return [Basin(truth, steep, 0.0) for steep in STEEP]
        case "smooth":
            return [Basin(truth, 0.0, steep) for steep in STEEP]
        case _:
            return [Basin(truth, steep * (1 - STRENGTH), STRENGTH) for steep in STEEP]


def end_of(program: Program, basin: Basin, rng: np.random.Generator) -> float:
    """The excess where the phases of a program end."""
    theta = np.zeros(DIMENSION)
    for stage, phase in zip(program.stages, program.localisation.phases(), strict=True):
        mean, centre = stage.mean, theta
        asked = getattr(mean, "batch", len(phase.users)) if mean.fresh else len(phase.users)
        error = 1 / math.sqrt(asked * RECORDS * DIMENSION)
        sample = rng.normal(scale=error, size=DIMENSION)

        def oracle(
            at: Array,
            stage: Stage = stage,
            centre: Array = centre,
            pull: float = phase.strength,
            error: float = error,
            sample: Array = sample,
        ) -> Array:
            if stage.mean.fresh:
                sample = rng.normal(scale=error, size=DIMENSION)
            noise = rng.normal(scale=stage.mean.noise_sd, size=DIMENSION)
            return basin.gradient(at, stage, rng) + sample + noise + pull * (at - centre)

        solver: Any = stage.solver
        theta = run(solver, oracle, theta, mean.rounds)
    return basin.excess(theta)


def measured(theorem: Theorem, users: int) -> tuple[float, int]:
    """The worst mean excess of a family, and the rounds; no number where users do not suffice."""
    task = Task.of(users, (0.0,) * DIMENSION, 1.0, DELTA)
    try:
        program = theorem.recipe(KNOWN[theorem.family]).plan(task)
    except ParameterError:
        return math.nan, 0
    found = []
    for seed in range(SEEDS):
        rng = np.random.default_rng((users, seed))
        found.append([end_of(program, basin, rng) for basin in basins(theorem.family, rng)])
    return float(np.mean(found, axis=0).max()), program.rounds


def exponents(users: Sequence[int], excess: Sequence[float]) -> list[float]:
    """Exponents of n, from each size to the next."""
    logs = np.diff(np.log([users, excess]), axis=1)
    return [float(slope) for slope in logs[1] / logs[0]]


def slope(users: Sequence[int], excess: Sequence[float]) -> float:
    """The exponent of n: the least-squares slope over all sizes with a number."""
    known = np.isfinite(excess)
    logs = np.log(np.array([users, excess], dtype=np.float64)[:, known])
    return float(np.polyfit(logs[0], logs[1], 1)[0])


def plot(path: Path, users: Sequence[int], found: dict[str, list[float]]) -> None:
    """One panel for convex losses, one for strongly convex ones."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharex=True, layout="constrained")
    for panel, strong in zip(panels, (False, True), strict=True):
        for theorem in THEOREMS:
            if (theorem.family == "strong") == strong:
                fitted = slope(users, found[theorem.name])
                panel.plot(
                    users,
                    found[theorem.name],
                    "--" if theorem.name.startswith("Cheu") else "-",
                    marker=".",
                    label=f"{theorem.name}: {fitted:.2f} ({theorem.exponent:.2g})",
                )
        panel.set(
            xscale="log",
            yscale="log",
            xlabel="users",
            title="strongly convex" if strong else "convex",
        )
        panel.legend(
            fontsize=7, title="exponent fitted over all sizes (the theorem's)", title_fontsize=7
        )
    panels[0].set_ylabel("excess, worst of the family")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Print the table, and draw it if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, nargs="+", default=USERS)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    found = {}
    for theorem in THEOREMS:
        cells = [measured(theorem, users) for users in given.users]
        found[theorem.name] = [excess for excess, _ in cells]
        shown = "  ".join(f"{excess:.2g} ({rounds})" for excess, rounds in cells)
        steps = " ".join(f"{k:.2f}" for k in exponents(given.users, found[theorem.name]))
        fitted = slope(given.users, found[theorem.name])
        print(
            f"{theorem.name:28} ({theorem.exponent:5.2f}) {fitted:.2f}: {steps}  {shown}",
            flush=True,
        )
    if given.plot:
        plot(given.plot, given.users, found)


if __name__ == "__main__":
    main()
