"""Fixed random words, and the goodness of fit of counts of draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats


def p_value(seen: Counter[int], law: dict[int, float], draws: int) -> float:
    """A chi-square test of counts against a distribution; rare outcomes are merged."""
    often = [k for k, chance in law.items() if chance * draws >= 8]
    rest = 1 - sum(law[k] for k in often)
    counts, expected = [seen[k] for k in often], [law[k] * draws for k in often]
    if rest * draws >= 1:
        counts, expected = [*counts, draws - sum(counts)], [*expected, rest * draws]
    statistic = sum((a - b) ** 2 / b for a, b in zip(counts, expected, strict=True))
    return float(stats.chi2.sf(statistic, len(expected) - 1))


class Scripted:
    private = False

    def __init__(self, words: Sequence[int]) -> None:
        self._words = list(words)

    def words(self, size: int) -> NDArray[np.uint64]:
        taken, self._words = self._words[:size], self._words[size:]
        return np.array(taken, dtype=np.uint64)
