"""Gradients of the blocks of a batch by one parameter of one layer's call, never formed in full.

A *use* is one call of one layer, seen from one parameter. It gives the squared norm of what each block
adds, and the sum over blocks with a weight for each. Most layers need no gradient for each block:
norms come from small products, and one weighted product gives the sum (bookkeeping).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from dpgrain.torch.layout import Layout
from dpgrain.torch.library import torch
from dpgrain.torch.precision import is_half

# Entries of a slice in which gradients of blocks are made that are formed for their norms alone.
_SLICE_ENTRIES = 1 << 19
# Entries up to which gradients of blocks are kept until their weights are known.
_MOST_KEPT_ENTRIES = 1 << 24
# Ratio of the terms' length to the sum's from which on sums that are kept are made again in double
# precision.
_LONGEST_TERMS = 1024.0
# Ratio of memory to that of the factors up to which sums over blocks of products are kept.
_KEPT_MEMORY = 1.25
# Ratio of k²·(inputs + outputs) to inputs·outputs up to which a Gram matrix of k rows is made.
_GRAM_WORTH = 4
# Ratio of k·(inputs + outputs) to inputs·outputs up to which it is, where double precision costs twice
# as much as single precision: products with it are fewer then, and no block has a gradient of its own.
_LONG_GRAM_WORTH = 0.5
# Versions of GPUs that have half as many units for double precision as for single.
_QUICK_IN_DOUBLE = frozenset(((6, 0), (7, 0), (8, 0), (9, 0)))
# Records of blocks that are put beside each other as groups of one convolution, at most.
_FEW_RECORDS = 2
# Numbers that are laid out beside each other on a GPU, of what filters see, at a time, at most.
_SEEN_ENTRIES = 1 << 26


class Use(ABC):
    """The gradient of each block by one parameter in one call of a layer, summed over its rows.

    Args:
        layout: the blocks.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @abstractmethod
    def squares(self) -> Any:
        """Return (blocks,) the squared norm of what each block adds, in double precision."""

    @abstractmethod
    def lengths(self) -> Any:
        """Return (blocks,) the sum of norms of the terms of which each block's sum is made.

        The rounding of a sum is relative to it. It is 0 where the very sum is kept that is added.
        """

    @abstractmethod
    def reaches(self) -> Any:
        """Return (2, blocks) how large what goes in is, and gradients with all that is made of both.

        They follow from the block's own rows alone, whichever way its sum is made. The second is in
        proportion to gradients.
        """

    @abstractmethod
    def total(self, weights: Any) -> Any:
        """Return the sum over blocks, each times its weight, (blocks,)."""

    @abstractmethod
    def formed(self, block: int) -> Any:
        """Return what one block adds, made apart from other blocks and in double precision."""

    @abstractmethod
    def without(self, blocks: Any) -> Use:
        """Return the use with nothing from some blocks, given as (blocks,) truths."""

    def keeping(self, sums: Any) -> Kept:
        """Return the use with its sums, which products of all blocks beside each other have made.

        Args:
            sums: (blocks, …) what each block adds, which may change.

        Where terms cancel, the last digits are a whole vector, and would follow from other blocks: such
        a sum is made anew.
        """
        cancelled = self.lengths() > _LONGEST_TERMS * _squares(sums).sqrt()
        for block in torch.nonzero(cancelled).flatten().tolist():
            sums[block] = self.formed(block).to(sums.dtype)
        return Kept(self.layout, sums, self.reaches())


#: What blocks add to each parameter, in all calls of layers that use it.
Uses: TypeAlias = dict[Any, list[Use]]


