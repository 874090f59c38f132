"""The precision in which gradients of blocks are made, whatever the caller's loop computes in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
