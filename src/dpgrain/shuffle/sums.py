"""Shuffled sums of vectors and of numbers, with binomial or Poisson noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.shuffle.design import Design, printed
from dpgrain.shuffle.protocol import ShuffledSum, exact_design

Analysis: TypeAlias = Literal["exact", "printed"]


@dataclass(frozen=True, kw_only=True)
class VectorSum(ShuffledSum):
    """Sum of bounded vectors through a shuffler, with binomial noise (P_VEC).

    Args:
        n_users: n, the devices of a batch.
        dim: d, the number of coordinates.
        l2_bound: Δ₂, the l2 clipping bound of a vector.
        epsilon: the promised ε.
        delta: the promised δ.
        relation: the neighbouring relation. A user without data runs the randomizer on 0.
        rounds: T, the number of rounds with the same users.
        honest_fraction: γ, the minimum share of devices that report and follow the protocol. The
            promise needs no others; they may send anything, or nothing.
        analysis: ``"exact"`` chooses the least noise for the promise; ``"printed"`` uses the
            paper's numbers, for comparison: their ε is in :attr:`guarantee`.
        beside: the event of other releases under the same promise.
        label: a name of the deployment; reports of a deployment with another label are malformed.
        chosen: the design of the protocol; by default the least noise for the promise.

    Raises:
        ParameterError: if a value is out of range.

    Only :meth:`simulate` is charged to an open budget; the parties are not.

    Formal guarantee: the multisets of all rounds together are (ε, δ)-DP for users, for all data
    (:attr:`guarantee`). Each device sends x̂ + Bin(b, p) ones of g + b bits for a coordinate;
    only the sums of all devices' ones are visible, never the counts of one device. Source: Cheu,
    Joseph, Mao & Peng 2022, Algorithms 1 and 2 and Theorem 3.2, with the exact analysis of
    docs/theory, "Binomial noise".

    >>> protocol = VectorSum(n_users=1000, dim=100, l2_bound=1.0, epsilon=1.0, delta=1e-6)
    >>> protocol.guarantee.epsilon() <= 1.0, protocol.randomizer().report_bytes
    (True, 212)
    >>> import numpy as np
    >>> protocol.simulate(np.ones((1000, 100))).shape
    (100,)
    """

    dim: int
    l2_bound: float = 1.0
    analysis: Analysis = "exact"

    def _check(self) -> None:
        _validate.integer(minimum=1, dim=self.dim)
        _validate.scale(l2_bound=self.l2_bound)
        _validate.one_of(("exact", "printed"), analysis=self.analysis)

    def _choose_design(self) -> Design:
        if self.analysis == "printed":
            return printed(self.n_users, self.dim, self.epsilon, self.delta, self.rounds)
        return exact_design("binomial", self)

    @property
    def _shape(self) -> tuple[int, float]:
        return self.dim, float(self.l2_bound)

    def simulate(
        self,
        X: ArrayLike,
        *,
        share: float | None = None,
        random_state: RandomState = None,
        dropped: int | ArrayLike = 0,
        corrupt: ArrayLike | None = None,
    ) -> FloatArray:
        """Simulate one round over the rows of X, and return the estimated sum, (d,).

        Args:
            X: (at most n, d) a vector for each user; the others of the n have no data, and neither
                do users with a row that is not finite.
            share: the share of the open budget, instead of the protocol's ε and δ; the round then
                has the noise for this share.
            random_state: a seed; the result is then not private.
            dropped: the devices that never report, as a number of the last ones or as (n,)
                booleans; they must not depend on the data.
            corrupt: (k, d) counts that k corrupt devices, in addition to the rows of X, send for
                each coordinate.

        Raises:
            ParameterError: if shapes do not match, or fewer devices report than the promise needs.

        The sum has the same distribution as if all messages were sent individually. Formal
        guarantee: that of one round of :attr:`guarantee`.
        """
        return self._simulate(X, share, random_state, dropped, corrupt).value


@dataclass(frozen=True, kw_only=True)
class PoissonSum(VectorSum):
    """Sum of vectors through a shuffler with Poisson noise, with fewer messages.

    It needs about a quarter of the messages. Each of n devices adds Poisson(λ/n) ones, and only
    sends ones. If some devices drop out, the noise of the others is still Poisson. Messages of +1
    and −1, which would need equally little noise, are not private here: the analyzer sees the two
    counts separately, and only their difference protects a user.

    Arguments and errors: :class:`VectorSum`; ``analysis`` can only be ``"exact"`` here.

    Formal guarantee: the guarantee of :class:`VectorSum`. Source: docs/theory, "Binomial noise".

    >>> protocol = PoissonSum(n_users=1000, dim=100, l2_bound=1.0, epsilon=1.0, delta=1e-6)
    >>> protocol.guarantee.epsilon() <= 1.0, protocol.randomizer().messages < 0.3 * 100 * 18_000
    (True, True)
    """

    def _check(self) -> None:
        super()._check()
        if self.analysis == "printed":
            raise ParameterError(
                "analysis must be 'exact' for PoissonSum, because the paper has no analysis of it."
            )

    def _choose_design(self) -> Design:
        return exact_design("poisson", self)


@dataclass(frozen=True, kw_only=True)
class ScalarSum(ShuffledSum):
    """Sum of numbers from 0 to a bound through a shuffler, with binomial noise (P_1D).

    Args:
        n_users: n, the devices of a batch.
        bound: Δ, the largest number; numbers are clipped to [0, Δ].
        epsilon: the promised ε.
        delta: the promised δ.
        relation: the neighbouring relation. A user without data counts as 0.
        rounds: T, the number of rounds with the same users.
        honest_fraction: γ, the minimum share of devices that report and follow the protocol.
        beside: the event of other releases under the same promise.
        label: a name of the deployment; reports of a deployment with another label are malformed.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: the guarantee of :class:`VectorSum`; removing a user changes the sum as much as
    replacing one. Source: Cheu et al. 2022, Algorithm 1; Lemma 3.1 is false for g = 1 and large ε.

    >>> protocol = ScalarSum(n_users=1000, bound=1.0, epsilon=1.0, delta=1e-6)
    >>> import numpy as np
    >>> abs(protocol.simulate(np.full(1000, 0.5)) - 500) < 40
    True
    """

    bound: float = 1.0

    centred: ClassVar[bool] = False

    def _check(self) -> None:
        _validate.scale(bound=self.bound)

    def _choose_design(self) -> Design:
        return exact_design("binomial", self)

    @property
    def _shape(self) -> tuple[int, float]:
        return 1, float(self.bound)

    def simulate(
        self,
        x: ArrayLike,
        *,
        share: float | None = None,
        random_state: RandomState = None,
        dropped: int | ArrayLike = 0,
        corrupt: ArrayLike | None = None,
    ) -> float:
        """Simulate one round over numbers, and return the estimated sum.

        Args:
            x: (at most n,) a number for each user; the others of the n have no data.
            share: the share of the open budget, instead of the protocol's ε and δ; the round then
                has the noise for this share.
            random_state: a seed; the result is then not private.
            dropped: the devices that never report, as a number of the last ones or as (n,)
                booleans; they must not depend on the data.
            corrupt: (k, 1) counts that k corrupt devices, in addition to the numbers of x, send.
        """
        return float(self._simulate(x, share, random_state, dropped, corrupt).value[0])
