"""The records of a batch, and the loss of each, made from the record alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch
from dpgrain.torch.outputs import plain_rows

Loss = Callable[[Any, Any], Any]


def inputs_and_target(batch: Any) -> tuple[tuple[Any, ...], Any]:
    """Return what the network reads, and what its outputs are compared with.

    Args:
        batch: a tuple or a list, whose last part is the target; or one tensor, which is its own.

    Raises:
        ParameterError: if it is neither.

    >>> inputs_and_target((torch.ones(2, 3), torch.zeros(2)))[1].shape
    torch.Size([2])
    """
    parts = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        raise ParameterError(
            "dataset must have records of inputs and a target that are tensors or numbers, or of one "
            f"tensor that is both, not {_kinds(batch)}; train others by a loop of your own, with "
            "PrivacyEngine.",
            name="dataset",
        )
    return (parts[:-1] or parts), parts[-1]


def moved(batch: Any, module: Any) -> Any:
    """Return a batch on the devices of the network's parameters."""
    device = next(iter(module.parameters())).device
    if isinstance(batch, tuple | list):
        return tuple(p.to(device) if isinstance(p, torch.Tensor) else p for p in batch)
    return batch.to(device) if isinstance(batch, torch.Tensor) else batch


def record_losses(loss: Loss, outputs: Any, target: Any) -> Any:
    """Return the loss of each record, (records,), each made from the record alone.

    Args:
        loss: the function from outputs and a target to a loss.
        outputs: what the network has made of the batch: tensors with a row for each record.
        target: the target, with a row for each record.

    Raises:
        ParameterError: if the loss of a batch of one record is not one number, or outputs have no row
            for each record.

    The loss is called with a batch of one record at a time (all of them in one go, by
    ``torch.func.vmap``), so that it cannot mix records, whatever it is: a mean over tokens is one over
    the tokens of the record. It must be made of PyTorch's operations, without ``.item()`` or branches
    on values, and take all that belongs to a record as outputs and target. Source: docs/theory,
    "Gradient steps of networks".

    >>> tokens = torch.tensor([[1, 0, 0], [1, 1, 1]])
    >>> def per_token(outputs, target):
    ...     return torch.nn.functional.cross_entropy(outputs.mT, target, ignore_index=0)
    >>> record_losses(per_token, torch.eye(3)[tokens], tokens)
    tensor([0.5514, 0.5514])
    """

    def one(output: Any, wanted: Any) -> Any:
        result = loss(_as_batch(output), _as_batch(wanted))
        if type(result) is not torch.Tensor or result.numel() != 1:
            what = tuple(result.shape) if type(result) is torch.Tensor else type(result).__name__
            raise ParameterError(
                f"loss must return one number for a batch of one record, not {what}; sum or average "
                "what it has of a record, and take all of it as outputs and target.",
                name="loss",
            )
        return result.reshape(())

    of, (outputs, target) = plain_rows((outputs, target))
    losses = torch.func.vmap(one, randomness="different")(outputs, target)
    return losses if of is None else of.output(losses, "rows")


def _as_batch(record: Any) -> Any:
    """Return what there is of one record as a batch of one."""
    if isinstance(record, dict):
        return {name: _as_batch(part) for name, part in record.items()}
    if isinstance(record, tuple | list):
        return tuple(_as_batch(part) for part in record)
    return record.unsqueeze(0)


def _kinds(batch: Any) -> str:
    """Return the types of a batch's parts, in words."""
    if isinstance(batch, tuple | list):
        return f"{type(batch).__name__} of {', '.join(type(part).__name__ for part in batch)}"
    return type(batch).__name__
