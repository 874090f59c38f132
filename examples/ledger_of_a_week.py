"""Publish every day and keep a lasting promise: a ledger refuses releases that would break it."""

import datetime

import numpy as np
import pyarrow as pa

import dpgrain as dg

first = datetime.date(2026, 3, 1)
days = [first + datetime.timedelta(days=number % 7) for number in range(2100)]
visits = pa.table({"who": np.arange(2100) % 200, "day": pa.array(days)})
table = dg.read(visits, user="who")

promise = dg.LastingPromise.of(dg.User(), epsilon=2.0, delta=1e-6, window=dg.AnyDays(7, "day"))
with dg.Ledger.create("visits.ledger", name="visits", promises=[promise], user="who") as ledger:
    for day in sorted(set(days)):
        found = dg.count(
            table.where(day=str(day)), unit=dg.User(), clip=5.0, epsilon=0.5, delta=1e-9
        )
        print(day, found.estimate.round(0).tolist())
    print({name: round(ledger.left(name), 2) for name in ledger.promises}, "is left")
