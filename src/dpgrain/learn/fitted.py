"""What a fit has: the data it is made of, which are people's, and what it publishes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import FloatArray
from dpgrain.accounting import Event
from dpgrain.arrays.blocks import Rows
from dpgrain.gradients.norms import Norms
from dpgrain.learn.ask import Ask
from dpgrain.learn.classes import Targets
from dpgrain.learn.confidence import Evidence
from dpgrain.learn.rounds import History
from dpgrain.noise import Source
from dpgrain.optimize import MarginLoss
from dpgrain.publishing.facts import Fact

#: The labels of a classifier; None for numbers, or for labels that are not known yet.
Classes: TypeAlias = NDArray[Any] | None


@dataclass(frozen=True, eq=False)
class Data:
    """The rows of a fit, and which block each is in.

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


@dataclass(frozen=True, eq=False)
class Fitted:
    """What the rounds of a fit have published; a model file holds it.

    Args:
        theta: (outputs·p,) the solution, on the scale of the rows that were fitted.
        outputs: how many margins a row has.
        history: the noisy gradients, round by round.
        rounds: the number of rounds.
        n_users: the number of users that sums were divided by; None in files of old.
        sampled: whether rounds took samples.
        classes: the labels, of a classifier.
        evidence: noisy second moments, for intervals; None where no budget was kept.
        looks: the noisy histograms of gradients' norms, where a clipping bound or a divisor was found:
            of the last one it follows.
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
    """What a fit will publish, in public numbers."""

    @property
    def event(self) -> Event:
        """All of it, for the accountant."""

    @property
    def facts(self) -> tuple[Fact | str, ...]:
        """What is taken as public, in words."""


class Way(Protocol):
    """A way to fit: a module with these two functions."""

    def plan(self, ask: Ask, data: Data, source: Source) -> Planned:
        """What will be published, before anything is charged."""

    def run(self, plan: Any, data: Data, source: Source) -> Fitted:
        """All that is released, for what was charged."""
