"""Losses of privacy: what happened (events), what it costs (losses), how much noise it takes."""

from dpgrain.accounting.calibrate import (
    calibrate_bounded_range,
    calibrate_gaussian,
    calibrate_laplace,
    calibrate_truncated_geometric,
    gaussian_multipliers,
)
from dpgrain.accounting.contribution import Contribution
from dpgrain.accounting.events import (
    ApproximateDP,
    BoundedRange,
    Compose,
    Event,
    Gaussian,
    Laplace,
    PureDP,
    Selection,
    TruncatedGeometric,
    selection_leak,
)
from dpgrain.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from dpgrain.accounting.loss import Loss

__all__ = [
    "ApproximateDP",
    "BoundedRange",
    "Compose",
    "Contribution",
    "Event",
    "Gaussian",
    "Laplace",
    "Loss",
    "PureDP",
    "Selection",
    "TruncatedGeometric",
    "calibrate_bounded_range",
    "calibrate_gaussian",
    "calibrate_laplace",
    "calibrate_truncated_geometric",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_multipliers",
    "selection_leak",
]
