"""Plans in words."""

from __future__ import annotations

from tests.publishing import cases

import dpgrain as dg
from dpgrain.publishing import Plan


def test_printed_plan_shows_error_warnings_and_guarantee() -> None:
    query = dg.count.query(cases.table(), clip=5.0, epsilon=1.0, delta=1e-6, **cases.USER)
    guarantee = query.plan.guarantee
    known = Plan(guarantee, expected=query.plan.expected, care=("too few.", "too many."))
    assert str(known).split("\n") == [
        f"Standard error of the noise: {query.plan.expected}",
        "Warning: too few.",
        "Warning: too many.",
        guarantee.summary,
        "Full guarantee: print(.guarantee)",
    ]
    assert str(Plan(guarantee)).startswith("Standard error of the noise: unknown")
