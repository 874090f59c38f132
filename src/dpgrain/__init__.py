"""Differential privacy at the granularity you choose, for data with many records per person.

>>> import dpgrain as dg
>>> dg.Element("topic")
Element(by='topic')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package
from dpgrain.errors import (
    AccessError,
    CareWarning,
    DataError,
    DeltaWarning,
    DpgrainError,
    EndedWarning,
    EpsilonWarning,
    MissingPackageError,
    ParameterError,
    RefusedError,
    SchemaError,
    ScoreWarning,
)
from dpgrain.statistics import OFFERED
from dpgrain.units import Element, Record, User

if TYPE_CHECKING:
    from dpgrain import (
        accounting,
        learn,
        means,
        noise,
        optimize,
        papers,
        planning,
        shuffle,
        torch,
    )
    from dpgrain._version import __version__
    from dpgrain.auditing.audit import audit
    from dpgrain.auditing.file_audit import FileAudit, audit_releases
    from dpgrain.auditing.training_audit import audit_training
    from dpgrain.auditing.verdict import Audit
    from dpgrain.choices.repeated_runs import best_of
    from dpgrain.choices.select import Choice, select
    from dpgrain.ledger.lasting_promise import LastingPromise
    from dpgrain.ledger.ledger import Ledger
    from dpgrain.ledger.window import AnyDays, AnyHours
    from dpgrain.means.user_mean import MeanOfUsers, mean_of_users
    from dpgrain.publishing.budget import Budget, budget
    from dpgrain.publishing.facts import Fact
    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.publishing.publish import publish
    from dpgrain.publishing.query import Query
    from dpgrain.publishing.release_plan import Plan
    from dpgrain.publishing.risk import Risk
    from dpgrain.releases.plan import PlannedReleases, plan_releases
    from dpgrain.releases.run import Releases, releases
    from dpgrain.statistics.bounds import AutoClip
    from dpgrain.statistics.contribution_counts import Holdings, elements_per_user
    from dpgrain.statistics.covariances import correlation, covariance
    from dpgrain.statistics.distribution import distribution
    from dpgrain.statistics.group_estimates import Estimates, Histogram
    from dpgrain.statistics.histogram import count, histogram, sum  # noqa: A004
    from dpgrain.statistics.marginals import Marginals, marginals
    from dpgrain.statistics.moments import mean, std, variance
    from dpgrain.statistics.plan import SumsNoise, plan_histogram
    from dpgrain.statistics.quantiles import quantile, quantiles
    from dpgrain.statistics.ranges import AutoRange
    from dpgrain.statistics.release import Release
    from dpgrain.statistics.top import top
    from dpgrain.tables.elements import Elements
    from dpgrain.tables.shared_table import SharedTable
    from dpgrain.tables.table import UserTable, read

__all__ = [
    "AccessError",
    "AnyDays",
    "AnyHours",
    "Audit",
    "AutoClip",
    "AutoRange",
    "Budget",
    "CareWarning",
    "Choice",
    "DataError",
    "DeltaWarning",
    "DpgrainError",
    "Element",
    "Elements",
    "EndedWarning",
    "EpsilonWarning",
    "Estimates",
    "Fact",
    "FileAudit",
    "Guarantee",
    "Histogram",
    "Holdings",
    "LastingPromise",
    "Ledger",
    "Marginals",
    "MeanOfUsers",
    "MissingPackageError",
    "ParameterError",
    "Plan",
    "PlannedReleases",
    "Query",
    "Record",
    "RefusedError",
    "Release",
    "Releases",
    "Risk",
    "SchemaError",
    "ScoreWarning",
    "SharedTable",
    "SumsNoise",
    "User",
    "UserTable",
    "__version__",
    "accounting",
    "audit",
    "audit_releases",
    "audit_training",
    "best_of",
    "budget",
    "correlation",
    "count",
    "covariance",
    "distribution",
    "elements_per_user",
    "histogram",
    "learn",
    "marginals",
    "mean",
    "mean_of_users",
    "means",
    "noise",
    "optimize",
    "papers",
    "plan_histogram",
    "plan_releases",
    "planning",
    "publish",
    "quantile",
    "quantiles",
    "read",
    "releases",
    "select",
    "shuffle",
    "std",
    "sum",
    "top",
    "torch",
    "variance",
]

# Most of the package is imported at its first use, so that `import dpgrain` is quick.
lazy_package(
    __name__,
    {
        "dpgrain": (
            "accounting",
            "learn",
            "means",
            "noise",
            "optimize",
            "papers",
            "planning",
            "shuffle",
            "torch",
        ),
        "dpgrain._version": ("__version__",),
        "dpgrain.auditing.audit": ("audit",),
        "dpgrain.auditing.file_audit": ("FileAudit", "audit_releases"),
        "dpgrain.auditing.training_audit": ("audit_training",),
        "dpgrain.auditing.verdict": ("Audit",),
        "dpgrain.choices.repeated_runs": ("best_of",),
        "dpgrain.choices.select": ("Choice", "select"),
        "dpgrain.ledger.ledger": ("Ledger",),
        "dpgrain.ledger.lasting_promise": ("LastingPromise",),
        "dpgrain.ledger.window": ("AnyDays", "AnyHours"),
        "dpgrain.means.user_mean": ("MeanOfUsers", "mean_of_users"),
        "dpgrain.publishing.budget": ("Budget", "budget"),
        "dpgrain.publishing.facts": ("Fact",),
        "dpgrain.publishing.guarantee": ("Guarantee",),
        "dpgrain.publishing.publish": ("publish",),
        "dpgrain.publishing.query": ("Query",),
        "dpgrain.publishing.release_plan": ("Plan",),
        "dpgrain.publishing.risk": ("Risk",),
        "dpgrain.releases.plan": ("PlannedReleases", "plan_releases"),
        "dpgrain.releases.run": ("Releases", "releases"),
        "dpgrain.statistics.bounds": ("AutoClip",),
        "dpgrain.statistics.contribution_counts": ("Holdings",),
        "dpgrain.statistics.group_estimates": ("Estimates", "Histogram"),
        "dpgrain.statistics.marginals": ("Marginals",),
        "dpgrain.statistics.plan": ("SumsNoise", "plan_histogram"),
        "dpgrain.statistics.quantiles": ("quantile",),
        "dpgrain.statistics.ranges": ("AutoRange",),
        "dpgrain.statistics.release": ("Release",),
        "dpgrain.tables.elements": ("Elements",),
        "dpgrain.tables.shared_table": ("SharedTable",),
        "dpgrain.tables.table": ("UserTable", "read"),
    },
    OFFERED,
)
