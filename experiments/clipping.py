"""Quality of privately chosen clipping bounds, and of the published statements on them.

Every table of the folder is cut into cells, and every cell into blocks, the data of one user in it.
Bounds are chosen from the norms of the blocks like in the library, and like in its earlier version;
noise is added like in a release, in floating point. The error of a cell's total is T(r)² +
m(r·nm)², with T the loss of clipping at r, m the number of the cell's items, and nm the remaining
noise multiplier of the sums. Its root mean square over several runs is divided by the error of the
best bound in hindsight, at least the lowest, with the whole budget.

    python experiments/clipping.py [--runs 5] [--quick] [--all]

The tables are read from the folder in DPGRAIN_DATA; their norms are cached in a temporary folder
between runs. It takes a minute on two cores, and two with --all, which adds every word of the
texts.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.special import ndtri

from dpgrain._files import data_folder
from dpgrain.accounting import Contribution
from dpgrain.accounting.calibration import gaussian_multipliers
from dpgrain.errors import DataError
from dpgrain.statistics.bounds import (
    POOL_MOST,
    POOLED_EDGES,
    AutoClip,
    ChosenBounds,
    RoughBounds,
    choose_bounds,
    pooled_bounds,
    rough_bounds,
)

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

DELTA = 1e-8
EPSILONS = (0.3, 1.0, 3.0)
FILES = (
    "congress_word_counts.parquet",
    "irc_ubuntu.parquet",
    "online_retail.parquet",
    "oulad_assessments.parquet",
    "baseball_plate_appearances.parquet",
    "fitbit_hourly.parquet",
)
# The smallest clipping bound of interest, in all tables.
LOW = 1.0
# A ratio above this is a failure.
FAILURE = 10.0
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_HASH = 2_654_435_761


# Blocks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Norms:
    """The norms of the blocks of one table, sorted by cell.

    Args:
        user: (blocks,) a user, from 0.
        cell: (blocks,) a cell, from 0.
        norm: (blocks,) the l2 norm of the user's data in the cell; positive.
        coordinates: (K,) the number of items in each cell.
    """

    name: str
    user: IntArray
    cell: IntArray
    norm: FloatArray
    coordinates: IntArray

    @property
    def cells(self) -> int:
        """The number of cells K."""
        return self.coordinates.size

    def counts(self, edges: FloatArray) -> FloatArray:
        """Return the number of blocks by cell and norm, (K, bins)."""
        bins = edges.size - 1
        index = np.minimum(np.searchsorted(edges[1:], self.norm), bins - 1)
        rows = np.bincount(self.cell * bins + index, minlength=self.cells * bins)
        return np.asarray(rows.reshape(self.cells, bins), dtype=np.float64)

    def pooled(self, rough: RoughBounds, most: int) -> FloatArray:
        """Return the weighted number of blocks by pool and norm ÷ rough bound, (pools, bins).

        Args:
            rough: the rough bounds and their pools.
            most: a bin counts at most this number of blocks of one user.
        """
        bins, size = POOLED_EDGES.size - 1, rough.pools * (POOLED_EDGES.size - 1)
        relative = self.norm / rough.bounds[self.cell]
        index = np.minimum(np.searchsorted(POOLED_EDGES, relative) - 1, bins - 1)
        inside = np.flatnonzero(index >= 0)
        place = rough.pool[self.cell[inside]] * bins + index[inside]
        weight = rough.weight[self.cell[inside]] / 1024
        order = np.argsort(self.user[inside] * size + place, kind="stable")
        owner = (self.user[inside] * size + place)[order]
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        if not starts.size:
            return np.zeros((rough.pools, bins))
        held = np.minimum(np.add.reduceat(weight[order], starts), most)
        rows = np.bincount(owner[starts] % size, held, minlength=size)
        return np.asarray(rows.reshape(rough.pools, bins))

    def lost(self, bounds: FloatArray) -> FloatArray:
        """Return the clipping loss of each cell's total, (K,), if it affects one item."""
        over = np.maximum(self.norm - bounds[self.cell], 0.0)
        return np.asarray(np.bincount(self.cell, over, minlength=self.cells), dtype=np.float64)

    def squared_errors(self, bounds: FloatArray, noise_multiplier: float) -> FloatArray:
        """Return the expected squared error of each cell's total, (K,)."""
        noise = self.coordinates * (bounds * noise_multiplier) ** 2
        return np.asarray(self.lost(bounds) ** 2 + noise)

    @cached_property
    def _from_here_up(self) -> tuple[FloatArray, FloatArray]:
        """The number and the sum of the norms of the same cell from each block up."""
        ends = np.searchsorted(self.cell, np.arange(self.cells), side="right")[self.cell]
        sums = np.concatenate([[0.0], np.cumsum(self.norm)])
        number = np.asarray(ends - np.arange(self.norm.size), dtype=np.float64)
        return number, np.asarray(sums[ends] - sums[:-1])

    def least_errors(self, noise_multiplier: float) -> FloatArray:
        """Return the squared errors at the best bounds in hindsight, (K,)."""
        number, total = self._from_here_up
        noise = self.coordinates[self.cell] * noise_multiplier**2
        best = np.full(self.cells, LOW)
        np.maximum.at(best, self.cell, np.minimum(self.norm, total * number / (number**2 + noise)))
        return self.squared_errors(best, noise_multiplier)

    @staticmethod
    def of(name: str, user: Any, cell: Any, item: Any, amount: Any, coordinates: Any) -> Norms:
        """Add amounts up by user and item, and take norms by user and cell, without empty cells."""
        user, item = _codes(user), np.asarray(item, dtype=np.int64)
        pair, first, place = np.unique(user << 32 | item, return_index=True, return_inverse=True)
        squares = np.bincount(place, np.asarray(amount, dtype=np.float64)) ** 2
        cells = np.asarray(cell, dtype=np.int64)[first]
        block, inverse = np.unique((pair >> 32) << 32 | cells, return_inverse=True)
        norm = np.sqrt(np.bincount(inverse, squares))
        block, norm = block[norm > 0], norm[norm > 0]
        kept, cell_code = np.unique(block & 0xFFFFFFFF, return_inverse=True)
        order = np.lexsort((norm, cell_code))
        return Norms(
            name,
            (block >> 32)[order],
            cell_code[order],
            norm[order],
            np.asarray(coordinates, dtype=np.int64)[kept],
        )


