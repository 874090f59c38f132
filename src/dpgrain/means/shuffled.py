"""Means through a shuffler: nobody sees a user's message, and fresh users cost nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.accounting import ApproximateDP, Event, Parallel
from dpgrain.errors import ParameterError
from dpgrain.means.grid import tiles
from dpgrain.means.protocol import Contributions, CountedRounds
from dpgrain.means.roster import Roster
from dpgrain.noise import Source
from dpgrain.publishing import Promise
from dpgrain.shuffle import PoissonSum, VectorSum
from dpgrain.units import Level, Relation, Trust, User

#: Each round asks users of its own (``"sequential"``), or all of them (``"full"``).
Interaction: TypeAlias = Literal["sequential", "full"]
#: The noise that users add to their messages, by the name of its law.
Messages: TypeAlias = Literal["binomial", "poisson"]

_PROTOCOLS: dict[str, type[VectorSum] | type[PoissonSum]] = {
    "binomial": VectorSum,
    "poisson": PoissonSum,
}


@dataclass(frozen=True)
class Shuffled:
    """The mean of one vector per user, added up from shuffled messages with noise of their own.

    Args:
        protocol: the sum of one round, made for the users of a round; see :meth:`calibrate`.
        n_users: n, the public size of the roster.
        rounds: T, how many means are published.
        interaction: ``"sequential"``: round t asks the b = ⌊n/T⌋ users at places tb to (t+1)b − 1 of
            the roster and nobody twice, so that the last n − bT are in no round; ``"full"``: everybody
            in every round.

    Raises:
        ParameterError: if a value is out of range, there are more rounds than users, or the protocol is
            made for other numbers of users or rounds.

    Formal guarantee: :attr:`event`, against whoever sees all shuffled messages. With users of its own
    in each round it is that of one round, however many there are: a user's place, and so their round,
    depends on nobody's data. Source: Cheu, Joseph, Mao and Peng 2022, Definitions 2.7 and 2.8, with the
    accounting of docs/theory, "Shuffled gradients".

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
        _validate.plain(self)
        _check_roster(self.n_users, self.rounds, self.interaction)
        if not isinstance(self.protocol, VectorSum | PoissonSum):
            raise ParameterError(
                f"protocol must be a VectorSum or PoissonSum, not {_validate.said(self.protocol)}."
            )
        asked = 1 if self.interaction == "sequential" else self.rounds
        if (self.protocol.n_users, self.protocol.rounds) != (self.batch, asked):
            raise ParameterError(
                f"protocol must be for {self.batch} users in {asked} rounds each, not for "
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
        """Calibrate the shuffled mean with the least noise that keeps a promise over all rounds.

        Args:
            epsilon: the promised ε.
            delta: the promised δ.
            n_users: the public size of the roster.
            rounds: how many means are published.
            dimension: the length of the vectors.
            clip: the clipping bound, l2 norm of one user's vector.
            relation: the neighbouring relation.
            interaction: ``"sequential"`` asks users of its own in each round, ``"full"`` all of them.
            honest_fraction: the least share of a round's users who follow the protocol.
            protocol: the noise that users add: ``"binomial"`` coins, or ``"poisson"`` ones, which are
                fewer.
            beside: the event of what else is published under the same promise; nothing by default.

        Raises:
            ParameterError: if a value is out of range, or no noise keeps the promise.

        >>> all_ = Shuffled.calibrate(
        ...     epsilon=2.0, delta=1e-6, n_users=600, rounds=2, dimension=2, interaction="full"
        ... )
        >>> all_.batch, all_.event.epsilon(1e-6) <= 2.0
        (600, True)
        """
        _check_roster(n_users, rounds, interaction)
        sequential = interaction == "sequential"
        made = _made(
            protocol,
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
        return Shuffled(made, n_users, rounds, interaction)

    @property
    def batch(self) -> int:
        """b, the number of users asked in a round."""
        return self.n_users // self.rounds if self.interaction == "sequential" else self.n_users

    @property
    def clip(self) -> float:
        """The clipping bound of a user's vector."""
        return self.protocol.l2_bound

    @property
    def level(self) -> Level:
        """The protected level: users."""
        return "user"

    @property
    def event(self) -> Event:
        """The accountant's event for all rounds together."""
        if self.interaction == "full" or self.rounds == 1:
            return self.protocol.event
        # Several users may each be in another round, and then every round's delta mass counts.
        return Parallel((self.protocol.event,))

    @property
    def noise_sd(self) -> float:
        """The standard deviation of the noise of each coordinate of a mean."""
        return self.protocol.noise_sd / self.batch

    @property
    def reach(self) -> float:
        """The clipping bound of a user's vector."""
        return self.clip

    @property
    def trust(self) -> Trust:
        """The party with access to data: nobody, as messages are noisy and shuffled."""
        return "shuffle"

    @property
    def fresh(self) -> bool:
        """True where each round asks users of its own."""
        return self.interaction == "sequential"

    @property
    def compares(self) -> bool:
        """False, as no user is compared with another."""
        return False

    @property
    def facts(self) -> tuple[str, ...]:
        """The public facts behind the mean, in words."""
        if self.interaction == "full":
            return (f"{self.rounds:,} rounds with all users", *map(str, self.protocol.facts))
        left = self.n_users - self.batch * self.rounds
        facts = (
            f"{self.rounds:,} rounds with {self.batch:,} users each, told apart by their numbers and "
            "asked once",
            *map(str, self.protocol.facts),
        )
        return (*facts, f"the last {left:,} of the roster are never asked") if left else facts

    def start(self, source: Source, owners: NDArray[Any] | None = None) -> ShuffledRounds:
        """Begin a run.

        Args:
            source: where rounding, noise and the order of messages come from.
            owners: (blocks,): the place in the roster, 0 to n−1, of the user whose data each block is.
                It must not depend on who else has data. Whoever has another place is never asked, and
                what several blocks of a user hold is added up. May be left out where everybody is in
                every round: then each block is a user.

        Raises:
            ParameterError: if owners are no whole numbers, or are needed and left out.
        """
        if owners is None and self.interaction == "full":
            return ShuffledRounds(self, source, None)
        return ShuffledRounds(self, source, Roster.of(owners))


class ShuffledRounds(CountedRounds):
    """One run of a :class:`Shuffled` mean, with everybody who takes part in one process.

    Args:
        mean: its public numbers.
        source: where randomness comes from.
        roster: the places of the blocks' users; None where each block is a user.

    >>> import numpy as np
    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SeededSource
    >>> mean = Shuffled.calibrate(epsilon=2.0, delta=1e-6, n_users=600, rounds=2, dimension=1)
    >>> run = mean.start(SeededSource(1), np.arange(600))
    >>> users = Vectors([[0.2]] * 300 + [[0.8]] * 300, dimension=1)
    >>> [run.estimate(users).round(1).tolist() for _ in range(2)]
    [[0.2], [0.8]]
    """

    def __init__(self, mean: Shuffled, source: Source, roster: Roster | None) -> None:
        super().__init__(mean)
        self.mean, self.source, self._roster = mean, source, roster

    def _round(self, contributions: Contributions) -> FloatArray:
        mean = self.mean
        if self._roster is None:
            held = tiles(contributions)
        else:
            first = (self._done - 1) * mean.batch if mean.interaction == "sequential" else 0
            held = self._roster.vectors(contributions, first, first + mean.batch)
        return mean.protocol.estimate(held, mean.batch, self.source) / mean.batch


@dataclass(frozen=True)
class FreshBatches:
    """Batches of fresh users, each of a size and clipping bound chosen after the last was published.

    Args:
        epsilon: the promised ε.
        delta: the promised δ.
        n_users: n, the public size of the roster.
        dimension: the length of the vectors.
        relation: the neighbouring relation.
        honest_fraction: the least share of a batch's users who follow the protocol.
        protocol: ``"binomial"`` or ``"poisson"``.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: :attr:`event`, whatever sizes and bounds are chosen from what was published: given
    what the batches before a user's own have published, that batch keeps the promise, and what follows
    asks others. Source: Cheu, Joseph, Mao and Peng 2022, Definition 2.7; docs/theory, "Shuffled
    gradients".

    >>> import numpy as np
    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SystemSource
    >>> batches = FreshBatches(epsilon=2.0, delta=1e-6, n_users=900, dimension=2)
    >>> run, users = batches.start(SystemSource(), np.arange(900)), Vectors(np.full((900, 2), 0.5))
    >>> mean = run.next(users, size=300, clip=1.0)
    >>> bool(abs(mean - 0.5).max() < 0.2), run.left
    (True, 600)
    """

    epsilon: float
    delta: float
    n_users: int
    dimension: int
    relation: Relation = "zero_out"
    honest_fraction: float = 1.0
    protocol: Messages = "binomial"

    def __post_init__(self) -> None:
        _validate.plain(self)
        Promise(User(), self.epsilon, self.delta, self.relation).require_delta(
            "delta must be above 0 for shuffled sums, not 0; use about 1e-6."
        )
        _validate.integer(minimum=1, n_users=self.n_users)
        _validate.integer(minimum=1, dimension=self.dimension)
        _validate.one_of(tuple(_PROTOCOLS), protocol=self.protocol)

    @property
    def event(self) -> ApproximateDP:
        """The accountant's event for all batches: the promise itself, as noise is chosen later."""
        return ApproximateDP(self.epsilon, self.delta, relation=self.relation)

    def sum_of(self, size: int, clip: float) -> VectorSum | PoissonSum:
        """Make the protocol of a batch of ``size`` users.

        Args:
            size: the number of users in the batch.
            clip: the clipping bound, l2 norm of one user's vector.

        Raises:
            ParameterError: if a value is out of range, or the users are too few to keep the promise.
        """
        return _made(
            self.protocol,
            n_users=size,
            rounds=1,
            dim=self.dimension,
            l2_bound=clip,
            epsilon=self.epsilon,
            delta=self.delta,
            relation=self.relation,
            honest_fraction=self.honest_fraction,
            beside=None,
        )

    def start(self, source: Source, owners: NDArray[Any]) -> FreshRun:
        """Begin a run.

        Args:
            source: where rounding, noise and the order of messages come from.
            owners: (blocks,): the place in the roster, 0 to n−1, of each block's user. It must not
                depend on who else has data. Whoever has another place is never asked, and several
                blocks of a user are added up.

        Raises:
            ParameterError: if owners are no whole numbers.
        """
        return FreshRun(self, source, Roster.of(owners))


class FreshRun:
    """One run of :class:`FreshBatches`, with everybody who takes part in one process.

    Args:
        batches: its public numbers.
        source: where randomness comes from.
        roster: the places of the blocks' users.

    >>> import numpy as np
    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SeededSource
    >>> batches = FreshBatches(epsilon=2.0, delta=1e-6, n_users=900, dimension=1)
    >>> run, users = batches.start(SeededSource(1), np.arange(900)), Vectors(np.full((900, 1), 0.5))
    >>> [run.next(users, size=size, clip=1.0).round(1).tolist() for size in (300, 400)]
    [[0.5], [0.5]]
    >>> run.left, [protocol.n_users for protocol in run.protocols]
    (200, [300, 400])
    """

    def __init__(self, batches: FreshBatches, source: Source, roster: Roster) -> None:
        self.batches, self.source, self._roster = batches, source, roster
        #: The protocols of the batches so far, which are public.
        self.protocols: list[VectorSum | PoissonSum] = []

    @property
    def left(self) -> int:
        """The number of users not yet asked."""
        return self.batches.n_users - sum(protocol.n_users for protocol in self.protocols)

    def next(self, contributions: Contributions, *, size: int, clip: float) -> FloatArray:
        """Return the noisy mean over the next users of the roster, (dimension,).

        Args:
            contributions: the vectors that the blocks of the roster would add.
            size: the number of users to ask, chosen from nothing but public numbers and what was
                published.
            clip: the clipping bound of a user's vector, chosen likewise.

        Raises:
            ParameterError: if fewer users than ``size`` are left, or they are too few to keep the
                promise.
        """
        if _validate.integer(minimum=1, size=size) > self.left:
            raise ParameterError(
                f"size must be at most {self.left}, the number of users not yet queried, not "
                f"{_validate.said(size)}, because each user is queried only once."
            )
        if contributions.dimension != self.batches.dimension:
            raise ParameterError(
                f"contributions must have {self.batches.dimension} coordinates, not "
                f"{contributions.dimension}."
            )
        protocol = self.batches.sum_of(size, clip)
        first = self.batches.n_users - self.left
        # These users count as asked from here on, whatever fails afterwards.
        self.protocols.append(protocol)
        held = self._roster.vectors(contributions, first, first + size)
        return protocol.estimate(held, size, self.source) / size


def _check_roster(n_users: int, rounds: int, interaction: Interaction) -> None:
    _validate.one_of(("sequential", "full"), interaction=interaction)
    _validate.integer(minimum=1, n_users=n_users)
    if _validate.integer(minimum=1, rounds=rounds) > n_users and interaction == "sequential":
        raise ParameterError(
            f"rounds must be at most n_users = {n_users}, not {rounds!r}, because each round "
            "queries different users."
        )


def _made(protocol: Messages, **numbers: Any) -> VectorSum | PoissonSum:
    """A sum of one round."""
    _validate.one_of(tuple(_PROTOCOLS), protocol=protocol)
    return _PROTOCOLS[protocol](**numbers)
