"""Loans of each title, private for whole readers, by PipelineDP."""

import json
from pathlib import Path

import pipeline_dp
import pyarrow.parquet as pq

titles = json.loads(Path("titles.json").read_text())
rows = pq.read_table("loans.parquet", columns=["reader", "title"]).to_pylist()
budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1.0, total_delta=1e-6)
engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
loans = engine.aggregate(
    rows,
    pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.COUNT],
        noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
        max_partitions_contributed=12,
        max_contributions_per_partition=1,
    ),
    pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row["reader"],
        partition_extractor=lambda row: row["title"],
        value_extractor=lambda _row: 1,
    ),
    public_partitions=titles,
)
budget.compute_budgets()
for title, metrics in sorted(loans, key=lambda found: -found[1].count):
    print(title, round(metrics.count))
