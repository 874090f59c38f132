"""The cost of a protocol: honest devices and corrupt ones, compared with the central mechanism."""

from __future__ import annotations

import numpy as np
import pytest
from tests.report import sums

import dpgrain as dg
from dpgrain.accounting import Binomial, Contribution, Gaussian
from dpgrain.noise import SeededSource
from dpgrain.planning.shuffle_plans import (
    central_sd,
    deployment,
    device_sensitivity,
    honest_shares,
)
from dpgrain.shuffle import PoissonSum, ScalarSum, VectorSum
from dpgrain.units import Relation


def test_an_honest_device_moves_sums_so_far() -> None:
    for protocol in sums.PROTOCOLS.values():
        encoding = protocol.encoding
        # The codes of the two ends of one coordinate's range.
        ends = np.zeros((2, encoding.dim))
        ends[:, 0] = (-encoding.bound if protocol.centred else 0.0), encoding.bound
        codes = np.array([encoding.codes(end[None], SeededSource(1))[0] for end in ends])
        moved = np.linalg.norm((codes[1] - codes[0]) * encoding.step)
        assert moved == pytest.approx(device_sensitivity(protocol), abs=3 * encoding.step)


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_the_central_mechanism(relation: Relation) -> None:
    user = Contribution(block="user", layout="shared", coordinates="signed")
    vectors = VectorSum(
        n_users=100, dim=2, l2_bound=3.0, epsilon=1.0, delta=1e-6, rounds=4, relation=relation
    )
    # Four rounds of it, of sums in bounds.
    event = Gaussian(central_sd(vectors) / 3, user, 4)
    assert event.epsilon(1e-6, relation=relation) == pytest.approx(1.0, rel=1e-3)
    numbers = ScalarSum(n_users=100, bound=3.0, epsilon=1.0, delta=1e-6, relation=relation)
    # A number between 0 and 3 moves by 3, removed or replaced.
    event = Gaussian(central_sd(numbers) / 3, user)
    assert event.epsilon(1e-6, relation="zero_out") == pytest.approx(1.0, rel=1e-3)
    assert 1.0 < deployment(numbers)["times the central noise"] < 1.1


def test_honest_shares_agree_with_the_protocol() -> None:
    protocol = VectorSum(n_users=1000, dim=5, epsilon=1.0, delta=1e-6)
    for share, epsilon in honest_shares(protocol.guarantee):
        assert epsilon == pytest.approx(protocol.guarantee_with(share).epsilon(), rel=1e-12)
    poisson = PoissonSum(n_users=1000, dim=5, epsilon=1.0, delta=1e-6).guarantee
    assert dict(honest_shares(poisson))[0.5] > poisson.epsilon()
    both = dg.Guarantee(
        "user", "", "replace", 1e-6, Binomial(10**7, 0.5, 50, 5, 1e-9) + sums.OTHER, (), True
    )
    told = dict(honest_shares(both))
    rest = Binomial(5 * 10**6, 0.5, 50, 5, 1e-9) + sums.OTHER
    assert told[0.5] == rest.epsilon(1e-6, relation="replace")
