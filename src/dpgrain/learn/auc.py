"""Private AUC and calibration of predicted probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Laplace
from dpgrain.choices.scores import STEPS
from dpgrain.inputs.array_blocks import default_unit
from dpgrain.inputs.codes import codes, distinct_labels
from dpgrain.learn.classes import Labels
from dpgrain.learn.rows import empty_like
from dpgrain.learn.scoring import (
    MISS_PROBABILITY,
    Score,
    ScoreQuery,
    require_numbers,
    scored_rows,
    sums,
)
from dpgrain.noise import RandomState
from dpgrain.noise.distributions import raise_scale
from dpgrain.publishing import Charge, Promise, Query
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.publish import publishes
from dpgrain.statistics.intervals import ratio_interval
from dpgrain.statistics.plan import noise_sd
from dpgrain.units import Relation, Unit
from dpgrain.words.score_text import auc_text

# Bin edges of ranks: hundredths of the probability, and finer for rare events.
_TAIL = (0.0005, 0.001, 0.002, 0.005)
_EDGES = np.array([*_TAIL, *np.arange(1, 100) / 100, *(1 - p for p in reversed(_TAIL))])
# Bins of calibration: tenths of the probability.
_TENTHS = 10
_BINS = len(_EDGES) + 1
# Tenth that contains each bin.
_TENTH_OF = np.digitize([0.0, *_EDGES], np.arange(1, _TENTHS) / _TENTHS)


@dataclass(frozen=True)
class Band:
    """Rows with a probability in one tenth.

    Args:
        from_: the minimum probability.
        to: the upper limit of the probability, excluded.
        share: the approximate share of these rows, with equal weight for all users.
        positive: the share of positive rows among them.
        low: the lower end of its 95% interval.
        high: the upper end.

    >>> Band(0.2, 0.3, share=0.1, positive=0.24, low=0.22, high=0.26).positive
    0.24
    """

    from_: float
    to: float
    share: float
    positive: float
    low: float
    high: float


@dataclass(frozen=True)
class Auc(Score):
    """Published AUC of probabilities, with their calibration.

    Args:
        value: the probability that a positive row has a higher predicted probability than a
            negative one, for rows with weights of one over their unit's number of rows; ties count
            one half.
        low: the lower end of its 95% interval.
        high: the upper end.
        positive: the share of positive rows, by the same weights.
        positive_low: the lower end of its 95% interval.
        positive_high: the upper end.
        calibration: the shares of positive rows, by tenths of the predicted probability.
        units: the approximate number of units with rows.
        guarantee: the guarantee of the whole release.

    Guessing has the value 0.5. Intervals cover the noise and, for the AUC, the rounding of
    probabilities to hundredths.

    >>> rng, users = np.random.default_rng(0), np.repeat(np.arange(3000), 2)
    >>> chance = rng.random(6000)
    >>> found = auc(rng.random(6000) < chance, chance, positive=True, users=users, epsilon=1.0,
    ...             random_state=1)
    >>> round(found.value, 1), round(found.positive, 1)
    (0.8, 0.5)
    >>> [round(band.positive, 1) for band in found.calibration]
    [0.0, 0.1, 0.2, 0.4, 0.5, 0.5, 0.7, 0.7, 0.8, 0.9]
    """

    value: float
    low: float
    high: float
    positive: float
    positive_low: float
    positive_high: float
    calibration: tuple[Band, ...]
    units: float
    guarantee: Guarantee

    def __str__(self) -> str:
        return auc_text(self)


@publishes
def auc(
    y: Any,
    probability: Any,
    *,
    positive: Any,
    users: Any = None,
    elements: Any = None,
    unit: Unit | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    random_state: RandomState = None,
) -> Query[Auc]:
    """Publish the AUC and the calibration of predicted probabilities.

    Args:
        y: (m,) the labels.
        probability: (m,) the probability of the positive label, each from its own row only, such as
            ``model.predict_proba(X)[:, 1]``. Values are clamped to [0, 1], and NaN is treated as 0.
        positive: the public positive label; rows with any other label are negative, and rows
            without a label are dropped.
        users: (m,) the user id of each row; None protects only rows.
        elements: (m,) the cell of each row in a public partition, for ``Element()``.
        unit: the privacy unit, ``User()``, ``Element()`` or ``Record()``; by default ``User()`` if
            users are passed, otherwise ``Record()``.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: the δ of the guarantee; the release itself is pure, and 0 is the default.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        random_state: seed, for tests and research. The release is then *not private*.

    Raises:
        ParameterError: if a value is out of range, or the numbers of labels and probabilities
            differ.

    The rows of a unit have a total weight of one, so nothing is clipped, and all units have equal
    weight.

    Formal guarantee: ε-DP for the unit and relation, for any rows, if the probabilities depend only
    on public or published information. A unit adds a vector of l1 norm at most 1 to the sums of
    shares by label and probability. Source: docs/theory, "Choosing among hypotheses".

    >>> query = auc.query(
    ...     np.array([0, 1]), np.array([0.2, 0.7]), positive=1, users=np.array([1, 2]), epsilon=1.0)
    >>> round(query.plan.guarantee.epsilon(), 6)
    1.0
    """
    promise = Promise.of(default_unit(unit, users), epsilon, delta, relation, share)
    rows = scored_rows(promise, y, probability, users, elements)
    require_numbers("probability", empty_like(rows.X))
    label = Labels(distinct_labels("positive", [positive]))
    return AucQuery(promise=promise, rows=rows, label=label, random_state=random_state)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AucQuery(ScoreQuery[Auc]):
    """Query for an AUC."""

    label: Labels

    @property
    def parts(self) -> dict[str, Laplace]:
        """Noise of the sums by label and probability."""
        return {"sums": self.laplace()}

    @property
    def public(self) -> tuple[Fact, ...]:
        """The label, and the model."""
        return Fact("positive-label"), Fact("probabilities")

    def run(self, charge: Charge) -> Auc:
        """Read labels and probabilities, and publish the noisy sums of units' shares."""
        noise = self.laplace()
        noisy = charge.noisy(noise, charge.read(self._sums), float(raise_scale(STEPS))) / STEPS
        negative, positive = noisy.reshape(2, -1)
        within = noise.law.quantile(1 - MISS_PROBABILITY / 2) * noise_sd(noise)
        value = auc_interval(positive, negative, noise_sd(noise), within)
        base = _share(positive, negative, within)
        whole = noisy.sum()
        bands = tuple(
            Band(
                tenth / _TENTHS,
                (tenth + 1) / _TENTHS,
                float((positive[at].sum() + negative[at].sum()) / whole) if whole > 0 else 0.0,
                *_share(positive[at], negative[at], within),
            )
            for tenth in range(_TENTHS)
            for at in [tenth == _TENTH_OF]
        )
        return Auc(*value, *base, bands, float(whole), charge.guarantee)

    def _sums(self) -> IntArray:
        """Sums of units' shares in steps by probability, negative rows first."""
        rows = self.blocks()
        probability = np.nan_to_num(self.numbers(self.rows.X), nan=0.0)
        labels, _ = codes(self.read(self.rows.y))
        of = np.digitize(probability, _EDGES)
        of += np.where(self.label(self.read(self.rows.y)) == 0, _BINS, 0)
        # A row without a label is in no bin.
        of[labels < 0] = -1
        return sums([rows.of((of == cell).astype(np.float64)) for cell in range(2 * _BINS)])


