"""Tests of networks and steps with synthetic records, before a run is charged.

A pass over a batch processes each record as a batch of one, so no record affects another. A network
that mixes records, or depends on their number, would therefore be trained as a different function.
The test detects this with synthetic records; it uses only the shapes and types of real batches.

A step that fails after the run was charged would waste the budget. The test therefore runs the same
functions as a step: norms, clipped sums, their division into gradients, and the optimizer's step.
It draws no noise, and leaves parameters, the state of the optimizer and generators unchanged.
"""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from dpgrain._formatting import shorten
from dpgrain._types import FloatArray
from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.torch.block_buffer import new_uses
from dpgrain.torch.block_gradients import StoredGradients, Uses
from dpgrain.torch.clipping import FloatSum, clipped_sums, mean_gradient
from dpgrain.torch.gradient_precision import is_half
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.library import torch
from dpgrain.torch.randomness import seeded_randomness
from dpgrain.torch.steps import split

#: Number of synthetic records if a batch does not determine it.
FEW_RECORDS = 4
# Entries compared at a time.
_SLICE_ENTRIES = 1 << 18
# Allowed relative difference of the same record's numbers, from rounding.
_ROUNDING: Mapping[Any, float] = {torch.float64: 1e-9, torch.float32: 1e-4}
_ROUNDING_IN_HALF = 0.05


