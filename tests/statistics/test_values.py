"""Each record's contribution to each sum is charged."""

from __future__ import annotations

import pytest
from tests.statistics import cases


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize(
    "statistic", ["mean", "variance", "quantiles", "deep quantiles", "sum above 0"]
)
def test_record_parts_add_up_to_the_charge(statistic: str, laplace: bool) -> None:
    case = (statistic, "user", (), "public", 400.0)
    asked = cases.Asked("record", "zero_out", 3)
    assert 0.45 < cases.seen(case, asked, laplace=laplace) <= 1 + 1e-9


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", ["mean", "variance"])
def test_the_first_corner_of_a_record_is_the_rest(statistic: str) -> None:
    case = (statistic, "record", ("item",), "public", "auto")
    assert 0.99 < cases.seen(case, cases.Asked("record", "zero_out", 1)) <= 1 + 1e-9
