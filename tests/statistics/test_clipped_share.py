"""The share of clipped units is limited with its confidence, and an estimate far off warns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpgrain as dg
from dpgrain.statistics.clipped_share import ClippedUnits
from dpgrain.units import Law
from dpgrain.words.release_text import notes

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
        assert rows["other", year]["take care"] is None
        assert rows["dialysis", year]["take care"] == "clipping may matter: see clipped_share"
    warning = (
        "Warning: clipping may matter in 2 of 4 groups (see clipped_share): pass a larger clip="
    )
    assert notes(release)[1].startswith(warning)
    assert "≤100%" in repr(release)


def test_rows_repeat_the_warnings_of_the_release() -> None:
    table, _ = visits(20, 20)
    release = dg.count(table, by="year", domain=[2024], epsilon=1.0, random_state=1, **USER)
    release = replace(release, metadata=replace(release.metadata, care=(("no-bound",),)))
    assert release.row_warnings[0].startswith("no contribution exceeded the noise")
    assert release.to_arrow()["take care"].to_pylist() == release.row_warnings


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
    assert "take care" not in release.to_arrow().column_names


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
