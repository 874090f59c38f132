"""Guards against hooks and schedulers that would use unpublished values of records."""

from __future__ import annotations

from types import FrameType
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch

_SCHEDULERS: tuple[type, ...] = (
    torch.optim.lr_scheduler.LRScheduler,
    torch.optim.lr_scheduler.ReduceLROnPlateau,
)
# Module of schedulers that are not LRScheduler subclasses, such as GreedyLR.
_MODULE = "transformers.optimization"
#: Functions that read the number in a tensor.
READS = frozenset(("__float__", "__bool__", "__int__", "item", "tolist"))


def check_reader(frame: FrameType) -> None:
    """Reject a scheduler that reads a number computed from a training batch."""
    reader = frame.f_locals.get("self")
    if _is_scheduler(reader):
        raise ParameterError(
            "scheduler must follow public numbers, not a loss of training batches like this "
            f"{type(reader).__name__}, because its steps would depend on records without noise; "
            "pass the loss on public records, or use a fixed schedule.",
            name="scheduler",
        )


def _is_scheduler(thing: Any) -> bool:
    if isinstance(thing, _SCHEDULERS):
        return True
    kinds = type(thing).__mro__
    return hasattr(thing, "optimizer") and any(kind.__module__ == _MODULE for kind in kinds)


def hooks_on_saved() -> Any:
    """Return the functions that pack and unpack PyTorch's saved tensors, if any."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False)


def check_saved(*, but_checkpoints: bool = False) -> None:
    """Reject hooks on saved tensors, because they could modify activations."""
    hooks = hooks_on_saved()
    if hooks is None or (
        but_checkpoints and all(hook.__module__ == "torch.utils.checkpoint" for hook in hooks)
    ):
        return
    raise ParameterError(
        "module and loss must be computed without saved_tensors_hooks, which can change the "
        "saved tensors of all records together; remove them.",
        name="module",
    )


def check_backward_hooks(module: Any) -> None:
    """Reject backward hooks of a module or of all modules."""
    for part in module.modules():
        hooks = (part._backward_hooks, part._backward_pre_hooks)
        if any(hooks) or _has_global_hooks():
            raise ParameterError(
                "module must not have backward hooks, which can change gradients of all "
                "records together; remove them.",
                name="module",
            )


def _has_global_hooks() -> bool:
    hooks = torch.nn.modules.module
    return bool(hooks._global_backward_hooks or hooks._global_backward_pre_hooks)
