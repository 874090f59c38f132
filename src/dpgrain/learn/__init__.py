"""Scikit-learn estimators that are fitted under differential privacy, at the unit you choose."""

from dpgrain.learn.base import LinearModel
from dpgrain.learn.linear import (
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
)

__all__ = [
    "HuberRegressor",
    "LinearModel",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "PoissonRegressor",
    "QuantileRegressor",
]
