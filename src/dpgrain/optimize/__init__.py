"""Convex optimisation over any gradient oracle: losses, domains, solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.optimize.averages import Average, Last, RandomIterate, Tail, Uniform, Weighted
    from dpgrain.optimize.domains import Affine, Ball, Box, Domain, Simplex, Unconstrained
    from dpgrain.optimize.loss_functions import (
        Absolute,
        Hinge,
        Huber,
        Logistic,
        LossFunction,
        MarginLoss,
        PoissonLoss,
        Quantile,
        Regularised,
        Softmax,
        Squared,
    )
    from dpgrain.optimize.models import Linear, Model, Proximal, Truncated
    from dpgrain.optimize.schedules import Constant, Power, Schedule, StronglyConvex
    from dpgrain.optimize.solvers import (
        Adagrad,
        CoinBetting,
        FullMatrixAdagrad,
        Oracle,
        Sgd,
        Solver,
        run,
    )

__all__ = [
    "Absolute",
    "Adagrad",
    "Affine",
    "Average",
    "Ball",
    "Box",
    "CoinBetting",
    "Constant",
    "Domain",
    "FullMatrixAdagrad",
    "Hinge",
    "Huber",
    "Last",
    "Linear",
    "Logistic",
    "LossFunction",
    "MarginLoss",
    "Model",
    "Oracle",
    "PoissonLoss",
    "Power",
    "Proximal",
    "Quantile",
    "RandomIterate",
    "Regularised",
    "Schedule",
    "Sgd",
    "Simplex",
    "Softmax",
    "Solver",
    "Squared",
    "StronglyConvex",
    "Tail",
    "Truncated",
    "Unconstrained",
    "Uniform",
    "Weighted",
    "run",
]

lazy_package(
    __name__,
    {
        "dpgrain.optimize.averages": (
            "Average",
            "Last",
            "RandomIterate",
            "Tail",
            "Uniform",
            "Weighted",
        ),
        "dpgrain.optimize.domains": ("Affine", "Ball", "Box", "Domain", "Unconstrained", "Simplex"),
        "dpgrain.optimize.loss_functions": (
            "Absolute",
            "Hinge",
            "Huber",
            "Logistic",
            "LossFunction",
            "MarginLoss",
            "PoissonLoss",
            "Quantile",
            "Regularised",
            "Softmax",
            "Squared",
        ),
        "dpgrain.optimize.models": ("Linear", "Model", "Proximal", "Truncated"),
        "dpgrain.optimize.schedules": ("Constant", "Power", "Schedule", "StronglyConvex"),
        "dpgrain.optimize.solvers": (
            "Adagrad",
            "CoinBetting",
            "FullMatrixAdagrad",
            "Oracle",
            "Sgd",
            "Solver",
            "run",
        ),
    },
)
