"""What no private mechanism can do better than: floors with numbers, and the papers' orders.

Two classical arguments are about the worst data set of a given number of units, and hold for every
(ε, δ)-DP mechanism, whatever it computes. *Two points*: data sets whose sums are far apart and whose
outputs share mass. *Fingerprints*: a good mean of many coordinates gives away who is in it (after Bun,
Ullman & Vadhan 2014, Dwork et al. 2015).

Others are about users with many independent records of one law. *Two worlds*: laws that few users can
tell apart; what is left where each user has any number of records is the floor of a fixed number of
users. *Many hypotheses*: as many worlds as there are hypotheses. *Clipped sums*: Gaussian noise and
contributions of bounded norm, wherever their centre is. The papers' own lower bounds are orders: no
constants, no logarithms. Proofs: docs/theory.md, "How little error there can be".
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.units import RELATIONS, Relation

Penalty: TypeAlias = Literal["squared", "absolute"]
PENALTIES: tuple[Penalty, ...] = ("squared", "absolute")

# A search over so many group sizes; every one of them gives a valid floor.
_SIZES = 240
_MOST_COPIES = 4096
# Longer chains of neighbours are walked in groups: a valid floor, next to no smaller.
_MOST_STEPS = 1 << 14
# Two worlds this many ε apart share less than floats can say.
_APART = 1400.0
# How far apart worlds may be: a search, as above.
_GAPS = 240
# Below this, differences of probabilities are bounded instead of computed.
_CLOSE = 1e-7


def least_error(
    epsilon: float,
    delta: float,
    n: int,
    *,
    dimension: int = 1,
    relation: Relation = "zero_out",
    signed: bool = True,
) -> float:
    """A floor under the rms l2 error of a private sum of n clipped vectors, in clipping bounds.

    Args:
        epsilon: the promised ε for one vector.
        delta: the promised δ.
        n: how many vectors there are.
        dimension: how many coordinates they have.
        relation: ``"zero_out"`` or ``"replace"``.
        signed: whether coordinates may be negative; without, only two points are compared.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: for every (ε, δ)-DP mechanism there is a data set of n vectors of l2 norm at
    most 1 on which its rms error is at least this. Proofs: docs/theory.md, "How little error there
    can be".

    >>> round(least_error(1.0, 1e-6, 10_000, relation="replace"), 3)
    0.977
    >>> round(least_error(1.0, 1e-9, 10_000, dimension=10_000, relation="replace"), 1)
    15.9
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=True, delta=delta)
    n = _validate.integer(minimum=1, n=n)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    _validate.one_of(RELATIONS, relation=relation)
    apart = 2.0 if signed and relation == "replace" else 1.0
    floor = _two_points(epsilon, delta, n, apart)
    if signed and dimension > 1:
        steps = 1 if relation == "replace" else 2
        floor = max(floor, _fingerprints(epsilon, delta, n, dimension, steps))
    return floor


def least_holders(epsilon: float, delta: float, chance: float = 0.5) -> int:
    """The fewest holders of an unknown item for whom any private rule names it with this chance.

    Args:
        epsilon: the promised ε for one holder.
        delta: the promised δ, in (0, 1).
        chance: the probability of being named.

    Raises:
        ParameterError: if a parameter is out of range.

    Source: the optimal rule of Desfontaines, Voss, Gipson & Mandayam 2022, π_c =
    min(e^ε π_{c−1} + δ, 1 − e^{−ε}(1 − π_{c−1} − δ), 1).

    >>> least_holders(1.0, 1e-5), least_holders(1.0, 1e-5, 0.75)
    (12, 12)
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=False, delta=delta)
    chance = _validate.fraction(chance=chance)
    named, holders = 0.0, 0
    while named < chance:
        # Where ε is next to nothing, δ alone adds up.
        grown = math.exp(min(epsilon, 700.0)) * named + delta
        named = min(grown, 1 - math.exp(-epsilon) * (1 - named - delta), 1.0)
        holders += 1
    return holders


def least_error_of_worlds(
    epsilon: float,
    delta: float,
    n: int,
    *,
    relation: Relation = "zero_out",
    penalty: Penalty = "squared",
) -> float:
    """A floor under the error of telling two worlds apart that no number of records takes away.

    Args:
        epsilon: the promised ε for one user.
        delta: the promised δ.
        n: how many users there are.
        relation: ``"zero_out"`` or ``"replace"``.
        penalty: E(A − ϑ)² or E|A − ϑ|, for the world ϑ in {0, 1} and the answer A in [0, 1].

    Raises:
        ParameterError: if a parameter is out of range.

    In world 0 all records of all users are one value, in world 1 another. For means of records in
    [−B, B] the rms error is 2B times the root of this; for linear losses of slope G on [−R, R] the
    excess risk is 2·G·R times the absolute one.

    Formal guarantee: for every (ε, δ)-DP mechanism one of the two worlds has at least this error. For
    δ = 0 nothing larger is true: noise on the number of users attains it. Proof: docs/theory.md,
    "How little error there can be". Source: user-level learning paper, Thm. 9, whose e^(−nε), of order,
    becomes e^(−nε/2) for exchanged users: a group of half of them leads to a data set between.

    >>> round(least_error_of_worlds(0.1, 1e-6, 50), 5)
    0.00263
    >>> round(least_error_of_worlds(0.1, 1e-6, 50, relation="replace"), 4)
    0.0322
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=True, delta=delta)
    n = _validate.integer(minimum=1, n=n)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.one_of(PENALTIES, penalty=penalty)
    return _unsure(epsilon, delta, _steps(n, relation), penalty)


