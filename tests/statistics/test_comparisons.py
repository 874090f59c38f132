"""Differences and ratios of two noisy numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.statistics.comparisons import Comparison, difference, ratio


def test_ratio_interval_has_fiellers_ends() -> None:
    numbers, errors, quantile = (50.0, 100.0), (3.0, 4.0), 1.96
    _, _, low, high = ratio(numbers, errors, quantile)
    for end in (low, high):
        gap = abs(numbers[0] - end * numbers[1])
        assert gap == pytest.approx(quantile * math.hypot(errors[0], end * errors[1]))


def test_a_divisor_within_the_noise_has_no_ratio() -> None:
    for below in (-100.0, 0.0, 7.8):
        assert all(math.isnan(number) for number in ratio((50.0, below), (3.0, 4.0), 1.96))


def test_errors_of_differences_add_in_squares() -> None:
    assert difference((5.0, 7.0), (3.0, 4.0), 1.0) == (-2.0, 5.0, -7.0, 3.0)


def test_a_comparison_without_an_estimate_prints_the_reason() -> None:
    blank = Comparison("ratio", ("a", "b"), "total", math.nan, math.nan, math.nan, math.nan)
    assert str(blank) == "Ratio of totals, a ÷ b: no estimate, because b is within the noise"


def by(key: str | list[str], domain: Any) -> dg.Histogram:
    rows = {
        "who": range(4),
        "day": pa.array([date(2024, 1, 1), date(2025, 2, 1)] * 2),
        "shop": ["a", "a", "b", "b"],
    }
    return dg.count(
        dg.read(pa.table(rows), user="who"), by=key, domain=domain, clip=1, unit=dg.User(),
        epsilon=1, delta=1e-6, random_state=1,
    )  # fmt: skip


DAYS = [date(2024, 1, 1), date(2025, 2, 1)]


@pytest.mark.parametrize(
    ("key", "domain", "groups"),
    [
        ("year(day)", [2024, 2025], [(2025, 2024), ("2025", "2024")]),
        ("day", DAYS, [(DAYS[1], DAYS[0]), ("2025-02-01", "2024-01-01")]),
        ("month(day)", ["2024-01-01", "2025-02-01"], [("2025-02", "2024-01"), (DAYS[1], DAYS[0])]),
        (["shop", "year(day)"], {"shop": ["a"], "year(day)": [2024, 2025]},
         [(("a", 2025), ("a", 2024)), (["a", 2025], ["a", "2024"])]),
    ],
)  # fmt: skip
def test_groups_are_named_by_value_or_text(
    key: str | list[str], domain: Any, groups: list[Any]
) -> None:
    release = by(key, domain)
    assert len({str(release.difference(*pair)) for pair in groups}) == 1


def test_comparison_is_written_with_its_guarantee(tmp_path: Path) -> None:
    release = by("year(day)", [2024, 2025])
    compared = release.difference(2025, 2024)
    written = json.loads(compared.write(tmp_path / "change.json").read_text(encoding="utf-8"))
    assert dg.Guarantee.from_dict(written["guarantee"]) == release.guarantee
    assert (written["estimate"], written["text"]) == (compared.estimate, str(compared))
    blank = Comparison("ratio", ("a", "b"), "total", math.nan, math.nan, math.nan, math.nan)
    path = blank.write(tmp_path / "ratio.json")
    assert json.loads(path.read_text(encoding="utf-8"))["estimate"] is None
    with refuses("output", ".json"):
        compared.write(tmp_path / "change.csv")


def test_unknown_group_is_rejected_with_examples() -> None:
    release = by("year(day)", [2024, 2025])
    with refuses("a", "such as 2024 or 2025, not '2030'"):
        release.difference("2030", 2024)
    pairs = by(["shop", "year(day)"], {"shop": ["a"], "year(day)": [2024, 2025]})
    with refuses("a", "such as ('a', 2024) or ('a', 2025), not 2024"):
        pairs.ratio(2024, ("a", 2024))


def test_groups_with_different_bounds_are_rejected_with_remedy() -> None:
    release = replace(by("year(day)", [2024, 2025]), clip=np.array([1.0, 2.0]))
    with refuses("b", "a new release with an explicit clip=, or report them separately"):
        release.difference(2024, 2025)


@pytest.mark.parametrize("estimated", [True, False])
@pytest.mark.parametrize(("clip", "advised"), [(1.0, True), (500.0, False)])
def test_comparison_warns_of_clipping(clip: float, advised: bool, estimated: bool) -> None:
    who = np.arange(40_000) % 4000
    table = dg.read(pa.table({"who": who, "year": 2024 + np.arange(40_000) // 20_000}), user="who")
    release = dg.count(
        table, by="year", domain=[2024, 2025], clip=clip, estimate_clipping=estimated,
        unit=dg.User(), epsilon=3, delta=1e-6, random_state=1,
    )  # fmt: skip
    for text in (str(release.difference(2024, 2025)), str(release.ratio(2025, 2024))):
        assert ("Warning: clipping may matter" in text) == (advised and estimated)
        assert ("clipped units was not estimated, so the two" in text) == (not estimated)


def test_comparison_of_two_releases_is_rejected_with_remedy() -> None:
    release = by("year(day)", [2024, 2025])
    with refuses("a", "(by=), or subtract the estimates"):
        release.difference(release)
    with refuses("b", "groups of one release (by=)."):
        release.ratio(2024, release)
    with refuses("b", "not None"):
        release.difference(2024)
