"""A promise: what a release is asked to keep, said once and passed on as one value.

A :class:`Promise` is what was asked for; a :class:`~dpgrain.publishing.guarantee.Guarantee` is what
the release then gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dpgrain import _validate
from dpgrain.accounting import Event
from dpgrain.errors import ParameterError
from dpgrain.noise.additive import law_named
from dpgrain.publishing.budget import Budget
from dpgrain.publishing.share import Share
from dpgrain.units import PLAIN_UNITS, RELATIONS, Element, Level, Record, Relation, Unit, User


@dataclass(frozen=True)
class Promise:
    """The protected unit of a release, the relation, and the ε and δ that it may spend.

    Args:
        unit: the privacy unit.
        epsilon: the promised ε; under a share, at first that of Gaussian noise which takes the share.
        delta: the promised δ.
        relation: the neighbouring relation.
        share: the share of the open budget from which ε and δ came; None where they were stated.

    Raises:
        ParameterError: if a value is out of range.

    >>> Promise(User(), 1, 1e-6, "zero_out")
    Promise(unit=User(), epsilon=1.0, delta=1e-06, relation='zero_out', share=None)
    """

    # A unit may hold a mapping, which has no hash.
    unit: Unit = field(hash=False)
    epsilon: float
    delta: float
    relation: Relation
    share: Share | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Record | Element | User):
            raise ParameterError(
                f"unit must be Record(), Element(by) or User(), not {_validate.describe(self.unit)}."
            )
        object.__setattr__(self, "epsilon", _validate.positive(epsilon=self.epsilon))
        _validate.one_of(RELATIONS, relation=self.relation)
        object.__setattr__(self, "delta", _validate.delta(allow_zero=True, delta=self.delta))

    @staticmethod
    def of(
        unit: Unit,
        epsilon: float | None,
        delta: float,
        relation: Relation,
        share: float | None = None,
    ) -> Promise:
        """Make a caller's promise: an ε and a δ, or a share of the open budget.

        Args:
            unit: the privacy unit.
            epsilon: the promised ε; None where a share is given.
            delta: the promised δ, which is ignored where a share is given.
            relation: the neighbouring relation.
            share: the share of the open budget, in (0, 1]; None where ε is given.

        Raises:
            ParameterError: if neither or both of ε and a share are given, a value is out of range, or
                a share is asked for where no budget is open.

        >>> Promise.of(User(), 1.0, 1e-6, "zero_out").level
        'user'
        """
        if share is not None:
            part = Share.of(share, epsilon=epsilon)
            return Promise(unit, *part.of_gaussian_noise(), relation, part)
        if epsilon is None:
            raise ParameterError(
                "epsilon is required, such as epsilon=1.0; or pass share=, such as 0.5, inside a "
                "budget."
            )
        return Promise(unit, epsilon, delta, relation)

    @property
    def level(self) -> Level:
        """The level of the unit: record, element or user."""
        return self.unit.level

    @property
    def plain_unit(self) -> Unit:
        """The plain unit of the level, where partitions and bounds on elements do not matter."""
        return PLAIN_UNITS[self.level]

    @property
    def budget(self) -> Budget | None:
        """The budget of which the release takes a share; None where ε and δ were stated."""
        return None if self.share is None else self.share.budget

    def require_delta(self, sentence: str) -> None:
        """Refuse a promise of δ = 0 where the noise needs a larger one.

        Args:
            sentence: why δ must be above 0, and what to do, as the message of the error.

        Raises:
            ParameterError: if δ is 0.
        """
        if self.delta == 0:
            raise ParameterError(sentence, name="delta")

    def pure(self) -> Promise:
        """Return the stronger promise with δ = 0, for noise that needs no δ."""
        return replace(self, delta=0.0)

    def under(self, noise: str) -> Promise:
        """Return the promise under noise of this law, with δ = 0 under Laplace noise.

        Args:
            noise: ``"gaussian"`` or ``"laplace"``.

        Raises:
            ParameterError: if there is no such law, or it needs a δ above 0.
        """
        if law_named(noise).pure:
            return self.pure()
        self.require_delta(
            "delta must be above 0 with Gaussian noise, not 0; use noise='laplace' or delta=1e-6."
        )
        return self

    def settled(self, event_of: Callable[[Promise], Event]) -> Promise:
        """Find an ε at which the release takes nearly all of its share; keep a stated ε.

        Args:
            event_of: makes the event of a release that keeps a promise, from public numbers alone.

        Raises:
            ParameterError: if no ε makes the release fit into its share.
        """
        if self.share is None:
            return self
        stated = replace(self, share=None)
        epsilon = self.share.settled(
            lambda trial: event_of(replace(stated, epsilon=trial)),
            self.epsilon,
            self.relation,
            self.plain_unit,
        )
        return replace(self, epsilon=epsilon)