def least_error_of_records(
    epsilon: float,
    delta: float,
    n: int,
    *,
    records: int = 1,
    dimension: int = 1,
    relation: Relation = "zero_out",
    penalty: Penalty = "squared",
) -> float:
    """A floor under the error that privacy brings to the mean of users' records, or to convex losses.

    Args:
        epsilon: the promised ε for one user.
        delta: the promised δ.
        n: how many users there are.
        records: how many independent records of one law each user has.
        dimension: how many coordinates a record, or the parameter, has.
        relation: ``"zero_out"`` or ``"replace"``.
        penalty: ``"squared"``: the rms l2 error of the mean of the law, in bounds of a record's norm;
            ``"absolute"``: the excess risk of a linear loss, in G·R.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: for every (ε, δ)-DP mechanism there is a law on {±1/√d}^d such that its error,
    over the records and its own noise, is at least this. For small ε and δ, and many users, it is near
    √d/(3nε√m), and near √d/(8nε√m) for losses. Proof: docs/theory.md, "How little error there can be".
    Source: user-level learning paper, Cor. 1 and Thm. 6 and 9, with numbers.

    >>> [round(least_error_of_records(1.0, 1e-9, 1000, records=m), 6) for m in (1, 100)]
    [0.001325, 0.000167]
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=True, delta=delta)
    n = _validate.integer(minimum=1, n=n)
    records = _validate.integer(minimum=1, records=records)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.one_of(PENALTIES, penalty=penalty)
    sizes = _group_sizes(epsilon, n)
    left = np.array([_unsure(epsilon, delta, _steps(int(j), relation), penalty) for j in sizes])
    gaps = _gaps(epsilon, n, records)
    expected = _chances(sizes, n, _told_apart(records, gaps)) @ left
    errors = 2 * gaps * (np.sqrt(expected) if penalty == "squared" else expected)
    if penalty == "squared":
        traced = _traced_mean(epsilon, delta, n, records, dimension, relation)
    else:
        traced = _traced_loss(epsilon, delta, n, records, dimension)
    return max(float(errors.max()), traced)


def least_excess_of_choice(
    epsilon: float,
    delta: float,
    n: int,
    hypotheses: int,
    *,
    records: int = 1,
    relation: Relation = "zero_out",
) -> float:
    """A floor under the excess risk of choosing among finitely many hypotheses, in bounds of the loss.

    Args:
        epsilon: the promised ε for one user.
        delta: the promised δ.
        n: how many users there are.
        hypotheses: how many there are to choose from, 2 or more.
        records: how many independent records of one law each user has.
        relation: ``"zero_out"`` or ``"replace"``.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: for every (ε, δ)-DP choice there are losses in [0, 1] and a law of records for
    which the expected excess risk is at least this. Proof: docs/theory.md, "How little error there can
    be". Source: user-level learning paper, Thm. 8, of order ln K/(n·ε·√m), with numbers, for δ > 0, and
    without its log K ≥ 32 log 2; its sample space has log K coordinates, this one K.

    >>> round(least_excess_of_choice(1.0, 0.0, 10_000, 1000, records=10), 6)
    5.1e-05
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=True, delta=delta)
    n = _validate.integer(minimum=1, n=n)
    hypotheses = _validate.integer(minimum=2, hypotheses=hypotheses)
    records = _validate.integer(minimum=1, records=records)
    _validate.one_of(RELATIONS, relation=relation)
    sizes = _group_sizes(epsilon, n)
    wrong = np.array(
        [1 - _raised(epsilon, delta, _steps(int(j), relation), 1 / hypotheses) for j in sizes]
    )
    gaps = _gaps(epsilon, n, records)

    def several(gaps: FloatArray, told: FloatArray) -> float:
        # World v differs from one in which all hypotheses are alike, for J users.
        within = np.cumsum(_chances(sizes, n, told), axis=1)
        return float(np.max(gaps[:, None] * (within - 1 + wrong)))

    fair = several(gaps / 2, _told_from_fair(records, gaps / 2))
    sure = several(gaps, -np.expm1(records * np.log1p(-np.minimum(gaps, 1 - 1e-16))))
    # Two hypotheses of which one is right in each world; the others are never better.
    two = least_error_of_records(
        epsilon, delta, n, records=records, relation=relation, penalty="absolute"
    )
    return max(fair, sure, two / 2)