def _codes(values: Any) -> IntArray:
    """Return values as whole numbers from 0, in their order."""
    return np.asarray(np.unique(np.asarray(values), return_inverse=True)[1], dtype=np.int64)


def _of_items(name: str, user: Any, item: Any, amount: Any) -> Norms:
    """Cells of one item each."""
    item = np.asarray(item, dtype=np.int64)
    return Norms.of(name, user, item, item, amount, np.ones(item.max() + 1))


def _of_groups(name: str, user: Any, item: Any, group: IntArray, amount: Any) -> Norms:
    """Cells of several items, the items of a group."""
    return Norms.of(name, user, group[item], item, amount, np.bincount(group))


def _clusters(items: int, cells: int) -> IntArray:
    """Return a cluster for each item, by a hash of its number."""
    return np.asarray((np.arange(items) * _HASH % 2**32 * cells) >> 32, dtype=np.int64)


# Tables ----------------------------------------------------------------------------------------


def congress(folder: Path) -> Iterator[Norms]:
    """Words of members of the US House."""
    table = pq.read_table(folder / "congress_word_counts.parquet")
    user, word, count = (table[name].to_numpy() for name in ("user_id", "word_id", "count"))
    yield from _of_words("congress", user, word.astype(np.int64), count)


def irc(folder: Path) -> Iterator[Norms]:
    """Words of a public chat."""
    table = pq.read_table(folder / "irc_ubuntu.parquet", columns=["user_id", "text"])
    said = [_WORD.findall(text.lower()) for text in table["text"].to_pylist()]
    user = np.repeat(table["user_id"].to_numpy(), [len(words) for words in said])
    words = pa.array([word for words in said for word in words]).dictionary_encode()
    code = words.indices.to_numpy()
    rank = np.argsort(np.argsort(-np.bincount(code), kind="stable"))
    yield from _of_words("irc", user, rank[code], np.ones(code.size))


