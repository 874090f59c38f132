"""The base of all shuffled sums: the numbers for a promise, three parties, and one simulated round."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import InitVar, asdict, dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain._shown import ShownSum
from dpgrain._types import FloatArray
from dpgrain._wording import counted
from dpgrain.accounting import Event
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState, Source
from dpgrain.noise.counts import counts_of
from dpgrain.publishing import Charge, Planned, Promise, Query, publish
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.shuffle.design import Design, Kind, least_noise
from dpgrain.shuffle.device_noise import Arrivals, Coins
from dpgrain.shuffle.encoding import Encoding, Packing
from dpgrain.shuffle.parties import Analyzer, Enrolment, Estimate, Randomizer, Shuffler
from dpgrain.shuffle.simulation import Here, corrupt_messages, here_of
from dpgrain.units import Relation, User

# Devices of a batch, at most: one coin of each makes noise of 50,000 steps.
_MOST_DEVICES = 10**10
_TAG_BYTES, _FORMAT = 8, "dpgrain.shuffle/1"
# Steps of the grid that numbers which were handed on may have, at most, and those of noise.
_MOST_STEPS, _MOST_NOISE_STEPS = 1_000_000, 180_000
# Coordinates for which rounding in floating point is bounded, at most; and the number that sums stay
# below.
_MOST_COORDINATES, _LARGEST_SUM = 1 << 20, 1 << 62


@dataclass(frozen=True, kw_only=True)
class ShuffledSum(ShownSum, ABC):
    """The base class of shuffled sums; :class:`~dpgrain.shuffle.sums.VectorSum` explains the fields."""

    n_users: int
    epsilon: float
    delta: float
    relation: Relation = "replace"
    rounds: int = 1
    honest_fraction: float = 1.0
    beside: Event | None = None
    label: str = ""
    design: Design = field(init=False, repr=False)
    chosen: InitVar[Design | None] = None

    #: True if a user without data lies in the middle of what others may add.
    centred: ClassVar[bool] = True

    def __post_init__(self, chosen: Design | None) -> None:
        # The design is computed from the other fields.
        object.__setattr__(self, "design", None)
        _validate.plain(self)
        if _validate.integer(minimum=1, n_users=self.n_users) > _MOST_DEVICES:
            raise ParameterError(f"n_users must be at most 10^10, not {self.n_users!r}.")
        _validate.integer(minimum=1, rounds=self.rounds)
        Promise(User(), self.epsilon, self.delta, self.relation).require_delta(
            "delta must be above 0 for sums of bits, not 0; use 1e-6."
        )
        self.devices_of(self.honest_fraction)
        if self.beside is not None and not isinstance(self.beside, Event):
            raise ParameterError(
                f"beside must be an event of dpgrain.accounting, not {_validate.said(self.beside)}."
            )
        if not isinstance(self.label, str):
            raise ParameterError(f"label must be text, not {_validate.said(self.label)}.")
        self._check()
        if self._shape[0] > _MOST_COORDINATES:
            raise ParameterError(f"dim must be at most 2^20, not {self._shape[0]!r}.")
        object.__setattr__(self, "design", self._designed() if chosen is None else chosen)
        if chosen is not None:
            self._check_numbers()
        if self.n_users * self._packing(0).largest >= _LARGEST_SUM:
            raise ParameterError(
                f"n_users = {self.n_users:,} is too large for the noise of each device, because a "
                "sum could exceed 2^62."
            )
        if chosen is not None:
            self._check_promise()

    def _with(self, epsilon: float, delta: float) -> Self:
        """Return the protocol with another promise, and with the noise for it."""
        return replace(self, epsilon=epsilon, delta=delta, chosen=None)

    def _check_numbers(self) -> None:
        """Refuse numbers for which accounting, or the work of a device, would take long."""
        _validate.instance(Design, chosen=self.design)
        _ = self.encoding
        law = self.design.noise.law(self.n_users)
        if self.design.grid > _MOST_STEPS or not 0 < law.variance <= _MOST_NOISE_STEPS**2:
            raise ParameterError(
                f"the numbers of the protocol are too large: {self.design.grid:,} steps (at most "
                f"{_MOST_STEPS:,}), noise of {math.sqrt(abs(law.variance)):,.0f} of them (at most "
                f"{_MOST_NOISE_STEPS:,})."
            )

    def _check_promise(self) -> None:
        """Refuse numbers that do not keep the promise, so that nobody need trust what was handed on."""
        event = self.event.beside(self.beside)
        if not event.epsilon(self.delta, relation=self.relation) <= self.epsilon:
            raise ParameterError(
                f"the numbers of the protocol do not satisfy epsilon = {self.epsilon:g} at delta "
                f"= {self.delta:g}; use the calibrated ones."
            )

    def to_json(self) -> str:
        """The protocol as JSON text of public numbers, for devices and analyzers elsewhere."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        design = values.pop("design")
        noise = {"kind": type(design.noise).__name__, **asdict(design.noise)}
        values["beside"] = None if self.beside is None else self.beside.to_dict()
        numbers = {"grid": design.grid, "noise": noise, "leak": design.leak}
        return json.dumps(
            {"format": _FORMAT, "protocol": type(self).__name__, **values, "design": numbers}
        )

    @staticmethod
    def from_json(text: str) -> ShuffledSum:
        """Read a protocol from :meth:`to_json`, with the same numbers, if they keep its promise.

        Args:
            text: the JSON text.

        Raises:
            ParameterError: if the text is no protocol, or its numbers do not keep the stated promise.

        >>> from dpgrain.shuffle import VectorSum
        >>> protocol = VectorSum(n_users=1000, dim=3, epsilon=1.0, delta=1e-6)
        >>> VectorSum.from_json(protocol.to_json()) == protocol
        True
        """
        try:
            values = json.loads(text)
            if values.pop("format") != _FORMAT:
                raise ValueError
            # Another module defines the kinds, and may not be imported yet.
            import_module("dpgrain.shuffle.sums")
            protocols: dict[str, Any] = {kind.__name__: kind for kind in _subclasses(ShuffledSum)}
            kind = protocols[values.pop("protocol")]
            numbers, beside = values.pop("design"), values.pop("beside")
            noise = numbers.pop("noise")
            share = {"Coins": Coins, "Arrivals": Arrivals}[noise.pop("kind")](**noise)
            design = Design(**{**numbers, "noise": share})
            event = None if beside is None else Event.from_dict(beside)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise _foreign() from error
        try:
            protocol: ShuffledSum = kind(**values, beside=event, chosen=design)
        except TypeError as error:
            raise _foreign() from error
        return protocol

    # -- each kind of protocol defines these --

    @abstractmethod
    def _check(self) -> None:
        """Refuse fields of this kind of protocol that are out of range."""

    @abstractmethod
    def _designed(self) -> Design:
        """Return the numbers of the protocol for the promise."""

    @property
    @abstractmethod
    def _shape(self) -> tuple[int, float]:
        """The number of coordinates, and the bound of a vector."""

    # -- public numbers --

    @property
    def honest(self) -> int:
        """The least number of noise-adding devices of a batch."""
        return self.devices_of(self.honest_fraction)

    def devices_of(self, honest_fraction: float) -> int:
        """The number of devices that a share of a batch stands for, as it is written: 0.07 of 100 is 7.

        Args:
            honest_fraction: the share, in (0, 1].

        Raises:
            ParameterError: if the share is not in (0, 1].
        """
        share = _validate.probability(honest_fraction=honest_fraction)
        if share == 0:
            raise ParameterError(
                "honest_fraction must be above 0, because honest devices must add the noise."
            )
        return max(1, math.ceil(Fraction(repr(float(share))) * self.n_users))

    @property
    def encoding(self) -> Encoding:
        """The encoding of vectors as integers."""
        dim, bound = self._shape
        return Encoding(float(bound), self.design.grid, dim, self.centred)

    @property
    def event(self) -> Event:
        """The event of all rounds together."""
        return self.event_with(self.honest)

    def event_with(self, honest: int, rounds: int | None = None) -> Event:
        """The event if a stated number of devices is honest.

        Args:
            honest: the number of honest devices, at least 1.
            rounds: the number of rounds in which the same users take part; by default all.
        """
        if rounds is not None:
            rounds = _validate.integer(minimum=1, rounds=rounds)
        return self.design.noise.event(
            _validate.integer(minimum=1, honest=honest),
            grid=self.design.grid,
            coordinates=self._shape[0],
            leak=self.design.leak,
            rounds=rounds or self.rounds,
            centred=self.centred,
        )

    @property
    def noise_sd(self) -> float:
        """The standard deviation of a coordinate of the sum, with all rounding, if all are honest."""
        return self.analyzer().standard_error(self.n_users)

    @property
    def influence(self) -> float:
        """The distance in l2 norm by which one corrupt device can move the sum, with any counts."""
        dim, _ = self._shape
        return self.randomizer().packing.largest * self.encoding.step * math.sqrt(dim)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public or assumed facts."""
        return self.facts_with(self.honest)

    def facts_with(self, honest: int) -> tuple[Fact, ...]:
        """The facts if a stated number of devices is honest.

        Args:
            honest: the number of honest devices, at least 1.
        """
        dim, bound = self._shape
        what = f"vectors of {counted(dim, 'coordinate')} and norm" if self.centred else "numbers of"
        batch, often = counted(self.n_users, "device"), counted(self.rounds, "round")
        return (
            Fact("batches of {}, each of which takes part in {} at most", (batch, often)),
            Fact(
                "a shuffler that is trusted to hand on the bag of all messages of a batch, as its "
                "counts, how many reports there were and how many were dropped, and nothing else"
            ),
            Fact("at least {:,} devices of a batch that report and follow the protocol", (honest,)),
            Fact("{} at most {:g}, shortened to it on the device", (what, bound)),
        )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all rounds together."""
        return self._promise(self.event, private=True)

    def guarantee_with(self, honest_fraction: float) -> Guarantee:
        """The guarantee if another share of the devices is honest.

        Args:
            honest_fraction: the share γ, in (0, 1].

        Raises:
            ParameterError: if γ is not in (0, 1].

        >>> from dpgrain.shuffle import VectorSum
        >>> protocol = VectorSum(n_users=1000, dim=3, l2_bound=1.0, epsilon=1.0, delta=1e-6)
        >>> round(protocol.guarantee_with(0.5).epsilon(), 2)
        1.45
        """
        honest = self.devices_of(honest_fraction)
        return self._promise(self.event_with(honest), private=True, honest=honest)

    def _promise(self, event: Event, *, private: bool, honest: int | None = None) -> Guarantee:
        facts = self.facts if honest is None else self.facts_with(honest)
        public = tuple(map(str, facts))
        return Guarantee("user", "", self.relation, self.delta, event, public, private)

    # -- the three parties --

    def randomizer(self, round: int = 0) -> Randomizer:  # noqa: A002
        """The randomizer, which runs on each device, for one round."""
        return Randomizer(self.encoding, self.design.noise, self._packing(round))

    def shuffler(self, round: int = 0, *, enrolment: Enrolment | None = None) -> Shuffler:  # noqa: A002
        """The shuffler, which collects the reports of one round; make one for each round.

        Args:
            round: the number of the round, from 0; reports of other rounds are malformed.
            enrolment: the record of who took part in other rounds, if each device may in one only.

        Raises:
            ParameterError: if there are more rounds than the promise counts, and nothing keeps devices
                from taking part in them.
        """
        self._counted(round, enrolment)
        return Shuffler(self._packing(round), self.n_users, self.honest, enrolment)

    def analyzer(self, round: int = 0) -> Analyzer:  # noqa: A002
        """The analyzer, which makes a sum from the bag of one round."""
        return Analyzer(self.encoding, self.design.noise, self._packing(round), self.n_users)

    def _counted(self, of_round: int, enrolment: Enrolment | None) -> None:
        """Refuse a round beyond those of the promise."""
        if enrolment is not None:
            _validate.instance(Enrolment, enrolment=enrolment)
        if enrolment is None and _validate.integer(minimum=0, round=of_round) >= self.rounds:
            raise ParameterError(
                f"round {of_round} is beyond the {counted(self.rounds, 'round')} of the "
                "guarantee, counted from 0; pass rounds=…, or enrolment=Enrolment(), the same "
                "for all rounds, so that no device participates twice."
            )

    def _packing(self, of_round: int) -> Packing:
        # The promise is part of the name, or a report could count under a weaker one than the device
        # was shown: in a batch that is handed on with fewer reports, or in more rounds.
        promise = float(self.epsilon), float(self.delta), self.relation, self.rounds, self.honest
        public = {
            "protocol": type(self).__name__,
            "label": self.label,
            "users": self.n_users,
            "shape": self._shape,
            "promise": promise,
            "beside": None if self.beside is None else self.beside.to_dict(),
            "design": asdict(self.design),
            "round": _validate.integer(minimum=0, round=of_round),
        }
        tag = hashlib.sha256(json.dumps(public, sort_keys=True).encode()).digest()[:_TAG_BYTES]
        return Packing(tag, self._shape[0], self.design.noise.largest(self.design.grid))

    # -- in one process --

    def estimate(self, tiles: Iterable[FloatArray], enrolled: int, source: Source) -> FloatArray:
        """Make one round in this process, and return the analyzer's estimate of the sum, (d,).

        Args:
            tiles: arrays (k, d) of the vectors of users who have data, who are among the enrolled; a
                row that is not finite counts as none.
            enrolled: the number of devices that take part; those without data add noise, too.
            source: the source of randomness.

        The counts are drawn as the analyzer sees them, with the law that they would have if all
        messages were made one by one. Formal guarantee: that of :attr:`event`, if at least
        :attr:`honest` devices are enrolled.
        """
        if not self.honest <= _validate.integer(minimum=1, enrolled=enrolled) <= self.n_users:
            raise ParameterError(
                f"enrolled must be between {self.honest:,}, the devices that add the noise, and "
                f"n_users = {self.n_users:,}, not {enrolled!r}."
            )
        return self.analyzer().decoded(self._ones(tiles, enrolled, source), enrolled)

    def _ones(self, tiles: Iterable[FloatArray], devices: int, source: Source) -> NDArray[np.int64]:
        """Return (d,) numbers of ones that honest devices send, some of which have data."""
        total, present = self.encoding.total(tiles, source)
        total = total + (devices - present) * self.encoding.null
        return total + counts_of(self.design.noise.law(devices), len(total), source)

    def _simulated(
        self,
        values: ArrayLike,
        share: float | None,
        random_state: RandomState,
        dropped: int | ArrayLike,
        corrupt: ArrayLike | None,
    ) -> Estimate:
        return publish(
            self.query(
                values, share=share, random_state=random_state, dropped=dropped, corrupt=corrupt
            )
        )

    def query(
        self,
        values: ArrayLike,
        *,
        share: float | None = None,
        random_state: RandomState = None,
        dropped: int | ArrayLike = 0,
        corrupt: ArrayLike | None = None,
    ) -> Query[Estimate]:
        """Return one simulated round as a query; nothing is read.

        Args:
            values: the vectors or numbers of the users, as ``simulate`` takes them.
            share: the share of the open budget, in place of the protocol's ε and δ.
            random_state: a seed, which makes the result not private.
            dropped: the devices that never report.
            corrupt: the counts that corrupt devices send.

        Raises:
            ParameterError: if the share is out of range, or no budget is open.
        """
        stated = None if share is not None else self.epsilon
        promise = Promise.of(User(), stated, self.delta, self.relation, share)
        vectors, rows = self.encoding.unread(values)
        return RoundQuery(promise, self, vectors, rows, dropped, corrupt, random_state)