def least_noise_of_clipped_sums(noise_multiplier: float, n: int, dimension: int = 1) -> float:
    """A floor under the rms noise that clipped sums bring to a mean of Gaussian users, in their sd.

    Args:
        noise_multiplier: noise sd of the sum ÷ the norm bound of a contribution; of several rounds
            together, the one noise multiplier that costs as much.
        n: how many users there are.
        dimension: d of their vectors, which are N(μ, s²I); the floor is in units of s.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: whatever each user's contribution is, as long as its norm is at most r for a noise
    of sd r·noise_multiplier, an answer that is linear in the noisy sums and unbiased near the true mean
    has at least this error from the noise: σ·d^(3/2)/(n·E‖z‖), z ~ N(0, I). Clipping to a small r
    around the true mean attains it in the limit. It holds for several rounds, and however many
    coordinates a contribution has. Proof: docs/theory.md, "How little error there can be".

    >>> round(least_noise_of_clipped_sums(4.0, 1000, 100), 4)
    0.401
    """
    noise_multiplier = _validate.positive(noise_multiplier=noise_multiplier)
    n = _validate.integer(minimum=1, n=n)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    return noise_multiplier * dimension * math.sqrt(dimension) / (n * _mean_norm(dimension))


def mean_order(epsilon: float, n: int, *, dimension: int = 1, records: int = 1) -> float:
    """The order of the private error of a mean of users' records, in bounds of a record: √d/(nε√m).

    Args:
        epsilon: the promised ε.
        n: how many users there are.
        dimension: how many coordinates there are.
        records: how many records each user has.

    Source: user-level learning paper, Cor. 1 and App. C.4. Its Lemma 3 needs a bound on the largest
    coordinate of the mean, not on its l2 norm alone; the prior of Prop. 6, uniform on a box, has one,
    so that the order stands.
    """
    return math.sqrt(dimension / records) / (n * epsilon)


def convex_order(
    epsilon: float, n: int, *, dimension: int, records: int = 1, strength: float | None = None
) -> float:
    """The order of the least excess risk of convex losses, in G·R: 1/√(nm) + √d/(nε√m).

    Args:
        epsilon: the promised ε.
        n: how many users there are.
        dimension: how many coordinates there are.
        records: how many records each user has.
        strength: of losses that are so strongly convex, 1/μ·(1/(nm) + d/(n²mε²)), in G².

    Source: user-level learning paper, Thm. 6; user-level SCO paper, Thm. 4.11, for the strongly convex
    rate.
    """
    private = mean_order(epsilon, n, dimension=dimension, records=records)
    if strength is None:
        return 1 / math.sqrt(n * records) + private
    return (1 / (n * records) + private * private) / strength


def choice_order(epsilon: float, n: int, hypotheses: int, *, records: int = 1) -> float:
    """The order of the least excess risk of K hypotheses, in bounds of the loss.

    Args:
        epsilon: the promised ε, of a pure promise.
        n: how many users there are.
        hypotheses: K of them.
        records: how many records each user has.

    Source: user-level learning paper, Thm. 8: √(ln K/(nm)) + ln K/(nε√m).
    """
    names = math.log(hypotheses)
    return math.sqrt(names / (n * records)) + names / (n * epsilon * math.sqrt(records))


