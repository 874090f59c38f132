"""Statistics of Tumult Analytics, on Spark in this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from serving import serve
from tmlt.analytics import (
    AddRowsWithID,
    ApproxDPBudget,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    MaxRowsPerID,
    PureDPBudget,
    QueryBuilder,
    RhoZCDPBudget,
    Session,
)

Told = dict[str, Any]

DATA = Path(sys.argv[1])
KEYS: dict[str, list[str]] = json.loads((DATA / "keys.json").read_text(encoding="utf-8"))
# Tasks also run in this environment.
os.environ["PYSPARK_PYTHON"] = sys.executable
SPARK = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.memory", "4g")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
#: The largest ρ such that ρ-zCDP is (1, 10⁻⁶)-DP, by OpenDP's conversion.
RHO = 0.024355970359537


def session(told: Told, budget: Any) -> Any:
    """A session on the rows, with all rows of one user as its unit."""
    return (
        Session.Builder()
        .with_privacy_budget(budget)
        .with_id_space("users")
        .with_private_dataframe("rows", frame(told), AddRowsWithID("user", "users"))
        .build()
    )


def frame(told: Told) -> Any:
    """The columns that a task needs; for users of items, each pair once."""
    wanted = [name for name in ("user", told["by"], told["value"]) if name]
    found = SPARK.read.parquet(str(DATA / "rows.parquet")).select(*wanted)
    if told["by"] == "large":
        found = found.where("large IS NOT NULL")
    return found.distinct() if told["kind"] == "users" else found


def bounded(told: Told) -> Any:
    """The rows, with a limited number of groups per user and of rows in each, or of rows."""
    bounds, rows = told["bounds"], QueryBuilder("rows")
    if "groups" not in bounds:
        return rows.enforce(MaxRowsPerID(bounds["records"]))
    return rows.enforce(MaxGroupsPerID(told["by"], bounds["groups"])).enforce(
        MaxRowsPerGroupPerID(told["by"], bounds.get("records", 1))
    )


def aggregated(told: Told, grouped: Any) -> Any:
    """The statistic of a task."""
    low, high = told["range"]
    high = told["bounds"].get("cap", high)
    if told["kind"] in ("count", "users"):
        return grouped.count(name="estimate")
    method = getattr(grouped, "average" if told["kind"] == "mean" else told["kind"])
    return method(told["value"], low, high, name="estimate")


def released(told: Told) -> Callable[[], dict[str, float]]:
    """The release of a task, ready to run."""
    frame(told).cache().count()
    return lambda: known(told) if told["known"] else unknown(told)


def known(told: Told) -> dict[str, float]:
    """A statistic of groups that are public, or of all rows."""
    gaussian = told["bounds"].get("noise", "gaussian") == "gaussian"
    budget = RhoZCDPBudget(RHO) if gaussian else PureDPBudget(told["epsilon"])
    rows = bounded(told)
    if told["by"]:
        rows = rows.groupby(KeySet.from_dict({told["by"]: KEYS[told["by"]]}))
    return told_by(session(told, budget).evaluate(aggregated(told, rows), budget), told)


def unknown(told: Told) -> dict[str, float]:
    """Groups are found with half of the budget, and counted with the other."""
    whole = session(told, ApproxDPBudget(told["epsilon"], told["delta"]))
    half = told["epsilon"] / 2
    names = (
        QueryBuilder("rows").enforce(MaxRowsPerID(told["bounds"]["groups"])).get_groups(told["by"])
    )
    found = whole.evaluate(names, ApproxDPBudget(half, told["delta"]))
    rows = bounded(told).groupby(KeySet.from_dataframe(found))
    return told_by(whole.evaluate(aggregated(told, rows), ApproxDPBudget(half, 0)), told)


def told_by(found: Any, told: Told) -> dict[str, float]:
    """The estimates of an answer, by group."""
    return {
        row[told["by"]] if told["by"] else "all": float(row["estimate"]) for row in found.collect()
    }


serve({"release": released})
