"""Steps of a run: sums of blocks, and their published noisy gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from dpgrain._types import FloatArray, IndexArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import ArrangedRows
from dpgrain.inputs.population import check_population_size, population_indices
from dpgrain.means import ClippedMean, Mean, Vectors
from dpgrain.means.bands import Correlated
from dpgrain.means.grid import grid_step, noised_steps
from dpgrain.means.mean_protocol import Drawn, Rounds
from dpgrain.publishing.draws import CountedSource, Normals, one_draw
from dpgrain.torch.adaptive_clipping import AdaptiveNorm
from dpgrain.torch.block_gradients import Uses
from dpgrain.torch.clipping import (
    ExactSum,
    FloatSum,
    Sums,
    mean_gradient,
    overshoot,
    unclipped_sums,
)
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.library import torch


def in_floating_point(
    sums: FloatSum,
    parameters: Sequence[Any],
    noise: Normals,
    correlated: Sequence[Correlated] | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter and its noisy sum, in double precision.

    In single precision, PyTorch's noise is bounded by 5.8 standard deviations, and its generator
    has only 2^32 seeds on a processor, few enough to try them all.
    """
    mixes = None if correlated is None else [state.next for state in correlated]
    for parameter, drawn in zip(parameters, noise.tensors(parameters, mixes), strict=True):
        yield parameter, drawn.add_(sums.sums[parameter])


