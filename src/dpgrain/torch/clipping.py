"""Sums of clipped blocks: the blocks' mean gradients, clipped and added up.

Rounding of a block is bounded. The error of a matrix product is assumed to be at most
:data:`PRODUCT_ERROR` times the sum of the norms of its terms. A block with large cancelling terms
is computed separately in double precision, so that the clipped vector is the one added.
:func:`overshoot` bounds the remaining error, which the accounting includes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.means.grid import on_grid
from dpgrain.numerics.row_clipping import clipped, zero_nonfinite_rows
from dpgrain.torch.block_buffer import (
    BufferedUses,
    FlatVectors,
    has_buffer,
    in_buffer_order,
    sum_precision,
)
from dpgrain.torch.block_gradients import (
    Lookup,
    Outer,
    StoredGradients,
    Use,
    Uses,
    combined,
    inner_products,
)
from dpgrain.torch.gradient_precision import precisely, without_autocast
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.library import torch

#: Largest error of a matrix product, as a share of the sum of the norms of its terms, by type of
#: number: 128 roundings in one direction. Measured by tests.
PRODUCT_ERROR: Mapping[Any, float] = {torch.float32: 2.0**-17, torch.float64: 2.0**-46}
# Largest norm of a block's terms, in bounds; blocks above it are computed separately.
_MAX_TERM_BOUNDS = 64.0
# Largest number in a separately computed block, in bounds; beyond it, the weight might be NaN.
_MAX_NUMBER_BOUNDS = 2.0**80
#: Largest number in a block that contributes to a sum; sums of such numbers never overflow.
LARGEST_NUMBER = 2.0**120

#: Uses of each parameter in all layer calls, and its sum.
CallsByParameter: TypeAlias = Mapping[Any, Sequence[Use]]
Sums: TypeAlias = dict[Any, Any]
#: Counts of blocks, (blocks,) in [−1, 1], from their norms in bounds.
Counts: TypeAlias = Callable[[FloatArray], FloatArray]


def overshoot(precision: Any) -> float:
    """Return the relative amount by which rounding can push a block above its bound.

    Formal guarantee: the errors of the norm and of the added block are each at most
    :data:`PRODUCT_ERROR` times 64 bounds; the weight's rounding is far below the added margin.
    """
    return 2 * _MAX_TERM_BOUNDS * PRODUCT_ERROR[precision] * (1 + 2.0**-10)


def clipped_sums(
    uses: CallsByParameter,
    layout: BlockLayout,
    bound: float,
    on_norms: Callable[[FloatArray], None] | None = None,
) -> Sums:
    """Return the sum of the blocks' mean gradients, each clipped to a bound.

    Formal guarantee: a block adds a vector of norm at most ``bound·(1 + overshoot)``; 0 for NaN or
    numbers above :data:`LARGEST_NUMBER`. Source: docs/theory, "Gradient steps of networks".
    """
    if isinstance(uses, BufferedUses):
        with without_autocast():
            return uses.clipped_sum(bound, on_norms).parts
    with precisely():
        return _clipped_sums(uses, layout, bound, on_norms)


def _clipped_sums(
    uses: CallsByParameter,
    layout: BlockLayout,
    bound: float,
    on_norms: Callable[[FloatArray], None] | None,
) -> Sums:
    uses = {parameter: combined(calls) for parameter, calls in uses.items()}
    term_norms, norms = _term_norms(uses), _norms(uses, layout)
    magnitudes = _magnitudes(uses)
    # Whether a block is dropped depends only on the block, not on how its sum is computed.
    dropped = ~((magnitudes <= LARGEST_NUMBER) & torch.isfinite(norms))
    term_norms, norms, magnitudes = (
        t.masked_fill(dropped, 0.0) for t in (term_norms, norms, magnitudes)
    )
    share = 1.0 / layout.sizes_on(norms.device).double()
    weights = torch.clamp(bound / (norms * share).clamp_(min=1e-300), max=1.0) * share
    separate = (weights * term_norms > _MAX_TERM_BOUNDS * bound) | (
        magnitudes > _MAX_NUMBER_BOUNDS * bound
    )
    # The only numbers read before the step: a GPU waits for them once per batch.
    are_dropped, are_separate = torch.stack([dropped, separate]).tolist()
    if any(are_dropped):
        uses = {p: [use.without(dropped) for use in calls] for p, calls in uses.items()}
    sums = {
        parameter: sum(use.weighted_sum(weights.masked_fill(separate, 0.0)) for use in calls)
        for parameter, calls in uses.items()
    }
    result = norms * share
    for block in (block for block, is_separate in enumerate(are_separate) if is_separate):
        vector = {p: sum(use.block_gradient(block) for use in calls) for p, calls in uses.items()}
        result[block] = vector_norm(vector) * share[block]
        _add(sums, clip_vector(vector, bound, float(share[block])))
    if on_norms is not None:
        on_norms(result.cpu().numpy())
    return sums


def clip_vector(vector: Sums, bound: float, share: float = 1.0) -> Sums:
    """Return a scaled and clipped vector; 0 if it is not finite."""
    norm = vector_norm(vector)
    if norm == 0:
        return {}
    weight = min(share, bound / norm)
    return {parameter: part * weight for parameter, part in vector.items()}


def vector_norm(vector: Sums) -> float:
    """Return the norm of a vector; 0 if it is not finite."""
    norm = math.hypot(*(float(torch.linalg.vector_norm(part.double())) for part in vector.values()))
    return norm if math.isfinite(norm) else 0.0


def unclipped_sums(uses: CallsByParameter, layout: BlockLayout) -> Sums:
    """Return the unclipped sum of all rows, which are a part of one block."""
    if isinstance(uses, BufferedUses):
        return uses.unclipped_sum().parts
    weights = torch.full((layout.blocks,), 1.0, dtype=torch.float64)
    with precisely():
        return {
            p: sum(use.weighted_sum(weights.to(p.device)) for use in calls)
            for p, calls in uses.items()
        }


class FloatSum:
    """Sum of the clipped blocks of one step, in floating point."""

    def __init__(
        self, parameters: Sequence[Any], bound: float, counts: Counts | None = None
    ) -> None:
        self.bound, self._counts = bound, counts
        self._vector: FlatVectors | None = None
        if has_buffer(1, parameters):
            own = in_buffer_order(parameters)
            self._vector = FlatVectors.zeros(own, precision=torch.float64)
            self.sums: Sums = self._vector.parts
        else:
            self.sums = {p: torch.zeros_like(p, dtype=sum_precision(p)) for p in parameters}
        self.counted = torch.zeros((), dtype=torch.float64, device=parameters[0].device)

    def tensors(self) -> list[Any]:
        """Return the tensors to sum over processes in place."""
        vectors = self.sums.values() if self._vector is None else (self._vector.values,)
        return [*vectors, self.counted]

    def add_blocks(self, uses: Uses, layout: BlockLayout) -> None:
        """Add a batch of whole blocks."""
        on_norms = None if self._counts is None else self._count
        if isinstance(uses, BufferedUses) and self._vector is not None:
            assert all(map(operator.is_, uses.parameters, self.sums))  # noqa: S101 - of one run
            with without_autocast():
                self._vector.values += uses.clipped_sum(self.bound, on_norms).values
        else:
            _add(self.sums, clipped_sums(uses, layout, self.bound, on_norms))

    def add_block(self, vector: Sums, records: int) -> None:
        """Add one block, given the sum of its gradients over ``records`` records."""
        _add(self.sums, clip_vector(vector, self.bound, 1 / records))
        self._count(np.array([vector_norm(vector) / records]))

    def _count(self, norms: FloatArray) -> None:
        if self._counts is not None:
            self.counted += float(self._counts(norms / self.bound).sum())


class ExactSum:
    """Sum of the clipped blocks of one step, as integer multiples of a grid step.

    If there are ``counts``, they are the last entry of the sum.
    """

    def __init__(
        self,
        parameters: Sequence[Any],
        bound: float,
        step: float,
        *,
        counts: Counts | None = None,
        count_share: float = 0.0,
        stretch: float = 1.0,
    ) -> None:
        self.parameters, self.bound, self.step, self._counts = parameters, bound, step, counts
        self._count_share, self.largest_norm = count_share, stretch * bound
        entries = sum(p.numel() for p in parameters) + (counts is not None)
        self.total: IntArray = np.zeros(entries, dtype=np.int64)

    def tensors(self) -> list[Any]:
        """Return the tensors to sum over processes in place."""
        return [torch.from_numpy(self.total)]

    def add_blocks(self, uses: Uses, layout: BlockLayout) -> None:
        """Add a batch, which must contain exactly one block."""
        assert layout.blocks == 1  # noqa: S101 - nothing of other blocks may enter a kernel
        self.add_block(unclipped_sums(uses, layout), layout.rows)

    def add_block(self, vector: Sums, records: int) -> None:
        """Add one block, given the sum of its gradients over ``records`` records."""
        mean = mean_gradient(vector, self.parameters, records)[None]
        joint = clipped(mean, self.bound)
        if self._counts is not None:
            # A norm that overflows belongs to a block above the bound.
            with np.errstate(over="ignore"):
                counts = self._counts(np.linalg.norm(mean, axis=1) / self.bound)
            joint = np.hstack([joint, counts[:, None] * self._count_share * self.bound])
        self.total += on_grid(joint, self.largest_norm, self.step)[0]


def mean_gradient(vector: Sums, parameters: Sequence[Any], records: int) -> FloatArray:
    """Return a block's mean gradient as one vector; 0 if it is not finite."""
    parts = [
        vector[p].double().cpu().numpy().ravel() if p in vector else np.zeros(p.numel())
        for p in parameters
    ]
    with np.errstate(all="ignore"):
        mean: FloatArray = zero_nonfinite_rows((np.concatenate(parts) / records)[None])[0]
    return mean


