"""Scores of predictions in words, with their calibration and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._formatting import quantity

if TYPE_CHECKING:
    from dpgrain.learn.accuracy import Accuracy
    from dpgrain.learn.auc import Auc, Band
    from dpgrain.learn.r2 import R2
    from dpgrain.publishing.guarantee import Guarantee


def accuracy_text(score: Accuracy) -> str:
    """Return an accuracy as printed."""
    level, own = score.guarantee.level, _interval(score.value, score.low, score.high)
    base = _interval(score.base, score.base_low, score.base_high)
    return (
        f"Accuracy for the average {level}: {own}; always predicting the most common class: "
        f"{base}. {_units(score.units, level)}\n{_guarantee(score.guarantee)}"
    )


def auc_text(score: Auc) -> str:
    """Return an AUC as printed, with its calibration."""
    level, own = score.guarantee.level, _interval(score.value, score.low, score.high)
    base = _interval(score.positive, score.positive_low, score.positive_high)
    bands = "\n".join(
        f"  {band.from_:.1f} to {band.to:.1f}: {_positive(band)} ({max(band.share, 0.0):.1%} of rows)"
        for band in score.calibration
    )
    same = "" if level == "record" else "same weights; "
    return (
        f"AUC of rows{_weights(level)}: {own}; guessing has 0.5. Share of positive rows: {base}. "
        f"{_units(score.units, level)}\n"
        f"Share of positive rows by predicted probability ({same}each 95% interval separately):\n"
        f"{bands}\n{_guarantee(score.guarantee)}"
    )


def r2_text(score: R2) -> str:
    """Return an R² as printed."""
    level, own = score.guarantee.level, _interval(score.value, score.low, score.high)
    return (
        f"R² of rows{_weights(level)}: {own}; predicting the mean has 0. Targets and predictions are "
        f"clamped to [{score.lower:g}, {score.upper:g}]. {_units(score.units, level)}\n"
        f"{_guarantee(score.guarantee)}"
    )


def _positive(band: Band) -> str:
    """Describe the share of positive rows."""
    if band.low <= 0 and band.high >= 1:
        return "not known"
    return _interval(band.positive, band.low, band.high)


def _interval(value: float, low: float, high: float) -> str:
    """Describe a number and its interval."""
    return f"{value:.4g}, 95% from {low:.4g} to {high:.4g}"


def _guarantee(guarantee: Guarantee) -> str:
    """Return the guarantee in short, and where it is in full."""
    return f"{guarantee.summary}\nFull guarantee: print(.guarantee)"


def _units(units: float, level: str) -> str:
    """Describe the number of units of a score, and what its intervals do not cover."""
    return (
        f"From about {quantity(max(round(units), 0), level)}; intervals cover the noise, and not which "
        f"{level}s happened to have rows."
    )


def _weights(level: str) -> str:
    """Describe the weights of rows, after a comma; empty for equal weights."""
    return "" if level == "record" else f", each weighted by 1 ÷ its {level}'s number of rows"
