"""Choices are printed with their loss, their range of losses and their number of candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import dpgrain as dg
from dpgrain.words import choice_text


def test_a_choice_shows_only_known_numbers() -> None:
    rows = np.ones(100)
    found = dg.select(
        [0.0, 1.0], lambda guess, x: abs(guess - x), rows, epsilon=1.0, random_state=1
    )
    first, caution, *_ = choice_text.summary(found).splitlines()
    assert first == f"Chosen: {found.value:g} (index {found.index} of 2, from 0)."
    assert caution.endswith(
        "but another candidate may be better. Each record's loss is clipped to [0, 1]."
    )
    assert "mean loss of their records" not in found.explain()
    scored = replace(found, loss=0.25, std_error=0.1)
    shown = choice_text.summary(scored).splitlines()[0]
    assert shown == f"{first} Its mean loss over records: 0.25, standard error 0.1 (noise only)."
    told = " ".join(scored.explain().split())
    assert "mean over records of the mean loss of their records, plus noise" in told
    assert "error of the noise in the loss, for one evaluation" in told