def _traced_mean(
    epsilon: float, delta: float, n: int, records: int, dimension: int, relation: Relation
) -> float:
    """Fingerprints of users with several records; the mean is uniform on a box [−a, a]^d."""
    box = _boxes(epsilon, n, records, dimension)
    slope = n * math.sinh(min(epsilon, 350.0)) * box**2 * math.sqrt(records)
    left = dimension * box**2 * (1 / 3 - 4 * box * n * records * (1 + box) * delta)
    if relation == "zero_out":
        # The error without a user is known by the promise only.
        left -= slope * 2 * box * math.sqrt(dimension * delta)
        slope = slope * math.exp(min(epsilon, 350.0) / 2)
    left = np.maximum(left, 0.0)
    error = 2 * left / (slope + np.sqrt(slope * slope + 4 * left) + 5e-324)
    return float(error.max()) / math.sqrt(dimension)


def _traced_loss(epsilon: float, delta: float, n: int, records: int, dimension: int) -> float:
    """The same of linear losses on a box in the ball; either relation takes one step."""
    box = _boxes(epsilon, n, records, dimension)
    known = math.sinh(min(epsilon, 350.0)) * math.sqrt(records / dimension) / 2
    found = box / 2 - n * box**2 * (known + records * (1 + box) * delta)
    return max(float(found.max()), 0.0)


def _boxes(epsilon: float, n: int, records: int, dimension: int) -> FloatArray:
    least = 1e-3 * math.sqrt(dimension / records) / (n * math.sinh(min(max(epsilon, 1e-6), 350.0)))
    return np.geomspace(max(min(least, 1e-3), 1e-100), 1.0, _GAPS)


def _steps(users: int, relation: Relation) -> int:
    """Steps from a data set to one in which so many users have other records."""
    return users if relation == "replace" else 2 * users


