"""Statistical claims with power: an interval 3% too narrow is seen, and noise 2% too small.

Each claim is tested on one release. Its number of cells follows from the rates of false alarms
(``FALSE_ALARM``) and missed errors (``MISSED``). Each test must also reject a narrowed interval or
shrunk noise. Seeds are fixed. Intervals with higher coverage by design have a measured floor. The
ends of runs are tested with fixed noise and exact probabilities, without randomness.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import optimize, special, stats
from tests.noise.scripted import Scripted
from tests.statistics import cases
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.accounting import Contribution, Laplace, PureDP, SelectBest
from dpgrain.errors import RunEnded
from dpgrain.learn import LinearRegression
from dpgrain.learn.accuracy import _share
from dpgrain.learn.auc import auc_interval
from dpgrain.learn.confidence import Evidence, intervals
from dpgrain.learn.r2 import r2_interval
from dpgrain.learn.rounds import History
from dpgrain.means import radius
from dpgrain.means.total_error import CONFIDENCE, UserCount
from dpgrain.noise import SeededSource, discrete_laplace, truncated_geometric
from dpgrain.noise import exponential as exponential_module
from dpgrain.noise.choice import choose_scores
from dpgrain.noise.counts import BinomialDistribution, PoissonDistribution, draw_counts
from dpgrain.noise.distributions import rounded_gaussian
from dpgrain.noise.gumbel import gumbel_order
from dpgrain.papers import softcore
from dpgrain.publishing import draws
from dpgrain.publishing.draws import draw_run_count
from dpgrain.statistics.intervals import half_width
from dpgrain.statistics.plan import noise_sd

FloatArray = NDArray[np.float64]

# Largest probabilities of rejecting a right claim and of accepting a wrong one.
FALSE_ALARM, MISSED = 1e-6, 1e-3
NARROWED, SHRUNK = 0.97, 0.98
# Standard normal quantiles of these probabilities.
_ALARM_SDS, _MISS_SDS = (float(stats.norm.isf(p)) for p in (FALSE_ALARM, MISSED))


def cells_for(held: float, narrowed: float) -> int:
    """Number of cells needed to distinguish a coverage from a smaller one.

    >>> cells_for(0.95, 0.9427)
    57651
    """
    sds = [math.sqrt(share * (1 - share)) for share in (held, narrowed)]
    return math.ceil(((_ALARM_SDS * sds[0] + _MISS_SDS * sds[1]) / (held - narrowed)) ** 2)


def draws_for(spread: float) -> int:
    """Number of draws that detect a scale 2% too small, by coefficient of variation."""
    return math.ceil(((_ALARM_SDS + _MISS_SDS) * spread / (1 - SHRUNK)) ** 2)


def too_few(holds: NDArray[np.bool_], share: float) -> bool:
    """Whether fewer intervals cover the truth than this coverage allows."""
    return bool(stats.binom.cdf(int(holds.sum()), holds.size, share) < FALSE_ALARM)


def too_many(holds: NDArray[np.bool_], share: float) -> bool:
    """Whether more intervals cover the truth than this coverage allows."""
    return bool(stats.binom.sf(int(holds.sum()) - 1, holds.size, share) < FALSE_ALARM)


# ------------------------------------------------------------------------------------- intervals


@dataclass(frozen=True)
class Claim:
    """A statistic published for many cells, and the coverage of its intervals.

    Args:
        holds: smallest coverage; 95%, or a measured floor if it is higher by design.
        narrowed: largest coverage of intervals that are 3% narrower.
        rows: how many rows each cell has, each of a user.
        together: number of intervals of a cell that must cover at once.
    """

    publish: Callable[..., dg.Release]
    holds: float
    narrowed: float
    above: float
    rows: int = 1
    together: int = 1

    @property
    def cells(self) -> int:
        """How many cells it takes to see a narrower interval."""
        return cells_for(self.holds, self.narrowed)


# Coverage of a 3% narrower interval for two-sided normal and Laplace noise.
NORMAL = 2 * stats.norm.cdf(NARROWED * stats.norm.isf(0.025)) - 1
LAPLACE = 1 - 0.05**NARROWED


def by_cell(ask: Callable[..., Any], *words: Any, **options: Any) -> Callable[..., dg.Release]:
    def publish(table: dg.UserTable, cells: int, **more: Any) -> dg.Release:
        asked = {"by": "cell", "domain": range(cells), "unit": dg.User(), **options, **more}
        asked["domain"] = list(asked["domain"])
        asked.setdefault("delta", 1e-6 if asked.get("noise") == "gaussian" else 0.0)
        found: dg.Release = ask(table, *words, **asked)
        return found

    return publish


def held(table: dg.UserTable, cells: int, **options: Any) -> dg.Release:
    """Numbers of people by value, in one bin per cell."""
    return dg.elements_per_user(
        table, "cell", unit=dg.User(), epsilon=0.02, edges=range(1, cells), **options
    )


def top(table: dg.UserTable, cells: int, **options: Any) -> dg.Release:
    """Selected names in the order of the cells: all are far above the threshold."""
    found = dg.top(
        table, "cell", unit=dg.User(), epsilon=60.0, delta=1e-6, max_items=10**6, **options
    )
    assert len(found) == cells
    order = np.argsort(found.items.to_numpy())
    return dataclasses.replace(found, estimate=found.estimate[order])


GAUSSIAN: dict[str, Any] = {"noise": "gaussian"}
LAPLACIAN: dict[str, Any] = {"noise": "laplace"}
SUM: dict[str, Any] = {"bounds": (-10, 10), "clip": 10.0, "epsilon": 0.1}
# Large enough that estimates stay within their range, so that intervals reflect only the noise.
RATIO: dict[str, Any] = {"bounds": (0, 10), "clip": 10.0}
CLAIMS = {
    "count": Claim(
        by_cell(dg.count, clip=1.0, epsilon=0.02, **GAUSSIAN), 0.95, NORMAL, 0.95
    ),
    "count, Laplace": Claim(
        by_cell(dg.count, clip=1.0, epsilon=0.02, **LAPLACIAN), 0.95, LAPLACE, 0.95
    ),
    "sum": Claim(by_cell(dg.sum, "x", **SUM, **GAUSSIAN), 0.95, NORMAL, 0.95),
    "sum, Laplace": Claim(by_cell(dg.sum, "x", **SUM, **LAPLACIAN), 0.95, LAPLACE, 0.95),
    "mean": Claim(
        by_cell(dg.mean, "x", epsilon=1000.0, **RATIO, **GAUSSIAN), 0.95, NORMAL, 0.95, rows=8
    ),
    "mean, Laplace": Claim(
        by_cell(dg.mean, "x", epsilon=400.0, **RATIO, **LAPLACIAN), 0.954, 0.9497, 0.956, rows=4
    ),
    "variance": Claim(
        by_cell(dg.variance, "x", epsilon=20000.0, **RATIO, **GAUSSIAN), 0.95, 0.9433, 0.952, rows=4
    ),
    "histogram": Claim(
        lambda table, cells, **more: dg.histogram(
            table, "cell", unit=dg.User(), clip=1.0, epsilon=0.02, delta=1e-6, **GAUSSIAN,
            domain=list(range(cells)), **more,
        ),
        0.95, NORMAL, 0.95,
    ),
    "marginals": Claim(
        lambda table, cells, **more: dg.marginals(
            table, "cell", domain={"cell": list(range(cells))}, unit=dg.User(), clip=1.0,
            epsilon=0.02, delta=1e-6, **more,
        ),
        0.95, NORMAL, 0.95,
    ),
    "elements per user": Claim(partial(held, delta=1e-6, **GAUSSIAN), 0.95, NORMAL, 0.95),
    "elements per user, Laplace": Claim(partial(held, **LAPLACIAN), 0.95, LAPLACE, 0.95),
    "top": Claim(partial(top, method="gaussian"), 0.95, NORMAL, 0.95, rows=5),
    # A band covers three shares at once, and is as wide as the worst data consistent with it
    # require.
    "distribution": Claim(
        by_cell(
            dg.distribution, "x", [1.0, 4.0, 8.0], clip=1.0, epsilon=200.0, delta=1e-6, **GAUSSIAN
        ),
        0.985, 0.9817, 0.987, rows=4, together=3,
    ),
}  # fmt: skip


def table_of(cells: int, rows: int) -> dg.UserTable:
    """A table with one row per user and this number of rows per cell."""
    cell = np.repeat(np.arange(cells), rows)
    x = np.resize([0.0, 2.0, 5.0, 9.0], cell.size)
    columns = {"who": np.arange(cell.size), "cell": cell, "x": x}
    return dg.read(pa.table(columns), user="who", engine=InMemory, threads=1)


def without_noise(publish: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        cases.noiseless(patch)
        return publish()


def holding(
    release: dg.Release, truth: FloatArray, times: float, together: int = 1
) -> NDArray[np.bool_]:
    middle, half = (release.low + release.high) / 2, times * (release.high - release.low) / 2
    inside = (np.abs(truth - middle) <= half).reshape(-1, together)
    return np.asarray(inside.all(axis=1))


@pytest.mark.slow(cases=5)
@pytest.mark.parametrize("name", CLAIMS)
def test_intervals_have_the_stated_coverage(name: str) -> None:
    claim = CLAIMS[name]
    table = table_of(claim.cells, claim.rows)
    publish = partial(claim.publish, table, claim.cells)
    truth = without_noise(partial(publish, random_state=0)).estimate
    release = publish(random_state=1)
    holds = holding(release, truth, 1.0, claim.together)
    assert not too_few(holds, claim.holds), f"{holds.mean():.4f} hold"
    assert not too_many(holds, claim.above), f"{holds.mean():.4f} hold"
    # Power of the test.
    assert too_few(holding(release, truth, NARROWED, claim.together), claim.holds)


# Ranks at which a bin begins to contain the quantile, where an interval fails on one side as often
# as possible: for four people with 0, 2, 5 and 9, slightly more than two.
_RANK, _HELD, _NARROWED = 0.501, 0.9805, 0.978


@pytest.mark.slow(full=True)
def test_quantile_intervals_exceed_the_stated_coverage() -> None:
    """They end where bins do, so that what is narrowed is how far a rank may be off."""
    cells = cells_for(_HELD, _NARROWED)
    table = table_of(cells, 4)
    ask = by_cell(
        dg.quantiles, "x", [_RANK], bounds=(0, 10), bins=16, clip=1.0, epsilon=100.0, delta=1e-6
    )
    truth = without_noise(lambda: ask(table, cells, random_state=0)).estimate
    holds = holding(ask(table, cells, random_state=1), truth, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        # The function of the same name hides the module.
        module = importlib.import_module("dpgrain.statistics.quantiles")
        patch.setattr(module, "half_width", lambda law: NARROWED * half_width(law))
        narrowed = holding(ask(table, cells, random_state=1), truth, 1.0)
    assert not too_few(holds, _HELD), f"{holds.mean():.4f} hold"
    assert too_few(narrowed, _HELD), f"{narrowed.mean():.4f} hold"


# ------------------------------------------------------------------------------------- measures

_OF_USERS = Contribution("user", "shared", "nonnegative", "l1")
_NOISE = Laplace(2.0, _OF_USERS)
# Noise of enough releases to distinguish an interval from a narrower one, one column per sum.
_MOST_SUMS = 60


@dataclass(frozen=True)
class Measure:
    """A measure of predictions: its exact sums, and the values published from noisy ones.

    Args:
        ends: publishes the value and the ends of its interval.
        sums: (S,) the exact sums.
        slopes: (S,) the derivatives, by the sums, of the difference that the interval bounds.
    """

    ends: Callable[[FloatArray], tuple[float, float, float]]
    truth: float
    sums: FloatArray
    slopes: FloatArray

    def held(self, noise: FloatArray, times: float) -> float:
        """Coverage of an interval that is wider by this factor, by the noise distribution."""
        scale = _NOISE.noise_multiplier
        way = self.slopes / (self.slopes @ self.slopes)
        off = noise[:, : self.sums.size] @ self.slopes * scale

        def first_missed(sign: int) -> float:
            """How far the noise may go in the likeliest way."""

            def holds(far: float) -> float:
                _, low, high = self.ends(self.sums + sign * far * way)
                middle, half = (low + high) / 2, times * (high - low) / 2
                return half - abs(self.truth - middle)

            most = 30 * scale * float(np.linalg.norm(self.slopes))
            return float(optimize.brentq(holds, 0.0, most))

        return float(((off <= first_missed(1)) & (off >= -first_missed(-1))).mean())


def accuracy_of(value: float) -> Measure:
    right = np.array([value, 1 - value])
    return Measure(
        lambda sums: _share(sums[:1], sums, _NOISE),
        value,
        2000 * right,
        np.array([1 - value, -value]),
    )


def auc_of(value: float) -> Measure:
    """Positive rows above and below all negative ones."""
    counts = np.zeros((2, _MOST_SUMS // 2))
    counts[0, [5, 25]] = 20_000 * np.array([1 - value, value])
    counts[1, 15] = 20_000
    (p, n), (positive, negative) = counts.sum(axis=1), counts
    below = np.cumsum(negative) - negative / 2
    above = p - np.cumsum(positive) + positive / 2
    sd = noise_sd(_NOISE)
    within = _NOISE.law.quantile(0.975) * sd
    return Measure(
        lambda sums: auc_interval(sums[: _MOST_SUMS // 2], sums[_MOST_SUMS // 2 :], sd, within),
        value, counts.ravel(), np.concatenate([below - value * n, above - value * p]),
    )  # fmt: skip


def r2_of(value: float) -> Measure:
    z = np.linspace(0, 1, 20_000)
    corners = np.array([((1 - z) ** 2).sum(), (2 * z * (1 - z)).sum(), (z**2).sum()])
    weights = np.array([0.25, -0.25, 0.25])
    error = (1 - value) * float(weights @ corners)
    return Measure(
        lambda sums: r2_interval(float(sums[0]), sums[1:], _NOISE, _NOISE),
        value, np.array([error, *corners]), np.array([1.0, *((value - 1) * weights)]),
    )  # fmt: skip


# Measured coverage of each interval: 95% if the noise of one sum dominates; more with several sums,
# because their total has lighter tails than the assumed Laplace distribution.
HELD = {
    (accuracy_of, 0.01): 0.95, (accuracy_of, 0.5): 0.9545, (accuracy_of, 0.99): 0.95,
    (auc_of, 0.02): 0.968, (auc_of, 0.5): 0.968, (auc_of, 0.98): 0.968,
    (r2_of, 0.01): 0.9535, (r2_of, 0.5): 0.9515, (r2_of, 0.99): 0.95,
}  # fmt: skip


@pytest.fixture(scope="module")
def laplace_noise() -> FloatArray:
    return np.random.default_rng(5).laplace(size=(60_000, _MOST_SUMS))


@pytest.mark.parametrize(("of", "value"), HELD)
def test_prediction_measures_have_coverage_near_their_ends(
    of: Any, value: float, laplace_noise: FloatArray
) -> None:
    measure, share = of(value), HELD[of, value]
    assert measure.ends(measure.sums)[0] == pytest.approx(value, abs=1e-3)
    held, narrowed = (measure.held(laplace_noise, times) for times in (1.0, NARROWED))

    # A share of drawn noise has a standard deviation of 0.0009.
    assert abs(held - share) < 0.0025
    assert narrowed < share - 0.003


# ------------------------------------------------------------------------------------- limits


@pytest.mark.slow
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_lower_limits_have_the_stated_coverage(law: Any) -> None:
    """Lower limits of totals have one-sided coverage 95% if nothing was clipped."""
    shares = {
        "gaussian": stats.norm.cdf(NARROWED * stats.norm.isf(0.05)),
        "laplace": 1 - 0.1**NARROWED / 2,
    }
    cells = cells_for(0.95, shares[law])
    publish = by_cell(dg.count, clip=1.0, epsilon=60.0, noise=law, random_state=1)
    release = publish(table_of(cells, 1), cells)
    least, below = release.more["at_least"], release.estimate - release.more["at_least"]
    assert (least > 0).mean() > 0.999, "no limit is that of counts"
    holds = least <= 1
    assert not too_few(holds, 0.95)
    assert not too_many(holds, 0.95)
    assert too_few(release.estimate - NARROWED * below <= 1, 0.95)


def laplace_of(size: int) -> FloatArray:
    return np.random.default_rng(2).laplace(scale=math.sqrt(0.5), size=size)


def test_truncated_noise_has_the_coverage_of_its_distribution() -> None:
    """Integers: the limit is the smallest with coverage 95%, so the next lower one has less."""
    cells = 4000
    options: dict[str, Any] = {"method": "truncated", "max_items": 1, "random_state": 1}
    release = dg.top(
        table_of(cells, 60), "cell", unit=dg.User(), epsilon=1.0, delta=1e-6, **options
    )
    assert release.noise == "geometric"
    fall, most = math.exp(-1.0), round(float(release.high[0] - release.estimate[0]))
    # More than t is passed with this probability.
    passed = [2 * fall ** (t + 1) / (1 + fall) for t in (most, most - 1)]
    assert passed[0] <= 0.05 < passed[1]
    holds = holding(release, np.full(len(release), 60.0), 1.0)
    assert not too_few(holds, 1 - passed[0])
    assert not too_many(holds, 1 - passed[0])
    assert too_few(holding(release, np.full(len(release), 60.0), NARROWED), 1 - passed[0])


# ------------------------------------------------------------------------------------- means of users

# The number of users may fail with a sixth of 5%, and the noise with half.
_PART = 1 - (1 - CONFIDENCE) / 6
_NOISE_PART = 1 - (1 - CONFIDENCE) / 2


def test_number_of_users_has_the_stated_coverage() -> None:
    narrowed = 2 * stats.norm.cdf(NARROWED * stats.norm.isf((1 - _PART) / 2)) - 1
    times, users, sd = cells_for(_PART, narrowed), 1e6, 1e3
    found = users + sd * np.random.default_rng(1).normal(size=times)
    numbers = [UserCount(float(each), sd) for each in found]
    errors = np.array([number.error(1.0, 0.0, 1) for number in numbers])
    off = np.abs([1 - number.divisor / users for number in numbers])
    assert not too_few(off <= errors, _PART)
    assert not too_many(off <= errors, _PART)
    assert too_few(off <= NARROWED * errors, _PART)


# The norm of noise in this number of coordinates is covered with these probabilities, all above the
# part's.
@pytest.mark.parametrize(("d", "share"), [(1, 0.99235), (3, 0.99425), (30, 0.99609)])
def test_noise_of_a_mean_exceeds_the_stated_coverage(d: int, share: float) -> None:
    assert share > _NOISE_PART
    most = UserCount(1.0, 0.0).error(0.0, 1.0, d)
    cells = cells_for(share, float(stats.chi.cdf(NARROWED * most, d)))
    norms = np.sqrt(np.random.default_rng(d).chisquare(d, size=cells))
    assert not too_few(norms <= most, share)
    assert not too_many(norms <= most, share)
    assert too_few(norms <= NARROWED * most, share)


# ------------------------------------------------------------------------------------- laws


@dataclass(frozen=True)
class Law:
    """A law of noise, drawn at a scale, and a mean of its draws that follows from the scale.

    Args:
        draw: draws n numbers at a multiple of the scale.
        slope: relative decrease of the mean per relative decrease of the scale.
    """

    draw: Callable[[float, int], Any]
    mean: float
    sd: float
    slope: float = 1.0

    @property
    def draws(self) -> int:
        """How many draws it takes to see a scale that is 2% smaller."""
        return draws_for(self.sd / self.mean / self.slope)

    def far(self, times: float) -> float:
        """How many standard deviations the mean of all draws at a multiple of the scale is off."""
        found = np.asarray(self.draw(times, self.draws), dtype=float).mean()
        return float((found - self.mean) / (self.sd / math.sqrt(self.draws)))


def coin(p: float, slope: float, draw: Callable[[float, int], Any]) -> Law:
    """The distribution of one outcome with this probability."""
    return Law(draw, p, math.sqrt(p * (1 - p)), slope)


def seeded() -> SeededSource:
    return SeededSource(7)


# Here a choice between two is most informative about its scale: 2.4 scales apart.
_APART = 2.4
_SECOND = 1 / (1 + math.exp(_APART))
# By how much probabilities fall for each unit, and the mean size of such a number.
_FALL = math.exp(-1 / 50)
_SIZE = 2 * _FALL / (1 - _FALL**2)


def choices(times: float, draws: int) -> Any:
    """Whether the lower one of two scores comes first, in pairs of one order of all."""
    scores = np.tile([0, 1000], draws).astype(np.int64)
    order = gumbel_order(scores, times * 1000 / _APART, 2 * draws, source=seeded())
    place = np.empty(2 * draws)
    place[order] = np.arange(2 * draws)
    return place[::2] < place[1::2]


def squares(law: Any, draws: int) -> Any:
    """Squares of a sum's noise around its mean; the scale of a law of counts is its size."""
    return (draw_counts(law, draws, seeded()) - law.mean) ** 2.0


