"""Other methods of clipping have the library's sums, and one command prints the whole table."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from dpgrain.publishing.draws import Normals

for needed in ("torch", "transformers", "peft"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")
language: Any = importlib.import_module("benchmarks.language")
peers: Any = importlib.import_module("benchmarks.language_peers")
BOUND = language.BOUND


def stepped(name: str, setting: Any) -> Any:
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


@pytest.mark.slow
def test_one_command_prints_the_whole_table(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--device", "cpu", "--quick", "--windows", "1", "--networks"]
    language.main([*quick, "--only", "2×4 records of 32, LoRA"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    heads = ["setting", "time", "noise", "goal", "memory", "ms", "MB", "Opacus", "Gram"]
    of_models, of_networks = (
        lines.index(heads),
        lines.index(["network", "block", "ours", "vmap", "noise", "MB", "MB", "ours", "ms"]),
    )
    name, figures = lines[of_models + 1][0], lines[of_models + 1][-6:]
    assert name == "gpt2"
    assert float(figures[2]) == 1.15
    assert all(float(figure) > 0 for figure in figures)
    assert lines[of_networks + 1][:2] == ["cnn", "5"]
    assert all(float(figure) > 0 for figure in lines[of_networks + 1][2:5])


def test_noise_matches_a_published_step(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def noted(self: Normals, *given: Any) -> Any:
        drawn.append(self.sd)
        return tensors(self, *given)

    tensors = Normals.tensors
    monkeypatch.setattr(Normals, "tensors", noted)
    setting = language.Setting("gpt2", 32, 1, 64, 2, 1, 8)
    found = language.timed(setting, "cpu", 2)
    # One publication for each window, and one before.
    assert drawn == [pytest.approx(BOUND, rel=1e-2)] * 3
    assert found["noise"] > 0
