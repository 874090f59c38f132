"""Properties derived from a distribution's name agree with SciPy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from dpgrain.errors import ParameterError
from dpgrain.noise import SeededSource
from dpgrain.noise.additive_noise import LAWS, AdditiveNoise, noise_by_name

#: The laws with standard deviation 1.
KNOWN: dict[str, Any] = {"gaussian": stats.norm(), "laplace": stats.laplace(scale=math.sqrt(0.5))}
AT = np.array([-6.0, -2.0, -0.3, 0.0, 0.3, 1.0, 2.5, 7.0])


@pytest.fixture(params=LAWS)
def law(request: pytest.FixtureRequest) -> AdditiveNoise:
    return noise_by_name(request.param)


def test_every_law_is_compared() -> None:
    assert LAWS.keys() == KNOWN.keys()


def test_quantiles_tails_and_densities(law: AdditiveNoise) -> None:
    known = KNOWN[law.name]
    assert known.std() == pytest.approx(1)
    for level in (1e-9, 0.025, 0.4, 0.5, 0.95, 1 - 1e-9):
        assert law.quantile(level) == pytest.approx(known.ppf(level), rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(law.tail(AT, 1), known.sf(AT), rtol=1e-9)
    np.testing.assert_allclose(law.density(AT), known.pdf(AT), rtol=1e-9)


@pytest.mark.parametrize("terms", [2, 3, 4])
def test_tails_of_sums(law: AdditiveNoise, terms: int) -> None:
    """Each is the one of fewer draws, convolved with one draw more."""
    known, wide = KNOWN[law.name], 60.0

    def more(u: float, x: float) -> float:
        rest = (x * math.sqrt(terms) - u) / math.sqrt(terms - 1)
        return float(law.tail(np.array(rest), terms - 1) * known.pdf(u))

    for x in (-2.0, 0.0, 0.7, 4.0):
        # In pieces: the corners of the density and of the tail are at 0 and at x√n.
        ends = sorted({-wide, 0.0, x * math.sqrt(terms), wide})
        pieces = itertools.pairwise(ends)
        area = sum(integrate.quad(more, *piece, args=(x,), limit=200)[0] for piece in pieces)
        assert law.tail(np.array(x), terms) == pytest.approx(area, rel=1e-6)


@pytest.mark.parametrize("power", range(3))
def test_integrals(law: AdditiveNoise, power: int) -> None:
    known = KNOWN[law.name]

    def weighted(v: float) -> float:
        return float(v**power * known.pdf(v))

    for found, top in zip(law.partial(AT)[power], AT, strict=True):
        # In two pieces: the density of Laplace's law has a corner.
        pieces = itertools.pairwise([-40.0, *([0.0] if top > 0 else []), top])
        area = sum(integrate.quad(weighted, *piece)[0] for piece in pieces)
        assert found == pytest.approx(area, abs=1e-8)


@pytest.mark.slow
def test_noise_has_the_law_s_standard_deviation(law: AdditiveNoise) -> None:
    """Both the added noise, and the noise drawn for simulations."""
    size, scale = 200_000, 1e6
    added = law.add_noise(np.zeros(size, dtype=np.int64), scale, source=SeededSource(1)) / scale
    drawn = law.draw(np.random.default_rng(1), (size,))
    for noise in (added, drawn):
        assert stats.kstest(noise / law.sd, KNOWN[law.name].cdf).pvalue > 1e-3
        # One that is 3% off is seen.
        assert stats.kstest(1.03 * noise / law.sd, KNOWN[law.name].cdf).pvalue < 1e-3


def test_unknown_name_is_rejected() -> None:
    with pytest.raises(ParameterError) as refused:
        noise_by_name("uniform")
    assert refused.value.name == "noise"
