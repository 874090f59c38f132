"""The three parties of a shuffled sum, and what goes between them."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain._types import FloatArray, IntArray
from dpgrain._wording import shown
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState, Source, source_of
from dpgrain.noise.counts import counts_of
from dpgrain.shuffle.device_noise import DeviceNoise
from dpgrain.shuffle.encoding import Encoding, Packing

_WORD = 8


@dataclass(frozen=True)
class Randomizer:
    """What runs on a device: clip, round with secret bits, add noise, and write the counts down.

    Args:
        encoding: from vectors to integers.
        noise: the share of the noise.
        packing: from integers to bytes.

    A device without data passes None, and adds the same noise as others.

    >>> from dpgrain.shuffle import VectorSum
    >>> device = VectorSum(n_users=1000, dim=3, l2_bound=1.0, epsilon=1.0, delta=1e-6).randomizer()
    >>> len(device.report([0.6, 0.0, 0.8])) == device.report_bytes
    True
    """

    encoding: Encoding
    noise: DeviceNoise
    packing: Packing

    @property
    def report_bytes(self) -> int:
        """The length of every report."""
        return self.packing.size

    @property
    def messages(self) -> float:
        """The one-bit messages that a report stands for (for Poisson noise: on average)."""
        return self.encoding.dim * self.noise.messages(self.encoding.grid)

    def counts(self, vector: ArrayLike | None, source: Source) -> IntArray:
        """How many ones this device sends for each coordinate, (d,)."""
        encoding = self.encoding
        if isinstance(vector, np.ndarray) and vector.shape != (encoding.dim,):
            raise ParameterError(f"vector must have {encoding.dim} coordinates, in one dimension.")
        given: Any = [vector]
        row = np.zeros((1, encoding.dim)) if vector is None else encoding.vectors(given)
        own = encoding.codes(row, source)[0]
        found: IntArray = own + counts_of(self.noise.law(1), encoding.dim, source)
        return np.minimum(found, self.packing.largest)

    def report(self, vector: ArrayLike | None, random_state: RandomState = None) -> bytes:
        """What the device sends to the shuffler.

        Args:
            vector: (d,); None, or one that is not finite, for no data.
            random_state: a seed, which makes the report not private.

        Raises:
            ParameterError: if the vector is not d numbers.
        """
        source = source_of(random_state)
        return self.packing.pack(self.counts(vector, source), source.words(2).tobytes())


@dataclass(frozen=True)
class Dropped:
    """What was not counted.

    Args:
        malformed: reports or messages that no device can send: other lengths, protocols or rounds,
            numbers out of range.
        surplus: reports or messages beyond the size of the batch.
        repeated: reports that were sent again, or of a device that has taken part before.
    """

    malformed: int = 0
    surplus: int = 0
    repeated: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.malformed + self.surplus + self.repeated

    def plus(self, **more: int) -> Dropped:
        """With some more of them."""
        return replace(self, **{name: getattr(self, name) + n for name, n in more.items()})


@dataclass(frozen=True, eq=False)
class Bag:
    """What the shuffler hands on: the bag of all one-bit messages of a batch, as its counts.

    Args:
        ones: (d,) how many ones there are for each coordinate.
        reports: the number of devices that took part.
        dropped: what the shuffler did not count.
        tag: the protocol and round.
    """

    ones: IntArray
    reports: int
    dropped: Dropped
    tag: bytes

    def to_bytes(self) -> bytes:
        """The bag as bytes."""
        dropped = self.dropped
        numbers = [self.reports, dropped.malformed, dropped.surplus, dropped.repeated]
        return self.tag + np.array([*numbers, *self.ones.tolist()], dtype="<i8").tobytes()

    @staticmethod
    def from_bytes(data: bytes, *, dim: int, tag: bytes) -> Bag:
        """The bag that :meth:`to_bytes` wrote.

        Args:
            data: the bytes.
            dim: d.
            tag: the protocol and round.

        Raises:
            ParameterError: if they are not a bag of this protocol and round.
        """
        if (
            not isinstance(data, bytes)
            or len(data) != len(tag) + _WORD * (4 + dim)
            or not data.startswith(tag)
        ):
            raise ParameterError(
                "the bytes are not a bag of this protocol and round; pass what Bag.to_bytes wrote."
            )
        numbers = np.frombuffer(data, dtype="<i8", offset=len(tag)).astype(np.int64)
        return Bag(numbers[4:], int(numbers[0]), Dropped(*(int(n) for n in numbers[1:4])), tag)

    @staticmethod
    def of_messages(messages: ArrayLike, reports: int, *, most: int, dim: int, tag: bytes) -> Bag:
        """The bag of messages that are there one by one, as the paper has them.

        Args:
            messages: (k, 2) labels of coordinates from 0, and bits, in any order.
            reports: the number of devices that took part.
            most: the messages of a device for one coordinate, at most.
            dim: d.
            tag: the protocol and round.

        Messages that are no bits, or for no coordinate, are malformed; those for a coordinate beyond
        ``reports·most`` are surplus, in the order in which they come. Both are dropped, and counted.

        Raises:
            ParameterError: if messages are not numbers of shape (k, 2).
        """
        array = np.asarray(messages)
        if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "fiub":
            raise ParameterError(
                f"messages must be numbers of shape (k, 2), not {array.shape} of {array.dtype}."
            )
        labels, bits = array[:, 0], array[:, 1]
        well = np.isin(labels, np.arange(dim)) & np.isin(bits, (0, 1))
        labels, bits = labels[well].astype(np.int64), bits[well].astype(np.int64)
        order = np.argsort(labels, kind="stable")
        held = np.bincount(labels, minlength=dim)
        place = np.arange(len(labels)) - np.repeat(np.cumsum(held) - held, held)
        kept = order[place < reports * most]
        ones = np.bincount(labels[kept], weights=bits[kept], minlength=dim).astype(np.int64)
        surplus = len(labels) - len(kept)
        return Bag(ones, reports, Dropped(int((~well).sum()), surplus), tag)


class Enrolment:
    """Who has taken part, and which reports came: in the sequential model nobody does twice.

    >>> enrolment = Enrolment()
    >>> enrolment.take("a"), enrolment.take("a")
    (True, False)
    """

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._reports: set[bytes] = set()

    def take(self, device: Hashable) -> bool:
        """Whether the device takes part for the first time."""
        try:
            if device in self._seen:
                return False
            self._seen.add(device)
        except TypeError:
            raise ParameterError(
                f"device must be an identifier, such as a number or text, not {device!r}."
            ) from None
        return True

    def came(self, report: bytes) -> bool:
        """Whether a report, by its number, has come and counts already."""
        return report in self._reports

    def count(self, report: bytes) -> None:
        """Remember that a report counts."""
        self._reports.add(report)


class Intake:
    """The way into a batch: what comes counts once, in its batch, and is handed on once.

    Args:
        size: n, the devices of a batch; what comes beyond it is surplus.
        least: how many there must be before anything is handed on.
        enrolment: who took part in other batches, where nobody may twice.
    """

    #: What is counted.
    _noun = "reports"

    def __init__(self, size: int, least: int, enrolment: Enrolment | None = None) -> None:
        self._size, self._least = size, least
        self._sequential = enrolment is not None
        self._enrolment = enrolment or Enrolment()
        self._reports, self._dropped, self._released = 0, Dropped(), False

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._reports} of {self._size} {self._noun}, {self._dropped}>"

    @property
    def reports(self) -> int:
        """How many reports count: one of each device."""
        return self._reports

    @property
    def dropped(self) -> Dropped:
        """What does not count."""
        return self._dropped

    def _counts(self, identity: bytes | None, device: Hashable) -> bool:
        """Whether a report counts; if so, nothing of the same identity or device does again.

        Args:
            identity: some bytes that no other report has; None for what is malformed.
            device: who sent it, if that is known.

        Raises:
            ParameterError: if nobody may take part twice and the device is not said, or the batch has
                been handed on.
        """
        self._check_open()
        if self._sequential and device is None:
            raise ParameterError(
                "device must be said where each may take part once: pass device=…, any identifier."
            )
        if identity is None:
            self._dropped = self._dropped.plus(malformed=1)
        elif self._enrolment.came(identity):
            # Sent again: somebody else's copies would drown all noise but that person's own.
            self._dropped = self._dropped.plus(repeated=1)
        elif self._reports == self._size:
            self._dropped = self._dropped.plus(surplus=1)
        elif device is not None and not self._enrolment.take(device):
            self._dropped = self._dropped.plus(repeated=1)
        else:
            self._enrolment.count(identity)
            self._reports += 1
            return True
        return False

    def _close(self) -> None:
        """End the batch.

        Raises:
            ParameterError: if too little has come, or it was handed on before.
        """
        self._check_open()
        if self._reports < self._least:
            raise ParameterError(
                f"the batch has {self._reports} of the {self._least} {self._noun} that it needs: wait "
                "for more."
            )
        self._released = True

    def _check_open(self) -> None:
        if self._released:
            raise ParameterError("the batch has been handed on: make a shuffler for the next.")


class Shuffler(Intake):
    """The trusted middle: it collects the reports of a batch and hands on their bag, and nothing else.

    Args:
        packing: how reports are written.
        size: n, the devices of a batch; reports beyond it are surplus.
        least: how many reports there must be before the bag is handed on.
        enrolment: who took part in other batches, where nobody may twice.

    >>> from dpgrain.shuffle import VectorSum
    >>> protocol = VectorSum(n_users=2, dim=1, l2_bound=1.0, epsilon=1.0, delta=1e-6)
    >>> shuffler, device = protocol.shuffler(), protocol.randomizer()
    >>> shuffler.receive(device.report([0.5])), shuffler.receive(b"nonsense")
    (True, False)
    >>> shuffler.release()
    Traceback (most recent call last):
    ...
    dpgrain.errors.ParameterError: the batch has 1 of the 2 reports that it needs: wait for more.
    """

    def __init__(
        self, packing: Packing, size: int, least: int, enrolment: Enrolment | None = None
    ) -> None:
        super().__init__(size, least, enrolment)
        self._packing = packing
        self._ones = np.zeros(packing.dim, dtype=np.int64)

    def receive(self, report: bytes | bytearray | memoryview, device: Hashable = None) -> bool:
        """Take in one report.

        Args:
            report: the bytes of a device, as they came out of a channel that nobody else can read or
                change. A report that comes again is dropped: who can copy somebody's report, but not
                read it, must not make it count twice.
            device: who sent it, if the transport knows: a second report of a device is dropped.

        Returns:
            whether it counts.

        Raises:
            ParameterError: if nobody may take part twice and the device is not said, or the batch has
                been handed on.
        """
        report = bytes(report) if isinstance(report, bytearray | memoryview) else report
        counts = self._packing.unpack(report)
        identity = None if counts is None else self._packing.nonce_of(report)
        counted = self._counts(identity, device)
        if counted and counts is not None:
            self._ones += counts
        return counted

    def release(self) -> Bag:
        """The bag of the batch; once.

        Raises:
            ParameterError: if there are too few reports, or it was handed on before.
        """
        self._close()
        return Bag(self._ones.copy(), self._reports, self._dropped, self._packing.tag)


@dataclass(frozen=True, eq=False)
class Estimate:
    """What the analyzer makes of a bag.

    Args:
        value: (d,) the sum over all devices, without bias.
        standard_error: of each coordinate, if all that took part are honest: noise, and rounding at
            its largest.
        reports: how many devices took part.
        dropped: what was not counted.
    """

    value: FloatArray
    standard_error: float
    reports: int
    dropped: Dropped = field(default_factory=Dropped)

    def __str__(self) -> str:
        lost = f"; {self.dropped.total:,} dropped" if self.dropped.total else ""
        return (
            f"sum {shown(self.value)}, standard error {self.standard_error:.2g} each, "
            f"{self.reports:,} devices{lost}"
        )


@dataclass(frozen=True)
class Analyzer:
    """Who wants the sum, and is trusted with nothing but the bag.

    Args:
        encoding: from vectors to integers.
        noise: the share of the noise of each device.
        packing: how devices write.
        size: n, the devices of a batch.
    """

    encoding: Encoding
    noise: DeviceNoise
    packing: Packing
    size: int

    def estimate(self, bag: Bag | bytes) -> Estimate:
        """The sum over the devices of a batch.

        Args:
            bag: what the shuffler handed on, or its bytes.

        Raises:
            ParameterError: if it is no bag of this protocol and round, or has numbers that no batch
                can have.
        """
        if not isinstance(bag, Bag):
            bag = Bag.from_bytes(bag, dim=self.encoding.dim, tag=self.packing.tag)
        dropped = (bag.dropped.malformed, bag.dropped.surplus, bag.dropped.repeated)
        most = bag.reports * self.packing.largest
        if (
            bag.tag != self.packing.tag
            or bag.ones.shape != (self.encoding.dim,)
            or not 0 <= bag.reports <= self.size
            or min(dropped) < 0
            or bag.ones.min() < 0
            or bag.ones.max() > most
        ):
            raise ParameterError(
                "the bag is not one of this protocol and round: its numbers are out of range. Use the "
                "analyzer that belongs to the shuffler."
            )
        return Estimate(
            self.decoded(bag.ones, bag.reports),
            self.standard_error(bag.reports),
            bag.reports,
            bag.dropped,
        )

    def estimate_messages(self, messages: ArrayLike, reports: int) -> Estimate:
        """The same from messages that are there one by one; see :meth:`Bag.of_messages`."""
        bag = Bag.of_messages(
            messages,
            reports,
            most=self.packing.largest,
            dim=self.encoding.dim,
            tag=self.packing.tag,
        )
        return self.estimate(bag)

    def decoded(self, ones: NDArray[Any], reports: int) -> FloatArray:
        """The estimated sum, (d,), from the counts of ones of so many devices."""
        expected = reports * (self.encoding.null + self.noise.law(1).mean)
        return (ones - expected) * self.encoding.step

    def standard_error(self, reports: int) -> float:
        """The standard error of a coordinate, with rounding at its largest."""
        variance = reports * (self.noise.law(1).variance + 0.25)
        return math.sqrt(variance) * self.encoding.step
