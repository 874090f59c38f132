"""Gradients of all blocks by all parameters, formed once in one buffer, for GPUs.

The measured numbers are the added ones, so products may have any precision. Norms and sums are in
double precision. Proof: docs/theory, "Gradient steps of networks".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.torch import devices
from dpgrain.torch.block_gradients import RowGradients, Use, Uses
from dpgrain.torch.gradient_precision import halves_inputs, without_autocast
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.library import torch

#: Reduction of the clipping bound for rounding of sums: 2N²·2⁻⁵³ (and some slack) with N = 2¹⁸
#: blocks in a step.
SUM_ERROR = 2.0**-15
# Relative error of a norm in double precision, for slices of at most 2²⁵ entries.
_NORM_ERROR = 2.0**-27
# Maximum number of entries per conversion to double precision; 256 MB.
_SLICE_ENTRIES = 1 << 25


class FlatVectors:
    """Vectors of parameters side by side, (…, entries), and each parameter's part."""

    def __init__(self, parameters: Sequence[Any], values: Any) -> None:
        self.values = values
        sizes = [parameter.numel() for parameter in parameters]
        before, parts = values.shape[:-1], values.split(sizes, dim=-1)
        self.parts = {
            parameter: part.view((*before, *parameter.shape))
            for parameter, part in zip(parameters, parts, strict=True)
        }

    @staticmethod
    def zeros(parameters: Sequence[Any], *before: int, precision: Any = None) -> FlatVectors:
        """Return vectors of zeros, in the precision of sums if there is none."""
        shape = (*before, sum(parameter.numel() for parameter in parameters))
        like = parameters[0]
        zeros = torch.zeros(shape, dtype=precision or sum_precision(like), device=like.device)
        return FlatVectors(parameters, zeros)


class BufferedUses(Uses):
    """Contributions of blocks to all parameters in one buffer, (blocks, entries)."""

    def __init__(self, layout: BlockLayout, parameters: Sequence[Any]) -> None:
        super().__init__()
        self.layout, self.parameters = layout, in_buffer_order(parameters)
        self._stream = devices.current_stream(self.parameters[0])
        self._vectors: FlatVectors | None = None
        self._per_record: FlatVectors | None = None

    def add(self, parameter: Any, use: Use) -> None:
        """Add the contributions of one layer call."""
        if devices.current_stream(self.parameters[0]) != self._stream:
            # Operations of several streams on one buffer have no order.
            raise ParameterError(
                "module must run on one stream of the GPU, but the backward pass of a layer ran on "
                "another one; remove torch.cuda.stream from the module.",
                name="module",
            )
        if isinstance(use, RowGradients) and parameter.dim() < 2:
            is_first = parameter not in self
            use.add_to_records(self._records.parts[parameter], is_first=is_first)
        else:
            use.add_to(self._blocks.parts[parameter])
        self[parameter] = [use]

    @property
    def _blocks(self) -> FlatVectors:
        """Vectors of the blocks, which need memory from the first contribution on."""
        if self._vectors is None:
            self._vectors = FlatVectors.zeros(self.parameters, self.layout.blocks)
        return self._vectors

    @property
    def _records(self) -> FlatVectors:
        """Contributions of records to biases and scales."""
        if self._per_record is None:
            small = [parameter for parameter in self.parameters if parameter.dim() < 2]
            self._per_record = FlatVectors.zeros(small, self.layout.rows)
        return self._per_record

    def finished(self) -> FlatVectors:
        """Return the vectors of the blocks with all contributions."""
        if self._per_record is not None:
            rows, self._per_record = self._per_record.values, None
            self._blocks.values[:, : rows.shape[1]] += self.layout.segment_sums(rows)
        return self._blocks

    def recording(self) -> AbstractContextManager[None]:
        """Return a context for computing contributions, with any precision."""
        return without_autocast() if halves_inputs() else torch.no_grad()

    def clipped_sum(
        self, bound: float, on_norms: Callable[[FloatArray], None] | None = None
    ) -> FlatVectors:
        """Return the sum of the blocks' mean gradients in double precision, each clipped.

        Formal guarantee: before summation, a block's vector has norm at most ``bound / (1 +
        SUM_ERROR)``; 0 if not finite. Source: docs/theory, "Gradient steps of networks".
        """
        values = self.finished().values
        slices = values.split(max(1, _SLICE_ENTRIES // self.layout.blocks), dim=1)
        each = [
            torch.linalg.vector_norm(part, dim=1, dtype=torch.float64).square() for part in slices
        ]
        norms = torch.stack(each).sum(0).sqrt()
        is_broken = ~torch.isfinite(norms)
        share = 1.0 / self.layout.sizes_on(values.device).double()
        means = norms.masked_fill(is_broken, 0.0) * share
        limit = bound / (1 + SUM_ERROR) / (1 + _NORM_ERROR)
        weights = torch.clamp(limit / means.clamp(min=1e-300), max=1.0) * share
        # A weight of 0 does not remove NaN. In place, because nothing else reads the buffer.
        values.masked_fill_(is_broken[:, None], 0.0)
        total = torch.cat([weights @ part.double() for part in slices])
        if on_norms is not None:
            on_norms(means.cpu().numpy())
        return FlatVectors(self.parameters, total)

    def unclipped_sum(self) -> FlatVectors:
        """Return the unclipped sum of all rows, which are a part of one block."""
        return FlatVectors(self.parameters, self.finished().values.sum(0, dtype=torch.float64))


def in_buffer_order(parameters: Sequence[Any]) -> tuple[Any, ...]:
    """Return parameters in the order of a buffer, biases and scales first."""
    return tuple(sorted(parameters, key=lambda parameter: parameter.dim() >= 2))


def new_uses(layout: BlockLayout, parameters: Sequence[Any]) -> Uses:
    """Return empty contributions, in one buffer if possible."""
    return BufferedUses(layout, parameters) if has_buffer(layout.blocks, parameters) else Uses()


def has_buffer(blocks: int, parameters: Sequence[Any]) -> bool:
    """Return True if the gradients of blocks fit into the memory of one GPU."""
    return blocks <= buffered_blocks(parameters)


def buffered_blocks(parameters: Sequence[Any]) -> int:
    """Return the maximum number of blocks in a buffer; 0 if there is none."""
    if len({(parameter.device, sum_precision(parameter)) for parameter in parameters}) != 1:
        return 0
    size = sum(p.numel() for p in parameters) * sum_precision(parameters[0]).itemsize
    return int(devices.buffer_bytes(parameters[0]) // max(1, size))


def sum_precision(parameter: Any) -> Any:
    """Return the precision of sums of a parameter's gradients."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32