def _of_words(name: str, user: Any, word: IntArray, count: Any) -> Iterator[Norms]:
    """The 1,000 most frequent words, clusters of 20,000, all 20,000, and all words as one."""
    few, many = word < 1000, word < 20_000
    yield _of_items(f"{name}: words", user[few], word[few], count[few])
    user, word, count = user[many], word[many], count[many]
    for cells in (100, 1000):
        clusters = _clusters(20_000, cells)
        yield _of_groups(f"{name}: {cells} clusters", user, word, clusters, count)
    yield _of_items(f"{name}: tokens", user, np.zeros(word.size), count)
    yield _of_items(f"{name}: all words", user, word, count)


def retail(folder: Path) -> Iterator[Norms]:
    """Items, groups of items, countries and spending of the customers of a shop."""
    table = pq.read_table(folder / "online_retail.parquet")
    user = table["user_id"].to_numpy()
    codes, names = _codes(table["item_id"].to_pylist()), table["item_id"].unique().to_pylist()
    quantity = np.maximum(table["quantity"].to_numpy(), 0)
    spent = quantity * table["unit_price"].to_numpy()
    group = _codes([name[:2] for name in sorted(names)])
    yield _of_items("retail: items", user, codes, quantity)
    yield _of_items("retail: lines", user, codes, np.ones(codes.size))
    yield _of_items("retail: spent on items", user, codes, spent)
    yield _of_groups("retail: groups", user, codes, group, quantity)
    yield _of_items("retail: countries", user, _codes(table["country"].to_pylist()), spent)
    yield _of_items("retail: spent", user, np.zeros(codes.size), spent)


def oulad(folder: Path) -> Iterator[Norms]:
    """Scores and assessments of students."""
    table = pq.read_table(folder / "oulad_assessments.parquet")
    table = table.filter(pc.is_valid(table["score"]))
    user, one = table["user_id"].to_numpy(), np.ones(table.num_rows)
    assessment, score = _codes(table["id_assessment"].to_numpy()), table["score"].to_numpy()
    yield _of_items("oulad: scores", user, assessment, score)
    yield _of_items("oulad: regions", user, _codes(table["region"].to_pylist()), one)
    yield _of_items("oulad: ages", user, _codes(table["age_band"].to_pylist()), one)
    yield _of_items("oulad: assessments", user, np.zeros(one.size), one)


def baseball(folder: Path) -> Iterator[Norms]:
    """Plate appearances of batters."""
    table = pq.read_table(folder / "baseball_plate_appearances.parquet")
    user, one = table["user_id"].to_numpy(), np.ones(table.num_rows)
    yield _of_items("baseball: pitchers", user, _codes(table["pitcher"].to_pylist()), one)
    yield _of_items("baseball: outcomes", user, _codes(table["outcome"].to_pylist()), one)
    yield _of_items("baseball: bats", user, _codes(table["bats"].to_pylist()), one)
    yield _of_items("baseball: appearances", user, np.zeros(one.size), one)


def fitbit(folder: Path) -> Iterator[Norms]:
    """Steps of 33 people by hour and by day of the week."""
    table = pq.read_table(folder / "fitbit_hourly.parquet")
    user, steps = table["user_id"].to_numpy(), table["steps"].to_numpy()
    hour, day = (table[name].to_numpy().astype(np.int64) for name in ("hour", "weekday"))
    yield _of_items("fitbit: hours of the week", user, hour + 24 * day, steps)
    yield _of_items("fitbit: calories by hour", user, hour, table["calories"].to_numpy())
    yield _of_items("fitbit: days", user, day, steps)


TABLES: tuple[Callable[[Path], Iterator[Norms]], ...] = (
    congress,
    irc,
    retail,
    oulad,
    baseball,
    fitbit,
)


