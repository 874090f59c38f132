"""The papers' algorithms for whole users, each a combination of a private mean, a solver and phases.

A recipe holds what is publicly known of a problem; its ``plan(task)`` makes of it a program: rounds,
radii, step sizes and noise, all public numbers. A program runs on any convex loss through
:func:`dpgrain.learn.minimise`, and as ``algorithm=`` of the estimators. What a theorem leaves as O(…)
is replaced by the noise that exact accounting asks for.

Those of ``user_level`` trust a curator; those of ``shuffled`` a shuffler of messages that are noisy
already, or a stream whose state may be seen once.
"""

from dpgrain.recipes.program import Known, Mean, Program, Recipe, Smoothing, Stage, Task
from dpgrain.recipes.shuffled import (
    PanPrivateAgd,
    PanPrivateConcentrated,
    ShuffleAgd,
    ShuffleAgdSmoothed,
    ShuffleConcentrated,
    ShuffleGd,
    ShuffleRestarts,
    ShuffleSgd,
)
from dpgrain.recipes.typical import TypicalRecords, middle_scores, typical_records
from dpgrain.recipes.user_level import (
    Concentrated,
    Kind,
    PhasedErmSco,
    UserLevelSgd,
    UserLevelSgdStronglyConvex,
    WinsorizedErm,
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
# Names as in the papers' titles: `recipes.winsorized_erm(…)` reads like the others of the field.
winsorized_erm = WinsorizedErm
phased_erm_sco = PhasedErmSco
user_level_sgd = UserLevelSgd
user_level_sgd_strongly_convex = UserLevelSgdStronglyConvex
concentrated = Concentrated
pan_private_agd = PanPrivateAgd
pan_private_concentrated = PanPrivateConcentrated
shuffle_agd = ShuffleAgd
shuffle_agd_smoothed = ShuffleAgdSmoothed
shuffle_concentrated = ShuffleConcentrated
shuffle_gd = ShuffleGd
shuffle_restarts = ShuffleRestarts
shuffle_sgd = ShuffleSgd

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
