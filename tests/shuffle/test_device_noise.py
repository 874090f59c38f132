"""Simulated sums have the law of all messages that devices send."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2_contingency
from tests.refusals import refuses
from tests.shuffle import cases

from dpgrain.noise import SeededSource
from dpgrain.shuffle import (
    PoissonSum,
    VectorSum,
)

Array = NDArray[np.float64]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [VectorSum, PoissonSum])
def test_simulations_have_the_law_of_all_messages(kind: type[VectorSum]) -> None:
    protocol, times = cases.small(kind), 2500
    vectors = np.array([[0.4, -0.9], [0.1, 0.2]])
    device, analyzer, source = protocol.randomizer(), protocol.analyzer(), SeededSource(4)
    rng = np.random.default_rng(5)

    def materialised() -> Array:
        messages = []
        for vector in (*vectors, None):
            for label, ones in enumerate(device.counts(vector, source)):
                zeros = 0 if kind is PoissonSum else 4 + 6 - ones
                messages += [(label, 1)] * ones + [(label, 0)] * zeros
        shuffled = rng.permutation(np.array(messages))
        value: Array = analyzer.estimate_messages(shuffled, 3).value
        return value

    def by_reports() -> Array:
        shuffler = protocol.shuffler()
        for vector in (*vectors, None):
            shuffler.receive(device.packing.pack(device.counts(vector, source), fresh(rng)))
        value: Array = analyzer.estimate(shuffler.release().to_bytes()).value
        return value

    def simulated() -> Array:
        value: Array = protocol.estimate([vectors], 3, source)
        return value

    ways = [
        np.array([way() for _ in range(times)]) for way in (materialised, by_reports, simulated)
    ]
    for coordinate in range(2):
        for other in ways[1:]:
            one, two = ways[0][:, coordinate], other[:, coordinate]
            edges = np.unique(np.quantile(np.concatenate([one, two]), np.linspace(0.02, 0.98, 12)))
            table = np.array(
                [
                    np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1)
                    for x in (one, two)
                ]
            )
            table = table[:, table.sum(axis=0) > 10]
            assert chi2_contingency(table).pvalue > cases.CHANCE
    # And it differs from a smaller design: one device less.
    less = np.array([protocol.estimate([vectors], 2, source) for _ in range(times)])[:, 0]
    edges = np.unique(np.quantile(ways[0][:, 0], np.linspace(0.05, 0.95, 8)))
    pair = [
        np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1)
        for x in (ways[0][:, 0], less)
    ]
    assert chi2_contingency(np.array(pair) + 1).pvalue < cases.CHANCE


def test_lost_devices_take_their_noise_with_them() -> None:
    protocol = PoissonSum(
        n_users=100, dim=2, l2_bound=1.0, epsilon=4.0, delta=1e-4, honest_fraction=0.6
    )
    X = np.full((100, 2), 0.5)
    found = np.array([protocol.simulate(X, dropped=40, random_state=s) for s in range(400)])
    sd = protocol.analyzer().standard_error(60)
    assert np.abs(found.mean(axis=0) - 30).max() < cases.SURE * sd / 20
    assert 0.8 < found.std() / sd < 1.2
    gone = np.arange(100) % 2 == 0
    assert abs(protocol.simulate(X, dropped=gone & (np.arange(100) < 80))[0] - 30) < 8 * sd
    with refuses("batch", "59"):
        protocol.simulate(X, dropped=41)


def fresh(generator: np.random.Generator) -> bytes:
    return generator.bytes(16)
