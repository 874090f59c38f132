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
from dpgrain.learn.ask import Ask
from dpgrain.units import Element, Record, Unit

if TYPE_CHECKING:
    from dpgrain.gradients.norms import Norms
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


def meaning(model: LinearModel) -> tuple[str, ...]:
    """Explain the units, coefficients, clipping and ridge of a fitted model."""
    ask, fitted = model.asked_, model.fitted_
    ridge = (
        f"A ridge of {ask.l2:g} pulls the coefficients that predictions use towards 0; corrected ones "
        "and intervals, where there are any, are without its pull."
    )
    return (
        whom(ask.promise.unit),
        _added(model),
        _clipped(ask, fitted.history.clip, fitted.looks),
        *([ridge] if ask.l2 else []),
        *_selected(model),
        _missing(model),
    )


def _selected(model: LinearModel) -> tuple[str, ...]:
    """Describe selected labels."""
    labels: Any = getattr(model, "classes_", None)
    # The type of boolean targets determines both labels.
    if labels is None or labels.dtype == np.bool_ or model.parameters_.get("classes") is not None:
        return ()
    named = ", ".join(str(label) for label in labels[:_NAMED]) + ", …" * (len(labels) > _NAMED)
    return (
        f"The labels were not stated, and {len(labels)} were selected privately: {named}. Rows with "
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
        else " (the low end of its range, where one is stated)"
    )
    return f"A feature that is not a number counted as 0{low}; a row without a target was left out."


def _added(model: LinearModel) -> str:
    """Describe the effect of a coefficient per change of its feature."""
    grows = "1" if getattr(model, "encoding_", None) is None else "what stands beside it"
    return f"A coefficient is what {model.adds_to} gains when its feature grows by {grows}."


def whom(unit: Unit) -> str:
    """Describe the average unit to which the coefficients of a fit refer.

    >>> whom(Record())
    'Each record counts once: the coefficients are for the average record.'
    """
    if isinstance(unit, Record):
        return "Each record counts once: the coefficients are for the average record."
    if isinstance(unit, Element) or unit.max_elements is not None:
        kept = "" if isinstance(unit, Element) else f" of the {unit.max_elements} that are kept"
        return (
            f"Each user counts once in each cell{kept}, by the mean of the records there: the "
            "coefficients are for the average element, not for the average record."
        )
    return (
        "Each user counts once, by the mean of all their records: the coefficients are for the average "
        "person, not for the average record."
    )


def _clipped(ask: Ask, clip: float, looks: tuple[Norms, ...]) -> str:
    """Describe the clipping and, if it was published, the share of clipped units."""
    block = ask.promise.level
    if ask.recipe is not None:
        return f"The recipe lets the mean gradient of a {block} count up to a length of {clip:.3g}."
    if ask.clipping != "auto":
        return (
            f"Mean gradients that are longer than {clip:.3g} are shortened to it, whatever ε is: where "
            "many are longer the coefficients are biased, and clip='auto' finds a bound that few pass."
        )
    if not looks or not looks[-1].resolved:
        return (
            f"Mean gradients that are longer than {clip:.3g} are shortened to it; noise hid how many "
            "are, so that the coefficients may be biased, which more users or a larger ε would change."
        )
    share, error = looks[-1].share_beyond(clip)
    return (
        f"Mean gradients that are longer than {clip:.3g} are shortened to it: about {share:.0%} of "
        f"them, give or take {2 * error:.0%}, which biases the coefficients where those differ from "
        "the rest; the share falls with more users or a larger ε."
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
        "is the target written as the classes are (1 is not the text 'yes'), and are targets numbers "
        "where numbers are asked"
    )
    if enough < _EXPECTED_SHARE * n:
        return (
            f"only about {most.blocks:,.0f} {level}s of {n:,} users have rows that move the fit, give "
            f"or take {2 * most.blocks_sd:,.0f}: {why}?",
        )
    if not most.resolved:
        return (
            f"it does not stand out from noise that any {level} has rows that move the fit: there are "
            f"too few for this ε, or targets are left out; {why}?",
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
        remedy = "state a larger clip=, or clip='auto'"
    elif model.parameters_.get("target_bound", 1.0) is None:
        remedy = "state target_bound=, a public bound on the size of a target"
    else:
        remedy = "divide features and targets by public numbers so that most lie between −1 and 1"
    return (
        f"about {share:.0%} of mean gradients are longer than the clipping bound {clip:.4g}{ends}, so "
        f"that the coefficients are biased; {remedy}.",
    )


def warn_of(model: LinearModel) -> None:
    """Warn of biased or dropped rows, based only on published numbers."""
    for text in (*_too_short(model), *_unselected(model)):
        warnings.warn(text, CareWarning, stacklevel=2)


def _off_scale(model: LinearModel, looks: Sequence[Norms]) -> tuple[str, ...]:
    """Report gradients of a classifier that are too large for features on a scale of 1."""
    length = _FAR_OFF_SCALE * math.sqrt(model.n_features_in_ + model.asked_.fit_intercept)
    for look in looks:
        share, error = look.share_beyond(length)
        if look.resolved and share - _CERTAIN * error > _SOME:
            return (
                f"about {share:.0%} of mean gradients are longer than {length:.3g}, as they are where "
                "features are far from a scale of 1: no step suits all coefficients then, and they may "
                "be far off; divide each feature by a public number, so that it lies between −1 and 1.",
            )
    return ()
