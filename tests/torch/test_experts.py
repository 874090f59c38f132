"""Mixtures of experts: which of them train, and why others do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.families import TOKENS, transformers
from tests.torch.library import torch
from tests.torch.trainers import trainer

# isort: split
import dpgrain as dg
from dpgrain.torch.privacy_engine import PrivacyEngine

# Before version 5 of transformers each expert is a separate module.
needs_implementations = pytest.mark.skipif(
    not hasattr(transformers.PreTrainedModel, "set_experts_implementation"),
    reason="this version of transformers has no implementations of experts",
)
SIZES = {
    "vocab_size": TOKENS,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_local_experts": 3,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def mixtral(**options: Any) -> Any:
    torch.manual_seed(3)
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**SIZES, **options))
    model.config.use_cache = False
    return model.train()


def begun(model: Any) -> Any:
    tokens = torch.randint(3, TOKENS, (12, 5))
    return PrivacyEngine(random_state=1).make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=torch.utils.data.TensorDataset(tokens),
        n_users=12,
        steps=1,
        sampling_rate=1.0,
        target_epsilon=1.0,
        max_grad_norm=1.0,
    )


@needs_implementations
@pytest.mark.parametrize("implementation", ["batched_mm", "grouped_mm"])
def test_experts_train(implementation: str) -> None:
    model = mixtral(experts_implementation=implementation)
    before = model.model.layers[0].mlp.experts.down_proj.detach().clone()
    module, optimizer, loader = begun(model)
    for (tokens,) in loader:
        module(input_ids=tokens, labels=tokens).loss.mean().backward()
        optimizer.step()
    assert not torch.equal(model.model.layers[0].mlp.experts.down_proj, before)


def test_a_router_loss_is_rejected_before_the_charge(tmp_path: Path) -> None:
    with dg.budget(2.0, 1e-5) as whole:
        with refuses("module", "router loss", "router_aux_loss_coef=0"):
            begun(mixtral(output_router_logits=True))
        with refuses("module", "router loss"):
            trainer(tmp_path, model=mixtral(output_router_logits=True)).train()
    assert whole.left == 1.0
    begun(mixtral(output_router_logits=True, router_aux_loss_coef=0.0))


def test_a_router_loss_of_one_call_is_rejected() -> None:
    module, _, loader = begun(mixtral())
    (tokens,) = next(iter(loader))
    with refuses("module", "router loss"):
        module(input_ids=tokens, labels=tokens, output_router_logits=True)


@needs_implementations
def test_a_loop_over_experts_is_rejected_with_its_reason() -> None:
    model = mixtral(experts_implementation="eager")
    with dg.budget(2.0, 1e-5) as whole, refuses("module", "MixtralExperts", "batched_mm"):
        begun(model)
    assert whole.left == 1.0
    model.set_experts_implementation("batched_mm")
    begun(model)
