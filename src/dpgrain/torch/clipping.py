"""Sums of clipped blocks: mean gradients of the blocks of a batch, each shortened to a bound, added up.

What rounding may add to a block is bounded. A product of matrices is taken to be off by at most
:data:`PRODUCT_ERROR` times the sum of lengths of its terms. A block whose terms are so long that this
would show, since they cancel, is formed apart from others in double precision, so that the very vector
is added whose norm was found. :func:`overshoot` is what is left, and it is billed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dpgrain._clipping import clipped, finite
from dpgrain._types import FloatArray, IntArray
from dpgrain.means.grid import on_grid
from dpgrain.torch.layout import Layout
from dpgrain.torch.library import torch
from dpgrain.torch.precision import precisely
from dpgrain.torch.uses import Kept, Lookup, Outer, Uses, joined, products

#: A product of matrices is off by at most this share of the sum of the lengths of its terms, by type of
#: number: 128 roundings in one direction. The tests measure it.
PRODUCT_ERROR: Mapping[Any, float] = {torch.float32: 2.0**-17, torch.float64: 2.0**-46}
# Bounds beyond which a block whose terms are longer, as they are added, is formed by itself.
_LONGEST_BOUNDS = 64.0
# Bounds beyond which numbers make a block that is formed by itself: its weight might be no number.
_WIDEST_BOUNDS = 2.0**80
#: Largest number in a block that adds anything: nothing else overflows in any precision.
LARGEST_NUMBER = 2.0**120

#: What is added to each parameter.
Sums: TypeAlias = dict[Any, Any]
#: What blocks count, (blocks,) in [−1, 1], from their lengths in bounds.
Counts: TypeAlias = Callable[[FloatArray], FloatArray]


def overshoot(precision: Any) -> float:
    """Return the share by which a clipped block may be longer than its bound, from rounding.

    Args:
        precision: the type of number of the parameters, ``torch.float32`` or ``torch.float64``.

    Formal guarantee: the norm is found with an error of one product, and the block added with another,
    each at most :data:`PRODUCT_ERROR` times 64 bounds; the rounding of the weight is far smaller than
    what is added for it here.

    >>> overshoot(torch.float32) < 0.001
    True
    """
    return 2 * _LONGEST_BOUNDS * PRODUCT_ERROR[precision] * (1 + 2.0**-10)


def clipped_sums(
    uses: Uses,
    layout: Layout,
    bound: float,
    told: Callable[[FloatArray], None] | None = None,
) -> Sums:
    """Return the sum over blocks of their mean gradients, each shortened to a bound.

    Args:
        uses: what blocks add to each parameter.
        layout: the blocks, of which the whole batch is made.
        bound: the largest norm of a block's mean gradient, over all parameters together.
        told: what is given the norms of mean gradients before they are shortened, (blocks,).

    Formal guarantee: each block adds a vector of norm at most ``bound·(1 + overshoot)``; one that has
    numbers beyond :data:`LARGEST_NUMBER`, or that are none, adds nothing, and has norm 0. Source:
    element-level paper, Algorithm 1; docs/theory, "Gradient steps of networks".
    """
    with precisely():
        return _clipped_sums(uses, layout, bound, told)


def _clipped_sums(
    uses: Uses,
    layout: Layout,
    bound: float,
    told: Callable[[FloatArray], None] | None,
) -> Sums:
    uses = {parameter: joined(of) for parameter, of in uses.items()}
    lengths, norms = _lengths(uses), _norms(uses, layout)
    reaches = _reaches(uses)
    # What is left out follows from the block alone, and not from the way its sum is made.
    broken = ~((reaches <= LARGEST_NUMBER) & torch.isfinite(norms))
    if broken.any():
        uses = {p: [use.without(broken) for use in of] for p, of in uses.items()}
        lengths, norms, reaches = (t.masked_fill(broken, 0.0) for t in (lengths, norms, reaches))
    share = 1.0 / torch.tensor(layout.sizes, dtype=torch.float64, device=norms.device)
    weights = torch.clamp(bound / (norms * share).clamp_(min=1e-300), max=1.0) * share
    apart = (weights * lengths > _LONGEST_BOUNDS * bound) | (reaches > _WIDEST_BOUNDS * bound)
    sums = {
        parameter: sum(use.total(weights.masked_fill(apart, 0.0)) for use in of)
        for parameter, of in uses.items()
    }
    result = norms * share
    for block in torch.nonzero(apart).flatten().tolist():
        vector = _formed(uses, block)
        result[block] = length(vector) * share[block]
        _add(sums, shortened(vector, bound, float(share[block])))
    if told is not None:
        told(result.cpu().numpy())
    return sums


def shortened(vector: Sums, bound: float, share: float = 1.0) -> Sums:
    """Return a vector times a share, shortened to a bound; nothing if it is not finite.

    Args:
        vector: its parts, by parameter.
        bound: the largest norm.
        share: what it is multiplied by before.
    """
    norm = length(vector)
    if norm == 0:
        return {}
    weight = min(share, bound / norm)
    return {parameter: part * weight for parameter, part in vector.items()}


def length(vector: Sums) -> float:
    """Return the norm of a vector; 0 if it is not finite.

    Args:
        vector: its parts, by parameter.
    """
    norm = math.hypot(*(float(torch.linalg.vector_norm(part.double())) for part in vector.values()))
    return norm if math.isfinite(norm) else 0.0


def whole_sums(uses: Uses, layout: Layout) -> Sums:
    """Return the sum over all rows, not clipped: a part of one block.

    Args:
        uses: what the rows add to each parameter, as one block.
        layout: the rows.
    """
    weights = torch.full((layout.blocks,), 1.0, dtype=torch.float64)
    with precisely():
        return {p: sum(use.total(weights.to(p.device)) for use in of) for p, of in uses.items()}


class FloatSum:
    """The sum of clipped blocks of one step, in floating point.

    Args:
        parameters: what is trained.
        bound: the clipping bound.
        counts: what blocks count beside their gradients; nothing by default.
    """

    def __init__(
        self, parameters: Sequence[Any], bound: float, counts: Counts | None = None
    ) -> None:
        self.bound, self._counts = bound, counts
        self.sums: Sums = {p: torch.zeros_like(p, dtype=_precision(p)) for p in parameters}
        self.counted = torch.zeros((), dtype=torch.float64, device=parameters[0].device)

    def tensors(self) -> list[Any]:
        """Return what is added up over processes, in place."""
        return [*self.sums.values(), self.counted]

    def add_blocks(self, uses: Uses, layout: Layout) -> None:
        """Add the blocks of a batch that holds whole blocks."""
        told = None if self._counts is None else self._count
        _add(self.sums, clipped_sums(uses, layout, self.bound, told))

    def add_block(self, vector: Sums, records: int) -> None:
        """Add one block whose gradient was added up over batches, a sum over its records."""
        _add(self.sums, shortened(vector, self.bound, 1 / records))
        self._count(np.array([length(vector) / records]))

    def _count(self, norms: FloatArray) -> None:
        if self._counts is not None:
            self.counted += float(self._counts(norms / self.bound).sum())


class ExactSum:
    """The sum of clipped blocks of one step, in whole steps of a grid.

    Args:
        parameters: what is trained.
        bound: the clipping bound.
        step: the step of the grid.
        counts: what blocks count beside their gradients, in a last entry of the sum; nothing by
            default.
        count_share: what a count of 1 adds to it, in bounds.
        stretch: the norm of a block's vector with its count, in bounds.
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
        self._count_share, self.reach = count_share, stretch * bound
        entries = sum(p.numel() for p in parameters) + (counts is not None)
        self.total: IntArray = np.zeros(entries, dtype=np.int64)

    def tensors(self) -> list[Any]:
        """Return what is added up over processes, in place."""
        return [torch.from_numpy(self.total)]

    def add_blocks(self, uses: Uses, layout: Layout) -> None:
        """Add a batch, which must hold one block."""
        assert layout.blocks == 1  # noqa: S101 - nothing of other blocks may enter a kernel
        self.add_block(whole_sums(uses, layout), layout.rows)

    def add_block(self, vector: Sums, records: int) -> None:
        """Add one block, a sum over its records."""
        mean = mean_of(vector, self.parameters, records)[None]
        joint = clipped(mean, self.bound)
        if self._counts is not None:
            # A norm that overflows is that of a long block.
            with np.errstate(over="ignore"):
                counts = self._counts(np.linalg.norm(mean, axis=1) / self.bound)
            joint = np.hstack([joint, counts[:, None] * self._count_share * self.bound])
        self.total += on_grid(joint, self.reach, self.step)[0]


