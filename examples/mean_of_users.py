"""Publish the mean of people's vectors, which are close together if each person has many records."""

import numpy as np

import dpgrain as dg

rng = np.random.default_rng(0)
users = np.repeat(np.arange(4000), 20)  # 4,000 people, 20 records of 10 numbers each
X = rng.normal(0.2, 0.3, (users.size, 10))

mean = dg.mean_of_users(X, users=users, n_users=4000, bound=5.0, epsilon=1.0, delta=1e-6)
print(mean.value.round(2))
print(f"{mean.method}: at most {mean.error:.3f} from the mean of all users, with 95% confidence")
print(mean.guarantee)
