"""The papers' algorithms for whole users, each a combination of a private mean, a solver and phases.

A recipe holds what is publicly known of a problem; its ``plan(task)`` makes of it a program: rounds,
radii, step sizes and noise, all public numbers. A program runs on any convex loss through
:func:`dpgrain.learn.minimise`, and as ``algorithm=`` of the estimators. What a theorem leaves as O(…)
is replaced by the noise that exact accounting asks for.

Those of ``curator`` trust a curator; those of ``shuffled`` a shuffler of messages that are noisy
already; those of ``pan_private`` a stream whose state may be seen once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
    from dpgrain.choices.typical import TypicalRecords, middle_scores, typical_records
    from dpgrain.recipes.curator import (
        Concentrated,
        Kind,
        PhasedErmSco,
        UserLevelSgd,
        UserLevelSgdStronglyConvex,
        WinsorizedErm,
        concentrated,
        phased_erm_sco,
        user_level_sgd,
        user_level_sgd_strongly_convex,
        winsorized_erm,
    )
    from dpgrain.recipes.pan_private import (
        PanPrivateAgd,
        PanPrivateConcentrated,
        pan_private_agd,
        pan_private_concentrated,
    )
    from dpgrain.recipes.program import Known, Mean, Program, Recipe, Smoothing, Stage, Task
    from dpgrain.recipes.shuffled import (
        ShuffleAgd,
        ShuffleAgdSmoothed,
        ShuffleConcentrated,
        ShuffleGd,
        ShuffleRestarts,
        ShuffleSgd,
        shuffle_agd,
        shuffle_agd_smoothed,
        shuffle_concentrated,
        shuffle_gd,
        shuffle_restarts,
        shuffle_sgd,
    )
    from dpgrain.units import Trust

#: The recipes of this library, by name.
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
    "UserLevelSgd",
    "UserLevelSgdStronglyConvex",
    "WinsorizedErm",
)
__all__ = [
    "RECIPES",
    "Concentrated",
    "Kind",
    "Known",
    "Mean",
    "PanPrivateAgd",
    "PanPrivateConcentrated",
    "PhasedErmSco",
    "Program",
    "Recipe",
    "ShuffleAgd",
    "ShuffleAgdSmoothed",
    "ShuffleConcentrated",
    "ShuffleGd",
    "ShuffleRestarts",
    "ShuffleSgd",
    "Smoothing",
    "Stage",
    "Task",
    "Trust",
    "TypicalRecords",
    "UserLevelSgd",
    "UserLevelSgdStronglyConvex",
    "WinsorizedErm",
    "concentrated",
    "middle_scores",
    "pan_private_agd",
    "pan_private_concentrated",
    "phased_erm_sco",
    "shuffle_agd",
    "shuffle_agd_smoothed",
    "shuffle_concentrated",
    "shuffle_gd",
    "shuffle_restarts",
    "shuffle_sgd",
    "typical_records",
    "user_level_sgd",
    "user_level_sgd_strongly_convex",
    "winsorized_erm",
]

face(
    __name__,
    {
        "dpgrain.choices.typical": (
            "TypicalRecords",
            "middle_scores",
            "typical_records",
        ),
        "dpgrain.recipes.curator": (
            "Concentrated",
            "Kind",
            "PhasedErmSco",
            "UserLevelSgd",
            "UserLevelSgdStronglyConvex",
            "WinsorizedErm",
            "concentrated",
            "phased_erm_sco",
            "user_level_sgd",
            "user_level_sgd_strongly_convex",
            "winsorized_erm",
        ),
        "dpgrain.recipes.pan_private": (
            "PanPrivateAgd",
            "PanPrivateConcentrated",
            "pan_private_agd",
            "pan_private_concentrated",
        ),
        "dpgrain.recipes.program": (
            "Known",
            "Mean",
            "Program",
            "Recipe",
            "Smoothing",
            "Stage",
            "Task",
        ),
        "dpgrain.recipes.shuffled": (
            "ShuffleAgd",
            "ShuffleAgdSmoothed",
            "ShuffleConcentrated",
            "ShuffleGd",
            "ShuffleRestarts",
            "ShuffleSgd",
            "shuffle_agd",
            "shuffle_agd_smoothed",
            "shuffle_concentrated",
            "shuffle_gd",
            "shuffle_restarts",
            "shuffle_sgd",
        ),
        "dpgrain.units": ("Trust",),
    },
)
