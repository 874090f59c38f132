"""Publish statistics of people, not records: means, quantiles and shares of whole users."""

import dpgrain as dg
from dpgrain.datasets import loans

table = dg.read(loans(), user="reader", n_users=3000)
people = table.per_user(books="count", subjects=("subject", "nunique"))

with dg.budget(2.0, 1e-6) as budget:
    books = dg.mean(people, "books", bounds=(0, 300), unit=dg.User(), share=0.4)
    ranks = dg.quantiles(people, "books", [0.25, 0.5, 0.9], unit=dg.User(), share=0.3)
    shares = dg.distribution(people, "subjects", [2, 5, 8], unit=dg.User(), share=0.3)
print(books.to_pandas().round(1))
print(ranks.to_pandas().round(1))
print(shares.to_pandas().round(3))
print(f"all of it together: ε = {budget.epsilon:g} for all that a reader ever did")
