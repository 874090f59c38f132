"""Algorithms of the papers: means, recipes, solvers, lower bounds, mechanisms.

They plug into the rest of the library. A mean is a :class:`~dpgrain.means.Mean`, selected by
``method=`` of :func:`dpgrain.mean_of_users`. A recipe or a solver is the ``algorithm=`` of an
estimator or of :func:`dpgrain.learn.minimise`. A lower bound appears in a plan next to the expected
error.

A *recipe* contains the public facts of a problem; its ``plan(task)`` computes a program of rounds,
radii, step sizes and noise, from public numbers only. The O(…) of a theorem is replaced by the
noise from exact accounting. Recipes differ in the trusted party: a curator
(``recipes/curator.py``), a shuffler of already noisy messages (``recipes/shuffled.py``), or the
operator of a stream with a state that may be seen once (``recipes/pan_private.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.learn.program import Known, Program, Recipe, Smoothing, Stage, Task
    from dpgrain.optimize.localisation import (
        Localisation,
        Phase,
        Phases,
        RegularisedPhases,
        Restarts,
        localise,
    )
    from dpgrain.optimize.schedules import DecreasingRestart
    from dpgrain.optimize.smoothing import Moreau, Proximable, RandomizedBall, SmoothedLoss
    from dpgrain.papers.accelerated import Accelerated, AcSa, StronglyConvexAcSa
    from dpgrain.papers.cover import ball_cover
    from dpgrain.papers.distances import d_element, d_user
    from dpgrain.papers.floors import (
        choice_order,
        convex_order,
        mean_order,
        min_error,
        min_error_of_records,
        min_error_of_worlds,
        min_excess_of_choice,
        min_noise_of_clipped_sums,
        min_users_with_item,
    )
    from dpgrain.papers.generic import MeanRelease, element_sensitivity, release_mean
    from dpgrain.papers.mapping import GradientMapping, gradient_mapping
    from dpgrain.papers.pan_private import PanPrivate, PanPrivateRounds, PanPrivateStream
    from dpgrain.papers.recipes.curator_recipes import (
        Concentrated,
        Kind,
        PhasedErmSco,
        UserLevelAgd,
        UserLevelSgd,
        UserLevelSgdStronglyConvex,
        WinsorizedErm,
    )
    from dpgrain.papers.recipes.pan_private_recipes import PanPrivateAgd, PanPrivateConcentrated
    from dpgrain.papers.recipes.shuffle_recipes import (
        ShuffleAgd,
        ShuffleAgdSmoothed,
        ShuffleConcentrated,
        ShuffleGd,
        ShuffleRestarts,
        ShuffleSgd,
    )
    from dpgrain.papers.softcore import SoftCoreMean
    from dpgrain.papers.typical import TypicalRecords, middle_scores, typical_records
    from dpgrain.papers.winsorized.winsorized import Winsorized, WinsorizedScalar

#: Recipes of this library, by name.
RECIPES = (
    "Concentrated",
    "PanPrivateAgd",
    "PanPrivateConcentrated",
    "PhasedErmSco",
    "ShuffleAgd",
    "ShuffleAgdSmoothed",
    "ShuffleConcentrated",
    "ShuffleGd",
    "ShuffleRestarts",
    "ShuffleSgd",
    "UserLevelAgd",
    "UserLevelSgd",
    "UserLevelSgdStronglyConvex",
    "WinsorizedErm",
)
#: Solvers of the papers for ``algorithm=``, and their step sizes, by name.
SOLVERS = ("AcSa", "DecreasingRestart", "GradientMapping", "StronglyConvexAcSa")
__all__ = [
    "RECIPES",
    "SOLVERS",
    "AcSa",
    "Accelerated",
    "Concentrated",
    "DecreasingRestart",
    "GradientMapping",
    "Kind",
    "Known",
    "Localisation",
    "MeanRelease",
    "Moreau",
    "PanPrivate",
    "PanPrivateAgd",
    "PanPrivateConcentrated",
    "PanPrivateRounds",
    "PanPrivateStream",
    "Phase",
    "PhasedErmSco",
    "Phases",
    "Program",
    "Proximable",
    "RandomizedBall",
    "Recipe",
    "RegularisedPhases",
    "Restarts",
    "ShuffleAgd",
    "ShuffleAgdSmoothed",
    "ShuffleConcentrated",
    "ShuffleGd",
    "ShuffleRestarts",
    "ShuffleSgd",
    "SmoothedLoss",
    "Smoothing",
    "SoftCoreMean",
    "Stage",
    "StronglyConvexAcSa",
    "Task",
    "TypicalRecords",
    "UserLevelAgd",
    "UserLevelSgd",
    "UserLevelSgdStronglyConvex",
    "Winsorized",
    "WinsorizedErm",
    "WinsorizedScalar",
    "ball_cover",
    "choice_order",
    "convex_order",
    "d_element",
    "d_user",
    "element_sensitivity",
    "gradient_mapping",
    "localise",
    "mean_order",
    "middle_scores",
    "min_error",
    "min_error_of_records",
    "min_error_of_worlds",
    "min_excess_of_choice",
    "min_noise_of_clipped_sums",
    "min_users_with_item",
    "release_mean",
    "typical_records",
]

lazy_package(
    __name__,
    {
        "dpgrain.learn.program": ("Known", "Program", "Recipe", "Smoothing", "Stage", "Task"),
        "dpgrain.optimize.localisation": (
            "Localisation",
            "Phase",
            "Phases",
            "RegularisedPhases",
            "Restarts",
            "localise",
        ),
        "dpgrain.optimize.schedules": ("DecreasingRestart",),
        "dpgrain.optimize.smoothing": ("SmoothedLoss", "Moreau", "Proximable", "RandomizedBall"),
        "dpgrain.papers.accelerated": ("AcSa", "Accelerated", "StronglyConvexAcSa"),
        "dpgrain.papers.cover": ("ball_cover",),
        "dpgrain.papers.distances": ("d_element", "d_user"),
        "dpgrain.papers.floors": (
            "choice_order",
            "convex_order",
            "mean_order",
            "min_error",
            "min_error_of_records",
            "min_error_of_worlds",
            "min_excess_of_choice",
            "min_noise_of_clipped_sums",
            "min_users_with_item",
        ),
        "dpgrain.papers.generic": ("MeanRelease", "element_sensitivity", "release_mean"),
        "dpgrain.papers.mapping": ("GradientMapping", "gradient_mapping"),
        "dpgrain.papers.pan_private": ("PanPrivate", "PanPrivateRounds", "PanPrivateStream"),
        "dpgrain.papers.recipes.curator_recipes": (
            "Concentrated",
            "Kind",
            "PhasedErmSco",
            "UserLevelAgd",
            "UserLevelSgd",
            "UserLevelSgdStronglyConvex",
            "WinsorizedErm",
        ),
        "dpgrain.papers.recipes.pan_private_recipes": ("PanPrivateAgd", "PanPrivateConcentrated"),
        "dpgrain.papers.recipes.shuffle_recipes": (
            "ShuffleAgd",
            "ShuffleAgdSmoothed",
            "ShuffleConcentrated",
            "ShuffleGd",
            "ShuffleRestarts",
            "ShuffleSgd",
        ),
        "dpgrain.papers.softcore": ("SoftCoreMean",),
        "dpgrain.papers.typical": ("TypicalRecords", "middle_scores", "typical_records"),
        "dpgrain.papers.winsorized.winsorized": ("Winsorized", "WinsorizedScalar"),
    },
)
