"""The precision in which gradients of blocks are made, whatever the caller's loop computes in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
