"""Pan-private means of a stream of users with a state that may be seen once."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.accounting import Event, Gaussian, calibrate
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.errors import ParameterError
from dpgrain.inputs.numbers import numeric_array
from dpgrain.means.block_owners import BlockOwners
from dpgrain.means.grid import on_grid
from dpgrain.means.mean_protocol import Contributions, CountedRounds
from dpgrain.noise import RandomSource
from dpgrain.noise.sources import resolve_source
from dpgrain.numerics.row_clipping import clipped, zero_nonfinite_rows
from dpgrain.publishing.draws import counted
from dpgrain.publishing.facts import Fact
from dpgrain.units import Level, Relation, Trust

FORMAT, VERSION = "dpgrain pan-private stream", 1

# Grid steps per clipping bound, and max grid steps per noise standard deviation.
_STEPS_PER_CLIP, _STEPS_PER_NOISE = 2.0**24, 2.0**38
# Largest integer of a state, far above the sum of any known population.
_LARGEST_INTEGER = 2**62


@dataclass(frozen=True)
class PanPrivate:
    """The means of batches of users, with noise before and after each batch.

    Batch t of T contains the users at positions ⌊tn/T⌋ to ⌊(t+1)n/T⌋ − 1 of the known population.
    Each user is in one batch, and the mean is divided by the public size of the batch. Users
    without data count as zero.

    Args:
        clip: the clipping bound, l2 norm of one user's vector.
        noise_multiplier: sd ÷ clip of each of the two noises of a batch.
        n_users: n, the public size of the known population.
        rounds: T, the number of published means, each of one batch.

    Raises:
        ParameterError: if a value is out of range, or there are more rounds than users.

    Formal guarantee: all means, and the state of a :class:`PanPrivateStream` at one time between
    two users, cost :attr:`event`: one Gaussian of the noise multiplier, for any data and any number
    of rounds. A user changes either the observed state, protected by the first noise, or a later
    addition, protected by the second. The time may depend on earlier outputs. If the state is seen
    twice, a user may be identified. Sums are sums of integers. Source: Cheu, Joseph, Mao and Peng
    2022, Algorithm 6, with the exact curve instead of 8·log(2/δ)/ε²; docs/theory, "Pan privacy".

    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SystemSource
    >>> mean = PanPrivate.calibrate(epsilon=1.0, delta=1e-6, n_users=1000, rounds=2, clip=1.0)
    >>> run = mean.start(SystemSource(), np.arange(1000))
    >>> bool(abs(run.estimate(Vectors(np.full((1000, 2), 0.5))) - 0.5).max() < 0.1)
    True
    >>> mean.event.epsilon(1e-6) <= 1.0
    True
    """

    clip: float
    noise_multiplier: float
    n_users: int
    rounds: int

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        _validate.scale(clip=self.clip)
        _validate.noise(noise_multiplier=self.noise_multiplier)
        _validate.integer(minimum=1, n_users=self.n_users)
        if _validate.integer(minimum=1, rounds=self.rounds) > self.n_users:
            raise ParameterError(
                f"rounds must be at most n_users = {self.n_users}, not {self.rounds!r}, because "
                "each round uses different users."
            )

    @staticmethod
    def calibrate(
        *,
        epsilon: float,
        delta: float,
        n_users: int,
        rounds: int,
        clip: float = 1.0,
        relation: Relation = "zero_out",
        beside: Event | None = None,
    ) -> PanPrivate:
        """Calibrate the pan-private mean with the least noise for a guarantee.

        Args:
            epsilon: the promised ε.
            delta: the promised δ.
            n_users: the public size of the known population.
            rounds: the number of published means.
            clip: the clipping bound.
            relation: the neighbouring relation.
            beside: the event of other releases under the same promise; nothing by default.

        Raises:
            ParameterError: if a value is out of range, or no noise satisfies the promise.

        >>> few, many = (
        ...     PanPrivate.calibrate(epsilon=1.0, delta=1e-6, n_users=1000, rounds=rounds)
        ...     for rounds in (1, 100)
        ... )
        >>> few.noise_multiplier == many.noise_multiplier, round(many.noise_sd / few.noise_sd)
        (True, 100)
        """

        def event(noise: float) -> Event:
            return Gaussian(noise, ONE_EACH).beside(beside)

        result = calibrate(event, epsilon, delta, relation=relation, low=2.0**-10)
        return PanPrivate(clip, result.parameter, n_users, rounds)

    @property
    def level(self) -> Level:
        """The protected level: users."""
        return "user"

    @property
    def event(self) -> Gaussian:
        """The accountant's event for all means and one observation of the state."""
        # It counts once, not once per round, because a user is in one batch.
        return Gaussian(self.noise_multiplier, ONE_EACH)

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of each coordinate of the smallest batch's mean."""
        return math.sqrt(2) * self.noise_multiplier * self.clip / (self.n_users // self.rounds)

    @property
    def reach(self) -> float:
        """Clipping bound of a user's vector."""
        return self.clip

    @property
    def trust(self) -> Trust:
        """The party with access to data: the operator of the stream."""
        return "pan"

    @property
    def fresh(self) -> bool:
        """True if each round has its own users, which is the case for batches."""
        return True

    @property
    def compares(self) -> bool:
        """False, because no user is compared with another."""
        return False

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts behind the mean."""
        smallest, largest = self.n_users // self.rounds, -(-self.n_users // self.rounds)
        sizes = f"{smallest:,}" + (f" or {largest:,}" if largest > smallest else "")
        return (
            Fact("state-seen"),
            Fact("ordered-rounds", (self.rounds, sizes)),
            Fact("clipping-radius", (self.clip,)),
        )

    @property
    def step(self) -> float:
        """Grid step for adding vectors, a power of two."""
        finest = max(1 / _STEPS_PER_CLIP, self.noise_multiplier / _STEPS_PER_NOISE)
        return 2.0 ** math.floor(math.log2(self.clip * finest))

    def first(self, batch: int) -> int:
        """Return the position of a batch's first user, from 0; n after the last batch.

        >>> [PanPrivate(1.0, 1.0, n_users=8, rounds=3).first(batch) for batch in range(4)]
        [0, 2, 5, 8]
        """
        return batch * self.n_users // self.rounds

    def batch_index(self, place: int) -> int:
        """Return the batch of the user at a position of the known population.

        >>> [PanPrivate(1.0, 1.0, n_users=8, rounds=3).batch_index(place) for place in range(8)]
        [0, 0, 1, 1, 1, 2, 2, 2]
        """
        return ((place + 1) * self.rounds - 1) // self.n_users

    def start(self, source: RandomSource, owners: NDArray[Any] | None = None) -> PanPrivateRounds:
        """Start a run.

        Args:
            source: the source of noise.
            owners: (blocks,): the position in the known population, 0 to n−1, of the user of each
                block. It must not depend on which other users have data. Users at other positions
                are in no batch, and several blocks of a user are added up.

        Raises:
            ParameterError: if owners are missing, or not integers.
        """
        return PanPrivateRounds(self, source, BlockOwners.from_indices(owners))


class PanPrivateStream:
    """A stream of users' vectors, received one by one, with a noisy sum as its state.

    Args:
        mean: the public numbers of the mean.
        dimension: the length of the vectors.
        source: the source of noise; by default the operating system. Only that one is private,
            because an observer of the state must not see the state of a generator.

    Raises:
        ParameterError: if the dimension is not a positive integer.

    Formal guarantee: that of :class:`PanPrivate`, for one observation of the output of
    :meth:`to_json`, which is the complete state. Every remaining copy is another observation, so
    overwrite the last one, and never continue from an older one. Traces of recently added vectors
    in a computer's memory are not covered.

    >>> mean = PanPrivate.calibrate(epsilon=1.0, delta=1e-6, n_users=2000, rounds=2)
    >>> stream, published = PanPrivateStream(mean, dimension=2), []
    >>> for _ in range(2000):
    ...     found = stream.receive([0.6, 0.8])
    ...     if found is not None:
    ...         published.append(found)
    >>> len(published), bool(abs(published[0] - [0.6, 0.8]).max() < 0.1)
    (2, True)
    """

    def __init__(
        self, mean: PanPrivate, dimension: int, source: RandomSource | None = None
    ) -> None:
        self.mean = _validate.instance(PanPrivate, mean=mean)
        self._received = 0
        dimension = _validate.integer(minimum=1, dimension=dimension)
        self._source = counted(resolve_source(source), mean.event)
        self._state = self._first_state(dimension)

    @property
    def received(self) -> int:
        """Number of users received, with or without data; also the next position."""
        return self._received

    @property
    def state(self) -> NDArray[np.int64]:
        """The noisy sum of the current batch, (dimension,), in grid steps."""
        return self._state.copy()

    def receive(self, vector: ArrayLike | None) -> FloatArray | None:
        """Add the next user of the known population.

        Args:
            vector: (dimension,) the user's vector; None for a user without data. A non-finite
                vector counts as zero, and so does a list of another length.

        Returns:
            (dimension,) the noisy mean of the batch, if this user is its last; otherwise None.

        Raises:
            ParameterError: if all users have been received, or the vector is an array of another
                type or shape.
        """
        if self._received >= self.mean.n_users:
            raise ParameterError(
                f"n_users = {self.mean.n_users} users have been received, and no further one was "
                "accounted for; pass the size of the roster."
            )
        return self._add(self._row(vector), users=1)

    def _add(self, vectors: FloatArray, users: int) -> FloatArray | None:
        """Add vectors of one batch and count users, as integers of one batch at a time."""
        mean = self.mean
        if vectors.shape[1] != len(self._state):
            raise ParameterError(
                f"vectors must have {len(self._state)} coordinates like the previous ones, not "
                f"{vectors.shape[1]}."
            )
        batch = mean.batch_index(self._received)
        steps = on_grid(clipped(vectors, mean.clip), mean.clip, mean.step)
        self._state += steps.sum(axis=0)
        self._received += users
        if self._received < mean.first(batch + 1):
            return None
        noisy = self._noisy(self._state)
        self._state = self._first_state(len(self._state))
        size = mean.first(batch + 1) - mean.first(batch)
        result: FloatArray = noisy.astype(np.float64) * mean.step / size
        return result

    def to_json(self) -> str:
        """Return the complete state as JSON: public numbers, received users, noisy sum."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "mean": dataclasses.asdict(self.mean),
                "received": self._received,
                "state": self._state.tolist(),
            }
        )

    @staticmethod
    def from_json(text: str, source: RandomSource | None = None) -> PanPrivateStream:
        """Read a stream from :meth:`to_json`, for example to continue in another process.

        Args:
            text: the JSON.
            source: the source of further noise; by default the operating system.

        Raises:
            ParameterError: if the text is not such a state, or damaged.

        >>> stream = PanPrivateStream(PanPrivate(1.0, 5.0, n_users=10, rounds=1), dimension=3)
        >>> _ = stream.receive([1.0, 0.0, 0.0])
        >>> PanPrivateStream.from_json(stream.to_json()).received
        1
        """
        try:
            values = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise _foreign() from error
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise _foreign()
        if values.get("version") != VERSION:
            raise ParameterError(
                f"The stream has format version {_validate.describe(values.get('version'))}, which "
                "this version of dpgrain does not support; read it with a newer one."
            )
        try:
            mean, received, state = (values[name] for name in ("mean", "received", "state"))
            mean = PanPrivate(**mean)
            whole = [received, *state]
        except (KeyError, TypeError) as error:
            raise _damaged() from error
        if len(whole) < 2 or any(type(k) is not int or abs(k) > _LARGEST_INTEGER for k in whole):
            raise _damaged()
        if not 0 <= received <= mean.n_users:
            raise _damaged()
        stream = object.__new__(PanPrivateStream)
        stream.mean, stream._received, stream._state = mean, received, np.array(state, np.int64)
        stream._source = counted(resolve_source(source), mean.event)
        stream._start_batch()
        return stream

    def _row(self, vector: ArrayLike | None) -> FloatArray:
        """Return a user's vector, (1, dimension), or (0, dimension) if there is none."""
        d = len(self._state)
        if vector is None:
            return np.zeros((0, d))
        row: Any = vector
        if not isinstance(row, np.ndarray):
            return zero_nonfinite_rows(numeric_array([row], d, name="vector"))
        if row.shape != (d,) or row.dtype.kind not in "fiub":
            raise ParameterError(
                f"vector must be {d} numbers or None, not {row.shape} of {row.dtype}."
            )
        with np.errstate(over="ignore"):
            # Overflows depend on a user's value, so no warning may reveal them.
            return zero_nonfinite_rows(row.astype(np.float64)[None])

    def _first_state(self, dimension: int) -> NDArray[np.int64]:
        """Draw the noise of the state for the users of the next batch."""
        self._start_batch()
        return self._noisy(np.zeros(dimension, dtype=np.int64))

    def _start_batch(self) -> None:
        mean, batch = self.mean, self.mean.batch_index(self._received)
        end = mean.n_users if batch >= mean.rounds else mean.first(batch + 1)
        # The published mean is the state, which is already noisy, with more noise.
        self._draws = self._source.group(mean.first(batch), end, times=2)

    def _noisy(self, state: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add Gaussian noise, in grid steps."""
        mean = self.mean
        return self._draws.noisy(mean.event, state, mean.clip / mean.step)


class PanPrivateRounds(CountedRounds):
    """One run of a :class:`PanPrivate` mean on an array of data.

    Args:
        mean: the public numbers of the mean.
        source: the source of noise.
        roster: the positions of the blocks' users.

    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SeededSource
    >>> mean = PanPrivate.calibrate(epsilon=2.0, delta=1e-6, n_users=600, rounds=2)
    >>> run = mean.start(SeededSource(1), np.arange(600))
    >>> users = Vectors([[0.2]] * 300 + [[0.8]] * 300, dimension=1)
    >>> [run.estimate(users).round(1).tolist() for _ in range(2)]
    [[0.2], [0.8]]
    """

    def __init__(self, mean: PanPrivate, source: RandomSource, roster: BlockOwners) -> None:
        super().__init__(mean)
        self.mean, self.source, self._roster = mean, source, roster
        self._stream: PanPrivateStream | None = None

    def _round(self, contributions: Contributions) -> FloatArray:
        # The round has already been counted, so its batch is the one before ``_done``.
        first, end = (self.mean.first(batch) for batch in (self._done - 1, self._done))
        inputs = self._roster.vectors(contributions, first, end)
        if self._stream is None:
            self._stream = PanPrivateStream(self.mean, contributions.dimension, self.source)
        for vectors in inputs:
            self._stream._add(vectors, users=0)
        # Users without data count as received.
        result = self._stream._add(np.zeros((0, contributions.dimension)), users=end - first)
        assert result is not None  # noqa: S101 - the batch is complete
        return result


def _foreign() -> ParameterError:
    return ParameterError("The text is not a stream of dpgrain; pass the output of to_json.")


def _damaged() -> ParameterError:
    return ParameterError(
        "The stream is damaged, because part of it is missing or invalid; write it again with "
        "to_json."
    )
