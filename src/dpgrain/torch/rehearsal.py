"""Test of a training step with synthetic blocks, before a run is charged.

A step that fails after the run was charged would waste the budget. The test therefore runs the same
functions as a step: norms, clipped sums, their division into gradients, and the optimizer's step.
It draws no noise, and leaves parameters, the state of the optimizer and generators unchanged.
"""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dpgrain._formatting import shorten
from dpgrain._types import FloatArray
from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.torch.clipping import FloatSum, clipped_sums, mean_of
from dpgrain.torch.layout import Layout
from dpgrain.torch.library import torch
from dpgrain.torch.noise import split
from dpgrain.torch.randomness import randomness_from
from dpgrain.torch.uses import Kept, Uses

# Maximum number of characters shown of another library's error.
_ERROR_CHARACTERS = 200


def rehearse_step(parameters: Sequence[Any], optimizer: Any) -> None:
    """Test a step of synthetic blocks, on copies of one parameter of each shape."""
    _check_step(optimizer)
    some = _one_of_each(parameters)
    with _failing("optimizer", "a step of the optimizer"), randomness_from(0):
        gradients = split(_summed(some), some)
        # Optimizers of other libraries may store state that copies lack.
        if type(optimizer).__module__.startswith("torch.optim"):
            twin, copies = _twin(optimizer, some)
            for parameter, gradient in gradients:
                copies[id(parameter)].grad = gradient.to(parameter.dtype)
            twin.step()


def rehearse_clipping(uses: Uses, layout: Layout) -> None:
    """Compute the norms and the clipped sum of recorded synthetic blocks."""
    with _failing("module", "clipping the gradients of synthetic records"):
        clipped_sums(uses, layout, 1.0)


def _summed(parameters: Sequence[Any]) -> FloatArray:
    """Return the clipped sum of two synthetic one-record blocks as one vector."""
    layout = Layout((1, 1))
    uses: Uses = {
        p: [Kept(layout, torch.ones_like(p).expand(layout.blocks, *p.shape))] for p in parameters
    }
    found = FloatSum(parameters, 1.0)
    found.add_blocks(uses, layout)
    return mean_of(found.sums, parameters, 1)


def _one_of_each(parameters: Sequence[Any]) -> list[Any]:
    """Return the smallest parameter of each number of dimensions, dtype and device."""
    found: dict[Any, Any] = {}
    for parameter in sorted(parameters, key=lambda p: int(p.numel())):
        found.setdefault((parameter.dim(), parameter.dtype, parameter.device), parameter)
    return [parameter for parameter in parameters if any(parameter is p for p in found.values())]


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


def _check_step(optimizer: Any) -> None:
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
