"""Statistics of PipelineDP on its local backend."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pipeline_dp as p
import pyarrow.parquet as pq
from serving import serve

Told = dict[str, Any]

DATA = Path(sys.argv[1])
KEYS: dict[str, list[str]] = json.loads((DATA / "keys.json").read_text(encoding="utf-8"))
METRICS = {
    "count": p.Metrics.COUNT,
    "users": p.Metrics.PRIVACY_ID_COUNT,
    "sum": p.Metrics.SUM,
    "mean": p.Metrics.MEAN,
    "variance": p.Metrics.VARIANCE,
    "median": p.Metrics.PERCENTILE(50),
}
EXTRACTORS = p.DataExtractors(
    privacy_id_extractor=lambda row: row[0],
    partition_extractor=lambda row: row[1],
    value_extractor=lambda row: row[2],
)


def rows(told: Told) -> list[tuple[Any, ...]]:
    """Input of its local backend: Python tuples (user, group, value)."""
    table = pq.read_table(DATA / "rows.parquet").to_pydict()
    users = table["user"]
    groups = table[told["by"]] if told["by"] else ["all"] * len(users)
    return list(zip(users, groups, table[told["value"] or "quantity"], strict=True))


def parameters(told: Told) -> Any:
    """The sum, its bounds, and the selection of unknown groups."""
    bounds = told["bounds"]
    more: dict[str, Any] = {}
    if "cap" in bounds:
        more = {"min_sum_per_partition": 0, "max_sum_per_partition": bounds["cap"]}
    elif told["value"]:
        more = dict(zip(("min_value", "max_value"), told["range"], strict=True))
    if bounds.get("strategy") == "post":
        chosen = f"{bounds['noise'].upper()}_THRESHOLDING"
        more["post_aggregation_thresholding"] = True
        more["partition_selection_strategy"] = p.PartitionSelectionStrategy[chosen]
    return p.AggregateParams(
        metrics=[METRICS[told["kind"]]],
        noise_kind=p.NoiseKind(bounds["noise"]),
        max_partitions_contributed=bounds.get("groups", 1),
        max_contributions_per_partition=bounds.get("records", 1),
        **more,
    )


def released(told: Told) -> Callable[[], dict[str, float]]:
    """The release of a task, ready to run."""
    data, params = rows(told), parameters(told)
    public = (KEYS[told["by"]] if told["by"] else ["all"]) if told["known"] else None
    needs_delta = told["bounds"]["noise"] == "gaussian" or not told["known"]

    def release() -> dict[str, float]:
        budget = p.NaiveBudgetAccountant(told["epsilon"], told["delta"] if needs_delta else 0.0)
        engine = p.DPEngine(budget, p.LocalBackend())
        found = engine.aggregate(data, params, EXTRACTORS, public_partitions=public)
        budget.compute_budgets()
        return {group: float(metrics[0]) for group, metrics in found}

    return release


serve({"release": released})
