"""A printed mean shows its first coordinates, what its error covers, and what is protected."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.means import cases

from dpgrain._formatting import rounded_up


def test_print_shows_estimates_and_guarantee() -> None:
    found = cases.mean(np.full((2000, 5), 0.123456), bound=1.0, method="clip", random_state=None)
    title, heads, *rows, error, brief, pointer = str(found).split("\n")
    assert title == (
        "Mean over users of the mean of each user's records (5 coordinates; each record clipped to "
        "norm 1; method clip)"
    )
    assert heads.split() == ["coordinate", "estimate", "std_error"]
    assert [float(row.split()[1]) for row in rows] == pytest.approx(found.value, abs=0.01)
    assert error == (
        f"The whole vector is at most {rounded_up(found.error, 3)} (l2 norm) from the clipped mean of "
        "users with records, with 95% confidence; this covers noise and the number of users with "
        "records, but not the clipping of records to norm 1. std_error covers the noise only."
    )
    assert "each row is one user" in brief, "a call without users must show what is protected"
    assert brief == found.guarantee.summary
    assert pointer == "What the numbers mean: .explain(). Full guarantee: print(.guarantee)"
    assert str(found.guarantee) in " ".join(found.explain().split())
    drawn = cases.mean(method="recentred", random_state=1)
    assert drawn.outside > 0
    said = f"The means of about {100 * drawn.outside:.1f}% of users are farther than"
    assert said in str(drawn)
    assert " from the centre and were clipped (rough estimate). std_error covers" in str(drawn)
    frame = pd.DataFrame(np.ones((50, 2)), columns=["paid", "days"])
    named = cases.mean(frame, bound=4.0, method="clip")
    assert named.names == ("paid", "days")
    assert [line.split()[0] for line in str(named).split("\n")[2:4]] == ["paid", "days"]
    assert "this covers noise, the clipping of distant users, and the number" in str(drawn)
    assert drawn.guarantee.summary.startswith("NOT PRIVATE")
    scattered = np.random.default_rng(0).normal(size=(1200, 3))
    nothing = cases.mean(scattered, bound=10.0, radius=0.01, method="softcore")
    assert str(nothing).split("\n")[1].startswith("No mean: too few users are close together")
