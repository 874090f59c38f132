"""Per-block gradients of a parameter in one layer call, without forming them.

A *use* is one call of one layer with one parameter. It computes the squared norm of each block's
contribution, and the weighted sum over blocks. Most layers need no gradient per block: norms follow
from small products, and one weighted product yields the sum (bookkeeping).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from dpgrain.torch.layout import Layout
from dpgrain.torch.library import torch
from dpgrain.torch.precision import is_half

# Entries per slice, for block gradients that are formed only for their norms.
_SLICE_ENTRIES = 1 << 19
# Maximum number of entries of block gradients stored until their weights are known.
_MOST_KEPT_ENTRIES = 1 << 24
# Ratio of the norms of terms to the norm of their sum above which a stored sum is recomputed in
# double precision.
_LONGEST_TERMS = 1024.0
# Maximum memory of stored block sums, relative to their factors.
_KEPT_MEMORY = 1.25
# Maximum ratio of k²·(inputs + outputs) to inputs·outputs for a Gram matrix of k rows.
_GRAM_WORTH = 4
# Maximum ratio of k·(inputs + outputs) to inputs·outputs for a Gram matrix where double precision
# costs twice as much as single precision: it needs fewer products, and no per-block gradient.
_LONG_GRAM_WORTH = 0.5
# GPU versions (compute capability) with half as many units for double as for single precision.
_QUICK_IN_DOUBLE = frozenset(((6, 0), (7, 0), (8, 0), (9, 0)))
# Maximum number of records per block that are processed as groups of one convolution.
_FEW_RECORDS = 2
# Maximum number of entries of unfolded filter inputs on a GPU at a time.
_SEEN_ENTRIES = 1 << 26


class Use(ABC):
    """Gradient of each block by one parameter in one layer call, summed over its rows."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @abstractmethod
    def squares(self) -> Any:
        """Return the squared norms of contributions in double precision, (blocks,)."""

    @abstractmethod
    def lengths(self) -> Any:
        """Return the sum of norms of the terms of each block's sum, (blocks,).

        Rounding errors are relative to it. It is 0 if the stored sum is the one that is added.
        """

    @abstractmethod
    def reaches(self) -> Any:
        """Return upper limits of the inputs, and of gradients and products, (2, blocks).

        They depend only on the block's own rows, however its sum is computed. The second limit is
        proportional to gradients.
        """

    @abstractmethod
    def total(self, weights: Any) -> Any:
        """Return the weighted sum over blocks; weights are (blocks,)."""

    @abstractmethod
    def formed(self, block: int) -> Any:
        """Return one block's contribution, computed separately in double precision."""

    @abstractmethod
    def without(self, blocks: Any) -> Use:
        """Return the use without the contributions of masked blocks, (blocks,)."""

    def keeping(self, sums: Any) -> Kept:
        """Return the use with stored sums, (blocks, …), computed for all blocks together.

        If terms cancel, the last digits of a sum are significant and depend on other blocks, so
        such a sum is recomputed.
        """
        cancelled = self.lengths() > _LONGEST_TERMS * _squares(sums).sqrt()
        for block in torch.nonzero(cancelled).flatten().tolist():
            sums[block] = self.formed(block).to(sums.dtype)
        return Kept(self.layout, sums, self.reaches())


#: Contributions of blocks to each parameter, in all layer calls that use it.
Uses: TypeAlias = dict[Any, list[Use]]


class Kept(Use):
    """Use with stored block sums, (blocks, …); ``reaches`` defaults to their norms."""

    def __init__(self, layout: Layout, sums: Any, reaches: Any = None) -> None:
        super().__init__(layout)
        self.sums, self._reaches = sums, reaches

    def squares(self) -> Any:
        """Return the squared norms of contributions in double precision, (blocks,)."""
        return _squares(self.sums)

    def lengths(self) -> Any:
        """Return zeros, because the sums are stored."""
        return self.sums.new_zeros(self.layout.blocks, dtype=torch.float64)

    def reaches(self) -> Any:
        """Return upper limits of the terms of the sums, (2, blocks)."""
        return _alone(self.squares().sqrt()) if self._reaches is None else self._reaches

    def plus(self, other: Kept) -> Kept:
        """Return the use in two calls."""
        reaches = self.reaches() + other.reaches()
        return Kept(self.layout, self.sums + other.sums, reaches)

    def total(self, weights: Any) -> Any:
        """Return the weighted sum over blocks."""
        return torch.tensordot(weights.to(self.sums.dtype), self.sums, 1)

    def formed(self, block: int) -> Any:
        """Return one block's contribution."""
        return self.sums[block].double()

    def without(self, blocks: Any) -> Use:
        """Return the use without the contributions of some blocks."""
        return Kept(
            self.layout, _emptied(self.sums, blocks), self.reaches().masked_fill(blocks, 0.0)
        )


