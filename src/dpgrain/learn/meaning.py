"""Explanations of a fit: its units, its coefficients, and clipping.

Explanations depend only on public numbers and published results.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain.errors import CareWarning
from dpgrain.gradients.norms import LARGEST_BOUND
from dpgrain.units import Element, Record, Unit

if TYPE_CHECKING:
    from dpgrain.gradients.norms import NormHistogram
    from dpgrain.learn.model import LinearModel

# Share of the users that should affect a fit, below which it is doubtful, and the number of
# standard deviations for significance.
_EXPECTED_SHARE, _CERTAIN = 0.5, 3.0
# Norm of a classifier's gradient per square root of the number of coefficients above which features
# are not on a scale of about 1 (between −1 and 1, it is at most √2), and the share of blocks that
# indicates it.
_FAR_OFF_SCALE, _SOME = 5.0, 0.1
# Maximum number of labels in a sentence.
_NAMED = 10
# Share of users without rows of selected labels above which a fit is reported.
_MANY = 0.1
# Share of clipped gradients above which a fit is reported as biased.
_MOST_CLIPPED = 0.5
# Smallest share of clipped units that is printed as a percentage.
_SMALLEST_PERCENT = 0.005


def meaning(model: LinearModel) -> dict[str, str]:
    """Explain the units, coefficients, clipping and ridge of a fitted model, fact by fact."""
    ask = model.asked_
    ridge = (
        f"A ridge of {ask.l2:g} pulls the coefficients that predictions use towards 0; corrected ones "
        "and their intervals do not include this."
    )
    facts = {
        "value": _added(model),
        "Weights": whom(ask.promise.unit),
        "Clipping": " ".join(clipped(model)),
        "Ridge": ridge if ask.l2 else "",
        "Labels": " ".join(_selected(model)),
        "Missing": _missing(model),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _selected(model: LinearModel) -> tuple[str, ...]:
    """Describe selected labels."""
    labels: Any = getattr(model, "classes_", None)
    # The type of boolean targets determines both labels.
    if labels is None or labels.dtype == np.bool_ or model.parameters_.get("classes") is not None:
        return ()
    named = ", ".join(str(label) for label in labels[:_NAMED]) + ", …" * (len(labels) > _NAMED)
    return (
        f"The labels were not given, and {len(labels)} were selected privately: {named}. Rows with "
        "other labels were dropped.",
    )


def _unselected(model: LinearModel) -> tuple[str, ...]:
    """Report that selected labels exclude many users, according to the published norms."""
    looks, unit = model.fitted_.looks, model.asked_.promise.unit
    told = _selected(model)
    by_element = isinstance(unit, Element) or getattr(unit, "max_elements", None) is not None
    if not told or not looks or by_element:
        return ()
    # At the start, every row with a selected label has a nonzero gradient.
    start, n = looks[0], model.fitted_.n_users or 0
    if start.blocks + 2 * start.blocks_sd >= (1 - _MANY) * n:
        return ()
    return (
        f"{told[0]} About {start.blocks:,.0f} of {n:,} {model.asked_.promise.level}s have rows that "
        "move the fit; name all labels with classes=[…].",
    )


def _missing(model: LinearModel) -> str:
    """Describe the replacement of missing numbers."""
    low = (
        ""
        if getattr(model, "encoding_", None) is None
        else " (the lower end of its range, if it has one)"
    )
    return (
        f"Missing or non-numeric features were set to 0{low}; rows without a target were dropped."
    )


def _added(model: LinearModel) -> str:
    """Describe the effect of a coefficient per change of its feature."""
    step = "1" if getattr(model, "encoding_", None) is None else 'the amount in column "per"'
    return f"A coefficient is the change in {model.adds_to} when its feature increases by {step}."


def whom(unit: Unit) -> str:
    """Describe the average unit to which the coefficients of a fit refer.

    >>> whom(Record())
    'Every record has the same weight: the coefficients describe the average record.'
    """
    if isinstance(unit, Record):
        return "Every record has the same weight: the coefficients describe the average record."
    if isinstance(unit, Element) or unit.max_elements is not None:
        kept = "" if isinstance(unit, Element) else f", of {unit.max_elements} cells at most"
        return (
            f"Every element (the mean of one user's records in one cell{kept}) has the same weight: "
            "the coefficients describe the average element, not the average record."
        )
    return (
        "Every user (the mean of all their records) has the same weight: the coefficients describe the "
        "average person, not the average record."
    )


def clipped(model: LinearModel) -> tuple[str, ...]:
    """Describe the clipping, with the share of clipped units if published; then its effect."""
    ask, clip, looks = model.asked_, model.fitted_.history.clip, model.fitted_.looks
    said = f"Mean gradients were clipped to norm {clip:.3g}"
    if ask.recipe is not None:
        return (f"The mean gradient of each {ask.promise.level} was clipped to norm {clip:.3g}.",)
    if ask.clipping != "auto":
        return (
            f"{said}; how many were clipped was not measured.",
            "If many were, the coefficients are biased; clip='auto' chooses a bound that few exceed.",
        )
    if not looks or not looks[-1].resolved:
        return (
            f"{said}; noise hides how many were clipped.",
            "The coefficients may be biased; more users or a larger ε would help.",
        )
    share, error = looks[-1].share_beyond(clip)
    most = f"{share + 2 * error:.0%}" if share + 2 * error >= _SMALLEST_PERCENT else "1%"
    affected = f"about {share:.0%}" if share > 2 * error else f"at most about {most}"
    margin = f" (±{2 * error:.0%})" if share > 2 * error >= _SMALLEST_PERCENT else ""
    return (
        f"{said}, which affected {affected} of {ask.promise.level}s{margin}.",
        f"This biases the coefficients if those {ask.promise.level}s differ from the rest. With more "
        "users or a larger ε, fewer are clipped.",
    )


def doubts(model: LinearModel) -> tuple[str, ...]:
    """Return doubts about a fit as a whole: early stopping, or suspicious norms."""
    fitted = model.fitted_
    if fitted.history.ended:
        return (fitted.history.ended,)
    if not fitted.looks:
        return ()
    # A row without error also has a zero gradient; few rows have one both at the start and later.
    level, most = model.asked_.promise.level, max(fitted.looks, key=lambda look: look.blocks)
    n, enough = fitted.n_users or 0, most.blocks + _CERTAIN * most.blocks_sd
    why = (
        "are targets written like the classes (1 is not the text 'yes'), and are they numbers if the "
        "model needs numbers"
    )
    if enough < _EXPECTED_SHARE * n:
        return (
            f"only about {most.blocks:,.0f} (±{2 * most.blocks_sd:,.0f}) {level}s of {n:,} users have "
            f"rows that affect the fit: {why}?",
        )
    if not most.resolved:
        return (
            f"noise hides whether any {level} has rows that affect the fit: there are too few for this "
            f"ε, or targets are missing; {why}?",
        )
    off_scale = _off_scale(model, fitted.looks) if hasattr(model, "classes_") else ()
    return off_scale or _too_short(model)


def _too_short(model: LinearModel) -> tuple[str, ...]:
    """Report that the clipping bound biases a fit, according to its published norms."""
    looks, clip = model.fitted_.looks, model.fitted_.history.clip
    if not looks or not looks[-1].resolved:
        return ()
    share, error = looks[-1].share_beyond(clip)
    last = model.asked_.clipping == "auto" and clip >= LARGEST_BOUND
    if not last and share - _CERTAIN * error <= _MOST_CLIPPED:
        return ()
    ends = ", the largest that clip='auto' chooses" if last else ""
    if not last:
        remedy = "pass a larger clip=, or clip='auto'"
    elif model.parameters_.get("target_bound", 1.0) is None:
        remedy = "pass target_bound=, a public bound on the size of a target"
    else:
        remedy = "divide features and targets by public numbers so that most lie between −1 and 1"
    return (
        f"about {share:.0%} of mean gradients exceed the clipping bound {clip:.4g}{ends}, so the "
        f"coefficients are biased; {remedy}.",
    )


def warn_of(model: LinearModel) -> None:
    """Warn of biased or dropped rows, based only on published numbers."""
    for text in (*_too_short(model), *_unselected(model)):
        warnings.warn(text, CareWarning, stacklevel=2)


def _off_scale(model: LinearModel, looks: Sequence[NormHistogram]) -> tuple[str, ...]:
    """Report gradients of a classifier that are too large for features on a scale of 1."""
    length = _FAR_OFF_SCALE * math.sqrt(model.n_features_in_ + model.asked_.fit_intercept)
    for look in looks:
        share, error = look.share_beyond(length)
        if look.resolved and share - _CERTAIN * error > _SOME:
            return (
                f"about {share:.0%} of mean gradients have a norm above {length:.3g}, because features "
                "are far from a scale of 1: no step size suits all coefficients, and they may be "
                "inaccurate; divide each feature by a public number, so that it is between −1 and 1.",
            )
    return ()
