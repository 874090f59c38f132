"""The cost of a private fit of a linear model, compared with a fit without privacy.

Run ``python benchmarks/fit.py [--parts rounds fits exact memory] [--threads 1 2] [--repeats 7]``.
All figures are multiples of a baseline that alternates with ours in the same process, each the
least of several repetitions. With one thread, rounds are measured in CPU time of the process, which
other work on the machine barely affects; all else is wall time. The imported library is measured,
so that ``PYTHONPATH`` compares two versions.

- *rounds*: the clipped sum of blocks' mean gradients of a logistic model, with cached data between
  rounds, divided by Xᵀ(σ(Xθ) − y) in one NumPy expression. *Exact* is the same as integers on a
  grid, divided by the clipped sum. Half of the blocks are clipped.
- *fits*: a whole fit with the defaults, divided by scikit-learn's LogisticRegression with its
  defaults on the same rows.
- *exact*: a whole fit with ``exact=True``, divided by that with the defaults.
- *memory*: peak memory of a fit in addition to a process with imports, X, y and users, divided by
  the bytes of these three; each fit is a separate process, which resets the peak before it fits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression as Peer
from threadpoolctl import threadpool_limits

from dpgrain.accounting import Gaussian
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.learn import LogisticRegression
from dpgrain.means.grid import exactly_noised
from dpgrain.noise import SeededSource
from dpgrain.optimize import Logistic

Array = NDArray[Any]
Work = Callable[[], Any]

# Numbers of features per row of the table of rounds, chosen so that they do not fit into a cache.
NUMBERS = 20_000_000
SINGLE, DOUBLE = "float32", "float64"


@dataclass(frozen=True)
class Case:
    """Rows of one size of block.

    Args:
        rows: the number of rows.
        d: the number of features.
    """

    rows: int
    d: int
    size: int
    kind: str = DOUBLE

    @property
    def name(self) -> str:
        return f"{self.rows:>9,} × {self.d:<4} {self.size:>4} {self.kind}"

    def data(self) -> tuple[Array, Array, Array]:
        """Return (m, d) features, (m,) labels of 0 and 1, and (m,) the user of each row."""
        rng = np.random.default_rng(self.d)
        X = rng.standard_normal((self.rows, self.d), dtype=np.float32).astype(self.kind)
        margins = X @ (rng.normal(size=self.d) / np.sqrt(self.d)).astype(self.kind)
        y = (rng.random(self.rows) < 1 / (1 + np.exp(-margins))).astype(np.int64)
        # A user's rows are not adjacent.
        return X, y, rng.permutation(self.rows) // self.size


ROUNDS = [
    Case(NUMBERS // d, d, size, kind)
    for kind in (DOUBLE, SINGLE)
    for d in (10, 20, 100, 500)
    for size in (1, 5, 10, 20, 100)
]
FITS = [Case(1_000_000, 20, 10), Case(100_000, 500, 10)]
EXACT = [Case(200_000, 20, 10), Case(20_000, 200, 10)]
MEMORY = [
    Case(rows, d, 10, kind)
    for rows, d in ((1_000_000, 20), (100_000, 500))
    for kind in (DOUBLE, SINGLE)
]


def least(
    works: dict[str, Work], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the least seconds of each, which take turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            begin = clock()
            work()
            times[name].append(clock() - begin)
    return {name: min(taken) for name, taken in times.items()}


def closed_form(X: Array, y: Array, theta: Array) -> Work:
    """Return the gradient of the logistic loss on all rows, in one piece."""
    targets, weights = y.astype(X.dtype), theta.astype(X.dtype)

    def gradient() -> Array:
        slopes = X @ weights
        np.negative(slopes, out=slopes)
        np.exp(slopes, out=slopes)
        slopes += 1
        np.reciprocal(slopes, out=slopes)
        slopes -= targets
        found: Array = X.T @ slopes
        return found

    return gradient


def rounds(case: Case, repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Return the seconds of a round of ours, in floating point and exact, and of the closed form."""
    X, y, users = case.data()
    theta = np.random.default_rng(1).normal(size=case.d) * 0.5 / np.sqrt(case.d)
    blocks = LinearBlocks.arrange(X, y, users, intercept=False)
    gradients = LinearGradients(blocks, Logistic(), theta)
    some = gradients.vectors(np.arange(min(1000, blocks.blocks)))
    clip = float(np.median(np.linalg.norm(some, axis=1)))
    source = SeededSource(1)
    works: dict[str, Work] = {
        "closed form": closed_form(X, y, theta),
        "ours": lambda: LinearGradients(blocks, Logistic(), theta).clipped_sum(clip),
    }
    works["ours"]()
    found = least(works, repeats, clock)
    exact = {"exact": lambda: exactly_noised(gradients, clip, Gaussian(1.0), source)}
    return found | least(exact, max(2, repeats // 3), clock)


def model(*, exact: bool = False) -> LogisticRegression:
    """Return a model with the defaults."""
    return LogisticRegression(classes=[0, 1], random_state=1, exact=exact)


def fits(case: Case, repeats: int) -> dict[str, float]:
    """Return the seconds of a whole fit of ours and of scikit-learn's."""
    X, y, users = case.data()
    works: dict[str, Work] = {
        "scikit-learn": lambda: Peer().fit(X, y),
        "ours": lambda: model().fit(X, y, users=users),
    }
    return least(works, repeats)


def exact(case: Case, repeats: int) -> dict[str, float]:
    """Return the seconds of a whole fit in floating point, and with integers."""
    X, y, users = case.data()
    works: dict[str, Work] = {
        "default": lambda: model().fit(X, y, users=users),
        "exact": lambda: model(exact=True).fit(X, y, users=users),
    }
    return least(works, repeats)


def memory(case: Case) -> float:
    """Return the additional peak memory of a fit in this process over the bytes of the data."""
    # Late imports and NumPy's caches are loaded first.
    few = Case(2000, case.d, case.size, case.kind).data()
    model().fit(few[0], few[1], users=few[2])
    X, y, users = case.data()
    before = resident("VmRSS:")
    Path("/proc/self/clear_refs").write_text("5")
    model().fit(X, y, users=users)
    return (resident("VmHWM:") - before) / (X.nbytes + y.nbytes + users.nbytes)


def resident(which: str) -> float:
    """Return bytes of this process as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line.split()[1] for line in lines if line.startswith(which)))


def main() -> None:
    """Print one table for each part."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", default=["rounds", "fits", "exact", "memory"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="", help="rows of the table of rounds with these words")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.child is not None:
        print(json.dumps(memory(MEMORY[options.child])))
        return
    for threads in options.threads:
        with threadpool_limits(threads):
            _print_times(options.parts, threads, options.repeats, options.only)
    if "memory" in options.parts:
        print("\nmemory: peak of a fit beside the data ÷ data")
        for place, case in enumerate(MEMORY):
            command = [sys.executable, __file__, "--child", str(place)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"{case.name:36}{json.loads(done.stdout):8.2f}", flush=True)


def _print_times(parts: list[str], threads: int, repeats: int, only: str) -> None:
    """Print the tables of times with this number of threads."""
    if "rounds" in parts:
        print(f"\nrounds, {threads} thread(s): ours ÷ closed form; exact ÷ ours")
        for case in ROUNDS:
            if only in case.name:
                clock = time.process_time if threads == 1 else time.perf_counter
                found = rounds(case, repeats, clock)
                ours = found["ours"] / found["closed form"]
                more = found["exact"] / found["ours"]
                milliseconds = 1000 * found["closed form"]
                print(f"{case.name:36}{milliseconds:8.1f} ms{ours:8.2f}{more:8.2f}", flush=True)
    for part, cases, work in (("fits", FITS, fits), ("exact", EXACT, exact)):
        if part in parts:
            print(f"\n{part}, {threads} thread(s)")
            for case in cases:
                taken = work(case, max(1, repeats // 3))
                names = "".join(f"{name} {seconds:.2f} s, " for name, seconds in taken.items())
                base, ours = taken.values()
                print(f"{case.name:36}{names}{ours / base:.2f}", flush=True)


if __name__ == "__main__":
    main()
