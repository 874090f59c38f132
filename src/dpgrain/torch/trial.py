"""A network is tried on made-up records: it must make the same of them one by one and together.

A pass over a batch computes each record as a batch of one, so no record changes what is computed of
another. A network that mixes records, or depends on their number, would then be trained as another
function than the one that it is. A trial finds that on made-up records. Nothing here depends on real
records: only shapes and types of a batch are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch
from dpgrain.torch.precision import is_half

#: The number of records that are made up where a batch does not say how many.
FEW_RECORDS = 4
# Entries that are compared at a time.
_SLICE_ENTRIES = 1 << 18
# Numbers of the same record may differ by this share of the largest, from rounding.
_ROUNDING: Mapping[Any, float] = {torch.float64: 1e-9, torch.float32: 1e-4}
_ROUNDING_IN_HALF = 0.05


def made_up(inputs: Any, whole: int = 2) -> Any:
    """Return inputs of made-up records, in the shapes and types of those of a batch.

    Args:
        inputs: tensors, in tuples and mappings.
        whole: whole numbers are below this; they may be places of tables.

    >>> import torch
    >>> made_up((torch.zeros(9, 3), torch.zeros(9, dtype=torch.int64), "words"))[0].shape
    torch.Size([9, 3])
    """
    generator = torch.Generator().manual_seed(1)

    def of(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.is_floating_point():
            made = torch.randn(leaf.shape, generator=generator, device=generator.device)
        else:
            made = torch.randint(0, whole, leaf.shape, generator=generator, device=generator.device)
        return made.to(device=leaf.device, dtype=leaf.dtype)

    return tree_map(of, inputs)


def repeated(inputs: Any, are_rows: Sequence[bool], few: int, records: int) -> Any:
    """Return inputs of a few records, repeated for more of them.

    Args:
        inputs: tensors, in tuples and mappings.
        are_rows: whether each of their leaves has a row for each record.
        few: the number of records.
        records: the number of records that are returned.
    """
    leaves, form = tree_flatten(inputs)
    rows = [place % few for place in range(records)]
    made = [leaf[rows] if is_rows else leaf for leaf, is_rows in zip(leaves, are_rows, strict=True)]
    return tree_unflatten(made, form)


def check_same(
    together: Callable[[bool], tuple[list[Any], bool]],
    each: Callable[[bool], list[Any]],
    halves: Callable[[], bool],
) -> set[int]:
    """Refuse a network that makes something else of records one by one than of all of them together.

    Args:
        together: runs the network on all records, in its own mode (True) or in evaluation mode; it
            returns tensors, and whether any number was drawn.
        each: runs it on each record as a batch of one; tensors (records, …) of records are in a tuple.
        halves: whether it has computed in half precision, where numbers are compared less closely.

    Returns:
        the places of tensors that are not the same, such as a mean over the batch.

    Raises:
        ParameterError: if no tensor of real numbers is the same, or depends on what was read before.
    """
    wanted, draws = together(True)
    _check_numbers(wanted)
    made = [each(not draws), each(not draws)]
    if draws:
        # What is drawn for a record is not what is drawn for a batch.
        wanted, draws = together(False)
    half = halves()
    if any(len(found) != len(wanted) for found in made):
        raise _mixes("has other tensors than for a batch")
    for one, other in zip(*made, strict=True):
        if not same(*(t[0] if isinstance(t, tuple) else t for t in (one, other)), half=half):
            raise _mixes("depends on earlier inputs")
    mixed = {
        place for place, one in enumerate(made[0]) if not _is_same(one, wanted[place], half, draws)
    }
    right = [
        place
        for place, one in enumerate(made[0])
        if place not in mixed and isinstance(one, tuple) and wanted[place].is_floating_point()
    ]
    if not right:
        raise _mixes("depends on other records of the batch, on its position, or on the batch size")
    return mixed


def _mixes(why: str) -> ParameterError:
    return ParameterError(
        f"module must not mix records, but its output for a record {why}, in a test with "
        "synthetic records; compute the output of each record only from that record, in a tensor "
        "with one row per record.",
        name="module",
    )


def _is_same(one: Any, wanted: Any, half: bool, draws: bool) -> bool:
    """Return whether what comes out one by one is what comes out of all together."""
    rows = one[0] if isinstance(one, tuple) else one
    if draws:
        return bool(rows.dim() > 1 and rows.flatten(0, 1).shape == wanted.shape)
    if not isinstance(one, tuple):
        return same(one, wanted, half=half)
    # A network that is called outside of autocast may turn it on by itself.
    return rows.dim() > 1 and same(rows.flatten(0, 1), wanted, half=half or is_half(wanted.dtype))


def _check_numbers(found: Sequence[Any]) -> None:
    if any(t.is_floating_point() and bool(t.isnan().any()) for t in found):
        raise ParameterError(
            "module returned NaN for synthetic records in the pre-flight check; pass realistic "
            "records as example= to make_private.",
            name="example",
        )


def same(one: Any, other: Any, *, half: bool = False) -> bool:
    """Return whether two tensors are the same but for rounding; values not finite are left out.

    Args:
        one: the first tensor.
        other: the second.
        half: True if they were computed in half precision, where they are compared less closely.
    """
    if one.shape != other.shape:
        return False
    if not one.is_floating_point() or one.numel() == 0:
        return bool(torch.equal(one, other))
    rounding = _ROUNDING_IN_HALF if half else _ROUNDING.get(one.dtype, _ROUNDING_IN_HALF)
    # Slices, since outputs of language models are large.
    parts = [t.detach().reshape(-1).split(_SLICE_ENTRIES) for t in (one, other)]
    longest, off = 0.0, 0.0
    for pair in zip(*parts, strict=True):
        first, second = (torch.nan_to_num(t.double(), 0.0, 0.0, 0.0) for t in pair)
        longest = max(longest, float(first.abs().max()))
        off = max(off, float((first - second).abs().max()))
    return off <= rounding * longest


@contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """Put a network into evaluation mode, without gradients, and its layers back at the end."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes.items():
            part.training = training
