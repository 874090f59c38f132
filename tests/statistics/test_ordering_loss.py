"""The number of misordered pairs equals its definition."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import (
    Gaussian,
)
from dpgrain.statistics import release_metadata as metadata_module
from dpgrain.statistics.group_estimates import misordered_pairs
from dpgrain.tables.groups import Groups


@given(
    pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 4)), max_size=25),
    gamma=st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.6, 2.0]),
)
def test_misordered_pairs_agree_with_the_definition(
    pairs: list[tuple[int, int]], gamma: float
) -> None:
    truth = np.array([p for p, _ in pairs], dtype=np.float64) / 8
    estimate = np.array([e for _, e in pairs], dtype=np.float64)
    expected = sum(
        1
        for j, l in itertools.permutations(range(len(pairs)), 2)  # noqa: E741
        if truth[j] >= truth[l] + gamma and truth[j] > truth[l] and estimate[j] < estimate[l]
    )
    assert misordered_pairs(truth, estimate, gamma) == expected
    release = dg.Histogram(
        Groups.of(["item"], [pa.array(range(len(pairs)), pa.int64())]), estimate, np.ones(len(pairs)),
        np.ones(len(pairs)), dg.Guarantee("user", "", "zero_out", 1e-6, Gaussian(1.0)),
        metadata_module.ReleaseMetadata(),
    )  # fmt: skip
    assert release.order_loss(truth, gamma) == expected
    if len(pairs) > 1:
        with refuses("truth", "shape"):
            release.order_loss(truth[1:], gamma)
        with refuses("gamma"):
            release.order_loss(truth, -0.1)
