"""Release files: validated, planned and charged as a whole, then published one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.releases.plan import PlannedRelease, PlannedReleases, plan_releases
    from dpgrain.releases.run import Releases, releases
    from dpgrain.releases.table_queries import fit_columns, mean_of_columns

__all__ = [
    "PlannedRelease",
    "PlannedReleases",
    "Releases",
    "fit_columns",
    "mean_of_columns",
    "plan_releases",
    "releases",
]

lazy_package(
    __name__,
    {
        "dpgrain.releases.plan": ("PlannedRelease", "PlannedReleases", "plan_releases"),
        "dpgrain.releases.run": ("Releases", "releases"),
        "dpgrain.releases.table_queries": ("fit_columns", "mean_of_columns"),
    },
)
