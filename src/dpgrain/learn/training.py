"""Rounds of noisy gradients, from blocks of rows to a parameter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain.aggregators import ClippedMean, Contributions
from dpgrain.noise import Source
from dpgrain.optimize import Solver, run
from dpgrain.progress import Progress

FloatArray: TypeAlias = NDArray[np.float64]
At: TypeAlias = Callable[[FloatArray], Contributions]


@dataclass(frozen=True)
class History:
    """What a fit published, round by round.

    Args:
        points: (rounds, p) where each gradient was asked for.
        gradients: (rounds, p) the noisy gradients, with the ridge.
        noise_sd: the standard deviation of the noise of each coordinate of them.
        clip: the clipping bound of a block.
    """

    points: FloatArray
    gradients: FloatArray
    noise_sd: float
    clip: float

    @property
    def norms(self) -> FloatArray:
        """(rounds,) the norms of the noisy gradients."""
        norms: FloatArray = np.linalg.norm(self.gradients, axis=1)
        return norms

    @property
    def noise_norm(self) -> float:
        """About the norm of a gradient that is noise alone."""
        return float(self.noise_sd * np.sqrt(self.gradients.shape[1]))

    def to_dict(self) -> dict[str, Any]:
        """The history as plain JSON values, without the points."""
        return {
            "rounds": len(self.gradients),
            "gradient_norms": self.norms.tolist(),
            "noise_norm": self.noise_norm,
            "clip": self.clip,
        }


def train(
    at: At,
    mean: ClippedMean,
    solver: Solver[Any],
    start: FloatArray,
    source: Source,
    *,
    ridge: FloatArray,
    owners: NDArray[Any] | None = None,
    progress: bool | None = None,
) -> tuple[FloatArray, History]:
    """Let a solver take the rounds that a private mean was calibrated for.

    Args:
        at: from θ to the blocks' mean gradients there.
        mean: the private mean.
        solver: what steps against the noisy gradients.
        start: (p,) where it begins, a public point.
        source: where draws and noise come from.
        ridge: (p,) the public strength of the ridge on each coordinate; it is added after the noise.
        owners: (blocks,) whose data each block is.
        progress: whether to show a bar; None decides.

    Returns:
        the solver's solution, and the history.
    """
    rounds = mean.start(source, owners)
    points, gradients = np.empty((2, mean.rounds, len(start)))
    done = 0
    with Progress(mean.rounds, progress) as bar:

        def oracle(theta: FloatArray) -> FloatArray:
            nonlocal done
            bar.stage(f"Round {done + 1:,} of {mean.rounds:,}")
            gradient = rounds.estimate(at(theta)) + ridge * theta
            points[done], gradients[done] = theta, gradient
            done += 1
            return gradient

        theta = run(solver, oracle, start, mean.rounds)
    return theta, History(points, gradients, mean.noise_sd, mean.clip)
