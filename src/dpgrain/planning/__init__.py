"""Plans of the expected error before data are read, with limits of any mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.planning.choice_error import plan_select
    from dpgrain.planning.continual import RecurrentPlan, ReleaseSchedule, plan_recurrent
    from dpgrain.planning.count_error import UnitErrors, UnitsPlan, plan_counts, plan_units
    from dpgrain.planning.descent_error import plan_gradient, plan_sco
    from dpgrain.planning.mean_error import plan_mean
    from dpgrain.planning.plan_tables import ErrorPlan, PlanRow, QueryTable, plan_table

__all__ = [
    "ErrorPlan",
    "PlanRow",
    "QueryTable",
    "RecurrentPlan",
    "ReleaseSchedule",
    "UnitErrors",
    "UnitsPlan",
    "plan_counts",
    "plan_gradient",
    "plan_mean",
    "plan_recurrent",
    "plan_sco",
    "plan_select",
    "plan_table",
    "plan_units",
]

lazy_package(
    __name__,
    {
        "dpgrain.planning.choice_error": ("plan_select",),
        "dpgrain.planning.descent_error": ("plan_gradient", "plan_sco"),
        "dpgrain.planning.mean_error": ("plan_mean",),
        "dpgrain.planning.plan_tables": ("ErrorPlan", "PlanRow", "QueryTable", "plan_table"),
        "dpgrain.planning.continual": ("RecurrentPlan", "ReleaseSchedule", "plan_recurrent"),
        "dpgrain.planning.count_error": ("UnitErrors", "UnitsPlan", "plan_counts", "plan_units"),
    },
)
