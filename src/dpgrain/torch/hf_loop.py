"""Adapters of a private run to Hugging Face's loop: steps, optimizer, files and model card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpgrain._files import atomic_write
from dpgrain.errors import DataError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.torch.optimizer import PrivateOptimizer

# Folder of the run's own files, which stay with the data; uploads exclude such names.
RUN_FOLDER = "_run"


#: File with the guarantee, next to a saved model; for :meth:`Guarantee.from_json`.
GUARANTEE_FILE = "guarantee.json"
_CARD = "README.md"
_HEADING = "## Privacy"


def write_guarantee(folder: Path, guarantee: Guarantee) -> None:
    """Write a guarantee to the model card and to a separate file."""
    folder.mkdir(parents=True, exist_ok=True)
    card = folder / _CARD
    text = card.read_text(encoding="utf-8") if card.exists() else f"# {folder.name}\n"
    text = text.split(f"\n{_HEADING}\n")[0].rstrip()
    text = (
        f"{text}\n\n{_HEADING}\n\n{guarantee}\n\nThe guarantee covers the whole fine-tuning: this "
        f"model together with all checkpoints of the run. `{GUARANTEE_FILE}` contains it in "
        "machine-readable form (`dpgrain.Guarantee.from_json`).\n"
    )
    for file, content in ((card, text), (folder / GUARANTEE_FILE, guarantee.to_json())):
        with atomic_write(file) as part:
            part.write_text(content, encoding="utf-8")


def run_file(checkpoint: Path) -> Path:
    """Return the run's file for a Hugging Face checkpoint folder."""
    step = checkpoint.name.removeprefix("checkpoint-")
    file = checkpoint.parent / RUN_FOLDER / f"run-{step}.pt"
    if not file.exists():
        raise DataError(
            f"{str(file)!r} is missing, and the run of {str(checkpoint)!r} cannot be resumed "
            "without it; put it and its journal next to the folder of the checkpoint."
        )
    return file


class PrivateStep:
    """Step of the loop that reads its batches lazily."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.batches = batches

    def __contains__(self, name: object) -> bool:
        """Return False, so that the loop counts no labels."""
        return False


class StepLoader:
    """Loader of the remaining steps for Hugging Face's loop."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.dataset, self.batch_size = trainer.train_dataset, 1

    def __len__(self) -> int:
        return int(self._trainer.args.max_steps)

    def __iter__(self) -> Iterator[Any]:
        steps: Iterator[Any] = self._trainer.remaining_steps()
        return steps


class SteppedOptimizer(PrivateOptimizer):
    """Optimizer for a loop that makes its steps while it reads batches."""

    def __init__(self, own: PrivateOptimizer) -> None:
        super().__init__(own._run)

    def step(self, closure: Any = None) -> bool:  # type: ignore[override, unused-ignore]  # noqa: ARG002
        """Do nothing, because the step has already been made."""
        return True
