"""Loans of each title, private for whole readers, by Tumult Analytics."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddRowsWithID,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    PureDPBudget,
    QueryBuilder,
    Session,
)

os.environ["PYSPARK_PYTHON"] = sys.executable
titles = json.loads(Path("titles.json").read_text())
spark = SparkSession.builder.getOrCreate()
session = Session.from_dataframe(
    PureDPBudget(1.0),
    "loans",
    spark.read.parquet("loans.parquet").select("reader", "title"),
    protected_change=AddRowsWithID("reader"),
)
query = (
    QueryBuilder("loans")
    .enforce(MaxGroupsPerID("title", 12))
    .enforce(MaxRowsPerGroupPerID("title", 1))
    .groupby(KeySet.from_dict({"title": titles}))
    .count()
)
session.evaluate(query, PureDPBudget(1.0)).orderBy("count", ascending=False).show()
