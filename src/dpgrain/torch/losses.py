"""Losses of records, each computed from its own record only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch
from dpgrain.torch.tracked_outputs import IGNORED_LABEL, is_rows, plain_rows, within_classes

__all__ = ["causal_lm", "classification", "masked_lm", "seq2seq"]

functional = torch.nn.functional

#: How the losses of a record's tokens are combined.
TokenReduction: TypeAlias = Literal["mean", "sum"]
Loss = Callable[[Any, Any], Any]


def inputs_and_target(batch: Any) -> tuple[tuple[Any, ...], Any]:
    """Split a batch into the inputs and the target: the last item, or the batch."""
    parts = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        raise ParameterError(
            "dataset must have records of inputs and a target that are tensors or numbers, or of "
            f"one tensor for both, not {_kinds(batch)}; for other records use a custom loop with "
            "PrivacyEngine.",
            name="dataset",
        )
    return (parts[:-1] or parts), parts[-1]


def moved(batch: Any, module: Any) -> Any:
    """Move a batch to the devices of the network's parameters."""
    device = next(iter(module.parameters())).device
    if isinstance(batch, tuple | list):
        return tuple(p.to(device) if isinstance(p, torch.Tensor) else p for p in batch)
    return batch.to(device) if isinstance(batch, torch.Tensor) else batch


def record_losses(loss: Loss, outputs: Any, target: Any) -> Any:
    """Return the loss of each record, (records,), computed from this record only.

    Args:
        loss: the function from outputs and a target to a loss.
        outputs: the outputs of the network for the batch: tensors with a row for each record.
        target: the target, with a row for each record.

    Raises:
        ParameterError: if the loss of a batch with one record is not a single number, or outputs do
            not have a row for each record.

    The loss is called with one record at a time (vectorized by ``torch.func.vmap``), so it cannot
    mix records: a mean over tokens is a mean over the record's tokens. It must consist of PyTorch
    operations, without ``.item()`` or branches on values, and depend on the record only through
    outputs and target. Source: docs/theory, "Gradient steps of networks".

    >>> tokens = torch.tensor([[1, 0, 0], [1, 1, 1]])
    >>> def per_token(outputs, target):
    ...     return torch.nn.functional.cross_entropy(outputs.mT, target, ignore_index=0)
    >>> record_losses(per_token, torch.eye(3)[tokens], tokens)
    tensor([0.5514, 0.5514])
    """

    _validate.function(loss=loss)

    def one(output: Any, wanted: Any) -> Any:
        result = loss(_as_batch(output), _as_batch(wanted))
        if type(result) is not torch.Tensor or result.numel() != 1:
            raise ParameterError(
                f"loss must return one number for a batch of one record, not {_kind(result)}; sum "
                "or average within the record, and use all of outputs and target.",
                name="loss",
            )
        return result.reshape(())

    _check_rows(outputs=outputs, target=target)
    batch_pass, (outputs, target) = plain_rows((outputs, target))
    losses = torch.func.vmap(one, randomness="different")(outputs, target)
    return losses if batch_pass is None else batch_pass.output(losses, "rows")


def _check_rows(**arguments: Any) -> None:
    """Reject outputs and a target unless all have the same number of rows."""
    parts = [(name, part) for name, value in arguments.items() for part in _leaves(name, value)]
    tensors = (part for _, part in parts if isinstance(part, torch.Tensor) and part.dim())
    records = next(map(len, tensors), 0)
    for name, part in parts:
        if not records or not is_rows(part, records) or part.layout is not torch.strided:
            raise ParameterError(
                f"{name} must be dense tensors with one row per record in outputs and target, not "
                f"{_kind(part)}.",
                name=name,
            )


def _leaves(name: str, value: Any) -> list[Any]:
    """Return the leaves of outputs or a target; the object itself if it is empty."""
    try:
        return torch.utils._pytree.tree_leaves(value) or [value]
    except RecursionError as error:
        raise ParameterError(
            f"{name} must be tensors, not a list that contains itself.", name=name
        ) from error


def causal_lm(outputs: Any, labels: Any, *, reduction: TokenReduction = "mean") -> Any:
    """Return the loss of each record, (records,), for next-token prediction.

    Args:
        outputs: the outputs of the model for the batch without labels: an object or a mapping with
            ``logits``, or the logits, (records, tokens, words).
        labels: (records, tokens) the tokens themselves, which are shifted here. −100, and any
            number outside the vocabulary, ignores a token, such as padding or a prompt.
        reduction: the mean or the sum of a record's tokens. The loss of a record without tokens is
            0.

    Raises:
        ParameterError: if outputs or labels have other shapes, such as several records packed into
            one sequence, which would share one loss.

    The loss depends only on the record. Models called with labels return a mean over the tokens of
    the batch, which depends on the padding of other records. Source: docs/theory, "Gradient steps
    of networks".

    >>> tokens = torch.tensor([[1, 2, 0], [1, 0, -100]])
    >>> causal_lm(torch.eye(3)[tokens.clamp(min=0)], tokens)
    tensor([1.5514, 1.5514])
    """
    logits = _logits(outputs, labels, dims=3)
    return _token_losses(logits[:, :-1], labels[:, 1:], reduction)