def synthetic_inputs(inputs: Any, whole: int = 2) -> Any:
    """Return synthetic inputs shaped like a batch; integers are below ``whole``."""
    generator = torch.Generator().manual_seed(1)

    def synthetic(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.is_floating_point():
            values = torch.randn(leaf.shape, generator=generator, device=generator.device)
        else:
            values = torch.randint(
                0, whole, leaf.shape, generator=generator, device=generator.device
            )
        return values.to(device=leaf.device, dtype=leaf.dtype)

    return tree_map(synthetic, inputs)


def repeated(inputs: Any, are_rows: Sequence[bool], few: int, records: int) -> Any:
    """Repeat the inputs of ``few`` records for ``records`` records."""
    leaves, form = tree_flatten(inputs)
    rows = [place % few for place in range(records)]
    copies = [
        leaf[rows] if is_rows else leaf for leaf, is_rows in zip(leaves, are_rows, strict=True)
    ]
    return tree_unflatten(copies, form)


def check_separation(
    together: Callable[[bool], tuple[list[Any], bool]],
    each: Callable[[bool], list[Any]],
    halves: Callable[[], bool],
) -> set[int]:
    """Reject a network with different results for records separately and together.

    ``together`` runs it on all records, in its own mode (True) or evaluation mode. Returns the
    indices of tensors that differ, such as a mean over the batch.
    """
    wanted, draws = together(True)
    _check_numbers(wanted)
    results = [each(not draws), each(not draws)]
    if draws:
        # Random draws for a single record differ from draws for a batch.
        wanted, draws = together(False)
    half = halves()
    if any(len(result) != len(wanted) for result in results):
        raise _mixes("has other tensors than for a batch")
    for one, other in zip(*results, strict=True):
        if not is_close(*(t[0] if isinstance(t, tuple) else t for t in (one, other)), half=half):
            raise _mixes("depends on earlier inputs")
    mixed = {
        place
        for place, one in enumerate(results[0])
        if not _agrees(one, wanted[place], half, draws)
    }
    right = [
        place
        for place, one in enumerate(results[0])
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


def _agrees(one: Any, wanted: Any, half: bool, draws: bool) -> bool:
    """Return True if separate results equal the results of all records together."""
    rows = one[0] if isinstance(one, tuple) else one
    if draws:
        return bool(rows.dim() > 1 and rows.flatten(0, 1).shape == wanted.shape)
    if not isinstance(one, tuple):
        return is_close(one, wanted, half=half)
    # A network called outside autocast may enable it itself.
    half = half or is_half(wanted.dtype)
    return rows.dim() > 1 and is_close(rows.flatten(0, 1), wanted, half=half)


def _check_numbers(numbers: Sequence[Any]) -> None:
    if any(t.is_floating_point() and bool(t.isnan().any()) for t in numbers):
        raise ParameterError(
            "module returned NaN for synthetic records in the pre-flight check; pass realistic "
            "records as example= to make_private.",
            name="example",
        )


def is_close(one: Any, other: Any, *, half: bool = False) -> bool:
    """Return True if two tensors are equal up to rounding, ignoring non-finite values."""
    if one.shape != other.shape:
        return False
    if not one.is_floating_point() or one.numel() == 0:
        return bool(torch.equal(one, other))
    rounding = _ROUNDING_IN_HALF if half else _ROUNDING.get(one.dtype, _ROUNDING_IN_HALF)
    # In slices, because outputs of language models are large.
    parts = [t.detach().reshape(-1).split(_SLICE_ENTRIES) for t in (one, other)]
    longest, off = 0.0, 0.0
    for pair in zip(*parts, strict=True):
        first, second = (torch.nan_to_num(t.double(), 0.0, 0.0, 0.0) for t in pair)
        longest = max(longest, float(first.abs().max()))
        off = max(off, float((first - second).abs().max()))
    return off <= rounding * longest


@contextmanager
def keeping_modes(module: Any) -> Iterator[None]:
    """Restore the modes of a network's layers at the end."""
    modes = {part: part.training for part in module.modules()}
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


@contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """Evaluate a network without gradients, then restore its layers' modes."""
    with keeping_modes(module), torch.no_grad():
        module.eval()
        yield


# Maximum number of characters shown of another library's error.
_ERROR_CHARACTERS = 200


def rehearse_step(parameters: Sequence[Any], optimizer: Any) -> None:
    """Test a step of synthetic blocks, on copies of one parameter of each shape."""
    _check_no_closure(optimizer)
    some = _one_per_shape(parameters)
    with _failing("optimizer", "a step of the optimizer"), seeded_randomness(0):
        gradients = split(_summed(some), some)
        # Optimizers of other libraries may store state that copies lack.
        if type(optimizer).__module__.startswith("torch.optim"):
            twin, copies = _twin(optimizer, some)
            for parameter, gradient in gradients:
                copies[id(parameter)].grad = gradient.to(parameter.dtype)
            twin.step()


def rehearse_clipping(uses: Uses, layout: BlockLayout) -> None:
    """Compute the norms and the clipped sum of recorded synthetic blocks."""
    with _failing("module", "clipping the gradients of synthetic records"):
        clipped_sums(uses, layout, 1.0)


def _summed(parameters: Sequence[Any]) -> FloatArray:
    """Return the clipped sum of two synthetic one-record blocks as one vector."""
    layout = BlockLayout((1, 1))
    uses = new_uses(layout, parameters)
    for p in parameters:
        uses.add(p, StoredGradients(layout, torch.ones_like(p).expand(layout.blocks, *p.shape)))
    total = FloatSum(parameters, 1.0)
    total.add_blocks(uses, layout)
    return mean_gradient(total.sums, parameters, 1)


def _one_per_shape(parameters: Sequence[Any]) -> list[Any]:
    """Return the smallest parameter of each number of dimensions, dtype and device."""
    by_shape: dict[Any, Any] = {}
    for parameter in sorted(parameters, key=lambda p: int(p.numel())):
        by_shape.setdefault((parameter.dim(), parameter.dtype, parameter.device), parameter)
    return [parameter for parameter in parameters if any(parameter is p for p in by_shape.values())]


def _twin(optimizer: Any, parameters: Sequence[Any]) -> tuple[Any, dict[int, Any]]:
    """Return a copy of an optimizer without hooks, for parameter copies by id."""
    own = {id(parameter) for parameter in parameters}
    groups = [
        {**group, "params": [p for p in group["params"] if id(p) in own]}
        for group in optimizer.param_groups
    ]
    state = {p: optimizer.state[p] for p in parameters if p in optimizer.state}
    memo: dict[int, Any] = {}
    copied = copy.deepcopy(
        {
            "defaults": optimizer.defaults,
            "state": defaultdict(dict, state),
            "param_groups": [group for group in groups if group["params"]],
        },
        memo,
    )
    twin = object.__new__(type(optimizer))
    twin.__setstate__(copied)
    return twin, {id(parameter): memo[id(parameter)] for parameter in parameters}


def _check_no_closure(optimizer: Any) -> None:
    """Reject an optimizer with a closure, because it would read a batch several times."""
    needed = [
        parameter.name
        for parameter in inspect.signature(type(optimizer).step).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 1:
        raise ParameterError(
            f"optimizer must step without {needed[1]}, unlike {type(optimizer).__name__}, because "
            "a private step reads each batch once; use one such as SGD or Adam.",
            name="optimizer",
        )


@contextmanager
def _failing(name: str, what: str) -> Iterator[None]:
    """Convert an error during the test to an error about parameter ``name``."""
    try:
        yield
    except DpgrainError:
        raise
    except Exception as error:
        raise ParameterError(
            f"{name} must train on synthetic records before the run is charged, but {what} failed "
            f"({type(error).__name__}: {shorten(str(error), _ERROR_CHARACTERS)}); fix it, or use "
            f"another {name}.",
            name=name,
        ) from error
