"""Steps of Opake, which clips what one call of a function adds; here a block is given to it as one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
import torch
from opake.dpsgd.clipping import clipped_grad
from serving import serve
from torch_problems import BOUND, problem


def blocks(name: str, block: str) -> Callable[[], Any]:
    """Clipped mean gradients of blocks, one call for each size."""
    asked = problem(name, block)
    weights = {key: p.detach() for key, p in asked.module.named_parameters()}

    def loss(own: Any, x: Any, y: Any) -> Any:
        return asked.losses(
            x, y, lambda x: torch.func.functional_call(asked.module, own, (x,))
        ).mean()

    derivative, begin = clipped_grad(loss, argnums=0, batch_argnums=(1, 2), clipping_norm=BOUND)

    def step() -> list[Any]:
        total = [torch.zeros_like(p) for p in weights.values()]
        for chunk in asked.chunks():
            for x, y in asked.classes(*chunk):
                found, _state = derivative(weights, x, y, state=begin)
                for sum_, key in zip(total, weights, strict=True):
                    sum_ += found.pytree[key]
        return total

    return step


torch.set_num_threads(1)
warnings.simplefilter("ignore")
serve({"opake": blocks})
