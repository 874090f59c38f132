"""Sums, means and variances equal pandas' results; means stay within their bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.statistics import cases

import dpgrain as dg
from dpgrain.accounting import (
    Gaussian,
)
from dpgrain.statistics import release_metadata as metadata_module
from dpgrain.statistics import run as run_module
from dpgrain.statistics import sums_query as sums_module
from dpgrain.statistics.values import Powers
from dpgrain.tables.groups import Groups
from dpgrain.units import Law, Unit
from dpgrain.words.quantities import warnings

Row: TypeAlias = tuple[int | None, str | None, str | None, float | None]  # who, item, cell, x


@pytest.mark.parametrize("grouped", cases.GROUPED)
@pytest.mark.parametrize("name", cases.EXACT)
def test_estimates_agree_with_pandas(
    name: str, grouped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases.noiseless(monkeypatch)
    (ask, of), (keys, domain) = cases.EXACT[name], cases.GROUPED[grouped]
    unit: Unit = dg.Element("item") if grouped in ("selected", "two keys") else dg.User()
    release = ask(
        cases.dirty(cases.left_out(keys)),
        by=keys or None,
        domain=domain,
        unit=unit,
        epsilon=50,
        delta=1e-6,
        clip=1024.0,
        noise="gaussian",
    )
    found = dict(zip(cases.rows_of(release.groups), release.estimate.tolist(), strict=True))
    right = cases.expected(keys, of)
    if grouped not in ("mixed", "both selected", "listed"):
        assert found.keys() == right.keys()
    elif grouped == "listed":
        assert [*found] == domain
    # A step of the grid for each user and group, 2^-20 of the largest number.
    for key, estimate in found.items():
        assert estimate == pytest.approx(right.get(key, 0.0), rel=2e-5, abs=2e-2)
    assert len(found) > (0 if not keys else 2)
    if name in ("mean", "variance"):
        counts = cases.expected(keys, len)
        for key, count in zip(found, release.count.tolist(), strict=True):
            assert count == pytest.approx(counts.get(key, 0), abs=1e-3)
        assert "count" in release.to_arrow().column_names


@given(
    low=st.floats(-1e9, 1e9),
    width=st.floats(1e-6, 1e9),
    masses=st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=5),
)
def test_means_are_within_their_bounds(
    low: float, width: float, masses: list[tuple[float, float]]
) -> None:
    high = low + width
    if not low < high:
        return
    many = len(masses)
    made = run_module.NoisySums(
        Groups.of(["g"], [pa.array(range(many))]), np.array(masses), np.full(many, 3.0), np.ones(many),
        Powers(low, high, 1), dg.Guarantee("user", "", "zero_out", 1e-6, Gaussian(1.0)),
        metadata_module.ReleaseMetadata(),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums_module, "noisy_sums", lambda *_: made)
        release = dg.mean(
            cases.table_of([]), "x", bounds=(low, high), unit=dg.User(), epsilon=1, delta=1e-6
        )
    for values in (release.estimate, release.low, release.high):
        assert (values >= low).all()
        assert (values <= high).all()
    assert (release.low <= release.estimate).all()
    assert (release.estimate <= release.high).all()
    assert (release.std_error <= (high - low) * (1 + 1e-9)).all()


@pytest.mark.slow
def test_small_groups_influence_the_bound() -> None:
    """One large group and four small ones: a bound for the large one would drown the others."""
    rng = np.random.default_rng(0)
    sizes = rng.lognormal(2.5, 1.2, 3000).astype(int) + 1
    group = np.where(np.arange(3000) < 2800, 0, 1 + np.arange(3000) % 4)
    table = pa.table(
        {
            "who": np.repeat(np.arange(3000), sizes),
            "group": np.repeat(group, sizes),
            "x": np.clip(rng.normal(4 + np.repeat(group, sizes), 2), 0, 10),
        }
    )
    true = np.array(
        [np.mean(table["x"].to_numpy()[table["group"].to_numpy() == g]) for g in range(5)]
    )

    def error(**options: Any) -> float:
        off = [
            dg.mean(
                dg.read(table, user="who"), "x", by="group", domain=range(5), bounds=(0, 10),
                unit=dg.User(), epsilon=1.0, delta=1e-6, random_state=seed, **options,
            ).estimate - true
            for seed in range(8)
        ]  # fmt: skip
        return float(np.sqrt(np.mean(np.square(off))))

    stated = [error(clip=float(clip)) for clip in np.geomspace(0.5, 256, 7)]
    # The chosen bound also allows for a bias of clipping, which this table does not have.
    assert error() < 2.5 * min(stated) < 0.7 * max(stated)


@pytest.mark.parametrize("by", [None, "item"])
def test_deviations_are_the_roots_of_variances(by: str | None) -> None:
    asked: dict[str, Any] = {
        "by": by,
        "domain": cases.left_out(("item",)) and None,
        "bounds": (-30, 40),
        "unit": dg.User(),
        "epsilon": 20.0,
        "delta": 1e-6,
        "random_state": 3,
    }
    table = cases.dirty(())
    squared, found = dg.variance(table, "x", **asked), dg.std(table, "x", **asked)
    assert np.allclose(found.estimate**2, squared.estimate)
    assert np.allclose(found.low**2, squared.low)
    assert np.allclose(found.high**2, squared.high)
    assert (found.std_error <= (found.high - found.low) / 3.9).all()
    assert np.isfinite(found.std_error).all()
    assert found.estimand.startswith("standard deviation of x clamped to [-30, 40]")
    known = squared.estimate > 20 * squared.std_error
    slope = squared.std_error / (2 * np.sqrt(squared.estimate))
    assert np.allclose(found.std_error[known], slope[known])


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("unit", [dg.User(), dg.Element("g"), dg.Record()])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("count", 0.99, 1.01),
        ("sum", 0.99, 1.01),
        ("mean", 0.8, 1.5),
        # A number anywhere in the range: at its middle noise moves a variance less.
        ("variance", 0.8, 1.6),
        # An error that is large relative to the deviation is printed as its interval allows.
        ("std", 0.8, 2.0),
    ],
)
def test_plans_predict_the_printed_errors(
    name: str, least: float, most: float, epsilon: float, unit: Unit, skewed: bool
) -> None:
    """In units of the statistic, by number of records; one person may have a third of all."""
    rng = np.random.default_rng(0)
    who = rng.zipf(1.6, 20_000) % 3000 if skewed else rng.integers(0, 3000, 20_000)
    rows = {"who": who, "g": rng.integers(0, 5, 20_000), "x": rng.gamma(2, 10, 20_000).clip(0, 100)}
    asked: dict[str, Any] = {"unit": unit, "epsilon": epsilon, "delta": 1e-6, "clip": 20.0}
    columns: tuple[str, ...] = ()
    if name != "count":
        columns, asked["bounds"] = ("x",), (0, 100)
    query = getattr(dg, name).query(
        dg.read(pa.table(rows), user="who"), *columns, **asked, random_state=1
    )
    expected, release = query.plan.expected, dg.publish(query)
    records = release.count[0] if "records" in expected.times else 1.0
    assert least < expected.std_error / records / release.std_error[0] < most


def test_means_of_mostly_clipped_users_are_flagged() -> None:
    """Nine in ten users have 5 to 40 records, and the noise of 60 cells leaves each about three."""
    rng = np.random.default_rng(0)
    many = rng.random(1500) < 0.9
    rows = np.where(many, rng.integers(5, 41, 1500), 1)
    who = np.repeat(np.arange(1500), rows)
    x = (rng.random(who.size) < np.where(many, 0.6, 0.1)[who]).astype(float)
    cell = rng.permutation(who.size) % 60
    table = dg.read(pa.table({"who": who, "cell": cell, "x": x}), user="who")
    options: dict[str, Any] = {
        "bounds": (0, 1), "unit": dg.User(), "epsilon": 0.5, "delta": 1e-6, "random_state": 1,
    }  # fmt: skip
    found = dg.mean(table, "x", by="cell", domain=list(range(60)), **options)
    (flag,) = {row["warning"] for row in found.to_arrow().to_pylist()}
    assert "one row per user (per_user" in flag
    assert "Warning: at least" in str(found)
    norms = np.sqrt(
        np.bincount(who * 60 + cell, minlength=90_000).reshape(-1, 60) ** 2 @ np.ones(60)
    )
    bound = found.metadata.bound
    assert bound is not None
    clipped = 100 * np.mean(norms > bound)
    assert 50 < int(flag.removeprefix("at least ").split("%")[0]) <= clipped
    assert not dg.mean(table, "x", **options).metadata.care


def with_heavy_users(heavy: int) -> dict[str, Any]:
    """3,000 users with 1 to 3 records near 100, some of which have 200 records near 20."""
    rng = np.random.default_rng(3)
    rows = rng.integers(1, 4, 3000)
    rows[:heavy] = 200
    who = np.repeat(np.arange(3000), rows)
    x = rng.normal(np.where(who < heavy, 20.0, 100.0), 5.0)
    return {"who": who, "g": rng.integers(0, 4, who.size), "x": x}


@pytest.mark.parametrize("name", ["mean", "std"])
@pytest.mark.parametrize("by", [None, "g"])
def test_removed_records_of_few_people_are_flagged(by: str | None, name: str) -> None:
    """3% of the users have four fifths of the records, with other values than the rest."""
    rows = with_heavy_users(100)
    table, truth = dg.read(pa.table(rows), user="who"), getattr(rows["x"], name)()
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
    options |= {"by": by, "domain": range(4)} if by else {}
    cell = rows["who"] * 4 + (rows["g"] if by else 0)
    norms = np.sqrt((np.bincount(cell, minlength=12_000).reshape(-1, 4) ** 2).sum(axis=1))
    flagged = silent = 0
    for seed in range(8):
        release = getattr(dg, name)(table, "x", random_state=seed, **options)
        care, bound = (
            dict(each for each in release.metadata.care if each[1:]),
            release.metadata.bound,
        )
        held = (release.low < truth) & (truth < release.high)
        silent += not (held.all() or {"removed-records", "mostly-clipped"} & care.keys())
        if "removed-records" in care:
            flagged += 1
            # Without splitting values between corners, which only makes norms smaller.
            removed = np.bincount(rows["who"]) @ np.maximum(1 - bound / norms, 0)
            assert 20 < care["removed-records"] <= 100 * removed / rows["x"].size
            assert "may miss that of all records" in str(release)
    assert flagged >= 2
    assert silent <= 1


@pytest.mark.parametrize("by", [None, "g"])
def test_means_without_heavy_users_have_no_warning(by: str | None) -> None:
    table = dg.read(pa.table(with_heavy_users(0)), user="who")
    options: dict[str, Any] = {"by": by, "domain": range(4)} if by else {}
    for seed in range(4):
        release = dg.mean(
            table, "x", unit=dg.User(), epsilon=1.0, delta=1e-6, random_state=seed, **options
        )
        assert not release.metadata.care


def incomes() -> dg.UserTable:
    rng = np.random.default_rng(4)
    x = np.minimum(rng.lognormal(9.4, 0.6, 8000), 199_999)
    x[:100] = 400_000
    return dg.read(pa.table({"who": range(x.size), "x": x}), user="who")


INCOME: dict[str, Any] = {
    "bounds": (0, 200_000), "unit": dg.User(), "epsilon": 1.0, "delta": 1e-6, "random_state": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", ["mean", "sum", "std", "variance", "quantiles"])
def test_the_share_beyond_stated_bounds_is_unknown_by_default(name: str, tmp_path: Path) -> None:
    query = getattr(dg, name).query(incomes(), "x", **INCOME)
    assert "values outside" not in query.plan.parts
    release = dg.publish(query)
    for text in (str(release), release.explain()):
        assert "hare beyond the stated bounds: not estimated" in " ".join(text.split())
    for ending in (".csv", ".json"):
        assert "not estimated" in release.write(tmp_path / f"x{ending}").read_text()
    assert release.to_arrow().schema.metadata[b"beyond_bounds"] == b"not estimated"


@pytest.mark.parametrize("name", ["mean", "sum", "std", "quantiles"])
def test_the_share_beyond_stated_bounds_is_charged(name: str, tmp_path: Path) -> None:
    query = getattr(dg, name).query(incomes(), "x", estimate_clipping=True, **INCOME)
    plan = query.plan
    assert plan.shares["values outside"] == pytest.approx(0.05, rel=1e-3)
    assert plan.guarantee.epsilon() <= 1.0
    assert "are counted with 5% of the budget" in " ".join(str(plan.guarantee).split())
    release = dg.publish(query)
    metadata = release.metadata
    assert metadata.outside == pytest.approx(1 / 80, rel=0.4)
    assert 1 / 80 < metadata.beyond < 0.02
    assert warnings(metadata).startswith("values outside of the bounds were clamped (at least ")
    assert "At most 1." in " ".join(str(release).split())
    again = dg.Release.load(release.save(tmp_path / "x.parquet"))
    assert (again.hash, again.metadata) == (release.hash, metadata)
    assert "at most 1." in release.write(tmp_path / "x.csv").read_text()
    assert "at most 1." in " ".join(release.report(tmp_path / "x.html").read_text().split())


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("unit", [dg.Record(), dg.Element("g"), dg.User()])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_limits_of_the_share_beyond_bounds_are_valid(unit: Unit, noise: Law) -> None:
    rng = np.random.default_rng(5)
    rows = {"who": range(600), "g": rng.integers(0, 3, 600), "x": np.arange(600) % 50}
    table = dg.read(pa.table(rows), user="who")
    limits = [
        dg.sum(
            table, "x", bounds=(0, 47), unit=unit, epsilon=1, delta=1e-6, noise=noise, clip=47.0,
            random_state=seed, estimate_clipping=True,
        ).metadata.beyond or 0.0 for seed in range(60)
    ]  # fmt: skip
    assert np.mean(np.array(limits) >= 2 / 50) > 0.87
    assert np.median(limits) < 0.3


@pytest.mark.parametrize("unit", [dg.Record(), dg.Element("g"), dg.Element("h"), dg.User()])
def test_values_of_unlisted_groups_change_neither_share_nor_range(unit: Unit) -> None:
    """Half of the rows are in a group that is not published, and have other values."""
    who, x = np.arange(8000) % 4000, np.repeat([50.0, 5e6], 4000)
    columns = {"who": who, "g": np.repeat(["a", "c", "b", "b"], 2000), "h": who % 3, "x": x}
    table = dg.read(pa.table(columns), user="who")
    options: dict[str, Any] = {
        "by": "g", "domain": ["a", "c"], "unit": unit, "epsilon": 1.0, "delta": 1e-6, "random_state": 1,
    }  # fmt: skip
    stated = dg.mean(table, "x", bounds=(0, 100), estimate_clipping=True, **options)
    assert stated.metadata.beyond is not None
    assert stated.metadata.beyond < 0.02
    assert not stated.metadata.care
    assert "unlisted" not in str(stated)
    found = dg.mean(table, "x", **options)
    assert found.metadata.found is not None
    assert 50 <= found.metadata.found[1] <= 64


def test_a_release_without_groups_has_no_values_outside() -> None:
    rows = pa.table({"who": [1], "g": ["a"], "x": [5.0]})
    release = dg.sum(
        dg.read(rows, user="who"), "x", by="g", bounds=(0, 1), estimate_clipping=True,
        unit=dg.User(), epsilon=1.0, delta=1e-6, random_state=1,
    )  # fmt: skip
    assert not len(release)


HEAVY: dict[str, Any] = {
    "power": lambda rng: 20 * (1 + rng.pareto(1.8, 6000)),
    "log-normal": lambda rng: rng.lognormal(10, 0.9, 6000),
}


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("tail", HEAVY)
@pytest.mark.parametrize("name", ["mean", "sum", "std"])
def test_intervals_in_a_chosen_range_hold_or_warn(name: str, tail: str) -> None:
    """Distant values are too few to be visible, and their likely part is in the interval."""
    silent, narrower = [], 0
    for seed in range(20):
        x = HEAVY[tail](np.random.default_rng(seed))
        release = getattr(dg, name)(
            dg.read(pa.table({"who": range(x.size), "x": x}), user="who"), "x", unit=dg.Record(),
            epsilon=0.5, delta=1e-6, random_state=seed,
        )  # fmt: skip
        truth, value = float(getattr(np, name)(x)), release.value
        missed = not release.low[0] <= truth <= release.high[0]
        silent.append(missed and not release.metadata.care)
        narrower += release.high[0] - value <= (value - release.low[0]) * (1 + 1e-9)
        assert release.metadata.widened
        assert 0 < release.metadata.beyond < 0.1
    assert np.mean(silent) <= 0.15
    assert narrower <= 2


def test_a_chosen_range_is_charged_for_its_share_outside(tmp_path: Path) -> None:
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6, "random_state": 1}
    query = dg.sum.query(incomes(), "x", **options)
    assert query.plan.shares["values outside"] == pytest.approx(0.05, rel=1e-3)
    release = dg.publish(query)
    assert release.metadata.outside is None
    text = " ".join(str(release).split())
    assert "noise and likely clamping, not the clipping; extreme values may exceed it." in text
    again = dg.Release.load(release.save(tmp_path / "x.parquet"))
    assert (again.hash, again.high.tolist()) == (release.hash, release.high.tolist())
    x = -20 * (1 + np.random.default_rng(2).pareto(1.8, 6000))
    negative = dg.read(pa.table({"who": range(x.size), "x": x}), user="who")
    below = dg.sum(negative, "x", **(options | {"unit": dg.Record()}))
    assert below.estimate[0] - below.low[0] > 1.01 * (below.high[0] - below.estimate[0])


def one_sided(name: str) -> Any:
    """Numbers of one sign, and a few that the chosen range excludes on the other side."""
    x = np.random.default_rng(0).uniform(50, 150, 20_000)
    x[:80] = {"zeros": 0.0, "negative": -200.0}[name]
    return x


@pytest.mark.parametrize("statistic", ["mean", "sum"])
@pytest.mark.parametrize("numbers", ["zeros", "negative"])
def test_intervals_are_wider_on_the_clamped_side(statistic: str, numbers: str) -> None:
    """Numbers below the range lower the truth, so the interval must be wider below."""
    for sign in (1, -1):
        x = sign * one_sided(numbers)
        table = dg.read(pa.table({"who": range(x.size), "x": x}), user="who")
        release = getattr(dg, statistic)(
            table, "x", unit=dg.Record(), epsilon=8.0, delta=1e-6, random_state=1
        )
        truth = float(getattr(np, statistic)(x))
        assert release.metadata.widened
        assert abs(truth - release.estimate[0]) > 2 * release.std_error[0]
        assert release.low[0] <= truth <= release.high[0]
        assert release.low[0] <= release.estimate[0] <= release.high[0]


def test_values_far_outside_of_a_chosen_range_warn() -> None:
    x = 20 * (1 + np.random.default_rng(3).pareto(1.0, 3000))
    table = dg.read(
        pa.table({"who": range(x.size), "g": np.arange(x.size) % 2, "x": x}), user="who"
    )
    release = dg.std(
        table, "x", by="g", domain=[0, 1], unit=dg.Record(), epsilon=0.3, delta=1e-6, random_state=1
    )
    assert [kind for kind, *_ in release.metadata.care] == ["far-numbers"]
    assert all("may be a large part" in text for text in release.to_arrow()["warning"].to_pylist())


def test_intervals_of_means_include_the_likely_effect_of_clipping() -> None:
    """People with many records have larger values, and clipping lets them count less."""
    rng = np.random.default_rng(0)
    rows = np.ceil(rng.lognormal(1.0, 1.3, 3000)).astype(np.int64)
    level = np.repeat(rng.normal(size=3000) + 0.5 * np.log(rows), rows)
    x = np.exp(10 + 0.4 * level + 0.8 * rng.normal(size=level.size))
    table = dg.read(pa.table({"who": np.repeat(np.arange(3000), rows), "x": x}), user="who")
    silent, narrow = 0, 0
    for seed in range(12):
        release = dg.mean(table, "x", unit=dg.User(), epsilon=1.0, delta=1e-6, random_state=seed)
        assert "likely clamping and clipping" in str(release)
        silent += not release.low[0] <= x.mean() <= release.high[0]
        narrow += release.estimate[0] - release.low[0] < 2.2 * release.std_error[0]
    assert silent <= 3
    assert not narrow


def test_many_values_outside_of_a_chosen_range_warn() -> None:
    """Values of many magnitudes: no bin of the largest stands out, but their share is counted."""
    rng = np.random.default_rng(0)
    x = np.exp2(rng.normal(11, 3.5, 12_000))
    table = dg.read(pa.table({"who": np.repeat(np.arange(3000), 4), "x": x}), user="who")
    silent, warned = 0, 0
    for seed in range(12):
        release = dg.mean(table, "x", unit=dg.User(), epsilon=0.3, delta=1e-6, random_state=seed)
        kinds = [kind for kind, *_ in release.metadata.care]
        silent += not (release.low[0] <= x.mean() <= release.high[0] or kinds)
        warned += "clamped" in kinds
    assert warned >= 3
    assert silent <= 3


def test_values_outside_need_stated_bounds() -> None:
    with pytest.raises(dg.ParameterError, match="estimate_clipping requires bounds"):
        dg.mean.query(incomes(), "x", unit=dg.User(), epsilon=1, delta=1e-6, estimate_clipping=True)
    with pytest.raises(dg.ParameterError, match="estimate_clipping must be True or False"):
        dg.mean.query(incomes(), "x", **INCOME, estimate_clipping="yes")  # type: ignore[arg-type]
