"""Privacy cost of cross-validation."""

from __future__ import annotations

from dataclasses import replace

from dpgrain import _validate
from dpgrain.publishing.guarantee import Guarantee, check_guarantee


def cross_validated(guarantee: Guarantee, folds: int) -> Guarantee:
    """Return the guarantee of cross-validation with folds split by user.

    Args:
        guarantee: the guarantee of one fit.
        folds: the number of folds, at least 2; each user is in all fits but one.

    Returns:
        the guarantee of all fits. Scores on held-out users have no noise: they are for internal use
        only, and publishing one is another release.

    Raises:
        ParameterError: if ``folds`` is not an integer of at least 2.

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> one = Guarantee("user", "", "zero_out", 1e-6, Gaussian(9.0, Contribution(block="user")))
    >>> round(one.epsilon(), 2), round(cross_validated(one, 5).epsilon(), 2)
    (0.44, 0.93)
    """
    folds = _validate.integer(minimum=2, folds=folds)
    check_guarantee(guarantee)
    event = guarantee.event
    for _ in range(folds - 2):
        event = event + guarantee.event
    fact = f"{folds} folds of users, each left out of one fit"
    return replace(guarantee, event=event, public=(*guarantee.public, fact))
