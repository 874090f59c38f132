"""Codes change by at most the charge, are unbiased, and small reports are read or rejected."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.shuffle import cases

from dpgrain.accounting import Binomial
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.shuffle.encoding import Packing, VectorEncoding


@pytest.mark.slow
@pytest.mark.proof("search", "Binomial", "Poisson")
@pytest.mark.parametrize("centred", [True, False], ids=["vectors", "numbers"])
def test_no_neighbour_moves_the_codes_farther(centred: bool) -> None:
    rng, largest, farthest = np.random.default_rng(0), 0.0, 0.0
    d = 4 if centred else 1
    code = VectorEncoding(3.0, 20, d, centred)
    for _ in range(4000):
        direction = rng.normal(size=d)
        one = direction * 10.0 ** rng.integers(-2, 9)
        other = rng.choice([-1.0, 0.0, 1e-9, 5.0]) * one + 1e-7 * rng.normal(size=d)
        if rng.random() < 0.3:
            other = np.full(d, np.nan)
        seed = int(rng.integers(10**6))
        a, b = (code.codes(v[None, :], SeededSource(seed))[0].astype(int) for v in (one, other))
        null = np.full(d, code.null)
        assert a.min() >= 0
        assert a.max() <= 20
        largest = max(largest, float(np.linalg.norm(a - b)))
        farthest = max(farthest, float(np.linalg.norm(a - null)))
        assert np.abs(a - b).max() <= 20
    assert 20 <= largest <= 20 + math.sqrt(d)
    half = 10 if centred else 20
    assert half <= farthest <= half + math.sqrt(d)
    claimed = Binomial(10**6, 0.5, 20, d, 1e-9, centred=centred)
    ratio = claimed.loss(relation="zero_out").mu / claimed.loss(relation="replace").mu
    assert ratio > 0.99 if not centred else ratio < 0.6


def test_codes_are_without_bias() -> None:
    code = VectorEncoding(2.0, 10, 2)
    found = code.codes(np.tile([0.37, -1.1], (100_000, 1)), SystemSource())
    mean = (found.mean(axis=0) - code.null) * code.step
    error = cases.SURE * code.step * 0.5 / math.sqrt(100_000)
    assert np.abs(mean - [0.37, -1.1]).max() < error


def test_large_vectors_are_clipped_and_invalid_ones_are_empty() -> None:
    code = VectorEncoding(1.0, 1000, 2)
    rows = np.array([[30.0, 40.0], [1e300, 0.0], [np.nan, 0.5], [np.inf, 0.0], [-0.6, 0.0]])
    found = (code.codes(rows, SeededSource(1)).astype(int) - 500) / 500
    wanted = [[0.6, 0.8], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [-0.6, 0.0]]
    assert np.abs(found - wanted).max() < 0.003


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("value", [5e-324, 1e-310, 1e308])
def test_no_value_raises_a_floating_point_error(centred: bool, value: float) -> None:
    # With such NumPy settings an error would reveal a user's vector.
    encoding = VectorEncoding(bound=1.0, grid=10, dim=2, centred=centred)
    with np.errstate(all="raise"):
        codes = encoding.codes(np.array([[value, 0.5], [0.0, -value]]), SeededSource(1))
    assert codes.min() >= 0
    assert codes.max() <= encoding.grid


def test_users_do_not_affect_the_rounding_of_others() -> None:
    code, rng = VectorEncoding(1.0, 100, 3), np.random.default_rng(0)
    rows = rng.normal(size=(50, 3)) * 0.1
    before = code.codes(rows, SeededSource(3))
    for odd in ([np.nan] * 3, [1e308, 1e308, -1e308], [5.0, 0.0, 0.0], [0.0] * 3):
        other = rows.copy()
        other[20] = odd
        after = code.codes(other, SeededSource(3))
        assert np.array_equal(np.delete(before, 20, axis=0), np.delete(after, 20, axis=0))


def test_every_small_report_is_read_or_rejected() -> None:
    # All byte strings of the length of a report, for a packing that is small enough to try them.
    packing, nonce = Packing(b"", 2, 5), bytes(16)
    read = {}
    for number in range(256):
        report = nonce + bytes([number])
        integers = packing.unpack(report)
        if integers is not None:
            read[report] = tuple(integers)
            assert packing.pack(integers, nonce) == report
    assert sorted(read.values()) == [(i, j) for i in range(6) for j in range(6)]
