"""Two operations on long sequences, without the libraries of signals and of optimisation."""

from __future__ import annotations

import math

import numpy as np

from dpgrain._types import FloatArray

# So many terms are added up at a time: they stay in cache. A power of two.
_CHUNK = 1 << 14


def discounted(terms: FloatArray, rate: float) -> FloatArray:
    """(n,) Σ over later terms, each times e^{−rate·distance}.

    Args:
        terms: (n,) at least 0.
        rate: more than 0.

    Distances double, so that a term meets about log₂ n factors and additions on its way. Each factor
    is e^{−rate} to a power of two, whose exponent has no rounding. Therefore the relative error is at
    most 3·2⁻⁵³·(log₂ n + log₂ of a chunk + 2), which is less than 2e-14 up to n = 2^32.

    >>> discounted(np.array([1.0, 1.0, 1.0]), math.log(2)).tolist()
    [0.75, 0.5, 0.0]
    """
    if terms.size <= _CHUNK:
        later = np.append(terms[1:], 0.0) * math.exp(-rate)
        _add_doubling(later, rate)
        return later
    # Each chunk by itself, then what lies in later chunks, which meet as the totals of chunks.
    rows = np.zeros((-(-terms.size // _CHUNK), _CHUNK))
    rows.reshape(-1)[: terms.size] = terms
    powers = np.full(_CHUNK, math.exp(-rate))
    for j in range(_CHUNK.bit_length() - 1):
        # The position from the end of a chunk has the bit j.
        powers.reshape(-1, 2, 1 << j)[:, 0] *= math.exp(-rate * (1 << j))
    wholes = np.empty(len(rows))
    for i, row in enumerate(rows):
        _add_doubling(row, rate)
        wholes[i] = row[0]
        row[:-1] = row[1:] * math.exp(-rate)
        row[-1] = 0.0
    beyond = discounted(wholes, rate * _CHUNK)
    for row, whole, further in zip(rows[:-1], wholes[1:], beyond[1:], strict=True):
        row += (whole + further) * powers
    return rows.reshape(-1)[: terms.size]


def _add_doubling(sums: FloatArray, rate: float) -> None:
    """Add to each sum, in place, all later ones, each times e^{−rate·distance}."""
    distance = 1
    while distance < sums.size:
        factor = math.exp(-rate * distance)
        if factor == 0.0:
            return
        sums[:-distance] += factor * sums[distance:]
        distance *= 2


def increasing(values: FloatArray, weights: FloatArray) -> FloatArray:
    """The nearest sequence that never falls, in weighted squares.

    Args:
        values: (n,) what it is near to.
        weights: (n,) at least 0, and each two neighbours' sum is more.

    It is found by pooling neighbours that fall. Only they are visited, one by one; all others keep
    their values to the bit.

    >>> increasing(np.array([1.0, 3.0, 2.0, 5.0]), np.ones(4)).tolist()
    [1.0, 2.5, 2.5, 5.0]
    """
    pools: list[tuple[int, int, float, float]] = []
    done = 0
    for fall in np.flatnonzero(values[1:] < values[:-1]).tolist():
        if fall + 1 < done:
            continue
        start, stop = fall, fall + 1
        mean, weight = float(values[fall]), float(weights[fall])
        if start < done:
            # The pool before ends here, and takes part.
            start, stop, mean, weight = pools.pop()
        while True:
            if stop < values.size and values[stop] < mean:
                first, last, other, more = stop, stop + 1, float(values[stop]), float(weights[stop])
            elif pools and pools[-1][1] == start and pools[-1][2] > mean:
                first, last, other, more = pools.pop()
            elif start > 0 and not (pools and pools[-1][1] == start) and values[start - 1] > mean:
                first, last = start - 1, start
                other, more = float(values[first]), float(weights[first])
            else:
                break
            mean += (other - mean) * (more / (weight + more))
            weight += more
            start, stop = min(start, first), max(stop, last)
        pools.append((start, stop, mean, weight))
        done = stop
    fitted = values.copy()
    for start, stop, mean, _ in pools:
        fitted[start:stop] = mean
    return fitted
