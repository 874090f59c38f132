"""Private means of one vector per block, over any number of adaptive rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.means.clipped import ClippedMean
    from dpgrain.means.mean_protocol import (
        Central,
        Contributions,
        CountedRounds,
        Mean,
        Rounds,
        Vectors,
    )
    from dpgrain.means.problem import METHODS, Candidate, Method, Problem
    from dpgrain.means.radius import Radius
    from dpgrain.means.recentred import Recentred
    from dpgrain.means.shuffled import Shuffled
    from dpgrain.means.user_mean import MeanOfUsers, mean_of_users
    from dpgrain.numerics.row_clipping import clipped

__all__ = [
    "METHODS",
    "Candidate",
    "Central",
    "ClippedMean",
    "Contributions",
    "CountedRounds",
    "Mean",
    "MeanOfUsers",
    "Method",
    "Problem",
    "Radius",
    "Recentred",
    "Rounds",
    "Shuffled",
    "Vectors",
    "clipped",
    "mean_of_users",
]

lazy_package(
    __name__,
    {
        "dpgrain.numerics.row_clipping": ("clipped",),
        "dpgrain.means.clipped": ("ClippedMean",),
        "dpgrain.means.user_mean": ("MeanOfUsers", "mean_of_users"),
        "dpgrain.means.problem": ("METHODS", "Candidate", "Method", "Problem"),
        "dpgrain.means.mean_protocol": (
            "Central",
            "Contributions",
            "CountedRounds",
            "Mean",
            "Rounds",
            "Vectors",
        ),
        "dpgrain.means.radius": ("Radius",),
        "dpgrain.means.recentred": ("Recentred",),
        "dpgrain.means.shuffled": ("Shuffled",),
    },
)
