"""The kinds of shuffled sums: of vectors and of numbers, with binomial or Poisson noise."""

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
    """The sum of vectors of bounded l2 norm through a shuffler, with binomial noise (P_VEC).

    Args:
        n_users: n, the devices of a batch.
        dim: d, the number of coordinates.
        l2_bound: Δ₂, the l2 norm of a vector; longer ones are shortened to it.
        epsilon: the promised ε.
        delta: the promised δ.
        relation: the neighbouring relation. A user without data runs the randomizer on 0.
        rounds: T, the rounds in which the same users take part.
        honest_fraction: γ, the share of devices that report and follow the protocol, at least. The
            promise holds however few more do; the others may send anything, or nothing.
        analysis: ``"exact"`` chooses the least noise that keeps the promise; ``"printed"`` takes the
            numbers of the paper, to compare: they promise the ε that :attr:`guarantee` then says.
        beside: what else is published under the same promise.
        label: a name of the deployment; reports of a deployment with another label are malformed.
        chosen: the numbers of the protocol; by default those with the least noise that keeps the
            promise.

    Raises:
        ParameterError: if a value is out of range.

    Only :meth:`simulate` is charged to an open budget; the parties are not.

    Formal guarantee: that of :attr:`guarantee`: the bags of all rounds together are (ε, δ)-DP for
    users, for all data. Each device sends x̂ + Bin(b, p) ones of g + b bits for a coordinate; only
    the sums of all devices' ones are seen, never the counts of one device. Source: Cheu, Joseph,
    Mao & Peng 2022, Algorithms 1 and 2 and Theorem 3.2, with the exact analysis of docs/theory,
    "Binomial noise".

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

    def _designed(self) -> Design:
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
        """Make one round over the rows of X, in this process, and return the estimated sum, (d,).

        Args:
            X: (at most n, d) a vector for each user; the others of the n have no data, like users whose
                row is not finite.
            share: the share of the open budget, in place of the protocol's ε and δ; the round is made
                with the noise that this share takes.
            random_state: a seed, which makes the result not private.
            dropped: the devices that never report, as a number of the last ones or as (n,) truths; they
                must not depend on the data.
            corrupt: (k, d) counts that k corrupt devices, which are no rows of X, send for each
                coordinate.

        Raises:
            ParameterError: if shapes do not fit, or fewer devices report than the promise needs.

        The sum has the law that it would have if all messages were made one by one. Formal guarantee:
        that of one round of :attr:`guarantee`.
        """
        return self._simulated(X, share, random_state, dropped, corrupt).value


@dataclass(frozen=True, kw_only=True)
class PoissonSum(VectorSum):
    """The sum of vectors through a shuffler with Poisson noise, in about four times fewer messages.

    Each of n devices adds Poisson(λ/n) ones, and sends ones only. Whatever devices drop out, the
    noise of the others is again Poisson. Messages of +1 and −1, whose noise would be as small, are
    not private here: the analyzer sees the two counts apart, and only their difference hides a user.

    Arguments and errors: :class:`VectorSum`; ``analysis`` can only be ``"exact"`` here.

    Formal guarantee: that of :class:`VectorSum`. Source: docs/theory, "Binomial noise".

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

    def _designed(self) -> Design:
        return exact_design("poisson", self)


@dataclass(frozen=True, kw_only=True)
class ScalarSum(ShuffledSum):
    """The sum of numbers from 0 to a bound through a shuffler, with binomial noise (P_1D).

    Args:
        n_users: n, the devices of a batch.
        bound: Δ, the largest number; numbers are clipped to [0, Δ].
        epsilon: the promised ε.
        delta: the promised δ.
        relation: the neighbouring relation. A user without data counts 0.
        rounds: T, the rounds in which the same users take part.
        honest_fraction: γ, the share of devices that report and follow the protocol, at least.
        beside: what else is published under the same promise.
        label: a name of the deployment; reports of a deployment with another label are malformed.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: that of :class:`VectorSum`; a removed user moves the sum as far as a replaced one.
    Source: Cheu et al. 2022, Algorithm 1; Lemma 3.1 is false for g = 1 and large ε.

    >>> protocol = ScalarSum(n_users=1000, bound=1.0, epsilon=1.0, delta=1e-6)
    >>> import numpy as np
    >>> abs(protocol.simulate(np.full(1000, 0.5)) - 500) < 40
    True
    """

    bound: float = 1.0

    centred: ClassVar[bool] = False

    def _check(self) -> None:
        _validate.scale(bound=self.bound)

    def _designed(self) -> Design:
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
        """Make one round over numbers, in this process, and return the estimated sum.

        Args:
            x: (at most n,) a number for each user; the others of the n have no data.
            share: the share of the open budget, in place of the protocol's ε and δ; the round is made
                with the noise that this share takes.
            random_state: a seed, which makes the result not private.
            dropped: the devices that never report, as a number of the last ones or as (n,) truths; they
                must not depend on the data.
            corrupt: (k, 1) counts that k corrupt devices, which are no numbers of x, send.
        """
        return float(self._simulated(x, share, random_state, dropped, corrupt).value[0])
