"""Private means of one vector per block of data, each for any number of adaptive rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
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

face(
    __name__,
    {
        "dpgrain.aggregators.clipped": ("ClippedMean", "ClippedRounds"),
        "dpgrain.aggregators.pan_private": ("PanPrivate", "PanPrivateRounds", "PanPrivateStream"),
        "dpgrain.aggregators.protocol": (
            "Aggregator",
            "Contributions",
            "CountedRounds",
            "Rounds",
            "Vectors",
        ),
        "dpgrain.aggregators.radius": ("Radius",),
        "dpgrain.aggregators.recentred": ("Recentred",),
        "dpgrain.aggregators.shuffled": ("FreshBatches", "FreshRun", "Shuffled", "ShuffledRounds"),
        "dpgrain.aggregators.softcore": ("SoftCore",),
        "dpgrain.aggregators.winsorized": ("Winsorized",),
        "dpgrain.clipping": ("clipped",),
    },
)
