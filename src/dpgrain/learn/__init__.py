"""Scikit-learn estimators with differential privacy for any privacy unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package, require

if TYPE_CHECKING:
    from dpgrain.learn.accuracy import Accuracy, accuracy
    from dpgrain.learn.auc import Auc, Band, auc
    from dpgrain.learn.confidence import Evidence, Intervals
    from dpgrain.learn.estimators import (
        HuberRegressor,
        LinearRegression,
        LinearSVC,
        LogisticRegression,
        PoissonRegressor,
        QuantileRegressor,
        load,
    )
    from dpgrain.learn.minimise import Minimum, minimise
    from dpgrain.learn.model import LinearModel
    from dpgrain.learn.r2 import R2, r2
    from dpgrain.learn.rounds import History
    from dpgrain.learn.tuning import cross_validated

__all__ = [
    "R2",
    "Accuracy",
    "Auc",
    "Band",
    "Evidence",
    "History",
    "HuberRegressor",
    "Intervals",
    "LinearModel",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "Minimum",
    "PoissonRegressor",
    "QuantileRegressor",
    "accuracy",
    "auc",
    "cross_validated",
    "load",
    "minimise",
    "r2",
]

require("sklearn", "threadpoolctl", "pandas")
lazy_package(
    __name__,
    {
        "dpgrain.learn.accuracy": ("Accuracy", "accuracy"),
        "dpgrain.learn.auc": ("Auc", "Band", "auc"),
        "dpgrain.learn.model": ("LinearModel",),
        "dpgrain.learn.confidence": ("Evidence", "Intervals"),
        "dpgrain.learn.estimators": (
            "HuberRegressor",
            "LinearRegression",
            "LinearSVC",
            "LogisticRegression",
            "PoissonRegressor",
            "QuantileRegressor",
            "load",
        ),
        "dpgrain.learn.minimise": ("Minimum", "minimise"),
        "dpgrain.learn.r2": ("R2", "r2"),
        "dpgrain.learn.rounds": ("History",),
        "dpgrain.learn.tuning": ("cross_validated",),
    },
)
