"""The kinds of fit, by the names that the command line and files of releases have for them."""

from __future__ import annotations

from collections.abc import Mapping

#: The estimator of :mod:`dpgrain.learn` of each kind.
KINDS: Mapping[str, str] = {
    "logistic": "LogisticRegression",
    "linear": "LinearRegression",
    "huber": "HuberRegressor",
    "quantile": "QuantileRegressor",
    "svm": "LinearSVC",
    "poisson": "PoissonRegressor",
}
