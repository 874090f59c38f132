"""Two operations on long sequences, without importing large libraries."""

from __future__ import annotations

import math

import numpy as np

from dpgrain._types import FloatArray

# Terms added at a time, a power of two; they fit in the cache.
_CHUNK_TERMS = 1 << 14


def discounted_sums(terms: FloatArray, rate: float) -> FloatArray:
    """Return (n,) sums over all later terms ≥ 0, each times e^{−rate·distance}.

    Distances double, so a term meets about log₂ n factors. The relative error is at most
    3·2⁻⁵³·(log₂ n + log₂ of a chunk + 2), which is less than 2e-14 up to n = 2^32.
    """
    if terms.size <= _CHUNK_TERMS:
        later = np.append(terms[1:], 0.0) * math.exp(-rate)
        _add_doubling(later, rate)
        return later
    # Sum each chunk separately, then add later chunks, which only needs their totals.
    rows = np.zeros((-(-terms.size // _CHUNK_TERMS), _CHUNK_TERMS))
    rows.reshape(-1)[: terms.size] = terms
    powers = np.full(_CHUNK_TERMS, math.exp(-rate))
    for j in range(_CHUNK_TERMS.bit_length() - 1):
        # The positions with the bit j in their distance from the end of the chunk.
        powers.reshape(-1, 2, 1 << j)[:, 0] *= math.exp(-rate * (1 << j))
    wholes = np.empty(len(rows))
    for i, row in enumerate(rows):
        _add_doubling(row, rate)
        wholes[i] = row[0]
        row[:-1] = row[1:] * math.exp(-rate)
        row[-1] = 0.0
    beyond = discounted_sums(wholes, rate * _CHUNK_TERMS)
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


def isotonic_fit(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the nearest non-decreasing sequence, in squares weighted by ``weights``."""
    # Decreasing neighbours are pooled; their weights are not both 0. Other values do not change.
    pools: list[tuple[int, int, float, float]] = []
    done = 0
    for fall in np.flatnonzero(values[1:] < values[:-1]).tolist():
        if fall + 1 < done:
            continue
        start, stop = fall, fall + 1
        mean, weight = float(values[fall]), float(weights[fall])
        if start < done:
            # The fall begins inside the last pool, so that pool is included.
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
