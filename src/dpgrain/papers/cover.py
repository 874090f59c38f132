"""Covers of a ball by finitely many points, as candidates for ``dg.select``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError


@dataclass(frozen=True, eq=False)
class Cover(Sequence[FloatArray]):
    """Finitely many points (n, dimension) that cover a ball within a covering radius."""

    points: FloatArray
    radius: float

    def __len__(self) -> int:
        return len(self.points)

    @overload
    def __getitem__(self, index: int) -> FloatArray: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[FloatArray]: ...

    def __getitem__(self, index: int | slice) -> FloatArray | Sequence[FloatArray]:
        if isinstance(index, slice):
            return Cover(self.points[index], math.inf)
        point: FloatArray = self.points[index]
        return point


def ball_cover(
    dimension: int,
    radius: float,
    spacing: float,
    norm: Literal["l2", "linf"] = "l2",
    *,
    most: int = 1_000_000,
) -> Cover:
    """Cover a ball around 0 by points of a cubic lattice.

    Args:
        dimension: the dimension d of the ball.
        radius: the radius R of the ball.
        spacing: the distance h of neighbouring lattice points.
        norm: the norm of the ball, ``"l2"`` or ``"linf"``.
        most: the maximum number of points.

    Returns:
        the points of hℤᵈ for all cells (cubes of side h around them) that meet the ball, projected
        to the ball. A point of the ball is in one of the cells, so at most h/2 from its centre in l∞
        and h√d/2 in l2. Projecting does not increase the distance from a point in the ball. The
        covering radius is therefore h/2 or h√d/2.

    Raises:
        ParameterError: if a parameter is out of range, or there are more points than ``most``.

    Source: Levy et al. 2021, Corollary 4.

    >>> cover = ball_cover(2, 1.0, 0.5)
    >>> len(cover), round(cover.radius, 3)
    (21, 0.354)
    """
    d = _validate.integer(minimum=1, dimension=dimension)
    size, step = _validate.positive(radius=radius), _validate.positive(spacing=spacing)
    _validate.one_of(("l2", "linf"), norm=norm)
    most = _validate.integer(minimum=1, most=most)
    # Include cells that only touch the ball despite rounding.
    reach = size / step * (1 + 1e-9)
    points = np.zeros((1, 0))
    left = np.array([reach**2])
    for _ in range(d):
        # Steps of the coordinate to either side: |z| − ½ is the distance from the cell.
        sides = np.floor(np.sqrt(left) + 0.5)
        # Every point has at least one extension, the coordinate 0, so the number never decreases.
        if not (count := float((2 * sides + 1).sum())) <= most:
            raise ParameterError(
                f"spacing = {spacing!r} needs at least {count:.3g} points in {d} dimensions, more "
                f"than most = {most:,}; choose a larger spacing."
            )
        repeats = (2 * sides + 1).astype(np.int64)
        origin = np.repeat(np.arange(len(points)), repeats)
        start = np.repeat(np.cumsum(repeats) - repeats, repeats)
        z = np.arange(len(origin)) - start - sides[origin]
        points = np.column_stack([points[origin], z])
        left = left[origin]
        if norm == "l2":
            left = np.maximum(left - np.maximum(np.abs(z) - 0.5, 0.0) ** 2, 0.0)
    points = points * step
    if norm == "linf":
        return Cover(np.clip(points, -size, size), step / 2)
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    inside = points * np.minimum(1.0, size / np.where(norms > 0, norms, 1.0))
    return Cover(inside, step * math.sqrt(d) / 2)
