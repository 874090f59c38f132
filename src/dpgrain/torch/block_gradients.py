"""Per-block gradients of a parameter in one layer call, without forming them.

A *use* is one call of one layer with one parameter. It computes the squared norm of each block's
contribution, and the weighted sum over blocks. Most layers need no gradient per block: norms follow
from small products, and one weighted product yields the sum (bookkeeping).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from dpgrain.torch import devices
from dpgrain.torch.gradient_precision import is_half, precisely
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.library import torch

functional = torch.nn.functional
# Entries per slice, for block gradients that are formed only for their norms: 4 MB of double
# precision, which fit into the cache of a CPU.
_SLICE_ENTRIES = 1 << 19
# The same on a GPU, where each slice costs two kernel launches: 512 MB of double precision.
_GPU_SLICE_ENTRIES = 1 << 26
# Maximum number of entries of block gradients stored until their weights are known.
_MAX_STORED_ENTRIES = 1 << 24
# Ratio of the norms of terms to the norm of their sum above which a stored sum is recomputed in
# double precision.
_MAX_TERM_RATIO = 1024.0
# Maximum memory of stored block sums, relative to their factors.
_MAX_STORED_MEMORY = 1.25
# Maximum ratio of k²·(inputs + outputs) to inputs·outputs for a Gram matrix of k rows.
_GRAM_WORTH = 4
# Maximum ratio of k·(inputs + outputs) to inputs·outputs for a Gram matrix where double precision
# costs twice as much as single precision: it needs fewer products, and no per-block gradient.
_LONG_GRAM_WORTH = 0.5
# Maximum number of records per block that are processed as groups of one convolution.
_FEW_RECORDS = 2
# Maximum number of entries of unfolded filter inputs on a GPU at a time.
_MAX_UNFOLDED_ENTRIES = 1 << 26


class Use(ABC):
    """Gradient of each block by one parameter in one layer call, summed over its rows."""

    def __init__(self, layout: BlockLayout) -> None:
        self.layout = layout

    @abstractmethod
    def squared_norms(self) -> Any:
        """Return the squared norms of contributions in double precision, (blocks,)."""

    @abstractmethod
    def term_norms(self) -> Any:
        """Return the sum of norms of the terms of each block's sum, (blocks,).

        Rounding errors are relative to it. It is 0 if the stored sum is the one that is added.
        """

    @abstractmethod
    def magnitudes(self) -> Any:
        """Return upper limits of the inputs, and of gradients and products, (2, blocks).

        They depend only on the block's own rows. The second limit is proportional to gradients.
        """

    @abstractmethod
    def weighted_sum(self, weights: Any) -> Any:
        """Return the weighted sum over blocks; weights are (blocks,)."""

    @abstractmethod
    def block_gradient(self, block: int) -> Any:
        """Return one block's contribution, computed separately in double precision."""

    @abstractmethod
    def without(self, blocks: Any) -> Use:
        """Return the use without the contributions of masked blocks, (blocks,)."""

    def stored(self) -> Use:
        """Return the use with stored sums if they are small enough, otherwise itself."""
        return self

    @abstractmethod
    def add_to(self, sums: Any) -> None:
        """Add the contributions to ``sums``, (blocks, …), in place, each from its own rows."""

    def with_sums(self, sums: Any) -> StoredGradients:
        """Return the use with stored sums, (blocks, …), computed for all blocks together.

        If terms cancel, the last digits of a sum depend on other blocks, so it is recomputed.
        """
        cancelled = self.term_norms() > _MAX_TERM_RATIO * _squared_norms(sums).sqrt()
        for block in torch.nonzero(cancelled).flatten().tolist():
            sums[block] = self.block_gradient(block).to(sums.dtype)
        return StoredGradients(self.layout, sums, self.magnitudes())


class Uses(dict[Any, list[Use]]):
    """Contributions of blocks to each parameter, in all layer calls that use it."""

    def add(self, parameter: Any, use: Use) -> None:
        """Add a parameter's use in another layer call; add stored sums immediately."""
        calls, use = self.setdefault(parameter, []), use.stored()
        if calls and isinstance(use, StoredGradients) and isinstance(calls[-1], StoredGradients):
            calls[-1] = calls[-1].plus(use)
        else:
            calls.append(use)

    def recording(self) -> AbstractContextManager[None]:
        """Return a context for computing contributions."""
        return precisely()


