"""Guarantees match their requests, over the product of the options of every public function."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

import pytest
from tests.claims.publishers import NAMES, PROMISES, PUBLISHERS
from tests.effort import Effort
from tests.products import covering
from tests.promises import LEAST_SHARE, Publisher, share_of_asked
from tests.test_docstrings import PUBLIC

import dpgrain as dg
from dpgrain.errors import ParameterError

# Base classes, which fit nothing themselves.
_BASES = {"dpgrain.learn.LinearModel"}
# Rounding of ε between calibration and the event's ε.
_ROUNDING = 1e-9
# An audit tries pairs of options, not triples, because each fit is calibrated separately.
_SLOW = {"estimators"}
# Combinations tried for a value that was rejected with all others.
_TRIES = 300


def _budget() -> Any:
    return dg.budget(epsilon=3.0, delta=1e-5, pure=0.5)


def _wrong(publisher: Publisher, strength: int | None) -> list[str]:
    """Return the combinations with a wrong guarantee, and values rejected in all combinations."""
    wrong = []
    product = publisher.product(PROMISES)
    unseen = {(name, place) for name in publisher.options for place in range(len(product[name]))}
    for asked in _combinations(product, strength, unseen):
        with dg.budget(epsilon=3.0, delta=1e-5, pure=0.5):
            try:
                guarantee = publisher.guarantee(**asked)
            except ParameterError:
                continue
            try:
                common = {name: asked[name] for name in ("unit", "relation", "promise")}
                share = share_of_asked(guarantee, **common)
            except AssertionError as error:
                wrong.append(f"{error}: {asked}")
                continue
        unseen -= {(name, product[name].index(value)) for name, value in asked.items()}
        if not LEAST_SHARE <= share <= 1 + _ROUNDING:
            wrong.append(f"{share:.4f} of what was asked for: {asked}")
    return [*wrong, *(f"always refused: {name}={product[name][place]}" for name, place in unseen)]


def _combinations(
    product: Mapping[str, Sequence[Any]], strength: int | None, unseen: set[tuple[str, int]]
) -> Iterator[dict[str, Any]]:
    """Yield a covering array, then combinations of values that were rejected with all others."""
    yield from covering(product, strength)
    draw = random.Random(0)
    for name, place in sorted(unseen):
        for _ in range(_TRIES):
            if (name, place) not in unseen:
                break
            found = {other: draw.choice(values) for other, values in product.items()}
            yield {**found, name: product[name][place]}


def publishes(value: Any) -> bool:
    """Whether a public class or function publishes; it may take a share instead of ε."""
    if not (inspect.isfunction(value) or is_dataclass(value)):
        return False
    called: tuple[Any, ...] = (value, *filter(None, [getattr(value, "simulate", None)]))
    takes = {name for each in called for name in inspect.signature(each).parameters}
    return {"epsilon", "share"} <= takes


def test_every_publishing_function_is_covered() -> None:
    found = {name for name, value in PUBLIC.items() if publishes(value)}
    assert found - _BASES == NAMES


@pytest.mark.slow(cases=5)
@pytest.mark.parametrize("name", PUBLISHERS)
def test_guarantees_match_their_requests(name: str, effort: Effort) -> None:
    fewer = 2 if effort.strength and name in _SLOW else effort.strength
    assert not _wrong(PUBLISHERS[name], fewer or 4)


def test_a_promise_for_another_relation_is_seen() -> None:
    """A function that ignores the relation and repeats the request is caught."""
    right = PUBLISHERS["dpgrain.count"]

    def forgets(relation: str, **asked: Any) -> Any:
        return right.query(relation="zero_out", **asked)

    assert _wrong(replace(right, query=forgets), 2)


def test_excessive_share_is_detected() -> None:
    right = PUBLISHERS["dpgrain.count"]

    def takes_more(share: float | None = None, **asked: Any) -> Any:
        return right.query(share=None if share is None else min(1.0, 1.05 * share), **asked)

    assert _wrong(replace(right, query=takes_more), 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_wrong_guarantee_size_is_detected(name: str) -> None:
    right = PUBLISHERS["dpgrain.count"]
    for factor in (0.8, 1.01) if name == "epsilon" else (1.01,):

        def other(factor: float = factor, **asked: Any) -> Any:
            if asked.get(name):
                asked[name] *= factor
            return right.query(**asked)

        assert _wrong(replace(right, query=other), 2), factor
