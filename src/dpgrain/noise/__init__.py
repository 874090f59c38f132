"""Exact integer noise from a cryptographic source."""

from dpgrain.noise.counts import BinomialLaw, CountLaw, PoissonLaw, binomial, poisson, rounded
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
    "BinomialLaw",
    "CountLaw",
    "PoissonLaw",
    "RandomState",
    "SeededSource",
    "Source",
    "SystemSource",
    "binomial",
    "discrete_laplace",
    "gumbel_order",
    "poisson",
    "raised",
    "rounded",
    "rounded_gaussian",
    "source_of",
    "truncated_geometric",
]
