"""Private data of a fit, and its published result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import FloatArray
from dpgrain.accounting import Event
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.norms import NormHistogram
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.inputs.blocks import ArrangedRows
from dpgrain.learn.bounding import bounded
from dpgrain.learn.classes import Targets
from dpgrain.learn.confidence import Evidence
from dpgrain.learn.fit_config import Ask
from dpgrain.learn.rounds import History
from dpgrain.means import Contributions
from dpgrain.optimize import MarginLoss
from dpgrain.publishing import Charge
from dpgrain.publishing.facts import Fact

#: Labels of a classifier; None for numbers, or before labels are selected.
Classes: TypeAlias = NDArray[Any] | None
#: Function from a loss with known labels and a parameter to the mean gradients of blocks.
Gradients: TypeAlias = Callable[[MarginLoss, FloatArray], Contributions]


@dataclass(frozen=True, eq=False)
class FitForm:
    """Public form of the rows of a fit: all public facts for its plan.

    ``users`` are unread labels of users, or None for one user per row.
    """

    targets: Targets
    width: int
    loss: Callable[[Classes], MarginLoss]
    users: Any = None


@dataclass(frozen=True, eq=False)
class FitData:
    """Rows of a fit, (m, d), with their blocks."""

    X: Any
    targets: Targets
    rows: ArrangedRows
    users: Any
    loss: Callable[[Classes], MarginLoss]

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @property
    def users_with_rows(self) -> int:
        """Number of users with rows, which is private."""
        return self.rows.users

    @property
    def owners(self) -> NDArray[Any] | None:
        """User of each block."""
        return self.rows.owners

    def gradients(self, ask: Ask) -> Gradients:
        """Return the gradients of blocks; rows are copied once, in the order of blocks."""
        bound, values = ask.feature_bound, self.targets.values
        rows = self.rows.by_value(self.X, values) if ask.exact else self.rows
        blocks = LinearBlocks.arrange(
            self.X,
            values,
            rows.blocks,
            intercept=ask.fit_intercept,
            blocks=len(rows.owners),
            kept=rows.kept,
            read=None if bound is None else partial(bounded, bound=bound),
        )
        return partial(LinearGradients, blocks)


class ReadableData(Protocol):
    """Rows of a fit, local or on a cluster, as used by a curator's clipped means.

    Selecting labels and computing intervals require the rows of :class:`FitData`.
    """

    @property
    def targets(self) -> Targets:
        """Targets, with their public facts."""

    @property
    def loss(self) -> Callable[[Classes], MarginLoss]:
        """Function from labels to the loss of a record."""

    @property
    def width(self) -> int:
        """Number of features."""

    @property
    def users_with_rows(self) -> int:
        """Number of users with rows, which is private."""

    @property
    def owners(self) -> NDArray[Any] | None:
        """User of each block; None if users are not sampled."""

    def gradients(self, ask: Ask) -> Gradients:
        """Return the gradients of blocks."""


@dataclass(frozen=True, eq=False)
class FitResult:
    """Published result of all rounds of a fit, as stored in a model file.

    ``theta`` is (outputs·p,), on the scale of the fitted rows. ``rounds`` exclude the ``warm_up``.
    ``norms`` are noisy histograms of gradient norms, of which the last determines the bound. Older
    files have no ``n_users``.
    """

    theta: FloatArray
    outputs: int
    history: History
    rounds: int
    n_users: int | None
    sampled: bool = False
    classes: Classes = None
    evidence: Evidence | None = None
    norms: tuple[NormHistogram, ...] = ()
    warm_up: int = 0

    def coefficients(
        self, features: int, bound: float | None, *, intercept: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Return coefficients (outputs, d) and intercepts (outputs,) on the features' scale.

        ``bound`` is the divisor of rows, or None.
        """
        theta = self.theta.reshape(self.outputs, -1)
        there = theta[:, features] if intercept else np.zeros(self.outputs)
        return theta[:, :features] / (bound or 1.0), there


class FitPlan(Protocol):
    """Plan of a fit, in public numbers."""

    @property
    def event(self) -> Event:
        """Accounting event of the whole fit."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Public facts."""

    @property
    def care(self) -> tuple[str, ...]:
        """Warnings about requests that will probably not be met."""

    def run(self, data: Any, charge: Charge) -> FitResult:
        """Run the whole release within its charge."""


class UnreadRows(Protocol):
    """Unread rows of a fit, local or on a cluster."""

    @property
    def form(self) -> FitForm:
        """Public form."""

    @property
    def users(self) -> Any:
        """Labels of users, which name them in a promise."""

    @property
    def elements(self) -> Any:
        """Labels of elements, which name them in a promise."""

    def opened(self, charge: Charge) -> AbstractContextManager[ReadableData]:
        """Provide the rows while they are read."""