LAWS = {
    "rounded normal": Law(
        lambda times, n: np.abs(rounded_gaussian(times * 500.0, n, source=seeded())),
        500 * math.sqrt(2 / math.pi), 500 * math.sqrt(1 - 2 / math.pi),
    ),
    "discrete Laplace": Law(
        lambda times, n: np.abs(discrete_laplace(times * 500.0, n, source=seeded())), 500.0, 500.0
    ),
    "truncated geometric": Law(
        lambda times, n: np.abs(truncated_geometric(1 / (50 * times), 5000, n, source=seeded())),
        _SIZE, math.sqrt(2 * _FALL / (1 - _FALL) ** 2 - _SIZE**2),
    ),
    "Gumbel order": coin(_SECOND, _APART * (1 - _SECOND), choices),
    "coins of permute and flip": coin(
        math.exp(-1.6), 1.6,
        lambda times, n: exponential_module._coins(np.full(n, 1.6), times, seeded()),
    ),
    "scores of the exponential mechanism": coin(
        _SECOND, _APART * (1 - _SECOND),
        lambda times, n: choose_scores(
            np.ones((n, 2), dtype=np.int64), _APART / times, source=seeded()
        ),
    ),
    # Squares: a scale that is 2% smaller makes them 4% smaller.
    "coins of devices": Law(
        lambda times, n: squares(BinomialDistribution(round(4000 * times**2), 0.5), n),
        1000.0, 1000 * math.sqrt(2), 2.0,
    ),
    "arrivals of devices": Law(
        lambda times, n: squares(PoissonDistribution(1000 * times**2), n),
        1000.0, 1000 * math.sqrt(2), 2.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_a_law_has_its_scale(name: str) -> None:
    law = LAWS[name]
    assert abs(law.far(1.0)) < _ALARM_SDS
    assert abs(law.far(SHRUNK)) > _ALARM_SDS


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [dg.shuffle.VectorSum, dg.shuffle.PoissonSum])
def test_shuffled_sums_have_the_stated_spread(protocol: Any) -> None:
    """The noise of all devices in each coordinate of one sum; zeros are not rounded."""
    dim = draws_for(stats.norm.std() / math.sqrt(2))
    made = protocol(n_users=10, dim=dim, epsilon=1.0, delta=1e-6, relation="zero_out")
    found = made.simulate(np.zeros((10, dim)), random_state=3)
    sd = made.encoding.step * math.sqrt(made.design.noise.law(10).variance)
    assert sd <= made.noise_sd <= 1.05 * sd

    def far(sd: float) -> float:
        """How many standard deviations the mean square is off."""
        return float((np.mean((found / sd) ** 2) - 1) / math.sqrt(2 / dim))

    assert abs(far(sd)) < _ALARM_SDS
    assert far(sd / SHRUNK) < -_ALARM_SDS


# ------------------------------------------------------------------------------------- coefficients

# Coefficients of a fit; each has an interval.
_WIDTH = 40


def fitted(
    rng: np.random.Generator, rounds: int, noise_sd: float, apart: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether the intervals of one fit cover the truth, 0, and whether narrower ones would.

    The fit sees data of enough users that their exact minimiser is normal
    around the truth: gradients by their slope there, with noise, and second moments without. The
    contrasts are the directions in which curvature and scores are uncorrelated, so that their
    errors are independent.

    Args:
        rounds: number of rounds; the second half counts.
        apart: additional deviation of a round's gradient, as with sampled blocks.
    """
    n, width, half = 10_000, _WIDTH, rounds // 2
    turn = np.linalg.qr(rng.normal(size=(width, width)))[0]
    bends, spreads = rng.uniform(0.5, 2.0, size=(2, width))
    curvature = (turn * bends) @ turn.T
    ridge = rng.uniform(0.0, 0.3, size=width)
    own = turn @ (np.sqrt(spreads / n) / bends * rng.normal(size=width))
    noise = math.hypot(noise_sd, apart) * rng.normal(size=(rounds, width))
    # The rounds have converged to where their noisy gradients vanish.
    middle = own - np.linalg.solve(curvature, noise[half:].mean(axis=0))
    around = 0.01 * rng.normal(size=(rounds, width))
    around[half:] -= around[half:].mean(axis=0)
    points = middle + around
    gradients = (points - own) @ curvature + noise + ridge * points
    pull = ridge * middle
    scores = (turn * spreads) @ turn.T * (n - width) / n + np.outer(pull, pull)
    found = intervals(
        Evidence(curvature, 0.0, scores, 0.0, n),
        History(points, gradients, noise_sd, 1.0),
        middle, ridge, turn.T, tuple(map(str, range(width))), 0.95,
        sampled=apart > 0,
    )  # fmt: skip
    assert found.resolved
    off, wide = np.abs(found.estimate), (found.high - found.low) / 2
    return off <= wide, off <= NARROWED * wide


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "noise_sd", "apart"),
    [
        pytest.param(8, 0.003, 0.0, id="mostly users"),
        pytest.param(8, 0.03, 0.0, id="mostly noise"),
        # Its variance is estimated, from 20 rounds.
        pytest.param(40, 0.01, 0.05, id="mostly draws", marks=pytest.mark.slow(full=True)),
    ],
)
def test_coefficient_intervals_have_the_stated_coverage(
    rounds: int, noise_sd: float, apart: float
) -> None:
    rng = np.random.default_rng(1)
    fits = math.ceil(cells_for(0.95, NORMAL) / _WIDTH)
    holds, narrowed = np.hstack([fitted(rng, rounds, noise_sd, apart) for _ in range(fits)])
    assert not too_few(holds, 0.95)
    assert not too_many(holds, 0.951 if apart else 0.95)
    assert too_few(narrowed, 0.95)


def far_from(numbers: FloatArray, sd: float) -> float:
    """How many deviations the mean square of normal numbers is off, if this is their deviation."""
    return float((np.mean((numbers / sd) ** 2) - 1) / math.sqrt(2 / numbers.size))


@pytest.mark.slow
def test_fits_report_the_noise_of_their_intervals() -> None:
    """In one fit: of each round's gradient, and of both second moments."""
    enough = math.ceil(((_ALARM_SDS + _MISS_SDS) * math.sqrt(2) / (NARROWED**-2 - 1)) ** 2)
    n, width, rounds = 100, 300, 120
    assert min(rounds * width, width * (width + 1) // 2) > enough
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, size=(n, width)), rng.normal(size=n)
    model = LinearRegression(
        epsilon=1e5, intervals=0.3, clip=1e4, rounds=rounds, n_users=n, fit_intercept=False,
        random_state=3,
    )  # fmt: skip
    model.fit(X, y, users=np.arange(n))
    history, evidence = model.history_, model.evidence_
    assert evidence is not None
    exact = (history.points @ X.T - y) @ X / n
    at = X * (X @ model.coef_ - y)[:, None]
    upper = np.triu_indices(width)
    weight = np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
    told = {
        "rounds": (history.gradients - exact, history.noise_sd),
        "curvature": (evidence.curvature - X.T @ X / n, evidence.curvature_sd),
        "scores": ((evidence.scores - at.T @ at / n)[upper] * weight, evidence.scores_sd),
    }
    for name, (noise, sd) in told.items():
        assert abs(far_from(noise, sd)) < _ALARM_SDS, name
        assert far_from(noise, NARROWED * sd) > _ALARM_SDS, name


# ------------------------------------------------------------------------------------- ends


def numbers_of_runs(event: SelectBest, strata: int) -> NDArray[np.int64]:
    """Number of runs for this number of equally spaced inputs."""
    middles = [(2 * place + 1) * 2**64 // (2 * strata) for place in range(strata)]
    return np.array([draw_run_count(event, Scripted([middle, 0])) for middle in middles])


def law_of_runs(stopping: str, eta: float, mean: float) -> FloatArray:
    """P(0), P(1), … of the law of the paper that has this mean, up to where little is left."""
    k = np.arange(400)
    if stopping == "poisson":
        return np.asarray(stats.poisson.pmf(k, mean))

    def law(gamma: float) -> FloatArray:
        log = (
            k * math.log1p(-gamma)
            + special.gammaln(np.maximum(k, 1) + eta)
            - special.gammaln(k + 1)
        )
        weights = np.where(k > 0, np.exp(log - log[1]), 0.0)
        return np.asarray(weights / weights.sum())

    return law(float(optimize.brentq(lambda gamma: law(gamma) @ k - mean, 1e-3, 1 - 1e-9)))


@pytest.mark.parametrize(
    ("stopping", "eta", "mean"),
    [
        ("negative_binomial", 1.0, 6.0),
        ("negative_binomial", 0.0, 3.0),
        ("negative_binomial", -0.5, 2.5),
        ("negative_binomial", 3.0, 8.0),
        ("poisson", 1.0, 4.0),
    ],
)
def test_runs_stop_by_their_law(stopping: Any, eta: float, mean: float) -> None:
    """Equally spaced numbers instead of random ones, so the test is deterministic."""
    strata = 500

    def apart(times: float) -> float:
        """Largest distance of shares of runs from the distribution with a scaled mean."""
        numbers = numbers_of_runs(SelectBest(PureDP(1.0), times * mean, stopping, eta), strata)
        seen = np.bincount(numbers, minlength=400)[:400] / strata
        return float(np.abs(np.cumsum(seen - law_of_runs(stopping, eta, mean))).max())

    assert apart(1.0) <= 1 / strata
    assert apart(SHRUNK) > 1 / strata


def reaching(gap: int, scales: list[float]) -> float:
    """P(the sum of discrete Laplace numbers of these scales reaches a number)."""
    most = gap + round(45 * max(scales))
    z = np.arange(-most, most + 1)
    one, two = (math.tanh(0.5 / scale) * np.exp(-np.abs(z) / scale) for scale in scales)
    tails = np.append(np.cumsum(two[::-1])[::-1], 0.0)
    return float(one @ tails[np.clip(gap - z + most, 0, z.size)])


class Forced:
    """Fixed noise of threshold tests; it records the scales."""

    def __init__(self, noise: int) -> None:
        self.noise, self.scales = noise, list[float]()

    def __call__(self, sums: Any, multiplier: float, *, source: Any) -> Any:
        # The threshold has no noise, so all noise is the query's.
        self.scales.append(multiplier)
        return sums + (self.noise if len(self.scales) > 1 else 0)


def largest(fails: Callable[[int], bool], far: int) -> int:
    """The largest number at which it fails; it fails at ``-far`` and passes at ``far``."""
    low, high = -far, far
    assert fails(low)
    assert not fails(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fails(middle) else (low, middle)
    return low


def all_together(vectors: Any, step: float, squares: Any) -> Any:
    """The numbers of users near each user if all are near, at every distance."""
    return [np.full(len(vectors), len(vectors)) for _ in squares]


@pytest.mark.parametrize("relation", ["replace", "zero_out"])
@pytest.mark.parametrize("rounds", [1, 5])
def test_runs_of_agreeing_users_end_as_rarely_as_stated(
    rounds: int, relation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise at which a round ends, and its probability under the scales of the draws."""
    n, failure, scales = 4000, 0.01, list[float]()
    made = dg.papers.SoftCoreMean.calibrate(
        epsilon=0.1,
        delta=1e-6,
        n_users=n,
        rounds=rounds,
        radius=1.0,
        relation=relation,
        failure=failure,
    )
    monkeypatch.setattr(softcore, "close", all_together)

    def ends(noise: int) -> bool:
        forced = Forced(noise)
        monkeypatch.setattr(draws, "with_laplace", forced)
        try:
            made.start(seeded()).estimate(dg.means.Vectors(np.zeros((n, 1))))
        except RunEnded:
            return True
        finally:
            scales[:] = forced.scales
        return False

    gap = -largest(ends, n)
    chance = reaching(gap, scales)
    assert 0.95 * failure / rounds < chance <= failure / rounds
    assert reaching(gap, [scale / SHRUNK for scale in scales]) > failure / rounds


def test_radius_is_passed_as_rarely_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways: a radius at which users agree, and one at which too few do."""
    n, failure, scales = 1500, 0.01, list[float]()
    made = dg.means.Radius.calibrate(
        epsilon=0.5, n_users=n, smallest=1.0, largest=1.0, failure=failure
    )
    monkeypatch.setattr(radius, "close", all_together)

    def found(noise: int, score: int) -> bool:
        forced = Forced(noise)
        monkeypatch.setattr(draws, "with_laplace", forced)
        monkeypatch.setattr(radius, "score", lambda counts, top: score)
        try:
            return made.find(np.zeros((n, 1)), seeded()) is not None
        finally:
            scales[:] = forced.scales

    agreeing = made.top**2
    gap = -largest(lambda noise: not found(noise, agreeing), agreeing)
    chance = reaching(gap, scales)
    assert 0.98 * failure < chance <= failure
    assert reaching(gap, [scale / SHRUNK for scale in scales]) > failure
    fewer = math.ceil(0.75 * agreeing) - 1
    gap = largest(lambda noise: not found(noise, fewer), agreeing) + 1
    assert reaching(gap, scales) <= failure
