"""The noise of a step has the stated law, on every coordinate, and is drawn anew."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from tests.torch.library import torch

# isort: split
from dpgrain._types import FloatArray
from dpgrain.accounting import Gaussian
from dpgrain.means.grid import grid_step, noised_steps
from dpgrain.noise import RandomSource, SeededSource, SystemSource
from dpgrain.publishing.draws import counted
from dpgrain.torch.clipping import ExactSum, FloatSum
from dpgrain.torch.noise import in_floating_point, split

SHAPES = [(300, 40), (7,), (2, 3, 4)]


def noise(exact: bool, source: RandomSource, sd: float = 3.0) -> FloatArray:
    """The noise of one step, with a clipping bound of 1, as one vector."""
    part = Gaussian(sd)
    weights = [torch.zeros(shape) for shape in SHAPES]
    if exact:
        found = ExactSum(weights, 1.0, grid_step(1.0, sd))
        noisy = noised_steps(found.total, found.largest_norm, part, found.step, source)
        parts = dict(split(noisy, weights))
    else:
        (normals,) = counted(source, part).normals(part, 1.0)
        parts = dict(in_floating_point(FloatSum(weights, 1.0), weights, normals))
    assert [parts[w].shape for w in weights] == [w.shape for w in weights]
    drawn: FloatArray = np.concatenate([parts[w].numpy().ravel() for w in weights])
    return drawn


@pytest.mark.parametrize("exact", [False, True])
def test_the_law_is_normal_with_the_stated_deviation(exact: bool) -> None:
    drawn = noise(exact, SeededSource(1))
    assert scipy.stats.kstest(drawn / 3.0, "norm").pvalue > 1e-4
    assert scipy.stats.kstest(drawn / 3.3, "norm").pvalue < 1e-6


@pytest.mark.parametrize("exact", [False, True])
def test_noise_is_drawn_anew(exact: bool) -> None:
    one, same = SeededSource(1), SeededSource(1)
    first = noise(exact, one)
    assert np.array_equal(first, noise(exact, same))
    assert abs(np.corrcoef(first, noise(exact, one))[0, 1]) < 0.05
    system = SystemSource()
    assert not np.array_equal(noise(exact, system), noise(exact, system))


def test_float_noise_does_not_follow_from_pytorch_s_seed() -> None:
    torch.manual_seed(1)
    first = noise(False, SystemSource())
    torch.manual_seed(1)
    assert not np.array_equal(first, noise(False, SystemSource()))
