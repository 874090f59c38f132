"""Fit a model for the average person, and check the uncertainty of its coefficients."""

import numpy as np

from dpgrain import User
from dpgrain.learn import LogisticRegression

rng = np.random.default_rng(0)
users = np.repeat(np.arange(20_000), 4)
X = rng.uniform(-1, 1, (80_000, 2))
y = rng.random(80_000) < 1 / (1 + np.exp(-2 * X[:, 0] + X[:, 1]))

model = LogisticRegression(
    unit=User(), epsilon=1.0, delta=1e-6, n_users=20_000, intervals=0.2, classes=[0, 1]
)
model.fit(X, y, users=users)
print(model.confidence_intervals())
print(model.guarantee_)
model.save("model.json")