@dataclass(frozen=True, eq=False, repr=False)
class RoundQuery(Query[Estimate]):
    """A query for one round of a sum, over vectors in this process.

    Args:
        promise: what is promised.
        protocol: the protocol, which keeps the promise if its own is another.
        vectors: the vectors of the users with data, as they were passed.
        rows: the number of vectors.
        dropped: the devices that never report.
        corrupt: the counts that corrupt devices send.
        random_state: a seed, for tests and research.
    """

    promise: Promise
    protocol: ShuffledSum
    vectors: Any
    rows: int
    dropped: int | ArrayLike = 0
    corrupt: ArrayLike | None = None
    random_state: RandomState = None

    def _with(self, promise: Promise) -> RoundQuery:
        """Return the same round with the noise of another promise."""
        protocol = self.protocol._with(promise.epsilon, promise.delta)
        return replace(self, promise=promise, protocol=protocol)

    @property
    def event(self) -> Event:
        """The noise of the round."""
        return self.protocol.event_with(self.protocol.honest, 1)

    @cached_property
    def messages(self) -> NDArray[np.int64]:
        """(k, d) counts that corrupt devices send."""
        protocol = self.protocol
        largest = protocol._packing(0).largest
        return corrupt_messages(self.corrupt, protocol._shape[0], largest)

    @cached_property
    def here(self) -> Here:
        """The honest devices with reports."""
        protocol, corrupt = self.protocol, len(self.messages)
        honest = protocol.n_users - corrupt
        if self.rows > honest:
            raise ParameterError(
                f"X must have at most {honest:,} rows, because n_users = {protocol.n_users:,} "
                f"includes {corrupt:,} corrupt devices."
            )
        here = here_of(self.dropped, honest, self.rows)
        if here.devices < protocol.honest:
            raise ParameterError(
                f"the batch has {here.devices:,} of the {protocol.honest:,} honest reports that "
                "it needs; lower honest_fraction, so that every device adds more noise."
            )
        return here

    @property
    def plan(self) -> Planned:
        """The noise of the round."""
        # A round without enough devices is refused.
        _ = self.here
        return Planned(self.protocol._promise(self.event, private=True), self.protocol.n_users)

    def run(self, charge: Charge) -> Estimate:
        """Count the ones from devices, and decode their sum."""
        protocol, here = self.protocol, self.here
        vectors = charge.read(lambda: protocol.encoding.vectors(self.vectors))
        ones = protocol._ones([vectors[here.rows]], here.devices, charge.lend(self.event))
        analyzer, reports = protocol.analyzer(), here.devices + len(self.messages)
        value = analyzer.decoded(ones + self.messages.sum(axis=0), reports)
        return Estimate(value, analyzer.standard_error(reports), reports)


def exact_design(kind: Kind, protocol: ShuffledSum) -> Design:
    """Return the numbers with the least noise for the promise of a protocol.

    Args:
        kind: the kind of noise.
        protocol: the protocol, which states the promise and the number of devices.
    """
    return least_noise(
        kind,
        protocol.centred,
        protocol.n_users,
        protocol.honest,
        protocol._shape[0],
        protocol.epsilon,
        protocol.delta,
        protocol.relation,
        protocol.rounds,
        protocol.beside,
    )


def _foreign() -> ParameterError:
    return ParameterError(
        "the text is not a protocol of dpgrain.shuffle; pass the output of to_json."
    )


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield all subclasses of a class, and theirs."""
    for own in kind.__subclasses__():
        yield own
        yield from _subclasses(own)
