"""The promise of a saved model stands in its card, once, and beside it."""

from __future__ import annotations

from pathlib import Path

from tests.torch.library import torch

# isort: split
import numpy as np

import dpgrain as dg
from dpgrain.torch.hf_loop import GUARANTEE_FILE, write_guarantee

assert torch


def test_a_card_keeps_its_text_and_has_the_last_promise(tmp_path: Path) -> None:
    one, other = (
        dg.mean_of_users(np.ones((50, 1)), bound=1.0, epsilon=epsilon, delta=1e-6).guarantee
        for epsilon in (1.0, 2.0)
    )
    write_guarantee(tmp_path / "new", one)
    assert (tmp_path / "new" / "README.md").read_text().startswith("# new\n\n## Privacy\n")
    (tmp_path / "README.md").write_text("# A model\n\nOf texts.\n")
    for guarantee in (one, other):
        write_guarantee(tmp_path, guarantee)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("# A model\n\nOf texts.\n\n## Privacy\n")
    assert str(other) in card
    assert str(one) not in card
    assert dg.Guarantee.from_json((tmp_path / GUARANTEE_FILE).read_text()) == other
