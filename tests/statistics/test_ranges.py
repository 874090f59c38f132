"""Estimated ranges: rarely from noise, and wide enough for the data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import dpgrain as dg
from dpgrain._types import FloatArray
from dpgrain.publishing import Charge
from dpgrain.statistics.ranges import AutoRange, AutoTree, _tail
from dpgrain.units import Law
from dpgrain.words.quantities import warnings


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_false_bins_rarely_widen_the_range(law: Law) -> None:
    """Numbers from 1 to 8, and noise in 120 bins: ranges are sometimes wide, and rarely extreme."""
    rule, rng = AutoRange(), np.random.default_rng(4)
    counts = np.zeros(rule.edges.size - 1)
    one = int(np.flatnonzero(rule.edges == 1)[0])
    counts[one : one + 3] = 600.0
    wide = []
    for _ in range(3000):
        noise = rng.normal(size=counts.size)
        if law == "laplace":
            noise = rng.laplace(scale=math.sqrt(0.5), size=counts.size)
        low, high = rule.choose(counts + 20 * noise, 20.0, law)
        wide.append(max(-low, high) / 8)
    assert min(wide) == 1
    assert np.mean(np.array(wide) > 1) < 0.01
    assert np.mean(wide) < 2


def test_far_numbers_are_weighed_against_the_noise() -> None:
    """With less noise, or a longer tail, the range extends farther; each sign separately."""
    rule = AutoRange()
    counts = np.zeros(rule.edges.size - 1)
    one = int(np.flatnonzero(rule.edges == 1)[0])
    counts[one : one + 4] = [4000.0, 2000.0, 1000.0, 500.0]
    found = [rule.balanced_bounds(counts, 9.0, noise) for noise in (1e-3, 4.0, 400.0, 1e5)]
    assert found == [(1.0, 64.0), (1.0, 32.0), (1.0, 8.0), (1.0, 2.0)]
    mirrored = [rule.balanced_bounds(counts[::-1], 9.0, noise) for noise in (1e-3, 4.0, 400.0, 1e5)]
    assert mirrored == [(-high, -low) for low, high in found]
    both = rule.balanced_bounds(counts + counts[::-1], 9.0, 4.0)
    assert both == (-32.0, 32.0)
    nothing = rule.balanced_bounds(np.zeros(counts.size), 9.0, 4.0)
    assert nothing == (float(rule.edges[0]), float(rule.edges[-1]))


NUMBERS: dict[str, Any] = {
    "one size": lambda rng: rng.uniform(1, 29, 20_000),
    "exponential": lambda rng: rng.exponential(8, 20_000),
    "normal": lambda rng: rng.normal(100, 10, 20_000),
    "log-normal": lambda rng: rng.lognormal(1, 1.5, 20_000),
    "power, 3": lambda rng: 5 * rng.pareto(3, 20_000) + 1,
    "power, 1.5": lambda rng: 5 * rng.pareto(1.5, 20_000) + 1,
}


@pytest.mark.parametrize("tail", NUMBERS)
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_bounds_of_sums_are_near_the_best(tail: str, scale: float) -> None:
    """Noise and truncation add up to little more than at the best bound, for any tail."""
    rule, rng = AutoRange(signed=False), np.random.default_rng(7)
    numbers, sd, noise = NUMBERS[tail](rng), 9.4 * scale, 1.7 * scale

    def error(bound: float) -> float:
        return math.hypot(noise * bound, float(np.maximum(numbers - bound, 0.0).sum()))

    counts = np.histogram(numbers, rule.edges)[0].astype(float)
    best = min(error(edge) for edge in rule.edges[1:].tolist())
    made = [
        error(rule.balanced_bounds(counts + rng.laplace(0, sd / 2**0.5, counts.size), sd, noise)[1])
        for _ in range(20)
    ]
    assert np.median(made) < 4.5 * best


def test_extrapolation_stays_within_likely_counts() -> None:
    seen = np.array([0.0, 4000.0, 1000.0, 0.0, 0.0, 0.0, 0.0])
    noisy = np.array([5.0, 4000.0, 1000.0, 20.0, -30.0, 3.0, 0.0])
    assert _tail(seen, noisy, 10.0).tolist() == [
        0.0, 4000.0, 1000.0, 40.0, pytest.approx(1.6), pytest.approx(0.064), 0.0
    ]  # fmt: skip
    # 4,000 to 1,000 is a fall by 4, 1,000 to 50 one by 20: the next one is by more than that.
    steep = np.array([4000.0, 1000.0, 50.0, 0.0, 0.0])
    guess = _tail(steep, steep, 1.0)
    assert 20 * guess[3] < guess[2]
    assert guess[4] * guess[2] < guess[3] ** 2
    assert _tail(np.zeros(3), noisy[:3], 10.0).tolist() == [0.0] * 3


@pytest.mark.slow
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("signed", [True, False])
def test_range_is_rarely_found_in_noise(law: Law, signed: bool) -> None:
    """Bins and windows of bins pass with at most 2·10⁻⁵ per bin; 20,000 tables resolve 2% more."""
    rule, rng = AutoRange(signed=signed), np.random.default_rng(5)
    bins, tables = rule.edges.size - 1, 20_000
    seen = 0
    for _ in range(tables):
        noise = rng.normal(size=bins)
        if law == "laplace":
            noise = rng.laplace(scale=math.sqrt(0.5), size=bins)
        seen += rule.is_detectable(20 * noise, 20.0, law)
    assert seen <= stats.binom.ppf(0.999, tables, 2e-5 * bins)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("sign", [1, -1])
def test_neighbours_stand_out_together(law: Law, sign: int) -> None:
    """Four bins of 3.5 deviations each are not noise, though none of them is visible separately."""
    rule = AutoRange()
    counts = np.zeros(rule.edges.size - 1)
    one = int(np.flatnonzero(rule.edges == 1)[0])
    counts[one : one + 4] = 70.0
    found = rule.choose(counts[::sign], 20.0, law)
    assert found == ((1.0, 16.0) if sign > 0 else (-16.0, -1.0))
    # At this distance they look like noise, and so does each of them.
    counts[one : one + 4] = [70.0, 0.0, 0.0, 0.0]
    counts[one + 8 :: 8] = 70.0
    assert not rule.is_detectable(counts[::sign], 20.0, law)


def test_a_count_s_range_is_never_negative() -> None:
    rule = AutoRange(smallest=1.0, signed=False)
    counts = np.zeros(rule.edges.size - 1)
    counts[4:7] = 4000.0
    assert rule.choose(counts, 9.0) == (8.0, 64.0)
    assert rule.balanced_bounds(counts, 9.0, 4.0)[0] == 8.0
    counts[0] = 4000.0
    assert rule.choose(counts, 9.0) == (0.0, 64.0)
    assert rule.choose(np.zeros(counts.size), 9.0) == (0.0, float(rule.edges[-1]))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("power", [1, 2])
def test_likely_clamped_part_sums_counts_and_tail(sign: int, power: int) -> None:
    rule = AutoRange()
    counts = np.zeros(rule.edges.size - 1)
    one = int(np.flatnonzero(rule.edges == 1)[0])
    counts[one : one + 4] = [8000.0, 2000.0, 500.0, 125.0]
    bounds = (1.0, 8.0) if sign > 0 else (-8.0, -1.0)
    found = rule.clamped(counts[::sign], 1e-6, bounds, power=power)
    values = np.repeat(sign * math.sqrt(2) * 2.0 ** np.arange(4), [8000, 2000, 500, 125])
    kept = np.clip(values, *bounds)
    centre = kept.mean() if power > 1 else 0.0
    part = np.mean(np.abs(values - centre) ** power - np.abs(kept - centre) ** power)
    beyond, other = (found.above, found.below)[::sign]
    assert beyond == pytest.approx(3 * part, rel=1e-6)
    assert other == 0
    assert found.size == pytest.approx(np.mean(np.abs(kept - centre) ** power), rel=1e-6)
    # A tail that the noise hides adds to it.
    hidden = rule.clamped(counts[::sign], 20.0, bounds, power=power)
    assert (hidden.above, hidden.below)[::sign][0] > 1.5 * beyond


@pytest.mark.parametrize("sign", [1, -1])
def test_clamped_part_includes_hidden_zeros_and_the_next_smaller_bin(sign: int) -> None:
    rule = AutoRange()
    counts, zero = np.zeros(rule.edges.size - 1), rule.edges.size // 2 - 1
    one = int(np.flatnonzero(rule.edges == 1)[0])
    counts[one + 5], counts[one + 3 : one + 5], counts[zero] = 8000.0, 20.0, 20.0
    bounds = (32.0, 64.0) if sign > 0 else (-64.0, -32.0)
    found = rule.clamped(counts[::sign], 20.0, bounds)
    below, _ = (found.below, found.above)[::sign]
    assert below == pytest.approx(3 * 20 * (32 + 32 - 16 * math.sqrt(2)) / 8040, rel=0.01)


def test_careful_tail_follows_slowly_falling_counts() -> None:
    slow = 8000 / 2.5 ** np.arange(12.0)
    seen = np.where(np.arange(12) < 4, slow, 0.0)
    plain, careful = (_tail(seen, slow, 110.0, careful=careful) for careful in (False, True))
    assert plain[3:9].tolist() == [512.0, 128.0, 32.0, 8.0, 2.0, 0.5]
    assert ((careful[3:8] / careful[4:9] > 2.5) & (careful[3:8] / careful[4:9] < 3.5)).all()
    # After a single visible bin, counts fall fast.
    assert _tail(np.array([0.0, 6000, 0, 0]), np.zeros(4), 20.0)[2:].tolist() == [
        40.0, pytest.approx(40 / 150)
    ]  # fmt: skip


def test_careful_tail_includes_adjacent_bins_above_the_noise() -> None:
    """Five standard errors are not enough for a range, and clearly no noise next to visible bins."""
    seen = np.array([0.0, 900.0, 700.0, 0.0, 0.0, 0.0, 0.0])
    noisy = np.array([0.0, 900.0, 700.0, 500.0, 210.0, 150.0, 400.0])
    plain, careful = (_tail(seen, noisy, 100.0, careful=careful) for careful in (False, True))
    assert plain[3:].tolist() == [175.0, 43.75, 10.9375, 2.734375]
    assert careful[3:5].tolist() == [500.0, 210.0]
    assert 210 / 3 >= careful[5] > careful[6] > 0
    assert seen[3] == 0


def test_counts_around_the_fullest_bin_are_no_steep_tail() -> None:
    around, beyond = np.array([830.0, 800.0, 310.0, 0, 0]), np.array([8000.0, 4000.0, 800.0, 0, 0])
    assert _tail(around, np.full(5, 60.0), 30.0)[3:].tolist() == [310 / 4, 310 / 16]
    assert _tail(beyond, np.full(5, 60.0), 1.0)[3] < 800 / 8


def nodes(numbers: FloatArray, rule: AutoTree, sd: float, rng: np.random.Generator) -> FloatArray:
    codes, _ = rule.tree(np.zeros(numbers.size, dtype=np.int64), numbers)
    counts = np.bincount(codes, minlength=rule.tree.corners)
    noisy: FloatArray = counts + rng.normal(0, sd, counts.size)
    return noisy


@pytest.mark.parametrize("signed", [True, False])
def test_tree_rarely_finds_numbers_in_noise(signed: bool) -> None:
    rule, rng, tables = AutoTree(signed=signed), np.random.default_rng(7), 4000
    seen = sum(
        rule.is_detectable(rng.normal(0, 20, rule.tree.corners), 20.0) for _ in range(tables)
    )
    # Windows of one to four of 16 nodes, each with 10⁻⁵.
    assert seen <= stats.binom.ppf(0.999, tables, 6e-4)


def test_narrow_numbers_get_exact_bins_and_wide_ones_magnitudes() -> None:
    rng, rule = np.random.default_rng(8), AutoTree(signed=False)
    low, high = rule.choose(nodes(rng.normal(500, 10, 5000), rule, 20.0, rng), 20.0)
    assert 10 < low < 480
    assert 520 < high < 20_000
    assert rule.near(low, high) is None
    wide = rule.choose(nodes(np.exp(rng.normal(0, 4, 5000)), rule, 20.0, rng), 20.0)
    assert wide == (0.0, rule.largest)
    assert rule.near(*wide) == rule.smallest
    # Bins of equal width never contain all magnitudes.
    even = AutoTree.like(rule, "even")
    assert even.choose(nodes(np.exp(rng.normal(0, 4, 5000)), even, 20.0, rng), 20.0)[1] < 1e8


def test_small_integers_have_exact_bins_among_magnitudes() -> None:
    rng, rule = np.random.default_rng(9), AutoTree(signed=False, spacing="whole")
    found = rule.choose(nodes(rng.integers(1, 6, 5000).astype(float), rule, 20.0, rng), 20.0)
    assert found == (0.0, rule.largest)


def test_share_beyond_a_tree_range_is_at_least_stated() -> None:
    rng, rule = np.random.default_rng(10), AutoTree(signed=False)
    numbers = np.concatenate([rng.uniform(100, 200, 900), rng.uniform(1e4, 2e4, 100)])
    said = [
        rule.share_outside(nodes(numbers, rule, 5.0, rng), 5.0, (50.0, 400.0)) for _ in range(300)
    ]
    assert np.mean(np.array(said) >= 0.1) > 0.95


TAILS = {
    "a Zipf tail": lambda rng, n: np.minimum(rng.zipf(1.7, n), 10**6),
    "amounts": lambda rng, n: np.exp(rng.normal(4, 1.5, n)),
    "years": lambda rng, n: np.rint(rng.normal(1980, 15, n)).astype(np.int64),
    "either sign": lambda rng, n: rng.normal(0, 10, n),
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(("people", "epsilon"), [(671, 0.3), (671, 1.0), (5000, 1.0)])
def test_quantile_intervals_without_bounds_have_their_coverage(
    tail: str, people: int, epsilon: float
) -> None:
    """With 671 people the tail is invisible: then the interval is open, not wrong."""
    rng, ranks = np.random.default_rng(11), [0.5, 0.9, 0.99]
    held, off = [], []
    for seed in range(8):
        numbers = TAILS[tail](rng, people)
        truth = np.quantile(numbers, ranks, method="inverted_cdf")
        release = dg.quantiles(
            dg.read(pa.table({"x": numbers})), "x", ranks, unit=dg.Record(), epsilon=epsilon,
            delta=1e-6, random_state=seed,
        )  # fmt: skip
        held.append((release.low <= truth) & (truth <= release.high))
        middle = release.estimate[0]
        off.append(max(np.mean(numbers < middle) - 0.5, 0.5 - np.mean(numbers <= middle), 0.0))
        assert np.isinf(release.high[2]) or people == 5000
        assert np.isnan(release.std_error[np.isinf(release.high - release.low)]).all()
    assert np.mean(held) > 0.9
    # The median is near, also of few.
    assert np.median(off) < 0.1


def test_range_of_a_total_of_users_removes_little() -> None:
    """Users have about 30 numbers with a heavy tail, and their totals are clipped anyway."""
    rng = np.random.default_rng(2)
    who = np.repeat(np.arange(1000), rng.geometric(1 / 30, 1000))
    x = np.round(np.exp(5 + 1.3 * rng.normal(size=who.size)), 2)
    table = dg.read(pa.table({"who": who, "x": x}), user="who")
    for seed in range(6):
        release = dg.sum(table, "x", unit=dg.User(), epsilon=1.0, delta=1e-6, random_state=seed)
        assert release.metadata.found is not None
        removed = np.maximum(x - release.metadata.found[1], 0).sum()
        assert removed < release.std_error[0]


@pytest.mark.parametrize("ask", [dg.mean, dg.variance, dg.sum, dg.quantiles, dg.distribution])
def test_nothing_is_published_without_visible_numbers(ask: object) -> None:
    rows = pa.table({"x": np.full(20, 1e6)})
    release = ask(  # type: ignore[operator]
        dg.read(rows), "x", unit=dg.Record(), epsilon=0.01, delta=1e-6, random_state=1
    )
    for column in (release.estimate, release.std_error, release.low, release.high):
        assert np.isnan(column).all()
    assert "no number exceeded the noise" in warnings(release.metadata)
    assert str(release)
    assert release.guarantee.epsilon() > 0
    assert math.isclose(release.metadata.epsilon, 0.01)


def test_unknown_value_is_null_in_a_file(tmp_path: object) -> None:
    rng = np.random.default_rng(12)
    rows = pa.table({"x": np.exp(rng.normal(0, 3, 400))})
    release = dg.quantiles(
        dg.read(rows), "x", [0.99], unit=dg.Record(), epsilon=0.5, delta=1e-6, random_state=1
    )
    assert np.isinf(release.high).all()
    path = release.write(f"{tmp_path}/q.json")
    text = path.read_text(encoding="utf-8")
    assert '"high": null' in text
    assert "Infinity" not in text
    assert "∞" in str(release)


UNITS: dict[str, Any] = {"record": dg.Record(), "element": dg.Element("g"), "user": dg.User()}


def first_look(rows: dict[str, list[Any]], unit: Any, **options: Any) -> tuple[Any, FloatArray]:
    """The event of an estimated range, and its sensitivities in units of the noise."""
    looks: list[tuple[Any, FloatArray]] = []
    real = Charge.noisy

    def noisy(self: Charge, event: Any, sums: Any, radius: Any = 1.0) -> Any:
        looks.append((event, np.asarray(sums, dtype=np.float64).ravel() / np.ravel(radius)[0]))
        return real(self, event, sums, radius)

    table = dg.read(pa.table(rows), user="who")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Charge, "noisy", noisy)
        dg.quantiles(table, "x", unit=unit, epsilon=1.0, random_state=1, **options)
    return looks[0]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("whole", [True, False])
def test_first_query_adds_no_more_than_charged(
    unit: str, law: Law, relation: Any, whole: bool
) -> None:
    """Also of a record, which adds 1 to each of two nodes and is not scaled as other blocks are."""
    kind = UNITS[unit]
    options: dict[str, Any] = {"noise": law, "relation": relation}
    options["delta"] = 0.0 if law == "laplace" else 1e-6
    one: list[Any] = [1, 5000] if whole else [1.5, 5000.5]
    rows: dict[str, list[Any]] = {
        "who": [1, 1, 2],
        "g": ["a", "a", "b"],
        "x": [one[0], one[0], one[0]],
    }
    last = {name: column[-1] for name, column in rows.items()}
    fewer: dict[str, list[Any]] = {name: column[:-1] for name, column in rows.items()}
    other = {name: [*column, last[name]] for name, column in fewer.items()} | {
        "x": [*fewer["x"], one[1]]
    }
    event, here = first_look(rows, kind, **options)
    _, there = first_look(fewer if relation == "zero_out" else other, kind, **options)
    moved = np.linalg.norm(here - there, 1 if law == "laplace" else 2)
    billed = event.contribution.sensitivity(
        1, relation, kind if unit != "element" else dg.Element()
    )
    assert 0.5 * billed < moved <= billed * (1 + 1e-6)


@pytest.mark.parametrize("ask", [dg.quantiles, dg.mean])
def test_numbers_beyond_all_magnitudes_are_beyond_the_range(ask: Any) -> None:
    rows = pa.table({"x": 1.7e12 + np.random.default_rng(0).uniform(0, 3e10, 3000)})
    release = ask(dg.read(rows), "x", unit=dg.Record(), epsilon=1.0, delta=1e-6, random_state=1)
    assert release.metadata.beyond is None or release.metadata.beyond > 0.9


def test_numbers_of_unsearched_sign_are_not_beyond_intervals() -> None:
    rows = pa.table({"x": -np.abs(np.random.default_rng(0).normal(0, 10, 3000))})
    asked: dict[str, Any] = {"unit": dg.Record(), "epsilon": 3.0, "delta": 1e-6, "random_state": 1}
    asked["bounds"] = AutoRange(signed=False)
    release = dg.quantiles(dg.read(rows), "x", **asked)
    assert np.isneginf(release.low).all()


def test_group_without_visible_numbers_has_no_estimate() -> None:
    rng = np.random.default_rng(0)
    rows = {"x": np.exp(rng.normal(0, 5, 3000)), "g": ["a"] * 3000}
    release = dg.quantiles(
        dg.read(pa.table(rows)), "x", by="g", domain=["a", "none"], unit=dg.Record(), epsilon=1.0,
        delta=1e-6, random_state=1,
    )  # fmt: skip
    known = np.isfinite(release.estimate)
    assert known[:3].all()
    assert not known[3:].any() or (release.high[3:] > 1e6).all()
    assert str(release)
    release.plot()


@pytest.mark.parametrize(
    "wrong",
    [{"smallest": 0.0}, {"largest": math.inf}, {"largest": 1e-9}, {"tail": 2.0}, {"tail": 0.0}],
)
def test_range_rule_is_checked_when_it_is_built(wrong: dict[str, Any]) -> None:
    with pytest.raises(dg.ParameterError):
        AutoRange(**wrong)


@pytest.mark.parametrize("statistic", ["sum", "mean"])
@pytest.mark.parametrize("unit", [dg.Record(), dg.User()])
def test_ranges_of_many_groups_are_narrower(statistic: str, unit: Any) -> None:
    """A cell of 64 has as much noise as a total, but a 64th of the clamped amount."""
    rng = np.random.default_rng(3)
    rows = {"who": np.arange(8000), "g": np.arange(8000) % 64, "x": 5 * rng.pareto(1.5, 8000)}
    table = dg.read(pa.table(rows), user="who")
    options: dict[str, Any] = {"unit": unit, "epsilon": 1.0, "delta": 1e-6, "random_state": 1}
    publish = getattr(dg, statistic)
    total = publish(table, "x", **options).metadata.found
    cells = publish(table, "x", by="g", domain=list(range(64)), **options).metadata.found
    assert cells[1] <= total[1] / 2


@pytest.mark.parametrize("sign", [1, -1])
def test_range_of_one_sign_includes_small_numbers(sign: int) -> None:
    rule = AutoRange()
    counts = np.zeros(rule.edges.size - 1)
    one = int(np.flatnonzero(rule.edges == 1)[0])
    counts[one - 1 : one + 4] = [40.0, 10.0, 0.0, 8000.0, 2000.0]
    bounds = (4.0, 16.0) if sign > 0 else (-16.0, -4.0)
    found = rule.clamped(counts[::sign], 1e-6, bounds)
    towards, beyond = (found.below, found.above)[::sign]
    assert towards == pytest.approx(
        3 * (40 * (4 - math.sqrt(0.5)) + 10 * (4 - math.sqrt(2))) / counts.sum()
    )
    assert beyond == 0
