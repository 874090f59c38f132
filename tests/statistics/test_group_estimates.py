"""Post-processing of sums and estimates, and comparisons of their groups."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refuses
from tests.statistics import releases

import dpgrain as dg
from dpgrain.accounting import (
    Gaussian,
)
from dpgrain.errors import ParameterError
from dpgrain.statistics import release_metadata as metadata_module
from dpgrain.statistics.group_estimates import misordered_pairs
from dpgrain.statistics.shrinkage import shrink
from dpgrain.tables.groups import Groups

OPTIONS: dict[str, Any] = {"unit": dg.User(), "epsilon": 2.0, "delta": 1e-4, "random_state": 1}
ITEMS, MONTHS = list(range(1, 41)), [1, 2, 3]


@pytest.fixture(scope="module")
def by_item() -> dg.Histogram:
    return dg.count(releases.shop(), by="item", domain=ITEMS, clip=20, **OPTIONS)


@pytest.fixture(scope="module")
def by_both() -> dg.Histogram:
    domain = {"item": ITEMS, "month": MONTHS}
    return dg.count(releases.shop(), by=["item", "month"], domain=domain, clip=20, **OPTIONS)


def test_shrinking_and_totals_are_the_plain_functions(by_item: dg.Histogram) -> None:
    estimate, error = shrink(by_item.estimate, by_item.std_error)
    shrunk = by_item.shrunk()
    assert (shrunk.estimate == estimate).all()
    assert (shrunk.std_error == error).all()
    assert shrunk.metadata.processed == ("shrunk",)
    assert shrunk.guarantee == by_item.guarantee
    total = by_item.consistent(total=6000.0)
    assert total.estimate.min() >= 0
    assert total.estimate.sum() == pytest.approx(6000)
    assert shrunk.consistent().metadata.processed == ("shrunk", "consistent")


def test_parts_are_reconciled_with_their_totals(
    by_item: dg.Histogram, by_both: dg.Histogram
) -> None:
    parts, totals = by_both.reconciled(by_item)
    sums = parts.estimate.reshape(len(ITEMS), len(MONTHS)).sum(axis=1)
    assert np.allclose(sums, totals.estimate)
    assert (parts.std_error <= by_both.std_error).all()
    assert (totals.std_error <= by_item.std_error).all()
    overall = dg.count(releases.shop(), noise="gaussian", clip=20, **OPTIONS)
    parts, whole = by_item.reconciled(overall)
    assert parts.estimate.sum() == pytest.approx(float(whole.estimate[0]))


def test_blank_estimates_are_not_reconciled(by_item: dg.Histogram, by_both: dg.Histogram) -> None:
    with refuses("totals", "blank"):
        by_both.unknown().reconciled(by_item)
    with refuses("totals", "blank"):
        by_both.reconciled(by_item.unknown())


def test_parts_and_totals_must_fit(by_item: dg.Histogram, by_both: dg.Histogram) -> None:
    with refuses("totals", "'month'"):
        by_item.reconciled(by_both)
    some = dg.count(releases.shop(), by="item", domain=ITEMS[:5], clip=20, **OPTIONS)
    with refuses("every", "total"):
        by_both.reconciled(some)


def test_reconciled_releases_rest_on_both(by_item: dg.Histogram, by_both: dg.Histogram) -> None:
    parts, totals = by_both.reconciled(by_item)
    both = by_both.guarantee + by_item.guarantee
    assert parts.guarantee == totals.guarantee == both
    assert both.epsilon() > by_both.guarantee.epsilon()
    other = replace(by_item, guarantee=replace(by_item.guarantee, level="record"))
    with refuses("guarantees", "compose"):
        by_both.reconciled(other)


def test_only_other_releases_of_the_same_statistic_are_reconciled(
    by_item: dg.Histogram, by_both: dg.Histogram, tmp_path: Path
) -> None:
    again = dg.Release.load(by_item.save(tmp_path / "again.parquet"))
    for same in (by_item, again):
        with pytest.raises(ParameterError, match="its noise would be counted twice"):
            by_item.reconciled(same)
    other = replace(by_item, metadata=replace(by_item.metadata, value="paid"))
    with pytest.raises(ParameterError, match="must be a release of the same statistic"):
        by_both.reconciled(other)
    table = dg.read(pa.table({"who": [1, 2], "x": [1.0, 2.0]}), user="who")
    mean = dg.mean(table, "x", bounds=(0, 3), unit=dg.User(), epsilon=1.0, delta=1e-6)
    with pytest.raises(ParameterError, match="not of mean of x"):
        by_both.reconciled(mean)  # type: ignore[arg-type]


@pytest.mark.slow
def test_groups_of_few_people_are_dropped_by_noisy_numbers() -> None:
    rng = np.random.default_rng(0)
    zips = np.repeat([1, 2, 3], [400, 60, 5])
    rows = pa.table({"who": rng.permutation(465), "zip": zips, "paid": rng.random(465)})
    table = dg.read(rows, user="who")
    people = table.per_user(by="zip", paid="total(paid)")
    asked: dict[str, Any] = {
        "by": "zip", "domain": [1, 2, 3], "unit": dg.User(), "epsilon": 1.0, "delta": 1e-6,
    }  # fmt: skip
    shown = [0, 0, 0]
    noise: Literal["gaussian", "laplace"]
    for seed in range(20):
        noise = "gaussian" if seed % 2 else "laplace"
        counted = dg.count(people, **asked, noise=noise, random_state=seed)
        left = counted.min_people(40)
        assert (left.estimate >= 40).all()
        assert len(left) == (counted.estimate >= 40).sum()
        for key in left.items.to_pylist():
            shown[key - 1] += 1
        means = dg.mean(people, "paid", bounds=(0, 1), **asked, random_state=seed)
        assert (means.min_people(40).count >= 40).all()
    assert shown[0] == 20
    assert shown[1] > 15
    # 35 people fewer, of a noise of at most six.
    assert shown[2] == 0
    with pytest.raises(dg.ParameterError, match="per-user table"):
        dg.count(table, **asked).min_people(40)
    with refuses("least", "at least 1"):
        counted.min_people(0)
    zero = counted.without_negatives()
    assert zero.min_people(40).items.equals(counted.min_people(40).items)
    for moved in (counted.shrunk(), counted.consistent()):
        with pytest.raises(dg.ParameterError, match="before other post-processing"):
            moved.min_people(40)


def test_releases_with_other_bounds_are_not_reconciled(by_both: dg.Histogram) -> None:
    for clip in ("auto", 21):
        other = dg.count(releases.shop(), by="item", domain=ITEMS, clip=clip, **OPTIONS)
        with refuses("totals", "pass the same clip="):
            by_both.reconciled(other)


PUBLISHED: dict[str, Any] = {
    "count": lambda t, **o: dg.count(t, by="name", domain=["item 1", "item 39", "no"], **o),
    "count of elements": lambda t, **o: dg.count(
        t, by="name", domain=["item 1", "item 39", "no"], **{**o, "unit": dg.Element("name")}
    ),
    "sum": lambda t, **o: dg.sum(t, "paid", bounds=(0, 30), by="item", domain=ITEMS, **o),
    "sum below 0": lambda t, **o: dg.sum(t, "paid", bounds=(-9, 0), by="item", domain=ITEMS, **o),
    "sum in a range": lambda t, **o: dg.sum(t, "paid", by="month", domain=MONTHS, **o),
    "histogram": lambda t, **o: dg.histogram(t, "name", **o),
    "bins": lambda t, **o: dg.histogram(t, "paid", edges=[-99, 5, 99], **o),
    "top": lambda t, **o: dg.top(t, "name", **o),
}


@pytest.mark.parametrize("clip", ["auto", 2.0])
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
@pytest.mark.parametrize("name", PUBLISHED)
def test_no_lower_bound_exceeds_the_upper_end(name: str, epsilon: float, clip: Any) -> None:
    table = releases.shop(600)
    for seed in range(3):
        options = {**OPTIONS, "epsilon": epsilon, "random_state": seed}
        if name != "top":
            options["clip"] = clip
        release = PUBLISHED[name](table, **options)
        variants = [release, release.without_negatives()]
        variants += [release.shrunk(), release.consistent()] if len(release) > 1 else []
        for each in variants:
            least = each.more.get("at_least", np.full(len(each), np.nan))
            assert not (least > each.high).any()
            assert not (each.low > each.high).any()


def test_reconciled_lower_bounds_stay_below_the_upper_ends() -> None:
    options = {**OPTIONS, "clip": 20, "epsilon": 0.1, "delta": 1e-6}
    for seed in range(10):
        options["random_state"] = seed
        whole = dg.count(releases.shop(), by="month", domain=MONTHS, **options)
        both = {"item": ITEMS, "month": MONTHS}
        parts = dg.count(releases.shop(), by=["item", "month"], domain=both, **options)
        for each in parts.reconciled(whole):
            assert (each.more["at_least"] <= each.high).all()


def yearly(**options: Any) -> dg.Histogram:
    rows = pa.table({"who": range(900), "year": [2024] * 400 + [2025] * 500})
    promise = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6, "clip": 1.0}
    table = dg.read(rows, user="who")
    return dg.count(table, by="year", domain=[2024, 2025, 2026], **{**promise, **options})


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_comparisons_cover_the_noiseless_quantity(noise: Any) -> None:
    base, rng, covered = yearly(noise=noise), np.random.default_rng(4), np.zeros(2)
    truth, draws = np.array([400.0, 500.0, 0.0]), 3000
    for _ in range(draws):
        shift = rng.normal(size=3) if noise == "gaussian" else rng.laplace(size=3) / 2**0.5
        release = replace(base, estimate=truth + 8 * shift, std_error=np.full(3, 8.0))
        gap, ratio = release.difference(2025, 2024), release.ratio(2025, 2024)
        covered += [gap.low <= 100 <= gap.high, ratio.low <= 1.25 <= ratio.high]
    assert (covered / draws > 0.94).all()
    assert (covered / draws < 0.97).all()


def test_ratio_to_a_number_within_noise_has_no_estimate() -> None:
    ratio = yearly(random_state=1).ratio(2025, 2026)
    assert np.isnan([ratio.estimate, ratio.low, ratio.high]).all()
    assert "no estimate, because 2026 is within the noise" in str(ratio)


def test_comparisons_are_of_clipped_quantities(by_both: dg.Histogram) -> None:
    found = by_both.difference((1, 1), (2, 1))
    assert found.covers == "clipped total"
    assert found.estimate == pytest.approx(by_both.estimate[0] - by_both.estimate[3])
    assert found.std_error == pytest.approx(np.hypot(*by_both.std_error[[0, 3]]))
    assert "at_least" not in str(found)


def test_month_is_stated_as_printed() -> None:
    days = ["2025-01-03"] * 300 + ["2025-02-07"] * 500
    table = dg.read(pa.table({"who": range(800), "day": days}), user="who", types={"day": "DATE"})
    release = dg.count(
        table, by="month(day)", domain=["2025-01-01", "2025-02-01"], clip=1, unit=dg.User(),
        epsilon=1, delta=1e-6, random_state=1,
    )  # fmt: skip
    found = release.difference("2025-02", "2025-01")
    assert abs(found.estimate - 200) < 40
    assert found.estimate == release.estimate[1] - release.estimate[0]


def test_incomparable_groups_are_rejected(by_item: dg.Histogram) -> None:
    with refuses("a", "99"):
        by_item.difference(99, 1)
    with refuses("a", "'nine'"):
        by_item.difference("nine", 2)
    with refuses("b", "another"):
        by_item.ratio(1, 1)
    with refuses("difference", "post-processing"):
        by_item.shrunk().difference(1, 2)
    found = replace(by_item, clip=by_item.clip + np.arange(len(by_item)))
    with refuses("b", "21"):
        found.ratio(1, 2)
    with refuses("a", "array"):
        by_item.difference(np.array([1, 2]), 1)


@given(
    pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 4)), max_size=25),
    gamma=st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.6, 2.0]),
)
def test_misordered_pairs_agree_with_the_definition(
    pairs: list[tuple[int, int]], gamma: float
) -> None:
    truth = np.array([p for p, _ in pairs], dtype=np.float64) / 8
    estimate = np.array([e for _, e in pairs], dtype=np.float64)
    expected = sum(
        1
        for j, l in itertools.permutations(range(len(pairs)), 2)  # noqa: E741
        if truth[j] >= truth[l] + gamma and truth[j] > truth[l] and estimate[j] < estimate[l]
    )
    assert misordered_pairs(truth, estimate, gamma) == expected
    release = dg.Histogram(
        Groups.of(["item"], [pa.array(range(len(pairs)), pa.int64())]), estimate, np.ones(len(pairs)),
        np.ones(len(pairs)), dg.Guarantee("user", "", "zero_out", 1e-6, Gaussian(1.0)),
        metadata_module.ReleaseMetadata(),
    )  # fmt: skip
    assert release.order_loss(truth, gamma) == expected
    if len(pairs) > 1:
        with refuses("truth", "shape"):
            release.order_loss(truth[1:], gamma)
        with refuses("gamma"):
            release.order_loss(truth, -0.1)