def tables(folder: Path, *, whole: bool) -> list[Norms]:
    """Return the norms of all tables, from the cache in the temporary folder if possible."""
    kept = Path(tempfile.gettempdir()) / "dpgrain-clipping-norms"
    kept.mkdir(exist_ok=True)
    found = []
    for read in TABLES:
        file = kept / f"{read.__name__}.npz"
        if not file.exists():
            _progress(f"reading {read.__name__}")
            np.savez(file, *(_packed(norms) for norms in read(folder)))
        with np.load(file, allow_pickle=True) as arrays:
            found += [Norms(*arrays[name]) for name in arrays.files]
    return [norms for norms in found if whole or not norms.name.endswith("all words")]


def _packed(norms: Norms) -> NDArray[Any]:
    """Return the fields as one array of objects."""
    fields = (norms.name, norms.user, norms.cell, norms.norm, norms.coordinates)
    packed = np.empty(len(fields), dtype=object)
    packed[:] = fields
    return packed


# Methods ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """The choices of one run of a method.

    Args:
        chosen: the bounds, and the published statements on them.
    """

    chosen: ChosenBounds
    noise_multiplier: float


Method: TypeAlias = Callable[[Norms, float, np.random.Generator], Outcome]


def mu_of(epsilon: float) -> float:
    """Return the μ of exact Gaussian noise for one removed block."""
    return 1 / gaussian_multipliers(epsilon, DELTA, [Contribution()], [1.0])[0]


def _noisy(counts: FloatArray, sd: float, rng: np.random.Generator) -> FloatArray:
    return counts + rng.normal(0.0, sd, counts.shape)


def new(norms: Norms, mu: float, rng: np.random.Generator) -> Outcome:
    """Choose like the library: one query per cell, and one shared by ten cells or more."""
    rule = AutoClip(low=LOW)
    own, pooled = rule.shares(one_bound=norms.cells == 1, cells=norms.cells)
    left = 1 / (mu * math.sqrt(1 - own - pooled))
    edges, sd = rule.edges(cells=norms.cells), 1 / (mu * math.sqrt(own))
    counts = _noisy(norms.counts(edges), sd, rng)
    if not pooled:
        return Outcome(choose_bounds(counts, edges, sd, norms.coordinates, left), left)
    rough = rough_bounds(counts, edges, sd, norms.coordinates, left)
    row_sd = 1 / (mu * math.sqrt(pooled))
    rows = _noisy(norms.pooled(rough, min(POOL_MOST, norms.cells)), row_sd, rng)
    chosen = pooled_bounds(rough, rows, row_sd, norms.coordinates, left, LOW)
    return Outcome(chosen, left)


def before(norms: Norms, mu: float, rng: np.random.Generator) -> Outcome:
    """Choose like the earlier library: by cell, 10% of the budget for one bound, else 25%."""
    share = 0.1 if norms.cells == 1 else 0.25
    left, sd = 1 / (mu * math.sqrt(1 - share)), 1 / (mu * math.sqrt(share))
    edges = LOW * 4.0 ** np.arange(14.0)
    counts = _noisy(norms.counts(edges), sd, rng)
    bounds = _bounds_before(counts, edges, sd, norms.coordinates, left)
    return Outcome(ChosenBounds(bounds, np.ones(bounds.size, dtype=np.bool_)), left)


def _bounds_before(
    noisy_counts: FloatArray,
    edges: FloatArray,
    count_sd: float,
    coordinates: IntArray,
    noise_multiplier: float,
) -> FloatArray:
    """Return the bounds of the earlier library, unchanged."""
    cells, bins = noisy_counts.shape
    bounds = np.full(cells, edges[0])
    top = _top_before(noisy_counts / count_sd)
    if cells == 1 and top[0] < 0:
        return np.asarray(edges[1 + noisy_counts.argmax(axis=1)], dtype=np.float64)
    rows = np.flatnonzero(top >= 0)
    middle = (np.arange(bins * 4) + 0.5) / (bins * 4)
    points = (edges[0] * (edges[-1] / edges[0]) ** middle)[::-1]
    index = np.arange(bins)
    counts, last = noisy_counts[rows], top[rows, None]
    kept = np.where(index <= last, np.maximum(counts, 0.0), 0.0)
    most = np.take_along_axis(kept, last, axis=1)
    excess = np.clip(counts - 2 * count_sd, 0.0, most)
    kept = np.where(index == last + 1, excess, kept)
    mass = np.repeat(kept / 4, 4, axis=1)[:, ::-1]
    number, total = np.cumsum(mass, axis=1), np.cumsum(mass * points, axis=1)
    noise = (coordinates[rows] * noise_multiplier**2)[:, None]
    best = total * number / np.maximum(number**2 + noise, np.finfo(np.float64).tiny)
    bounds[rows] = np.minimum(points, best).max(axis=1)
    return np.asarray(np.maximum(bounds, edges[0]))


def _top_before(scores: FloatArray) -> IntArray:
    """Return the top bin of each cell as the library found it before; −1 for none."""
    cells = len(scores)
    top = np.full(cells, -1, dtype=np.int64)
    sure = np.flatnonzero((scores > -ndtri(1e-6 / max(scores.size, 1))).any(axis=0))
    if sure.size == 0:
        return top
    levels = -ndtri(0.01 * np.arange(1, cells + 1) / cells)
    for b in range(int(sure[-1]) + 1):
        column = scores[:, b]
        ranked = np.sort(column[column >= levels[-1]])[::-1]
        passed = np.flatnonzero(ranked >= levels[: ranked.size])
        if passed.size:
            top[column >= levels[passed[-1]]] = b
    return top


# Measurements -----------------------------------------------------------------------------------


def ratios(norms: Norms, mu: float, outcomes: Sequence[Outcome]) -> FloatArray:
    """Return the root mean squared error of each cell over the best bound's, (K,)."""
    errors = np.zeros(norms.cells)
    for outcome in outcomes:
        bounds = np.maximum(outcome.chosen.bounds, LOW)
        errors += norms.squared_errors(bounds, outcome.noise_multiplier) / len(outcomes)
    return np.asarray(np.sqrt(errors / norms.least_errors(1 / mu)))


