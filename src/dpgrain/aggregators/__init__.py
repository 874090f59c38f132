"""Private means of one vector per block of data: clipped, summed over a sample, noised, divided."""

from dpgrain.aggregators.clipped import ClippedMean, ClippedRounds
from dpgrain.aggregators.protocol import Aggregator, Contributions, Rounds, Vectors, clipped

__all__ = [
    "Aggregator",
    "ClippedMean",
    "ClippedRounds",
    "Contributions",
    "Rounds",
    "Vectors",
    "clipped",
]
