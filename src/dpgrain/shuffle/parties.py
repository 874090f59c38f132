"""The three parties of a shuffled sum, and the messages between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain._formatting import short_repr
from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource, RandomState
from dpgrain.noise.sources import random_bits, random_source
from dpgrain.publishing.call import KeepsQuery
from dpgrain.publishing.draws import counted
from dpgrain.shuffle.device_noise import DeviceNoise
from dpgrain.shuffle.encoding import Device, Packing, VectorEncoding, device_bytes

if TYPE_CHECKING:
    from dpgrain.inputs import numbers
else:
    # Loaded on first use, because devices have arrays and need no table readers.
    numbers = lazy_import("dpgrain.inputs.numbers")

_WORD_BYTES = 8
# Delta mass of the event of one device, which is not part of any guarantee.
_LEAK = 0.1
# Min and max bytes of a tag: shorter ones match by chance, and a hash has no more bytes.
_LEAST_TAG, _MOST_TAG = 8, 32


@dataclass(frozen=True)
class Randomizer:
    """The program of a device: clipping, random rounding, noise, and a report.

    Args:
        encoding: the encoding of vectors as integers.
        noise: the device's share of the noise.
        packing: the encoding of integers as bytes.

    A device without data passes None, and adds the same noise as others.

    >>> from dpgrain.shuffle import VectorSum
    >>> device = VectorSum(n_users=1000, dim=3, l2_bound=1.0, epsilon=1.0, delta=1e-6).randomizer()
    >>> len(device.report([0.6, 0.0, 0.8])) == device.report_bytes
    True
    """

    encoding: VectorEncoding
    noise: DeviceNoise
    packing: Packing

    @property
    def report_bytes(self) -> int:
        """Length of every report, in bytes."""
        return self.packing.size

    @property
    def messages(self) -> float:
        """Number of one-bit messages in a report (for Poisson noise, the mean)."""
        return self.encoding.dim * self.noise.messages(self.encoding.grid)

    def counts(self, vector: ArrayLike | None, source: RandomSource) -> IntArray:
        """Return (d,) the number of ones from this device for each coordinate.

        Raises:
            ParameterError: if the vector has another shape.
        """
        encoding = self.encoding
        if isinstance(vector, np.ndarray) and vector.shape != (encoding.dim,):
            raise ParameterError(
                f"vector must have shape ({encoding.dim},), with {encoding.dim} coordinates."
            )
        rows: Any = [vector]
        row = np.zeros((1, encoding.dim)) if vector is None else encoding.vectors(rows)
        part = self.noise.event(1, grid=encoding.grid, coordinates=encoding.dim, leak=_LEAK)
        draws = counted(source, part)
        own = encoding.codes(row, draws)[0]
        ones: IntArray = own + draws.counts(part, self.noise.law(1), encoding.dim)
        return np.minimum(ones, self.packing.largest)

    def report(
        self,
        vector: ArrayLike | None,
        random_state: RandomState = None,
        *,
        device: Device = None,
    ) -> bytes:
        """Return the device's report to the shuffler.

        Args:
            vector: (d,) the device's vector; None, or a non-finite one, for no data.
            random_state: a seed; the report is then not private.
            device: the identifier known to the shuffler; the report counts under no other. None if
                the shuffler does not know the sender.

        Raises:
            ParameterError: if the vector is not d numbers, or the device is not an identifier.
        """
        source, packing = random_source(random_state), self.packing.of(device)
        return packing.pack(self.counts(vector, source), random_bits(source, 2).tobytes())


@dataclass(frozen=True)
class Dropped:
    """Numbers of uncounted reports or messages, by reason.

    Args:
        malformed: reports or messages that the device cannot have sent: they have another length,
            protocol, round or device, or numbers out of range.
        surplus: reports or messages beyond the size of the batch.
        repeated: reports sent again, or from a device that has already participated.

    >>> Dropped(malformed=1).plus(repeated=2), Dropped(malformed=1, repeated=2).total
    (Dropped(malformed=1, surplus=0, repeated=2), 3)
    """

    malformed: int = 0
    surplus: int = 0
    repeated: int = 0

    @property
    def total(self) -> int:
        """Number of all uncounted reports or messages."""
        return self.malformed + self.surplus + self.repeated

    def plus(self, **more: int) -> Dropped:
        """Return these numbers with others added."""
        return replace(self, **{name: getattr(self, name) + n for name, n in more.items()})


@dataclass(frozen=True, eq=False)
class Bag:
    """The multiset of all one-bit messages of a batch, as counts, from the shuffler.

    Args:
        ones: (d,) the number of ones for each coordinate.
        reports: the number of participating devices.
        dropped: the uncounted reports.
        tag: the protocol and round.

    >>> messages = [[0, 1], [1, 0], [0, 1], [1, 1], [7, 1]]
    >>> bag = Bag.from_messages(messages, reports=2, most=1, dim=2, tag=b"demo")
    >>> bag.ones.tolist(), bag.dropped.malformed
    ([2, 1], 1)
    >>> Bag.from_bytes(bag.to_bytes(), dim=2, tag=b"demo").ones.tolist()
    [2, 1]
    """

    ones: IntArray
    reports: int
    dropped: Dropped
    tag: bytes

    def to_bytes(self) -> bytes:
        """Return the multiset as bytes."""
        dropped = self.dropped
        numbers = [self.reports, dropped.malformed, dropped.surplus, dropped.repeated]
        return self.tag + np.array([*numbers, *self.ones.tolist()], dtype="<i8").tobytes()

    @staticmethod
    def from_bytes(data: bytes, *, dim: int, tag: bytes) -> Bag:
        """Read a multiset from :meth:`to_bytes`.

        Args:
            data: the bytes of the multiset.
            dim: d, the number of coordinates.
            tag: the protocol and round.

        Raises:
            ParameterError: if the bytes are not a multiset of this protocol and round.
        """
        if (
            not isinstance(data, bytes)
            or len(data) != len(tag) + _WORD_BYTES * (4 + dim)
            or not data.startswith(tag)
        ):
            raise ParameterError(
                "the bytes are not a bag of this protocol and round; pass the output of "
                "Bag.to_bytes."
            )
        numbers = np.frombuffer(data, dtype="<i8", offset=len(tag)).astype(np.int64)
        return Bag(numbers[4:], int(numbers[0]), Dropped(*(int(n) for n in numbers[1:4])), tag)

    @staticmethod
    def from_messages(messages: ArrayLike, reports: int, *, most: int, dim: int, tag: bytes) -> Bag:
        """Build the multiset from the paper's single one-bit messages.

        Args:
            messages: (k, 2) labels of coordinates from 0, and bits, in any order.
            reports: the number of participating devices.
            most: the largest number of messages of a device for one coordinate.
            dim: d, the number of coordinates.
            tag: the protocol and round.

        Messages are malformed if they are not bits, are for an invalid coordinate, or, in a list,
        are not pairs of numbers. For each coordinate, messages after the first ``reports·most`` are
        surplus. Both are dropped and counted.

        Raises:
            ParameterError: if messages are an array of another shape.
        """
        array = numbers.numeric_array(messages, 2, name="messages")
        if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "fiub":
            raise ParameterError(
                f"messages must be numbers of shape (k, 2), not {array.shape} of {array.dtype}."
            )
        labels, bits = array[:, 0], array[:, 1]
        well = np.isin(labels, np.arange(dim)) & np.isin(bits, (0, 1))
        labels, bits = labels[well].astype(np.int64), bits[well].astype(np.int64)
        order = np.argsort(labels, kind="stable")
        messages_of_label = np.bincount(labels, minlength=dim)
        place = np.arange(len(labels)) - np.repeat(
            np.cumsum(messages_of_label) - messages_of_label, messages_of_label
        )
        counted = order[place < reports * most]
        ones = np.bincount(labels[counted], weights=bits[counted], minlength=dim).astype(np.int64)
        surplus = len(labels) - len(counted)
        return Bag(ones, reports, Dropped(int((~well).sum()), surplus), tag)


class Enrolment:
    """The participating devices and counted reports, so that none counts twice.

    >>> enrolment = Enrolment()
    >>> enrolment.take("a"), enrolment.take("a")
    (True, False)
    """

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._reports: set[bytes] = set()

    def take(self, device: Device) -> bool:
        """Enrol a device, and return True if it participates for the first time.

        Raises:
            ParameterError: if the device is not an identifier.
        """
        name = device_bytes(device)
        if name in self._seen:
            return False
        self._seen.add(name)
        return True

    def is_counted(self, report: bytes) -> bool:
        """Return True if a report with this number has already been counted."""
        return report in self._reports

    def count(self, report: bytes) -> None:
        """Record a report as counted."""
        self._reports.add(report)


class Shuffler:
    """The trusted shuffler: it collects reports and only returns their multiset.

    Args:
        packing: the encoding of reports.
        size: n, the devices of a batch; further reports are surplus.
        least: the minimum number of reports for a release of the multiset.
        enrolment: the devices of other batches, if none may participate twice.

    Raises:
        ParameterError: if the tag of the packing has fewer than 8 bytes, or more than 32.

    >>> from dpgrain.shuffle import VectorSum
    >>> protocol = VectorSum(n_users=2, dim=1, l2_bound=1.0, epsilon=1.0, delta=1e-6)
    >>> shuffler, device = protocol.shuffler(), protocol.randomizer()
    >>> shuffler.receive(device.report([0.5])), shuffler.receive(b"nonsense")
    (True, False)
    >>> shuffler.release()
    Traceback (most recent call last):
    ...
    dpgrain.errors.ParameterError: the batch has 1 of the 2 reports that it needs; wait for more.
    """

    def __init__(
        self, packing: Packing, size: int, least: int, enrolment: Enrolment | None = None
    ) -> None:
        if not _LEAST_TAG <= len(packing.tag) <= _MOST_TAG:
            raise ParameterError(
                f"tag must have {_LEAST_TAG} to {_MOST_TAG} bytes, not {len(packing.tag)}; use "
                "the packing of a protocol."
            )
        self._packing, self._size, self._least = packing, size, least
        self._sequential = enrolment is not None
        self._enrolment = enrolment or Enrolment()
        self._ones = np.zeros(packing.dim, dtype=np.int64)
        self._reports, self._dropped, self._released = 0, Dropped(), False

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._reports} of {self._size} reports, {self._dropped}>"

    @property
    def reports(self) -> int:
        """Number of counted reports, one per device."""
        return self._reports

    @property
    def dropped(self) -> Dropped:
        """Numbers of uncounted reports."""
        return self._dropped

    def receive(self, report: bytes | bytearray | memoryview, device: Device = None) -> bool:
        """Accept one report, and return True if it counts.

        Args:
            report: the bytes from a device, received through a channel that no one else can read or
                change. A repeated report is dropped, so that anyone who can copy a report without
                reading it cannot make it count twice.
            device: the sender, if the transport knows it, as stated by the device itself. A report
                made for another device is dropped, and so is a second one of a device.

        Returns:
            True if the report counts.

        Raises:
            ParameterError: if the device is not an identifier, the device is missing although none
                may participate twice, or the batch has been released.
        """
        message = bytes(report) if isinstance(report, bytearray | memoryview) else report
        packing = self._packing.of(device)
        counts = packing.unpack(message)
        identity = None if counts is None else packing.nonce(message)
        counted = self._counts(identity, device)
        if counted and counts is not None:
            self._ones += counts
        return counted

    def release(self) -> Bag:
        """Return the multiset of the batch, once.

        Raises:
            ParameterError: if there are too few reports, or the batch has already been released.
        """
        self._close()
        return Bag(self._ones.copy(), self._reports, self._dropped, self._packing.tag)

    def _counts(self, identity: bytes | None, device: Device) -> bool:
        """Decide if a report counts; if so, no other of the identity or device will."""
        self._check_open()
        if self._sequential and device is None:
            raise ParameterError(
                "device is required, because each device may participate only once; pass "
                "device=…, any identifier."
            )
        if identity is None:
            self._dropped = self._dropped.plus(malformed=1)
        elif self._enrolment.is_counted(identity):
            # Copies of one person's report would add up until the noise of others is relatively
            # small.
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
        """End the batch; raise if there are too few reports, or it was already released."""
        self._check_open()
        if self._reports < self._least:
            raise ParameterError(
                f"the batch has {self._reports} of the {self._least} reports that it needs; wait "
                "for more."
            )
        self._released = True

    def _check_open(self) -> None:
        if self._released:
            raise ParameterError(
                "the batch was already released; create a shuffler for the next one."
            )


@dataclass(frozen=True, eq=False)
class Estimate(KeepsQuery):
    """The analyzer's estimate from a multiset of messages.

    Args:
        value: (d,) the unbiased sum over all devices.
        standard_error: the standard error of each coordinate, from the noise and the largest
            rounding, if all participating devices are honest.
        reports: the number of participating devices.
        dropped: the uncounted reports.

    >>> print(Estimate(np.array([12.25, -3.5]), 0.5, 40, Dropped(surplus=2)))
    sum (12.25, -3.5), standard error 0.5 each, 40 devices; 2 dropped
    """

    value: FloatArray
    standard_error: float
    reports: int
    dropped: Dropped = field(default_factory=Dropped)

    def __str__(self) -> str:
        lost = f"; {self.dropped.total:,} dropped" if self.dropped.total else ""
        return (
            f"sum {short_repr(self.value)}, standard error {self.standard_error:.2g} each, "
            f"{self.reports:,} devices{lost}"
        )


@dataclass(frozen=True)
class Analyzer:
    """The party that computes the sum; it only gets the multiset of messages.

    Args:
        encoding: the encoding of vectors as integers.
        noise: each device's share of the noise.
        packing: the encoding of integers as bytes.
        size: n, the devices of a batch.

    >>> from dpgrain.shuffle import VectorSum
    >>> protocol = VectorSum(n_users=50, dim=2, l2_bound=1.0, epsilon=4.0, delta=1e-4)
    >>> shuffler, device, analyzer = protocol.shuffler(), protocol.randomizer(), protocol.analyzer()
    >>> all(shuffler.receive(device.report([0.6, -0.8], random_state=i)) for i in range(50))
    True
    >>> found = analyzer.estimate(shuffler.release())
    >>> bool((abs(found.value - [30.0, -40.0]) < 4 * found.standard_error).all()), found.reports
    (True, 50)
    """

    encoding: VectorEncoding
    noise: DeviceNoise
    packing: Packing
    size: int

    def estimate(self, bag: Bag | bytes) -> Estimate:
        """Estimate the sum over the devices of a batch.

        Args:
            bag: the multiset from the shuffler, or its bytes.

        Raises:
            ParameterError: if ``bag`` is not a multiset of this protocol and round, or has numbers
                that are impossible for any batch.
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
                "the bag is not from this protocol and round, because its numbers are out of "
                "range; use the analyzer that belongs to the shuffler."
            )
        return Estimate(
            self.decoded(bag.ones, bag.reports),
            self.standard_error(bag.reports),
            bag.reports,
            bag.dropped,
        )

    def estimate_messages(self, messages: ArrayLike, reports: int) -> Estimate:
        """Estimate the sum from single one-bit messages, as for :meth:`Bag.from_messages`.

        Raises:
            ParameterError: if ``reports`` is not an integer of at least 0.
        """
        reports = _validate.integer(minimum=0, reports=reports)
        bag = Bag.from_messages(
            messages,
            reports,
            most=self.packing.largest,
            dim=self.encoding.dim,
            tag=self.packing.tag,
        )
        return self.estimate(bag)

    def decoded(self, ones: NDArray[Any], reports: int) -> FloatArray:
        """Return (d,) the estimated sum, from the counts of ones of ``reports`` devices."""
        expected = reports * (self.encoding.null + self.noise.law(1).mean)
        return (ones - expected) * self.encoding.step

    def standard_error(self, reports: int) -> float:
        """Return the standard error of a coordinate, with the largest possible rounding.

        Raises:
            ParameterError: if ``reports`` is not an integer of at least 0.
        """
        reports = _validate.integer(minimum=0, reports=reports)
        variance = reports * (self.noise.law(1).variance + 0.25)
        return math.sqrt(variance) * self.encoding.step
