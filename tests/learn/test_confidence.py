"""Confidence intervals: sensitivity of second moments, and coverage."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t

from dpgrain import budget
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.errors import CareWarning, ParameterError
from dpgrain.gradients.records import RecordBlocks
from dpgrain.learn import LinearRegression, LogisticRegression, PoissonRegressor, confidence
from dpgrain.learn.confidence import (
    _SCORES,
    Evidence,
    Intervals,
    intervals,
    release_evidence,
    score_sensitivity,
)
from dpgrain.learn.rounds import History
from dpgrain.means import clipped
from dpgrain.noise import SeededSource
from dpgrain.noise.noisy_sums import add_gaussian_noise
from dpgrain.optimize import Logistic, MarginLoss, PoissonLoss, Softmax, Squared
from dpgrain.publishing import draws
from dpgrain.units import Element, Record, User
from dpgrain.words.fit_text import COVERAGE
from dpgrain.words.notes import note_text

Array = NDArray[Any]


@pytest.mark.slow
@pytest.mark.parametrize("longest", [0.5, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("moved", [0.3, 1.0, 1.7, 2.0])
def test_no_two_vectors_move_an_outer_product_farther(longest: float, moved: float) -> None:
    bound, found = score_sensitivity(longest, moved), 0.0
    rng = np.random.default_rng(0)
    for _ in range(6000):
        v = rng.normal(size=2)
        v *= longest * np.minimum(1.0, rng.random() * 1.3) / np.linalg.norm(v)
        step = rng.normal(size=2)
        w = v + step * moved / np.linalg.norm(step)
        if rng.random() < 0.3:
            # Along v, or to the opposite side of the circle, the bound is attained.
            w = v * (1 - moved / max(float(np.linalg.norm(v)), 1e-9))
        if rng.random() < 0.5:
            angle = 2 * math.asin(min(moved / (2 * longest), 1))
            v = longest * np.array([1.0, 0.0])
            w = longest * np.array([math.cos(angle), math.sin(angle)])
        w = clipped(w[None], longest)[0]
        if np.linalg.norm(v - w) <= moved * (1 + 1e-12):
            apart = np.outer(v, v) - np.outer(w, w)
            found = max(found, float(np.linalg.norm(apart)))
    assert 0.97 * bound <= found <= bound * (1 + 1e-9)


def released(
    X: Array, y: Array, codes: Array, owners: Array, loss: MarginLoss, theta: Array, *, whole: bool
) -> list[Array]:
    """The released parts, without noise, normalised so that one block moves them by 1."""
    parts: list[Array] = []
    real = add_gaussian_noise

    def spy(total: Array, sensitivity: float, multiplier: float, source: Any) -> Array:
        # The event's multiplier is 1, so the part's is 1/√(its share).
        parts.append(total / (sensitivity * multiplier))
        # The choices must be equal on both sides for a fair comparison of the rest.
        return real(np.zeros_like(total), sensitivity, multiplier, SeededSource(1))

    event = Gaussian(1.0, Contribution(layout="shared", coordinates="signed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "add_gaussian_noise", spy)
        release_evidence(
            RecordBlocks.arrange(X, y, codes, blocks=len(owners)),
            owners,
            loss,
            theta,
            clip=0.7,
            n_users=3,
            blocks_per_user=1.0,
            whole=whole,
            event=event,
            source=draws.counted(SeededSource(1), event),
        )
    return parts


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    "loss", [Logistic(), Squared(), PoissonLoss(), Softmax(3)], ids=lambda loss: type(loss).__name__
)
def test_no_block_moves_the_evidence_by_more_than_one(loss: MarginLoss, whole: bool) -> None:
    rng, largest = np.random.default_rng(1), 0.0
    owners = np.arange(3) if whole else np.array([0, 0, 0, 1, 2])
    for _ in range(120):
        blocks = len(owners)
        codes = np.repeat(np.arange(blocks), rng.integers(1, 4, blocks))
        X = rng.normal(size=(len(codes), 2)) * 10.0 ** rng.integers(-2, 3)
        if rng.random() < 0.5:
            X[codes == 1] = X[codes == 0][0]
        y = rng.integers(0, 2, len(codes)).astype(float)
        theta = rng.normal(size=2 * loss.outputs)
        gone = codes == rng.integers(2)
        pair = [
            released(X[keep], y[keep], codes[keep], owners, loss, theta, whole=whole)
            for keep in (np.ones(len(codes), dtype=bool), ~gone)
        ]
        square = sum(float(((a - b) ** 2).sum()) for a, b in zip(*pair, strict=True))
        largest = max(largest, math.sqrt(square))
    assert 0.6 < largest <= 1 + 1e-9


def test_a_block_bends_as_its_clipped_gradient_does() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(6, 3)), rng.integers(0, 2, 6).astype(float)
    records = RecordBlocks.arrange(X, y, [0, 0, 0, 1, 1, 1])
    theta, step = rng.normal(size=3), 1e-6
    for clip in (0.05, 10.0):
        moments = confidence._BlockMoments(records, Logistic(), theta, clip)

        def mean(at: Array, clip: float = clip) -> Array:
            vectors = records.gradients(Logistic(), at).vectors()
            total: Array = clipped(vectors, clip).sum(axis=0)
            return total

        found = moments.curvature(1e9)
        expected = np.column_stack(
            [(mean(theta + step * e) - mean(theta - step * e)) / (2 * step) for e in np.eye(3)]
        )
        assert np.allclose(found, expected, atol=1e-7)


def draw(
    rng: np.random.Generator, n: int, truth: Array, *, numbers: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Users with three elements of five records, and a separate effect."""
    X = rng.normal(size=(n, 3, 5, len(truth) - 1))
    X[..., 0] += 0.5 * rng.normal(size=(n, 1, 1))
    z = X @ truth[:-1] + truth[-1]
    own = rng.normal(size=(n, 1, 1))
    if numbers:
        y = z + 0.6 * own + 0.7 * rng.normal(size=z.shape)
    else:
        y = (rng.random(z.shape) < 1 / (1 + np.exp(-z - 0.3 * own))).astype(float)
    users, elements = np.repeat(np.arange(n), 15), np.tile(np.repeat(np.arange(3), 5), n)
    return X.reshape(-1, len(truth) - 1), y.ravel(), users, elements


