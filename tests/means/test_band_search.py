"""The best number of bands, compared with calibration by hand."""

from __future__ import annotations

import math

import pytest

from dpgrain.accounting import BandedGaussian, SampledGaussian, calibrate
from dpgrain.means.band_search import band_candidates, best
from dpgrain.means.bands import Bands
from dpgrain.units import Element, User


def test_best_bands_have_the_noise_calibrated_by_hand() -> None:
    means = band_candidates(
        most=8, epsilon=8.0, delta=1e-6, n_users=1, rounds=100, sampling_rate=0.01
    )
    assert [mean.bands for mean in means] == [1, 2, 4, 8]
    mean = best(means)
    assert mean.bands == 8
    event = calibrate(lambda z: SampledGaussian(z, 0.08, 13), 8.0, 1e-6, unit=Element())
    alone = calibrate(lambda z: SampledGaussian(z, 0.01, 100), 8.0, 1e-6, unit=Element())
    assert mean.noise_multiplier == event.parameter
    sums = event.parameter * Bands.best(8, 100).prefix_error(100)
    assert mean.prefix_noise == pytest.approx(sums)
    assert means[0].prefix_noise == pytest.approx(alone.parameter * math.sqrt(101 / 2))
    assert mean.prefix_noise < 0.7 * means[0].prefix_noise
    assert isinstance(mean.event, BandedGaussian)
    assert 7.9 < mean.event.epsilon(1e-6) <= 8.0


@pytest.mark.parametrize("unit", [User(), User(max_elements=3)])
def test_best_noise_is_independent_when_bands_do_not_pay(unit: User) -> None:
    numbers = {"epsilon": 1.0, "delta": 1e-6, "n_users": 1, "rounds": 20, "sampling_rate": 0.5}
    mean = best(band_candidates(most=4, **numbers, unit=unit, relation="replace"))
    assert mean.bands == 1
    assert isinstance(mean.event, SampledGaussian)
