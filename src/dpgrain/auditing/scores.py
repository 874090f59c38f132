"""Draws of a ticket's own noise on two neighbours' sums, and the score that tells them apart.

A score is the logarithm of how much likelier an outcome is on one neighbour, if the noise has the law
that it is named by. Whatever the law is, a bound that is made of how often scores pass a threshold
holds: the law decides how large the bound is, not whether it is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import FloatArray
from dpgrain.auditing.runs import Ticket, Twins
from dpgrain.noise import Source
from dpgrain.noise.exponential import permutes_and_flips
from dpgrain.noise.gumbel import gumbel_orders
from dpgrain.publishing.charge import Charge, flip_scale, order_scale
from dpgrain.publishing.guarantee import Guarantee

# Standard deviations of a score around its means that its range holds.
_FAR = 9.0


@dataclass(frozen=True, eq=False)
class Draw:
    """A draw on two neighbours, of which only what differs is drawn.

    Args:
        one: the ticket on one of them.
        other: the ticket on the other.
        stretch: how many times as far apart the sums are as they were found to be.
    """

    one: Ticket
    other: Ticket
    stretch: float = 1.0

    @property
    def comparable(self) -> bool:
        """Whether both neighbours have the same sums, place by place."""
        return self.one.sums.shape == self.other.sums.shape

    @property
    def _choice(self) -> bool:
        return self.one.way in ("order", "flip")

    @cached_property
    def moved(self) -> NDArray[np.intp]:
        """The places whose sums differ, or all of a choice."""
        if not self.comparable or self._choice:
            return np.arange(self.one.sums.size)
        return np.flatnonzero(self.one.sums.ravel() != self.other.sums.ravel())

    @property
    def apart(self) -> bool:
        """Whether anything differs."""
        if not self.comparable:
            return True
        return bool((self.one.sums != self.other.sums).any())

    @cached_property
    def scale(self) -> FloatArray:
        """The scale of the noise of each place that differs, as the part names it."""
        part, rest = self.one.part, self.one.rest
        if self.one.way == "truncated":
            return np.full(self.moved.size, 1 / part.rate)
        radius = np.broadcast_to(np.ravel(rest[0]), self.one.sums.size)[self.moved]
        if self.one.way == "order":
            return np.asarray(part.scale * radius, dtype=np.float64)
        if self.one.way == "flip":
            return np.asarray(radius / part.guaranteed_epsilon, dtype=np.float64)
        return np.asarray(part.noise_multiplier * radius, dtype=np.float64)

    @cached_property
    def sums(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The sums of both neighbours that are drawn on."""
        other = self.other.sums.ravel()
        if not self.comparable:
            return self.one.sums.ravel(), other
        one, other = self.one.sums.ravel()[self.moved], other[self.moved]
        if self.stretch != 1:
            apart = np.rint(self.stretch * (one - other).astype(np.float64))
            one = np.asarray(other + apart.astype(one.dtype))
        return one, other

    @cached_property
    def difference(self) -> FloatArray:
        """By how much the sums differ, in scales; none where they do not compare."""
        if not self.comparable:
            return np.zeros(0)
        one, other = self.sums
        return np.asarray((one - other).astype(np.float64) / self.scale)

    @property
    def reach(self) -> float:
        """The range of the score, on both sides of 0."""
        size = np.abs(self.difference)
        if not self.comparable:
            return float(self.one.sums.size + self.other.sums.size)
        if self._gaussian:
            squares = float((size**2).sum())
            return squares / 2 + _FAR * float(np.sqrt(squares))
        count = self.one.part.count if self.one.way == "order" else 1
        return float(size.sum()) if not self._choice else float(count * size.max(initial=0.0))

    @property
    def _gaussian(self) -> bool:
        if self.one.way == "noisy":
            return bool(self.one.part.law.name == "gaussian")
        return self.one.way == "named"

    @property
    def width(self) -> int:
        """How many numbers one draw takes."""
        return max(self.sums[0].size, self.sums[1].size)

    def scores(self, on_one: bool, count: int, guarantee: Guarantee, source: Source) -> FloatArray:
        """Draw on one of the neighbours, and return the scores.

        Args:
            on_one: whether to draw on the first neighbour.
            count: how many draws.
            guarantee: the promise, of which one part is drawn.
            source: where noise comes from.
        """
        sums = self.sums[0 if on_one else 1]
        if self._choice:
            return self._of_choices(sums, count, source)
        with Charge(replace(guarantee, event=self._event), source) as charge:
            tiled = np.tile(sums, count)
            answer = getattr(charge, self.one.way)(self.one.part, tiled, *self._rest(count))
        return self._scored(answer, (count, sums.size))

    @property
    def _event(self) -> Any:
        return self.one.part

    def _rest(self, count: int) -> tuple[Any, ...]:
        """Return the further arguments of the draw, of which a radius is one for each sum."""
        if self.one.way != "noisy":
            return self.one.rest
        radius = np.broadcast_to(np.ravel(self.one.rest[0]), self.one.sums.size)[self.moved]
        return (np.tile(radius, count),)

    def _of_choices(self, sums: NDArray[Any], count: int, source: Source) -> FloatArray:
        """Return the score of each choice, all drawn at once by the sampler of the release."""
        part, rest = self.one.part, self.one.rest
        if self.one.way == "order":
            chosen = gumbel_orders(sums, order_scale(part, *rest), part.count, count, source=source)
        else:
            flips = permutes_and_flips(sums, flip_scale(part, *rest), count, source=source)
            chosen = flips[:, None]
        return np.asarray(self.difference[chosen].sum(axis=1))

    def _scored(self, answer: Any, shape: tuple[int, int]) -> FloatArray:
        """Return the score of each draw."""
        if not self.comparable:
            return np.asarray(answer[1].reshape(shape).sum(axis=1), dtype=np.float64)
        if self.one.way == "noisy":
            seen = answer.reshape(shape)
        else:
            noisy, passed = (part.reshape(shape) for part in answer)
            seen = np.where(passed, noisy, self._floor)
        one, other = self.sums
        from_one, from_other = (
            (seen - sums).astype(np.float64) / self.scale for sums in (one, other)
        )
        if self._gaussian:
            return np.asarray((from_other**2 - from_one**2).sum(axis=1) / 2)
        return np.asarray((np.abs(from_other) - np.abs(from_one)).sum(axis=1))

    @property
    def _floor(self) -> int:
        """What stands for the count of an item that is not named."""
        part = self.one.part
        if self.one.way == "truncated":
            return int(part.cutoff)
        return int(part.threshold / self.one.rest[1])


def draws_of(twins: Twins, stretch: float = 1.0) -> list[Draw]:
    """Return the draws of two runs in which neighbours differ.

    Args:
        twins: the runs.
        stretch: how many times as far apart sums are as they were found to be, which is what noise
            would do that is smaller by as much.
    """
    made = [Draw(one, other, stretch) for one, other in twins.draws]
    return [draw for draw in made if draw.apart]


def named_loss(draws: Sequence[Draw]) -> tuple[float, float]:
    """Return what draws cost if their noise has the named law and scale: μ and a pure ε.

    Args:
        draws: the draws.
    """
    mu, pure = 0.0, 0.0
    for draw in draws:
        if not draw.comparable:
            continue
        if draw._gaussian:
            mu += float((draw.difference**2).sum())
        elif draw._choice:
            size = draw.difference
            count = draw.one.part.count if draw.one.way == "order" else 1
            pure += count * (max(0.0, float(size.max())) - min(0.0, float(size.min())))
        else:
            pure += float(np.abs(draw.difference).sum())
    return float(np.sqrt(mu)), pure
