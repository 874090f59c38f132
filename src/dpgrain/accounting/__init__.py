"""Losses of privacy: what happened (events), what it costs (losses), how much noise it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
    from dpgrain.accounting.binomial import Binomial, Poisson
    from dpgrain.accounting.calibrate import (
        Calibration,
        calibrate,
        calibrate_bounded_range,
        calibrate_gaussian,
        calibrate_laplace,
        calibrate_truncated_geometric,
        gaussian_multipliers,
    )
    from dpgrain.accounting.contribution import ONE_EACH, Contribution
    from dpgrain.accounting.events import (
        RDP,
        ZCDP,
        ApproximateDP,
        BoundedRange,
        Compose,
        Event,
        Gaussian,
        Laplace,
        Parallel,
        PureDP,
        Selection,
        TruncatedGeometric,
        selection_leak,
    )
    from dpgrain.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu, pure_mu
    from dpgrain.accounting.loss import Loss
    from dpgrain.accounting.sampled import Participation, SampledGaussian
    from dpgrain.accounting.select import SelectBest
    from dpgrain.accounting.threshold import AboveThreshold, ExponentialMechanism, SoftCore
    from dpgrain.accounting.variation import StatisticallyClose

__all__ = [
    "ONE_EACH",
    "RDP",
    "ZCDP",
    "AboveThreshold",
    "ApproximateDP",
    "Binomial",
    "BoundedRange",
    "Calibration",
    "Compose",
    "Contribution",
    "Event",
    "ExponentialMechanism",
    "Gaussian",
    "Laplace",
    "Loss",
    "Parallel",
    "Participation",
    "Poisson",
    "PureDP",
    "SampledGaussian",
    "SelectBest",
    "Selection",
    "SoftCore",
    "StatisticallyClose",
    "TruncatedGeometric",
    "calibrate",
    "calibrate_bounded_range",
    "calibrate_gaussian",
    "calibrate_laplace",
    "calibrate_truncated_geometric",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_multipliers",
    "pure_mu",
    "selection_leak",
]

face(
    __name__,
    {
        "dpgrain.accounting.binomial": ("Binomial", "Poisson"),
        "dpgrain.accounting.calibrate": (
            "Calibration",
            "calibrate",
            "calibrate_bounded_range",
            "calibrate_gaussian",
            "calibrate_laplace",
            "calibrate_truncated_geometric",
            "gaussian_multipliers",
        ),
        "dpgrain.accounting.contribution": ("ONE_EACH", "Contribution"),
        "dpgrain.accounting.events": (
            "RDP",
            "ZCDP",
            "ApproximateDP",
            "BoundedRange",
            "Compose",
            "Event",
            "Gaussian",
            "Laplace",
            "Parallel",
            "PureDP",
            "Selection",
            "TruncatedGeometric",
            "selection_leak",
        ),
        "dpgrain.accounting.gaussian": (
            "gaussian_delta",
            "gaussian_epsilon",
            "gaussian_mu",
            "pure_mu",
        ),
        "dpgrain.accounting.loss": ("Loss",),
        "dpgrain.accounting.sampled": ("Participation", "SampledGaussian"),
        "dpgrain.accounting.select": ("SelectBest",),
        "dpgrain.accounting.threshold": ("AboveThreshold", "ExponentialMechanism", "SoftCore"),
        "dpgrain.accounting.variation": ("StatisticallyClose",),
    },
)