class Kept(Use):
    """A use with kept sums over blocks.

    Args:
        layout: the blocks.
        sums: (blocks, …) what each block adds.
        reaches: (2, blocks) those of what the sums were made of; norms of the sums by default.
    """

    def __init__(self, layout: Layout, sums: Any, reaches: Any = None) -> None:
        super().__init__(layout)
        self.sums, self._reaches = sums, reaches

    def squares(self) -> Any:
        """Return (blocks,) the squared norm of what each block adds, in double precision."""
        return _squares(self.sums)

    def lengths(self) -> Any:
        """Return zeros: the sums are kept."""
        return self.sums.new_zeros(self.layout.blocks, dtype=torch.float64)

    def reaches(self) -> Any:
        """Return (2, blocks) how large what the sums were made of is."""
        return _alone(self.squares().sqrt()) if self._reaches is None else self._reaches

    def plus(self, other: Kept) -> Kept:
        """Return the use in two calls."""
        reaches = self.reaches() + other.reaches()
        return Kept(self.layout, self.sums + other.sums, reaches)

    def total(self, weights: Any) -> Any:
        """Return the sum over blocks, each times its weight."""
        return torch.tensordot(weights.to(self.sums.dtype), self.sums, 1)

    def formed(self, block: int) -> Any:
        """Return what one block adds."""
        return self.sums[block].double()

    def without(self, blocks: Any) -> Use:
        """Return the use with nothing from some blocks."""
        return Kept(
            self.layout, _emptied(self.sums, blocks), self.reaches().masked_fill(blocks, 0.0)
        )


class Outer(Use):
    """The use of the weight of a linear map: the sum over rows of b xᵀ.

    Factors may have half precision, in which they take half of the memory, or none where the network
    keeps them itself; all is computed in single precision or better.

    Args:
        layout: the blocks.
        x: (rows, positions, inputs) what went into the map.
        b: (rows, positions, outputs) the gradient of the loss by what came out.
    """

    def __init__(self, layout: Layout, x: Any, b: Any) -> None:
        super().__init__(layout)
        self.x, self.b = x, b

    @staticmethod
    def of(layout: Layout, x: Any, b: Any) -> Use:
        """Return the use, of which sums are kept if they need little memory beside what makes them.

        Args:
            layout: the blocks.
            x: (rows, positions, inputs) what went into the map.
            b: (rows, positions, outputs) the gradient of the loss by what came out.
        """
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
        """Return the use in several calls, whose positions are put beside each other."""
        x, b = (torch.cat([getattr(use, of) for use in (self, *others)], 1) for of in ("x", "b"))
        return Outer(self.layout, x, b)

    def squares(self) -> Any:
        """Return (blocks,) the squared norm of what each block adds, in double precision."""
        if self.layout.rows * self.x.shape[1] == self.layout.blocks:
            return self.lengths().square()
        views = self.layout.views(self.x, self.b)
        return torch.cat([_squares_of_products(x, b) for _, (x, b) in views])

    def lengths(self) -> Any:
        """Return (blocks,) the sums over rows of ‖x‖‖b‖."""
        of_x, of_b = self._norms
        return self.layout.per_block((of_x * of_b).sum(1))

    def reaches(self) -> Any:
        """Return (2, blocks) how large what goes in is, and gradients with products."""
        of_x, of_b = self._norms
        both = torch.stack([of_x, (of_x + 1) * of_b])
        return torch.stack([self.layout.per_block(part.sum(1)) for part in both])

    @cached_property
    def _norms(self) -> tuple[Any, Any]:
        """The (rows, positions) norms of what went in, and of gradients by what came out."""
        return norms(self.x), norms(self.b)

    def total(self, weights: Any) -> Any:
        """Return the sum over blocks, each times its weight."""
        b, x = single(self.b), single(self.x)
        weighted = b * self.layout.per_row(weights.to(b.dtype))[:, None, None]
        return weighted.flatten(0, 1).t() @ x.flatten(0, 1)

    def formed(self, block: int) -> Any:
        """Return what one block adds."""
        rows = self.layout.rows_of(block)
        b, x = self.b[rows].flatten(0, 1).double(), self.x[rows].flatten(0, 1).double()
        return b.t() @ x

    def without(self, blocks: Any) -> Use:
        """Return the use with nothing from some blocks."""
        rows = self.layout.per_row(blocks)
        return Outer(self.layout, _emptied(self.x, rows), _emptied(self.b, rows))


