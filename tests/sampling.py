"""What ``make test`` runs of each long search, and what it leaves to ``make audit``.

A search is one test of many cases, marked ``@pytest.mark.search``; or it tries many examples that
hypothesis draws; or it has a loop of its own, over what the fixture ``some_of`` gives it, or over a
product of options, of which the fixture ``strength`` says how many meet. What the sample tries is the
same in every run: it follows from the names of the tests alone.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal

import pytest
from hypothesis import is_hypothesis_test, settings

#: The sample of each search, the rest of it, or everything.
Part = Literal["sample", "rest", "all"]
PARTS: tuple[Part, ...] = ("sample", "rest", "all")

# Of examples the sample tries one in this many, and no fewer than are worth a start.
_ONE_IN = 5
_FEWEST_EXAMPLES = 15
_FEWEST_TURNS = 4

# The sample draws the same examples in every run, the audit new ones.
settings.register_profile("sample", derandomize=True, deadline=None)
settings.register_profile("audit", deadline=None)


def load(part: Part) -> None:
    """Tell hypothesis how to draw; before modules of tests are imported."""
    settings.load_profile("sample" if part == "sample" else "audit")


def examples(most: int) -> settings:
    """Hypothesis tries at most this many examples in an audit, and fewer in a sample."""
    if settings.get_current_profile_name() == "sample":
        most = min(most, max(most // _ONE_IN, _FEWEST_EXAMPLES))
    return settings(max_examples=most)


def shortened(name: str, part: Part) -> Callable[[Iterable[Any]], list[Any]]:
    """How a test of this name shortens its loops: it draws some turns, and keeps their order."""
    draw = random.Random(name)

    def some(turns: Iterable[Any]) -> list[Any]:
        every = list(turns)
        few = max(len(every) // _ONE_IN, _FEWEST_TURNS)
        if part != "sample" or len(every) <= few:
            return every
        return [every[i] for i in sorted(draw.sample(range(len(every)), few))]

    return some


def spread(cases: Mapping[str, frozenset[Hashable]], keep: int | None) -> set[str]:
    """Choose cases that show the values of all parameters, as evenly as they can.

    Args:
        cases: The values that each case shows, by the case's name.
        keep: How many to choose; as many as show each value once, if None.
    """
    left = sorted(cases, key=lambda name: hashlib.sha256(name.encode()).digest())
    chosen: set[str] = set()
    shown: set[Hashable] = set()
    while left and (keep is None or len(chosen) < keep):
        best = max(left, key=lambda name: len(cases[name] - shown))
        if not cases[best] - shown:
            # Each value is shown: a second time, if more cases are asked for.
            if keep is None or not shown:
                break
            shown.clear()
            continue
        left.remove(best)
        chosen.add(best)
        shown |= cases[best]
    return chosen


def _values(item: pytest.Function) -> frozenset[Hashable]:
    """The values of a case's parameters; those that are no plain words or numbers by their identity."""
    if not hasattr(item, "callspec"):
        return frozenset({item.nodeid})
    plain = (str, int, float, bool, type(None))
    return frozenset(
        (name, repr(value) if isinstance(value, plain) else id(value))
        for name, value in item.callspec.params.items()
    )


def sampled(items: Sequence[pytest.Item]) -> set[str]:
    """The names of the cases of marked searches that are in the sample."""
    searches, keeps = _searches(items)
    return {name for search, cases in searches.items() for name in spread(cases, keeps[search])}


def beyond(items: Sequence[pytest.Item], sample: set[str], most: int | None) -> set[str]:
    """The names of cases that are more than so many of a search, apart from those in the sample."""
    if most is None:
        return set()
    left_out: set[str] = set()
    for cases in _searches(items)[0].values():
        rest = {name: values for name, values in cases.items() if name not in sample}
        if len(rest) > most:
            left_out |= rest.keys() - spread(rest, most)
    return left_out


def _searches(
    items: Sequence[pytest.Item],
) -> tuple[dict[str, dict[str, frozenset[Hashable]]], dict[str, int | None]]:
    """The cases of each marked search with their values, and how many the sample keeps of it."""
    searches: dict[str, dict[str, frozenset[Hashable]]] = {}
    keeps: dict[str, int | None] = {}
    for item in items:
        mark = item.get_closest_marker("search")
        if mark is not None and isinstance(item, pytest.Function):
            search = item.nodeid.removesuffix(item.name) + item.originalname
            searches.setdefault(search, {})[item.nodeid] = _values(item)
            keeps[search] = mark.kwargs.get("keep")
    return searches, keeps


def belongs(item: pytest.Item, part: Part, sample: set[str]) -> bool:
    """Whether this part runs the test; both run one that tries fewer examples in the sample."""
    in_sample = item.get_closest_marker("search") is None or item.nodeid in sample
    if part == "rest" and in_sample:
        tries_more = is_hypothesis_test(getattr(item, "obj", None))
        return tries_more or not {"some_of", "strength"}.isdisjoint(
            getattr(item, "fixturenames", ())
        )
    return part != "sample" or in_sample
