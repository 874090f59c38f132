"""Clipped means with one promise and several numbers of bands, for a choice of the best."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dpgrain.means.clipped import ClippedMean

# Share of the noise that more bands must gain, or fewer are chosen.
_WORTH = 0.01
#: The most bands that are tried unless another number is stated.
MOST_BANDS = 256


def in_bands(*, most: int = MOST_BANDS, **promise: Any) -> list[ClippedMean]:
    """Return clipped means under one promise, for numbers of bands from 1 on that are powers of 2.

    Args:
        most: the most bands.
        promise: what :meth:`ClippedMean.calibrate` takes, without ``bands``.

    Raises:
        ParameterError: if a value is out of range.
    """
    result = [ClippedMean.calibrate(**promise)]
    rate, bands = result[0].sampling_rate, 2
    while bands * rate <= 1 and bands <= min(result[0].rounds, most):
        result.append(ClippedMean.calibrate(**promise, bands=bands))
        bands *= 2
    return result


def noise_of_sums(mean: ClippedMean) -> float:
    """Return the rms noise of the sum of the first t rounds, over all t, in clipping bounds.

    Args:
        mean: the mean.

    >>> round(noise_of_sums(ClippedMean(1.0, 2.0, n_users=10, rounds=7)), 9)
    4.0
    """
    if mean.bands == 1:
        return mean.noise_multiplier * math.sqrt((mean.rounds + 1) / 2)
    return mean.noise_multiplier * mean.matrix.prefix_error(mean.rounds)


def best(means: Iterable[ClippedMean]) -> ClippedMean:
    """Return the mean with the fewest bands whose sums have about the least noise.

    Args:
        means: the means, from few bands to many.
    """
    noise = {mean: noise_of_sums(mean) for mean in means}
    least = min(noise.values())
    return next(mean for mean, of_sums in noise.items() if of_sums <= least * (1 + _WORTH))
