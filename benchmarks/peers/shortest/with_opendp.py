"""Loans of each title, private for whole readers, by OpenDP."""

import json
from pathlib import Path

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
titles = json.loads(Path("titles.json").read_text())
context = dp.Context.compositor(
    data=pl.scan_parquet("loans.parquet").select("reader", "title"),
    privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("reader")),
    privacy_loss=dp.loss_of(epsilon=1.0),
    split_evenly_over=1,
    margins=[dp.polars.Margin(by=[], max_length=1_000_000)],
)
query = (
    context.query()
    .truncate_per_group(16)
    .group_by("title")
    .agg(dp.len(signed=True).alias("loans"))
    .with_keys(pl.DataFrame({"title": titles}))
)
print(query.release().collect().sort("loans", descending=True))
