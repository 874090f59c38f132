"""Cases of a product of options: all pairs of them, all triples, or the whole product."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpgrain.errors import ParameterError

# Cases that are compared before one is taken.
_LOOKED_AT = 24


def covering(
    options: Mapping[str, Sequence[Any]],
    strength: int | None = 2,
    *,
    allowed: Callable[..., bool] = lambda **_: True,
) -> list[dict[str, Any]]:
    """Return cases that hold every combination of the values of so many options.

    Args:
        options: option → its values.
        strength: 2 for all pairs of values of two options, 3 for all triples, and so on; None for the
            whole product.
        allowed: a function of a case, by keywords, that is False where there is no such case.

    Returns:
        Cases, each with a value of every option; the same ones at every call. A combination that no
        allowed case holds is left out.

    Raises:
        ParameterError: if the strength is less than 1.

    >>> cases = covering({"engine": ["a", "b"], "type": [1, 2], "unit": ["u", "v"]})
    >>> len(cases), len(covering({"engine": ["a", "b"], "type": [1, 2], "unit": ["u", "v"]}, None))
    (4, 8)
    >>> {(case["type"], case["unit"]) for case in cases} == {(1, "u"), (1, "v"), (2, "u"), (2, "v")}
    True
    """
    if strength is not None and strength < 1:
        raise ParameterError(f"strength must be at least 1, not {strength}.", name="strength")
    names = list(options)
    every = [
        places
        for places in itertools.product(*(range(len(values)) for values in options.values()))
        if allowed(**_case(options, places))
    ]
    if strength is None or strength >= len(names):
        return [_case(options, places) for places in every]
    random.Random(0).shuffle(every)
    chosen = _chosen(every, list(itertools.combinations(range(len(names)), strength)))
    return [_case(options, every[place]) for place in chosen]


def _case(options: Mapping[str, Sequence[Any]], places: Sequence[int]) -> dict[str, Any]:
    return {name: values[at] for (name, values), at in zip(options.items(), places, strict=True)}


def _chosen(every: Sequence[tuple[int, ...]], sets: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the places of cases that hold every combination, each of them one that holds many new."""

    def held(case: tuple[int, ...]) -> set[tuple[int, ...]]:
        return {(place, *(case[at] for at in chosen)) for place, chosen in enumerate(sets)}

    holders: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, case in enumerate(every):
        for combination in held(case):
            if len(holders[combination]) < _LOOKED_AT:
                holders[combination].append(place)
    left, taken = dict.fromkeys(holders), []
    while left:
        wanted = next(iter(left))
        best = max(holders[wanted], key=lambda place: len(held(every[place]) & left.keys()))
        taken.append(best)
        for combination in held(every[best]):
            left.pop(combination, None)
    return taken