class Outer(Use):
    """Use of the weight of a linear map: the sum over rows of b xᵀ.

    ``x`` is the input, (rows, positions, inputs), and ``b`` the gradient of the output, (rows,
    positions, outputs). Factors may have half precision to save memory; computations use single
    precision or better.
    """

    def __init__(self, layout: Layout, x: Any, b: Any) -> None:
        super().__init__(layout)
        self.x, self.b = x, b

    @staticmethod
    def of(layout: Layout, x: Any, b: Any) -> Use:
        """Return the use, with stored sums if they need little memory."""
        inputs, outputs = x.shape[-1], b.shape[-1]
        entries, made_of = layout.blocks * inputs * outputs, x.numel() + b.numel()
        if entries > _KEPT_MEMORY * made_of:
            return Outer(layout, x, b)
        views = layout.views(x, b)
        parts = [
            torch.bmm(single(b).flatten(1, 2).mT, single(x).flatten(1, 2)) for _, (x, b) in views
        ]
        return Outer(layout, x, b).keeping(parts[0] if len(parts) == 1 else torch.cat(parts))

    def beside(self, others: Sequence[Outer]) -> Outer:
        """Return the use in several calls, with concatenated positions."""
        x, b = (torch.cat([getattr(use, of) for use in (self, *others)], 1) for of in ("x", "b"))
        return Outer(self.layout, x, b)

    def squares(self) -> Any:
        """Return the squared norms of contributions in double precision, (blocks,)."""
        if self.layout.rows * self.x.shape[1] == self.layout.blocks:
            return self.lengths().square()
        views = self.layout.views(self.x, self.b)
        return torch.cat([_squares_of_products(x, b) for _, (x, b) in views])

    def lengths(self) -> Any:
        """Return the sums over rows of ‖x‖‖b‖, (blocks,)."""
        of_x, of_b = self._norms
        return self.layout.per_block((of_x * of_b).sum(1))

    def reaches(self) -> Any:
        """Return upper limits of the inputs, and of gradients and products, (2, blocks)."""
        of_x, of_b = self._norms
        both = torch.stack([of_x, (of_x + 1) * of_b])
        return torch.stack([self.layout.per_block(part.sum(1)) for part in both])

    @cached_property
    def _norms(self) -> tuple[Any, Any]:
        """Norms of inputs and of output gradients, (rows, positions)."""
        return norms(self.x), norms(self.b)

    def total(self, weights: Any) -> Any:
        """Return the weighted sum over blocks."""
        b, x = single(self.b), single(self.x)
        weighted = b * self.layout.per_row(weights.to(b.dtype))[:, None, None]
        return weighted.flatten(0, 1).t() @ x.flatten(0, 1)

    def formed(self, block: int) -> Any:
        """Return one block's contribution."""
        rows = self.layout.rows_of(block)
        b, x = self.b[rows].flatten(0, 1).double(), self.x[rows].flatten(0, 1).double()
        return b.t() @ x

    def without(self, blocks: Any) -> Use:
        """Return the use without the contributions of some blocks."""
        rows = self.layout.per_row(blocks)
        return Outer(self.layout, _emptied(self.x, rows), _emptied(self.b, rows))


