"""Gaussian sums over samples, with bounded participation, or with banded noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Literal

from dpgrain import _validate
from dpgrain.accounting.contribution import Contribution
from dpgrain.accounting.events.base import Event, Neighbours, Parallel
from dpgrain.accounting.losses.curves import OffsetCurve, SampledRoundsCurve
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.pairs import (
    LARGEST_SHIFT,
    GramPair,
    MixturePair,
    RevealedPair,
    binomial_weights,
    sampled_pair,
)
from dpgrain.accounting.losses.user_sampling import TwoSidedPair
from dpgrain.errors import ParameterError
from dpgrain.units import Level

# Binomial weights below this are dropped and counted as delta mass.
_NEGLIGIBLE_WEIGHT = 1e-60
# With more changed blocks, the loss is bounded without a grid.
_MOST_BLOCKS = 2000
# Largest probability of being sampled that is used as a bound itself: δ is rarely larger.
_SELDOM = 0.05
# A bound on the relative rounding of a probability.
_RELATIVE_ROUNDING = 2.0**-40
# Allowed excess of a share over 1, for the rounding of a product.
_SHARE_ROUNDING = 1e-12


@dataclass(frozen=True)
class SampledGaussian(Event):
    """Gaussian noise on clipped sums over Poisson samples, in several rounds.

    Args:
        noise_multiplier: noise sd ÷ clipping bound.
        sampling_rate: the public probability q to be in the sample of a round.
        rounds: the number of rounds; each draws a new sample.
        sampling: ``"pairs"``: every block (a cell of the population × partition grid) is sampled
            independently; ``"users"``: every user is sampled, with all blocks at once.
        blocks: ``"shared"``: blocks of one person may add up (gradients); ``"disjoint"``: they have
            disjoint coordinates.
        level: the unit that contributes one clipped block.
        count: the number of such runs.
        max_elements: the maximum number of elements per user, if the run enforces it (the first
            ones in a public order): an emptied element then admits another.

    Raises:
        ParameterError: if a value is out of range, or ``sampling`` is a sample of fixed size or
            without replacement, which is not a Poisson sample; use :class:`Participation` for
            those.

    Formal guarantee: samples of pairs have exact dominating pairs, with weights Bin(k, q) on shifts
    0..k, which are composed numerically. Samples of users have the smallest of several bounds: one
    that reveals participation (always), and, if ``max_elements`` is known, one from a dominating
    pair of a round, the least one if one element changes. Source: element-level paper, Corollaries
    2.4, 2.5 and 3.1, which claim the amplification of pairs for samples of users: false. Proofs:
    docs/theory, "Sampling".

    >>> one = SampledGaussian(1.0, 0.01, 1000)
    >>> round(one.epsilon(1e-6), 2), round(one.epsilon(1e-6, units=5), 2)
    (2.12, 13.02)
    """

    noise_multiplier: float
    sampling_rate: float
    rounds: int = 1
    sampling: Literal["pairs", "users"] = field(
        default="pairs",
        metadata={
            "remedy": "only independent draws protect who participates. For batches of a fixed size, "
            "shuffled or without replacement use Participation(noise_multiplier, rounds), "
            "with the passes over the data."
        },
    )
    blocks: Literal["shared", "disjoint"] = "shared"
    level: Level = "element"
    count: int = 1
    max_elements: int | None = None

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        rate = _validate.probability(sampling_rate=self.sampling_rate)
        if rate == 0:
            raise ParameterError(
                "sampling_rate must be above 0, not 0, because nothing would be sampled."
            )
        _validate.integer(minimum=1, rounds=self.rounds)
        _validate.integer(minimum=1, count=self.count)
        _ = self.contribution

    @property
    def contribution(self) -> Contribution:
        """The effect of one person's blocks on the sum of a round with all of them."""
        return Contribution(self.level, self.blocks, "signed", max_elements=self.max_elements)

    def cost(self, neighbours: Neighbours) -> Loss:
        distance, rounds = neighbours.move(self.contribution), self.rounds * self.count
        if math.isinf(distance):
            return Loss(pure=math.inf)
        if self.sampling_rate == 1:
            return Loss(mu=math.sqrt(rounds) * distance / self.noise_multiplier)
        changed, exchanged = self._changed(neighbours)
        if self.sampling == "users" and self.level != "user":
            if neighbours.level != "user":
                together = self._together(
                    neighbours, changed, distance, rounds, exchanged=exchanged
                )
                return self._or_exposure(together, neighbours.units, rounds)
            # Users are sampled independently, with all elements, like blocks of this size.
            size = distance / neighbours.units / (2 if exchanged else 1)
            return self._independent(size, neighbours.units, rounds, exchanged=exchanged)
        if self.blocks == "disjoint" and self.level == "element":
            # Blocks on other coordinates cost the same as other rounds; blocks of several users may
            # share coordinates.
            people = neighbours.units if neighbours.level == "user" else 1
            return self._independent(1.0, people, changed // people * rounds, exchanged=exchanged)
        return self._independent(1.0, changed, rounds, exchanged=exchanged)

    def _independent(self, size: float, changed: int, rounds: int, *, exchanged: bool) -> Loss:
        """Return the loss of ``changed`` independently sampled blocks of norm ``size``."""
        shift = size / self.noise_multiplier
        if shift * changed > LARGEST_SHIFT or changed > _MOST_BLOCKS:
            far = self._gridless_loss((2 if exchanged else 1) * shift * changed, changed, rounds)
            if changed > 1:
                return far
            seen = SampledRoundsCurve(self.sampling_rate, rounds, shift, 0.0)
            stays = -rounds * math.log1p(-self.sampling_rate) * (1 + _RELATIVE_ROUNDING)
            return far.or_else(Loss.from_curve(OffsetCurve(seen, stays if exchanged else 0.0)))
        if changed == 1:
            one = sampled_pair(self.sampling_rate, shift, -shift if exchanged else 0.0)
            return self._or_exposure(Loss(pairs=((one, rounds),)), 1, rounds)
        weights = binomial_weights(changed, self.sampling_rate)
        heavy = [(w, j) for j, w in enumerate(weights) if w >= _NEGLIGIBLE_WEIGHT]
        light = [w for w in weights if w < _NEGLIGIBLE_WEIGHT]
        dropped = rounds * (math.fsum(light) * (1 + _RELATIVE_ROUNDING) + len(light) * 5e-324)
        p = tuple((w, j * shift) for w, j in heavy)
        q = tuple((w, -j * shift) for w, j in heavy) if exchanged else ((1.0, 0.0),)
        return self._or_exposure(
            Loss(pairs=((MixturePair(p, q), rounds),), leak=dropped), changed, rounds
        )

    def _together(
        self, neighbours: Neighbours, changed: int, moved: float, rounds: int, *, exchanged: bool
    ) -> Loss:
        """Return the loss of ``changed`` blocks of a user who is sampled with all of them."""
        rate, noise = self.sampling_rate, self.noise_multiplier
        if moved / noise > LARGEST_SHIFT:
            return self._gridless_loss(moved / noise, 1, rounds)
        revealed = Loss(pairs=((RevealedPair(rate, moved / noise), rounds),))
        elements = self._element_limit(neighbours)
        if elements is None or self.level != "element" or elements / noise > LARGEST_SHIFT:
            return revealed
        changed = min(changed, elements)
        apart = self.blocks == "disjoint"
        # Some of the k zeroed blocks may be empty, so that up to M − 1 others stay.
        staying = elements - (changed if exchanged else 1)
        # Norms of the sums of the blocks that change, of the others, and of all.
        size, rest, whole = (
            (math.sqrt(blocks) if apart else blocks) / noise
            for blocks in (changed, staying, elements)
        )
        if rest == 0:
            return Loss(pairs=((sampled_pair(rate, size, -size if exchanged else 0.0), rounds),))
        if apart:
            gram = GramPair(rate, rest, size, -size if exchanged else 0.0)
            return revealed.or_else(Loss(pairs=((gram, rounds),)))
        # The others point in the same direction as the blocks that vanish or appear.
        if exchanged:
            sides = TwoSidedPair(rate, (whole, rest - size), (whole, rest - size))
        else:
            sides = TwoSidedPair(rate, (whole, whole - size), (rest, rest - size))
        return revealed.or_else(Loss(pairs=((sides, rounds),)))

    def _gridless_loss(self, moved: float, drawn: int, rounds: int) -> Loss:
        """Bound the loss without a grid, for very large or very many changes."""
        # A sampled run costs at most as much as one without sampling, and runs that sample none of
        # the changed blocks reveal nothing.
        return Loss(mu=math.sqrt(rounds) * moved).or_else(self._exposure_loss(drawn, rounds))

    def _or_exposure(self, loss: Loss, drawn: int, rounds: int) -> Loss:
        """Bound a loss also by the probability of sampling a changed block."""
        seldom = rounds * drawn * self.sampling_rate <= _SELDOM
        return loss.or_else(self._exposure_loss(drawn, rounds)) if seldom else loss

    def _exposure_loss(self, drawn: int, rounds: int) -> Loss:
        """Count all runs that sample a changed block as delta mass."""
        chance = -math.expm1(rounds * drawn * math.log1p(-self.sampling_rate))
        return Loss(leak=min(chance * (1 + _RELATIVE_ROUNDING), 1.0))

    def _changed(self, neighbours: Neighbours) -> tuple[int, bool]:
        """Return the number of changed blocks, and True if replaced instead of zeroed."""
        exchanged = neighbours.relation == "replace"
        elements = self._element_limit(neighbours)
        if neighbours.level == "user" and self.level != "user":
            assert elements is not None  # noqa: S101 - without it the sum moves by any amount
            return neighbours.units * elements, exchanged
        if neighbours.level == self.level:
            if self.level != "element" or self.max_elements is None:
                return neighbours.units, exchanged
            # The first M elements in a public order are used, so an emptied element admits another.
            # In distribution its block becomes the other one, because each is sampled
            # independently.
            return min(neighbours.units, self.max_elements), True
        # Any change inside a block replaces it; a replaced record may change its element.
        if self.level == "element":
            changed = neighbours.units * (2 if exchanged else 1)
            return changed if self.max_elements is None else min(changed, self.max_elements), True
        return 1, True

    def _element_limit(self, neighbours: Neighbours) -> int | None:
        """Return the maximum number of the person's elements in the sum, or None."""
        stated = getattr(neighbours.unit, "max_elements", None)
        limits = (self.max_elements, neighbours.max_elements if stated is None else stated)
        return min((m for m in limits if m is not None), default=None)


@dataclass(frozen=True)
class Participation(Event):
    """Gaussian noise on clipped sums, with a known number of rounds for each person.

    This is the event of passes over the data, shuffled or in order, and of batches of a fixed size.
    There is no amplification by sampling, and no assumption on the composition of batches.

    Args:
        noise_multiplier: noise sd ÷ clipping bound.
        rounds: the maximum number of rounds in which a person's blocks participate: the number of
            passes.
        blocks: ``"shared"``: blocks of one person may add up (gradients); ``"disjoint"``: they have
            disjoint coordinates.
        level: the unit that contributes one clipped block.
        count: the number of such runs.
        max_elements: the maximum number of elements per user, if the run enforces it.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: μ-GDP with μ = √(count·rounds)·sensitivity/noise_multiplier, because the
    batches are chosen independently of data and outputs, and only the rounds with the person
    differ. Proof: docs/theory, "Users are drawn".

    >>> Participation(4.0, 9).epsilon(1e-6) == SampledGaussian(4.0, 1.0, 9).epsilon(1e-6)
    True
    """

    noise_multiplier: float
    rounds: int
    blocks: Literal["shared", "disjoint"] = "shared"
    level: Level = "element"
    count: int = 1
    max_elements: int | None = None

    def __post_init__(self) -> None:
        # A round with all people is a sample with rate 1; its event validates the fields.
        self._full_participation()

    def _full_participation(self) -> SampledGaussian:
        values = {name.name: getattr(self, name.name) for name in fields(self)}
        return SampledGaussian(sampling_rate=1.0, sampling="users", **values)

    def cost(self, neighbours: Neighbours) -> Loss:
        return self._full_participation().cost(neighbours)


@dataclass(frozen=True)
class BandedGaussian(Event):
    """Clipped sums with banded Gaussian noise, over samples of one part of the people.

    Args:
        noise_multiplier: sd of the noise before it is correlated ÷ clipping bound.
        sampling_rate: the public probability q to be in the sample of a round, over all parts.
        rounds: the number of rounds.
        bands: the number b of bands, and of parts of the people, used in rotation.
        sampling: ``"pairs"``: every block of the part is sampled independently; ``"users"``: every
            user.
        level: the unit that contributes one clipped block.
        max_elements: the maximum number of elements per user, if the run enforces one.

    Raises:
        ParameterError: if a value is out of range, or b·q is above 1.

    Formal guarantee: that of ``SampledGaussian`` with ⌈rounds/b⌉ rounds at the rate b·q, for all
    units of one person; for k whole users k steps of one. It requires that people are assigned to
    parts independently of their data, and that each column of the lower triangular matrix that
    correlates noise has norm at most 1 and at most b entries. Source: Choquette-Choo et al. 2023,
    "(Amplified) Banded Matrix Factorization", Theorem 4; docs/theory, "Banded noise".

    >>> one = BandedGaussian(1.0, 0.001, 10_000, bands=8)
    >>> one.epsilon(1e-6) == SampledGaussian(1.0, 0.008, 1250).epsilon(1e-6)
    True
    """

    noise_multiplier: float
    sampling_rate: float
    rounds: int
    bands: int
    sampling: Literal["pairs", "users"] = "pairs"
    level: Level = "element"
    max_elements: int | None = None

    def __post_init__(self) -> None:
        _validate.integer(minimum=1, bands=self.bands)
        rate = _validate.probability(sampling_rate=self.sampling_rate)
        if self.bands * rate > 1 + _SHARE_ROUNDING:
            raise ParameterError(
                f"bands = {self.bands} must be at most 1/sampling_rate = {1 / rate:g}, because "
                "each part is sampled at bands times the rate when its turn comes.",
                name="bands",
            )
        _validate.integer(minimum=1, rounds=self.rounds)
        # The event of one part validates the other fields.
        _ = self.part_event

    @property
    def part_rate(self) -> float:
        """The probability that a block, or a user, of the active part is sampled."""
        return min(1.0, self.bands * self.sampling_rate)

    @property
    def part_event(self) -> SampledGaussian:
        """The event of the people of one part, the one with the most rounds."""
        return SampledGaussian(
            self.noise_multiplier,
            self.part_rate,
            math.ceil(self.rounds / self.bands),
            self.sampling,
            "shared",
            self.level,
            max_elements=self.max_elements,
        )

    def cost(self, neighbours: Neighbours) -> Loss:
        # Several users may be in several parts with overlapping columns.
        return Parallel((self.part_event,)).cost(neighbours)
