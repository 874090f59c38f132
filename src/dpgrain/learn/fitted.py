"""The private data of a fit, and its published result."""

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
from dpgrain.arrays.blocks import Rows
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.norms import Norms
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.learn.ask import Ask
from dpgrain.learn.bounding import bounded
from dpgrain.learn.classes import Targets
from dpgrain.learn.confidence import Evidence
from dpgrain.learn.rounds import History
from dpgrain.means import Contributions
from dpgrain.optimize import MarginLoss
from dpgrain.publishing import Charge
from dpgrain.publishing.facts import Fact

#: The labels of a classifier; None for numbers, or for labels that are not known yet.
Classes: TypeAlias = NDArray[Any] | None


@dataclass(frozen=True, eq=False)
class Form:
    """The public form of the rows of a fit: all public facts for its plan.

    Args:
        targets: the targets of none of them, and what is public of all.
        width: the number of features.
        loss: from the labels to the loss of a record.
        users: the labels of users, which nobody has read; None for one user per row.
    """

    targets: Targets
    width: int
    loss: Callable[[Classes], MarginLoss]
    users: Any = None


@dataclass(frozen=True, eq=False)
class Data:
    """The rows of a fit, and the block of each.

    Args:
        X: (m, d) features, dense or CSR.
        targets: (m,) targets, or labels that are still to be selected.
        rows: the blocks.
        users: (m,) whose each row is, as passed.
        loss: from the labels to the loss of a record.
    """

    X: Any
    targets: Targets
    rows: Rows
    users: Any
    loss: Callable[[Classes], MarginLoss]

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.X.shape[1])

    @property
    def enrolled(self) -> int:
        """The number of users with rows, which is private."""
        return self.rows.users

    @property
    def owners(self) -> NDArray[Any] | None:
        """The user of each block."""
        return self.rows.owners

    def arranged(self, ask: Ask) -> Gradients:
        """Return the gradients of blocks, whose rows are copied once, in the order of their blocks.

        Args:
            ask: what is asked for.
        """
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


class Gradients(Protocol):
    """The mean gradients of blocks at one parameter after the other."""

    def __call__(self, loss: MarginLoss, theta: FloatArray) -> Contributions:
        """Return the gradients.

        Args:
            loss: the loss of a record, with labels that are known.
            theta: the parameter.
        """


class Readable(Protocol):
    """The rows of a fit, here or on a cluster, as much of them as clipped means by a curator ask.

    Labels that are selected, and intervals, ask for the rows of :class:`Data` besides.
    """

    @property
    def targets(self) -> Targets:
        """The targets, and what is public of them."""

    @property
    def loss(self) -> Callable[[Classes], MarginLoss]:
        """The function from the labels to the loss of a record."""

    @property
    def width(self) -> int:
        """The number of features."""

    @property
    def enrolled(self) -> int:
        """The number of users with rows, which is private."""

    @property
    def owners(self) -> NDArray[Any] | None:
        """The user of each block; None where none are drawn."""

    def arranged(self, ask: Ask) -> Gradients:
        """Return the gradients of blocks.

        Args:
            ask: what is asked for.
        """


@dataclass(frozen=True, eq=False)
class Fitted:
    """The published result of all rounds of a fit; a model file holds it.

    Args:
        theta: (outputs·p,) the solution, on the scale of the rows that were fitted.
        outputs: how many margins a row has.
        history: the noisy gradients, round by round.
        rounds: the number of rounds, without those of the warm-up.
        n_users: the number of users that sums were divided by; None in files of old.
        sampled: whether rounds took samples.
        classes: the labels, of a classifier.
        evidence: noisy second moments, for intervals; None where no budget was kept.
        looks: the noisy histograms of gradients' norms, where a clipping bound or a divisor was found:
            of the last one it follows.
        warm_up: the number of rounds before the others, which only look for the neighbourhood of the
            solution; 0 in files of old.
    """

    theta: FloatArray
    outputs: int
    history: History
    rounds: int
    n_users: int | None
    sampled: bool = False
    classes: Classes = None
    evidence: Evidence | None = None
    looks: tuple[Norms, ...] = ()
    warm_up: int = 0

    def coefficients(
        self, features: int, bound: float | None, *, intercept: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Coefficients (outputs, d) and intercepts (outputs,) on the scale of the features.

        Args:
            features: d.
            bound: what rows were divided by; None if they were not.
            intercept: whether there are intercepts.
        """
        theta = self.theta.reshape(self.outputs, -1)
        there = theta[:, features] if intercept else np.zeros(self.outputs)
        return theta[:, :features] / (bound or 1.0), there


class Planned(Protocol):
    """The plan of a fit, in public numbers."""

    @property
    def event(self) -> Event:
        """All of it, for the accountant."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Public facts."""

    @property
    def care(self) -> tuple[str, ...]:
        """Sentences about what will probably not come as it is asked for."""


class Unopened(Protocol):
    """The unread rows of a fit, here or on a cluster."""

    @property
    def form(self) -> Form:
        """Their public form."""

    @property
    def users(self) -> Any:
        """The labels of users, by which a promise names them."""

    @property
    def elements(self) -> Any:
        """The labels of elements, by which a promise names them."""

    def opened(self, charge: Charge) -> AbstractContextManager[Readable]:
        """Return the rows for as long as they are read.

        Args:
            charge: the right to read them.
        """


class Way(Protocol):
    """A way to fit: a module with these two functions."""

    def plan(self, ask: Ask, form: Form, lot: int | None) -> Planned:
        """The plan, before anything is charged."""

    def run(self, plan: Any, data: Any, charge: Charge) -> Fitted:
        """Make the whole release, for what was charged."""
