"""Shares are exact without noise, decrease over thresholds, and stay within their band."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.refusals import refuses
from tests.statistics import cases

import dpgrain as dg
from dpgrain.statistics.distribution import BinCounts, _above, _pointwise, round_edges
from dpgrain.statistics.statistic import BINNED, DISTRIBUTION
from dpgrain.testing import StatisticContract
from dpgrain.units import User

AT = [-3.0, 0.0, 1.0, 2.5]
PROMISE: dict[str, Any] = {"unit": User(), "epsilon": 1.0, "delta": 1e-6}


class TestDistribution(StatisticContract):
    statistic = DISTRIBUTION

    def publish(self, table: dg.UserTable, **options: Any) -> dg.Release:
        domain: dict[str, Any] = {"by": "item", "domain": ["a", "b", "c"]}
        return dg.distribution(table, "x", AT, noise="gaussian", **domain, **options)


class TestBinned(StatisticContract):
    statistic = BINNED

    def publish(self, table: dg.UserTable, **options: Any) -> dg.Release:
        return dg.histogram(table, "x", edges=AT, **options)


def visits(sizes: Any, n_users: int | None = None) -> dg.UserTable:
    who = np.repeat(np.arange(len(sizes)), sizes)
    return dg.read(pa.table({"who": who}), user="who", n_users=n_users, threads=1).per_user(
        n="count"
    )


@pytest.mark.slow
@pytest.mark.parametrize("at", [AT, None])
@pytest.mark.parametrize("grouped", ["no key", "one key", "both selected"])
def test_shares_are_exact_without_noise(
    at: Any, grouped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases.noiseless(monkeypatch)
    keys, domain = cases.GROUPED[grouped]
    release = dg.distribution(
        cases.dirty(cases.left_out(keys)), "x", at, by=keys or None, domain=domain, unit=User(),
        epsilon=50, delta=1e-6, clip=1024.0,
    )  # fmt: skip
    assert len(release)
    for (*key, least), found in zip(cases.rows_of(release.groups), release.estimate, strict=True):
        expected = cases.expected(keys, lambda x, least=least: float((x >= least).mean()))  # type: ignore[misc]
        assert found == pytest.approx(expected[tuple(key)], abs=1e-6)


def test_people_without_records_count_0_if_number_is_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases.noiseless(monkeypatch)
    sizes = np.arange(40)
    for n_users, counted in ((100, np.r_[sizes, np.zeros(60)]), (None, sizes[sizes > 0])):
        people = visits(sizes, n_users)
        release = dg.distribution(people, "n", [-1, 0, 1, 5, 39], **PROMISE)
        assert release.estimate == pytest.approx([(counted >= t).mean() for t in (-1, 0, 1, 5, 39)])
        bins = dg.histogram(people, "n", edges=[1, 5, 39], **PROMISE)
        assert bins.estimate.tolist() == [
            ((counted >= low) & (counted < high)).sum()
            for low, high in ((-1, 1), (1, 5), (5, 39), (39, 99))
        ]
        limits: Any = np.array([1.0, 5.0, 39.0])
        as_array = dg.histogram(people, "n", edges=limits, **PROMISE)
        assert as_array.estimate.tolist() == bins.estimate.tolist()
        assert bins.groups.columns[0].to_pylist() == [None, 1, 5, 39]
        assert bins.groups.columns[1].to_pylist() == [1, 5, 39, None]


@pytest.mark.slow
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("shape", ["even", "far", "few"])
def test_band_covers_all_shares_at_once(shape: str, stated: bool, law: Any) -> None:
    """In 95% of releases, by at most three standard errors less; a band half as wide does not."""
    sizes = {
        "even": np.arange(1, 120),
        "far": 2 ** (np.arange(90) % 11),
        "few": np.array([1, 3, 30]),
    }
    people = visits(sizes[shape], 150 if stated else None)
    counted = np.r_[sizes[shape], np.zeros(150 - len(sizes[shape])) if stated else []]
    at = [1, 2, 5, 10, 20, 50, 100, 1000]
    truth = np.array([(counted >= t).mean() for t in at])
    promise = {**PROMISE, "delta": 0.0 if law == "laplace" else 1e-6, "noise": law}
    held, narrow, trials = 0, 0, 150
    for seed in range(trials):
        release = dg.distribution(people, "n", at, random_state=seed, **promise)
        assert (np.diff(release.estimate) <= 1e-12).all()
        assert ((release.low <= release.estimate) & (release.estimate <= release.high)).all()
        held += bool(((release.low <= truth + 1e-12) & (truth - 1e-12 <= release.high)).all())
        half = (release.high - release.low) / 4
        narrow += bool((np.abs(release.estimate - truth) <= half + 1e-12).all())
    assert held >= trials * 0.95 - 3 * np.sqrt(trials * 0.95 * 0.05)
    if shape != "few":
        assert narrow < trials * 0.9


def test_round_edges_suit_the_range() -> None:
    assert round_edges(0, 3, whole=True) == (1.0, 2.0)
    assert round_edges(-64, 64, whole=True)[:4] == (-50.0, -20.0, -10.0, -5.0)
    assert round_edges(0.0, 1.0, whole=False)[-3:] == (0.2, 0.5, 1.0)
    for exponent in range(-300, 300, 7):
        for low, high in (
            (0.0, 2.0),
            (-4.0, 2.0),
            (-4.0, 0.0),
            (1.0, 2.0),
            (-3.0, -2.9),
            (0.5, 400.0),
        ):
            for whole in (True, False):
                edges = round_edges(low * 2.0**exponent, high * 2.0**exponent, whole)
                assert 1 <= len(edges) <= 40
                assert list(edges) == sorted(set(edges))


@pytest.mark.parametrize("at", [[], [1, 1], [2, 1], [float("nan")], 5, "12", range(2000)])
def test_non_increasing_thresholds_are_rejected(at: Any) -> None:
    with refuses("at"):
        dg.distribution(visits([1]), "n", at, **PROMISE)


def test_edges_require_one_numeric_column() -> None:
    for options in (
        {"item": ["n", "who"]},
        {"item": "n", "domain": [1]},
        {"item": "n", "weight": "n"},
    ):
        with refuses("edges", "numeric"):
            dg.histogram(visits([1]), **{"edges": [1, 2], **options, **PROMISE})


def test_text_describes_the_people() -> None:
    release = dg.distribution(visits([1, 2], 3), "n", [1, 2], random_state=1, **PROMISE)
    said = (
        "share of people with n (each person's number of records) at or above each value, over all 3 "
        "enrolled people, 0 for those without records"
    )
    assert release.estimand == said
    assert "one row per person, with n (rows)" in str(release.guarantee)
    there = dg.distribution(visits([1, 2]), "n", [1, 2], random_state=1, **PROMISE)
    assert there.estimand == said.replace(
        "all 3 enrolled people, 0 for those without records", "people with a record"
    )


def test_printed_text_states_the_joint_band() -> None:
    table = dg.read(
        pa.table({"who": list(range(9)), "x": [float(i) for i in range(9)]}), user="who"
    )
    made = dg.distribution(
        table, "x", [2, 5], unit=dg.User(), clip=1.0, epsilon=1.0, delta=1e-6, random_state=1
    )
    assert "95% band (low to high) for all clipped shares of a group at once" in " ".join(
        str(made).split()
    )


@pytest.mark.parametrize("nothing", [None, 0, 2, 5])
def test_share_error_follows_from_its_counts(nothing: int | None) -> None:
    bins, people, sd = 6, 10_000.0, 20.0
    masses = np.tile([900.0, 1100, 5000, 1500, 500, 1000], (20_000, 1))
    masses += np.random.default_rng(3).normal(0, sd, masses.shape)
    if nothing is not None:
        masses[:, nothing] += people - masses.sum(axis=1)
    counts = BinCounts(np.arange(1.0, bins), masses, np.full((len(masses), 1), sd), nothing)
    shares = _above(masses) / masses.sum(axis=1, keepdims=True)
    told = _pointwise(np.tile(shares.mean(axis=0), (len(masses), 1)), counts).mean(axis=0)
    assert told == pytest.approx(shares.std(axis=0), rel=0.04)
