"""The papers' algorithms for whole users, each a combination of a private mean, a solver and phases.

A recipe holds what is publicly known of a problem; its ``plan(task)`` makes a program, which is made of
public numbers only: rounds, radii, step sizes and noise. A program runs on any convex loss through
:func:`dpgrain.learn.minimise`, and as ``algorithm=`` of the estimators. What a theorem leaves as O(…)
is replaced by the noise that exact accounting asks for.

The recipes of ``curator`` trust a curator. Those of ``shuffled`` trust a shuffler of messages that are
noisy already. Those of ``pan_private`` run on a stream whose state may be seen once.
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
        UserLevelAgd,
        UserLevelSgd,
        UserLevelSgdStronglyConvex,
        WinsorizedErm,
    )
    from dpgrain.recipes.pan_private import (
        PanPrivateAgd,
        PanPrivateConcentrated,
    )
    from dpgrain.recipes.program import Known, Program, Recipe, Smoothing, Stage, Task
    from dpgrain.recipes.shuffled import (
        ShuffleAgd,
        ShuffleAgdSmoothed,
        ShuffleConcentrated,
        ShuffleGd,
        ShuffleRestarts,
        ShuffleSgd,
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
    "UserLevelAgd",
    "UserLevelSgd",
    "UserLevelSgdStronglyConvex",
    "WinsorizedErm",
)
__all__ = [
    "RECIPES",
    "Concentrated",
    "Kind",
    "Known",
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
    "UserLevelAgd",
    "UserLevelSgd",
    "UserLevelSgdStronglyConvex",
    "WinsorizedErm",
    "middle_scores",
    "typical_records",
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
            "UserLevelAgd",
            "UserLevelSgd",
            "UserLevelSgdStronglyConvex",
            "WinsorizedErm",
        ),
        "dpgrain.recipes.pan_private": (
            "PanPrivateAgd",
            "PanPrivateConcentrated",
        ),
        "dpgrain.recipes.program": (
            "Known",
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
        ),
        "dpgrain.units": ("Trust",),
    },
)
