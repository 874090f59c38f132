"""Losses, domains, smoothing, solvers and localisation: optimisation over any gradient oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
    from dpgrain.optimize.averages import Average, Last, RandomIterate, Tail, Uniform, Weighted
    from dpgrain.optimize.betting import CoinBetting
    from dpgrain.optimize.descent import Adagrad, Sgd
    from dpgrain.optimize.domains import Affine, Ball, Box, Domain, Everywhere, Simplex
    from dpgrain.optimize.full_matrix import FullMatrixAdagrad
    from dpgrain.optimize.localisation import (
        Localisation,
        Phase,
        Phases,
        RegularisedPhases,
        Restarts,
        localise,
    )
    from dpgrain.optimize.losses import (
        Absolute,
        Hinge,
        Huber,
        Logistic,
        Loss,
        MarginLoss,
        Poisson,
        Quantile,
        Regularised,
        Softmax,
        Squared,
    )
    from dpgrain.optimize.models import Linear, Model, Proximal, Truncated
    from dpgrain.optimize.schedules import (
        Constant,
        DecreasingRestart,
        Power,
        Schedule,
        StronglyConvex,
    )
    from dpgrain.optimize.smoothing import Around, Moreau, Proximable, RandomizedBall
    from dpgrain.optimize.solvers import Oracle, Solver, run

__all__ = [
    "Absolute",
    "Adagrad",
    "Affine",
    "Around",
    "Average",
    "Ball",
    "Box",
    "CoinBetting",
    "Constant",
    "DecreasingRestart",
    "Domain",
    "Everywhere",
    "FullMatrixAdagrad",
    "Hinge",
    "Huber",
    "Last",
    "Linear",
    "Localisation",
    "Logistic",
    "Loss",
    "MarginLoss",
    "Model",
    "Moreau",
    "Oracle",
    "Phase",
    "Phases",
    "Poisson",
    "Power",
    "Proximable",
    "Proximal",
    "Quantile",
    "RandomIterate",
    "RandomizedBall",
    "Regularised",
    "RegularisedPhases",
    "Restarts",
    "Schedule",
    "Sgd",
    "Simplex",
    "Softmax",
    "Solver",
    "Squared",
    "StronglyConvex",
    "Tail",
    "Truncated",
    "Uniform",
    "Weighted",
    "localise",
    "run",
]

face(
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
        "dpgrain.optimize.betting": ("CoinBetting",),
        "dpgrain.optimize.descent": ("Adagrad", "Sgd"),
        "dpgrain.optimize.domains": ("Affine", "Ball", "Box", "Domain", "Everywhere", "Simplex"),
        "dpgrain.optimize.full_matrix": ("FullMatrixAdagrad",),
        "dpgrain.optimize.localisation": (
            "Localisation",
            "Phase",
            "Phases",
            "RegularisedPhases",
            "Restarts",
            "localise",
        ),
        "dpgrain.optimize.losses": (
            "Absolute",
            "Hinge",
            "Huber",
            "Logistic",
            "Loss",
            "MarginLoss",
            "Poisson",
            "Quantile",
            "Regularised",
            "Softmax",
            "Squared",
        ),
        "dpgrain.optimize.models": ("Linear", "Model", "Proximal", "Truncated"),
        "dpgrain.optimize.schedules": (
            "Constant",
            "DecreasingRestart",
            "Power",
            "Schedule",
            "StronglyConvex",
        ),
        "dpgrain.optimize.smoothing": ("Around", "Moreau", "Proximable", "RandomizedBall"),
        "dpgrain.optimize.solvers": ("Oracle", "Solver", "run"),
    },
)
