"""A network is tried on made-up records: no record may change what layers see of another.

A record's gradient is its own only if each layer reads of it, and gets back for it, what follows from
this record alone. A trial runs the network, forwards and backwards, on records that nobody holds: again
as before, with each of them exchanged, and with fewer of them in another order. What is seen of the
others must stay. Nothing here depends on anybody's record: of a batch, shapes and types are taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from torch.utils._pytree import tree_leaves, tree_map

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch
from dpgrain.torch.outputs import is_rows, mapped
from dpgrain.torch.precision import is_half

#: The number of records that are made up.
FEW_RECORDS = 4
#: The number of seeds from which a network is run that draws at random.
SEEDS = 40
# Numbers of the same record may differ by this share of the largest, from rounding.
_ROUNDING: Mapping[Any, float] = {torch.float64: 1e-9, torch.float32: 1e-4}
_ROUNDING_IN_HALF = 0.05
# Share of the longest number in the run with which a number is compared where it is a sum that
# cancels.
_OF_THE_LONGEST = 0.01


@dataclass(frozen=True, eq=False)
class Seen:
    """One run as seen from outside: layers' inputs and gradients, and the output.

    Args:
        layers: by call, the name of the layer, what it read, and the gradient by what came out.
        out: what came out of the network with a row for each record, tensor by tensor.
        draws: whether the network has drawn from a common generator.
    """

    layers: Sequence[tuple[str, Any, Any]]
    out: Sequence[Any]
    draws: bool

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Yield what has a row for each record, with words for it."""
        for name, x, gradient in self.layers:
            yield f"what layer {name!r} reads", x
            yield f"the gradient that layer {name!r} gets back", gradient
        for tensor in self.out:
            yield "what comes out", tensor


class Runner(Protocol):
    """The function for running the network on records; it returns what was seen."""

    def __call__(self, inputs: Any, records: int, *, seed: int = 0, training: bool = True) -> Seen:
        """Return what was seen of these inputs, with all randomness from a seed."""