class StoredGradients(Use):
    """Use with stored block sums, (blocks, …); ``magnitudes`` defaults to their norms."""

    def __init__(self, layout: BlockLayout, sums: Any, magnitudes: Any = None) -> None:
        super().__init__(layout)
        self.sums, self._magnitudes = sums, magnitudes

    def squared_norms(self) -> Any:
        """Return the squared norms of contributions in double precision, (blocks,)."""
        return _squared_norms(self.sums)

    def term_norms(self) -> Any:
        """Return zeros, because the sums are stored."""
        return self.sums.new_zeros(self.layout.blocks, dtype=torch.float64)

    def magnitudes(self) -> Any:
        """Return upper limits of the terms of the sums, (2, blocks)."""
        return (
            _gradients_only(self.squared_norms().sqrt())
            if self._magnitudes is None
            else self._magnitudes
        )

    def plus(self, other: StoredGradients) -> StoredGradients:
        """Return the use in two calls."""
        magnitudes = self.magnitudes() + other.magnitudes()
        return StoredGradients(self.layout, self.sums + other.sums, magnitudes)

    def add_to(self, sums: Any) -> None:
        """Add the stored sums."""
        sums.add_(self.sums)

    def weighted_sum(self, weights: Any) -> Any:
        """Return the weighted sum over blocks."""
        return torch.tensordot(weights.to(self.sums.dtype), self.sums, 1)

    def block_gradient(self, block: int) -> Any:
        """Return one block's contribution."""
        return self.sums[block].double()

    def without(self, blocks: Any) -> Use:
        """Return the use without the contributions of some blocks."""
        return StoredGradients(
            self.layout, _zeroed(self.sums, blocks), self.magnitudes().masked_fill(blocks, 0.0)
        )


class RowGradients(StoredGradients):
    """Use with a gradient per position, (rows, positions, …), added up over blocks."""

    def __init__(self, layout: BlockLayout, rows: Any) -> None:
        super().__init__(layout, None)
        self.rows = rows

    def stored(self) -> Use:
        """Return the use with stored sums."""
        return StoredGradients(self.layout, self.layout.per_block(self._per_row))

    def add_to(self, sums: Any) -> None:
        """Add the sums over the rows of each block."""
        sums.add_(self.layout.segment_sums(self._per_row))

    def add_to_records(self, sums: Any, *, is_first: bool) -> None:
        """Add the sums over the rows of each record to ``sums``, (records, …), in place."""
        rows = self.rows.reshape(len(sums), -1, *self.rows.shape[2:])
        if is_first:
            torch.sum(rows, 1, dtype=sums.dtype, out=sums)
        else:
            sums.add_(rows.sum(1, dtype=sums.dtype))

    @property
    def _per_row(self) -> Any:
        """Sums over positions, (rows, …)."""
        kind = torch.float64 if self.rows.dtype == torch.float64 else torch.float32
        return self.rows.sum(1, dtype=kind)


