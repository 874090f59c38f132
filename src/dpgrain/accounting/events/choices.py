"""Choices by noisy scores, by a noisy threshold, and means of users who agree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from dpgrain import _validate
from dpgrain.accounting.events.base import Event, Neighbours
from dpgrain.accounting.losses.curves import GroupCurve
from dpgrain.accounting.losses.gaussian import pure_mu
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.rounding import product_up, sum_up
from dpgrain.errors import ParameterError
from dpgrain.units import LEVELS, Level, Relation

TestNoise: TypeAlias = Literal["geometric", "laplace"]

#: Distance, in multiples of ε, of two Gaussians that are at least as distinguishable as a choice of
#: ε-bounded range.
GDP_OF_RANGE = math.sqrt(math.pi / 8)
# A bound on the relative rounding of an exponential.
_RELATIVE_ROUNDING = 2.0**-36


@dataclass(frozen=True)
class AboveThreshold(Event):
    """The first of many queries to pass a noisy threshold, published as a position.

    Noise is added to the threshold once, and to each query independently. The run ends with the
    first noisy query at or above the noisy threshold (or, equivalently, below it). The number of
    queries is unlimited, and each may depend on the previous answers.

    Args:
        threshold_scale: the scale of the noise on the threshold.
        query_scale: the scale of the noise on each query.
        sensitivity: the largest change of each query when one unit changes.
        one_way: True if removing a unit moves all queries in the same direction, as for numbers of
            users; only with ``relation="zero_out"``.
        noise: ``"geometric"`` (two-sided, for integers) or ``"laplace"``.
        level: the unit of ``sensitivity``.
        relation: the relation of ``sensitivity``.
        count: the number of such runs, each with fresh noise on its threshold.

    Raises:
        ParameterError: if a value is out of range; geometric noise needs an integer sensitivity.

    Formal guarantee: ε-DP with ε = Δ/threshold_scale + 2Δ/query_scale, or Δ/threshold_scale +
    Δ/query_scale if all queries move in one direction; k units move k times as far. It is a choice
    of bounded range, so the curve of many runs is lower than ``count``·ε. Source: Lyu, Su & Li
    2017, Theorems 4, 5; their factor for several answers is ``count``. Proof: docs/theory,
    "Choosing by a threshold".

    >>> AboveThreshold(2.0, 4.0).epsilon()
    1.0
    >>> AboveThreshold(2.0, 4.0, one_way=True).epsilon()
    0.75
    """

    threshold_scale: float
    query_scale: float
    sensitivity: float = 1.0
    one_way: bool = False
    noise: TestNoise = "geometric"
    level: Level = "user"
    relation: Relation = "zero_out"
    count: int = 1

    def __post_init__(self) -> None:
        _check_noise(self.threshold_scale, self.query_scale)
        _check_moves(self)
        if self.noise == "geometric" and self.sensitivity != math.floor(self.sensitivity):
            raise ParameterError(
                f"sensitivity must be an integer with geometric noise, not {self.sensitivity!r}; "
                "round it up, or use noise='laplace'."
            )

    def cost(self, neighbours: Neighbours) -> Loss:
        moves = _moves(self, neighbours)
        if math.isinf(sum(moves)):
            return Loss(pure=math.inf)
        return _test_loss(*moves, self.threshold_scale, self.query_scale) * self.count


@dataclass(frozen=True)
class ExponentialMechanism(Event):
    """A choice of the largest score with Gumbel noise, made ``count`` times.

    Args:
        scale: the scale of the noise: j is chosen with probability ∝ exp(scoreⱼ/scale).
        sensitivity: the largest change of each score when one unit changes.
        one_way: True if removing a unit moves all scores in the same direction, as for numbers of
            users; only with ``relation="zero_out"``.
        level: the unit of ``sensitivity``.
        relation: the relation of ``sensitivity``.
        count: the number of such choices.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: ε-DP of ε-bounded range with ε = 2Δ/scale, or Δ/scale if all scores move in
    one direction; ε²/8-zCDP and √(π/8)·ε-GDP; k units move k times as far. Source: McSherry &
    Talwar 2007; Dong, Durfee & Rogers 2020; docs/theory, "A range for each coordinate".

    >>> ExponentialMechanism(4.0).epsilon(), ExponentialMechanism(4.0, one_way=True).epsilon()
    (0.5, 0.25)
    """

    scale: float
    sensitivity: float = 1.0
    one_way: bool = False
    level: Level = "user"
    relation: Relation = "zero_out"
    count: int = 1

    def __post_init__(self) -> None:
        _validate.positive(scale=self.scale)
        _check_moves(self)

    def cost(self, neighbours: Neighbours) -> Loss:
        moves = _moves(self, neighbours)
        if math.isinf(sum(moves)):
            return Loss(pure=math.inf)
        spread = product_up(sum_up(*moves), over=self.scale)
        return _choices_loss(self.count, spread)


@dataclass(frozen=True)
class BoundedRange(Event):
    """The best items of a public domain, chosen by their noisy numbers of users.

    Every item of the domain has a score, the number of distinct users with the item (of records, if
    the level is the record). Gumbel noise of scale 1/rate is added to each score, and the names of
    the ``count`` largest are published in order. One person changes each score by at most one,
    regardless of the number of items, so an element costs as much as the whole user. This requires
    that no item of a user is omitted from the scores.

    Args:
        rate: the ε of one choice, under ``zero_out``.
        count: the number of items chosen.
        level: the protected unit of the release.

    Raises:
        ParameterError: if a value is out of range.

    Whole users (or records, if the level is the record) are charged the cost of
    ``ExponentialMechanism(1/rate, one_way=True)``. A part of a user costs less, because removing it
    increases no number of users.

    Formal guarantee: ``count`` adaptive choices of rate-bounded range under ``zero_out``, where all
    scores move in one direction, and of twice that under ``replace``: count·rate-DP,
    count·rate²/8-zCDP and √(count·π/8)·rate-GDP. Source: Durfee & Rogers 2019, Dong, Durfee &
    Rogers 2020; docs/theory, "Choosing the best items".

    >>> event = BoundedRange(0.1, count=100)
    >>> round(event.epsilon(), 9), round(event.epsilon(1e-6), 3)
    (10.0, 2.419)
    """

    rate: float
    count: int = 1
    level: Level = "user"

    def __post_init__(self) -> None:
        _validate.positive(rate=self.rate)
        _validate.integer(minimum=1, count=self.count)

    @property
    def scale(self) -> float:
        """Scale of the Gumbel noise."""
        # The division is rounded towards more noise.
        return (1 / self.rate) * (1 + 2.0**-51)

    def cost(self, neighbours: Neighbours) -> Loss:
        if self.level == "record" and neighbours.level != "record":
            return Loss(pure=math.inf)
        steps = neighbours.units if neighbours.level == "user" or self.level == "record" else 1
        spread = product_up(self.rate, steps, 1 if neighbours.relation == "zero_out" else 2)
        return _choices_loss(self.count, spread)


@dataclass(frozen=True)
class SoftCore(Event):
    """Rounds that publish the mean of users close to most others, if there are enough.

    In a round every user i has one vector x_i (or none). f_j is the number of vectors within 2τ of
    x_j, including x_j (0 for no vector); a user's weight is w_j = clip(κ(f_j − n/2 − 1), 0, 1), κ =
    ``slope``; h is the largest number such that h users have f_j ≥ h. The round passes if h + ν ≥
    ``threshold`` − Z, with noise Z drawn once for all rounds and ν for each round. Then Σw_j
    x_j/Σw_j plus Gaussian noise of sd σ is published. The run stops at the first round that does
    not pass (or if Σw_j = 0).

    Args:
        noise_multiplier: σ ÷ τ, where σ is the noise sd of the mean.
        users: n, the size of the known population, including users without data.
        core: H; the round should pass if H users are close to H users. A user close to H − 1 has
            weight 1.
        gap: g_p, the distance of the threshold above H − 1; an integer for geometric noise.
        threshold_scale: the scale of Z.
        query_scale: the scale of each ν.
        rounds: T, the maximum number of rounds.
        noise: the distribution of Z and ν, ``"geometric"`` (two-sided) or ``"laplace"``.

    Raises:
        ParameterError: if a value is out of range; ``core`` must be above n/2 + 2 and at most n.

    Formal guarantee: δ(ε) = δ_G(ε − ε₀; √T·S/σ) + P(Z + ν ≥ gap), S = 4τ(1 + κ(n−H))/H, without a
    factor T for the last term; ε₀ = 1/threshold_scale + 2/query_scale, and 1/threshold_scale +
    1/query_scale under ``zero_out``. k users are k steps. The positions and means of all rounds may
    be published, but not h, f or w. Source: Asi & Liu 2024, Algorithm 1, has constants that are not
    private; the score, the weights and the proof are in docs/theory, "Choosing by a threshold".

    >>> event = SoftCore(20.0, users=1000, core=800, gap=90, threshold_scale=6.0, query_scale=6.0)
    >>> round(event.sensitivity, 6), event.leak < 1e-5
    (0.008356, True)
    """

    noise_multiplier: float
    users: int
    core: int
    gap: float
    threshold_scale: float
    query_scale: float
    rounds: int = 1
    noise: TestNoise = "geometric"

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.integer(minimum=1, users=self.users)
        _validate.integer(minimum=1, core=self.core)
        _validate.positive(gap=self.gap)
        _validate.integer(minimum=1, rounds=self.rounds)
        _check_noise(self.threshold_scale, self.query_scale)
        if not self.users / 2 + 2 < self.core <= self.users:
            raise ParameterError(
                f"core must be above users/2 + 2 and at most users ({self.users!r}), not {self.core!r}."
            )
        if self.noise == "geometric" and self.gap != math.floor(self.gap):
            raise ParameterError(f"gap must be an integer with geometric noise, not {self.gap!r}.")

    @property
    def level(self) -> Level:
        return "user"

    @property
    def slope(self) -> float:
        """The slope κ: the weight that a user gains per additional close user."""
        return 2 / (2 * self.core - self.users - 4)

    @property
    def threshold(self) -> float:
        """The threshold θ for h, before noise."""
        return self.core - 1 + self.gap

    @property
    def sensitivity(self) -> float:
        """S ÷ τ: the largest change of the mean by one user, if either data set has h ≥ H."""
        return 4 * (1 + self.slope * (self.users - self.core)) / self.core

    @property
    def leak(self) -> float:
        """The probability ζ = P(Z + ν ≥ gap), rounded up."""
        return threshold_probability(self.gap, self.threshold_scale, self.query_scale, self.noise)

    def cost(self, neighbours: Neighbours) -> Loss:
        # Removing a person's vector increases no count, so h moves in one direction.
        removed = neighbours.level == "user" and neighbours.relation == "zero_out"
        test = _test_loss(0.0 if removed else 1.0, 1.0, self.threshold_scale, self.query_scale)
        mu = math.sqrt(self.rounds) * self.sensitivity / self.noise_multiplier
        one = test + Loss(mu=mu, leak=self.leak)
        people = neighbours.units if neighbours.level == "user" else 1
        return one if people == 1 else Loss.from_curve(GroupCurve(one, people))


def threshold_probability(
    gap: float, one: float, two: float, noise: TestNoise = "geometric"
) -> float:
    """Return the probability P(Z + ν ≥ gap), rounded up."""
    exact = _geometric_tail if noise == "geometric" else _laplace_tail
    return min(exact(gap, one, two) * (1 + _RELATIVE_ROUNDING), 1.0)


def _check_moves(event: AboveThreshold | ExponentialMechanism) -> None:
    _validate.positive(sensitivity=event.sensitivity)
    _validate.integer(minimum=1, count=event.count)
    if event.one_way and event.relation == "replace":
        raise ParameterError(
            "one_way must be False with relation='replace', because replaced data change queries "
            "in both directions; pass the sensitivity for 'zero_out'."
        )


def _moves(
    event: AboveThreshold | ExponentialMechanism, neighbours: Neighbours
) -> tuple[float, float]:
    """Return the largest rise of all queries, and their largest fall."""
    distance = product_up(event.sensitivity, neighbours.steps(event.level, event.relation))
    if not event.one_way:
        return distance, distance
    whole = LEVELS.index(neighbours.level) >= LEVELS.index(event.level)
    if whole and neighbours.relation == "zero_out":
        # Units are only removed (or only added).
        return 0.0, distance
    # Half of the steps remove a unit, and the others add one.
    return distance / 2, distance / 2


def _choices_loss(count: int, spread: float) -> Loss:
    """Return the loss of ``count`` adaptive choices, each of ``spread``-bounded range."""
    loss = Loss(pure=product_up(count, spread), rho=count * spread * spread / 8)
    # Together with Gaussian noise, the dominating Gaussian mechanism of a choice costs less.
    return loss.or_else(Loss(mu=math.sqrt(count) * pure_mu(spread / 2)))


def _check_noise(threshold_scale: float, query_scale: float) -> None:
    _validate.positive(threshold_scale=threshold_scale)
    _validate.positive(query_scale=query_scale)


def _test_loss(up: float, down: float, threshold_scale: float, query_scale: float) -> Loss:
    """Return the loss of a run, for rises of all queries by ``up`` or falls by ``down``."""
    on_threshold = product_up(max(up, down), over=threshold_scale)
    pure = sum_up(on_threshold, product_up(sum_up(up, down), over=query_scale))
    spread = (up + down) * (1 / threshold_scale + 2 / query_scale)
    return Loss(pure=pure, rho=spread * spread / 8)


def _geometric_tail(gap: float, one: float, two: float) -> float:
    """Return P(Z + ν ≥ gap), gap ≥ 0, for (1−p)/(1+p)·p^|k|, p = e^{−1/scale}."""
    # With the larger scale first, no sum below is a difference.
    wide, narrow = max(one, two), min(one, two)
    p, r = math.exp(-1 / wide), math.exp(-1 / narrow)
    not_p, not_pr = -math.expm1(-1 / wide), -math.expm1(-1 / wide - 1 / narrow)
    # The cases are Z < 0, 0 ≤ Z ≤ gap, and Z > gap; in the last, ν ≥ gap − Z has probability 1 −
    # r^{1+Z−gap}/(1+r).
    below = math.exp(-gap / narrow) * p * r / not_pr
    apart = 1 / narrow - 1 / wide
    terms = gap + 1 if apart == 0 else math.expm1(-(gap + 1) * apart) / math.expm1(-apart)
    between = math.exp(-gap / wide) * terms
    above = math.exp(-(gap + 1) / wide) * (1 / not_p - r * r / ((1 + r) * not_pr))
    return not_p / (1 + p) * ((below + between) / (1 + r) + above)


def _laplace_tail(gap: float, one: float, two: float) -> float:
    """Return P(Z + ν ≥ gap) for Laplace distributions and a gap ≥ 0."""
    wide, narrow = max(one, two), min(one, two)
    if wide - narrow < 1e-9 * wide:
        # Widen the narrower distribution to bound its lighter tail.
        return math.exp(-gap / wide) * (0.5 + gap / (4 * narrow))
    # The result is (w²e^{−g/w} − v²e^{−g/v})/(2(w² − v²)), without the difference of nearly equal
    # numbers.
    exponent = 2 * math.log(narrow / wide) - gap * (wide - narrow) / (wide * narrow)
    share = -math.expm1(exponent) * wide / (2 * (wide - narrow))
    return math.exp(-gap / wide) * share * wide / (wide + narrow)
