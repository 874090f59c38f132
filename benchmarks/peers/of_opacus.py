"""Steps of Opacus: gradients of records by hooks, added up by block; and ghost clipping of records."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from serving import serve
from torch_problems import BOUND, problem


def hooks(name: str, block: str) -> Callable[[], Any]:
    """Gradients of records; their means over blocks are clipped and added up."""
    asked = problem(name, block)
    module = GradSampleModule(asked.module, loss_reduction="sum")
    sizes = torch.tensor(asked.sizes)
    places = torch.repeat_interleave(torch.arange(len(sizes)), sizes)

    def step() -> list[Any]:
        total = [torch.zeros_like(p) for p in module.parameters()]
        for x, y in asked.chunks():
            module.zero_grad(set_to_none=True)
            asked.losses(x, y, module).sum().backward()
            parts = []
            for parameter in module.parameters():
                each = parameter.grad_sample
                parameter.grad_sample = None
                if len(sizes) < len(places):
                    sums = each.new_zeros(len(sizes), *parameter.shape)
                    each = sums.index_add_(0, places, each)
                parts.append(each)
            norms = torch.stack([part.flatten(1).norm(dim=1) for part in parts]).norm(dim=0)
            weights = (BOUND / (norms / sizes)).clamp(max=1.0) / sizes
            for sum_, part in zip(total, parts, strict=True):
                sum_ += torch.tensordot(weights, part, 1)
        return total

    return step


def ghost(name: str, block: str) -> Callable[[], Any]:
    """Clipped gradients of records, in two backward passes; blocks are not known to it."""
    asked = problem(name, block)
    module = GradSampleModuleFastGradientClipping(
        asked.module, loss_reduction="sum", max_grad_norm=BOUND, use_ghost_clipping=True
    )

    def step() -> list[Any]:
        module.zero_grad(set_to_none=True)
        total = [torch.zeros_like(p) for p in module.parameters()]
        for x, y in asked.chunks():
            module.enable_hooks()
            losses = asked.losses(x, y, module)
            losses.sum().backward(retain_graph=True)
            module.zero_grad(set_to_none=True)
            weights = module.get_clipping_coef()
            module.disable_hooks()
            (weights * losses).sum().backward()
            for sum_, parameter in zip(total, module.parameters(), strict=True):
                sum_ += parameter.grad
        return total

    return step


torch.set_num_threads(1)
warnings.simplefilter("ignore")
serve({"hooks": hooks, "ghost": ghost})