class Outer(Use):
    """Use of the weight of a linear map: the sum over rows of b xᵀ.

    ``x`` is the input, (rows, positions, inputs), and ``b`` the gradient of the output, (rows,
    positions, outputs), both possibly in half precision to save memory.
    """

    def __init__(self, layout: BlockLayout, x: Any, b: Any) -> None:
        super().__init__(layout)
        self.x, self.b = x, b

    def stored(self) -> Use:
        """Return the use with stored sums if they need little memory, otherwise itself."""
        x, b = self.x, self.b
        entries = self.layout.blocks * x.shape[-1] * b.shape[-1]
        if entries > _MAX_STORED_MEMORY * (x.numel() + b.numel()):
            return self
        parts = [
            torch.bmm(to_single(b).flatten(1, 2).mT, to_single(x).flatten(1, 2))
            for _, (x, b) in self.layout.views(x, b)
        ]
        return self.with_sums(parts[0] if len(parts) == 1 else torch.cat(parts))

    def add_to(self, sums: Any) -> None:
        """Add the products, with factors in the precision of the output's gradient."""
        x, b = self.x, self.b
        if is_half(b.dtype):
            x = x.to(b.dtype)
            # Also for blocks of equal size: the kernels differ in precision, so the choice must not
            # depend on the drawn blocks.
            if _can_be_grouped(x, b):
                ends = self.layout.times(x.shape[1]).ends_on(x.device)
                b, x = b.flatten(0, 1), x.flatten(0, 1)
                sums.add_(functional.grouped_mm(b.t(), x, offs=ends))
                return
        for blocks, (xs, bs) in self.layout.views(x, b):
            _add_products(sums[blocks], bs.flatten(1, 2).mT, xs.flatten(1, 2))

    def concatenated(self, others: Sequence[Outer]) -> Outer:
        """Return the use in several calls, with concatenated positions."""
        x, b = (
            torch.cat([getattr(use, part) for use in (self, *others)], 1) for part in ("x", "b")
        )
        return Outer(self.layout, x, b)

    def squared_norms(self) -> Any:
        """Return the squared norms of contributions in double precision, (blocks,)."""
        if self.layout.rows * self.x.shape[1] == self.layout.blocks:
            return self.term_norms().square()
        views = self.layout.views(self.x, self.b)
        return torch.cat([_squared_product_norms(x, b) for _, (x, b) in views])

    def term_norms(self) -> Any:
        """Return the sums over rows of ‖x‖‖b‖, (blocks,)."""
        of_x, of_b = self._norms
        return self.layout.per_block((of_x * of_b).sum(1))

    def magnitudes(self) -> Any:
        """Return upper limits of the inputs, and of gradients and products, (2, blocks)."""
        of_x, of_b = self._norms
        both = torch.stack([of_x, (of_x + 1) * of_b])
        return torch.stack([self.layout.per_block(part.sum(1)) for part in both])

    @cached_property
    def _norms(self) -> tuple[Any, Any]:
        """Norms of inputs and of output gradients, (rows, positions)."""
        return norms(self.x), norms(self.b)

    def weighted_sum(self, weights: Any) -> Any:
        """Return the weighted sum over blocks."""
        b, x = to_single(self.b), to_single(self.x)
        weighted = b * self.layout.per_row(weights.to(b.dtype))[:, None, None]
        return weighted.flatten(0, 1).t() @ x.flatten(0, 1)

    def block_gradient(self, block: int) -> Any:
        """Return one block's contribution."""
        rows = self.layout.block_slice(block)
        b, x = self.b[rows].flatten(0, 1).double(), self.x[rows].flatten(0, 1).double()
        return b.t() @ x

    def without(self, blocks: Any) -> Use:
        """Return the use without the contributions of some blocks."""
        rows = self.layout.per_row(blocks)
        return Outer(self.layout, _zeroed(self.x, rows), _zeroed(self.b, rows))


