"""Private concentration radius: the first radius in a list for which users agree."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import IntArray
from dpgrain.accounting import AboveThreshold
from dpgrain.accounting.events.choices import threshold_probability
from dpgrain.errors import ParameterError
from dpgrain.means.close_vectors import close
from dpgrain.means.mean_protocol import Contributions, Vectors
from dpgrain.noise import RandomSource
from dpgrain.publishing.draws import counted
from dpgrain.publishing.facts import Fact
from dpgrain.units import Level, Relation

# Power of 2 of the smallest radius, in grid steps.
_STEP_BITS = 10
# Largest k of the radii, which are 2^{k/2} times the smallest one: their squares are integers in
# squared steps, and squared distances are at most 2^51.
_MOST_HALF_OCTAVES = 51 - 2 * (_STEP_BITS + 1)
# Relative margin of the noise over the formulas, to cover rounding.
_RELATIVE_ROUNDING = 2.0**-48


@dataclass(frozen=True)
class Radius:
    """First radius r in a list with most users within 2r of most others.

    f_j(r) users are within 2r of user j, itself included. The score of a radius is the sum of the
    ``top`` largest values of min(f_j(r), top). The first radius with a noisy score above the noisy
    threshold is published, or the fact that there is none.

    Args:
        smallest: the smallest radius.
        largest: the largest radius; the list is smallest·2^(k/2) up to here.
        n_users: the public number of users in the population, including users without a vector.
        top: m, the number of users who must agree.
        threshold: the minimum score; scores are at most m².
        threshold_scale: the scale of the geometric noise of the threshold.
        query_scale: the scale of the geometric noise of each score.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: :attr:`event`, for any vectors, rounded to a grid of smallest/1024.
    The sum changes by at most 2m − 2, and only decreases if a user's vector is removed. Source:
    docs/theory, "Choosing by a threshold", with the score of Nissim, Stemmer & Vadhan 2016.

    >>> from dpgrain.noise import SeededSource
    >>> radius = Radius.calibrate(epsilon=1.0, n_users=1000, smallest=0.01, largest=10.0)
    >>> points = np.random.default_rng(0).uniform(-1, 1, size=(1000, 1))
    >>> 0.5 < radius.find(points, SeededSource(0)) < 1.5
    True
    >>> radius.event.epsilon(relation="replace") <= 1.0
    True
    """

    smallest: float
    largest: float
    n_users: int
    top: int
    threshold: int
    threshold_scale: float
    query_scale: float

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        _check_range(self.smallest, self.largest)
        _validate.integer(minimum=1, n_users=self.n_users)
        if not 2 <= _validate.integer(minimum=2, top=self.top) <= self.n_users:
            raise ParameterError(f"top must be between 2 and n_users, not {self.top!r}.")
        if not 1 <= _validate.integer(minimum=1, threshold=self.threshold) <= self.top**2:
            raise ParameterError(
                f"threshold must be at most top² = {self.top**2}, not {self.threshold!r}."
            )
        # Building the event validates the other values.
        _ = self.event

    @staticmethod
    def calibrate(
        *,
        epsilon: float,
        n_users: int,
        smallest: float,
        largest: float,
        relation: Relation = "replace",
        share: float = 0.9,
        failure: float = 0.01,
    ) -> Radius:
        """Calibrate the choice of a radius with the least noise for a guarantee with δ = 0.

        Args:
            epsilon: the ε of the guarantee.
            n_users: the public number of users in the known population.
            smallest: the smallest radius.
            largest: the largest radius.
            relation: the neighbouring relation.
            share: the share of the users who must agree.
            failure: the maximum probability that a radius is skipped although the share of users is
                within it of some point; and that a radius is chosen at which, of ``top`` users, the
                mean number of close users is below three quarters of them.

        Raises:
            ParameterError: if a value is out of range, or there are too few users.
        """
        epsilon = _validate.positive(epsilon=epsilon)
        _check_range(smallest, largest)
        n_users = _validate.integer(minimum=2, n_users=n_users)
        top = max(2, math.ceil(_validate.fraction(share=share) * n_users))
        failure = _validate.fraction(failure=failure)
        turns = 1 if relation == "zero_out" else 2
        # The wider of the two distributions determines the tail of their sum, so they have equal
        # scales.
        scale = (1 + turns) * (2 * top - 2) / epsilon * (1 + _RELATIVE_ROUNDING)
        tried = len(_radii(smallest, largest))
        below, above = (min_gap(chance, scale, scale) for chance in (failure, failure / tried))
        if top**2 - below - above < 0.75 * top**2:
            # Both gaps grow in proportion to m, and scores to m².
            enough = math.ceil((below + above) / (0.25 * top * share))
            raise ParameterError(
                f"n_users = {n_users} is too small to find the radius where users agree at "
                f"epsilon = {epsilon!r}; use {enough} users, or a larger epsilon.",
                name="n_users",
            )
        return Radius(smallest, largest, n_users, top, top**2 - below, scale, scale)

    @property
    def radii(self) -> tuple[float, ...]:
        """Candidate radii, in order."""
        return _radii(self.smallest, self.largest)

    @property
    def event(self) -> AboveThreshold:
        """Accounting event of choosing a radius."""
        return AboveThreshold(
            self.threshold_scale, self.query_scale, float(2 * self.top - 2), one_way=True
        )

    @property
    def level(self) -> Level:
        """Level of the privacy unit of a block."""
        return "user"

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts of the choice."""
        return (
            Fact("radii", (len(self.radii), self.smallest, float(self.radii[-1]))),
            Fact("agreeing-users", (self.top, self.n_users)),
            Fact("distance-grid", (self.smallest / 2**_STEP_BITS,)),
        )

    def find(
        self, vectors: Contributions | NDArray[np.float64], source: RandomSource
    ) -> float | None:
        """Find the first radius at which users agree, or None.

        Args:
            vectors: (n, d) one vector per user, or contributions with one block per user.
            source: the source of noise.

        Raises:
            ParameterError: if there are more vectors than users.
        """
        source_vectors = Vectors(vectors) if isinstance(vectors, np.ndarray) else vectors
        if source_vectors.blocks > self.n_users:
            raise ParameterError(
                f"n_users = {self.n_users} is less than the number of vectors; pass the size of "
                "the roster, and one vector per user."
            )
        run = counted(source, self.event).comparisons(self.event)
        step, first = self.smallest / 2**_STEP_BITS, 4 ** (_STEP_BITS + 1)
        counts = close(source_vectors.vectors(), step, [first << k for k in range(len(self.radii))])
        for radius, near in zip(self.radii, counts, strict=True):
            close_users = np.array([score(near, self.top)])
            if run.stop(close_users, lambda noisy, lowered: noisy >= self.threshold - lowered)[0]:
                return radius
        return None