def _chain(epsilon: float, delta: float, steps: int) -> tuple[FloatArray, FloatArray]:
    """The best test of two data sets so many steps apart: corners (π, 1 − the most that π may become).

    One step takes a probability π to at most min(e^ε·π + δ, 1 − e^{−ε}(1 − π − δ)).
    """
    group = -(-steps // _MOST_STEPS)
    if group > 1:
        epsilon, delta = group * epsilon, float(_grouped(epsilon, delta, np.array([group]))[0])
        steps = -(-steps // group)
    i = np.arange(steps + 1.0)
    worn = np.exp(-np.minimum(i * epsilon, 700.0))
    lost = delta * np.expm1(np.minimum(i * epsilon, 700.0)) / math.expm1(min(epsilon, 700.0))
    turn = (1 - delta) / (math.exp(min(epsilon, 700.0)) + 1)
    # Where the step bends, walked back i times; by symmetry what is missing to 1 on the other side.
    back = np.maximum(worn * (turn - lost), 0.0)[:-1]
    risen = int(np.searchsorted(lost, turn, side="right"))
    if risen > steps:
        ends = 1 - lost[steps]
    else:
        ends = max(worn[steps - risen] * (1 - lost[risen] - lost[steps - risen]), 0.0)
    chances = np.concatenate(([0.0], np.minimum(back[::-1], ends), [ends]))
    missing = np.concatenate(([ends], np.minimum(back, ends), [0.0]))
    return chances, missing


def _unsure(epsilon: float, delta: float, steps: int, penalty: Penalty) -> float:
    """The least error, in the mean over both worlds, of telling them apart."""
    if steps == 0:
        return 0.25 if penalty == "squared" else 0.5
    if steps * epsilon > _APART:
        return 0.0
    chances, missing = _chain(epsilon, delta, steps)
    one, other = np.diff(chances), -np.diff(missing)
    if penalty == "absolute":
        return float(np.minimum(one, other).sum()) / 2
    total = one + other
    shared = np.divide(one * other, total, out=np.zeros_like(total), where=total > 0)
    return float(shared.sum()) / 2


def _raised(epsilon: float, delta: float, steps: int, chance: float) -> float:
    """The most that a probability may become within so many steps."""
    if steps == 0:
        return chance
    if steps * epsilon > _APART:
        return 1.0
    chances, missing = _chain(epsilon, delta, steps)
    return 1 - float(np.interp(chance, chances, missing))


def _group_sizes(epsilon: float, n: int) -> NDArray[np.int64]:
    """0, 1, …: numbers of users whose records tell the worlds apart; beyond them nothing is left."""
    most = min(n, math.ceil(min(60 / epsilon, 1e15)) + 2)
    sizes = np.unique(np.rint(np.geomspace(1, most, _SIZES)))
    return np.concatenate(([0], sizes)).astype(np.int64)


def _gaps(epsilon: float, n: int, records: int) -> FloatArray:
    """How far apart the worlds of a search are: up to 1, from well below what can be told."""
    least = 1e-3 / (n * math.sqrt(records) * max(epsilon, 1e-3))
    return np.geomspace(max(min(least, 1.0), 1e-300), 1.0, _GAPS)


def _chances(sizes: NDArray[np.int64], n: int, apart: FloatArray) -> FloatArray:
    """(gaps, sizes) how likely Bin(n, apart) lies above the size before and not above this one."""
    held = np.minimum(sizes, n - 1).astype(np.float64)[None, :]
    below = betaincc(held + 1, n - held, apart[:, None])
    below = np.where(sizes[None, :] >= n, 1.0, below)
    return np.diff(below, axis=1, prepend=0.0)


def _told_apart(records: int, gaps: FloatArray) -> FloatArray:
    """The total variation of so many records that are 1 with chances (1 ± gap)/2."""
    # An even number tells no more than the odd one before; more than half are 1, or fewer.
    half = (records - 1) // 2
    more, fewer = (betainc(half + 1, half + 1, (1 + sign * gaps) / 2) for sign in (1, -1))
    # It is concave in the gap; C(2h, h)/4^h is at most 1/√(π(h + ¼)).
    slope = (2 * half + 1) * min(1.0, 1 / math.sqrt(math.pi * (half + 0.25)))
    return np.where(gaps * slope < _CLOSE, gaps * slope, np.clip(more - fewer, 0.0, 1.0))


def _told_from_fair(records: int, gaps: FloatArray) -> FloatArray:
    """The total variation of so many records of chance ½ − gap, and of fair ones."""
    low = np.maximum(0.5 - gaps, 1e-300)
    # From so many ones on, fair records are the likelier.
    ones = np.ceil(records * np.log1p(2 * gaps) / np.log((0.5 + gaps) / low))
    ones = np.clip(ones, 1, records)
    told = betainc(ones, records - ones + 1, 0.5) - betainc(ones, records - ones + 1, low)
    # Pinsker, where gaps are next to nothing.
    bound = gaps * math.sqrt(records) * (1 + 4 * gaps * gaps)
    return np.where(gaps * math.sqrt(records) < _CLOSE, bound, np.clip(told, 0.0, 1.0))


def _mean_norm(dimension: int) -> float:
    """E‖z‖ of z ~ N(0, I), or a little more."""
    if dimension > 10**6:
        return math.sqrt(dimension)
    half = dimension / 2
    return math.sqrt(2) * math.exp(math.lgamma(half + 0.5) - math.lgamma(half))


def _grouped(epsilon: float, delta: float, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """δ of so many steps, at ε times as many; rounded up to 1."""
    grown = np.minimum(steps * epsilon, 700.0)
    return np.minimum(delta * np.expm1(grown) / math.expm1(min(epsilon, 700.0)), 1.0)


def _two_points(epsilon: float, delta: float, n: int, apart: float) -> float:
    # Beyond a few units of ε the laws share next to nothing.
    most = min(n, _MOST_COPIES, 2 + math.ceil(8 / epsilon))
    steps = np.unique(np.rint(np.geomspace(1, most, _SIZES)))
    shared = 2 * (1 - _grouped(epsilon, delta, steps))
    shared /= np.exp(np.minimum(steps * epsilon, 700.0)) + 1
    return float(np.max(steps * apart / 2 * np.sqrt(shared)))


def _fingerprints(epsilon: float, delta: float, n: int, dimension: int, steps: int) -> float:
    most = min(n, _MOST_COPIES, 2 + math.ceil(8 / (steps * epsilon)))
    copies = np.unique(np.rint(np.geomspace(1, most, _SIZES)))[:, None]
    people = np.floor(np.geomspace(1, n, _SIZES)[None, :] / copies)
    # Groups that are too large have nobody; they drop out at the end.
    spread = np.sqrt(2 * dimension / (3 * np.maximum(people, 1)))
    slope = people * np.sinh(np.minimum(steps * copies * epsilon, 700.0))
    left = dimension / 3 - 8 * dimension * people * _grouped(epsilon, delta, steps * copies)
    left = np.maximum(left, 0.0)
    # The root of a² + slope·a = left, written without cancellation.
    error = 2 * left / (slope + np.sqrt(slope * slope + 4 * left) + 5e-324) - spread
    sums = np.where(people >= 1, copies * people * error, 0.0) / math.sqrt(dimension)
    return float(max(np.max(sums), 0.0))