def split(vector: FloatArray, parameters: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter and its part of a vector; later entries are ignored."""
    ends = np.cumsum([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, np.split(vector, ends), strict=False):
        yield parameter, torch.from_numpy(part).reshape(parameter.shape).to(parameter.device)


# Maximum number of parameters; the vectors of 1,000 blocks then need 0.5 GB.
_MOST_PARAMETERS = 2**16


class RunSteps(ABC):
    """Steps of one run: public numbers, randomness, and state between steps.

    If ``single``, each block is read separately, so that its rounding is independent of other
    blocks. ``cycle`` is the number of consecutive steps with cancelling noise.
    """

    def __init__(self, mean: Mean, *, single: bool, cycle: int = 1) -> None:
        self.mean, self.single, self.cycle = mean, single, cycle

    @abstractmethod
    def empty_sum(self) -> Any:
        """Return an empty sum for the next step."""

    @abstractmethod
    def gradients(self, sums: Any) -> Iterator[tuple[Any, Any]]:
        """Publish the sum once: yield each parameter and its double-precision gradient."""

    def publish(self, sums: Any) -> None:
        """Publish the sum once, as the gradients of all parameters."""
        with torch.no_grad():
            for parameter, gradient in self.gradients(sums):
                parameter.grad = gradient.to(parameter.dtype).contiguous()

    def published(self) -> dict[str, Any]:
        """Return the public numbers changed since the first step."""
        return {}

    def adopt(self, published: dict[str, Any]) -> None:
        """Adopt public numbers published by another process."""
        assert not published  # noqa: S101 - whoever publishes numbers takes them up

    @abstractmethod
    def state(self, *, secret: bool = False) -> dict[str, Any]:
        """Return the state; ``secret`` includes past noise, which reveals exact sums."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the state; without past noise, cancelling noise starts again."""


class ClippedSteps(RunSteps):
    """Steps with sums of clipped blocks, in floating point or on a grid."""

    def __init__(
        self,
        mean: ClippedMean,
        parameters: Sequence[Any],
        source: CountedSource,
        rule: AdaptiveNorm | None = None,
    ) -> None:
        super().__init__(mean, single=mean.exact, cycle=mean.bands)
        self._clipped, self.bound = mean, mean.clip
        self._parameters, self._source, self._rule = parameters, source, rule
        self._part = one_draw(mean.event)
        self._stretch = 1.0 if rule is None else rule.stretch
        double = all(p.dtype == torch.float64 for p in parameters)
        # Rounding can push a block above the bound by this factor; the noise is scaled accordingly.
        self._overshoot = 1 + overshoot(torch.float64 if double else torch.float32)
        self._correlated = [Correlated(mean.matrix) for _ in parameters] if mean.bands > 1 else None

    def empty_sum(self) -> FloatSum | ExactSum:
        """Return an empty sum for one step."""
        counts = None if self._rule is None else self._rule.counts
        if not self._clipped.exact:
            return FloatSum(self._parameters, self.bound, counts)
        step = grid_step(self._stretch * self.bound, self._clipped.noise_multiplier)
        share = 0.0 if self._rule is None else self._rule.count_share
        return ExactSum(
            self._parameters,
            self.bound,
            step,
            counts=counts,
            count_share=share,
            stretch=self._stretch,
        )

    def gradients(self, sums: FloatSum | ExactSum) -> Iterator[tuple[Any, Any]]:
        """Yield each parameter and its noisy gradient, then update the bound."""
        if isinstance(sums, ExactSum):
            noisy, count = self._exact(sums)
        else:
            noisy, count = self._floating(sums)
        for parameter, total in noisy:
            yield parameter, total.div_(self._clipped.divisor)
        if self._rule is not None:
            self.bound = self._rule.next(self.bound, count / self._clipped.divisor)

    def _exact(self, sums: ExactSum) -> tuple[Iterator[tuple[Any, Any]], float]:
        vector = noised_steps(sums.total, sums.largest_norm, self._part, sums.step, self._source)
        count = 0.0
        if self._rule is not None:
            count = float(vector[-1]) / (self._rule.count_share * self.bound)
        return split(vector, self._parameters), count

    def _floating(self, sums: FloatSum) -> tuple[Iterator[tuple[Any, Any]], float]:
        # Sensitivity of vector and count together, in clipping bounds.
        radius, count = self._stretch * self._overshoot, 0.0
        radii = () if self._rule is None else (radius / self._rule.count_share,)
        *of_count, noise = self._source.normals(self._part, *radii, radius * self.bound)
        if self._rule is not None:
            count = float(sums.counted) + of_count[0].draw()
        return in_floating_point(sums, self._parameters, noise, self._correlated), count

    def published(self) -> dict[str, Any]:
        """Return the clipping bound, if it changes."""
        return {} if self._rule is None else {"bound": self.bound}

    def adopt(self, published: dict[str, Any]) -> None:
        """Adopt the clipping bound."""
        self.bound = published.get("bound", self.bound)

    def state(self, *, secret: bool = False) -> dict[str, Any]:
        """Return the clipping bound and, on request, past noise."""
        if not secret or self._correlated is None:
            return self.published()
        past = [
            [noise.cpu().clone() for noise in noise_state.past] for noise_state in self._correlated
        ]
        return {**self.published(), "noise": past}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the state; noise without a past starts again."""
        self.adopt(state)
        for place, noise_state in enumerate(self._correlated or ()):
            past = state["noise"][place] if "noise" in state else []
            device = self._parameters[place].device
            noise_state.load([noise.to(device) for noise in past])


class StepVectors:
    """Mean gradients of one step's blocks, read separately in the order ``places``."""

    def __init__(self, parameters: Sequence[Any], places: IndexArray) -> None:
        self._parameters, self._places = parameters, places
        self._vectors = np.zeros((len(places), sum(p.numel() for p in parameters)))
        self._added_blocks = 0

    def add_blocks(self, uses: Uses, layout: BlockLayout) -> None:
        """Add a batch, which must contain exactly one block."""
        assert layout.blocks == 1  # noqa: S101 - nothing of other blocks may enter a kernel
        self.add_block(unclipped_sums(uses, layout), layout.rows)

    def add_block(self, vector: Sums, records: int) -> None:
        """Add one block, given the sum of its gradients over ``records`` records."""
        self._vectors[self._places[self._added_blocks]] = mean_gradient(
            vector, self._parameters, records
        )
        self._added_blocks += 1

    @property
    def vectors(self) -> Vectors:
        """Vectors in the order of blocks; missing blocks are 0."""
        return Vectors(self._vectors)


class MeanSteps(RunSteps):
    """Steps with a private mean of the vectors of all blocks."""

    def __init__(
        self, mean: Mean, parameters: Sequence[Any], rounds: Rounds, places: IndexArray
    ) -> None:
        # The counts of a mean must not depend on rounding errors caused by other blocks.
        super().__init__(mean, single=True)
        self._parameters, self._rounds, self._places = parameters, rounds, places

    def empty_sum(self) -> StepVectors:
        """Return an empty collection of vectors."""
        return StepVectors(self._parameters, self._places)

    def gradients(self, sums: StepVectors) -> Iterator[tuple[Any, Any]]:
        """Yield each parameter and its part of the private mean."""
        return split(self._rounds.estimate(sums.vectors), self._parameters)

    def state(self, *, secret: bool = False) -> NoReturn:  # noqa: ARG002 - as others have it
        """Raise ParameterError, because other processes cannot resume a run of a mean."""
        raise _not_resumable()

    def load_state(self, state: dict[str, Any]) -> NoReturn:  # noqa: ARG002 - as others have it
        """Raise ParameterError, because a run of a mean cannot be resumed."""
        raise _not_resumable()


def _not_resumable() -> ParameterError:
    return ParameterError(
        "mean stores the state of its rounds only in this process; train without a checkpoint, "
        "or omit mean and clip.",
        name="mean",
    )


class BlockSampler(Protocol):
    """Interface of the sampler of each step's blocks."""

    def draw(self, blocks: int) -> Drawn | None:
        """Return sorted indices of the next step's blocks, below ``blocks``; None for all."""


class FullBatchSampler:
    """Sampler of all blocks, for a mean that samples internally."""

    def draw(self, _blocks: int) -> None:
        """Return None, for all blocks."""


def check_vectors(mean: Mean, parameters: Sequence[Any], *, is_single: bool) -> None:
    """Reject a mean of block vectors for too many parameters or several processes."""
    if isinstance(mean, ClippedMean):
        return
    if not is_single:
        raise ParameterError(
            "mean requires the vectors of all blocks in one process; pass the module itself, or "
            "omit mean and clip.",
            name="mean",
        )
    entries = sum(parameter.numel() for parameter in parameters)
    if entries > _MOST_PARAMETERS:
        raise ParameterError(
            f"mean requires one vector per block, and the network trains {entries:,} parameters, "
            f"more than the {_MOST_PARAMETERS:,} that are possible; freeze some with "
            "requires_grad_(False), or omit mean and clip.",
            name="mean",
        )


def create_steps(
    mean: Mean,
    rule: AdaptiveNorm | None,
    parameters: Sequence[Any],
    source: CountedSource,
    places: IndexArray,
    owners: IndexArray,
) -> tuple[ClippedSteps | MeanSteps, BlockSampler]:
    """Return the steps of a requested run, and the sampler of their blocks.

    ``places`` are the blocks in reading order and ``owners`` their users, both (blocks,).
    """
    if not isinstance(mean, ClippedMean):
        return MeanSteps(mean, parameters, mean.start(source, owners), places), FullBatchSampler()
    return ClippedSteps(mean, parameters, source, rule), mean.start(source, owners)


def block_users(mean: Mean, rows: ArrangedRows, users: Any) -> IndexArray:
    """Return the user (or user's population index, if needed) of each block, (blocks,)."""
    if mean.compares:
        check_population_size(mean.n_users, rows.users)
    return population_indices(users, rows.owners, "fresh users") if mean.fresh else rows.owners
