"""Rounds of noisy gradients, from blocks of rows to a parameter."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain._progress import Progress
from dpgrain._types import FloatArray
from dpgrain.errors import EndedWarning, ParameterError
from dpgrain.gradients.records import LONGEST, RecordBlocks
from dpgrain.inputs.array_blocks import ArrangedRows
from dpgrain.inputs.population import check_population_size, population_indices
from dpgrain.inputs.record_limit import RecordCounts, RecordLimit
from dpgrain.learn.program import Program, Smoothing
from dpgrain.means import ClippedMean, Contributions, Mean
from dpgrain.means.mean_protocol import Drawn
from dpgrain.noise import RandomSource, RandomState
from dpgrain.noise.sources import random_bits, random_source
from dpgrain.optimize import LossFunction, Solver, run
from dpgrain.optimize.smoothing import Moreau, Proximable, RandomizedBall, SmoothedLoss
from dpgrain.publishing import Charge
from dpgrain.publishing.draws import CountedSource
from dpgrain.publishing.facts import Fact
from dpgrain.words.fit_text import ended_warning

# Description of the features that need population indices.
_NEEDS_INDEX = "a recipe with phases or fresh users"

GradientFunction: TypeAlias = Callable[[FloatArray], Contributions]


@dataclass(frozen=True)
class History:
    """Published numbers of a fit, round by round.

    Args:
        points: (rounds, p) the points of the gradients.
        gradients: (rounds, p) the noisy gradients, with the ridge.
        noise_sd: the standard deviation of the noise of each coordinate of the last gradient.
        clip: the clipping bound of a block in the last round.
        planned: the number of planned rounds; None if all were run.

    >>> history = History(np.zeros((2, 3)), np.array([[3.0, 0.0, 4.0], [0.1, 0.1, 0.1]]), 0.1, 1.0)
    >>> history.norms.round(2).tolist(), round(history.noise_norm, 2)
    ([5.0, 0.17], 0.17)
    """

    points: FloatArray
    gradients: FloatArray
    noise_sd: float
    clip: float
    planned: int | None = None

    @property
    def ended(self) -> bool:
        """True if the run stopped before its last planned round."""
        return self.planned is not None and len(self.points) < self.planned

    @property
    def norms(self) -> FloatArray:
        """Norms of the noisy gradients, (rounds,)."""
        norms: FloatArray = np.linalg.norm(self.gradients, axis=1)
        return norms

    @property
    def noise_norm(self) -> float:
        """Approximate norm of a gradient of pure noise."""
        return float(self.noise_sd * np.sqrt(self.gradients.shape[1]))

    def to_dict(self) -> dict[str, Any]:
        """Return the history as plain JSON values, without the points."""
        return {
            "rounds": len(self.gradients),
            "gradient_norms": self.norms.tolist(),
            "noise_norm": self.noise_norm,
            "clip": self.clip,
        }


def train(
    at: GradientFunction,  # from θ to the blocks' mean gradients
    mean: Mean,
    solver: Solver[Any],
    start: FloatArray,  # public, (p,)
    source: RandomSource,
    *,
    # The gradient of data-independent terms, added after the noise.
    public: Callable[[FloatArray], FloatArray] | None = None,
    owners: NDArray[Any] | None = None,  # (blocks,)
    progress: Progress | None = None,
) -> tuple[FloatArray, History]:
    """Run a solver over the rounds of a mean; return solution and history."""
    rounds = mean.start(source, owners)
    points, gradients = np.empty((2, mean.rounds, len(start)))
    done = 0
    with nullcontext(progress) if progress is not None else Progress(mean.rounds) as bar:

        def oracle(theta: FloatArray) -> FloatArray:
            nonlocal done
            bar.stage(f"Round {bar.turn}")
            gradient = rounds.estimate(at(theta))
            if public is not None:
                gradient = gradient + public(theta)
            points[done], gradients[done] = theta, gradient
            done += 1
            return gradient

        theta = run(solver, oracle, start, mean.rounds)
    history = History(points[:done], gradients[:done], rounds.noise_sd, rounds.radius, mean.rounds)
    if history.ended:
        # The run has published that it ended, so this warning reveals nothing more.
        warnings.warn(ended_warning(history), EndedWarning, stacklevel=2)
    return theta, history


@dataclass(frozen=True)
class _RoundContributions:
    """Contributions of one round, with a faster method for clipped sums over all blocks."""

    separate: Contributions
    fast: Contributions

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.separate.blocks

    @property
    def dimension(self) -> int:
        """Length of the vectors of blocks."""
        return self.separate.dimension

    def clipped_sum(self, clip: float, drawn: Drawn | None = None) -> FloatArray:
        """Return the sum of the clipped vectors."""
        return (self.fast if drawn is None else self.separate).clipped_sum(clip, drawn)

    def vectors(self, drawn: Drawn | None = None) -> FloatArray:
        """Return the blocks' vectors."""
        return self.separate.vectors(drawn)


