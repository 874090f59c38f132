"""One simulated round of a shuffled sum over the plain sum, and the parties' times.

Usage: OMP_NUM_THREADS=1 python benchmarks/shuffled_sums.py [--users 100000] [--dim 1000]

The simulation and the plain sum use the same rows in memory and compute the same d numbers, the
simulation with noise. They alternate; the best of each counts. A device and the analyzer are timed
separately.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from timing import seconds

from dpgrain.means import Vectors
from dpgrain.shuffle import PoissonSum, VectorSum


def main() -> None:
    """Print a table of both, their ratio, and the costs of the parties."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    n, d = options.users, options.dim
    vectors = np.random.default_rng(0).normal(size=(n, d)) / np.sqrt(d)
    contributions = Vectors(vectors)
    print(f"n = {n:,}, d = {d:,}, eps = 1, delta = 1e-7")
    print(f"{'protocol':12}{'plan s':>8}{'round s':>9}{'plain s':>9}{'ratio':>7}{'device ms':>11}")
    for kind in (VectorSum, PoissonSum):
        start = time.perf_counter()
        protocol = kind(n_users=n, dim=d, l2_bound=1.0, epsilon=1.0, delta=1e-7)
        planned = time.perf_counter() - start
        device = protocol.randomizer()

        def simulated(protocol: VectorSum = protocol) -> object:
            return protocol.simulate(vectors)

        def plain() -> object:
            return contributions.clipped_sum(1.0)

        times = [(seconds(simulated), seconds(plain)) for _ in range(options.repeats)]
        one, two = (min(pair[i] for pair in times) for i in (0, 1))
        own = min(seconds(lambda: device.report(vectors[0])) for _ in range(20))  # noqa: B023
        print(
            f"{kind.__name__:12}{planned:8.2f}{one:9.2f}{two:9.2f}{one / two:7.2f}{1e3 * own:11.2f}"
        )
    few, small = 1000, 100
    print(f"\nWhat devices send, n = {few:,}, d = {small}, eps = 1, delta = 1e-6:")
    for some in (VectorSum, PoissonSum):
        found = some(n_users=few, dim=small, l2_bound=1.0, epsilon=1.0, delta=1e-6).randomizer()
        print(f"{some.__name__:12}{found.report_bytes:8,} bytes, {found.messages:,.0f} bits")


if __name__ == "__main__":
    main()
