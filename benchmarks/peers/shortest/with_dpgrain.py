"""Loans of each title, private for whole readers, by dpgrain."""

import json
from pathlib import Path

import dpgrain as dg

titles = json.loads(Path("titles.json").read_text())
table = dg.read("loans.parquet", user="reader")
loans = dg.histogram(table, "title", domain=titles, unit=dg.User(), epsilon=1.0, delta=1e-6)
print(loans)
