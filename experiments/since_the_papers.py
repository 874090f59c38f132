"""Means of users beside two estimators that appeared after the papers, in hindsight.

    python experiments/since_the_papers.py [--seeds 9] [--plot docs/pictures/since-the-papers.png]

The median distance to the users' sample mean, n = 3,000 users with m records each in d = 30
coordinates: normal ones with variance 1, and Student's t with 3 degrees of freedom of the same
variance. ε = 1, δ = 1e-6, one user's data replaced. ``auto`` and the soft core are private for any
data and know only a bound. The Huberized mean (Zhao et al. 2024) and the tested mean (Bassily and
Sun 2023) are idealized, so that their errors are lower limits: they know the radius, their noise is
that of the local sensitivity, and the test and the centre of the second are free. In about 2% of
runs the check of ``auto`` raises a false alarm, and it clips to the bound. Two minutes.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import baselines as bl
import numpy as np
from numpy.typing import NDArray

import dpgrain as dg

Array = NDArray[np.float64]

USERS, DIMENSION, EPSILON, DELTA, FREEDOM = 3000, 30, 1.0, 1e-6, 3
RECORDS = (1, 3, 10, 30, 100)
METHODS = ("auto", "softcore", "Huberized mean", "tested mean")
RECORDED = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Cell:
    """One method on one law.

    Args:
        law: the distribution of records.
        records: m.
        method: the mean.
        error: the median distance to the sample mean.
    """

    law: str
    records: int
    method: str
    error: float


def draw(law: str, records: int, seed: int) -> tuple[Array, Array]:
    """Users' means, (n, d), and the true mean."""
    rng, centre = np.random.default_rng((records, seed)), np.ones(DIMENSION)
    if law == "normal":
        away = rng.normal(scale=1 / math.sqrt(records), size=(USERS, DIMENSION))
    else:
        scale = 1 / math.sqrt(FREEDOM / (FREEDOM - 2))
        away = np.zeros((USERS, DIMENSION))
        for _ in range(records):
            away += scale / records * rng.standard_t(FREEDOM, size=away.shape)
    return centre + away, centre


def released(method: str, vectors: Array, centre: Array, records: int, seed: int) -> Array:
    """One release."""
    radius = bl.gaussian_radius(USERS, records, DIMENSION, 0.01)
    rng = np.random.default_rng(seed)
    match method:
        case "Huberized mean":
            return bl.huberized(vectors, EPSILON, DELTA, "replace", rng, radius=radius)
        case "tested mean":
            return bl.tested(vectors, EPSILON, DELTA, "replace", rng, centre=centre, radius=radius)
        case _:
            found = dg.mean_of_users(
                vectors, bound=10 * math.sqrt(DIMENSION), method=method, epsilon=EPSILON,
                delta=DELTA, relation="replace", n_users=USERS, random_state=seed,
                radius=radius if method == "softcore" else None,
            )  # fmt: skip
            return np.asarray(found.value)


def measured(law: str, records: int, method: str, seeds: int) -> Cell:
    """The error of a method, over data and noise."""
    distances = []
    for seed in range(seeds):
        vectors, centre = draw(law, records, seed)
        value = released(method, vectors, centre, records, 1000 * records + seed)
        distances.append(float(np.linalg.norm(value - vectors.mean(axis=0))))
    return Cell(law, records, method, float(np.median(distances)))


def recorded() -> list[Cell]:
    """Cells of the recorded run."""
    return [Cell(**one) for one in json.loads(RECORDED.read_text(encoding="utf-8"))]


def plot(path: Path, cells: Sequence[Cell]) -> None:
    """One panel for each law."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    laws = list(dict.fromkeys(cell.law for cell in cells))
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for panel, law in zip(panels, laws, strict=True):
        for method in METHODS:
            some = [cell for cell in cells if (cell.law, cell.method) == (law, method)]
            ideal = method.endswith("mean")
            label = f"{method} (idealized)" if ideal else method
            at = [cell.records for cell in some], [cell.error for cell in some]
            panel.plot(*at, "--" if ideal else "-", marker=".", label=label)
        panel.set(xscale="log", yscale="log", xlabel="records of a user m", title=law)
    panels[0].set_ylabel("median distance to the sample mean")
    panels[0].legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, record, print and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RECORDED)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    laws, found = ("normal", "Student's t, 3 degrees"), list[Cell]()
    for law in laws:
        for records in RECORDS:
            for method in METHODS:
                found.append(measured(law, records, method, given.seeds))
                print(found[-1], flush=True)
    given.out.write_text(json.dumps([asdict(cell) for cell in found], indent=1) + "\n")
    if given.plot:
        plot(given.plot, found)


if __name__ == "__main__":
    main()
