"""Base class of shuffled sums: design, the three parties, and a simulated round."""

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
from dpgrain._formatting import quantity
from dpgrain._report_mixins import SumReportMixin
from dpgrain._types import FloatArray
from dpgrain.accounting import Binomial, Event, Poisson
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource, RandomState
from dpgrain.publishing import Charge, Plan, Promise, Query, publish
from dpgrain.publishing.call import recorded
from dpgrain.publishing.draws import CountedSource, counted
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.shuffle.design import Design, Kind, least_noise
from dpgrain.shuffle.device_noise import BinomialNoise, PoissonNoise
from dpgrain.shuffle.encoding import Packing, VectorEncoding
from dpgrain.shuffle.parties import Analyzer, Enrolment, Estimate, Randomizer, Shuffler
from dpgrain.shuffle.simulation import ReportingDevices, corrupt_messages, reporting_devices
from dpgrain.units import Relation, User

# Max devices of a batch: one random bit of each gives noise of 50,000 steps.
_MOST_DEVICES = 10**10
_TAG_BYTES, _FORMAT = 8, "dpgrain.shuffle/1"
# Names of the types of noise in this format.
_NOISE_NAMES = {BinomialNoise: "Coins", PoissonNoise: "Arrivals"}
_NOISE_KINDS: dict[str, Any] = {name: kind for kind, name in _NOISE_NAMES.items()}
# Max steps of the grid, and max steps of the noise, of a design read from JSON.
_MOST_STEPS, _MOST_NOISE_STEPS = 1_000_000, 180_000
# Max coordinates with a bound on floating-point rounding; and exclusive limit of sums.
_MOST_COORDINATES, _LARGEST_SUM = 1 << 20, 1 << 62


