"""Plans as text."""

from __future__ import annotations

from typing import Any

import pytest
from tests.statistics import releases

import dpgrain as dg
from dpgrain.publishing.release_plan import Expected


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (
            Expected(51_663.0, ("bounds", "records")),
            "±51.7 for 10,000 records and a clipping bound of 10; proportional to the bound "
            "(chosen privately) ÷ records",
        ),
        (
            Expected(2.08, ("bounds", "range", "records")),
            "±0.208% of the range of the numbers for 10,000 records and a clipping bound of 10; "
            "proportional to the bound (chosen privately) ÷ records",
        ),
        (
            Expected(50.0, ("ranks",)),
            "±0.5% in rank for 10,000 records; proportional to 1 ÷ records",
        ),
        (
            Expected(4.0, ("bounds",), 18.2, "records"),
            "±4 × clipping bound (chosen privately); ±40 records for clip=10; published from a "
            "noisy count of 18.2",
        ),
    ],
)
def test_expected_error_has_an_example(expected: Expected, text: str) -> None:
    assert str(expected) == text


@pytest.mark.parametrize(
    ("by", "clip", "compared"),
    [("item", "auto", True), ("item", 3.0, False), (None, "auto", False)],
)
def test_plan_advises_a_clip_for_comparisons(by: str, clip: Any, compared: bool) -> None:
    asked: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
    for query in (dg.count.query, dg.sum.query):
        column = ["paid"] * (query is dg.sum.query)
        plan = query(releases.shop(), *column, by=by, clip=clip, **asked).plan
        assert ("(difference, ratio) requires equal bounds: pass clip=" in str(plan)) == compared
