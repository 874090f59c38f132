"""Precision of blocks' gradients, independent of the training loop's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch


@contextmanager
def precisely() -> Iterator[None]:
    """Disable gradients, autocast and reduced-precision products."""
    with whole_products(), without_autocast():
        yield


@contextmanager
def without_autocast() -> Iterator[None]:
    """Disable gradients and autocast."""
    half = (torch.autocast(kind, enabled=False) for kind in ("cpu", "cuda"))
    with torch.no_grad(), next(half), next(half):
        yield


@contextmanager
def whole_products() -> Iterator[None]:
    """Disable reduced precision in single-precision products and convolutions.

    GPUs can round factors to 10 bits (TF32, the default for convolutions), and CPUs to 7 bits after
    ``torch.set_float32_matmul_precision("medium")``.
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
    """Return the global precision of products; None if settings differ."""
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        return None


def _on_processors() -> list[Any]:
    """Return PyTorch's precision settings for CPUs, which exist since version 2.9."""
    kinds = (getattr(torch.backends.mkldnn, name, None) for name in ("matmul", "conv"))
    return [kind for kind in kinds if hasattr(kind, "fp32_precision")]


def is_half(kind: Any) -> bool:
    """Return True if a dtype has fewer digits than single precision."""
    return bool(kind.is_floating_point) and kind not in (torch.float32, torch.float64)


def halves_inputs() -> bool:
    """Return True under autocast."""
    return any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))


def check_digits(module: Any) -> None:
    """Reject a network with half-precision gradients, for a loss that is a mean."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_half(tensor.dtype):
            raise half_mean(f"{name!r} is {tensor.dtype}")


def half_mean(what: str) -> ParameterError:
    """Return the error about a mean loss in half precision; ``what`` names its cause."""
    return ParameterError(
        f"loss_reduction must be 'sum' if gradients pass through half precision ({what}); sum the "
        "losses of records in the loop, and pass loss_reduction='sum'.",
        name="loss_reduction",
    )


def check_precise() -> None:
    """Reject precision settings that dpgrain cannot override, before charging."""
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
