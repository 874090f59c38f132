"""Random words come from the system, or from a seed that is marked as not private."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.noise import cases
from tests.refusals import refuses

from dpgrain.noise import RandomSource, SeededSource, SystemSource
from dpgrain.noise.distributions import rounded_gaussian
from dpgrain.noise.sources import random_source

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@pytest.fixture
def draws() -> None:
    """Use the operating system's draws in this module."""


def test_seeded_source_is_reproducible_and_marked_as_not_private() -> None:
    one, two = SeededSource(12), SeededSource(12)
    np.testing.assert_array_equal(one.words(5), two.words(5))
    np.testing.assert_array_equal(one.words(5), two.words(5))
    assert not np.array_equal(SeededSource(13).words(5), SeededSource(12).words(5))
    assert one.private is False
    first = rounded_gaussian(1e4, 50, source=SeededSource(12))
    np.testing.assert_array_equal(first, rounded_gaussian(1e4, 50, source=SeededSource(12)))


GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


@pytest.mark.parametrize("kind", GENERATORS)
def test_seeded_source_continues_from_its_state(kind: str) -> None:
    source = SeededSource(np.random.Generator(getattr(np.random, kind)(3)))
    source.words(701)
    again = SeededSource.from_state(source.state())
    np.testing.assert_array_equal(source.words(1000), again.words(1000))


@pytest.mark.parametrize(
    ("kind", "place", "first", "end"), [("MT19937", "pos", 0, 624), ("Philox", "buffer_pos", 0, 4)]
)
def test_state_beyond_the_drawn_words_is_rejected(
    kind: str, place: str, first: int, end: int
) -> None:
    """NumPy accepts it, and reads memory beyond the buffer, or crashes the process."""
    written = SeededSource(np.random.Generator(getattr(np.random, kind)(3))).state()
    for inside in (first, end):
        SeededSource.from_state(re.sub(rf'"{place}": \d+', f'"{place}": {inside}', written)).words(
            3
        )
    for beyond in (first - 1, end + 1, 241_459_437, -(2**31)):
        with refuses("state"):
            SeededSource.from_state(re.sub(rf'"{place}": \d+', f'"{place}": {beyond}', written))


STATE = '{"bit_generator": "MT19937", "state": {"key": %s, "pos": %s}}'


@pytest.mark.parametrize(
    "state",
    [
        *("", "[]", "{}", '{"bit_generator": "os"}', STATE % ("[1]", 10**30), "[" * 100_000),
        *(STATE % ([2**40] * 624, 3), STATE % ("[1e999]", 1)),
    ],
    ids=lambda state: state[:60],
)
def test_foreign_state_is_rejected(state: str) -> None:
    with refuses("state"):
        SeededSource.from_state(state)


def test_the_systems_source_is_private_and_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SystemSource()
    assert source.private is True
    words = source.words(1000)
    assert words.dtype == np.uint64
    assert np.unique(words).size == 1000
    share = float(np.unpackbits(source.words(50_000).view(np.uint8)).mean())
    assert share == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(64 * 50_000))
    asked: list[int] = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes(range(1, size + 1))

    monkeypatch.setattr("os.urandom", urandom)
    for kind in cases.KINDS:
        kind.draw(1e4, 3)
        assert inspect.signature(kind.draw).parameters["source"].default is None
    assert asked == [24, 24]


def test_both_sources_give_all_64_bits() -> None:
    sources: list[RandomSource] = [SystemSource(), SeededSource(14)]
    for source in sources:
        words = source.words(4000)
        seen = [((words >> np.uint64(i)) & np.uint64(1)).mean() for i in range(64)]
        assert min(seen) > 0.45
        assert max(seen) < 0.55


def test_source_of() -> None:
    assert isinstance(random_source(None), SystemSource)
    np.testing.assert_array_equal(random_source(15).words(3), SeededSource(15).words(3))
    seed: Any = np.int64(15)
    np.testing.assert_array_equal(random_source(seed).words(3), SeededSource(15).words(3))
    generator = np.random.default_rng(15)
    source = random_source(generator)
    assert source.private is False
    np.testing.assert_array_equal(source.words(3), SeededSource(15).words(3))
    assert not np.array_equal(source.words(3), SeededSource(15).words(3))


@pytest.mark.parametrize("bad", [True, 1.5, "7", -1, np.random.RandomState(0)])
def test_source_of_rejects_invalid_seeds(bad: Any) -> None:
    with refuses("random_state"):
        random_source(bad)
