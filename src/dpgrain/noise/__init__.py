"""Exact integer noise from a cryptographic source."""

from dpgrain.noise.laws import MAX_SCALE, discrete_laplace, raised, rounded_gaussian
from dpgrain.noise.sources import RandomState, SeededSource, Source, SystemSource, source_of

__all__ = [
    "MAX_SCALE",
    "RandomState",
    "SeededSource",
    "Source",
    "SystemSource",
    "discrete_laplace",
    "raised",
    "rounded_gaussian",
    "source_of",
]
