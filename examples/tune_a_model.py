"""Choose the parameters of a model inside its guarantee, which GridSearchCV cannot do."""

import numpy as np

from dpgrain.learn import LogisticRegression

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (20_000, 2))
y = rng.random(20_000) < 1 / (1 + np.exp(-4 * X[:, 0]))

model = LogisticRegression(
    epsilon=1.0,
    delta=1e-6,
    n_users=20_000,
    classes=[0, 1],
    rounds=20,
    tune={"l2": [0.0, 0.3], "fit_intercept": [True, False]},
)
model.fit(X, y, users=np.arange(20_000))
print(f"chosen: {model.tuned_}, at ε = {model.guarantee_.epsilon():.2f} for everything")
print(f"accuracy {model.score(X, y):.2f}, on the same rows: for whoever holds them")
