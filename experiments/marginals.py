"""Root mean squared error of all pairs of columns, next to a row cap that is best in hindsight.

    python experiments/marginals.py [--only loans,retail] [--epsilons .5,1,3] [--releases 3]

Tables: the generated loans, and if DPGRAIN_DATA is set, an online shop, an IRC channel and the
speeches of the US House. Units are users, and elements (a month of a reader, a day of a customer or
writer, a year of a speaker). The other way uses the first rows of a unit in a random order, up to a
limit, and scales ResidualPlanner's noise by the limit, the sensitivity of a unit with this number
of equal rows. Its error is computed for every limit, and the best one in hindsight is shown. *Equal
noise* is the same with noise of one size in every cell, like private-pgm and OpenDP before any
estimation. ``dg.marginals`` chooses its bound within the budget; its error comes from whole
releases.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

import dpgrain as dg
from dpgrain._files import data_folder
from dpgrain.accounting import Contribution
from dpgrain.accounting.calibration import gaussian_multipliers
from dpgrain.datasets import loans
from dpgrain.statistics.residuals import Residuals

DELTA = 1e-6


@dataclass(frozen=True, eq=False)
class Data:
    """Rows with a user, an element and columns of small integers.

    Args:
        users: (m,) the user of each row.
        elements: (m,) the element.
        columns: the values of each column, from 0.
        sizes: the public number of values of each column.
    """

    users: Any
    elements: Any
    columns: dict[str, Any]
    sizes: dict[str, int]

    @property
    def table(self) -> dg.UserTable:
        """The table of the rows."""
        columns = {name: np.asarray(column) for name, column in self.columns.items()}
        rows = {"who": np.asarray(self.users), "part": np.asarray(self.elements), **columns}
        return dg.read(pa.table(rows), user="who")

    def pairs(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sums of weights in the cells of all pairs."""
        tables = []
        for one, two in itertools.combinations(self.columns, 2):
            key = np.asarray(self.columns[one]) * self.sizes[two] + np.asarray(self.columns[two])
            cells = self.sizes[one] * self.sizes[two]
            tables.append(np.bincount(key, weights=weights, minlength=cells))
        return np.concatenate(tables)


def bins(column: Any, edges: list[float]) -> Any:
    """The bin of each number; there is one more than edges."""
    return np.searchsorted(edges, np.asarray(column))


def codes(column: Any) -> Any:
    """A code of each value."""
    return pd.factorize(np.asarray(column))[0]


def library() -> Data:
    """The loans of 3,000 readers; an element is a month."""
    rows = loans(3000).to_pandas()
    day = pd.to_datetime(rows["day"]).dt
    return Data(
        rows["reader"],
        day.month,
        {
            "age": bins(rows["age"], [18, 30, 45, 65]),
            "subject": codes(rows["subject"]),
            "branch": codes(rows["branch"]),
            "month": day.month - 1,
            "weekday": day.day_of_week,
            "kept": bins(rows["days_kept"], [4, 8, 15, 22]),
            "late": rows["late"],
        },
        {"age": 5, "subject": 12, "branch": 6, "month": 12, "weekday": 7, "kept": 5, "late": 2},
    )


def shop() -> Data:
    """The sales of an online shop; an element is a day."""
    rows = pd.read_parquet(data_folder() / "online_retail.parquet")
    time = rows["time"].dt
    return Data(
        rows["user_id"],
        codes(time.date),
        {
            "country": codes(rows["country"]),
            "month": (time.year - 2010) * 12 + time.month - 12,
            "weekday": time.day_of_week,
            "hour": time.hour,
            "quantity": bins(rows["quantity"], [0, 1, 2, 6, 12, 24, 100]),
            "price": bins(rows["unit_price"], [0.5, 1, 2, 5, 10]),
            "cancelled": rows["cancelled"].astype(int),
        },
        {
            "country": 40,
            "month": 13,
            "weekday": 7,
            "hour": 24,
            "quantity": 8,
            "price": 6,
            "cancelled": 2,
        },
    )


def channel() -> Data:
    """The messages of an IRC channel; an element is a day."""
    rows = pd.read_parquet(data_folder() / "irc_ubuntu.parquet")
    date = rows["date"].dt
    return Data(
        rows["user_id"],
        codes(date.date),
        {
            "year": date.year - 2004,
            "month": date.month - 1,
            "weekday": date.day_of_week,
            "hour": rows["minute"] // 60,
            "bot": rows["is_bot"].astype(int),
            "tokens": bins(rows["n_tokens"], [1, 2, 5, 10, 20, 40]),
            "letters": bins(rows["text"].str.len(), [10, 20, 40, 80, 160]),
        },
        {"year": 15, "month": 12, "weekday": 7, "hour": 24, "bot": 2, "tokens": 7, "letters": 6},
    )


