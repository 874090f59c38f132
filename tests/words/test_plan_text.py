"""Plans as text."""

from __future__ import annotations

import pytest

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
