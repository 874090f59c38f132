"""Means through a shuffler, with secret messages and free rounds of new users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.accounting import Event, Parallel
from dpgrain.errors import ParameterError
from dpgrain.means.block_owners import BlockOwners
from dpgrain.means.grid import tiles
from dpgrain.means.mean_protocol import Contributions, CountedRounds
from dpgrain.noise import RandomSource
from dpgrain.publishing.draws import counted
from dpgrain.publishing.facts import Fact
from dpgrain.shuffle import PoissonSum, VectorSum
from dpgrain.units import Level, Relation, Trust

#: Each round uses different users (``"sequential"``), or all of them (``"full"``).
Interaction: TypeAlias = Literal["sequential", "full"]
#: Noise that users add to their messages, by the name of its distribution.
Messages: TypeAlias = Literal["binomial", "poisson"]

_PROTOCOLS: dict[str, type[VectorSum] | type[PoissonSum]] = {
    "binomial": VectorSum,
    "poisson": PoissonSum,
}


@dataclass(frozen=True)
class Shuffled:
    """Mean of one vector per user, from noisy messages that a shuffler permutes.

    Args:
        protocol: the sum of one round, calibrated for the number of users in a round; see
            :meth:`calibrate`.
        n_users: n, the public number of users in the known population.
        rounds: T, the number of published means.
        interaction: ``"sequential"``: round t uses the b = ⌊n/T⌋ users with indices tb to (t+1)b −
            1, each user at most once, so the last n − bT users are in no round; ``"full"``: all
            users in every round.

    Raises:
        ParameterError: if a value is out of range, there are more rounds than users, or the
            protocol is for another number of users or rounds.

    Formal guarantee: :attr:`event`, against an attacker who sees all shuffled messages. If each
    round uses different users, it is the event of one round, for any number of rounds: a user's
    index, and thus the round, does not depend on any data. Source: Cheu, Joseph, Mao and Peng 2022,
    Definitions 2.7 and 2.8, with the accounting of docs/theory, "Shuffled gradients".

    >>> import numpy as np
    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SystemSource
    >>> mean = Shuffled.calibrate(epsilon=2.0, delta=1e-6, n_users=600, rounds=2, dimension=2)
    >>> run = mean.start(SystemSource(), np.arange(600))
    >>> bool(abs(run.estimate(Vectors(np.full((600, 2), 0.5))) - 0.5).max() < 0.2)
    True
    >>> mean.batch, mean.event.epsilon(1e-6) <= 2.0
    (300, True)
    """

    protocol: VectorSum | PoissonSum
    n_users: int
    rounds: int
    interaction: Interaction = "sequential"

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        _check_roster(self.n_users, self.rounds, self.interaction)
        if not isinstance(self.protocol, VectorSum | PoissonSum):
            raise ParameterError(
                f"protocol must be a VectorSum or PoissonSum, not {_validate.describe(self.protocol)}."
            )
        rounds = 1 if self.interaction == "sequential" else self.rounds
        if (self.protocol.n_users, self.protocol.rounds) != (self.batch, rounds):
            raise ParameterError(
                f"protocol must be for {self.batch} users in {rounds} rounds each, not for "
                f"{self.protocol.n_users} in {self.protocol.rounds}."
            )

    @staticmethod
    def calibrate(
        *,
        epsilon: float,
        delta: float,
        n_users: int,
        rounds: int,
        dimension: int,
        clip: float = 1.0,
        relation: Relation = "zero_out",
        interaction: Interaction = "sequential",
        honest_fraction: float = 1.0,
        protocol: Messages = "binomial",
        beside: Event | None = None,
    ) -> Shuffled:
        """Calibrate the shuffled mean with the least noise for a guarantee over all rounds.

        Args:
            epsilon: the ε of the guarantee.
            delta: the δ of the guarantee.
            n_users: the public number of users in the known population.
            rounds: the number of published means.
            dimension: the length of the vectors.
            clip: the clipping bound, l2 norm of one user's vector.
            relation: the neighbouring relation.
            interaction: ``"sequential"`` uses different users in each round, ``"full"`` all of
                them.
            honest_fraction: the minimum share of a round's users who follow the protocol.
            protocol: the noise that users add: ``"binomial"`` coins, or ``"poisson"`` ones, of
                which fewer are needed.
            beside: the event of other results published under the same guarantee; none by default.

        Raises:
            ParameterError: if a value is out of range, or no noise satisfies the guarantee.

        >>> all_ = Shuffled.calibrate(
        ...     epsilon=2.0, delta=1e-6, n_users=600, rounds=2, dimension=2, interaction="full"
        ... )
        >>> all_.batch, all_.event.epsilon(1e-6) <= 2.0
        (600, True)
        """
        _check_roster(n_users, rounds, interaction)
        sequential = interaction == "sequential"
        _validate.one_of(tuple(_PROTOCOLS), protocol=protocol)
        calibrated = _PROTOCOLS[protocol](
            n_users=n_users // rounds if sequential else n_users,
            rounds=1 if sequential else rounds,
            dim=dimension,
            l2_bound=clip,
            epsilon=epsilon,
            delta=delta,
            relation=relation,
            honest_fraction=honest_fraction,
            beside=beside,
        )
        return Shuffled(calibrated, n_users, rounds, interaction)

    @property
    def batch(self) -> int:
        """b, the number of users in a round."""
        return self.n_users // self.rounds if self.interaction == "sequential" else self.n_users

    @property
    def clip(self) -> float:
        """Clipping bound of a user's vector."""
        return self.protocol.l2_bound

    @property
    def level(self) -> Level:
        """Protected level: users."""
        return "user"

    @property
    def event(self) -> Event:
        """Accounting event of all rounds together."""
        if self.interaction == "full" or self.rounds == 1:
            return self.protocol.event
        # Several users may be in different rounds, so that every round's delta mass counts.
        return Parallel((self.protocol.event,))

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of each coordinate of a mean."""
        return self.protocol.noise_sd / self.batch

    @property
    def reach(self) -> float:
        """Clipping bound of a user's vector."""
        return self.clip

    @property
    def trust(self) -> Trust:
        """Party with access to data: none, because messages are noisy and shuffled."""
        return "shuffle"

    @property
    def fresh(self) -> bool:
        """True if each round uses different users."""
        return self.interaction == "sequential"

    @property
    def compares(self) -> bool:
        """False, because users are not compared."""
        return False

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts behind the mean."""
        if self.interaction == "full":
            return Fact("full-rounds", (self.rounds,)), *self.protocol.facts
        left = self.n_users - self.batch * self.rounds
        facts = (Fact("fresh-rounds", (self.rounds, self.batch)), *self.protocol.facts)
        return (*facts, Fact("unused-users", (left,))) if left else facts

    def start(self, source: RandomSource, owners: NDArray[Any] | None = None) -> ShuffledRounds:
        """Start a run.

        Args:
            source: the source of rounding, noise and the order of messages.
            owners: (blocks,) the index, 0 to n−1, of each block's user. It must not depend on which
                other users have data. Users with other indices do not participate, and blocks of
                the same user are added. Optional if all users are in every round: then each block
                is a user.

        Raises:
            ParameterError: if owners are not integers, or are required and missing.
        """
        if owners is None and self.interaction == "full":
            return ShuffledRounds(self, source, None)
        return ShuffledRounds(self, source, BlockOwners.from_indices(owners))


class ShuffledRounds(CountedRounds):
    """One run of a :class:`Shuffled` mean, with all participants in one process."""

    def __init__(self, mean: Shuffled, source: RandomSource, roster: BlockOwners | None) -> None:
        super().__init__(mean)
        self.mean, self.source, self._roster = mean, counted(source, mean.event), roster

    def _round(self, contributions: Contributions) -> FloatArray:
        mean, source = self.mean, self.source
        if self._roster is None:
            vectors = tiles(contributions)
        else:
            first = (self._done - 1) * mean.batch if mean.interaction == "sequential" else 0
            vectors = self._roster.vectors(contributions, first, first + mean.batch)
            if mean.interaction == "sequential":
                source = source.group(first, first + mean.batch)
        return mean.protocol.estimate(vectors, mean.batch, source) / mean.batch


def _check_roster(n_users: int, rounds: int, interaction: Interaction) -> None:
    _validate.one_of(("sequential", "full"), interaction=interaction)
    _validate.integer(minimum=1, n_users=n_users)
    if _validate.integer(minimum=1, rounds=rounds) > n_users and interaction == "sequential":
        raise ParameterError(
            f"rounds must be at most n_users = {n_users}, not {rounds!r}, because each round "
            "queries different users."
        )
