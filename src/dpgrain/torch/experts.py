"""Hugging Face mixtures of experts that cannot be trained record by record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.torch.layers import own_parameters

# Weights of router losses, by their names in configurations.
_WEIGHTS = ("router_aux_loss_coef", "aux_loss_coef", "router_z_loss_coef")
_NONE: Mapping[str, Any] = MappingProxyType({})


def check_router_loss(model: Any, keywords: Mapping[str, Any] = _NONE) -> None:
    """Reject a model with a router loss, which the losses of records do not include."""
    for config in _configurations(model):
        requested = keywords.get("output_router_logits")
        requested = (
            getattr(config, "output_router_logits", False) if requested is None else requested
        )
        weights = {name: getattr(config, name) for name in _WEIGHTS if hasattr(config, name)}
        if requested and any(weights.values()):
            name = next(name for name, weight in weights.items() if weight)
            raise ParameterError(
                f"module must be a model without a router loss, not {type(model).__name__} with "
                "output_router_logits=True, because that loss compares how all records of a "
                f"batch use the experts; set output_router_logits=False or {name}=0 in its config.",
                name="module",
            )


def check_loop_over_experts(model: Any) -> None:
    """Reject trained experts that run in a loop over the chosen experts."""
    for name, part in model.named_modules():
        config = getattr(part, "config", None)
        is_loop = getattr(config, "_experts_implementation", None) == "eager"
        if is_loop and hasattr(part, "has_gate") and own_parameters(part):
            raise ParameterError(
                f"module must not have experts {type(part).__name__} ({name!r}) with "
                "experts_implementation='eager', which run in a loop of a length that depends on "
                "the records; call set_experts_implementation('batched_mm') of the model.",
                name="module",
            )


def _configurations(model: Any) -> Iterator[Any]:
    """Yield the configuration of a model and, if it exists, of its text model."""
    # Adapters forward the attribute of the inner model.
    config = getattr(model, "config", None)
    if config is not None:
        yield config
    text = getattr(config, "text_config", None)
    if text is not None:
        yield text
