"""For any arguments the network package returns or raises a clear error, and quotes no row.

``make test-torch`` runs this file: it needs PyTorch and Hugging Face's libraries.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.effort import Effort
from tests.fuzz import calls, networks

PUBLIC = calls.public(calls.NETWORKS)
# A public name of the network package gets one in this many of all malformed inputs.
_ONE_IN = 50


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_networks_return_or_raise_clearly(
    name: str, effort: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls.answers_or_refuses(name, max(effort.inputs // _ONE_IN, 1), tmp_path, monkeypatch)


def test_shown_names_are_public() -> None:
    assert networks.SHOWN.keys() <= PUBLIC.keys()


# Calls that ended in other errors, took a wrong value for a right one, or quoted what they were given.
FOUND: tuple[tuple[str, str, str, str], ...] = (
    ("AdaptiveNorm", "counts", "lengths", "None"),
    ("AdaptiveNorm", "counts", "lengths", "a complex tensor"),
    ("AdaptiveNorm", "next", "bound", "None"),
    ("AdaptiveNorm", "next", "bound", "a tensor of places"),
    ("AdaptiveNorm", "next", "share", "np.array([])"),
    ("PrivacyArguments", "", "pad_to_max_length", "a series"),
    ("PrivacyArguments", "", "eval_is_public", "'a'"),
    ("PrivacyArguments", "", "users_column", "(1, 0)"),
    ("PrivacyArguments", "rate", "blocks", "None"),
    ("PrivacyEngine", "make_private", "collate_fn", "a matrix"),
    ("PrivacyEngine", "make_private", "dataset", "np.array(0.5)"),
    ("PrivacyEngine", "make_private", "example", "np.array(0.5)"),
    ("PrivacyEngine", "make_private", "records_apart", "types"),
    ("PrivacyEngine", "resume", "path", "'\\ud800'"),
    ("PrivacyEngine", "resume", "path", "3.7"),
    ("PrivacyEngine", "resume", "records_apart", "0.5"),
    ("PrivacyEngine", "resume", "records_apart", "{'a': 1}"),
    ("PrivacyEngine", "save", "extra", "a sampler"),
    ("PrivacyEngine", "save", "path", "3.7"),
    ("PrivateLoader", "", "run", "None"),
    ("PrivateOptimizer", "", "run", "None"),
    ("PrivateOptimizer", "load_state_dict", "state_dict", "None"),
    ("PrivateOptimizer", "load_state_dict", "state_dict", "many names"),
    ("Trainer", "", "args", "b'x'"),
    ("Trainer", "", "eval_dataset", "np.array(0.5)"),
    ("Trainer", "", "model", "None"),
    ("Trainer", "", "train_dataset", "a table"),
    ("Trainer", "release_loss", "dataset", "a table"),
    ("Trainer", "evaluate", "eval_dataset", "a frame"),
    ("Trainer", "predict", "test_dataset", "an average"),
    ("Trainer", "save_model", "output_dir", "an average"),
    ("Trainer", "train", "resume_from_checkpoint", "a matrix"),
    ("Trainer", "train", "resume_from_checkpoint", "an odd object"),
    ("Training", "", "history", "a network that mixes"),
    ("Training", "", "mean", "'a'"),
    ("Training", "", "module", "None"),
    ("Training", "", "settings", "texts"),
    ("TrainingHistory", "", "evaluated", "text as objects"),
    ("TrainingHistory", "", "measures", "[[]]"),
    ("losses.causal_lm", "", "outputs", "{}"),
    ("losses.causal_lm", "", "labels", "a complex tensor"),
    ("losses.classification", "", "labels", "half a tensor"),
    ("losses.classification", "", "outputs", "a sparse tensor"),
    ("losses.classification", "", "outputs", "{1: [2]}"),
    ("record_losses", "", "loss", "1000000000000000000000000000000"),
    ("record_losses", "", "outputs", "None"),
    ("record_losses", "", "outputs", "a sparse tensor"),
    ("record_losses", "", "target", "a list in itself"),
    ("through_linear_maps", "", "module", "False"),
    ("through_linear_maps", "", "module", "texts"),
    ("train", "", "average", "an optimizer"),
    ("train", "", "checkpoint", "3.7"),
    ("train", "", "collate_fn", "a matrix"),
    ("train", "", "example", "np.float32(0.5)"),
    ("train", "", "progress", "ones"),
)


@pytest.mark.parametrize(("name", "method", "parameter", "odd"), FOUND)
def test_past_findings_raise_clear_errors(name: str, method: str, parameter: str, odd: str) -> None:
    assert calls.found(f"dpgrain.torch.{name}", method, parameter, odd) is None
