"""Exact integer noise from a cryptographic source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.noise.counts import binomial, poisson, rounded
    from dpgrain.noise.distributions import discrete_laplace, truncated_geometric
    from dpgrain.noise.sources import RandomSource, RandomState, SeededSource, SystemSource

__all__ = [
    "RandomSource",
    "RandomState",
    "SeededSource",
    "SystemSource",
    "binomial",
    "discrete_laplace",
    "poisson",
    "rounded",
    "truncated_geometric",
]

lazy_package(
    __name__,
    {
        "dpgrain.noise.counts": ("binomial", "poisson", "rounded"),
        "dpgrain.noise.distributions": ("discrete_laplace", "truncated_geometric"),
        "dpgrain.noise.sources": ("RandomState", "SeededSource", "RandomSource", "SystemSource"),
    },
)
