"""Labels of Hugging Face models, and the loss of each record."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.torch import losses
from dpgrain.torch.experts import check_router_loss
from dpgrain.torch.preflight import evaluating
from dpgrain.torch.tracked_outputs import IGNORED_LABEL

# Losses by the suffix of a model's class name.
_CLASS_LOSSES = {
    "ForCausalLM": losses.causal_lm,
    "LMHeadModel": losses.causal_lm,
    "ForMaskedLM": losses.masked_lm,
    "ForTokenClassification": losses.masked_lm,
    "ForConditionalGeneration": losses.seq2seq,
    "ForSequenceClassification": losses.classification,
    "ForImageClassification": losses.classification,
    "ForAudioClassification": losses.classification,
}


def base_model(model: Any) -> Any:
    """Return the model inside adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def class_loss(model: Any) -> losses.Loss | None:
    """Return the loss of each record for a model's class; None if unknown."""
    model = base_model(model)
    if not any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__):
        return None
    name = type(model).__name__
    loss = next((loss for end, loss in _CLASS_LOSSES.items() if name.endswith(end)), None)
    config = getattr(model, "config", None)
    # Image-to-text models have the same suffix, but no separate decoder.
    if loss is losses.seq2seq and not getattr(config, "is_encoder_decoder", True):
        return losses.causal_lm
    return loss


def record_loss(model: Any, stated: Any) -> Any:
    """Return the loss function of records."""
    if callable(stated):
        return stated
    loss = getattr(losses, stated) if stated else class_loss(model)
    if loss is None:
        raise ParameterError(
            f"loss is required in PrivacyArguments for {type(base_model(model)).__name__}, such as "
            "'causal_lm'.",
            name="loss",
        )
    return loss


def split_labels(model: Any, keywords: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Separate the labels from the other inputs of a model; None if there are none.

    Labels remain inputs if no loss is known for the model's class. The number of tokens of a batch
    is never passed on.
    """
    remaining = dict(keywords)
    labels, loss = remaining.get("labels"), class_loss(model)
    if labels is None or loss is None:
        return remaining, None
    check_router_loss(model, remaining)
    del remaining["labels"]
    remaining.pop("num_items_in_batch", None)
    if loss is losses.seq2seq and remaining.get("decoder_input_ids") is None:
        remaining["decoder_input_ids"] = decoder_inputs(model, labels)
    return remaining, labels


def decoder_inputs(model: Any, labels: Any) -> Any:
    """Return the decoder inputs for labels: shifted tokens, (records, tokens)."""
    inside = base_model(model)
    if hasattr(inside, "prepare_decoder_input_ids_from_labels"):
        return inside.prepare_decoder_input_ids_from_labels(labels=labels)
    config = inside.config
    first, padding = config.decoder_start_token_id, config.pad_token_id
    if first is None or padding is None:
        raise ParameterError(
            f"decoder_input_ids is required for {type(inside).__name__}, because its "
            "configuration has no decoder_start_token_id or no pad_token_id.",
            name="decoder_input_ids",
        )
    shifted = labels.roll(1, dims=1)
    shifted[:, 0] = first
    return shifted.masked_fill(shifted == IGNORED_LABEL, padding)


def with_loss(model: Any, outputs: Any, labels: Any) -> Any:
    """Return the outputs of a model with the loss of each record, (records,)."""
    loss = class_loss(model)
    assert loss is not None  # noqa: S101 - labels are taken apart only where there is a loss
    if isinstance(outputs, tuple):
        return (loss(outputs[0], labels), *outputs)
    result = copy.copy(outputs)
    result["loss"] = loss(outputs, labels)
    return result


def losses_on(
    dataset: Any,
    collate: Callable[[Sequence[Any]], Any],
    losses: Callable[[Any], Any],
    rows: int,
    module: Any,
) -> FloatArray:
    """Return the loss of each record in evaluation mode, (records,).

    NaN is treated as the largest loss; unreadable records have no loss.
    """
    result = np.zeros(len(dataset))
    with evaluating(module):
        for first in range(0, len(dataset), rows):
            places = range(first, min(first + rows, len(dataset)))
            batch = collate([dataset[place] for place in places])
            if batch is not None:
                each = losses(batch).detach().double().cpu().numpy()
                result[places.start : places.stop] = np.nan_to_num(each, nan=np.inf, posinf=np.inf)
    return result
