"""The exponents of the user-level papers' theorems, and of the shuffle model's.

    python experiments/rates.py [--users 1000 3000 …] [--out experiments/rates.json]
    python experiments/rates.py --recorded --plot docs/pictures/rates.png

A recipe plans rounds, noise and steps from public numbers, and its solver is run on a loss that is
known: each round it gets the true gradient of its smoothed loss, noise of the planned size, and the
sampling error, a normal vector of the rms norm G/√(nm), the same in all rounds with the same users.
No records are generated, so a million users cost as much as a thousand. The default fit chooses its
bound, and gets a normal vector for each user's difference from the true gradient. The table has the
largest mean excess over a family of losses (cones and parabolas of all steepnesses, because no
single loss is the worst for all sizes), and the exponent of n, by least squares over all sizes and
over each decade. G = R = 1, m = 100 records per user, d = 10, ε = 1, δ = 1e-6, ``zero_out``; means
of two runs. Ten minutes of one processor.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpgrain as dg
from dpgrain import learn, papers
from dpgrain.errors import ParameterError
from dpgrain.learn.central import CentralFit
from dpgrain.learn.classes import NO_TARGETS
from dpgrain.means import clipped
from dpgrain.optimize import run
from dpgrain.papers import Known, Program, RandomizedBall, Recipe, Stage, Task

Array = NDArray[np.float64]

USERS = (1000, 10_000, 100_000, 1_000_000)
DIMENSION, RECORDS, DELTA, SEEDS = 10, 100, 1e-6, 2
# The family of strongly convex parabolas.
BOWLS = "strong, smooth"
RECORDED = Path(__file__).with_suffix(".json")
# Steepness of the losses; the worst counts.
STEEP = (1.0, 0.3, 0.1, 0.03, 0.01)
# Least curvature of the strongly convex losses.
STRENGTH = 0.5
# A loss that is not smoothed.
_PLAIN = SimpleNamespace(smoothing=None)
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
        exponent: of n, for the noise; None without a theorem.
        family: ``"kinks"``, ``"smooth"``, ``"strong"`` or ``"strong, smooth"``.
        call: the recipe in the table.
    """

    name: str
    recipe: Callable[[Known], Recipe] | None
    exponent: float | None
    family: str
    call: str


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
        "Asi & Liu 4.1, plain",
        lambda k: papers.UserLevelSgd(k, smoothing="moreau"),
        -1,
        "kinks",
        "UserLevelSgd",
    ),
    Theorem("Asi & Liu 4.1, accelerated", papers.UserLevelAgd, -1, "kinks", "UserLevelAgd"),
    Theorem("the same, T not limited", Unlimited, -1, "kinks", "UserLevelAgd"),
    Theorem("Levy et al. 4", papers.WinsorizedErm, -1, "smooth", "WinsorizedErm"),
    Theorem("Levy et al. 5", papers.PhasedErmSco, -1, "smooth", "PhasedErmSco"),
    Theorem("Cheu et al. 4.1", papers.ShuffleSgd, -0.5, "kinks", "ShuffleSgd"),
    Theorem("Cheu et al. 4.3", papers.ShuffleAgd, -0.8, "smooth", "ShuffleAgd"),
    Theorem("Cheu et al. 4.7", papers.ShuffleAgdSmoothed, -2 / 3, "kinks", "ShuffleAgdSmoothed"),
    Theorem("Cheu et al. 4.9", papers.ShuffleGd, -1, "kinks", "ShuffleGd"),
    Theorem("Cheu et al. C.3 (1)", papers.PanPrivateAgd, -2 / 3, "kinks", "PanPrivateAgd"),
    Theorem("Cheu et al. C.3 (2)", papers.PanPrivateAgd, -0.8, "smooth", "PanPrivateAgd"),
    Theorem(
        "Asi & Liu 4.11, plain",
        lambda k: papers.UserLevelSgdStronglyConvex(k, steps="plain"),
        -2,
        "strong",
        "UserLevelSgdStronglyConvex",
    ),
    Theorem(
        "Asi & Liu 4.11, accelerated",
        papers.UserLevelSgdStronglyConvex,
        -2,
        "strong",
        "UserLevelSgdStronglyConvex",
    ),
    Theorem("Cheu et al. 4.8", papers.ShuffleRestarts, -4 / 3, "strong", "ShuffleRestarts"),
    Theorem("Cheu et al. 4.8, smooth", papers.ShuffleRestarts, -2, BOWLS, "ShuffleRestarts"),
    Theorem("Cheu et al. 4.9, strong", papers.ShuffleGd, -2, "strong", "ShuffleGd"),
    Theorem("Cheu et al. C.3 (3)", papers.PanPrivateAgd, -4 / 3, "strong", "PanPrivateAgd"),
    Theorem("Cheu et al. C.3 (4)", papers.PanPrivateAgd, -2, BOWLS, "PanPrivateAgd"),
    Theorem("default fit, kinks", None, None, "kinks", "auto"),
    Theorem("default fit, smooth", None, None, "smooth", "auto"),
    Theorem("default fit, strong", None, None, "strong", "auto"),
)
#: Public parameters of each family; with parabolas of curvature up to 1.
KNOWN = {
    "kinks": Known(distance=1.0, lipschitz=1.0, records=RECORDS),
    "smooth": Known(distance=1.0, lipschitz=1.0, smoothness=1.0, records=RECORDS),
    "strong": Known(distance=1.0, lipschitz=1.0, strength=STRENGTH, records=RECORDS),
    BOWLS: Known(distance=1.0, lipschitz=1.0, smoothness=1.0, strength=STRENGTH, records=RECORDS),
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
        case "strong, smooth":
            return [Basin(truth, 0.0, STRENGTH + steep * (1 - STRENGTH)) for steep in STEEP]
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


@dataclass(frozen=True)
class UserGradients:
    """Users' gradients at a point: the true one, and each user's difference from it, (n, d)."""

    centre: Array
    errors: Array

    @property
    def blocks(self) -> int:
        """Number of users."""
        return len(self.errors)

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return DIMENSION

    def vectors(self, drawn: Any = None) -> Array:
        """Gradients of the (sampled) users."""
        return (self.errors if drawn is None else self.errors[drawn]) + self.centre

    def clipped_sum(self, clip: float, drawn: Any = None) -> Array:
        """Sum of their clipped gradients."""
        return np.asarray(clipped(self.vectors(drawn), clip).sum(axis=0))


@dataclass(frozen=True, eq=False)
class DefaultFit(dg.Query[Array]):
    """The default fit, with its own noise and choices, on users' gradients of a known loss."""

    promise: Any
    fit: CentralFit
    basin: Basin
    errors: Array
    random_state: int
    targets = NO_TARGETS

    @staticmethod
    def of(basin: Basin, errors: Array, seed: int) -> DefaultFit:
        """The fit of users with these differences."""
        n = len(errors)
        model = learn.LinearRegression(
            unit=dg.User(), delta=DELTA, fit_intercept=False, n_users=n, random_state=seed
        )
        promise = model.config().promise
        fit = CentralFit.calibrate(model.config(), promise, width=DIMENSION)
        return DefaultFit(promise, fit, basin, errors, seed)

    @property
    def plan(self) -> dg.Plan:
        """Its parts."""
        guarantee = dg.Guarantee("user", "", "zero_out", DELTA, self.fit.event)
        return dg.Plan(guarantee, len(self.errors), parts=self.fit.parts)

    @property
    def rows(self) -> SimpleNamespace:
        """All users, in every round."""
        return SimpleNamespace(users=len(self.errors), owners=None)

    def gradients(self, config: Any) -> Any:  # noqa: ARG002 - of rows
        """The users' gradients at a point."""
        rng = np.random.default_rng(0)
        stage: Any = _PLAIN
        return lambda _, theta: UserGradients(self.basin.gradient(theta, stage, rng), self.errors)

    def run(self, charge: Any) -> Array:
        """Return the end of the fit."""
        data: Any = self
        return self.fit.run(data, charge, progress=False).theta


def default_end(basin: Basin, users: int, seed: int) -> tuple[float, int]:
    """The excess where the default fit ends, and its rounds."""
    rng = np.random.default_rng((users, seed))
    errors = rng.normal(scale=1 / math.sqrt(RECORDS * DIMENSION), size=(users, DIMENSION))
    query = DefaultFit.of(basin, errors, seed)
    return basin.excess(dg.publish(query)), query.fit.mean.rounds


def measured(theorem: Theorem, users: int) -> tuple[float, int]:
    """The worst mean excess of a family, and the rounds; no number where users do not suffice."""
    if theorem.recipe is None:
        ends = [
            [
                default_end(basin, users, seed)
                for basin in basins(theorem.family, np.random.default_rng((users, seed)))
            ]
            for seed in range(SEEDS)
        ]
        excess = np.array([[end for end, _ in row] for row in ends])
        return float(excess.mean(axis=0).max()), ends[0][0][1]
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


def table(users: Sequence[int], found: dict[str, list[tuple[float, int]]]) -> list[str]:
    """Lines of the table in Markdown: excess and rounds at each size, and fitted exponents of n."""
    sizes = " | ".join(f"n = {n:,}" for n in users)
    lines = [
        f"| | theorem's | fitted | {sizes} | between sizes |",
        f"| --- | ---: | ---: | {'---: | ' * len(users)}--- |",
    ]
    for theorem in THEOREMS:
        excess = [one for one, _ in found[theorem.name]]
        cells = [f"{one:.2g} ({rounds:,})" for one, rounds in found[theorem.name]]
        stated = "–" if theorem.exponent is None else f"{theorem.exponent:.2f}"
        steps = " ".join(f"{k:.2f}" for k in exponents(users, excess))
        row = [stated, f"{slope(users, excess):.2f}", *cells, steps]
        text = " | ".join(row).replace("-0.00", "0.00").replace("-", "−")
        lines.append(f"| `{theorem.call}` ({theorem.name}) | {text} |".replace("e−", "e-"))
    return lines


def plot(path: Path, users: Sequence[int], found: dict[str, list[tuple[float, int]]]) -> None:
    """One panel for convex losses, one for strongly convex ones."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(12, 5.4), sharex=True, layout="constrained")
    for panel, strong in zip(panels, (False, True), strict=True):
        for theorem in THEOREMS:
            if theorem.family.startswith("strong") == strong:
                excess = [one for one, _ in found[theorem.name]]
                fitted, default = slope(users, excess), theorem.recipe is None
                stated = "" if theorem.exponent is None else f" ({theorem.exponent:.2g})"
                style = "--" if theorem.name.startswith("Cheu") else "-"
                panel.plot(
                    users,
                    excess,
                    {"default fit, smooth": ":"}.get(theorem.name, style),
                    marker=".",
                    label=f"{theorem.name}: {fitted:.2f}{stated}",
                    **({"color": "black", "linewidth": 2.5} if default else {}),
                )
        panel.set(
            xscale="log",
            yscale="log",
            xlabel="users",
            title="strongly convex" if strong else "convex",
        )
        panel.legend(
            fontsize=7,
            title="exponent fitted over all sizes (the theorem's)",
            title_fontsize=7,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.13),
            ncols=2,
            handlelength=3.5,
        )
    panels[0].set_ylabel("excess, worst of the family")
    figure.savefig(path, dpi=120)


def recorded() -> tuple[list[int], dict[str, list[tuple[float, int]]]]:
    """Sizes, and excess and rounds of each theorem, of the recorded run."""
    found = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found["users"], {
        name: [(math.nan if one is None else one, rounds) for one, rounds in cells]
        for name, cells in found["theorems"].items()
    }


def main() -> None:
    """Measure and record, or read the record; print the table, and draw it if requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", type=int, nargs="+", default=USERS)
    parser.add_argument("--out", type=Path, default=RECORDED)
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    if given.recorded:
        users, found = recorded()
    else:
        users, found = list(given.users), {}
        for theorem in THEOREMS:
            found[theorem.name] = [measured(theorem, n) for n in users]
            print(theorem.name, found[theorem.name], flush=True)
        cells = {
            name: [[None if math.isnan(one) else one, rounds] for one, rounds in row]
            for name, row in found.items()
        }
        given.out.write_text(json.dumps({"users": users, "theorems": cells}, indent=1) + "\n")
    print("\n".join(table(users, found)))
    if given.plot:
        plot(given.plot, users, found)


if __name__ == "__main__":
    main()
