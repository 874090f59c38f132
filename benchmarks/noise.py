"""The cost of a sample of exact integer noise, compared with NumPy's and OpenDP's samplers.

Run ``python benchmarks/noise.py``. OpenDP comes with ``pip install dpgrain[bench]``; without it its
rows are omitted. Every figure is the best of several runs on one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgrain.noise import SeededSource, SystemSource, discrete_laplace
from dpgrain.noise.distributions import rounded_gaussian

SAMPLES = 1_000_000
OPENDP_SAMPLES = 20_000
SCALES = {"1e4": 1e4, "2^32": 2.0**32}
REPEATS = 3


@dataclass(frozen=True)
class Sampler:
    """One way to draw noise, and how many samples to time it with."""

    name: str
    law: str
    draw: Callable[[float, int], Any]
    samples: int = SAMPLES


def own_samplers() -> list[Sampler]:
    """The samplers of this library, with the system's bits and with seeded ones."""
    system, seeded = SystemSource(), SeededSource(0)
    return [
        Sampler(
            "dpgrain rounded_gaussian",
            "exact",
            lambda scale, n: rounded_gaussian(scale, n, source=system),
        ),
        Sampler(
            "dpgrain discrete_laplace",
            "exact",
            lambda scale, n: discrete_laplace(scale, n, source=system),
        ),
        Sampler(
            "dpgrain rounded_gaussian, seeded",
            "exact",
            lambda scale, n: rounded_gaussian(scale, n, source=seeded),
        ),
    ]


def numpy_sampler() -> Sampler:
    """NumPy's normal sampler: floating point, neither exact nor from cryptographic bits."""
    generator = np.random.default_rng(0)
    return Sampler("NumPy normal", "float64", lambda scale, n: generator.normal(0.0, scale, n))


def opendp_samplers() -> list[Sampler]:
    """OpenDP's exact discrete Gaussian and Laplace samplers, or none if it is not installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        print("OpenDP is not installed; its rows are left out (pip install dpgrain[bench]).\n")
        return []
    dp.enable_features("contrib")
    vectors = dp.vector_domain(dp.atom_domain(T="i64"))

    def gaussian(scale: float, n: int) -> Any:
        return dp.m.make_gaussian(vectors, dp.l2_distance(T="f64"), scale=scale)([0] * n)

    def laplace(scale: float, n: int) -> Any:
        return dp.m.make_laplace(vectors, dp.l1_distance(T="i64"), scale=scale)([0] * n)

    return [
        Sampler("OpenDP discrete Gaussian", "exact", gaussian, OPENDP_SAMPLES),
        Sampler("OpenDP discrete Laplace", "exact", laplace, OPENDP_SAMPLES),
    ]


def nanoseconds(sampler: Sampler, scale: float) -> float:
    """The time of one sample, the best of several runs."""
    sampler.draw(scale, 1000)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        sampler.draw(scale, sampler.samples)
        times.append(time.perf_counter() - start)
    return min(times) / sampler.samples * 1e9


def main() -> None:
    """Time everything and print one table."""
    samplers = [*own_samplers(), numpy_sampler(), *opendp_samplers()]
    first = samplers[0].name
    heads = [f"scale {name}" for name in SCALES]
    print(f"{'ns per sample':34}{'law':>9}" + "".join(f"{head:>14}{'ratio':>9}" for head in heads))
    base: dict[str, float] = {}
    for sampler in samplers:
        row = f"{sampler.name:34}{sampler.law:>9}"
        for name, scale in SCALES.items():
            took = nanoseconds(sampler, scale)
            base.setdefault(name, took)
            row += f"{took:14,.1f}{took / base[name]:8.2f}x"
        print(row)
    print(f"\nratio: time divided by that of {first}, at the same scale.")


if __name__ == "__main__":
    main()
