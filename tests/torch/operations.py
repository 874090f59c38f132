"""Operations of a training step, counted by a dispatch mode, on the code path of a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.torch.families import peft, transformers
from tests.torch.library import torch
from torch.utils._python_dispatch import TorchDispatchMode

# isort: split
from dpgrain.torch import devices
from dpgrain.torch.clipping import FloatSum
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.recorder import Recorder

# Operations that start no kernel.
_FREE = frozenset(
    (
        *("detach", "alias", "lift", "promote_types", "_unsafe_view"),
        *("empty", "empty_like", "empty_strided", "new_empty"),
    )
)
# Operations that read a number of the device, have a shape that depends on values, or copy numbers
# of Python to the device: each waits for all earlier work on it.
_WAITS = frozenset(
    (
        *("nonzero", "_local_scalar_dense", "equal", "is_nonzero", "masked_select", "lift_fresh"),
        *("_unique2", "unique_dim", "unique_consecutive"),
    )
)
TOKENS, LENGTH, BOUND = 97, 24, 1.0


class Operations(TorchDispatchMode):
    """Operations without views, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name in _WAITS or (name in ("index", "index_put_") and _has_mask(args[1])):
            self.waits[name] += 1
        if not func.is_view and name not in _FREE:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def _has_mask(indices: Any) -> bool:
    return any(index is not None and index.dtype == torch.bool for index in indices)


@dataclass
class Counted:
    """Operations of the parts of a step."""

    forward: Counter[str] = field(default_factory=Counter)
    backward: Counter[str] = field(default_factory=Counter)
    clip: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)

    def minus(self, other: Counted) -> Counted:
        """What one step has more than another."""
        result = Counted()
        for part in ("forward", "backward", "clip", "waits"):
            more = Counter(getattr(self, part))
            more.subtract(getattr(other, part))
            setattr(result, part, Counter({name: n for name, n in more.items() if n}))
        return result

    @property
    def total(self) -> int:
        return self.forward.total() + self.backward.total() + self.clip.total()


def _counted(counted: Counted, part: str, call: Callable[[], Any]) -> Any:
    with Operations() as operations:
        result = call()
    getattr(counted, part).update(operations.counts)
    counted.waits.update(operations.waits)
    return result


def gpt2(layers: int) -> Any:
    config = transformers.GPT2Config(
        n_embd=32, n_layer=layers, n_head=2, vocab_size=TOKENS, n_positions=LENGTH
    )
    return transformers.GPT2LMHeadModel(config)


def gpt2_lora(layers: int) -> Any:
    adapter = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    return peft.get_peft_model(gpt2(layers), adapter)


def bert(layers: int) -> Any:
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=TOKENS,
        max_position_embeddings=LENGTH,
        num_labels=3,
    )
    return transformers.BertForSequenceClassification(config)


MODELS: dict[str, Callable[[int], Any]] = {"gpt2": gpt2, "gpt2-lora": gpt2_lora, "bert": bert}


def batch(layout: BlockLayout) -> dict[str, Any]:
    tokens = torch.randint(1, TOKENS, (layout.rows, LENGTH))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def losses(out: Any) -> Any:
    return out.logits.float().square().flatten(1).mean(1).sum()


def _called(module: Any, inputs: dict[str, Any], autocast: bool) -> Any:
    # Casts of weights are cached until autocast ends.
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        return module(**inputs)


def plain_step(module: Any, inputs: dict[str, Any], autocast: bool) -> Counted:
    counted = Counted()
    losses(_called(module, inputs, autocast)).backward()
    module.zero_grad()
    out = _counted(counted, "forward", lambda: _called(module, inputs, autocast))
    loss = losses(out)
    _counted(counted, "backward", loss.backward)
    return counted


def private_step(
    module: Any, inputs: dict[str, Any], autocast: bool, layout: BlockLayout
) -> Counted:
    """Count a step with sums of clipped blocks, up to the noise."""
    counted = Counted()
    recorder = Recorder(module, (), lambda: layout)
    trained = [p for p in module.parameters() if p.requires_grad]
    try:
        # The network is tested in its first step, and its contents are compared.
        for _ in range(2):
            losses(_called(module, inputs, autocast)).backward()
            recorder.clear()
        out = _counted(counted, "forward", lambda: _called(module, inputs, autocast))
        loss = losses(out)
        _counted(counted, "backward", loss.backward)

        def add() -> None:
            FloatSum(trained, BOUND).add_blocks(recorder.uses, layout)

        _counted(counted, "clip", add)
    finally:
        recorder.remove()
    return counted


def per_layer(name: str, sizes: tuple[int, ...], *, autocast: bool = False) -> tuple[Counted, ...]:
    layout, results = BlockLayout(sizes), []
    for count in (
        plain_step,
        lambda module, inputs, autocast: private_step(module, inputs, autocast, layout),
    ):
        steps = []
        for layers in (1, 2):
            torch.manual_seed(1)
            module = MODELS[name](layers)
            steps.append(count(module, batch(layout), autocast))
        results.append(steps[1].minus(steps[0]))
    return tuple(results)


def as_on_gpu(monkeypatch: pytest.MonkeyPatch, *, buffer: int = 1 << 33) -> None:
    """Choose the code path of a GPU for tensors on a CPU; ``buffer`` is a number of bytes."""
    monkeypatch.setattr(devices, "is_gpu", lambda _tensor: True)
    monkeypatch.setattr(devices, "buffer_bytes", lambda _tensor: buffer)