def run_program(
    program: Program,
    records: RecordBlocks,  # one block per user
    roster: NDArray[Any],  # (blocks,) population indices
    loss: LossFunction,
    start: FloatArray,  # public, (p,)
    source: CountedSource,
    *,
    ridge: FloatArray | float = 0.0,  # public, (p,) or a number
    fast_sums: GradientFunction | None = None,  # clipped sums of all users
    progress: bool | None = None,
) -> tuple[FloatArray, History]:
    """Run a program phase by phase; return solution and history."""
    solution, ends = start, []
    with Progress(sum(stage.mean.rounds for stage in program.stages), progress) as bar:
        for phase, stage in zip(program.localisation.phases(), program.stages, strict=True):
            # A user without a valid record is absent, regardless of other rows.
            active = np.diff(records.starts) > 0
            if len(program.stages) > 1:
                active &= (roster >= phase.users.start) & (roster < phase.users.stop)
            own, draws = records.select(np.flatnonzero(active)), source
            if len(program.stages) > 1:
                draws = source.group(phase.users.start, phase.users.stop, stage.mean.event)
            smooth, longest = (
                _smooth_loss(loss, stage.smoothing, draws),
                LONGEST * stage.mean.reach,
            )

            fast = fast_sums if len(program.stages) == 1 and stage.smoothing is None else None

            def at(
                theta: FloatArray,
                own: RecordBlocks = own,
                smooth: LossFunction = smooth,
                most: float = longest,
                fast: GradientFunction | None = fast,
            ) -> Contributions:
                separate = own.gradients(smooth, theta, longest=most)
                return separate if fast is None else _RoundContributions(separate, fast(theta))

            def public(
                theta: FloatArray, pull: float = phase.strength, centre: FloatArray = solution
            ) -> FloatArray:
                return ridge * theta + pull * (theta - centre)

            solution, history = train(
                at,
                stage.mean,
                stage.solver,
                solution,
                draws,
                public=public,
                owners=roster[active] - phase.users.start if stage.mean.fresh else None,
                progress=bar,
            )
            ends.append(history)
    points, gradients = (
        np.concatenate([getattr(history, name) for history in ends])
        for name in ("points", "gradients")
    )
    planned = sum(stage.mean.rounds for stage in program.stages)
    return solution, History(points, gradients, ends[-1].noise_sd, ends[-1].clip, planned)


def round_facts(mean: ClippedMean, clip: float | None) -> tuple[Fact, ...]:
    """List the public facts of a run of noisy gradients."""
    drawn = "block-rounds" if mean.sampling == "pairs" else "user-rounds"
    facts = [
        Fact(drawn, (mean.rounds, mean.sampling_rate))
        if mean.sampling_rate < 1
        else Fact("all-rounds", (mean.rounds,)),
        Fact("features"),
    ]
    if clip is not None:
        facts.append(Fact("gradient-bound", (clip,)))
    if mean.max_elements is not None:
        facts.append(Fact("elements-kept", (mean.max_elements,)))
    if not mean.exact:
        facts.append(Fact("floating-sums"))
    return tuple(facts)


def check_program(program: Program, users: Any, loss: LossFunction) -> None:
    """Reject arguments that a program does not support, before charging or reading."""
    for stage in program.stages:
        if isinstance(stage.smoothing, float) and not isinstance(loss, Proximable):
            raise ParameterError(
                "loss must have a method proximal(theta, X, y, step) for the Moreau envelope, "
                f"unlike {loss!r}."
            )
    if program.uses_index and users is None:
        population_indices(users, np.zeros(0, dtype=np.intp), _NEEDS_INDEX)


def population_index(program: Program, users: Any, rows: ArrangedRows) -> NDArray[np.int64]:
    """Return the population index of each user for the program's phases, (blocks,).

    If rounds compare users, labels must be integers from 0 to n−1, independent of which other users
    have records; other users get −1 and do not participate.
    """
    if not program.uses_index:
        mean = program.stages[0].mean
        if mean.compares:
            check_population_size(mean.n_users, rows.users)
        return np.zeros(len(rows.owners), dtype=np.int64)
    return population_indices(users, rows.owners, _NEEDS_INDEX)


def draw_lot(random_state: RandomState) -> int:
    """Draw the public random number of a recipe that returns a random iterate."""
    return int(random_bits(random_source(random_state), 1)[0])


def skip_lot(random_state: RandomState, source: CountedSource) -> None:
    """Advance a source of noise past the public random number, which used the same seed."""
    if not isinstance(random_state, np.random.Generator):
        source.bits("lot", 1)


def count_records(
    limit: RecordLimit, mean: ClippedMean, sizes: NDArray[Any], dimension: int, charge: Charge
) -> RecordCounts:
    """Return the largest number of records that counts, stated or chosen."""
    noise = mean.noise_multiplier / math.sqrt(mean.rounds) / mean.sampling_rate
    return limit.choose(sizes, noise, dimension, charge)


def _smooth_loss(
    loss: LossFunction, smoothing: Smoothing | None, source: CountedSource
) -> LossFunction:
    """Return a loss smoothed as specified by a recipe."""
    if smoothing is None:
        return loss
    if isinstance(smoothing, RandomizedBall):
        # The points are secret, independent and identically distributed. Without a user, their
        # distribution is therefore the same, although the generator assigns them to other users.
        return SmoothedLoss(loss, smoothing, source.generator("smoothing"))
    assert isinstance(loss, Proximable)  # noqa: S101 - checked before anything was charged
    return Moreau(loss, smoothing)