class Lookup(Use):
    """The use of a table of vectors: gradients are added to the rows looked up.

    Args:
        layout: the blocks.
        places: (rows, positions) which vectors were looked up.
        b: (rows, positions, width) the gradient of the loss by what came out.
        size: the number of vectors of the table.
    """

    def __init__(self, layout: Layout, places: Any, b: Any, size: int) -> None:
        super().__init__(layout)
        self.places, self.b, self.size = places, b, size

    def beside(self, others: Sequence[Lookup]) -> Lookup:
        """Return the use in several calls, whose positions are put beside each other."""
        places, b = (
            torch.cat([getattr(u, of) for u in (self, *others)], 1) for of in ("places", "b")
        )
        return Lookup(self.layout, places, b, self.size)

    def squares(self) -> Any:
        """Return (blocks,) the squared norm of what each block adds, in double precision."""
        block = self.layout.per_row(torch.arange(self.layout.blocks, device=self.b.device))
        keys, of = torch.unique(self.places + block[:, None] * self.size, return_inverse=True)
        sums = self.b.new_zeros(len(keys), self.b.shape[-1])
        sums.index_add_(0, of.flatten(), self.b.flatten(0, 1))
        out = self.b.new_zeros(self.layout.blocks, dtype=torch.float64)
        return out.index_add_(0, keys // self.size, _squares(sums))

    def lengths(self) -> Any:
        """Return (blocks,) the sums of norms of the gradients."""
        return self.layout.per_block(norms(self.b).sum(1))

    def reaches(self) -> Any:
        """Return (2, blocks) zeros, and the sums of norms of the gradients."""
        return _alone(self.lengths())

    def total(self, weights: Any) -> Any:
        """Return the sum over blocks, each times its weight."""
        weighted = self.b * self.layout.per_row(weights.to(self.b.dtype))[:, None, None]
        return self._table(self.places, weighted)

    def formed(self, block: int) -> Any:
        """Return what one block adds."""
        rows = self.layout.rows_of(block)
        return self._table(self.places[rows], self.b[rows].double())

    def without(self, blocks: Any) -> Use:
        """Return the use with nothing from some blocks."""
        rows = self.layout.per_row(blocks)
        return Lookup(self.layout, self.places, _emptied(self.b, rows), self.size)

    def _table(self, places: Any, b: Any) -> Any:
        out = b.new_zeros(self.size, b.shape[-1])
        return out.index_add_(0, places.flatten(), b.flatten(0, 1))


class Filters(Use):
    """The use of the weight of a convolution, whose sums over blocks are made by the library's kernel.

    Args:
        layout: the blocks.
        x: (rows, channels, …) what went in, padded already.
        b: (rows, filters, …) the gradient of the loss by what came out.
        shape: the shape of the weight.
        stride: the step of the filters along each dimension.
        dilation: their spread along each dimension.
        groups: in how many groups channels and filters are divided.
        padding: the zeros that are added at each side, along each dimension.
    """

    def __init__(
        self, layout: Layout, x: Any, b: Any, shape: Any, **geometry: tuple[int, ...] | int
    ) -> None:
        super().__init__(layout)
        self.x, self.b, self.shape, self.geometry = x, b, tuple(shape), geometry

    def kept(self) -> Use:
        """Return the use with its sums, if they are few enough to keep; otherwise itself."""
        if self.layout.blocks * torch.Size(self.shape).numel() > _MOST_KEPT_ENTRIES:
            return self
        if _on_gpu(self.x):
            return self.keeping(torch.cat(list(self._by_products())))
        sums = [self._of_size(x, b) for _, (x, b) in self.layout.views(self.x, self.b)]
        return Kept(self.layout, torch.cat(sums), self.reaches())

    def squares(self) -> Any:
        """Return (blocks,) the squared norm of what each block adds, in double precision."""
        if _on_gpu(self.x):
            return torch.cat([_squares(sums) for sums in self._by_products()])
        rows = [self.layout.rows_of(block) for block in range(self.layout.blocks)]
        return torch.cat([_squares(self._gradient(self.x[r], self.b[r])[None]) for r in rows])

    def lengths(self) -> Any:
        """Return (blocks,) bounds on the sums of norms."""
        of_x, of_b = self._norms
        return self.layout.per_block(of_x * of_b * self._places)

    def reaches(self) -> Any:
        """Return (2, blocks) how large what goes in is, and gradients with products."""
        of_x, of_b = self._norms
        both = torch.stack([of_x, (of_x + 1) * of_b]) * self._places
        return torch.stack([self.layout.per_block(part) for part in both])

    @property
    def _places(self) -> float:
        """The growth of products in length, since an entry of x meets each place of a filter once."""
        return float(torch.Size(self.shape[2:]).numel() ** 0.5)

    @cached_property
    def _norms(self) -> tuple[Any, Any]:
        """The (rows,) norms of what went in, and of gradients by what came out."""
        return norms(self.x.flatten(1)), norms(self.b.flatten(1))

    def total(self, weights: Any) -> Any:
        """Return the sum over blocks, each times its weight."""
        rows = self.layout.per_row(weights.to(self.b.dtype))
        return self._gradient(self.x, self.b * rows.reshape(-1, *[1] * (self.b.dim() - 1)))

    def formed(self, block: int) -> Any:
        """Return what one block adds."""
        rows = self.layout.rows_of(block)
        return self._gradient(self.x[rows].double(), self.b[rows].double())

    def without(self, blocks: Any) -> Use:
        """Return the use with nothing from some blocks."""
        rows = self.layout.per_row(blocks)
        x, b = _emptied(self.x, rows), _emptied(self.b, rows)
        return Filters(self.layout, x, b, self.shape, **self.geometry)

    def _by_products(self) -> Iterator[Any]:
        """Yield the sums of some blocks at a time, (blocks, …), as products of matrices.

        On a GPU a call of the kernel for each block takes longer than the work, but for large blocks.
        """
        of_record = torch.Size(self.shape[1:]).numel() * self._groups * self.b[0, 0].numel()
        for _, (x, b) in self.layout.views(self.x, self.b):
            most = _SEEN_ENTRIES // max(1, x.shape[1] * of_record)
            few = max(1, min(most, _MOST_KEPT_ENTRIES // torch.Size(self.shape).numel()))
            for xs, bs in zip(x.split(few), b.split(few), strict=True):
                yield self._products(xs, bs) if most else self._gradient(xs[0], bs[0])[None]

    def _products(self, x: Any, b: Any) -> Any:
        """Return the sums of blocks of one size, from (blocks, size, …) views, by a product each."""
        count, size = x.shape[:2]
        stride, padding, dilation = self._along
        sides = [zeros for side in reversed(padding) for zeros in (side, side)]
        seen = torch.nn.functional.pad(x.flatten(0, 1), sides)
        filters = list(zip(self.shape[2:], stride, dilation, strict=True))
        for dim, (places, step, spread) in enumerate(filters, 2):
            seen = seen.unfold(dim, (places - 1) * spread + 1, step)
        seen = seen[(..., *(slice(None, None, spread) for spread in dilation))]
        # (blocks, records, groups, channels, places of outputs …, places of a filter …).
        seen = seen.unflatten(1, (self._groups, -1)).unflatten(0, (count, size))
        b = b.unflatten(2, (self._groups, -1))
        outputs, inside = range(4, b.dim()), range(b.dim(), seen.dim())
        seen = seen.permute(0, 2, 1, *outputs, 3, *inside)
        seen = seen.reshape(count * self._groups, size * b[0, 0, 0, 0].numel(), -1)
        b = b.permute(0, 2, 3, 1, *outputs).reshape(len(seen), -1, seen.shape[1])
        return torch.bmm(b, seen).reshape(count, *self.shape)

    @property
    def _along(self) -> tuple[tuple[int, ...], ...]:
        """Stride, padding and dilation, along each dimension."""
        return tuple(self.geometry[of] for of in ("stride", "padding", "dilation"))  # type: ignore[misc]

    @property
    def _groups(self) -> int:
        return int(self.geometry["groups"])  # type: ignore[arg-type]

    def _of_size(self, x: Any, b: Any) -> Any:
        """Return the sums of blocks of one size, from (blocks, size, …) views."""
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
        """Return the library's kernel of gradients of ``count`` weights beside each other."""
        weight = like.new_empty(1).expand(count * self.shape[0], *self.shape[1:])
        stride, padding, dilation = self._along
        groups = self._groups * count
        flat, of = [0] * (len(self.shape) - 2), torch.ops.aten.convolution_backward.default
        rest = (weight, None, stride, padding, dilation, False, flat, groups, [False, True, False])
        return lambda b, x: of(b, x, *rest)[1]


def _on_gpu(tensor: Any) -> bool:
    return bool(tensor.device.type != "cpu")


def add_use(uses: Uses, parameter: Any, use: Use) -> None:
    """Add the use of a parameter in one more call of a layer.

    Args:
        uses: what blocks add to each parameter so far, which changes.
        parameter: the parameter.
        use: the use. Sums that are kept are added to those of another call at once.
    """
    of = uses.setdefault(parameter, [])
    if of and isinstance(use, Kept) and isinstance(of[-1], Kept):
        of[-1] = of[-1].plus(use)
    else:
        of.append(use)


def joined(of: Sequence[Use]) -> list[Use]:
    """Return the uses of one parameter, of which those of one kind with positions are one.

    Args:
        of: the uses, in several calls.
    """
    out = [use for use in of if not isinstance(use, Outer | Lookup)]
    for kind in (Outer, Lookup):
        alike: dict[Layout, list[Any]] = {}
        for use in of:
            if isinstance(use, kind):
                alike.setdefault(use.layout, []).append(use)
        out += [same[0] if len(same) == 1 else same[0].beside(same[1:]) for same in alike.values()]
    return out


def _squares_of_products(x: Any, b: Any) -> Any:
    """Return (n,) the squared norms of bᵀx for each of n blocks, (n, rows, positions, …) each."""
    x, b = x.flatten(1, 2), b.flatten(1, 2)
    n, rows, inputs = x.shape
    outputs = b.shape[-1]
    if rows == 1:
        return _squares(x) * _squares(b)
    few = rows * rows * (inputs + outputs) <= _GRAM_WORTH * inputs * outputs
    some = rows * (inputs + outputs) <= _LONG_GRAM_WORTH * inputs * outputs
    if few or (some and _is_quick_in_double(x)):
        # Sums cancel, so that the Gram matrix loses twice the digits: it is made in double precision.
        x, b = x.double(), b.double()
        return ((x @ x.mT) * (b @ b.mT)).sum((1, 2)).clamp_(min=0)
    few = max(1, _SLICE_ENTRIES // (inputs * outputs))
    slices = (slice(i, i + few) for i in range(0, n, few))
    return torch.cat([_squares(torch.bmm(single(b[some]).mT, single(x[some]))) for some in slices])


def single(tensor: Any) -> Any:
    """Return a tensor of real numbers in single precision or better; whole numbers stay.

    Args:
        tensor: the tensor.
    """
    return tensor.float() if is_half(tensor.dtype) else tensor


def _is_quick_in_double(tensor: Any) -> bool:
    if not _on_gpu(tensor):
        return True
    return torch.cuda.get_device_capability(tensor.device) in _QUICK_IN_DOUBLE


def products(of: Outer | Kept, lookup: Lookup) -> Any:
    """Return (blocks,) the products of what blocks add in a map, or by sums, and in a lookup.

    Args:
        of: the use of a parameter that is a map or a sum.
        lookup: its use as a table, as in language models whose head is tied to it.

    From the map's sum bᵀx and a row g that is added at place p, the product is Σ b_p (x·g), for which
    no gradient is formed.
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
    """Return the norms along the last dimension, with squares in double precision.

    Squares of small numbers in single precision are 0, and those of large ones infinite.

    Args:
        tensor: (…, entries) numbers in single or double precision.
    """
    flat = tensor.flatten(0, -2)
    few = max(1, _SLICE_ENTRIES // max(1, tensor.shape[-1]))
    parts = (
        torch.linalg.vector_norm(part, dim=-1, dtype=torch.float64) for part in flat.split(few)
    )
    return torch.cat(list(parts)).reshape(tensor.shape[:-1])


def _squares(tensor: Any) -> Any:
    """Return (n,) the squared norms of n tensors, which may be numbers, in double precision."""
    return norms(tensor[..., None].flatten(1)).square()


def _alone(of_gradients: Any) -> Any:
    """Return the reaches of what is made of gradients alone, (blocks,)."""
    return torch.stack([torch.zeros_like(of_gradients), of_gradients])


def _emptied(tensor: Any, rows: Any) -> Any:
    """Return the tensor with zeros in some of its rows, given as truths."""
    return tensor.masked_fill(rows.reshape(-1, *[1] * (tensor.dim() - 1)), 0)