def made_up(inputs: Any, rows: int, records: int = FEW_RECORDS, whole: int = 2) -> Any:
    """Return inputs of a few made-up records, in the shapes and types of those of a batch.

    Args:
        inputs: tensors, in tuples and mappings. All are made up; those with a row for each record of
            the batch get one for each that is made up.
        rows: the number of records of the batch.
        records: the number of records that are made up.
        whole: whole numbers are below this; they may be places of tables.

    Raises:
        ParameterError: if no tensor has a row for each record.

    >>> import torch
    >>> made_up((torch.zeros(9, 3), torch.zeros(9, dtype=torch.int64), "words"), 9)[0].shape
    torch.Size([4, 3])
    """
    if not any(is_rows(leaf, rows) for leaf in tree_leaves(inputs)):
        raise ParameterError(
            f"the first dimension of what the module is called with must be the {rows} records of the "
            "batch: call it with the rows that the loader hands out, in their order.",
            name="module",
        )
    generator = torch.Generator().manual_seed(1)

    def of(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        shape = (records, *leaf.shape[1:]) if is_rows(leaf, rows) else leaf.shape
        if leaf.is_floating_point():
            made = torch.randn(shape, generator=generator, device=generator.device)
        else:
            made = torch.randint(0, whole, shape, generator=generator, device=generator.device)
        return made.to(device=leaf.device, dtype=leaf.dtype)

    return tree_map(of, inputs)


def check_apart(run: Runner, inputs: Any, records: int, *, half: bool) -> None:
    """Refuse a network that shows, on made-up records, that it mixes records.

    Args:
        run: runs the network, with one seed for all randomness in it.
        inputs: what it is called with, for these records.
        records: the number of records.
        half: True if it computes in half precision, where numbers are compared less closely.

    Raises:
        ParameterError: if what is seen of a record depends on others, on its place, on how many there
            are, or on what was read before.

    A network that draws at random may mix in some runs only: it is run from :data:`SEEDS` seeds, with
    half of the records exchanged. Mixing by pairs, in a share p of all runs, shows in one of them with
    probability 5p/6 at least, and in none with (1 − 5p/6)^40: 4·10⁻¹⁰ for p = ½.
    """
    first, every, places = run(inputs, records), slice(None), range(records)
    why = "depends on what was read before"
    _compare(first, run(inputs, records), every, every, half, why)
    why = "depends on other records of the batch"
    for place in places:
        others = [other for other in places if other != place]
        exchanged = [(row + 1) % records if row == place else row for row in places]
        result = run(_rows_of(inputs, records, exchanged), records)
        _compare(first, result, others, others, half, why)
    if first.draws:
        _check_seeds(run, inputs, records, half)
    fewer = list(range(records - 1, 0, -1))
    for training in (True, False):
        first = run(inputs, records, training=training)
        if first.draws:
            continue  # What is drawn for a record follows from its place, as with dropout.
        result = run(_rows_of(inputs, records, fewer), len(fewer), training=training)
        why = "depends on how many records are beside it, or in which order"
        _compare(first, result, fewer, every, half, why)
        return


def _check_seeds(run: Runner, inputs: Any, records: int, half: bool) -> None:
    """Compare what is seen of half of the records while the rest is exchanged, from seed to seed."""
    for seed in range(1, SEEDS):
        exchanged = [(place + seed) % records for place in range(records // 2)]
        others = [place for place in range(records) if place not in exchanged]
        rows = list(range(records))
        for place, other in zip(exchanged, exchanged[1:] + others[:1], strict=True):
            rows[place] = other
        first = run(inputs, records, seed=seed)
        result = run(_rows_of(inputs, records, rows), records, seed=seed)
        _compare(
            first,
            result,
            others,
            others,
            half,
            "depends on other records of the batch, in some runs",
        )


def _compare(one: Seen, other: Seen, rows: Any, places: Any, half: bool, why: str) -> None:
    """Refuse what differs between rows of one run and the same records' places in another."""
    if [name for name, *_ in one.layers] != [name for name, *_ in other.layers]:
        raise ParameterError(
            "module calls other layers for other records, so that one record decides what is done with "
            "others; call the same layers for all.",
            name="module",
        )
    what = _differing(one, other, rows, places, half)
    if what is not None:
        raise ParameterError(
            f"module mixes records: {what} of a record {why}, as made-up records show; let each "
            "record's numbers follow from the record alone.",
            name="module",
        )


def _differing(one: Seen, other: Seen, rows: Any, places: Any, half: bool) -> str | None:
    """Return what differs between rows of one run and places in another; None if nothing does."""
    pairs = list(zip(one.parts(), other.parts(), strict=True))
    # A network that is called outside of autocast may turn it on by itself.
    half = half or any(is_half(part.dtype) for (_, part), _ in pairs)
    numbers = (part for (_, part), _ in pairs if part.is_floating_point() and part.numel())
    longest = max((float(part.abs().max()) for part in numbers), default=0.0)
    if any(part.is_floating_point() and bool(part.isnan().any()) for (_, part), _ in pairs):
        raise ParameterError(
            "module makes numbers that are none (NaN) of made-up records, on which it is tried before "
            "it reads any: give make_private records that it can read as example=.",
            name="example",
        )
    for (what, before), (_, after) in pairs:
        if not same(before[rows], after[places], longest, half=half):
            return what
    return None


def same(one: Any, other: Any, longest: float = 0.0, *, half: bool = False) -> bool:
    """Return whether two tensors are the same but for rounding; values not finite are left out.

    Args:
        one: the first tensor.
        other: the second.
        longest: the largest number of all tensors of the run.
        half: True if they were computed in half precision, where they are compared less closely.
    """
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, other))
    rounding = _ROUNDING_IN_HALF if half else _ROUNDING.get(one.dtype, _ROUNDING_IN_HALF)
    one, other = (torch.nan_to_num(t.detach().double(), 0.0, 0.0, 0.0) for t in (one, other))
    own = float(one.abs().max()) if one.numel() else 0.0
    allowed = rounding * max(own, _OF_THE_LONGEST * longest if math.isfinite(longest) else 0.0)
    return bool(((one - other).abs() <= allowed).all())


def _rows_of(inputs: Any, records: int, rows: Sequence[int]) -> Any:
    return tree_map(lambda leaf: leaf[list(rows)] if is_rows(leaf, records) else leaf, inputs)


def rows_of(out: Any, records: int) -> list[Any]:
    """Return what a network returns of real numbers for each record: a loss is made of nothing else.

    Args:
        out: what it returns.
        records: the number of records.

    Raises:
        ParameterError: if there is nothing.
    """
    result: list[Any] = []
    mapped(result.append, out)
    result = [
        tensor for tensor in result if is_rows(tensor, records) and tensor.is_floating_point()
    ]
    if not result:
        raise ParameterError(
            "module must return a tensor with a row for each record, of which the loop makes the loss: "
            "one number for all of a batch mixes its records.",
            name="module",
        )
    return result


def probe_of(out: Sequence[Any]) -> Any:
    """Return a loss that treats records apart: the same one for each, whose gradient follows from it.

    Args:
        out: what came out, with a row for each record.
    """
    generator, total = torch.Generator().manual_seed(2), 0.0
    for tensor in out:
        weights = torch.randn(tensor.shape[1:], generator=generator, device=generator.device)
        weights = weights.to(tensor)
        # A loss with one gradient for all records would not show a gradient that is centred.
        total = total + ((tensor + (1 + tensor.square()).sqrt()) * weights).sum()
    return total


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
