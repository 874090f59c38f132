"""Clipping of records in two backward passes by other libraries, for ``benchmarks/language.py``.

Both find the norm of each record's gradient in a first backward pass, and run a second one from the
losses weighted by how far each is clipped. They clip records, so that a block is one record.

- *Opacus*: its ghost clipping (``GradSampleModuleFastGradientClipping``), if it is installed.
- *smaller Gram*: the method of private-transformers (Li et al. 2022, "Large language models can be
  strong differentially private learners"): the norm of a linear map's gradient from the Gram
  matrices of its inputs and output gradients if these are smaller than the gradient, and from the
  gradient otherwise. It is written here for linear maps, which adapters are; models with other
  trained layers are rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Step = Callable[[], Any]


class RefusedError(Exception):
    """A model that a method does not support; the message names the reason."""


def opacus(model: Any, losses: Callable[[Any], Any], bound: float) -> Step:
    """Return a step of Opacus's ghost clipping.

    Args:
        losses: makes the loss of each record with a model.
        bound: the clipping bound.

    Raises:
        RefusedError: if Opacus is not installed, or does not take the model.
    """
    try:
        from opacus.grad_sample import GradSampleModuleFastGradientClipping
    except ImportError as error:
        raise RefusedError("not installed") from error
    try:
        # Buffers, such as tables of angles, are rejected if it is strict.
        hooked = GradSampleModuleFastGradientClipping(
            model, strict=False, max_grad_norm=bound, loss_reduction="sum"
        )
    except Exception as error:
        raise RefusedError(f"{type(error).__name__}: {error}") from error

    def step() -> None:
        model.zero_grad(set_to_none=True)
        hooked.enable_hooks()
        each = losses(hooked)
        each.sum().backward(retain_graph=True)
        model.zero_grad(set_to_none=True)
        weights = hooked.get_clipping_coef()
        hooked.disable_hooks()
        (weights * each).sum().backward()

    return _tried(step, hooked.remove_hooks)


def smaller_gram(model: Any, losses: Callable[[Any], Any], bound: float) -> Step:
    """Return a step with norms by the smaller of Gram matrices and gradients.

    Args:
        losses: makes the loss of each record with a model.
        bound: the clipping bound.

    Raises:
        RefusedError: if other layers than linear ones are trained.
    """
    squares: list[Any] = []
    is_first = [True]

    def squared(x: Any, b: Any) -> Any:
        x, b = (part.reshape(len(part), -1, part.shape[-1]) for part in (x, b))
        if 2 * x.shape[1] ** 2 <= x.shape[2] * b.shape[2]:
            return ((x @ x.mT) * (b @ b.mT)).sum((1, 2))
        return (x.mT @ b).square().sum((1, 2))

    def after(layer: Any, inputs: Any, out: Any) -> None:
        (x,) = inputs

        def come(b: Any) -> None:
            if is_first[0]:
                squares.append(squared(x.detach(), b))
                if layer.bias is not None and layer.bias.requires_grad:
                    squares.append(b.reshape(len(b), -1, b.shape[-1]).sum(1).square().sum(1))

        out.register_hook(come)

    for name, part in model.named_modules():
        own = [p for p in part.parameters(recurse=False) if p.requires_grad]
        if not own:
            continue
        if not isinstance(part, torch.nn.Linear):
            raise RefusedError(f"layer {name!r} is {type(part).__name__}")
        part.register_forward_hook(after)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        squares.clear()
        is_first[0] = True
        each = losses(model)
        each.sum().backward(retain_graph=True)
        model.zero_grad(set_to_none=True)
        norms = torch.stack(squares).sum(0).sqrt()
        is_first[0] = False
        ((bound / norms.clamp(min=1e-12)).clamp(max=1.0) * each).sum().backward()

    return step


def _tried(step: Step, undo: Callable[[], None]) -> Step:
    """Return a step after one trial run.

    Raises:
        RefusedError: if it fails.
    """
    try:
        step()
    except Exception as error:
        undo()
        raise RefusedError(f"{type(error).__name__}: {error}") from error
    return step


#: Methods by the name of their column.
PEERS: dict[str, Callable[[Any, Callable[[Any], Any], float], Step]] = {
    "Opacus": opacus,
    "Gram": smaller_gram,
}