@dataclass(frozen=True)
class Spread:
    """How the ratios of the cells of a table spread."""

    median: float
    mean: float
    q90: float
    q99: float
    largest: float
    failures: float

    @staticmethod
    def of(ratio: FloatArray) -> Spread:
        """Summarise the ratios of cells."""
        median, q90, q99 = np.quantile(ratio, [0.5, 0.9, 0.99])
        share = float((ratio > FAILURE).mean())
        return Spread(float(median), float(ratio.mean()), q90, q99, float(ratio.max()), share)

    def __str__(self) -> str:
        numbers = "/".join(
            f"{number:.2f}" if number < FAILURE else f"{number:,.0f}"
            for number in (self.median, self.mean, self.q90, self.q99)
        )
        return f"{numbers} max {self.largest:,.1f} ({self.failures:.2%})"


@dataclass(frozen=True)
class Said:
    """Whether what is published is true: shares over the cells and runs of a table.

    Args:
        capped: the clipped total is within est ± 1.96 s.
        least: the true total is at least est − 1.64 s.
        most: the true total of a visible cell is at most est + 1.96 s + 5 s.
        above: the true share of blocks above their bound, and the published lower limit on it.
        lost: the share of the sum of norms that clipping takes.
    """

    capped: float
    least: float
    most: float
    seen: float
    above: tuple[float, float]
    lost: float

    def __str__(self) -> str:
        above = "/".join(f"{100 * x:.1f}" for x in self.above)
        covered = " ".join(
            f"{100 * x:.1f}" for x in (self.capped, self.least, self.most, self.seen)
        )
        return f"{covered} | {above} | {100 * self.lost:.1f}"