class Lookup(Use):
    """Use of an embedding table: gradients are added to the rows looked up.

    ``places`` are the indices, (rows, positions), and ``b`` the gradient of the output, (rows,
    positions, width).
    """

    def __init__(self, layout: Layout, places: Any, b: Any, size: int) -> None:
        super().__init__(layout)
        self.places, self.b, self.size = places, b, size

    def beside(self, others: Sequence[Lookup]) -> Lookup:
        """Return the use in several calls, with concatenated positions."""
        places, b = (
            torch.cat([getattr(u, of) for u in (self, *others)], 1) for of in ("places", "b")
        )
        return Lookup(self.layout, places, b, self.size)

    def squares(self) -> Any:
        """Return the squared norms of contributions in double precision, (blocks,)."""
        block = self.layout.per_row(torch.arange(self.layout.blocks, device=self.b.device))
        keys, of = torch.unique(self.places + block[:, None] * self.size, return_inverse=True)
        sums = self.b.new_zeros(len(keys), self.b.shape[-1])
        sums.index_add_(0, of.flatten(), self.b.flatten(0, 1))
        out = self.b.new_zeros(self.layout.blocks, dtype=torch.float64)
        return out.index_add_(0, keys // self.size, _squares(sums))

    def lengths(self) -> Any:
        """Return the sums of norms of the gradients, (blocks,)."""
        return self.layout.per_block(norms(self.b).sum(1))

    def reaches(self) -> Any:
        """Return zeros, and the sums of norms of the gradients, (2, blocks)."""
        return _alone(self.lengths())

    def total(self, weights: Any) -> Any:
        """Return the weighted sum over blocks."""
        weighted = self.b * self.layout.per_row(weights.to(self.b.dtype))[:, None, None]
        return self._table(self.places, weighted)

    def formed(self, block: int) -> Any:
        """Return one block's contribution."""
        rows = self.layout.rows_of(block)
        return self._table(self.places[rows], self.b[rows].double())

    def without(self, blocks: Any) -> Use:
        """Return the use without the contributions of some blocks."""
        rows = self.layout.per_row(blocks)
        return Lookup(self.layout, self.places, _emptied(self.b, rows), self.size)

    def _table(self, places: Any, b: Any) -> Any:
        out = b.new_zeros(self.size, b.shape[-1])
        return out.index_add_(0, places.flatten(), b.flatten(0, 1))


class Filters(Use):
    """Use of a convolution's weight, with block sums by the library's kernel.

    ``x`` is the input, (rows, channels, …), already padded; ``b`` is the gradient of the output,
    (rows, filters, …). ``padding`` is the number of zeros at each side, by dimension.
    """

    def __init__(
        self, layout: Layout, x: Any, b: Any, shape: Any, **geometry: tuple[int, ...] | int
    ) -> None:
        super().__init__(layout)
        self.x, self.b, self.shape, self.geometry = x, b, tuple(shape), geometry

    def kept(self) -> Use:
        """Return the use with stored sums if they are small enough, otherwise itself."""
        if self.layout.blocks * torch.Size(self.shape).numel() > _MOST_KEPT_ENTRIES:
            return self
        if _on_gpu(self.x):
            return self.keeping(torch.cat(list(self._by_products())))
        sums = [self._of_size(x, b) for _, (x, b) in self.layout.views(self.x, self.b)]
        return Kept(self.layout, torch.cat(sums), self.reaches())

    def squares(self) -> Any:
        """Return the squared norms of contributions in double precision, (blocks,)."""
        if _on_gpu(self.x):
            return torch.cat([_squares(sums) for sums in self._by_products()])
        rows = [self.layout.rows_of(block) for block in range(self.layout.blocks)]
        return torch.cat([_squares(self._gradient(self.x[r], self.b[r])[None]) for r in rows])

    def lengths(self) -> Any:
        """Return upper bounds of the sums of norms, (blocks,)."""
        of_x, of_b = self._norms
        return self.layout.per_block(of_x * of_b * self._places)

    def reaches(self) -> Any:
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

    def total(self, weights: Any) -> Any:
        """Return the weighted sum over blocks."""
        rows = self.layout.per_row(weights.to(self.b.dtype))
        return self._gradient(self.x, self.b * rows.reshape(-1, *[1] * (self.b.dim() - 1)))

    def formed(self, block: int) -> Any:
        """Return one block's contribution."""
        rows = self.layout.rows_of(block)
        return self._gradient(self.x[rows].double(), self.b[rows].double())

    def without(self, blocks: Any) -> Use:
        """Return the use without the contributions of some blocks."""
        rows = self.layout.per_row(blocks)
        x, b = _emptied(self.x, rows), _emptied(self.b, rows)
        return Filters(self.layout, x, b, self.shape, **self.geometry)

    def _by_products(self) -> Iterator[Any]:
        """Yield the sums of some blocks at a time, (blocks, …), as matrix products.

        On a GPU, a kernel call per block takes longer than the computation, except for large
        blocks.
        """
        of_record = torch.Size(self.shape[1:]).numel() * self._groups * self.b[0, 0].numel()
        for _, (x, b) in self.layout.views(self.x, self.b):
            most = _SEEN_ENTRIES // max(1, x.shape[1] * of_record)
            few = max(1, min(most, _MOST_KEPT_ENTRIES // torch.Size(self.shape).numel()))
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
        return tuple(self.geometry[of] for of in ("stride", "padding", "dilation"))  # type: ignore[misc]

    @property
    def _groups(self) -> int:
        return int(self.geometry["groups"])  # type: ignore[arg-type]

    def _of_size(self, x: Any, b: Any) -> Any:
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
        flat, of = [0] * (len(self.shape) - 2), torch.ops.aten.convolution_backward.default
        rest = (weight, None, stride, padding, dilation, False, flat, groups, [False, True, False])
        return lambda b, x: of(b, x, *rest)[1]


def _on_gpu(tensor: Any) -> bool:
    return bool(tensor.device.type != "cpu")


def add_use(uses: Uses, parameter: Any, use: Use) -> None:
    """Add a parameter's use in another layer call; add stored sums immediately."""
    of = uses.setdefault(parameter, [])
    if of and isinstance(use, Kept) and isinstance(of[-1], Kept):
        of[-1] = of[-1].plus(use)
    else:
        of.append(use)


def joined(of: Sequence[Use]) -> list[Use]:
    """Combine uses of one parameter that have the same type and positions."""
    out = [use for use in of if not isinstance(use, Outer | Lookup)]
    for kind in (Outer, Lookup):
        alike: dict[Layout, list[Any]] = {}
        for use in of:
            if isinstance(use, kind):
                alike.setdefault(use.layout, []).append(use)
        out += [same[0] if len(same) == 1 else same[0].beside(same[1:]) for same in alike.values()]
    return out


def _squares_of_products(x: Any, b: Any) -> Any:
    """Return the squared norms of bᵀx, (n,), from n blocks (n, rows, positions, …)."""
    x, b = x.flatten(1, 2), b.flatten(1, 2)
    n, rows, inputs = x.shape
    outputs = b.shape[-1]
    if rows == 1:
        return _squares(x) * _squares(b)
    few = rows * rows * (inputs + outputs) <= _GRAM_WORTH * inputs * outputs
    some = rows * (inputs + outputs) <= _LONG_GRAM_WORTH * inputs * outputs
    if few or (some and _is_quick_in_double(x)):
        # Sums cancel, so the Gram matrix loses twice the digits: use double precision.
        x, b = x.double(), b.double()
        return ((x @ x.mT) * (b @ b.mT)).sum((1, 2)).clamp_(min=0)
    few = max(1, _SLICE_ENTRIES // (inputs * outputs))
    slices = (slice(i, i + few) for i in range(0, n, few))
    return torch.cat([_squares(torch.bmm(single(b[some]).mT, single(x[some]))) for some in slices])


def single(tensor: Any) -> Any:
    """Convert real numbers to single precision or better; integers are unchanged."""
    return tensor.float() if is_half(tensor.dtype) else tensor


def _is_quick_in_double(tensor: Any) -> bool:
    if not _on_gpu(tensor):
        return True
    return torch.cuda.get_device_capability(tensor.device) in _QUICK_IN_DOUBLE


def products(of: Outer | Kept, lookup: Lookup) -> Any:
    """Return inner products of blocks' contributions in a map and a lookup, (blocks,).

    This is for language models with a tied head. For the map's sum bᵀx and a row g added at index
    p, the product is Σ b_p (x·g), which needs no gradient.
    """
    layout = lookup.layout
    if isinstance(of, Kept):
        block = layout.per_row(torch.arange(layout.blocks, device=of.sums.device))
        met = of.sums[block[:, None], lookup.places].double() * lookup.b.double()
        return layout.per_block(met.sum((1, 2)))
    found = []
    in_maps, looked_up = of.layout.views(of.x, of.b), layout.views(lookup.places, lookup.b)
    for (_, maps), (_, tables) in zip(in_maps, looked_up, strict=True):
        x, b, places, g = (view.flatten(1, 2) for view in (*maps, *tables))
        at = places[:, None, :].expand(-1, b.shape[1], -1)
        found.append(((x.double() @ g.double().mT) * b.gather(2, at).double()).sum((1, 2)))
    return torch.cat(found)


def norms(tensor: Any) -> Any:
    """Return norms along the last dimension, with squares in double precision.

    Squares in single precision could underflow or overflow.
    """
    flat = tensor.flatten(0, -2)
    few = max(1, _SLICE_ENTRIES // max(1, tensor.shape[-1]))
    parts = (
        torch.linalg.vector_norm(part, dim=-1, dtype=torch.float64) for part in flat.split(few)
    )
    return torch.cat(list(parts)).reshape(tensor.shape[:-1])


def _squares(tensor: Any) -> Any:
    """Return the squared norms of n tensors or numbers in double precision, (n,)."""
    return norms(tensor[..., None].flatten(1)).square()


def _alone(of_gradients: Any) -> Any:
    """Return the reaches of contributions that consist of gradients only, (blocks,)."""
    return torch.stack([torch.zeros_like(of_gradients), of_gradients])


def _emptied(tensor: Any, rows: Any) -> Any:
    """Replace the rows in a mask by zeros."""
    return tensor.masked_fill(rows.reshape(-1, *[1] * (tensor.dim() - 1)), 0)
