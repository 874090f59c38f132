"""The two operations on long sequences behind the accountant, against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.signal import lfilter

from dpgrain._types import FloatArray
from dpgrain.accounting.losses import sequences
from dpgrain.accounting.losses.composition import _RELATIVE_ROUNDING
from dpgrain.accounting.losses.sequences import discounted_sums, isotonic_fit
from dpgrain.noise.precision import arithmetic

exact = arithmetic(200)


def exactly_discounted(terms: FloatArray, rate: float) -> list[Any]:
    factor, later, sums = exact.exp(-exact.mpf(rate)), exact.mpf(0), []
    for term in terms[::-1]:
        sums.append(later)
        later = factor * (later + exact.mpf(float(term)))
    return sums[::-1]


@given(
    st.integers(1, 300),
    st.integers(0, 2**32 - 1),
    st.floats(1e-18, 100.0),
    st.floats(0.0, 600.0),
    st.integers(0, 8),
)
@example(1, 0, 1.0, 0.0, 0)
@example(256, 0, 1e-3, 0.0, 4)
@example(257, 0, 1e-3, 600.0, 4)
def test_discounted_sums_have_the_stated_error(
    size: int, seed: int, rate: float, depth: float, chunk: int
) -> None:
    random = np.random.default_rng(seed)
    terms = random.random(size) * np.exp(-depth * random.random(size))
    before = terms.copy()
    with pytest.MonkeyPatch.context() as patch:
        # Short chunks, so that several chunks, and chunks of chunks, occur.
        patch.setattr(sequences, "_CHUNK_TERMS", 1 << max(chunk, 1))
        found = discounted_sums(terms, rate)
    assert (terms == before).all()
    for one, truth in zip(found, exactly_discounted(terms, rate), strict=True):
        # Below the smallest normal number, values do not affect any δ.
        assert abs(exact.mpf(float(one)) - truth) <= _RELATIVE_ROUNDING * truth + exact.mpf(1e-305)


@pytest.mark.parametrize("size", [1 << 14, (1 << 14) + 1, 100_000])
@pytest.mark.parametrize("rate", [1e-9, 1e-3, 0.7])
def test_discounted_sums_of_many_terms(size: int, rate: float) -> None:
    terms = np.random.default_rng(size).random(size)
    found, places = discounted_sums(terms, rate), [0, 1, size // 3, size - 2, size - 1]
    for j in places:
        weights = [math.exp(-rate * (i - j)) for i in range(j + 1, size)]
        truth = math.fsum(w * x for w, x in zip(weights, terms[j + 1 :].tolist(), strict=True))
        assert found[j] == pytest.approx(truth, rel=1e-13)
    filtered = lfilter([1.0], [1.0, -math.exp(-rate)], terms[::-1])[::-1]
    np.testing.assert_allclose(found[:-1], math.exp(-rate) * filtered[1:], rtol=1e-10)


numbers = st.one_of(st.integers(-3, 3).map(float), st.floats(-10, 10))


@given(st.lists(st.tuples(numbers, st.floats(1e-3, 1e3)), min_size=1, max_size=30))
def test_pooling_gives_the_nearest_increasing_sequence(pairs: list[tuple[float, float]]) -> None:
    values, weights = (np.array(column) for column in zip(*pairs, strict=True))
    found = isotonic_fit(values, weights)
    assert (np.diff(found) >= -1e-12).all()
    np.testing.assert_allclose(
        found, isotonic_regression(values, weights=weights).x, rtol=1e-11, atol=1e-11
    )
    # Values outside pools are unchanged to the bit, and a pool has the mean of its members.
    for level in set(found.tolist()):
        members = np.flatnonzero(found == level)
        if members.size > 1:
            total = sum(Fraction(float(values[i])) * Fraction(float(weights[i])) for i in members)
            mean = total / sum(Fraction(float(weights[i])) for i in members)
            assert level == pytest.approx(float(mean), abs=1e-11)
        else:
            assert level == values[members[0]]


def test_pools_meet_on_both_sides() -> None:
    values = np.array([5.0, 4.0, 6.0, 7.0, 0.0, 9.0, 8.0, -100.0, 1e9])
    np.testing.assert_allclose(isotonic_fit(values, np.ones(9))[:8], -61 / 8)
    assert isotonic_fit(values, np.ones(9))[8] == 1e9


def test_dominating_weight_preserves_its_value() -> None:
    # An enormous weight fixes the flat end of a curve.
    found = isotonic_fit(np.array([0.1, 0.2, 0.0]), np.array([1.0, 1.0, 1e300]))
    assert found.tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-290)
