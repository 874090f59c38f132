"""Types of fits, by their names in the command line and in release files."""

from __future__ import annotations

from collections.abc import Mapping

#: Estimator of :mod:`dpgrain.learn` for each type.
ESTIMATORS: Mapping[str, str] = {
    "logistic": "LogisticRegression",
    "linear": "LinearRegression",
    "huber": "HuberRegressor",
    "quantile": "QuantileRegressor",
    "svm": "LinearSVC",
    "poisson": "PoissonRegressor",
}