def masked_lm(outputs: Any, labels: Any, *, reduction: TokenReduction = "mean") -> Any:
    """Return the loss of each record, (records,), for masked-token prediction.

    Args:
        outputs: as in :func:`causal_lm`.
        labels: (records, tokens) the masked tokens; −100 elsewhere.
        reduction: as in :func:`causal_lm`.

    Raises:
        ParameterError: as in :func:`causal_lm`.

    It is also the loss of token classification. A collator that masks tokens must draw them
    separately for each record.

    >>> tokens = torch.tensor([[1, -100], [-100, -100]])
    >>> masked_lm({"logits": torch.zeros(2, 2, 3)}, tokens)
    tensor([1.0986, 0.0000])
    """
    return _token_losses(_logits(outputs, labels, dims=3), labels, reduction)


def seq2seq(outputs: Any, labels: Any, *, reduction: TokenReduction = "mean") -> Any:
    """Return the loss of each record, (records,), for sequence-to-sequence models.

    Args:
        outputs: the outputs of the model for the batch with ``decoder_input_ids`` and without
            labels; otherwise as in :func:`causal_lm`.
        labels: (records, tokens) the target tokens, which are the decoder's inputs shifted to the
            left; −100 ignores a token.
        reduction: as in :func:`causal_lm`.

    Raises:
        ParameterError: as in :func:`causal_lm`.

    >>> seq2seq(torch.zeros(1, 2, 3), torch.tensor([[2, 1]]), reduction="sum")
    tensor([2.1972])
    """
    return _token_losses(_logits(outputs, labels, dims=3), labels, reduction)


def classification(outputs: Any, labels: Any) -> Any:
    """Return the loss of each record, (records,), for classification.

    Args:
        outputs: an object or a mapping with ``logits``, or the logits, (records, classes).
        labels: (records,) the class of each record; or (records, classes) numbers from 0 to 1 for
            classes that are not mutually exclusive. The loss of an out-of-range class is 0; numbers
            are clamped to [0, 1], and NaN is treated as 0.

    Raises:
        ParameterError: if outputs or labels have other shapes.

    >>> classification(torch.zeros(2, 4), torch.tensor([1, 3]))
    tensor([1.3863, 1.3863])
    >>> classification(torch.zeros(1, 4), torch.ones(1, 4))
    tensor([0.6931])
    """
    logits = _logits(outputs, labels, dims=2)
    if labels.is_floating_point() and labels.shape == logits.shape:
        labels = labels.nan_to_num(0.0).clamp(0, 1)
        each = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return each.mean(1)
    if labels.dim() != 1:
        raise ParameterError(
            "labels must be (records,) integers or (records, classes) floats, not "
            f"{tuple(labels.shape)} of {labels.dtype}.",
            name="labels",
        )
    _check_whole(labels)
    return functional.cross_entropy(
        logits,
        within_classes(labels.long(), logits.shape[1]),
        ignore_index=IGNORED_LABEL,
        reduction="none",
    )


def _logits(outputs: Any, labels: Any, *, dims: int) -> Any:
    """Return the logits of each record, in single precision or better."""
    logits: Any = outputs.get("logits") if isinstance(outputs, Mapping) else outputs
    logits = getattr(logits, "logits", logits)
    if not _is_real(logits) or logits.dim() != dims:
        words = "(records, classes)" if dims == 2 else "(records, tokens, words)"
        raise ParameterError(
            f"outputs must be logits {words}, or contain them, not {_kind(logits)}.", name="outputs"
        )
    alike = _is_real(labels) and is_rows(labels, len(logits))
    if not alike or (dims == 3 and labels.shape != logits.shape[:2]):
        raise ParameterError(
            f"labels must have one row per record of outputs, {tuple(logits.shape)}, not "
            f"{_kind(labels)}, because records packed into one sequence have no separate loss.",
            name="labels",
        )
    return logits if logits.dtype == torch.float64 else logits.float()


def _is_real(tensor: Any) -> bool:
    """Return True for a dense tensor of real numbers or integers."""
    dense = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    return dense and not tensor.is_complex()


def _check_whole(labels: Any) -> None:
    """Reject labels of classes or words unless they are integers."""
    if labels.is_floating_point():
        raise ParameterError(
            f"labels must be integers, not of {labels.dtype}; convert them by .long().",
            name="labels",
        )


def _token_losses(logits: Any, labels: Any, reduction: TokenReduction) -> Any:
    """Return the loss of each record from the losses of its tokens."""
    _validate.one_of(("mean", "sum"), reduction=reduction)
    _check_whole(labels)
    labels = within_classes(labels.long(), logits.shape[2])
    each = functional.cross_entropy(
        logits.transpose(1, 2), labels, ignore_index=IGNORED_LABEL, reduction="none"
    )
    if reduction == "sum":
        return each.sum(1)
    return each.sum(1) / (labels != IGNORED_LABEL).sum(1).clamp(min=1).to(each.dtype)


def _as_batch(record: Any) -> Any:
    """Return the tensors of one record as a batch of one."""
    if isinstance(record, dict):
        return {name: _as_batch(part) for name, part in record.items()}
    if isinstance(record, tuple | list):
        return tuple(_as_batch(part) for part in record)
    return record.unsqueeze(0)


def _kind(part: Any) -> str:
    """Return the shape of a tensor, or the type of any other object."""
    return str(tuple(part.shape)) if isinstance(part, torch.Tensor) else type(part).__name__


def _kinds(batch: Any) -> str:
    """Describe the types of a batch's parts."""
    if isinstance(batch, tuple | list):
        return f"{type(batch).__name__} of {', '.join(type(part).__name__ for part in batch)}"
    return type(batch).__name__
