"""Fits that scikit-learn makes to score them: its searches choose by scores that have no noise.

`GridSearchCV` and the like clone an estimator, fit the copies on folds, and score them on people's
data. Each fit keeps its promise. The scores, and what they choose, are further outputs that no noise
hides, and no (ε, δ) would be true of them. An estimator cannot see what its scores are used for. It can
see that it is fitted inside :mod:`sklearn.model_selection`, in another process too, since the function
that fits a fold is on the stack there. Where another estimator fits it in threads or processes of its
own, that function is not; but a search fits copies, and these know that it made them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import FrameType

from dpgrain.errors import ParameterError, ScoreWarning

_SELECTION = "sklearn.model_selection."
# The module in which a search fits the estimator once more, with the parameters that it has chosen.
_REFITS = f"{_SELECTION}_search"


def warn_if_scored(*, copied: bool) -> None:
    """Warn of a fit that is made to be scored, and refuse one whose parameters scores have chosen.

    Args:
        copied: True if the model is a copy that was made in a search.

    Raises:
        ParameterError: if a search fits with the parameters that it found, which no (ε, δ) covers, or
            if nothing tells whether it does.
    """
    within = _selection()
    if within is None and copied:
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
        warnings.warn(
            "each fit of a fold is a release of its own, and its score has no noise: no (ε, δ) covers "
            "scores or what they choose. On people's data choose parameters by tune={…}, inside the "
            "promise; on public data nothing is lost.",
            ScoreWarning,
            stacklevel=3,
        )


def in_a_search() -> bool:
    """Return whether a function of scikit-learn's model selection is on the stack."""
    return _selection() is not None


def _selection() -> str | None:
    """The innermost module of scikit-learn's model selection on the stack; None if there is none."""
    return next((name for name in _callers() if name.startswith(_SELECTION)), None)


def _callers() -> Iterator[str]:
    """The modules of the functions on the stack, from here outwards."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
