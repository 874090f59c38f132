"""Statements of a release have the stated coverage, also if few people dominate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from tests.refusals import refuses
from tests.statistics import cases

import dpgrain as dg
from dpgrain._types import FloatArray
from dpgrain.noise import RandomSource
from dpgrain.publishing import draws
from dpgrain.statistics.intervals import ClippedUnits, at_least, quantile_of, radius, ratio_interval
from dpgrain.units import Law
from dpgrain.words.quantities import clipping_effect, description
from dpgrain.words.release_text import notes

ITEMS, USERS = 300, 150
PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
PURE: dict[str, Any] = {"epsilon": 2.0, "delta": 0.0, "noise": "laplace"}


def skewed(seed: int = 0) -> pa.Table:
    """Amounts with a Pareto tail, one for each user and item, a third of them absent."""
    generator = np.random.default_rng(seed)
    who, item = (part.ravel() for part in np.mgrid[0:USERS, 0:ITEMS])
    kept = generator.random(who.size) < 0.67
    amount = 10 * (1 + generator.pareto(2.0, who.size)) * 2.0 ** (item % 4)
    return pa.table({"who": who[kept], "item": item[kept], "amount": amount[kept]})


ROWS = skewed()


def published(seed: int, **options: Any) -> dg.Histogram:
    return dg.histogram(
        dg.read(ROWS, user="who", threads=1), "item", weight="amount", unit=dg.Element("item"),
        domain=list(range(ITEMS)), random_state=seed, **options,
    )  # fmt: skip


def sums(bounds: FloatArray) -> FloatArray:
    """The totals of the items, with every amount cut to its item's bound."""
    item, amount = ROWS["item"].to_numpy(), ROWS["amount"].to_numpy()
    return np.bincount(item, np.minimum(amount, bounds[item]), minlength=ITEMS).astype(np.float64)


@pytest.mark.parametrize("promise", [PROMISE, PURE], ids=["gaussian", "laplace"])
def test_limits_have_the_stated_coverage(promise: dict[str, Any]) -> None:
    """Intervals and lower limits are exact for clipped sums, and valid for totals."""
    inside, above = [], []
    total = sums(np.full(ITEMS, np.inf))
    for seed in range(6):
        release = published(seed, **promise)
        capped = sums(release.clip)
        least = release.more["at_least"]
        inside.append((release.low <= capped) & (capped <= release.high))
        above.append(least <= capped)
        assert (least <= total).mean() >= above[-1].mean()
        assert (total <= release.high).mean() < 0.9, "the interval is not of the total"
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)
    assert np.mean(above) == pytest.approx(0.95, abs=0.02)


