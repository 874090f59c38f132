"""How long whole processes take that do little, as ratios to one that imports NumPy.

Usage: python benchmarks/startup.py [--runs 7]

Every round runs each process once, in turn, so that other work on the machine affects all equally.
The output has medians: seconds, and the ratio to ``python -c "import numpy"`` in the same run. The
time of an estimator is also compared with ``import sklearn.base``, which it needs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

GAUSSIAN = ("-m", "dpgrain", "guarantee", "--noise-multiplier", "4", "--delta", "1e-6")
FIRST = "from dpgrain.accounting import SampledGaussian as S; S(1.0, 0.01, 1000).epsilon(1e-6)"
NUMPY, SCIKIT, ESTIMATOR = "import numpy", "import sklearn.base", "an estimator"
PROCESSES: dict[str, tuple[str, ...]] = {
    NUMPY: ("-c", "import numpy"),
    "import dpgrain": ("-c", "import dpgrain"),
    "dpgrain --help": ("-m", "dpgrain", "--help"),
    "dpgrain guarantee": GAUSSIAN,
    "of a sampled run": (*GAUSSIAN, "--sampling-rate", "0.01", "--rounds", "1000"),
    "first SampledGaussian": ("-c", FIRST),
    SCIKIT: ("-c", "import sklearn.base"),
    ESTIMATOR: ("-c", "from dpgrain.learn import LogisticRegression"),
}


def seconds(arguments: Sequence[str]) -> float:
    """How long one process takes."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line for each process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=7, help="runs of each process")
    runs = parser.parse_args(arguments).runs
    if runs < 1:
        parser.error("--runs must be at least 1.")
    taken: dict[str, list[float]] = {name: [] for name in PROCESSES}
    for _ in range(runs):
        for name, process in PROCESSES.items():
            taken[name].append(seconds(process))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    print(f"{'':24}{'seconds':>9}{'ratio':>8}")
    for name, median in medians.items():
        print(f"{name:24}{median:9.3f}{median / medians[NUMPY]:8.2f}")
    print(f"{ESTIMATOR} ÷ {SCIKIT}: {medians[ESTIMATOR] / medians[SCIKIT]:.2f}")


if __name__ == "__main__":
    main()
