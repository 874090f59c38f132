"""Publish counts from a table, and read the guarantees of one release for each unit."""

import dpgrain as dg
from dpgrain.datasets import catalogue, loans

# A table of Arrow; dg.read takes files and frames of pandas or Polars as well.
table = dg.read(loans(), user="reader", n_users=3000)

# All loans of one reader on one subject are protected. The list of subjects is public.
subjects = dg.count(
    table,
    by="subject",
    domain=sorted({*catalogue().values()}),
    unit=dg.Element("subject"),
    epsilon=1.0,
    delta=1e-6,
)
print(subjects.largest(3).to_pandas().round(0))
print(f"one subject of one reader: ε = {subjects.guarantee.epsilon():.2f}")
print(f"four subjects of one reader: ε = {subjects.guarantee.epsilon(units=4):.2f}")
subjects.report("subjects.html")
