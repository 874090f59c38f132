"""The promise of a release: unit, relation, ε and δ as one value.

A :class:`Promise` is requested; a :class:`~dpgrain.publishing.guarantee.Guarantee` is the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dpgrain import _validate
from dpgrain.accounting import Event
from dpgrain.errors import ParameterError
from dpgrain.noise.additive_noise import noise_by_name
from dpgrain.publishing.budget import Budget
from dpgrain.publishing.share import BudgetShare
from dpgrain.units import PLAIN_UNITS, RELATIONS, Element, Level, Record, Relation, Unit, User


@dataclass(frozen=True)
class Promise:
    """The protected unit of a release, the relation, and its ε and δ.

    Args:
        unit: the privacy unit.
        epsilon: the promised ε; for a share, initially the ε of Gaussian noise that uses the share.
        delta: the promised δ.
        relation: the neighbouring relation.
        share: the share of the open budget for the release; None for an explicit ε.

    Raises:
        ParameterError: if a value is out of range.

    >>> Promise(User(), 1, 1e-6, "zero_out")
    Promise(unit=User(), epsilon=1.0, delta=1e-06, relation='zero_out', share=None)
    """

    # A unit may contain a mapping, which has no hash.
    unit: Unit = field(hash=False)
    epsilon: float
    delta: float
    relation: Relation
    share: BudgetShare | None = None

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
        """Return the promise for an ε and a δ, or for a share of the open budget.

        Args:
            unit: the privacy unit.
            epsilon: the promised ε; None with a share.
            delta: the promised δ; ignored with a share.
            relation: the neighbouring relation.
            share: the share of the open budget, in (0, 1]; None with an ε.

        Raises:
            ParameterError: if not exactly one of ε and share is set, a value is out of range, or no
                budget is open for a share.

        >>> Promise.of(User(), 1.0, 1e-6, "zero_out").level
        'user'
        """
        if share is not None:
            part = BudgetShare.of(share, epsilon=epsilon)
            return Promise(unit, *part.gaussian_epsilon_delta(), relation, part)
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
        """The unit of the level, without a partition or a bound on elements."""
        return PLAIN_UNITS[self.level]

    @property
    def budget(self) -> Budget | None:
        """The budget of the share; None for an explicit ε."""
        return None if self.share is None else self.share.budget

    def require_delta(self, sentence: str) -> None:
        """Raise ParameterError with this message if δ is 0."""
        if self.delta == 0:
            raise ParameterError(sentence, name="delta")

    def pure(self) -> Promise:
        """Return the stronger promise with δ = 0, for pure noise."""
        return replace(self, delta=0.0)

    def under(self, noise: str) -> Promise:
        """Return the promise for a noise distribution, with δ = 0 for Laplace noise.

        Args:
            noise: ``"gaussian"`` or ``"laplace"``.

        Raises:
            ParameterError: if the distribution is unknown, or requires a δ above 0.
        """
        if noise_by_name(noise).pure:
            return self.pure()
        self.require_delta(
            "delta must be above 0 with Gaussian noise, not 0; use noise='laplace' or delta=1e-6."
        )
        return self

    def settled(self, event_of: Callable[[Promise], Event]) -> Promise:
        """Return the promise with an ε that uses nearly all of the share; an explicit ε is unchanged.

        Args:
            event_of: the function from a promise to the event of the release; it uses public numbers
                only.

        Raises:
            ParameterError: if the release does not fit into its share at any ε.
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
