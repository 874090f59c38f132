"""The precision of blocks' gradients, whatever the caller's loop computes in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch


@contextmanager
def precisely() -> Iterator[None]:
    """Compute in the precision of the numbers: no gradients, no autocast, no shortened products."""
    half = (torch.autocast(kind, enabled=False) for kind in ("cpu", "cuda"))
    with whole_products(), torch.no_grad(), next(half), next(half):
        yield


@contextmanager
def whole_products() -> Iterator[None]:
    """Shorten no factor of a product, or of a convolution, in single precision.

    GPUs shorten them to 10 bits where they are let (TF32: convolutions by default), and processors to
    7 where ``torch.set_float32_matmul_precision("medium")`` lets them.
    """
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before, level = (products.allow_tf32, convolutions.allow_tf32), _level()
    products.allow_tf32 = convolutions.allow_tf32 = False
    on_processors = _on_processors()
    settings = [kind.fp32_precision for kind in on_processors]
    for kind in on_processors:
        kind.fp32_precision = "ieee"
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before
        if level is not None:
            torch.set_float32_matmul_precision(level)
        for kind, setting in zip(on_processors, settings, strict=True):
            kind.fp32_precision = setting


def _level() -> str | None:
    """Return how far products may be shortened in general; None where settings differ."""
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        return None


def _on_processors() -> list[Any]:
    """Return where PyTorch keeps the precision of products on processors, from version 2.9 on."""
    kinds = (getattr(torch.backends.mkldnn, name, None) for name in ("matmul", "conv"))
    return [kind for kind in kinds if hasattr(kind, "fp32_precision")]


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
        f"loss_reduction must be 'sum' if gradients pass through half precision ({what}); sum the "
        "losses of records in the loop, and pass loss_reduction='sum'.",
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
            "torch.backends.cuda.matmul.fp32_precision (or cudnn's) must be 'none', "
            "because gradients of blocks use full precision through allow_tf32, and PyTorch "
            "rejects both together; set torch.backends.cuda.matmul.allow_tf32 for the loop "
            "instead."
        ) from error
