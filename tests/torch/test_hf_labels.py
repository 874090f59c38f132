"""A private model called with labels has the loss of each record, for any contents."""

from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.families import CLASSES, FAMILIES, TOKENS, Family, every, transformers
from tests.torch.library import torch

# isort: split
from dpgrain.torch import hf_labels, losses
from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.torch.recorder import Recorder

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
ROWS = 4
families = every("gpt2", "vit", "t5")


def drawn(family: Family, module: Any) -> tuple[dict[str, Any], Any]:
    """Synthetic records with labels; some ignore tokens."""
    torch.manual_seed(4)
    inputs = family.draw(ROWS)
    if hf_labels.class_loss(module) is losses.classification:
        return inputs, torch.arange(ROWS) % CLASSES
    labels = inputs.pop("decoder_input_ids", inputs.get("input_ids")).clone()
    labels[torch.arange(ROWS), torch.arange(ROWS) % 3 + 1] = -100
    return inputs, labels


@families
@pytest.mark.parametrize("lora", [False, True], ids=["fully", "lora"])
def test_losses_equal_the_models_for_each_single_record(family: Family, lora: bool) -> None:
    module = family.made(lora=lora)
    inputs, labels = drawn(family, module)
    rows = [slice(row, row + 1) for row in range(ROWS)]
    alone = [
        module(**{name: tensor[row] for name, tensor in inputs.items()}, labels=labels[row]).loss
        for row in rows
    ]
    recorder = Recorder(module, (), lambda: BlockLayout((1,) * ROWS))
    outputs = module(**inputs, labels=labels, num_items_in_batch=torch.tensor(3))
    assert outputs.loss.shape == (ROWS,)
    torch.testing.assert_close(
        outputs.loss.detach().as_subclass(torch.Tensor), torch.stack(alone).detach()
    )
    outputs.loss.sum().backward()
    assert recorder.uses
    recorder.remove()
    assert module(**inputs, labels=labels).loss.dim() == 0


def additions(module: Any, inputs: Any, labels: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The contribution of each record, by parameter, and the sum of all, clipped."""
    names, layout = {p: name for name, p in module.named_parameters()}, BlockLayout((1,) * ROWS)
    recorder = Recorder(module, (), lambda: layout)
    module(**inputs, labels=labels).loss.sum().backward()
    uses = recorder.uses
    each = [
        {names[p]: sum(use.block_gradient(row) for use in of) for p, of in uses.items()}
        for row in range(ROWS)
    ]
    sums = {names[p]: part for p, part in clipped_sums(uses, layout, 1e-2).items()}
    recorder.remove()
    return each, sums


@families
@pytest.mark.parametrize("lora", [False, True], ids=["fully", "lora"])
@pytest.mark.parametrize("value", [10**9, -7, float("nan"), float("inf")])
def test_malformed_record_ends_nothing_and_affects_no_other(
    family: Family, lora: bool, value: float
) -> None:
    module = family.made(lora=lora)
    inputs, labels = drawn(family, module)
    odd, odd_labels = ({n: t.clone() for n, t in inputs.items()}, labels.clone())
    for name, tensor in odd.items():
        if tensor.is_floating_point():
            tensor[1] = value
        elif name.endswith("ids") and value == value and abs(value) < float("inf"):
            tensor[1, 0] = int(value)
    if value == int(value) if abs(value) < float("inf") else False:
        odd_labels[1] = int(value)
    before, _ = additions(module, inputs, labels)
    after, sums = additions(module, odd, odd_labels)
    for row in (0, 2, 3):
        for name, part in before[row].items():
            reach = max(float(other.abs().max()) for other in before[row].values())
            assert torch.allclose(part, after[row][name], atol=1e-5 * reach), name
    assert all(bool(part.isfinite().all()) for part in sums.values())


def test_invalid_class_label_adds_nothing() -> None:
    module = FAMILIES["vit"].made()
    inputs, labels = drawn(FAMILIES["vit"], module)
    labels[1] = CLASSES
    each, _ = additions(module, inputs, labels)
    assert all(float(part.abs().max()) == 0 for part in each[1].values())
    assert any(float(part.abs().max()) > 0 for part in each[0].values())


def test_class_without_known_loss_is_rejected_with_a_remedy() -> None:
    made = transformers.BertConfig(
        vocab_size=TOKENS,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
    )
    module = transformers.BertForNextSentencePrediction(made).train()
    recorder = Recorder(module, (), lambda: BlockLayout((1,) * ROWS))
    tokens = torch.ones(ROWS, 3, dtype=torch.long)
    outputs = module(input_ids=tokens, labels=torch.zeros(ROWS, dtype=torch.long))
    with refuses("loss", "classification", "labels"):
        outputs.loss.backward()
    recorder.remove()


def test_custom_module_retains_its_labels_under_any_name() -> None:
    class MineForCausalLM(torch.nn.Module):
        """A module that computes each record's loss itself."""

        def __init__(self) -> None:
            super().__init__()
            self.inside = torch.nn.Linear(2, 3)

        def forward(self, x: Any, labels: Any) -> Any:
            out = self.inside(x)
            return torch.nn.functional.cross_entropy(out, labels, reduction="none")

    module = MineForCausalLM()
    recorder = Recorder(module, (), lambda: BlockLayout((1,) * ROWS))
    each = module(torch.randn(ROWS, 2), labels=torch.tensor([0, 1, 2, 0]))
    assert each.shape == (ROWS,)
    each.sum().backward()
    assert recorder.uses
    recorder.remove()


def test_decoders_without_start_token_are_rejected() -> None:
    module = FAMILIES["whisper"].made()
    labels = torch.tensor([[4, 5, -100]])
    first, padding = module.config.decoder_start_token_id, module.config.pad_token_id
    assert hf_labels.decoder_inputs(module, labels).tolist() == [[first, 4, 5]]
    assert labels.tolist() == [[4, 5, -100]]
    assert hf_labels.decoder_inputs(module, labels.flip(1)).tolist() == [[first, padding, 5]]
    module.config.pad_token_id = None
    with refuses("decoder_input_ids", "WhisperForConditionalGeneration"):
        hf_labels.decoder_inputs(module, labels)


def test_hugging_face_loop_trains_on_the_per_record_loss() -> None:
    module = FAMILIES["gpt2"].made()
    torch.manual_seed(1)
    tokens = torch.randint(3, TOKENS, (12, 5))
    tokens[4] = 10**6
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    engine = PrivacyEngine(random_state=1)
    module, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        dataset=rows,
        n_users=12,
        noise_multiplier=1.0,
        steps=3,
        sampling_rate=1.0,
        max_grad_norm=0.1,
    )
    for batch in loader:
        optimizer.zero_grad()
        module(**batch).loss.backward()
        assert optimizer.step()
    assert all(bool(p.isfinite().all()) for p in module.parameters())
