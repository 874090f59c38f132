"""Clipping is undone, approximately, where the bound was chosen to balance the noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.statistics.noisy import finite_values, group_codes, values_and_sds

# Sums are scaled up by at most this factor; those of which clipping left less say too little.
_LARGEST_GAIN = 4.0


def unclip(
    estimate: Any, std_error: Any, shrunk: Any, groups: Any = None
) -> tuple[FloatArray, FloatArray]:
    """Scale up what clipping lowered, where ``clip="auto"`` chose the bounds: an approximation.

    Args:
        estimate: (V,) the noisy sums as released.
        std_error: (V,) the standard deviation of their Gaussian noise.
        shrunk: (V,) the estimates that :func:`shrink` made of them, which are scaled.
        groups: (V,) the cell of each item; by default items of equal ``std_error`` are one cell.

    Returns:
        (V,) scaled estimates of what the users hold, before clipping, and (V,) the factors, 1 to 4.

    Raises:
        ParameterError: if an array is not finite, or has another length or sign than it should.

    A bound r that minimises T² + N, for the norm T that is clipped off and the noise energy N = mσ² of
    a cell of m items, has T·S = N/r, where S blocks are clipped. S·r is at most the norm A of
    all that is left, so T/A ≥ N/A²: the noise tells the loss. A is taken to be the norm of the
    clipped sum, max(‖shrunk‖², ‖estimate‖² − N) ≈ A², and all items of a cell to lose the same
    share: right where most users hold a cell's items in like proportions. Wrong, and harmful, for
    bounds that were given or data that were not clipped.

    >>> unclip([30.0, 40.0], [10.0, 10.0], [30.0, 40.0])[1].round(3)
    array([1.08, 1.08])
    """
    x, sd = values_and_sds("estimate", estimate, "std_error", std_error)
    y = finite_values("shrunk", shrunk, x.size)
    cell = sd if groups is None else group_codes(groups, x.size)
    code = np.unique(cell, return_inverse=True)[1]
    noise, seen, kept = (np.bincount(code, square) for square in (sd**2, x**2, y**2))
    left = np.maximum(kept, seen - noise)
    # A cell in which nothing is left stays as it is.
    gain = 1 + np.divide(noise, left, out=np.zeros(left.size), where=left > 0)
    gain = np.minimum(gain, _LARGEST_GAIN)[code]
    return y * gain, gain
