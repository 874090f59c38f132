"""Private means of one vector per block of data, each for any number of adaptive rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
    from dpgrain._clipping import clipped
    from dpgrain.means.clipped import ClippedMean, ClippedRounds
    from dpgrain.means.generic import MeanRelease, element_sensitivity, release_mean
    from dpgrain.means.methods import METHODS
    from dpgrain.means.of_users import MeanOfUsers, mean_of_users
    from dpgrain.means.pan_private import PanPrivate, PanPrivateRounds, PanPrivateStream
    from dpgrain.means.problem import Candidate, Method, Problem
    from dpgrain.means.protocol import (
        Central,
        Contributions,
        CountedRounds,
        Mean,
        Rounds,
        Vectors,
    )
    from dpgrain.means.radius import Radius
    from dpgrain.means.recentred import Recentred
    from dpgrain.means.shuffled import FreshBatches, FreshRun, Shuffled, ShuffledRounds
    from dpgrain.means.softcore.softcore import SoftCore
    from dpgrain.means.winsorized.winsorized import Winsorized

__all__ = [
    "METHODS",
    "Candidate",
    "Central",
    "ClippedMean",
    "ClippedRounds",
    "Contributions",
    "CountedRounds",
    "FreshBatches",
    "FreshRun",
    "Mean",
    "MeanOfUsers",
    "MeanRelease",
    "Method",
    "PanPrivate",
    "PanPrivateRounds",
    "PanPrivateStream",
    "Problem",
    "Radius",
    "Recentred",
    "Rounds",
    "Shuffled",
    "ShuffledRounds",
    "SoftCore",
    "Vectors",
    "Winsorized",
    "clipped",
    "element_sensitivity",
    "mean_of_users",
    "release_mean",
]

face(
    __name__,
    {
        "dpgrain.means.clipped": ("ClippedMean", "ClippedRounds"),
        "dpgrain.means.pan_private": ("PanPrivate", "PanPrivateRounds", "PanPrivateStream"),
        "dpgrain.means.protocol": (
            "Central",
            "Contributions",
            "CountedRounds",
            "Mean",
            "Rounds",
            "Vectors",
        ),
        "dpgrain.means.methods": ("METHODS",),
        "dpgrain.means.problem": ("Candidate", "Method", "Problem"),
        "dpgrain.means.radius": ("Radius",),
        "dpgrain.means.recentred": ("Recentred",),
        "dpgrain.means.shuffled": ("FreshBatches", "FreshRun", "Shuffled", "ShuffledRounds"),
        "dpgrain.means.softcore.softcore": ("SoftCore",),
        "dpgrain.means.winsorized.winsorized": ("Winsorized",),
        "dpgrain._clipping": ("clipped",),
        "dpgrain.means.generic": ("MeanRelease", "element_sensitivity", "release_mean"),
        "dpgrain.means.of_users": ("MeanOfUsers", "mean_of_users"),
    },
)
