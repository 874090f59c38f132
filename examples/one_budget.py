"""Make several releases within one promise, each chosen after the previous ones."""

import dpgrain as dg
from dpgrain.datasets import catalogue, loans

table = dg.read(loans(), user="reader", n_users=3000)
unit = dg.Element("subject")

with dg.budget(1.0, 1e-6) as budget:
    kept = dg.mean(table, "days_kept", bounds=(0, 60), unit=unit, share=0.5)
    top = dg.top(table, "title", k=3, domain=list(catalogue()), unit=unit, share=0.5)
    print(kept.to_pandas().round(1))
    print(top.to_pandas().round(0))
    print(budget)
    # The budget is spent: a release that would break the promise raises before anything is read.
    try:
        dg.count(table, unit=unit, share=0.1)
    except dg.ParameterError as error:
        print(error)
