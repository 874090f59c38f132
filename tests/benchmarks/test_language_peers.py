"""Other libraries' clipping gives the same sums as ours, if they accept the model."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

for needed in ("torch", "transformers", "peft"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")
language: Any = importlib.import_module("benchmarks.language")
peers: Any = importlib.import_module("benchmarks.language_peers")
BOUND = language.BOUND


def stepped(name: str, setting: Any) -> Any:
    """The gradients of a step of another way."""
    model = setting.made()
    inputs, labels = setting.drawn("cpu")
    step = peers.PEERS[name](model, lambda module: setting.losses(module(**inputs), labels), BOUND)
    step()
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", peers.PEERS)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_sums_are_ours(name: str, kind: str) -> None:
    if name == "Opacus":
        pytest.importorskip("opacus")
    setting = language.Setting(kind, 32, 1, 64, 4, 1, 8, lora=True)
    found, model = stepped(name, setting), setting.made()
    step, recorder = language.ours(setting, model, "cpu")
    sums = step()
    recorder.remove()
    off = [found[n] - sums[p] for n, p in model.named_parameters() if n in found and p in sums]
    assert len(off) == len(found)
    assert sum(float(part.square().sum()) for part in off) ** 0.5 < 1e-4 * BOUND


def test_unsupported_model_is_rejected_by_name() -> None:
    with pytest.raises(peers.RefusedError, match="Embedding"):
        stepped("Gram", language.Setting("gpt2", 32, 1, 64, 4, 1, 8))
