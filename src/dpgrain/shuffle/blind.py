"""Shuffled sums with blind shufflers: the shares of one device hide among those of others."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain.accounting import Event, StatisticallyClose
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState, Source
from dpgrain.noise.sources import source_of
from dpgrain.publishing.facts import Fact
from dpgrain.shuffle.design import Design
from dpgrain.shuffle.encoding import Device
from dpgrain.shuffle.parties import Analyzer, Enrolment, Estimate, Intake, Randomizer, as_bytes
from dpgrain.shuffle.protocol import exact_design
from dpgrain.shuffle.shares import Shares, modulus_above, shuffled
from dpgrain.shuffle.sums import SumOfVectors

# Share of δ that pays for what shares may reveal besides their sum.
_LEAK_OF_SHARES = 0.01
# Spare bits of the modulus, so that a spoilt sum is in range with a chance of 2^−10 only.
_SPARE_BITS = 10
_LARGEST_EPSILON = 500


@dataclass(frozen=True)
class BlindRandomizer:
    """The program of a device: a :class:`Randomizer` with counts split into shares.

    Args:
        plain: makes the counts.
        shares: splits the counts.

    >>> device = BlindSum(n_users=20, dim=2, l2_bound=1.0, epsilon=4.0, delta=1e-4).randomizer()
    >>> sent = device.report([0.6, -0.8])
    >>> len(sent) == device.shares.slots, {len(message) for message in sent}
    (True, {16})
    """

    plain: Randomizer
    shares: Shares

    @property
    def report_bytes(self) -> int:
        """The bytes of all messages of a device together."""
        return self.shares.slots * self.shares.message_bytes

    def report(
        self,
        vector: ArrayLike | None,
        random_state: RandomState = None,
        *,
        device: Device = None,
    ) -> list[bytes]:
        """Make the messages of the device, of one length, each to be shuffled on its own.

        Args:
            vector: (d,) the device's vector; None, or one that is not finite, for no data.
            random_state: a seed, which makes the messages not private.
            device: the identifier under which the shuffler receives the messages, which count under no
                other; None if they are received without one.
        """
        source = source_of(random_state)
        return self.shares.of(device).messages(self.plain.counts(vector, source), source)


class BlindShuffler(Intake):
    """A middle for mixing the messages of a batch, all together; it need not read or add them.

    It reads the tags alone, of which a foreign one would single its device out in the mix. A device's
    own tags become those of the round, so that all messages that are handed on begin alike.

    Args:
        shares: states the number, the length and the tag of the messages of a device.
        size: n, the devices of a batch.
        least: the number of devices that are needed before anything is handed on.
        source: random bits for the order.
        enrolment: the devices of other batches, where nobody may take part twice.

    >>> protocol = BlindSum(n_users=20, dim=1, l2_bound=1.0, epsilon=4.0, delta=1e-4)
    >>> shuffler, device = protocol.shuffler(), protocol.randomizer()
    >>> sent = device.report([0.5])
    >>> shuffler.receive(sent), shuffler.receive(sent), shuffler.receive([b"nonsense"])
    (True, False, False)
    >>> shuffler
    <BlindShuffler: 1 of 20 devices, Dropped(malformed=1, surplus=0, repeated=1)>
    """

    _noun = "devices"

    def __init__(
        self,
        shares: Shares,
        size: int,
        least: int,
        source: Source,
        enrolment: Enrolment | None = None,
    ) -> None:
        super().__init__(shares.tag, size, least, enrolment)
        self._shares, self._source = shares, source
        self._messages: list[bytes] = []

    def receive(self, messages: Sequence[bytes], device: Device = None) -> bool:
        """Take in the messages of one device.

        Args:
            messages: the messages of one device, as many and as long as it sends; nothing is read of
                them but their tags. They come together, in one message that nobody else can read or
                change; a set that comes again is dropped.
            device: the sender, if the transport knows it, as the device itself has said it: messages
                that were made for another are dropped, and so is a second set of a device.

        Returns:
            True if the messages count.

        Raises:
            ParameterError: if the device is no identifier, nobody may take part twice and the device is
                not said, or the batch has been handed on.
        """
        own = self._shares.of(device)
        sent = [as_bytes(one) for one in messages] if isinstance(messages, list | tuple) else []
        well = len(sent) == own.slots and all(map(own.fits, sent))
        # Shares are random, so that no two devices send the same set.
        identity = hashlib.sha256(b"".join(sorted(sent))).digest() if well else None
        if not self._counts(identity, device):
            return False
        self._messages += [self._shares.tag + one[len(own.tag) :] for one in sent]
        return True

    def release(self) -> list[bytes]:
        """Hand on all messages, once, in random order.

        Raises:
            ParameterError: if too few devices sent messages, or they were handed on before.
        """
        self._close()
        return shuffled(self._messages, self._source)


@dataclass(frozen=True)
class BlindAnalyzer:
    """The analyzer, which adds up the shares.

    Args:
        plain: makes an estimate of the sums.
        shares: states how devices split their counts.

    >>> protocol = BlindSum(n_users=20, dim=1, l2_bound=1.0, epsilon=4.0, delta=1e-4)
    >>> shuffler, device, analyzer = protocol.shuffler(), protocol.randomizer(), protocol.analyzer()
    >>> all(shuffler.receive(device.report([0.5], random_state=i)) for i in range(20))
    True
    >>> mixed = shuffler.release()
    >>> found = analyzer.estimate(mixed, reports=20)
    >>> bool(abs(found.value[0] - 10.0) < 4 * found.standard_error)
    True
    >>> analyzer.estimate(mixed[1:], reports=20).value.tolist()
    [nan]
    """

    plain: Analyzer
    shares: Shares

    def estimate(self, messages: Sequence[bytes], reports: int) -> Estimate:
        """Estimate the sum over the devices of a batch; NaN where messages are missing or too many.

        Args:
            messages: the messages that the shuffler handed on.
            reports: the number of devices that the shuffler heard.

        Raises:
            ParameterError: if ``reports`` is not a number of devices of one batch.
        """
        if (reports := _validate.integer(minimum=1, reports=reports)) > self.plain.size:
            raise ParameterError(
                f"reports must be at most the {self.plain.size:,} devices of a batch, "
                f"not {_validate.said(reports)}."
            )
        combined = self.shares.combine(messages, reports)
        value = self.plain.decoded(combined.total, reports)
        there = combined.complete & (combined.total <= reports * self.plain.packing.largest)
        return Estimate(
            np.where(there, value, np.nan),
            self.plain.standard_error(reports),
            reports,
            combined.dropped,
        )


@dataclass(frozen=True, kw_only=True)
class BlindSum(SumOfVectors):
    """The sum of vectors through a mixing-only shuffler, whose output anybody may read.

    A device splits its counts into additive shares, and sends each as a message of one length. All
    messages together, mixed, show the sum and, up to a statistical distance η, nothing else; δ pays
    (1 + e^ε)·η for that. The analyzer never needs a trusted sum, but one device that leaves out a
    message spoils a coordinate.

    Args:
        n_users: n, the devices of a batch.
        dim: d, the number of coordinates.
        l2_bound: Δ₂, the l2 norm of a vector; longer ones are shortened to it.
        epsilon: the promised ε, at most 500.
        delta: the promised δ.
        relation: the neighbouring relation. A user without data runs the randomizer on 0.
        rounds: T, the rounds in which the same users take part.
        honest_fraction: γ, the share of devices that report and follow the protocol, at least.
        label: a name of the deployment; reports of a deployment with another label are malformed.
        beside: None, as nothing else can be published under the same promise here.
        chosen: the numbers of the protocol; by default those with the least noise that keeps the
            promise.

    Raises:
        ParameterError: if a value is out of range, or ``beside`` is given.

    Formal guarantee: that of :class:`VectorSum`, for the view of all mixed messages, if the shuffler
    does not reveal to the analyzer who sent what. Source: Ishai, Kushilevitz, Ostrovsky & Sahai
    2006; Balle, Bell, Gascón & Nissim 2020; docs/theory, "Sums through a blind shuffler".

    >>> protocol = BlindSum(n_users=1000, dim=2, l2_bound=1.0, epsilon=1.0, delta=1e-6)
    >>> protocol.guarantee.epsilon() <= 1.0, protocol.shares().count
    (True, 11)
    """

    def _check(self) -> None:
        super()._check()
        if self.epsilon > _LARGEST_EPSILON:
            raise ParameterError(
                f"epsilon must be at most {_LARGEST_EPSILON} for BlindSum, not {self.epsilon!r}."
            )
        if self.beside is not None:
            raise ParameterError("beside must be left out for BlindSum.")

    def _designed(self) -> Design:
        return exact_design("binomial", self, self.delta * (1 - _LEAK_OF_SHARES))

    @property
    def influence(self) -> float:
        """The l2 distance by which one corrupt device can move the sum.

        Its shares may add up to any sum that is accepted.
        """
        return self.n_users * super().influence

    @property
    def variation(self) -> float:
        """η, which bounds what the messages of all rounds may reveal besides their sums."""
        return self._variation(self.honest, self.rounds)

    def _variation(self, honest: int, rounds: int) -> float:
        # Where shares hide nothing, δ is as near to 1 as it may be.
        return min(self.shares().variation(honest, rounds=rounds), math.nextafter(1.0, 0.0))

    def shares(self, round: int = 0) -> Shares:  # noqa: A002
        """Return the shares of counts in one round."""
        packing = self._packing(round)
        return Shares.within(
            _LEAK_OF_SHARES * self.delta / (1 + math.exp(self.epsilon)),
            devices=self.honest,
            dim=self.dim,
            modulus=modulus_above(self.n_users * packing.largest, _SPARE_BITS),
            rounds=self.rounds,
            tag=packing.tag,
        )

    def event_with(self, honest: int, rounds: int | None = None) -> Event:
        """Return the event of all rounds if the given number of devices is honest."""
        sums = super().event_with(honest, rounds)
        return StatisticallyClose(sums, self._variation(honest, rounds or self.rounds))

    @property
    def _shuffler_is(self) -> Fact:
        """The trust in the shuffler: less than in one that sees the counts."""
        return Fact("a shuffler that mixes all messages of a batch and tells nobody who sent what")

    def randomizer(self, round: int = 0) -> BlindRandomizer:  # noqa: A002
        """Make the program of each device for one round."""
        return BlindRandomizer(self._randomizer(round), self.shares(round))

    def shuffler(
        self,
        round: int = 0,  # noqa: A002
        *,
        enrolment: Enrolment | None = None,
        random_state: RandomState = None,
    ) -> BlindShuffler:
        """Make the shuffler of one round, with the arguments of :meth:`VectorSum.shuffler`."""
        self._counted(round, enrolment)
        source = source_of(random_state)
        return BlindShuffler(self.shares(round), self.n_users, self.honest, source, enrolment)

    def analyzer(self, round: int = 0) -> BlindAnalyzer:  # noqa: A002
        """Make the analyzer, which adds up the messages of one round."""
        return BlindAnalyzer(self._analyzer(round), self.shares(round))
