"""Private means of one vector per block of data, each for any number of adaptive rounds."""

from dpgrain.aggregators.clipped import ClippedMean, ClippedRounds
from dpgrain.aggregators.pan_private import PanPrivate, PanPrivateRounds, PanPrivateStream
from dpgrain.aggregators.protocol import (
    Aggregator,
    Contributions,
    CountedRounds,
    Rounds,
    Vectors,
)
from dpgrain.aggregators.radius import Radius
from dpgrain.aggregators.recentred import Recentred
from dpgrain.aggregators.shuffled import FreshBatches, FreshRun, Shuffled, ShuffledRounds
from dpgrain.aggregators.softcore import SoftCore
from dpgrain.aggregators.winsorized import Winsorized
from dpgrain.clipping import clipped

__all__ = [
    "Aggregator",
    "ClippedMean",
    "ClippedRounds",
    "Contributions",
    "CountedRounds",
    "FreshBatches",
    "FreshRun",
    "PanPrivate",
    "PanPrivateRounds",
    "PanPrivateStream",
    "Radius",
    "Recentred",
    "Rounds",
    "Shuffled",
    "ShuffledRounds",
    "SoftCore",
    "Vectors",
    "Winsorized",
    "clipped",
]
