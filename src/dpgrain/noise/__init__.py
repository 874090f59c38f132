"""Exact integer noise from a cryptographic source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
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

face(
    __name__,
    {
        "dpgrain.noise.counts": (
            "BinomialLaw",
            "CountLaw",
            "PoissonLaw",
            "binomial",
            "poisson",
            "rounded",
        ),
        "dpgrain.noise.gumbel": ("gumbel_order",),
        "dpgrain.noise.laws": (
            "MAX_SCALE",
            "discrete_laplace",
            "raised",
            "rounded_gaussian",
            "truncated_geometric",
        ),
        "dpgrain.noise.sources": (
            "RandomState",
            "SeededSource",
            "Source",
            "SystemSource",
            "source_of",
        ),
    },
)