def said(norms: Norms, outcomes: Sequence[Outcome], rng: np.random.Generator) -> Said:
    """Add noise to the totals of cells of one item, and check the published statements."""
    total = np.bincount(norms.cell, norms.norm, minlength=norms.cells)
    capped, least, most, seen, above, lost = [], [], [], [], [], []
    for outcome in outcomes:
        chosen = outcome.chosen
        rest = norms.lost(chosen.bounds)
        sd = outcome.noise_multiplier * chosen.bounds
        noise = sd * rng.normal(size=norms.cells)
        estimate = total - rest + noise
        capped.append(np.abs(noise) <= 1.96 * sd)
        least.append(total >= estimate - 1.64 * sd)
        most.append((total <= estimate + 6.96 * sd)[chosen.seen])
        seen.append(chosen.seen)
        over = float((norms.norm > chosen.bounds[norms.cell]).mean())
        above.append((over, chosen.clipped))
        lost.append(float(rest.sum() / norms.norm.sum()))
    upper = np.concatenate(most)
    return Said(
        float(np.mean(capped)),
        float(np.mean(least)),
        float(upper.mean()) if upper.size else math.nan,
        float(np.mean(seen)),
        _means(above),
        float(np.mean(lost)),
    )


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the means of true and published values, over the runs that publish them."""
    kept = [pair for pair in pairs if not math.isnan(pair[1])]
    if not kept:
        return float(np.mean([true for true, _ in pairs])), math.nan
    return float(np.mean([true for true, _ in kept])), float(np.mean([one for _, one in kept]))


def price(cells: int) -> float:
    """Return the largest μ(k) ÷ (√k·μ(1)) over all numbers k of one person's elements, zero_out."""
    _, pooled = AutoClip().shares(one_bound=cells == 1, cells=cells)
    k, most = np.arange(1, cells + 1), min(POOL_MOST, cells)
    moved = most**2 * (k // most) + (k % most) ** 2
    return float(np.sqrt(1 + pooled * (moved / k - 1)).max())


def _progress(text: str) -> None:
    """Show what is being done in one line on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def report(found: Sequence[Norms], epsilons: Sequence[float], runs: int) -> None:
    """Print both tables: how good the bounds are, and whether what is published is true."""
    pooled: dict[str, list[FloatArray]] = {"before": [], "new": []}
    published: list[str] = []
    print(
        f"δ = {DELTA:g}, zero_out, {runs} runs: median/mean/q90/q99 max (share above {FAILURE:g})"
    )
    for norms in found:
        for epsilon in epsilons:
            _progress(f"{norms.name}, ε = {epsilon:g}")
            mu, row = mu_of(epsilon), []
            for name, method in (("before", before), ("new", new)):
                rng = np.random.default_rng([runs, norms.cells, round(10 * epsilon)])
                outcomes = [method(norms, mu, rng) for _ in range(runs)]
                ratio = ratios(norms, mu, outcomes)
                row.append(str(Spread.of(ratio)))
                if norms.cells > 1:
                    pooled[name].append(ratio)
            _progress("")
            print(f"{norms.name:<26} {norms.cells:>6} {epsilon:>4g} | {row[0]:<44} | {row[1]}")
            if (norms.coordinates == 1).all():
                truth = said(norms, outcomes, rng)
                published.append(f"{norms.name:<26} {norms.cells:>6} {epsilon:>4g} | {truth}")
    for name, all_ratios in pooled.items():
        print(f"all cells of several, {name}: {Spread.of(np.concatenate(all_ratios))}")
    print("\nWhat is published, in %: capped ±1.96s, at least, at most, seen | above | lost")
    print("\n".join(published))
    prices = ", ".join(
        f"{price(cells):.3f} (K = {cells:,})" for cells in (10, 37, 188, 1000, 20_000)
    )
    print(f"\nThe price of k elements of one person, over √k, at most: {prices}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the tables, and print the requested results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5, help="runs of each method")
    parser.add_argument("--quick", action="store_true", help="two runs, one ε, small tables")
    parser.add_argument("--all", action="store_true", help="also every word of the two texts")
    given = parser.parse_args(arguments)
    folder = data_folder(*FILES)
    found = tables(folder, whole=given.all and not given.quick)
    if given.quick:
        found = [norms for norms in found if norms.norm.size < 200_000]
    report(found, (1.0,) if given.quick else EPSILONS, 2 if given.quick else given.runs)


if __name__ == "__main__":
    try:
        main()
    except DataError as error:
        raise SystemExit(str(error)) from None
