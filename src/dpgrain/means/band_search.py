"""Choice of the number of bands of a clipped mean under one guarantee."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dpgrain.means.clipped import ClippedMean

# Share of the noise that more bands must save to be chosen.
_WORTH = 0.01
#: Default maximum number of bands.
MAX_BANDS = 256


def band_candidates(*, most: int = MAX_BANDS, **promise: Any) -> list[ClippedMean]:
    """Return clipped means under one guarantee, for powers of 2 as numbers of bands.

    ``promise`` are the arguments of :meth:`ClippedMean.calibrate` except ``bands``.
    """
    result = [ClippedMean.calibrate(**promise)]
    rate, bands = result[0].sampling_rate, 2
    while bands * rate <= 1 and bands <= min(result[0].rounds, most):
        result.append(ClippedMean.calibrate(**promise, bands=bands))
        bands *= 2
    return result


def best(means: Iterable[ClippedMean]) -> ClippedMean:
    """Return the mean with the fewest bands and almost the least noise in sums."""
    noise = {mean: mean.prefix_noise for mean in means}
    least = min(noise.values())
    return next(mean for mean, of_sums in noise.items() if of_sums <= least * (1 + _WORTH))