def root(truth: Array) -> Array:
    """The limit of logistic regression if users have unknown effects."""
    rng = np.random.default_rng(99)
    X, y, _, _ = draw(rng, 150_000, truth)
    X = np.column_stack([X, np.ones(len(X))])
    theta = truth.copy()
    for _ in range(8):
        z = X @ theta
        p = 1 / (1 + np.exp(-z))
        theta -= np.linalg.solve((X * (p * (1 - p))[:, None]).T @ X, X.T @ (p - y))
    return theta


def coverage(model: Any, truth: Array, target: Array, fits: int, *, numbers: bool = False) -> Array:
    hits = np.zeros(len(target))
    for seed in range(fits):
        X, y, users, elements = draw(np.random.default_rng(seed), 2000, truth, numbers=numbers)
        passed = elements if isinstance(model.unit, Element) else None
        found = model.set_params(random_state=seed).fit(X, y, users=users, elements=passed)
        intervals = found.confidence_intervals()
        hits += (intervals.low <= target) & (target <= intervals.high)
    return hits / fits


TRUTH = np.array([1.0, -0.7, 0.4, 0.0, 0.3])


@pytest.mark.slow(full=True)
@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(unit=Element(), epsilon=1.0, intervals=0.15, clip=2.0),
        LogisticRegression(unit=User(), epsilon=1.0, intervals=0.15, clip=2.0),
        LogisticRegression(
            unit=Element(), epsilon=1.0, intervals=0.15, clip=2.0, sampling_rate=0.3, rounds=200
        ),
    ],
    ids=["element", "user", "drawn"],
)
def test_intervals_have_the_stated_coverage(model: LogisticRegression) -> None:
    found = coverage(model, TRUTH, root(TRUTH), 500)
    assert 0.92 <= found.mean() <= 0.97
    assert found.min() > 0.88


@pytest.mark.slow(full=True)
def test_intervals_of_least_squares() -> None:
    model = LinearRegression(unit=Element(), epsilon=1.0, intervals=0.15, clip=4.0)
    found = coverage(model, TRUTH, TRUTH, 500, numbers=True)
    assert 0.92 <= found.mean() <= 0.98
    assert found.min() > 0.88


@pytest.mark.slow
def test_intervals_without_noise_of_sampling_are_too_short() -> None:
    # Half of the standard error would be seen: 40 fits of 5 coefficients.
    model = LogisticRegression(unit=Element(), epsilon=1.0, intervals=0.15, clip=2.0)
    target, hits, half = root(TRUTH), 0, 0
    for seed in range(40):
        X, y, users, elements = draw(np.random.default_rng(seed), 2000, TRUTH)
        model.set_params(random_state=seed).fit(X, y, users=users, elements=elements)
        found = model.confidence_intervals()
        width = (found.high - found.low) / 2
        hits += int((np.abs(found.estimate - target) <= width).sum())
        half += int((np.abs(found.estimate - target) <= width / 2).sum())
    assert hits >= 180
    assert half < 172


SLOPES = np.array([2.0, 0.5])