def _term_norms(uses: CallsByParameter) -> Any:
    """Return the sums of norms of blocks' terms over all parameters, (blocks,)."""
    each = [sum(use.term_norms() for use in calls) for calls in uses.values()]
    return torch.stack(each).square().sum(0).sqrt()


def _magnitudes(uses: CallsByParameter) -> Any:
    """Return upper limits of all numbers in blocks' sums and losses, (blocks,)."""
    of_inputs, of_gradients = sum(use.magnitudes() for calls in uses.values() for use in calls)
    return of_inputs + of_gradients


def _norms(uses: CallsByParameter, layout: BlockLayout) -> Any:
    """Return the norms of the blocks' sums over all parameters, (blocks,)."""
    squares = []
    for calls in uses.values():
        match calls:
            case [use]:
                square = use.squared_norms()
            case [Outer() | StoredGradients() as linear, Lookup() as lookup]:
                both = linear.squared_norms() + lookup.squared_norms()
                square = (both + 2 * inner_products(linear, lookup)).clamp(min=0)
            case _:
                # The gradient of a parameter with several uses is the sum of their gradients.
                blocks = range(layout.blocks)
                formed = (sum(use.block_gradient(block) for use in calls) for block in blocks)
                square = torch.stack([part.square().sum() for part in formed])
        squares.append(square)
    return torch.stack(squares).sum(0).sqrt()


def _add(sums: Sums, more: Sums) -> None:
    for parameter, part in more.items():
        if parameter in sums:
            sums[parameter] += part.to(sums[parameter].dtype)
        else:
            sums[parameter] = part


def add_part(vector: Sums, part: Sums) -> None:
    """Add a part of a block to the block's vector in place, in double precision."""
    _add(vector, {parameter: value.double() for parameter, value in part.items()})
