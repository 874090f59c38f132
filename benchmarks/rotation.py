"""The fast rotation of vectors compared with the product with the dense matrix.

Usage: OMP_NUM_THREADS=1 python benchmarks/rotation.py [--users 10000] [--dimensions 100 1000]

Both take the same rows in memory and make the same columns. They take turns; the best of each counts.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.linalg import hadamard
from timing import seconds

from dpgrain.noise import SeededSource
from dpgrain.papers.winsorized.rotation import Rotation


def main() -> None:
    """Print a table of both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{'d':>6}{'D':>6}{'fast s':>9}{'dense s':>9}{'ratio':>8}")
    for d in options.dimensions:
        vectors = np.random.default_rng(0).normal(size=(options.users, d))
        rotation = Rotation.draw(d, SeededSource(0))
        size = rotation.size
        matrix = hadamard(size)[:, :d] * (rotation.signs / np.sqrt(size))

        def fast(rotation: Rotation = rotation, vectors: np.ndarray = vectors) -> object:
            return rotation.of(vectors)

        def dense(matrix: np.ndarray = matrix, vectors: np.ndarray = vectors) -> object:
            return matrix @ vectors.T

        times = [(seconds(fast), seconds(dense)) for _ in range(options.repeats)]
        one, two = (min(pair[i] for pair in times) for i in (0, 1))
        print(f"{d:6}{size:6}{one:9.3f}{two:9.3f}{one / two:8.2f}")


if __name__ == "__main__":
    main()
