"""Quantiles of the sorted values, up to one bin."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from tests.statistics import cases

import dpgrain as dg
from dpgrain.statistics.quantiles import _rank_spread, read_ranks
from dpgrain.statistics.trees import consistent_leaves
from dpgrain.statistics.values import Spacing, Tree

Row: TypeAlias = tuple[int | None, str | None, str | None, float | None]  # who, item, cell, x


@pytest.mark.parametrize("bins", [16, 256, 4096])
@pytest.mark.parametrize("grouped", ["no key", "one key", "both selected"])
def test_quantiles_are_right_up_to_one_bin(
    bins: Any, grouped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases.noiseless(monkeypatch)
    keys, domain = cases.GROUPED[grouped]
    ranks = [0.0, 0.05, 0.25, 0.5, 0.8, 0.95, 1.0]
    release = dg.quantiles(
        cases.dirty(cases.left_out(keys)), "x", ranks, by=keys or None, domain=domain, unit=dg.User(),
        epsilon=5000, delta=1e-6, clip=64.0, bounds=(-80, 80), bins=bins,
    )  # fmt: skip
    width = 160 / bins + 1e-9
    sides = [
        {q: cases.expected(keys, lambda x, q=q, s=s: quantile_of(x, q, s)) for q in ranks}  # type: ignore[misc]
        for s in ("left", "right")
    ]
    for (*key, q), found, low, high in zip(
        cases.rows_of(release.groups), release.estimate, release.low, release.high, strict=True
    ):
        left, right = (side[q][tuple(key)] for side in sides)
        # Without an estimate, the interval is the whole range.
        withheld = np.isnan(found) and (low, high) == (-80, 80)
        assert withheld or left - width <= found <= right + width
        assert withheld or low <= found <= high
    assert np.isfinite(release.estimate).mean() > 0.95
    assert len(release) == len(ranks) * len(sides[0][0.5])


def quantile_of(x: Any, q: float, side: str) -> float:
    """The smallest or largest number with at most a share q below, and at most the rest above."""
    ordered = np.sort(np.asarray(x))
    place = q * ordered.size
    index = math.ceil(place - 1e-9) - 1 if side == "left" else math.floor(place + 1e-9)
    return float(ordered[min(max(index, 0), ordered.size - 1)])


def of_numbers(x: Any, kind: Any = None, **options: Any) -> dg.UserTable:
    rows = pa.table({"who": np.arange(len(x)), "x": pa.array(x, kind)})
    return dg.read(rows, user="who", threads=1, **options)


RANKS = [0.0, 0.05, 0.25, 0.5, 0.8, 0.95, 1.0]
SURE: dict[str, Any] = {"unit": dg.User(), "epsilon": 50, "delta": 1e-6, "clip": 2.0}


@pytest.mark.parametrize("bins", [16, 256, 4096])
@pytest.mark.parametrize("bounds", [(0, 9), (-3.5, 200.2), (0, 10**6), None])
def test_quantiles_of_whole_numbers_are_whole(
    bins: Any, bounds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases.noiseless(monkeypatch)
    x = np.round(np.random.default_rng(1).exponential(3.0, 301) ** 2).astype(int)
    release = dg.quantiles(of_numbers(x), "x", RANKS, bounds=bounds, bins=bins, **SURE)
    low, high = bounds or release.metadata.found or (0.0, 2.0**40)
    cut = np.clip(x, np.ceil(low), np.floor(high))
    exact = np.quantile(cut, RANKS, method="inverted_cdf")
    assert release.estimate.tolist() == np.round(release.estimate).tolist()
    # Each has a separate leaf if there are enough; otherwise nearby numbers share one.
    apart = 0.0 if high - low < bins else 1.2 * cut * np.log(high - low + 1) * 2 / bins + 1
    wide = np.quantile(np.broadcast_to(apart, cut.shape), RANKS, method="inverted_cdf")
    near = np.abs(release.estimate - exact) <= (3 * wide if bounds is None else wide)
    # Without a stated range, the single largest number stays invisible.
    assert near[:-1].all() if bounds is None else near.all()
    assert ((release.low <= release.estimate) & (release.estimate <= release.high)).all()


@pytest.mark.parametrize("bins", [256, 4096])
@pytest.mark.parametrize("sign", [1, -1])
def test_bins_are_geometric_for_wide_ranges(
    bins: Any, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases.noiseless(monkeypatch)
    x = sign * 10 ** np.random.default_rng(1).uniform(-2, 4, 401)
    ranks = [0.1, 0.5, 0.9]
    exact = np.quantile(x, ranks)
    stated = (0.001, 1e5) if sign > 0 else (-1e5, -0.001)
    asked: list[Any] = [(stated, None), ((-1e5, 1e5), "geometric"), (None, None)]
    for bounds, spacing in asked:
        release = dg.quantiles(
            of_numbers(x), "x", ranks, bounds=bounds, bins=bins, spacing=spacing, **SURE
        )
        least = 0.0 if bounds is stated else 1e5 * 2.0**-12
        assert (np.abs(release.estimate - exact) <= 40 / bins * (np.abs(exact) + least)).all()
    even = dg.quantiles(of_numbers(x), "x", ranks, bounds=stated, bins=bins, spacing="even", **SURE)
    near = int(np.abs(exact).argmin())
    assert abs(even.estimate[near] - exact[near]) > 1


def test_leaf_edges_contain_every_number() -> None:
    rng = np.random.default_rng(2)
    spacings: tuple[Spacing, ...] = ("even", "geometric", "whole")
    for spacing in spacings:
        for low, high in (
            (0, 9),
            (-7, 7),
            (-1e6, 10),
            (-10, 1e6),
            (0.5, 1024),
            (2.0**-20, 2.0**40),
        ):
            tree = Tree(low, high, 2, spacing=spacing)
            assert (np.diff(tree.edges) > 0).all(), (spacing, low, high)
            x = np.concatenate([rng.uniform(low, high, 500), [low, high]])
            if tree.whole:
                x = np.clip(np.round(x), np.ceil(low), np.floor(high))
            leaf = tree.leaf(x)
            first, beyond = tree.edges[leaf], tree.edges[leaf + 1]
            slack = 1e-9 * (np.abs(x) + 1)
            assert ((first <= x + slack) & (x - slack <= beyond)).all(), (spacing, low, high)
            lowest, largest = tree.ends(leaf.astype(np.float64), (leaf + 1).astype(np.float64))
            assert ((lowest <= x + slack) & (x <= largest + slack)).all(), (spacing, low, high)


def test_people_without_records_are_the_lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    cases.noiseless(monkeypatch)
    who = np.repeat(np.arange(60), np.arange(60) % 7)
    for n_users in (500, 70):
        table = dg.read(pa.table({"who": who}), user="who", n_users=n_users)
        release = dg.quantiles(table.per_user(n="count"), "n", RANKS, **SURE)
        counted = np.r_[np.arange(60) % 7, np.zeros(n_users - 60)]
        exact = np.quantile(counted, RANKS, method="inverted_cdf")
        assert release.estimate.tolist() == exact.tolist()
        assert release.count.tolist() == [n_users] * len(RANKS)


@pytest.mark.slow
@pytest.mark.parametrize("n_users", [None, 900])
@pytest.mark.parametrize("bounds", [(0, 10**6), None])
@pytest.mark.parametrize("fraction", [True, False])
def test_quantile_intervals_have_their_coverage(
    fraction: bool, bounds: Any, n_users: int | None
) -> None:
    """For people with few or many numbers, in at least 95% of releases, up to three errors."""
    size = np.random.default_rng(5).pareto(1.2, 700) * 3 + 1
    size = size if fraction else np.round(size)
    rows = pa.table({"who": np.arange(700), "x": pa.array(size, None if fraction else pa.int64())})
    people = dg.read(rows, user="who", n_users=n_users, threads=1).per_user(x=("x", "sum"))
    counted = np.r_[size, np.zeros((n_users or 700) - 700)]
    held, trials = np.zeros(3), 60
    for seed in range(trials):
        release = dg.quantiles(
            people, "x", [0.25, 0.5, 0.9], bounds=bounds, unit=dg.User(), epsilon=1, delta=1e-6,
            random_state=seed,
        )  # fmt: skip
        # For unclipped numbers with an estimated range: it reports every truncation.
        low, high = release.metadata.bounds or (-np.inf, np.inf)
        cut = np.clip(counted, low, high)
        truth = np.quantile(cut, [0.25, 0.5, 0.9], method="inverted_cdf")
        held += (release.low <= truth + 1e-9) & (truth - 1e-9 <= release.high)
    assert (held >= trials * 0.95 - 3 * np.sqrt(trials * 0.95 * 0.05)).all(), held


@pytest.mark.parametrize("others", [0, 900])
@pytest.mark.parametrize("spacing", ["even", "geometric", "whole"])
@pytest.mark.parametrize("side", ["low", "high"])
@pytest.mark.parametrize("size", [30, 400, 5000])
def test_intervals_are_valid_with_many_empty_bins(
    size: int, side: str, spacing: Spacing, others: int
) -> None:
    """All numbers are equal, so that only noise decides the ranks near an end."""
    number, releases, sd = {"low": 5.0, "high": 2995.0}[side], 400, 8.0
    tree, ranks = Tree(0.0, 3000.0, 3, spacing=spacing), np.array([0.01, 0.5, 0.9, 0.99])
    keys, _ = tree(np.zeros(1, dtype=np.int64), np.array([number]))
    masses = np.random.default_rng(1).normal(0.0, sd, (releases, tree.corners))
    masses[:, keys] += size
    everyone = size + others if others else None
    _, low, high = read_ranks(masses, np.full(releases, 1.96 * sd), ranks, tree, everyone)
    truth = np.where(ranks * (size + others) > others, number, 0.0)
    held = ((low <= truth) & (truth <= high)).sum(axis=0)
    assert (held >= releases * 0.95 - 3 * np.sqrt(releases * 0.95 * 0.05)).all(), held


def test_median_of_2_is_not_5() -> None:
    """Counts with a long tail between wide bounds: extreme ranks are also right."""
    size = np.minimum(np.round(np.random.default_rng(6).pareto(1.0, 20_000) * 1.5 + 1), 3000)
    release = dg.quantiles(
        of_numbers(size.astype(int)), "x", [0.5, 0.99], bounds=(0, 10**6), unit=dg.User(), epsilon=1,
        delta=1e-6, random_state=1,
    )  # fmt: skip
    exact = np.quantile(size, [0.5, 0.99], method="inverted_cdf")
    assert release.estimate[0] == exact[0]
    assert release.estimate[1] == pytest.approx(exact[1], rel=0.25)


@pytest.mark.parametrize("nothing", [None, 40])
def test_rank_spread_follows_the_noisiest_edge(nothing: int | None) -> None:
    tree, ranks = Tree(0.0, 1.0, 2), (0.05, 0.5, 0.9)
    noise = np.random.default_rng(7).normal(size=(3000, tree.corners))
    leaves = consistent_leaves(noise, tree)
    if nothing is not None:
        # Users in no other leaf of a stated number are in this one.
        leaves[:, nothing] -= leaves.sum(axis=1)
    below = np.cumsum(leaves, axis=1)
    for rank, spread in zip(ranks, _rank_spread(2, 16, ranks, nothing), strict=True):
        most = (below - rank * below[:, -1:]).std(axis=0).max()
        assert 0.95 * most < spread < 1.15 * most


@pytest.mark.parametrize("bounds", [(0, 60), None])
def test_quantiles_of_the_whole_range_have_no_estimate(
    bounds: tuple[float, float] | None, tmp_path: Path
) -> None:
    """A group of 4 people among one of 4,000: its median is unknown, in every file."""
    rng = np.random.default_rng(0)
    group = ["large"] * 4000 + ["small"] * 4
    rows = pa.table({"who": range(4004), "g": group, "days": rng.integers(20, 31, 4004)})
    found = dg.quantile(
        dg.read(rows, user="who"), "days", by="g", domain=["large", "small"], bounds=bounds,
        unit=dg.User(), epsilon=1, delta=1e-6, random_state=1,
    )  # fmt: skip
    large, small = found.to_arrow().to_pylist()
    assert 20 <= large["low"] <= large["estimate"] <= large["high"] <= 30
    assert small["estimate"] is small["std_error"] is None
    assert small["warning"].startswith("no estimate, because")
    assert not large["warning"]
    assert "Blank estimates did not stand out from the noise" in " ".join(str(found).split())
    for ending in (".csv", ".json"):
        assert "inf" not in found.write(tmp_path / f"days{ending}").read_text().lower()
    again = dg.Release.load(found.save(tmp_path / "days.parquet"))
    assert again.hash == found.hash


def test_quantiles_show_no_invisible_magnitudes() -> None:
    """Integers of many sizes: the tree covers all magnitudes, most of them empty."""
    rng = np.random.default_rng(1)
    days = rng.lognormal(4, 2, 3000).astype(int)
    found = dg.quantiles(
        dg.read(pa.table({"who": range(3000), "days": days}), user="who"), "days",
        [0.02, 0.5, 0.98, 1.0], unit=dg.User(), epsilon=0.5, delta=1e-6, random_state=2,
    )  # fmt: skip
    assert found.estimate[1] == pytest.approx(55, rel=0.3)
    assert np.isinf(found.high[-1])
    seen = found.high[np.isfinite(found.high)]
    assert seen.max() < 10 * days.max()
