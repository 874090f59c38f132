"""Covering arrays: a few cases of a product of options, with all pairs or triples of values."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from dpgrain.errors import ParameterError

_Case: TypeAlias = dict[str, int]
# Values of some options that are to meet: (option, place of its value), in the order of the options.
_Meeting: TypeAlias = tuple[tuple[str, int], ...]
_DRAWS = 12
# Cases drawn for a combination before it counts as impossible.
_DRAWS_OF_ALLOWED = 200


def covering(
    options: Mapping[str, Sequence[Any]],
    strength: int | None = 2,
    *,
    allowed: Callable[..., bool] | None = None,
) -> list[dict[str, Any]]:
    """Return cases with every combination of the values of each ``strength`` options.

    Args:
        strength: how many options are looked at together: 2 for pairs, 3 for triples; None for the
            whole product.
        allowed: a function of a case, by keywords, that is False for a forbidden case. A
            combination is dropped if no allowed case contains it.

    Returns:
        Cases, option → value; the same ones in every run.

    Raises:
        ParameterError: if ``strength`` is below 1, or an option has no value.

    >>> options = {"engine": "ab", "type": [1, 2, 3], "unit": "uv", "law": "xy"}
    >>> found = covering(options)
    >>> len(found), len({(each["type"], each["unit"]) for each in found})
    (6, 6)
    >>> len(covering(options, None)), len(covering(options, allowed=lambda engine, **_: engine == "a"))
    (24, 6)
    """
    if strength is not None and strength < 1:
        raise ParameterError(f"strength must be at least 1, not {strength}.", name="strength")
    empty = next((name for name, values in options.items() if not len(values)), None)
    if empty is not None:
        raise ParameterError(f"options must have values; {empty!r} has none.", name="options")

    def there_is(case: _Case) -> bool:
        return allowed is None or allowed(**_valued(case, options))

    if strength is None or strength >= len(options):
        places = itertools.product(*(range(len(values)) for values in options.values()))
        every = (dict(zip(options, each, strict=True)) for each in places)
        return [_valued(case, options) for case in every if there_is(case)]
    draw = random.Random(0)
    left = set(_meetings(options, strength))
    result: list[_Case] = []
    for seed in sorted(left):
        while seed in left:
            drawn = (_around(seed, options, left, draw, strength) for _ in range(_DRAWS))
            cases = [case for case in drawn if there_is(case)] or _any(
                seed, options, draw, there_is
            )
            if not cases:
                left.discard(seed)
                break
            best = max(cases, key=lambda case: len(left.intersection(_met(case, strength))))
            left.difference_update(_met(best, strength))
            result.append(best)
    return [_valued(case, options) for case in result]


def _valued(case: _Case, options: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {name: options[name][place] for name, place in case.items()}


def _meetings(options: Mapping[str, Sequence[Any]], strength: int) -> Iterator[_Meeting]:
    for names in itertools.combinations(options, strength):
        for places in itertools.product(*(range(len(options[name])) for name in names)):
            yield tuple(zip(names, places, strict=True))


def _met(case: _Case, strength: int) -> Iterator[_Meeting]:
    return itertools.combinations(case.items(), strength)


def _any(
    seed: _Meeting,
    options: Mapping[str, Sequence[Any]],
    draw: random.Random,
    there_is: Callable[[_Case], bool],
) -> list[_Case]:
    """Return an allowed case with the seed's values, if one is drawn."""
    for _ in range(_DRAWS_OF_ALLOWED):
        case = {name: draw.randrange(len(values)) for name, values in options.items()} | dict(seed)
        if there_is(case):
            return [case]
    return []


def _around(
    seed: _Meeting,
    options: Mapping[str, Sequence[Any]],
    left: set[_Meeting],
    draw: random.Random,
    strength: int,
) -> _Case:
    """Return a case with the seed's values; its other options cover remaining combinations."""
    case = dict(seed)
    order = [name for name in options if name not in case]
    draw.shuffle(order)
    for name in order:
        places = list(range(len(options[name])))
        draw.shuffle(places)
        known = [other for other in options if other in case]
        beside = list(itertools.combinations(known, strength - 1))
        case[name] = max(
            places, key=lambda place: _gain({**case, name: place}, name, beside, options, left)
        )
    return {name: case[name] for name in options}


def _gain(
    case: _Case,
    name: str,
    beside: Sequence[tuple[str, ...]],
    options: Mapping[str, Sequence[Any]],
    left: set[_Meeting],
) -> int:
    """Return the number of remaining combinations of one value with other options."""
    return sum(
        tuple((each, case[each]) for each in options if each == name or each in others) in left
        for others in beside
    )
