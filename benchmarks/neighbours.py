"""The cost of exact counts of close pairs, compared with one plain matrix product of the same data.

Run ``python benchmarks/neighbours.py [--users 10000] [--dimension 1000] [--windows 3]``. Threads are
BLAS's own; set ``OMP_NUM_THREADS``.

All cases alternate in each window; a figure is the median over windows of wall time, and of the
ratio to the plain product X·Xᵀ (double precision, all n² pairs) in the same window. *MB* is the
additional peak memory of a case in a separate process, without the data.

- *agree*: all vectors are within the distance.
- *outliers*: one in a hundred is distant, in a separate direction.
- *apart*: two halves, 10⁶ distances from each other, so that products are not exact for one of
  them.
- *radii*: counts at 20 distances at once.
- *round*: a whole round of the soft core on vectors that agree, with its noise.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from timing import seconds

from dpgrain.means import Vectors
from dpgrain.means.close_vectors import close
from dpgrain.noise import SystemSource
from dpgrain.papers.softcore import SoftCoreMean

Array = NDArray[np.float64]
CASES = ("agree", "outliers", "apart", "radii", "round")


def data(case: str, users: int, dimension: int) -> Array:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(users, dimension))
    # In place, so that the peak of a process does not come from the data's construction.
    vectors /= 2 * dimension**0.5
    if case == "outliers":
        vectors[::100] *= 1000.0
    if case == "apart":
        vectors[::2] += 2e6 / dimension**0.5
    return vectors


def work(case: str, vectors: Array) -> Callable[[], object]:
    users = len(vectors)
    if case == "round":
        mean = SoftCoreMean(1.0, 1.0, users, int(0.95 * users), 10, 1.0, 1.0, 10**6)
        run, given = mean.start(SystemSource()), Vectors(vectors)
        return lambda: run.estimate(given)
    distances = [4**11 << k for k in range(20)] if case == "radii" else [4**17]
    step = 2.0**-10 if case == "radii" else 2.0**-16
    return lambda: close(vectors, step, distances)


def _peak() -> float:
    # Not ru_maxrss, which a process takes over from the one that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _added(case: str, users: int, dimension: int) -> float:
    """Megabytes that one call adds to the peak of a fresh process."""
    vectors = data(case, users, dimension)
    done = work(case, vectors)
    # The threads of BLAS have separate buffers.
    _ = vectors[:64] @ vectors[:64].T
    before = _peak()
    done()
    return _peak() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=1000)
    parser.add_argument("--windows", type=int, default=3)
    given = parser.parse_args()
    size = given.users, given.dimension
    plain = data("agree", *size)
    spent: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    for _ in range(given.windows):
        product = seconds(lambda: plain @ plain.T)
        for case in CASES:
            took = seconds(work(case, data(case, *size)))
            spent[case].append((took, took / product))
    context = multiprocessing.get_context("spawn")
    print(f"{given.users:,} users, dimension {given.dimension:,}; one product {product:.2f} s")
    print("case       seconds  ÷ product     MB")
    for case, found in spent.items():
        with context.Pool(1) as pool:
            added = pool.apply(_added, (case, *size))
        took, ratio = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{case:<10} {took:7.2f} {ratio:10.2f} {added:6.0f}")


if __name__ == "__main__":
    main()