def score(counts: IntArray, top: int) -> int:
    """Add the ``top`` largest counts, clamped to ``top``; missing vectors count as 1."""
    # A user without a vector counts as isolated, so that removing a vector has the same effect as
    # moving it far away.
    capped = np.minimum(np.concatenate([counts, np.ones(top, dtype=np.int64)]), top)
    return int(np.sort(capped)[-top:].sum())


def _check_range(smallest: float, largest: float) -> None:
    smallest = _validate.positive(smallest=smallest)
    largest = _validate.positive(largest=largest)
    if not 1e-100 <= smallest <= largest <= 1e100:
        raise ParameterError(
            "smallest must be at least 1e-100 and at most largest, which is at most 1e100, not "
            f"{smallest!r} and {largest!r}."
        )
    if largest > smallest * 2.0 ** (_MOST_HALF_OCTAVES / 2):
        raise ParameterError(
            f"largest must be at most 2^{_MOST_HALF_OCTAVES / 2:g} times smallest, not "
            f"{largest / smallest:.3g} times; pass a narrower range."
        )


def _radii(smallest: float, largest: float) -> tuple[float, ...]:
    # The small offset retains the last radius despite rounding.
    last = math.floor(2 * math.log2(largest / smallest) + 1e-9)
    return tuple(smallest * 2.0 ** (k / 2) for k in range(last + 1))


def min_gap(chance: float, one: float, two: float) -> int:
    """Find the least gap g ≥ 1 with P(Z + ν ≥ g) ≤ ``chance``, for scales of Z and ν."""
    # Start from the gap of only the wider noise, then bisect.
    wide = max(one, two)
    low, step = max(0, math.floor(wide * math.log(0.25 / chance))), max(1, math.ceil(wide / 2))
    while low > 0 and threshold_probability(low, one, two) <= chance:
        low = max(0, low - step)
    high = low + step
    while threshold_probability(high, one, two) > chance:
        low, high = high, high + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if threshold_probability(middle, one, two) > chance else (low, middle)
        )
    return high