def congress() -> Data:
    """The speeches of the US House; an element is a year."""
    rows = pd.read_parquet(data_folder() / "congress_speeches.parquet")
    users = pd.read_parquet(data_folder() / "congress_users.parquet").set_index("user_id")
    state, date = (
        codes(users["state"].reindex(rows["user_id"]).fillna("")),
        pd.to_datetime(rows["date"]).dt,
    )
    return Data(
        rows["user_id"],
        date.year,
        {
            "state": state,
            "year": date.year - 2001,
            "month": date.month - 1,
            "weekday": date.day_of_week,
            "tokens": bins(rows["n_tokens"], [20, 50, 100, 200, 400]),
            "letters": bins(rows["text"].str.len(), [100, 300, 1000, 3000]),
            "question": rows["text"].str.contains(r"\?").astype(int),
        },
        {
            "state": int(state.max()) + 1,
            "year": 21,
            "month": 12,
            "weekday": 7,
            "tokens": 6,
            "letters": 5,
            "question": 2,
        },
    )


TABLES: dict[str, Callable[[], Data]] = {
    "loans": library,
    "retail": shop,
    "IRC": channel,
    "congress": congress,
}


def energies(data: Data) -> list[float]:
    """The squared noise of all answers for one row, of ResidualPlanner and of equal noise."""
    sizes = list(data.sizes.values())
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    equal = len(pairs) * sum(sizes[i] * sizes[j] for i, j in pairs)
    return [float(Residuals.create(sizes, pairs).noise_energy()[0]), float(equal)]


def capped_error(data: Data, unit: Any, epsilon: float, energy: float) -> tuple[float, int]:
    """The error of the best row cap, and the cap."""
    (noise,) = gaussian_multipliers(epsilon, DELTA, [Contribution("user")], [1.0])
    energy *= noise**2
    rng = np.random.default_rng(0)
    order = rng.permutation(unit.size)
    order = order[np.argsort(unit[order], kind="stable")]
    lengths = np.bincount(unit)
    place = np.empty(unit.size, dtype=np.int64)
    place[order] = np.arange(unit.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    right = data.pairs(np.ones(unit.size))
    best = math.inf, 0
    for cap in sorted({int(1.25**k) for k in range(45)}):
        lost = ((data.pairs((place < cap).astype(np.float64)) - right) ** 2).sum()
        best = min(best, (math.sqrt((lost + energy * cap**2) / right.size), cap))
        if cap > lengths.max():
            break
    return best


def released_error(
    data: Data, unit: Any, epsilon: float, releases: int
) -> tuple[float, float, float]:
    """The mean error of releases, with the last bound and share of clipped units."""
    right, errors = data.pairs(np.ones(len(data.users))), []
    domain = {name: list(range(size)) for name, size in data.sizes.items()}
    for seed in range(releases):
        release = dg.marginals(
            data.table, list(domain), domain=domain, unit=unit, epsilon=epsilon, delta=DELTA,
            random_state=seed, progress=False,
        )  # fmt: skip
        errors.append(((release.estimate - right) ** 2).mean())
    return math.sqrt(np.mean(errors)), float(release.clip[0]), release.clipped_share or 0.0


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(TABLES))
    parser.add_argument("--epsilons", default=".5,1,3")
    parser.add_argument("--releases", type=int, default=3)
    options = parser.parse_args()
    print("| table | unit | ε | row cap | equal noise | dg.marginals | ratio | to equal noise |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for name in options.only.split(","):
        data = TABLES[name]()
        parts = {
            "user": (dg.User(), codes(data.users)),
            "element": (
                dg.Element("part"),
                codes(pd.MultiIndex.from_arrays([data.users, data.elements])),
            ),
        }
        for (title, (unit, place)), epsilon in itertools.product(
            parts.items(), map(float, options.epsilons.split(","))
        ):
            (other, cap), (equal, most) = (
                capped_error(data, place, epsilon, energy) for energy in energies(data)
            )
            ours, bound, share = released_error(data, unit, epsilon, options.releases)
            print(
                f"| {name} | {title} | {epsilon:g} | {other:,.1f} (cap {cap}) "
                f"| {equal:,.1f} (cap {most}) | {ours:,.1f} (bound {bound:.3g}, {share:.1%} clipped) "
                f"| {ours / other:.2f} | {ours / equal:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