@dataclass(frozen=True, kw_only=True)
class ShuffledSum(SumReportMixin, ABC):
    """Base class of shuffled sums, with fields as for :class:`~dpgrain.shuffle.VectorSum`."""

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

    #: True if a user without data is in the middle of the range of contributions.
    centred: ClassVar[bool] = True

    def __post_init__(self, chosen: Design | None) -> None:
        # The design is computed from the other fields.
        object.__setattr__(self, "design", None)
        _validate.plain_numbers(self)
        if _validate.integer(minimum=1, n_users=self.n_users) > _MOST_DEVICES:
            raise ParameterError(f"n_users must be at most 10^10, not {self.n_users!r}.")
        _validate.integer(minimum=1, rounds=self.rounds)
        Promise(User(), self.epsilon, self.delta, self.relation).require_delta(
            "delta must be above 0 for sums of bits, not 0; use 1e-6."
        )
        self.device_count(self.honest_fraction)
        if self.beside is not None and not isinstance(self.beside, Event):
            raise ParameterError(
                f"beside must be an event of dpgrain.accounting, not {_validate.describe(self.beside)}."
            )
        if not isinstance(self.label, str):
            raise ParameterError(f"label must be text, not {_validate.describe(self.label)}.")
        self._check()
        if self._shape[0] > _MOST_COORDINATES:
            raise ParameterError(f"dim must be at most 2^20, not {self._shape[0]!r}.")
        object.__setattr__(self, "design", self._choose_design() if chosen is None else chosen)
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
        """Reject numbers for which accounting, or the work of a device, would take long."""
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
        """Reject a received design that does not satisfy the promise."""
        event = self.event.beside(self.beside)
        if not event.epsilon(self.delta, relation=self.relation) <= self.epsilon:
            raise ParameterError(
                f"the numbers of the protocol do not satisfy epsilon = {self.epsilon:g} at delta "
                f"= {self.delta:g}; use the calibrated ones."
            )

    def to_json(self) -> str:
        """Return the protocol as JSON text of public numbers, for other parties."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        design = values.pop("design")
        noise = {"kind": _NOISE_NAMES[type(design.noise)], **asdict(design.noise)}
        values["beside"] = None if self.beside is None else self.beside.to_dict()
        numbers = {"grid": design.grid, "noise": noise, "leak": design.leak}
        return json.dumps(
            {"format": _FORMAT, "protocol": type(self).__name__, **values, "design": numbers}
        )

    @staticmethod
    def from_json(text: str) -> ShuffledSum:
        """Read a protocol from :meth:`to_json`, and check that it satisfies its promise.

        Args:
            text: the JSON text.

        Raises:
            ParameterError: if the text is not a protocol, or its numbers do not satisfy the stated
                promise.
        """
        try:
            values = json.loads(text)
            if values.pop("format") != _FORMAT:
                raise ValueError
            # Another module defines the types of protocols, and may not be imported yet.
            import_module("dpgrain.shuffle.sums")
            protocols: dict[str, Any] = {kind.__name__: kind for kind in _subclasses(ShuffledSum)}
            kind = protocols[values.pop("protocol")]
            numbers, beside = values.pop("design"), values.pop("beside")
            noise = numbers.pop("noise")
            share = _NOISE_KINDS[noise.pop("kind")](**noise)
            design = Design(**{**numbers, "noise": share})
            event = None if beside is None else Event.from_dict(beside)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise _not_a_protocol() from error
        try:
            protocol: ShuffledSum = kind(**values, beside=event, chosen=design)
        except TypeError as error:
            raise _not_a_protocol() from error
        return protocol

    # -- each type of protocol defines these --

    @abstractmethod
    def _check(self) -> None:
        """Reject invalid fields of this type of protocol."""

    @abstractmethod
    def _choose_design(self) -> Design:
        """Return the design for the promise."""

    @property
    @abstractmethod
    def _shape(self) -> tuple[int, float]:
        """Number of coordinates, and the bound of a vector."""

    # -- public numbers --

    @property
    def honest(self) -> int:
        """Minimum number of noise-adding devices of a batch."""
        return self.device_count(self.honest_fraction)

    def device_count(self, honest_fraction: float) -> int:
        """Return the number of devices in a share, rounded up: 0.07 of 100 is 7.

        The decimal digits of the share are used, so that floating point does not matter.
        """
        share = _validate.probability(honest_fraction=honest_fraction)
        if share == 0:
            raise ParameterError(
                "honest_fraction must be above 0, because honest devices must add the noise."
            )
        return max(1, math.ceil(Fraction(repr(float(share))) * self.n_users))

    @property
    def encoding(self) -> VectorEncoding:
        """The encoding of vectors as integers."""
        dim, bound = self._shape
        return VectorEncoding(float(bound), self.design.grid, dim, self.centred)

    @property
    def event(self) -> Event:
        """The event of all rounds together."""
        return self.event_with(self.honest)

    def event_with(self, honest: int, rounds: int | None = None) -> Binomial | Poisson:
        """Return the event for a given number of honest devices.

        Args:
            honest: the number of honest devices, at least 1.
            rounds: the number of rounds with the same users; by default all.
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
        """Standard deviation of a sum's coordinate, with rounding, if all are honest."""
        return self.analyzer().standard_error(self.n_users)

    @property
    def influence(self) -> float:
        """The largest l2 change of the sum by one corrupt device, with any counts."""
        dim, _ = self._shape
        return self.randomizer().packing.largest * self.encoding.step * math.sqrt(dim)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Public or assumed facts."""
        return self.facts_with(self.honest)

    def facts_with(self, honest: int) -> tuple[Fact, ...]:
        """Return the facts for a given number of honest devices."""
        dim, bound = self._shape
        shape = (
            Fact("device-vectors", (dim, bound))
            if self.centred
            else Fact("device-numbers", (bound,))
        )
        return (
            Fact("batches", (self.n_users, self.rounds)),
            Fact("shuffler"),
            Fact("honest-devices", (honest,)),
            shape,
        )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all rounds together."""
        return self._promise(self.event, private=True)

    def guarantee_with(self, honest_fraction: float) -> Guarantee:
        """Return the guarantee for another share of honest devices.

        Args:
            honest_fraction: the share γ, in (0, 1].

        Raises:
            ParameterError: if γ is not in (0, 1].
        """
        honest = self.device_count(honest_fraction)
        return self._promise(self.event_with(honest), private=True, honest=honest)

    def _promise(self, event: Event, *, private: bool, honest: int | None = None) -> Guarantee:
        facts = self.facts if honest is None else self.facts_with(honest)
        return Guarantee("user", "", self.relation, self.delta, event, facts, private)

    # -- the three parties --

    def randomizer(self, round: int = 0) -> Randomizer:  # noqa: A002
        """Return the randomizer, which runs on each device, for one round."""
        return Randomizer(self.encoding, self.design.noise, self._packing(round))

    def shuffler(self, round: int = 0, *, enrolment: Enrolment | None = None) -> Shuffler:  # noqa: A002
        """Return a new shuffler, which collects the reports of one round.

        Args:
            round: the number of the round, from 0; reports of other rounds are malformed.
            enrolment: the record of participants in other rounds, if each device may be in only
                one.

        Raises:
            ParameterError: if there are more rounds than the promise covers, and devices could
                participate in them.
        """
        self._check_round(round, enrolment)
        return Shuffler(self._packing(round), self.n_users, self.honest, enrolment)

    def analyzer(self, round: int = 0) -> Analyzer:  # noqa: A002
        """Return the analyzer, which computes a sum from the multiset of one round."""
        return Analyzer(self.encoding, self.design.noise, self._packing(round), self.n_users)

    def _check_round(self, of_round: int, enrolment: Enrolment | None) -> None:
        """Reject a round beyond the rounds of the promise."""
        if enrolment is not None:
            _validate.instance(Enrolment, enrolment=enrolment)
        if enrolment is None and _validate.integer(minimum=0, round=of_round) >= self.rounds:
            raise ParameterError(
                f"round {of_round} is beyond the {quantity(self.rounds, 'round')} of the "
                "guarantee, counted from 0; pass rounds=…, or enrolment=Enrolment(), the same "
                "for all rounds, so that no device participates twice."
            )

    def _packing(self, of_round: int) -> Packing:
        # The promise is part of the tag. Otherwise a report could count under a weaker promise than
        # the device was shown: in a batch released with fewer reports, or in more rounds.
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

    def estimate(
        self, tiles: Iterable[FloatArray], enrolled: int, source: RandomSource
    ) -> FloatArray:
        """Simulate one round, and return the analyzer's estimate of the sum, (d,).

        ``tiles`` are arrays (k, d) of the vectors of enrolled users with data; a row that is not
        finite is ignored. All ``enrolled`` devices add noise.

        The counts have the same distribution as the analyzer's if all messages were sent
        individually. Formal guarantee: that of :attr:`event`, if at least :attr:`honest` devices
        are enrolled.
        """
        if not self.honest <= _validate.integer(minimum=1, enrolled=enrolled) <= self.n_users:
            raise ParameterError(
                f"enrolled must be between {self.honest:,}, the devices that add the noise, and "
                f"n_users = {self.n_users:,}, not {enrolled!r}."
            )
        draws = counted(source, self.event)
        return self.analyzer().decoded(self._ones(tiles, enrolled, draws), enrolled)

    def _ones(
        self, tiles: Iterable[FloatArray], devices: int, source: CountedSource
    ) -> NDArray[np.int64]:
        """Return (d,) numbers of ones from honest devices, some of them with data."""
        total, present = self.encoding.total(tiles, source)
        total = total + (devices - present) * self.encoding.null
        law, part = self.design.noise.law(devices), self.event_with(self.honest, 1)
        return total + source.counts(part, law, len(total))

    def _simulate(
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

    @recorded
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
            values: the vectors or numbers of the users, as for ``simulate``.
            share: the share of the open budget, instead of the protocol's ε and δ.
            random_state: a seed; the result is then not private.
            dropped: the devices that never report.
            corrupt: the counts of corrupt devices.

        Raises:
            ParameterError: if the share is out of range, or no budget is open.
        """
        stated = None if share is not None else self.epsilon
        promise = Promise.of(User(), stated, self.delta, self.relation, share)
        vectors, rows = self.encoding.unread(values)
        return RoundQuery(promise, self, vectors, rows, dropped, corrupt, random_state)


@dataclass(frozen=True, eq=False, repr=False)
class RoundQuery(Query[Estimate]):
    """A query for one round of a sum, over vectors in this process."""

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
        """(k, d) counts of corrupt devices."""
        protocol = self.protocol
        largest = protocol._packing(0).largest
        return corrupt_messages(self.corrupt, protocol._shape[0], largest)

    @cached_property
    def reporting(self) -> ReportingDevices:
        """The honest devices with reports."""
        protocol, corrupt = self.protocol, len(self.messages)
        honest = protocol.n_users - corrupt
        if self.rows > honest:
            raise ParameterError(
                f"X must have at most {honest:,} rows, because n_users = {protocol.n_users:,} "
                f"includes {corrupt:,} corrupt devices."
            )
        reporting = reporting_devices(self.dropped, honest, self.rows)
        if reporting.devices < protocol.honest:
            raise ParameterError(
                f"the batch has {reporting.devices:,} of the {protocol.honest:,} honest reports that "
                "it needs; lower honest_fraction, so that every device adds more noise."
            )
        return reporting

    @property
    def plan(self) -> Plan:
        """The guarantee and the noise of the round."""
        # Raises if there are too few devices.
        _ = self.reporting
        protocol, event = self.protocol, self.event
        guarantee = protocol._promise(event, private=True)
        return Plan(guarantee, protocol.n_users, parts={"round": event})

    def run(self, charge: Charge) -> Estimate:
        """Count the ones from devices, and decode their sum."""
        protocol, reporting = self.protocol, self.reporting
        vectors = charge.read(lambda: protocol.encoding.vectors(self.vectors))
        ones = protocol._ones(
            [vectors[reporting.rows]], reporting.devices, charge.rounds(self.event)
        )
        analyzer, reports = protocol.analyzer(), reporting.devices + len(self.messages)
        value = analyzer.decoded(ones + self.messages.sum(axis=0), reports)
        return Estimate(value, analyzer.standard_error(reports), reports)


def exact_design(kind: Kind, protocol: ShuffledSum) -> Design:
    """Return the design with the least noise for the promise of a protocol."""
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


def _not_a_protocol() -> ParameterError:
    return ParameterError(
        "the text is not a protocol of dpgrain.shuffle; pass the output of to_json."
    )


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield all direct and indirect subclasses of a class."""
    for own in kind.__subclasses__():
        yield own
        yield from _subclasses(own)
