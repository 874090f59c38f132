"""The precision in which gradients of blocks are made, whatever the caller's loop computes in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch


@contextmanager
def precisely() -> Iterator[None]:
    """Compute in the precision of the numbers: no gradients, no autocast, no shortened products."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = False
    try:
        half = (torch.autocast(kind, enabled=False) for kind in ("cpu", "cuda"))
        with torch.no_grad(), next(half), next(half):
            yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


def is_half(kind: Any) -> bool:
    """Return whether a type of number has fewer digits than single precision.

    Args:
        kind: the type of number.

    >>> is_half(torch.bfloat16), is_half(torch.float32), is_half(torch.int8)
    (True, False, False)
    """
    return bool(kind.is_floating_point) and kind not in (torch.float32, torch.float64)


def halves_inputs() -> bool:
    """Return whether layers are called under autocast."""
    return any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))


def check_digits(module: Any) -> None:
    """Refuse a network whose gradients may pass through half precision, under a loss that is a mean.

    Args:
        module: the network.

    Raises:
        ParameterError: if it has parameters or buffers in half precision.
    """
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_half(tensor.dtype):
            raise half_mean(f"{name!r} is {tensor.dtype}")


def half_mean(what: str) -> ParameterError:
    """Return the refusal of a loss that is a mean, under half precision.

    Args:
        what: what has half precision, as a clause.
    """
    return ParameterError(
        f"loss_reduction must be 'sum' where gradients pass through half precision ({what}): add up "
        "the losses of records in the loop, and pass loss_reduction='sum'.",
        name="loss_reduction",
    )


def check_precise() -> None:
    """Refuse settings under which no precision can be asked for, before anything is charged.

    Raises:
        ParameterError: if the loop sets precisions in PyTorch's newer way, which does not go with the
            one that older versions have, too.
    """
    try:
        with precisely():
            pass
    except RuntimeError as error:
        raise ParameterError(
            "torch.backends.cuda.matmul.fp32_precision (or that of cudnn) must be left at 'none': "
            "gradients of blocks are made in full precision by allow_tf32, which PyTorch refuses "
            "beside it; set torch.backends.cuda.matmul.allow_tf32 for the loop instead."
        ) from error
