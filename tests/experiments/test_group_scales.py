"""The experiment on scales of groups: its errors are right, and scales help where they should."""

from __future__ import annotations

import numpy as np
import pytest
from tests.programs import experiment

group_scales = experiment("group_scales")


def rows() -> group_scales.Rows:  # type: ignore[name-defined]
    """Users with a few records in 12 groups, and others with hundreds in one more."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(6160), [*rng.geometric(0.25, 6000), *rng.poisson(260, 160)])
    group = np.where(who < 6000, rng.integers(1, 13, who.size), 0)
    return who, group, np.ones(who.size), None


def test_scales_lower_the_errors_of_light_groups() -> None:
    with_scales, without = (group_scales.errors(rows(), 3.0, 3, scales=s) for s in (True, False))
    assert (with_scales[1:] < 0.7 * without[1:]).all()


@pytest.mark.parametrize("scales", [True, False])
def test_errors_include_noise_and_clipping(scales: bool) -> None:
    """One record each in a group: nothing is clipped, so the errors are those of the noise."""
    who = np.arange(4000)
    found = group_scales.errors((who, who % 5, np.ones(4000), None), 1.0, 1, scales=scales)
    assert np.unique(found).size == 1
    assert 3 < found[0] < 10
