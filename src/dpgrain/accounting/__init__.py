"""Privacy accounting: events, their privacy losses, and calibration of noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.accounting.calibration import (
        Calibration,
        calibrate,
        calibrate_bounded_range,
        calibrate_gaussian,
        calibrate_laplace,
        calibrate_truncated_geometric,
    )
    from dpgrain.accounting.contribution import Contribution
    from dpgrain.accounting.events.additive import Gaussian, Laplace
    from dpgrain.accounting.events.approximate import StatisticallyClose
    from dpgrain.accounting.events.base import Compose, Event, Neighbours, Parallel
    from dpgrain.accounting.events.best_of import SelectBest
    from dpgrain.accounting.events.choices import (
        AboveThreshold,
        BoundedRange,
        ExponentialMechanism,
        SoftCore,
    )
    from dpgrain.accounting.events.opaque import RDP, ZCDP, ApproximateDP, PureDP
    from dpgrain.accounting.events.partition_selection import (
        AdaptiveSelection,
        Selection,
        TruncatedGeometric,
    )
    from dpgrain.accounting.events.region_events import Scoped
    from dpgrain.accounting.events.shuffling import Binomial, Poisson
    from dpgrain.accounting.events.subsampling import BandedGaussian, Participation, SampledGaussian
    from dpgrain.accounting.losses.gaussian import gaussian_delta, gaussian_epsilon
    from dpgrain.accounting.losses.loss import Loss

__all__ = [
    "RDP",
    "ZCDP",
    "AboveThreshold",
    "AdaptiveSelection",
    "ApproximateDP",
    "BandedGaussian",
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
    "Neighbours",
    "Parallel",
    "Participation",
    "Poisson",
    "PureDP",
    "SampledGaussian",
    "Scoped",
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
]

lazy_package(
    __name__,
    {
        "dpgrain.accounting.calibration": (
            "Calibration",
            "calibrate",
            "calibrate_bounded_range",
            "calibrate_gaussian",
            "calibrate_laplace",
            "calibrate_truncated_geometric",
        ),
        "dpgrain.accounting.contribution": ("Contribution",),
        "dpgrain.accounting.events.base": ("Neighbours", "Compose", "Event", "Parallel"),
        "dpgrain.accounting.events.best_of": ("SelectBest",),
        "dpgrain.accounting.events.choices": (
            "AboveThreshold",
            "BoundedRange",
            "ExponentialMechanism",
            "SoftCore",
        ),
        "dpgrain.accounting.events.opaque": ("ApproximateDP", "PureDP", "RDP", "ZCDP"),
        "dpgrain.accounting.events.partition_selection": (
            "AdaptiveSelection",
            "Selection",
            "TruncatedGeometric",
        ),
        "dpgrain.accounting.events.approximate": ("StatisticallyClose",),
        "dpgrain.accounting.events.additive": ("Gaussian", "Laplace"),
        "dpgrain.accounting.events.subsampling": (
            "BandedGaussian",
            "Participation",
            "SampledGaussian",
        ),
        "dpgrain.accounting.events.region_events": ("Scoped",),
        "dpgrain.accounting.events.shuffling": ("Binomial", "Poisson"),
        "dpgrain.accounting.losses.gaussian": ("gaussian_delta", "gaussian_epsilon"),
        "dpgrain.accounting.losses.loss": ("Loss",),
    },
)
