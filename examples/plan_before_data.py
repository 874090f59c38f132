"""Compare the accuracy that each unit allows before any data are read."""

import dpgrain as dg

print(
    dg.planning.plan_units(n_users=3000, records=16, elements=4, cells=40, epsilon=1.0, delta=1e-6)
)
