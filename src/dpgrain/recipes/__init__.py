"""The papers' algorithms at user level, each a combination of a private mean, a solver and phases.

A recipe holds what is publicly known of a problem; :meth:`Recipe.plan` makes of it a program: rounds,
radii, step sizes and noise, all public numbers. A program runs on any convex loss through
:func:`dpgrain.learn.minimise`, and as ``algorithm=`` of the estimators. What a theorem leaves as O(…)
is replaced by the noise that exact accounting asks for.
"""

from dpgrain.recipes.program import Known, Mean, Program, Recipe, Smoothing, Stage, Task
from dpgrain.recipes.typical import TypicalRecords, middle_scores, typical_records
from dpgrain.recipes.user_level import (
    Concentrated,
    Kind,
    PhasedErmSco,
    UserLevelSgd,
    UserLevelSgdStronglyConvex,
    WinsorizedErm,
)

#: The recipes of this library, by name.
RECIPES = (
    "Concentrated",
    "PhasedErmSco",
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

__all__ = [
    "RECIPES",
    "Concentrated",
    "Kind",
    "Known",
    "Mean",
    "PhasedErmSco",
    "Program",
    "Recipe",
    "Smoothing",
    "Stage",
    "Task",
    "TypicalRecords",
    "UserLevelSgd",
    "UserLevelSgdStronglyConvex",
    "WinsorizedErm",
    "concentrated",
    "middle_scores",
    "phased_erm_sco",
    "typical_records",
    "user_level_sgd",
    "user_level_sgd_strongly_convex",
    "winsorized_erm",
]
