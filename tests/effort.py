"""How much each test tries: effort 1 in ``make test``, 3 in ``make nightly``, or everything.

A parametrized test runs the fewest cases that show each value of each parameter ``effort`` times. A
test marked ``slow`` waits for effort 3, unless its mark states a number of cases or a proof or a
mutant names it. Loops, products and random examples shrink in the same way. The cases and the noise
follow from the name of the test, so two runs are equal.
"""

from __future__ import annotations

import hashlib
import os
import random
import tomllib
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from dpgrain.noise import SeededSource, SystemSource

Level: TypeAlias = Literal[1, 3] | None
LEVELS: dict[str, Level] = {"1": 1, "3": 3, "full": None}

# Folder of the mutants, each with the test that kills it.
MUTANTS = Path(__file__).with_name("mutants")

_EXAMPLES: dict[Level, int] = {1: 20, 3: 60, None: 300}
_INPUTS: dict[Level, int] = {1: 250, 3: 10_000, None: 1_000_000}
# Effort 1 runs one iteration of a loop in this many, and at least a few.
_ONE_IN, _FEWEST = 5, 4
# Cases compared when the next one is chosen; comparing all would take quadratic time.
_COMPARED = 64


@dataclass(frozen=True)
class Effort:
    """How much one test tries.

    Args:
        name: the name of the test, which determines what is drawn.
        stated_inputs: the number of malformed inputs, if the command line states it.
    """

    level: Level
    name: str
    stated_inputs: int | None = None

    def some(self, iterations: Iterable[Any]) -> list[Any]:
        """Draw a fifth of the iterations of a loop per unit of effort, in their order."""
        every = list(iterations)
        if self.level is None:
            return every
        count = max(self.level * len(every) // _ONE_IN, _FEWEST)
        drawn = random.Random(self.name).sample(range(len(every)), min(count, len(every)))
        return [every[place] for place in sorted(drawn)]

    def number(self, few: int, many: int) -> int:
        """Return the smaller of two numbers at effort 1."""
        return few if self.level == 1 else many

    @property
    def strength(self) -> int | None:
        """How many options meet in every combination: pairs, triples, or all."""
        return None if self.level is None else max(self.level, 2)

    @property
    def inputs(self) -> int:
        """How many malformed inputs all fuzz tests share."""
        return self.stated_inputs or _INPUTS[self.level]


def load(level: Level) -> None:
    """Set how many random examples hypothesis tries, and whether they are new in each run."""
    settings.register_profile(
        "effort", max_examples=_EXAMPLES[level], derandomize=level is not None, deadline=None
    )
    settings.load_profile("effort")


def cases_of(
    test: str,
    slow: pytest.Mark | None,
    cases: Mapping[str, frozenset[Hashable]],
    level: Level,
    *,
    is_evidence: bool = False,
) -> set[str]:
    """Return the cases of a test that a run tries.

    Args:
        test: the name of the test without a case.
    """
    if level is None:
        return set(cases)
    named = named_by_mutants().get(test, set()) & cases.keys()
    if slow is None or (level > 1 and not slow.kwargs.get("full")):
        return named | spread(cases, level)
    count = max(slow.kwargs.get("cases", 0), int(is_evidence and not named))
    return named | spread(cases, 1, count)


def spread(
    cases: Mapping[str, frozenset[Hashable]], times: int, most: int | None = None
) -> set[str]:
    """Choose the fewest cases that show each value n times, up to a limit."""
    left = sorted(cases, key=lambda name: hashlib.sha256(name.encode()).digest())
    chosen: set[str] = set()
    for _ in range(times):
        shown: set[Hashable] = set()
        every = frozenset().union(*(cases[name] for name in left))
        while left and shown < every and (most is None or len(chosen) < most):
            best = max(left[:_COMPARED], key=lambda name: len(cases[name] - shown))
            left.remove(best)
            if cases[best] - shown:
                chosen.add(best)
                shown |= cases[best]
    return chosen


@cache
def named_by_mutants(folder: Path = MUTANTS) -> dict[str, set[str]]:
    """Return the tests that mutants name in ``seen_by``, each with its listed cases."""
    found: dict[str, set[str]] = {}
    for file in folder.glob("*.toml"):
        for mutant in tomllib.loads(file.read_text(encoding="utf-8"))["mutant"]:
            found.setdefault(test_of(mutant["seen_by"]), set()).add(mutant["seen_by"])
    return found


def test_of(nodeid: str) -> str:
    """Return the name of a test without its case."""
    return nodeid.split("[", 1)[0]


def values_of(parameters: Mapping[str, Any]) -> frozenset[Hashable]:
    """Return the values of a case: plain ones unchanged, others by identity."""
    plain = {str, int, float, bool, type(None)}
    return frozenset(
        (name, type(value), value if type(value) in plain else id(value))
        for name, value in parameters.items()
    )


def same_draws(name: str) -> Callable[[SystemSource, int], NDArray[np.uint64]]:
    """Return draws that follow from the name of a test, for this process only.

    With draws of the operating system, a few of thousands of tests would fail by chance.
    """
    source, process = SeededSource(int(hashlib.sha256(name.encode()).hexdigest(), 16)), os.getpid()
    draw = SystemSource.words

    def words(self: SystemSource, size: int) -> NDArray[np.uint64]:
        return source.words(size) if os.getpid() == process else draw(self, size)

    return words
