"""Callers of scikit-learn around a fit: a closed list of allowed ones, the rest refused by name.

An estimator cannot see what is done with it. It sees which functions are on the stack when it is copied
and when it is fitted; a copy remembers the first, in other threads and processes, too. What is on the
stack is judged by its module, in four kinds:

- what changes nothing (:data:`_NOTHING`), such as a pipeline, whose other steps must learn nothing;
- what scores fits on folds (:data:`_SCORES`): each fit keeps its promise, but scores, and what they
  choose, have no noise, and no (ε, δ) would be true of them;
- what fits several copies on the same rows (:data:`_SEVERAL`): the (ε, δ) of each is of that one alone;
- all else: it learns around the model, draws rows again, or seeds copies, and has no promise.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

from sklearn.utils import get_tags

from dpgrain.errors import ParameterError, ScoreWarning
from dpgrain.publishing import in_budget

_OURS, _PIPELINE = "sklearn.", "sklearn.pipeline"
_NOTHING = (
    "sklearn.base",
    "sklearn.utils.",
    "sklearn._config",
    "sklearn.ensemble._base",
    _PIPELINE,
)
_SCORES = (
    "sklearn.model_selection._validation",
    "sklearn.model_selection._search",
    "sklearn.model_selection._search_successive_halving",
    "sklearn.model_selection._plot",
)
# The module in which a search fits the estimator once more, with the parameters that it has chosen.
_REFITS = "sklearn.model_selection._search"
_SEVERAL = (
    "sklearn.multiclass",
    "sklearn.multioutput",
    "sklearn.ensemble._voting",
    "sklearn.compose._target",
)


def copied_by(before: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modules of scikit-learn that have made a copy, the innermost first.

    Args:
        before: those that have made what is copied.
    """
    return tuple(dict.fromkeys((*_around(), *before)))


def require_known_callers(copied: tuple[str, ...]) -> None:
    """Refuse a fit that scikit-learn makes for what has no promise, and warn of what is not covered.

    Args:
        copied: the modules of scikit-learn that have made this model by copying another.

    Raises:
        ParameterError: if a module stands around the fit that is not known to leave its promise whole;
            if a search fits with the parameters that it found, or nothing shows whether it does; or,
            where a budget or ledger is open, if one of several copies is fitted, or a step of a
            pipeline before the model learns from rows.
    """
    now = _around()
    every = tuple(dict.fromkeys((*now, *copied)))
    _check_others(every)
    _check_scored(now, copied)
    _check_several(every)
    _check_steps()


def _check_others(around: tuple[str, ...]) -> None:
    """Refuse what is not known to leave the promise whole."""
    for name in around:
        if name not in _SCORES and name not in _SEVERAL:
            raise ParameterError(
                f"a private model must not be fitted by {name}: what it learns around the model, the "
                "rows that it draws again and the seeds that it sets have no (ε, δ). Fit the model by "
                "itself, as the last step of a pipeline, or with tune={…}."
            )


def _check_scored(now: tuple[str, ...], copied: tuple[str, ...]) -> None:
    """Refuse the last fit of a search, or one that may be that, and warn of its other fits."""
    within = next((name for name in now if name in _SCORES), None)
    if within is None and any(name in _SCORES for name in copied):
        raise ParameterError(
            "n_jobs must be None where a search holds the model inside another estimator: from its "
            "threads and processes nobody sees whether scores without noise chose these parameters. "
            "State n_jobs for the search; of a copy that a search has made, make a new model."
        )
    if within == _REFITS:
        raise ParameterError(
            "refit must be False where the model is private: scores without noise chose these "
            "parameters, and no (ε, δ) would be true of the fit. Choose inside the promise instead, "
            "with tune={…}; or search public data, and fit with best_params_."
        )
    if within is not None:
        _warn(
            "each fit of a fold is a release of its own, and its score has no noise: no (ε, δ) covers "
            "scores or what they choose. On people's data choose parameters by tune={…}, inside the "
            "promise; on public data nothing is lost."
        )


def _check_several(around: tuple[str, ...]) -> None:
    """Refuse one of several copies inside a budget or ledger, and warn of it elsewhere."""
    for name in around:
        if name in _SEVERAL and in_budget():
            raise ParameterError(
                f"a private model must not be fitted by {name} inside a budget or ledger: how many "
                "copies it fits, and on what, may follow from people's rows. Fit each model by "
                "itself, with a share of the budget."
            )
        if name in _SEVERAL:
            _warn(
                f"{name} may fit several copies of a private model on the same rows: the (ε, δ) of "
                "each is of that copy alone, all of them together cost more, and what is learned "
                "from targets around them is not covered. Fit each model by itself, with a share of "
                "one budget."
            )


def _check_steps() -> None:
    """Refuse a step of a pipeline that learns inside a budget or ledger, and warn of it elsewhere."""
    for frame in _stack():
        pipeline: Any = frame.f_locals.get("self")
        if _module(frame) != _PIPELINE or not hasattr(pipeline, "steps"):
            continue
        for name, step in pipeline.steps[:-1]:
            if not _learns(step):
                continue
            if in_budget():
                raise ParameterError(
                    f"the step {name!r} of a pipeline must learn nothing inside a budget or ledger: "
                    "what it learns from rows is published without noise. Take a FunctionTransformer "
                    "of public numbers, or a FrozenEstimator that was fitted to public rows."
                )
            _warn(
                f"the step {name!r} of the pipeline learns from rows, and publishes what it learned "
                "without noise: the (ε, δ) is that of the model alone, for the features that it was "
                "given. Take a FunctionTransformer of public numbers, or a FrozenEstimator that was "
                "fitted to public rows."
            )


def warn_of_score() -> None:
    """Warn of a score without noise, but where scikit-learn asks for it, as its fits were warned of."""
    caller = sys._getframe(2)
    if not _module(caller).startswith("sklearn."):
        warnings.warn(
            "a score without noise is for whoever holds the rows: no (ε, δ) covers it. "
            "score_privately publishes one with an interval.",
            ScoreWarning,
            stacklevel=3,
        )


def _learns(step: Any) -> bool:
    """Return whether a step may learn from rows: all do but those that say that they need no fit."""
    if step is None or step == "passthrough" or type(step).__module__ == "sklearn.frozen._frozen":
        return False
    return bool(get_tags(step).requires_fit)


def _warn(text: str) -> None:
    # The caller of fit, above this function, the two that judge, the query, and fit itself.
    warnings.warn(text, ScoreWarning, stacklevel=6)


def _around() -> tuple[str, ...]:
    """The modules of scikit-learn on the stack that are more than nothing, the innermost first."""
    names = (_module(frame) for frame in _stack())
    return tuple(
        dict.fromkeys(
            name for name in names if name.startswith(_OURS) and not name.startswith(_NOTHING)
        )
    )


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _stack() -> Iterator[FrameType]:
    """The functions on the stack, from here outwards."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
