"""Exact integer noise from a cryptographic source."""

from dpgrain.noise.gumbel import gumbel_order
from dpgrain.noise.laws import (
    MAX_SCALE,
    discrete_laplace,
    raised,
    rounded_gaussian,
    truncated_geometric,
)
from dpgrain.noise.sources import RandomState, SeededSource, Source, SystemSource, source_of

__all__ = [
    "MAX_SCALE",
    "RandomState",
    "SeededSource",
    "Source",
    "SystemSource",
    "discrete_laplace",
    "gumbel_order",
    "raised",
    "rounded_gaussian",
    "source_of",
    "truncated_geometric",
]
