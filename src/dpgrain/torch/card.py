"""Guarantee of a saved model, in its model card and in a separate file."""

from __future__ import annotations

from pathlib import Path

from dpgrain._files import atomic_write
from dpgrain.publishing.guarantee import Guarantee

#: File with the guarantee, next to a saved model; for :meth:`Guarantee.from_json`.
PROMISE = "guarantee.json"
_CARD = "README.md"
_HEADING = "## Privacy"


def write_promise(folder: Path, guarantee: Guarantee) -> None:
    """Write a guarantee to the model card and to a separate file."""
    folder.mkdir(parents=True, exist_ok=True)
    card = folder / _CARD
    text = card.read_text(encoding="utf-8") if card.exists() else f"# {folder.name}\n"
    text = text.split(f"\n{_HEADING}\n")[0].rstrip()
    told = (
        f"{text}\n\n{_HEADING}\n\n{guarantee}\n\nThe promise is of the whole fine-tuning: it holds for "
        f"this model with all checkpoints of the run. `{PROMISE}` is the same for programs "
        "(`dpgrain.Guarantee.from_json`).\n"
    )
    for file, words in ((card, told), (folder / PROMISE, guarantee.to_json())):
        with atomic_write(file) as part:
            part.write_text(words, encoding="utf-8")