HEAVY = pa.table(
    {
        "who": np.repeat(np.arange(120), np.arange(120) // 6 + 1),
        "group": np.arange(1260) % 40,
        "x": np.random.default_rng(4).beta(2, 5, 1260),
    }
)
RATIOS: dict[str, Callable[..., dg.Estimates]] = {
    "mean": dg.mean,
    "variance": dg.variance,
    "std": dg.std,
    "covariance": lambda table, x, bounds, **options: dg.covariance(
        table, x, f"1 - {x} * {x}", bounds=bounds, other_bounds=(0, 1), **options
    ),
    "correlation": lambda table, x, bounds, **options: dg.correlation(
        table, x, f"1 - {x} * {x}", bounds=bounds, other_bounds=(0, 1), **options
    ),
    "quantiles": lambda table, x, **options: dg.quantiles(table, x, [0.2, 0.5, 0.9], **options),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("name", RATIOS)
def test_ratio_intervals_cover_the_noiseless_values(
    name: str, law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People with many records are capped; intervals are of that, for either law and any count."""
    table = dg.read(HEAVY, user="who", threads=1)

    def release(seed: int, **options: Any) -> dg.Estimates:
        return RATIOS[name](
            table, "x", by="group", domain=list(range(40)), bounds=(0, 1), clip=6.0, unit=dg.User(),
            epsilon=12.0, noise=law, delta=1e-6 if law == "gaussian" else 0.0, random_state=seed,
            **options,
        )  # fmt: skip

    noisy = [release(seed) for seed in range(25)]
    cases.noiseless(monkeypatch)
    exact = release(0)
    # A quantile without an estimate has no true value to cover.
    known = np.isfinite(exact.estimate)
    assert known.mean() > 0.6
    inside = [((one.low <= exact.estimate) & (exact.estimate <= one.high))[known] for one in noisy]
    assert np.mean(inside) > 0.94
    counts = [
        np.abs(one.count - exact.count) <= quantile_of("gaussian", 0.975) * one.more["count_error"]
        for one in noisy
    ]
    assert np.mean(counts) == pytest.approx(0.95, abs=0.025)
    if name == "mean":
        # Halved intervals would be seen.
        half = [np.abs(one.estimate - exact.estimate) <= (one.high - one.low) / 4 for one in noisy]
        assert np.mean(half) < 0.9


@pytest.mark.parametrize(
    ("noise", "law"), [("gaussian", stats.norm()), ("laplace", stats.laplace(scale=0.5**0.5))]
)
def test_limits_have_exactly_the_stated_coverage(noise: Law, law: Any) -> None:
    # A sample would have to be large to see an interval that is 3% too narrow.
    sd = np.array([1.0, 20.0])
    assert law.cdf(radius(noise, sd) / sd) - law.cdf(-radius(noise, sd) / sd) == pytest.approx(0.95)
    estimate = np.array([1e3, 1e4])
    assert law.cdf((estimate - at_least(estimate, sd, noise)) / sd) == pytest.approx(0.95)


@pytest.mark.parametrize(("above", "below"), [(1.0, 1.0), (1.0, 6.0), (5.0, 2.0)])
def test_share_has_the_limits_of_its_counts(above: float, below: float) -> None:
    generator = np.random.default_rng(1)
    upper, lower = generator.uniform(0, 400, (2, 500))
    width = np.full(500, 12.0)
    low, high = ratio_interval(upper, lower, width, above, below)
    for end in (low, high):
        inside = (end > 0) & (end < 1)
        assert inside.mean() > 0.8
        apart = np.abs((1 - end) * upper - end * lower)
        room = width * np.sqrt(above * (1 - end) ** 2 + below * end**2)
        assert apart[inside] == pytest.approx(room[inside], rel=1e-6)


def test_quantiles_agree_with_the_distributions() -> None:
    for level in (0.01, 0.3, 0.5, 0.95, 0.975):
        assert quantile_of("gaussian", level) == pytest.approx(stats.norm.ppf(level))
        laplace = stats.laplace.ppf(level, scale=1 / math.sqrt(2))
        assert quantile_of("laplace", level) == pytest.approx(laplace)
    with refuses("noise"):
        quantile_of("uniform", 0.5)


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.3, 1.0, 2.0, 5.0, 20.0])
def test_whole_noise_has_the_narrowest_whole_interval(rate: float) -> None:
    fall = math.exp(-rate)
    sd = math.sqrt(2 * fall) / (1 - fall)
    (width,) = radius("geometric", np.array([sd]))

    def within(most: int) -> float:
        return 1.0 - 2.0 * fall ** (most + 1) / (1 + fall)

    assert width == int(width)
    assert within(int(width)) >= 0.95
    assert width == 0 or within(int(width) - 1) < 0.95


def test_unclipped_totals_have_no_limits() -> None:
    table = dg.read(ROWS, user="who", threads=1)
    for release in (
        dg.count(table, by="item", domain=[1, 2], unit=dg.Record(), **PROMISE),
        dg.top(table, "item", unit=dg.Element("item"), **PROMISE),
        dg.top(table, "item", unit=dg.Element("item"), domain=[1, 2], **PROMISE),
        dg.elements_per_user(table, "item", unit=dg.User(), **PROMISE),
    ):
        assert not release.more
        assert "clipped" not in release.estimand
        assert release.covers == "number of users" if release.statistic.has_bins else "total"
        assert not clipping_effect(release.metadata)


def test_unknown_values_are_blank() -> None:
    table = dg.read(ROWS, user="who", threads=1)
    stated = published(1, clip=20.0, **PROMISE)
    assert (stated.more["at_least"] > 0).any()
    assert stated.units is None
    signed = dg.sum(table, "amount", bounds=(-5, 100), unit=dg.User(), **PROMISE)
    below = dg.sum(table, "amount", bounds=(-100, 0), unit=dg.User(), **PROMISE)
    for release in (signed, below):
        assert np.isnan(release.more["at_least"]).all()
    # Elements beyond a number are dropped, whatever the bound.
    some = dg.count(table, unit=dg.User(2, by="item"), **PROMISE)
    assert "from at most 2 cells of 'item' per user (the first 2 in a " in some.estimand
    few = dg.read(pa.table({"who": [1, 2], "item": [1, 2]}), user="who")
    guessed = dg.count(few, unit=dg.User(), epsilon=0.1, delta=1e-6, random_state=1)
    assert guessed.units is not None
    assert guessed.units.high[0] == 1


def test_post_processing_keeps_the_limits() -> None:
    release = published(2, **PROMISE)
    processed = (release.without_negatives(), release.shrunk(), release.consistent(9e6))
    for other in processed:
        assert other.at_least is release.at_least
        assert (other.more["at_least"] <= other.high).all()
    order = np.argsort(-release.estimate, kind="stable")[:5]
    best = release.largest(5)
    for name, column in release.more.items():
        assert np.array_equal(best.more[name], column[order], equal_nan=True)


def drowning(event: object, sums: Any, scale: FloatArray, source: RandomSource) -> Any:
    """Return noise that dominates the sums completely."""
    values = np.rint(scale * (3 + np.arange(scale.size) % 11))
    return values.astype(np.int64).reshape(sums.shape)


PUBLISHED: dict[str, Callable[..., dg.Release]] = {
    "histogram": lambda table: dg.histogram(
        table, "item", weight="amount", domain=list(range(40)), unit=dg.Element("item"), **PROMISE
    ),
    "users": lambda table: dg.count(table, by="item", domain=[1, 2], unit=dg.User(), **PROMISE),
    "sum": lambda table: dg.sum(table, "amount", unit=dg.User(), **PROMISE),
    "mean": lambda table: dg.mean(table, "amount", unit=dg.User(), **PROMISE),
    "quantiles": lambda table: dg.quantiles(
        table, "amount", by="item", domain=[1, 2], unit=dg.User(), **PROMISE
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_results_depend_only_on_noisy_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Different tables with the same noisy numbers have bit-identical results."""
    monkeypatch.setattr(draws, "with_noise", drowning)
    made = []
    for kept in (ROWS["who"].to_numpy() >= 0, ROWS["who"].to_numpy() != 3):
        release = PUBLISHED[name](dg.read(ROWS.filter(pa.array(kept)), user="who", threads=1))
        assert name == "histogram" or release.metadata.bound is not None
        made.append(
            [
                repr(release.to_arrow().to_pydict()),
                repr(release),
                str(description(release.metadata)),
            ]
        )
    assert made[0] == made[1]


def test_limits_in_small() -> None:
    sd = np.array([10.0])
    assert at_least(np.array([5.0]), sd, "laplace")[0] == 0


USER: dict[str, Any] = {"unit": dg.User(), "delta": 1e-6}


def visits(heavy: int, light: int) -> tuple[dg.UserTable, list[int]]:
    """Visits of two years: of ``heavy`` users with about 134 a year, others with one."""
    rng = np.random.default_rng(7)
    number = np.concatenate([rng.poisson(134, (heavy, 2)), rng.integers(0, 2, (light, 2))])
    who = np.concatenate([np.repeat(np.arange(heavy + light), part) for part in number.T])
    year = np.repeat([2024, 2025], number.sum(axis=0))
    ward = np.where(who < heavy, "dialysis", "other")
    rows = pa.table({"who": who, "year": year, "ward": ward})
    return dg.read(rows, user="who"), number.sum(axis=0).tolist()


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_limits_have_95_percent_coverage(noise: Law) -> None:
    rng, draws, sd = np.random.default_rng(3), 40_000, 5.0
    for complete, clipped in ((900, 0), (60, 40), (0, 160), (5000, 25)):
        noisy = [
            rng.normal(n, sd, draws)
            if noise == "gaussian"
            else rng.laplace(n, sd / np.sqrt(2), draws)
            for n in (complete, clipped)
        ]
        units = ClippedUnits(noisy[0], noisy[1], sd, noise)
        share = clipped / (complete + clipped)
        assert (share <= units.high).mean() > 0.948
        assert (units.low <= share).mean() > 0.948
        if 0 < share < 1:
            assert (share <= units.high).mean() < 0.956


def test_units_within_the_noise_may_all_be_clipped() -> None:
    units = ClippedUnits(np.array([3.0, -9.0]), np.array([2.0, 1.0]), 4.0)
    assert units.high.tolist() == [1.0, 1.0]
    assert not units.is_small.any()


@pytest.mark.parametrize("epsilon", [0.5, 0.8])
@pytest.mark.parametrize("noise", ["auto", "gaussian"])
def test_single_heavy_group_is_never_silently_wrong(noise: Any, epsilon: float) -> None:
    table, truth = visits(160, 0)
    below_half = 0
    for seed in range(12):
        release = dg.count(
            table, by="year", domain=[2024, 2025], noise=noise, epsilon=epsilon, random_state=seed,
            **USER,
        )  # fmt: skip
        assert release.units is not None
        missed = (release.low > truth) | (truth > release.high)
        assert not (missed & release.units.is_small).any()
        below_half += int((release.estimate < np.array(truth) / 2).any())
    assert below_half <= (0 if epsilon == 0.8 else 4)


def test_the_heavy_group_shows_the_clipped_share() -> None:
    table, _ = visits(300, 6000)
    release = dg.count(
        table, by=["ward", "year"], epsilon=1.0, random_state=1, clip=dg.AutoClip(high=20.0),
        domain={"ward": ["dialysis", "other"], "year": [2024, 2025]}, **USER,
    )  # fmt: skip
    rows = {(row["ward"], row["year"]): row for row in release.to_arrow().to_pylist()}
    for year in (2024, 2025):
        assert rows["dialysis", year]["clipped_share"] == 1.0
        assert rows["other", year]["clipped_share"] < 0.05
        assert rows["other", year]["warning"] is None
        assert rows["dialysis", year]["warning"] == "clipping may matter: see clipped_share"
    warning = (
        "Warning: clipping may matter, especially in 2 of 4 groups (see clipped_share): pass a "
    )
    assert notes(release)[1].startswith(warning)
    assert "≤100%" in repr(release)


def test_rows_repeat_the_warnings_of_the_release() -> None:
    table, _ = visits(20, 20)
    release = dg.count(table, by="year", domain=[2024], epsilon=1.0, random_state=1, **USER)
    release = replace(release, metadata=replace(release.metadata, care=(("no-bound",),)))
    assert release.row_warnings[0].startswith("the clipping bound is a guess")
    assert release.to_arrow()["warning"].to_pylist() == release.row_warnings


def test_the_share_is_of_users_with_data() -> None:
    rows = pa.table({"who": np.repeat(np.arange(400), 50)})
    table = dg.read(rows, user="who", n_users=100_000)
    release = dg.count(table, epsilon=1.0, clip=dg.AutoClip(high=5.0), random_state=1, **USER)
    assert release.units is not None
    assert release.units.low[0] > 0.8


def test_small_share_gives_no_warning() -> None:
    rows = pa.table({"who": np.repeat(np.arange(4000), 3)})
    release = dg.count(dg.read(rows, user="who"), epsilon=1.0, random_state=1, **USER)
    assert release.units is not None
    assert release.units.is_small.all()
    assert len(notes(release)) == 1
    assert "≤0%" not in str(replace(release, clipped_units=np.array([-900.0])))
    assert "warning" not in release.to_arrow().column_names


def test_an_explicit_bound_spends_nothing_on_the_share() -> None:
    table, _ = visits(20, 20)
    release = dg.count(table, epsilon=1.0, clip=9.0, random_state=1, **USER)
    assert release.units is None
    assert "clipped_share" not in release.to_arrow().column_names
    assert "Share of clipped users: not estimated" in notes(release)[0]


def test_files_keep_the_numbers_of_units(tmp_path: Path) -> None:
    table, _ = visits(160, 0)
    release = dg.count(table, by="year", domain=[2024, 2025], epsilon=1.0, **USER)
    again = dg.Release.load(release.save(tmp_path / "visits.parquet"))
    assert again.hash == release.hash
    assert str(again) == str(release)
    assert again.units is not None and release.units is not None  # noqa: PT018
    assert again.units.high.tolist() == release.units.high.tolist()
    largest = again.largest(1).units
    assert largest is not None
    assert largest.high.size == 1


def test_people_with_one_record_get_bound_one() -> None:
    table = dg.read(pa.table({"who": np.arange(4000)}), user="who")
    for noise in ("gaussian", "laplace"):
        bounds = [
            dg.count(table, epsilon=1.0, noise=noise, random_state=seed, **USER).clip[0]
            for seed in range(9)
        ]
        assert np.median(bounds) == 1.0
        assert max(bounds) < 1.5
