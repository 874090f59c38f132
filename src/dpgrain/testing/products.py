"""Covering arrays: a few combinations of options in which all pairs, or triples, of values meet."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

#: Option → the place of its value.
Choice: TypeAlias = dict[str, int]
# Combinations that are drawn for each one that is taken, which is the one with most that is new.
_DRAWS = 12


def covering(options: Mapping[str, Sequence[Any]], strength: int = 2) -> list[dict[str, Any]]:
    """Return combinations of options in which each ``strength`` values meet that can meet.

    Args:
        options: option → its values, at least one.
        strength: how many options are looked at together; 2 for pairs, 3 for triples. With as many as
            there are options the whole product comes out.

    Returns:
        The combinations, option → value; the same ones in every run.

    Raises:
        ValueError: if ``strength`` is below 1, or an option has no value.

    >>> options = {"a": [1, 2, 3], "b": "xy", "c": [True, False], "d": "pq"}
    >>> found = covering(options)
    >>> len(found) < 3 * 2 * 2 * 2, len({(each["a"], each["c"]) for each in found})
    (True, 6)
    """
    if strength < 1 or not all(len(values) for values in options.values()):
        raise ValueError("covering needs a strength of at least 1 and a value for each option.")
    draw = random.Random(repr(sorted(options)))
    left = set(_meetings(options, min(strength, len(options))))
    found: list[Choice] = []
    while left:
        seed = min(left)
        best = max(
            (_around(seed, options, left, draw, strength) for _ in range(_DRAWS)),
            key=lambda choice: len(left & set(_met(choice, strength))),
        )
        left -= set(_met(best, strength))
        found.append(best)
    return [{name: options[name][place] for name, place in each.items()} for each in found]


def _meetings(
    options: Mapping[str, Sequence[Any]], strength: int
) -> Iterator[tuple[tuple[str, int], ...]]:
    for names in itertools.combinations(options, strength):
        for places in itertools.product(*(range(len(options[name])) for name in names)):
            yield tuple(zip(names, places, strict=True))


def _met(choice: Choice, strength: int) -> Iterator[tuple[tuple[str, int], ...]]:
    return itertools.combinations(choice.items(), min(strength, len(choice)))


def _around(
    seed: Sequence[tuple[str, int]],
    options: Mapping[str, Sequence[Any]],
    left: set[tuple[tuple[str, int], ...]],
    draw: random.Random,
    strength: int,
) -> Choice:
    """Return a combination with what the seed fixes, whose other options meet what is left."""
    fixed = dict(seed)
    order = [name for name in options if name not in fixed]
    draw.shuffle(order)
    for name in order:
        places = list(range(len(options[name])))
        draw.shuffle(places)
        fixed[name] = max(
            places, key=lambda place: _gain(fixed, name, place, options, left, strength)
        )
    return {name: fixed[name] for name in options}


def _gain(
    fixed: Choice,
    name: str,
    place: int,
    options: Mapping[str, Sequence[Any]],
    left: set[tuple[tuple[str, int], ...]],
    strength: int,
) -> int:
    """Return how many meetings that are left a value adds to those of the values that are fixed."""
    known = {**fixed, name: place}
    beside = [other for other in options if other in fixed]
    found = 0
    for others in itertools.combinations(beside, min(strength, len(options)) - 1):
        names = {*others, name}
        found += tuple((each, known[each]) for each in options if each in names) in left
    return found