def auc_interval(
    positive: FloatArray, negative: FloatArray, sd: float, within: float
) -> tuple[float, float, float]:
    """Return the AUC from noisy counts by probability, (B,), and its interval."""
    # Fieller's interval contains all areas u for which Σ P_b N_c (w_bc − u) is within its noise,
    # where w is 1 for a negative row below a positive one, and 1/2 for a tie.
    p, n, bins = positive.sum(), negative.sum(), len(positive)
    below = np.cumsum(negative) - negative / 2
    above = p - np.cumsum(positive) + positive / 2
    pairs = bins * (bins - 1) / 2
    # The squared noise of the sum is a − b·u + c·u²: from the counts, and from their products.
    squares = np.array(
        [
            (below**2).sum() + (above**2).sum() + sd**2 * (pairs + bins / 4),
            2 * (n * below.sum() + p * above.sum()) + sd**2 * (2 * pairs + bins),
            bins * (n**2 + p**2) + sd**2 * (2 * pairs + bins),
        ]
    )
    a, b, c = squares * within**2
    won, both = (positive * below).sum(), p * n
    first, middle, last = both**2 - c, won * both - b / 2, won**2 - a
    least = within * np.sqrt(bins)
    if p <= least or n <= least or first <= 0:
        return 0.5, 0.0, 1.0
    root = np.sqrt(max(middle**2 - first * last, 0.0))
    ties = (np.maximum(positive, 0) * np.maximum(negative, 0)).sum() / (2 * both)
    # Truncated steps: one per unit and bin.
    edge = ties + 4 * bins * (p + n) / min(p, n) / STEPS
    ends = (won / both, (middle - root) / first - edge, (middle + root) / first + edge)
    value, low, high = np.clip(ends, 0.0, 1.0).tolist()
    return value, low, high


def _share(positive: FloatArray, negative: FloatArray, within: float) -> tuple[float, float, float]:
    """Return the share of positive rows in some bins, and its 95% interval."""
    p, n, bins = positive.sum(), negative.sum(), len(positive)
    low, high = ratio_interval(p, n, np.array(within), bins, bins)
    steps = (2 * bins + 1) / STEPS
    share = float(np.clip(p / (p + n), 0.0, 1.0)) if p + n > 0 else 0.5
    return share, max(float(low) - steps, 0.0), min(float(high) + steps, 1.0)