class Lookup(Use):
    """Use of an embedding table: gradients are added to the rows looked up.

    ``places`` are the indices, (rows, positions), and ``b`` the gradient of the output, (rows,
    positions, width).
    """

    def __init__(self, layout: BlockLayout, places: Any, b: Any, size: int) -> None:
        super().__init__(layout)
        self.places, self.b, self.size = places, b, size

    def concatenated(self, others: Sequence[Lookup]) -> Lookup:
        """Return the use in several calls, with concatenated positions."""
        places, b = (
            torch.cat([getattr(u, part) for u in (self, *others)], 1) for part in ("places", "b")
        )
        return Lookup(self.layout, places, b, self.size)

    def add_to(self, sums: Any) -> None:
        """Add the gradients at their indices."""
        block = self.layout.per_row(torch.arange(self.layout.blocks, device=self.b.device))
        sums.index_put_((block[:, None], self.places), self.b.to(sums.dtype), accumulate=True)

    def squared_norms(self) -> Any:
        """Return the squared norms of contributions in double precision, (blocks,)."""
        block = self.layout.per_row(torch.arange(self.layout.blocks, device=self.b.device))
        keys, group = torch.unique(self.places + block[:, None] * self.size, return_inverse=True)
        sums = self.b.new_zeros(len(keys), self.b.shape[-1])
        sums.index_add_(0, group.flatten(), self.b.flatten(0, 1))
        out = self.b.new_zeros(self.layout.blocks, dtype=torch.float64)
        return out.index_add_(0, keys // self.size, _squared_norms(sums))

    def term_norms(self) -> Any:
        """Return the sums of norms of the gradients, (blocks,)."""
        return self.layout.per_block(norms(self.b).sum(1))

    def magnitudes(self) -> Any:
        """Return zeros, and the sums of norms of the gradients, (2, blocks)."""
        return _gradients_only(self.term_norms())

    def weighted_sum(self, weights: Any) -> Any:
        """Return the weighted sum over blocks."""
        weighted = self.b * self.layout.per_row(weights.to(self.b.dtype))[:, None, None]
        return self._table(self.places, weighted)

    def block_gradient(self, block: int) -> Any:
        """Return one block's contribution."""
        rows = self.layout.block_slice(block)
        return self._table(self.places[rows], self.b[rows].double())

    def without(self, blocks: Any) -> Use:
        """Return the use without the contributions of some blocks."""
        rows = self.layout.per_row(blocks)
        return Lookup(self.layout, self.places, _zeroed(self.b, rows), self.size)

    def _table(self, places: Any, b: Any) -> Any:
        out = b.new_zeros(self.size, b.shape[-1])
        return out.index_add_(0, places.flatten(), b.flatten(0, 1))


class Filters(Use):
    """Use of a convolution's weight, with block sums by the library's kernel.

    ``x`` is the padded input, (rows, channels, …), and ``b`` the gradient of the output, (rows,
    filters, …). ``padding`` is the number of zeros at each side, by dimension.
    """

    def __init__(
        self, layout: BlockLayout, x: Any, b: Any, shape: Any, **geometry: tuple[int, ...] | int
    ) -> None:
        super().__init__(layout)
        self.x, self.b, self.shape, self.geometry = x, b, tuple(shape), geometry

    def stored(self) -> Use:
        """Return the use with stored sums if they are small enough, otherwise itself."""
        if self.layout.blocks * torch.Size(self.shape).numel() > _MAX_STORED_ENTRIES:
            return self
        if devices.is_gpu(self.x):
            return self.with_sums(torch.cat(list(self._by_products())))
        sums = [self._equal_sized_sums(x, b) for _, (x, b) in self.layout.views(self.x, self.b)]
        return StoredGradients(self.layout, torch.cat(sums), self.magnitudes())

    def add_to(self, sums: Any) -> None:
        """Add matrix products of some blocks at a time."""
        first = 0
        for part in self._by_products():
            sums[first : first + len(part)] += part
            first += len(part)

    def squared_norms(self) -> Any:
        """Return the squared norms of contributions in double precision, (blocks,)."""
        if devices.is_gpu(self.x):
            return torch.cat([_squared_norms(sums) for sums in self._by_products()])
        rows = [self.layout.block_slice(block) for block in range(self.layout.blocks)]
        return torch.cat([_squared_norms(self._gradient(self.x[r], self.b[r])[None]) for r in rows])

    def term_norms(self) -> Any:
        """Return upper bounds of the sums of norms, (blocks,)."""
        of_x, of_b = self._norms
        return self.layout.per_block(of_x * of_b * self._places)

    def magnitudes(self) -> Any:
        """Return upper limits of the inputs, and of gradients and products, (2, blocks)."""
        of_x, of_b = self._norms
        both = torch.stack([of_x, (of_x + 1) * of_b]) * self._places
        return torch.stack([self.layout.per_block(part) for part in both])

    @property
    def _places(self) -> float:
        """Growth of norms in products: an entry of x meets each filter position once."""
        return float(torch.Size(self.shape[2:]).numel() ** 0.5)

    @cached_property
    def _norms(self) -> tuple[Any, Any]:
        """Norms of inputs and of output gradients, (rows,)."""
        return norms(self.x.flatten(1)), norms(self.b.flatten(1))

    def weighted_sum(self, weights: Any) -> Any:
        """Return the weighted sum over blocks."""
        rows = self.layout.per_row(weights.to(self.b.dtype))
        return self._gradient(self.x, self.b * rows.reshape(-1, *[1] * (self.b.dim() - 1)))

    def block_gradient(self, block: int) -> Any:
        """Return one block's contribution."""
        rows = self.layout.block_slice(block)
        return self._gradient(self.x[rows].double(), self.b[rows].double())

    def without(self, blocks: Any) -> Use:
        """Return the use without the contributions of some blocks."""
        rows = self.layout.per_row(blocks)
        x, b = _zeroed(self.x, rows), _zeroed(self.b, rows)
        return Filters(self.layout, x, b, self.shape, **self.geometry)

    def _by_products(self) -> Iterator[Any]:
        """Yield the sums of some blocks at a time, (blocks, …), as matrix products.

        On a GPU, a kernel call per block takes longer than the computation, except for large
        blocks.
        """
        of_record = torch.Size(self.shape[1:]).numel() * self._groups * self.b[0, 0].numel()
        for _, (x, b) in self.layout.views(self.x, self.b):
            most = _MAX_UNFOLDED_ENTRIES // max(1, x.shape[1] * of_record)
            few = max(1, min(most, _MAX_STORED_ENTRIES // torch.Size(self.shape).numel()))
            for xs, bs in zip(x.split(few), b.split(few), strict=True):
                yield self._products(xs, bs) if most else self._gradient(xs[0], bs[0])[None]

    def _products(self, x: Any, b: Any) -> Any:
        """Return sums of equal-sized blocks from (blocks, size, …) views, by products."""
        count, size = x.shape[:2]
        stride, padding, dilation = self._along
        sides = [zeros for side in reversed(padding) for zeros in (side, side)]
        seen = torch.nn.functional.pad(x.flatten(0, 1), sides)
        filters = list(zip(self.shape[2:], stride, dilation, strict=True))
        for dim, (places, step, spread) in enumerate(filters, 2):
            seen = seen.unfold(dim, (places - 1) * spread + 1, step)
        seen = seen[(..., *(slice(None, None, spread) for spread in dilation))]
        # (blocks, records, groups, channels, output positions …, filter positions …).
        seen = seen.unflatten(1, (self._groups, -1)).unflatten(0, (count, size))
        b = b.unflatten(2, (self._groups, -1))
        outputs, inside = range(4, b.dim()), range(b.dim(), seen.dim())
        seen = seen.permute(0, 2, 1, *outputs, 3, *inside)
        seen = seen.reshape(count * self._groups, size * b[0, 0, 0, 0].numel(), -1)
        b = b.permute(0, 2, 3, 1, *outputs).reshape(len(seen), -1, seen.shape[1])
        return torch.bmm(b, seen).reshape(count, *self.shape)

    @property
    def _along(self) -> tuple[tuple[int, ...], ...]:
        """Stride, padding and dilation by dimension."""
        names = ("stride", "padding", "dilation")
        return tuple(self.geometry[name] for name in names)  # type: ignore[misc]

    @property
    def _groups(self) -> int:
        return int(self.geometry["groups"])  # type: ignore[arg-type]

    def _equal_sized_sums(self, x: Any, b: Any) -> Any:
        """Return the sums of equal-sized blocks from (blocks, size, …) views."""
        count, size = x.shape[:2]
        if size > _FEW_RECORDS:
            kernel = self._kernel(x)
            return torch.stack(
                [kernel(bs, xs) for xs, bs in zip(x.unbind(), b.unbind(), strict=True)]
            )
        beside_x = x.transpose(0, 1).reshape(size, -1, *x.shape[3:])
        beside_b = b.transpose(0, 1).reshape(size, -1, *b.shape[3:])
        return self._kernel(x, count)(beside_b, beside_x).reshape(count, *self.shape)

    def _gradient(self, x: Any, b: Any) -> Any:
        """Return the gradient of the weight, summed over records."""
        return self._kernel(x)(b, x)

    def _kernel(self, like: Any, count: int = 1) -> Callable[[Any, Any], Any]:
        """Return the library's kernel for gradients of ``count`` weights side by side."""
        weight = like.new_empty(1).expand(count * self.shape[0], *self.shape[1:])
        stride, padding, dilation = self._along
        groups = self._groups * count
        flat, backward = [0] * (len(self.shape) - 2), torch.ops.aten.convolution_backward.default
        rest = (weight, None, stride, padding, dilation, False, flat, groups, [False, True, False])
        return lambda b, x: backward(b, x, *rest)[1]


def combined(calls: Sequence[Use]) -> list[Use]:
    """Combine uses of one parameter that have the same type and positions."""
    out = [use for use in calls if not isinstance(use, Outer | Lookup)]
    for kind in (Outer, Lookup):
        alike: dict[BlockLayout, list[Any]] = {}
        for use in calls:
            if isinstance(use, kind):
                alike.setdefault(use.layout, []).append(use)
        out += [
            same[0] if len(same) == 1 else same[0].concatenated(same[1:]) for same in alike.values()
        ]
    return out


def _add_products(sums: Any, left: Any, right: Any) -> None:
    """Add products of matrices, (n, …), to single- or double-precision sums in place."""
    if left.is_cuda and is_half(left.dtype):
        sums.add_(torch.bmm(left, right, out_dtype=torch.float32))
    else:
        sums.baddbmm_(left.to(sums.dtype), right.to(sums.dtype))


def _can_be_grouped(x: Any, b: Any) -> bool:
    """Return True if one kernel computes products of blocks of different sizes."""
    # Rows must be aligned to 16 bytes, which are 8 numbers.
    is_aligned = x.shape[-1] % 8 == 0 and b.shape[-1] % 8 == 0
    return (
        is_aligned
        and b.dtype == torch.bfloat16
        and hasattr(functional, "grouped_mm")
        and devices.has_grouped_products(b)
    )


def _squared_product_norms(x: Any, b: Any) -> Any:
    """Return the squared norms of bᵀx, (n,), from n blocks (n, rows, positions, …)."""
    x, b = x.flatten(1, 2), b.flatten(1, 2)
    n, rows, inputs = x.shape
    outputs = b.shape[-1]
    if rows == 1:
        return _squared_norms(x) * _squared_norms(b)
    few = rows * rows * (inputs + outputs) <= _GRAM_WORTH * inputs * outputs
    some = rows * (inputs + outputs) <= _LONG_GRAM_WORTH * inputs * outputs
    if few or (some and devices.is_quick_in_double(x)):
        # Sums cancel, so the Gram matrix loses twice the digits: use double precision.
        x, b = x.double(), b.double()
        return ((x @ x.mT) * (b @ b.mT)).sum((1, 2)).clamp_(min=0)
    few = max(1, _slice_entries(x) // (inputs * outputs))
    slices = (slice(i, i + few) for i in range(0, n, few))
    return torch.cat(
        [_squared_norms(torch.bmm(to_single(b[some]).mT, to_single(x[some]))) for some in slices]
    )


def to_single(tensor: Any) -> Any:
    """Convert real numbers to single precision or better; integers are unchanged."""
    return tensor.float() if is_half(tensor.dtype) else tensor


def inner_products(linear: Outer | StoredGradients, lookup: Lookup) -> Any:
    """Return inner products of blocks' contributions in a map and a lookup, (blocks,).

    For language models with a tied head: for the map's sum bᵀx and a row g added at index p, the
    product is Σ b_p (x·g), which needs no gradient.
    """
    layout = lookup.layout
    if isinstance(linear, StoredGradients):
        block = layout.per_row(torch.arange(layout.blocks, device=linear.sums.device))
        met = linear.sums[block[:, None], lookup.places].double() * lookup.b.double()
        return layout.per_block(met.sum((1, 2)))
    products = []
    in_maps, looked_up = (
        linear.layout.views(linear.x, linear.b),
        layout.views(lookup.places, lookup.b),
    )
    for (_, maps), (_, tables) in zip(in_maps, looked_up, strict=True):
        x, b, places, g = (view.flatten(1, 2) for view in (*maps, *tables))
        at = places[:, None, :].expand(-1, b.shape[1], -1)
        products.append(((x.double() @ g.double().mT) * b.gather(2, at).double()).sum((1, 2)))
    return torch.cat(products)


def norms(tensor: Any) -> Any:
    """Return norms along the last dimension, with squares in double precision."""
    flat = tensor.flatten(0, -2)
    few = max(1, _slice_entries(tensor) // max(1, tensor.shape[-1]))
    parts = [
        torch.linalg.vector_norm(part, dim=-1, dtype=torch.float64) for part in flat.split(few)
    ]
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).reshape(tensor.shape[:-1])


def _slice_entries(tensor: Any) -> int:
    return _GPU_SLICE_ENTRIES if devices.is_gpu(tensor) else _SLICE_ENTRIES


def _squared_norms(tensor: Any) -> Any:
    """Return the squared norms of n tensors or numbers in double precision, (n,)."""
    return norms(tensor[..., None].flatten(1)).square()


def _gradients_only(of_gradients: Any) -> Any:
    """Return the magnitudes of contributions that consist of gradients only, (blocks,)."""
    return torch.stack([torch.zeros_like(of_gradients), of_gradients])


def _zeroed(tensor: Any, rows: Any) -> Any:
    """Replace the rows in a mask by zeros."""
    return tensor.masked_fill(rows.reshape(-1, *[1] * (tensor.dim() - 1)), 0)