def one_feature(
    seed: int, users: int, records: int, scale: float, *, numbers: bool
) -> tuple[Array, Array, Array]:
    """Users with records of one feature between ±scale, of a model that is true."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-scale, scale, size=(users * records, 1))
    z = X[:, 0] * SLOPES[0] + SLOPES[1]
    y = (
        z + rng.normal(size=len(z))
        if numbers
        else (rng.random(len(z)) < 1 / (1 + np.exp(-z))) + 0.0
    )
    return X, y, np.repeat(np.arange(users), records)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "l2"), [(500, 0.0), (1800, 0.0), (1800, 0.03), (5000, 0.0)])
@pytest.mark.parametrize("scale", [0.03, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("unit", [User(), Record()], ids=repr)
@pytest.mark.parametrize("numbers", [True, False], ids=["squares", "logistic"])
def test_intervals_cover_the_slope_or_are_omitted(
    numbers: bool, unit: Any, scale: float, n: int, l2: float
) -> None:
    options: dict[str, Any] = {"unit": unit, "n_users": n, "l2": l2, "intervals": 0.2}
    missed, told = np.zeros(2, dtype=int), 0
    for seed in range(25):
        X, y, users = one_feature(seed, n, 3 if unit == User() else 1, scale, numbers=numbers)
        model = LinearRegression() if numbers else LogisticRegression(classes=[0, 1])
        model.set_params(random_state=seed, **options).fit(X, y, users=users)
        found = model.confidence_intervals()
        missed += (found.low > SLOPES) | (found.high < SLOPES)
        told += found.resolved
        assert np.isfinite(found.low).all() == np.isfinite(found.high).all() == found.resolved
    # Of 25 intervals with coverage 95%, more than 5 miss once in a thousand times.
    assert missed.max() <= 5
    if scale <= 0.03:
        assert told <= 3
    if scale >= 1 and n == 5000:
        assert told >= 22


@pytest.mark.parametrize("times", [1.0, 2.0, 5.0])
def test_noisy_variance_has_reduced_degrees_of_freedom(times: float) -> None:
    # A variance with the relative standard deviation r counts as one of 2/r² draws (Satterthwaite).
    n, sd = 1000, 0.02
    evidence = Evidence(np.eye(1), 0.0, np.array([[times * sd]]), sd, n)
    history = History(np.zeros((4, 1)), np.zeros((4, 1)), 0.0, 1.0)
    found = intervals(
        replace(evidence, scores=evidence.scores * (n - 1) / n),
        history, np.zeros(1), np.zeros(1), np.eye(1), ("x",), 0.95, sampled=False,
    )  # fmt: skip
    assert found.resolved
    assert found.std_error[0] == pytest.approx(math.sqrt(times * sd / n))
    width = (found.high - found.low)[0] / 2 / found.std_error[0]
    assert width == pytest.approx(t.ppf(0.975, 2 * times**2))


@pytest.mark.parametrize("width", [2, 5, 9])
def test_fit_warns_of_unbounded_intervals_in_advance(width: int) -> None:
    """Below its required number of users intervals have no ends; with four times it they do."""
    rng = np.random.default_rng(width)

    def fitted(n: int) -> tuple[list[str], NDArray[np.bool_]]:
        X = rng.uniform(-1.7, 1.7, (n, width))
        y = (rng.random(n) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
        model = LogisticRegression(
            epsilon=2.0, delta=1e-5, intervals=0.2, classes=[0, 1], n_users=n, random_state=0
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = model.fit(X, y, users=np.arange(n)).confidence_intervals()
        assert np.isfinite(found.low).all() == found.resolved
        # Without ends there is no estimate either.
        return [str(w.message) for w in caught if w.category is CareWarning], ~np.isnan(
            found.estimate
        )

    said, resolved = fitted({2: 40, 5: 90, 9: 150}[width])
    assert not resolved.any()
    needed = int(said[0].partition("needs about ")[2].partition(" users")[0].replace(",", ""))
    said, resolved = fitted(max(4 * needed, 2000))
    assert not said
    assert resolved.all()


@pytest.mark.parametrize(
    ("n", "error", "match"),
    [(120, CareWarning, "needs about"), (60, ParameterError, "at least 80 users")],
)
def test_intervals_dominated_by_noise_are_not_charged(n: int, error: Any, match: str) -> None:
    X, users = np.ones((n, 3)), np.arange(n)
    model = LogisticRegression(
        epsilon=1.0, delta=1e-5, intervals=0.2, classes=[0, 1], n_users=n, random_state=0
    )
    with budget(2.0, 1e-4) as open_budget, warnings.catch_warnings():
        warnings.simplefilter("error", CareWarning)
        with pytest.raises(error, match=match):
            model.fit(X, np.arange(n) % 2, users=users)
    assert open_budget.left == 1


def test_no_data_have_intervals_below_the_required_users() -> None:
    """The best case is a curvature of the largest norm in each record, equal in all directions."""
    event, width = Gaussian(9.0), 6
    noise = event.noise_multiplier / math.sqrt(confidence._CURVATURE)
    for n in (127, 131):
        evidence = Evidence(np.eye(width) / math.sqrt(width), noise / n, np.eye(width), 0.0, n)
        assert confidence._with_floor(evidence)[1] == (n >= 2 * noise * width) == (n == 131)
        if n == 127:
            with pytest.raises(
                ParameterError, match=f"at least {math.ceil(2 * noise * width)} users"
            ):
                confidence.interval_warnings(event, width, n)
        else:
            assert confidence.interval_warnings(event, width, n)


@pytest.mark.slow
@pytest.mark.parametrize("width", [2, 5, 10])
@pytest.mark.parametrize("numbers", [True, False], ids=["squares", "logistic"])
def test_intervals_of_3000_users_cover_and_are_short(numbers: bool, width: int) -> None:
    truth, fits = np.append(np.linspace(-1, 1, width), 0.3), 15
    hits, longer = 0, []
    for seed in range(fits):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (9000, width))
        X[:, width // 2 :] = X[:, width // 2 :] > 0.3
        z = X @ truth[:-1] + truth[-1]
        y = z + rng.normal(size=9000) if numbers else rng.random(9000) < 1 / (1 + np.exp(-z))
        model = LinearRegression() if numbers else LogisticRegression()
        model.set_params(n_users=3000, intervals=0.2, random_state=seed)
        found = model.fit(X, y, users=np.repeat(np.arange(3000), 3)).confidence_intervals()
        assert found.resolved
        hits += int(((found.low <= truth) & (truth <= found.high)).sum())
        longer.append((found.high - found.low) / 2 / (1.96 * found.std_error))
    assert hits >= 0.93 * fits * len(truth)
    assert np.mean(longer) <= 2


def test_user_blocks_move_the_evidence_as_stated() -> None:
    """Two gradients in one direction, the larger one removed: the most that one block can do."""
    X = np.array([[1.0, 0.0], [1.0, 0.0]])
    owners, theta, clip = np.array([0, 0]), np.zeros(2), 0.7
    y = np.array([50.0, clip / 4])
    both = released(X, y, np.array([0, 1]), owners, Squared(), theta, whole=False)
    one = released(X[1:], y[1:], np.array([0]), owners[1:], Squared(), theta, whole=False)
    moved = np.linalg.norm(both[-1] - one[-1]) / math.sqrt(_SCORES)
    assert 0.9 < moved <= 1


def test_intervals_have_names_and_a_table() -> None:
    X, y, users, elements = draw(np.random.default_rng(0), 500, TRUTH)
    import pandas as pd

    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    model = LogisticRegression(unit=Element(), epsilon=3.0, intervals=0.2, random_state=0)
    found = model.fit(frame, y, users=users, elements=elements).confidence_intervals(0.9)
    assert found.names == ("a", "b", "c", "d", "intercept")
    assert found.level == 0.9
    assert list(found.to_pandas().columns) == ["estimate", "low", "high", "std_error"]
    assert ((found.low < found.estimate) & (found.estimate < found.high)).all()
    wider = model.confidence_intervals(0.99)
    assert (wider.high - wider.low > found.high - found.low).all()
    # A repeated request costs and changes nothing.
    again = model.confidence_intervals(0.9)
    assert np.array_equal(again.low, found.low)
    assert "estimate" in str(found)


def test_intervals_are_on_the_scale_of_the_features() -> None:
    X, y, users, _ = draw(np.random.default_rng(0), 1500, TRUTH)
    model = LogisticRegression(
        epsilon=3.0, intervals=0.2, feature_bound=200.0, random_state=0, rounds=100
    )
    found = model.fit(100 * X, y, users=users).confidence_intervals()
    assert np.abs(100 * found.estimate[:4] - TRUTH[:4]).max() < 0.5
    counts = np.random.default_rng(1).poisson(np.exp(X[:, 0] / 3)).astype(float)
    poisson = PoissonRegressor(epsilon=3.0, intervals=0.2, random_state=0)
    assert len(poisson.fit(X, counts, users=users).confidence_intervals().names) == 5


def test_intervals_report_their_doubt() -> None:
    one = np.ones(1)
    sure = Intervals(("x",), one, one - 1, one + 1, one, 0.95)
    assert str(sure) == repr(sure) == f"{sure.to_pandas()}\n{COVERAGE}"
    open_ended = replace(sure, low=-np.inf * one, high=np.inf * one, doubt="clipping-effect")
    why = note_text(("clipping-effect",))
    told = f"{open_ended.to_pandas()}\nWarning: there are no intervals: {why}."
    assert str(open_ended) == repr(open_ended) == told
    assert (sure.resolved, open_ended.resolved) == (True, False)
