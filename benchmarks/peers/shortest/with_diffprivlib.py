"""Loans of each title, private for single loans, by diffprivlib, which knows no readers."""

import json
from pathlib import Path

import pyarrow.parquet as pq
from diffprivlib.tools import histogram

titles = json.loads(Path("titles.json").read_text())
number = {title: place for place, title in enumerate(titles)}
codes = [number[title] for title in pq.read_table("loans.parquet")["title"].to_pylist()]
loans, _ = histogram(codes, epsilon=1.0, bins=len(titles), range=(-0.5, len(titles) - 0.5))
for count, title in sorted(zip(loans, titles, strict=True), reverse=True):
    print(title, count)