def mean_of(vector: Sums, parameters: Sequence[Any], records: int) -> FloatArray:
    """Return a block's mean gradient as one vector; 0 if it is not finite.

    Args:
        vector: the sum over the block's records, by parameter.
        parameters: what is trained, in the order of the vector.
        records: the number of the block's records.
    """
    parts = [
        vector[p].double().cpu().numpy().ravel() if p in vector else np.zeros(p.numel())
        for p in parameters
    ]
    with np.errstate(all="ignore"):
        mean: FloatArray = finite((np.concatenate(parts) / records)[None])[0]
    return mean


def _lengths(uses: Uses) -> Any:
    """Return (blocks,) the sums of lengths of the terms of blocks, all parameters together."""
    each = [sum(use.lengths() for use in of) for of in uses.values()]
    return torch.stack(each).square().sum(0).sqrt()


def _reaches(uses: Uses) -> Any:
    """Return (blocks,) what no number exceeds that blocks' sums are made of, with records' losses."""
    of_inputs, of_gradients = sum(use.reaches() for of in uses.values() for use in of)
    return of_inputs + of_gradients


def _norms(uses: Uses, layout: Layout) -> Any:
    """Return (blocks,) the norms of blocks' sums, all parameters together."""
    squares = []
    for of in uses.values():
        if len(of) == 1:
            squares.append(of[0].squares())
            continue
        if len(of) == 2 and isinstance(of[0], Outer | Kept) and isinstance(of[1], Lookup):
            both = of[0].squares() + of[1].squares() + 2 * products(of[0], of[1])
            squares.append(both.clamp(min=0))
            continue
        # A parameter that is used several times has one gradient, which is the sum.
        blocks = range(layout.blocks)
        formed = (sum(use.formed(block) for use in of) for block in blocks)
        squares.append(torch.stack([part.square().sum() for part in formed]))
    return torch.stack(squares).sum(0).sqrt()


def _formed(uses: Uses, block: int) -> Sums:
    return {p: sum(use.formed(block) for use in of) for p, of in uses.items()}


def _add(sums: Sums, more: Sums) -> None:
    for parameter, part in more.items():
        if parameter in sums:
            sums[parameter] += part.to(sums[parameter].dtype)
        else:
            sums[parameter] = part


def add_part(vector: Sums, part: Sums) -> None:
    """Add a part of a block to the block's vector, in double precision.

    Args:
        vector: the block's vector so far, which changes.
        part: what more rows of the block add.
    """
    _add(vector, {parameter: value.double() for parameter, value in part.items()})


def _precision(parameter: Any) -> Any:
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32
