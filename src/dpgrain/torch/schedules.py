"""Detection of learning-rate schedulers that follow a loss without noise."""

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
