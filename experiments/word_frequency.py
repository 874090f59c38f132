"""How accurate element-level histograms are: Section 4.1 and Propositions 1 and 2 of the paper.

Three parts; each prints a table and writes it as CSV with a figure:

- ``words``: the word counts of members of the US House, at six partitions of the vocabulary:
  clipping bounds chosen privately, one per cell, against the paper's single ρ at its best; and
  their free post-processing;
- ``order``: Proposition 1, the order of items by number of users;
- ``errors``: Proposition 2, the squared error of mechanism (9) compared with its two expressions.

``dpgrain.histogram`` computes every private answer. Its noise follows the exact Gaussian curve; the
paper's Lemmas 3.1(ii) and 3.2(ii) claim too much. Random numbers are seeded, so results repeat
exactly; a seeded release is not private.

    python experiments/word_frequency.py [--splits 20] [--out experiments/out] [--only words]

The word counts are read from the folder that DPGRAIN_DATA names.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from results import show, track, write
from scipy.optimize import brentq

import dpgrain as dg
from dpgrain._files import data_folder
from dpgrain.accounting import Contribution, calibrate_gaussian
from dpgrain.errors import DataError
from dpgrain.statistics.shrinkage import shrink

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

DELTA = 1e-6
EPSILONS = (0.3, 1.0, 3.0)
FILES = ("congress_word_counts.parquet", "congress_vocab.parquet", "glove_twitter_25d_12k.npz")
# The paper's error bands.
_BAND = 1.64


# Words -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WordCounts:
    """Number of uses of each word by each user.

    Args:
        words: (V,) the public vocabulary.
        vectors: (V, dimensions) public vectors of the words.
        user: (pairs,) a user, 0 … n_users − 1.
        word: (pairs,) a word, as a position in ``words``.
        count: (pairs,) the user's number of uses of the word.
    """

    words: list[str]
    vectors: FloatArray
    user: IntArray
    word: IntArray
    count: IntArray
    n_users: int

    @staticmethod
    def read(folder: Path) -> WordCounts:
        """The members of the House and the words with a public vector; all of them are used."""
        counts, vocabulary = (pq.read_table(folder / name) for name in FILES[:2])
        glove = np.load(folder / FILES[2])
        words = glove["words"].tolist()
        code = pc.index_in(vocabulary["word"], value_set=pa.array(words)).fill_null(-1)
        code_of = np.full(pc.max(vocabulary["word_id"]).as_py() + 1, -1)
        code_of[vocabulary["word_id"].to_numpy()] = code.to_numpy()
        word = code_of[counts["word_id"].to_numpy()]
        kept = word >= 0
        user = counts["user_id"].to_numpy().astype(np.int64)
        n_users = int(user.max()) + 1
        count = counts["count"].to_numpy().astype(np.int64)
        vectors = glove["vectors"].astype(np.float64)
        return WordCounts(words, vectors, user[kept], word[kept], count[kept], n_users)

    def table(self, users: BoolArray) -> dg.UserTable:
        """The rows of some users, as callers pass them to the library."""
        rows = users[self.user]
        word = pa.array(self.words).take(pa.array(self.word[rows]))
        columns = {"user": self.user[rows], "word": word, "count": self.count[rows]}
        return dg.read(pa.table(columns), user="user", n_users=int(users.sum()))

    def matrix(self) -> FloatArray:
        """(users, V) the counts."""
        matrix = np.zeros((self.n_users, len(self.words)))
        np.add.at(matrix, (self.user, self.word), self.count)
        return matrix

    def partition(self, cells: int) -> tuple[dg.Element, IntArray]:
        """The unit with this number of cells of similar words, and (V,) the cell of each word."""
        if cells >= len(self.words):
            return dg.Element("word"), np.arange(len(self.words))
        if cells == 1:
            elements = dg.Elements.from_mapping(dict.fromkeys(self.words, 0))
        else:
            elements = dg.Elements.kmeans(self.vectors, cells, items=self.words, random_state=0)
        labels = [elements.cell(word) for word in self.words]
        return dg.Element(elements), np.unique(np.array(labels), return_inverse=True)[1]


@dataclass(frozen=True)
class Halves:
    """Random halves of the users: S0 is the truth, S1 is released.

    Args:
        released: (splits, users) who is in S1.
        truth: (splits, V) H0, the mean counts of S0.
        baseline: (splits,) ‖H1 − H0‖², the error of publishing S1 exactly.
    """

    released: BoolArray
    truth: FloatArray
    baseline: FloatArray

    @staticmethod
    def of(matrix: FloatArray, splits: int, *, seed: int = 2024) -> Halves:
        users = len(matrix)
        generator = np.random.default_rng(seed)
        released = np.zeros((splits, users), dtype=np.bool_)
        for row in released:
            row[generator.permutation(users)[: users // 2]] = True
        size = users // 2
        truth = ~released @ matrix / (users - size)
        baseline = ((released @ matrix / size - truth) ** 2).sum(axis=1)
        return Halves(released, truth, baseline)

    @property
    def size(self) -> int:
        """Users in S1."""
        return int(self.released[0].sum())

    def ratio(self, split: int, sums: FloatArray) -> float:
        """The error of estimated sums over the baseline, the ordinate of the paper's Figure 2."""
        error = sums / self.size - self.truth[split]
        return float((error**2).sum() / self.baseline[split])


@dataclass(frozen=True)
class WordRow:
    """One partition and one ε; "excess" is the error over the baseline, less 1, a mean over splits.

    Args:
        cells: number of cells K.
        rho: the single clipping bound with the least mean error, by hindsight.
        single: excess of the single bound, with the whole budget.
        auto: excess of bounds chosen privately, paid from the same budget.
        mean_ratio: auto ÷ single.
        worst_ratio: the largest auto ÷ single of one split.
        worst_own: the same against the best single bound of that very split.
        nonnegative: excess of auto with negative estimates set to 0.
        shrunk: excess of auto after ``shrink``.
        worst_nonnegative: the largest error of one split over the unprocessed release's, minus 1.
        worst_shrunk: the same for ``shrink``.
        worst_to_zeros: the largest error of one split after ``shrink`` over the error of zeros.
    """

    cells: int
    epsilon: float
    rho: float
    single: float
    single_se: float
    auto: float
    auto_se: float
    mean_ratio: float
    worst_ratio: float
    worst_own: float
    zeros: float
    nonnegative: float
    shrunk: float
    worst_nonnegative: float
    worst_shrunk: float
    worst_to_zeros: float


@dataclass(frozen=True)
class WordResult:
    """Results of the words part.

    Args:
        check: the largest relative gap between the single bound's computed error and a release's by
            the library with ``clip=rho``, on the first split.
    """

    rows: list[WordRow]
    check: float


def run_words(
    data: WordCounts,
    *,
    cells: Sequence[int],
    epsilons: Sequence[float] = EPSILONS,
    splits: int = 20,
    bounds: FloatArray | None = None,
) -> WordResult:
    """Compare bounds chosen privately with the best single bound.

    Args:
        cells: numbers of cells; the number of words means every word separately.
        bounds: the tried single bounds; by default in steps of 2^(1/8).
    """
    bounds = 2.0 ** np.arange(2, 20.01, 0.125) if bounds is None else bounds
    matrix = data.matrix()
    halves = Halves.of(matrix, splits)
    zeros = (halves.truth**2).sum(axis=1) / halves.baseline
    rows: list[WordRow] = []
    gap = 0.0
    for count in cells:
        unit, cell_of = data.partition(count)
        clipped = single_errors(matrix, cell_of, halves, bounds, f"K = {count:,}: single ρ")
        auto = _auto_errors(data, unit, halves, epsilons, f"K = {count:,}: auto")
        for epsilon in epsilons:
            errors = clipped + _noise_errors(bounds, epsilon, len(data.words), halves)
            best = int(errors.mean(axis=0).argmin())
            rho = float(bounds[best])
            rows.append(_word_row(count, epsilon, rho, errors, best, auto[epsilon], zeros))
            table = data.table(halves.released[0])
            estimate, _ = release(table, data.words, unit, epsilon, rho, seed=0)
            gap = max(gap, abs(halves.ratio(0, estimate) / errors[0, best] - 1))
    return WordResult(rows, gap)


def _word_row(
    cells: int,
    epsilon: float,
    rho: float,
    errors: FloatArray,
    best: int,
    auto_errors: FloatArray,
    zeros: FloatArray,
) -> WordRow:
    single, auto = errors[:, best] - 1, auto_errors[0] - 1
    nonnegative, shrunk = auto_errors[1:].mean(axis=1) - 1
    worst = (auto_errors[1:] / auto_errors[0]).max(axis=1) - 1
    return WordRow(
        cells,
        epsilon,
        rho,
        float(single.mean()),
        _standard_error(single),
        float(auto.mean()),
        _standard_error(auto),
        float(auto.mean() / single.mean()),
        float((auto / single).max()),
        float((auto / (errors.min(axis=1) - 1)).max()),
        float(zeros.mean() - 1),
        float(nonnegative),
        float(shrunk),
        float(worst[0]),
        float(worst[1]),
        float((auto_errors[2] / zeros).max()),
    )


def _standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / math.sqrt(values.size))


def single_errors(
    matrix: FloatArray, cell_of: IntArray, halves: Halves, bounds: FloatArray, title: str
) -> FloatArray:
    """(splits, bounds) ‖clipped mean − H0‖² over the baseline: the error of one ρ without noise.

    Args:
        matrix: (users, V) the counts.
        cell_of: (V,) the cell of each word.
        bounds: (R,) clipping bounds ρ.
    """
    order = np.argsort(cell_of, kind="stable")
    columns, truth = matrix[:, order], halves.truth[:, order]
    cell = cell_of[order]
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    norms = np.sqrt(np.add.reduceat(columns**2, starts, axis=1))
    # One norm serves all words where there is one cell, and one word where each is a cell.
    spread = None if starts.size in (1, cell.size) else cell
    errors = np.empty((len(halves.released), bounds.size))
    for r, bound in enumerate(track(bounds, title)):
        scale = bound / np.maximum(norms, bound)
        clipped = columns * (scale if spread is None else scale[:, spread])
        means = halves.released @ clipped / halves.size
        errors[:, r] = ((means - truth) ** 2).sum(axis=1)
    return np.asarray(errors / halves.baseline[:, None])


def _noise_errors(bounds: FloatArray, epsilon: float, items: int, halves: Halves) -> FloatArray:
    """(splits, bounds) the expected energy of the noise of mechanism (9) over the baseline."""
    sigma = calibrate_gaussian(epsilon, DELTA).noise_multiplier
    energy = items * (bounds * sigma / halves.size) ** 2
    return np.asarray(energy / halves.baseline[:, None])


def _auto_errors(
    data: WordCounts, unit: dg.Element, halves: Halves, epsilons: Sequence[float], title: str
) -> dict[float, FloatArray]:
    """ε → (3, splits) error over baseline of ``clip="auto"``; one release for each.

    The rows: as released, without negatives, shrunk.
    """
    errors = {epsilon: np.empty((3, len(halves.released))) for epsilon in epsilons}
    for split, users in enumerate(track(halves.released, title)):
        table = data.table(users)
        for epsilon, found in errors.items():
            estimate, std_error = release(table, data.words, unit, epsilon, "auto", seed=split)
            answers = processed(estimate, std_error)
            found[:, split] = [halves.ratio(split, answer) for answer in answers]
    return errors


def processed(estimate: FloatArray, std_error: FloatArray) -> tuple[FloatArray, ...]:
    """Post-processing of a release with private bounds, by public numbers only."""
    shrunk, _ = shrink(estimate, std_error)
    return estimate, np.maximum(estimate, 0.0), shrunk


def release(
    table: dg.UserTable,
    words: list[str],
    unit: dg.Element,
    epsilon: float,
    clip: Any,
    *,
    seed: int,
) -> tuple[FloatArray, FloatArray]:
    """(V,) private sums of counts and their standard errors, in the order of the words."""
    with warnings.catch_warnings():
        # δ = 1e-6 is the comparison's; for this few users and this many cells it is large.
        warnings.simplefilter("ignore", dg.DeltaWarning)
        histogram = dg.histogram(
            table,
            "word",
            unit=unit,
            epsilon=epsilon,
            delta=DELTA,
            clip=clip,
            domain=words,
            weight="count",
            random_state=np.random.default_rng([seed, int(1000 * epsilon)]),
            progress=False,
        )
    place = pc.index_in(pa.array(words), value_set=histogram.items).to_numpy()
    return np.asarray(histogram.estimate[place]), np.asarray(histogram.std_error[place])


def targets(rows: Sequence[WordRow]) -> list[str]:
    """PASS or FAIL for the targets of the private bounds."""
    goals: list[tuple[str, float, list[float]]] = [
        ("mean ratio, K >= 1000", 0.3, [r.mean_ratio for r in rows if r.cells >= 1000]),
        (
            "mean ratio, K = 100, ε >= 1",
            0.5,
            [r.mean_ratio for r in rows if r.cells == 100 and r.epsilon >= 1],
        ),
        ("mean ratio, K = 10", 0.9, [r.mean_ratio for r in rows if r.cells == 10]),
        ("ratio in every split", 1.2, [r.worst_ratio for r in rows]),
        ("shrunk ÷ auto", 1.0, [r.shrunk / r.auto for r in rows]),
        ("shrunk ÷ zeros", 1.0, [r.shrunk / r.zeros for r in rows]),
    ]
    return [
        f"{'PASS' if max(found) <= goal else 'FAIL'}  {name}: {max(found):.3f} (at most {goal:g})"
        for name, goal, found in goals
        if found
    ]


def draw_words(rows: Sequence[WordRow]) -> Figure:
    """The paper's Figure 2: error over baseline against ε, one line per partition."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.8), layout="constrained", sharey=True)
    cells = sorted({row.cells for row in rows})
    epsilons = sorted({row.epsilon for row in rows})
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(cells)))
    panels = (
        ("single", "--", "one bound for all, the best by hindsight"),
        ("auto", "-", "one bound per cell, chosen privately"),
    )
    for ax, (name, style, title) in zip(axes, panels, strict=True):
        for count, colour in zip(cells, colours, strict=True):
            line = sorted((r for r in rows if r.cells == count), key=lambda row: row.epsilon)
            mean = np.array([1 + getattr(row, name) for row in line])
            half = _BAND * np.array([getattr(row, f"{name}_se") for row in line])
            label = f"K = {count:,}"
            ax.plot(epsilons, mean, style, color=colour, marker="o", markersize=4, label=label)
            # Down to the baseline where the band reaches below it.
            low = np.maximum(mean - half, np.minimum(mean, 1))
            ax.fill_between(epsilons, low, mean + half, color=colour, alpha=0.13, linewidth=0)
        for level, text in ((1.0, "baseline"), (1 + rows[0].zeros, "zeros")):
            ax.axhline(level, color="grey", linewidth=1, linestyle=":")
            ax.text(
                epsilons[-1], level * 1.05, text, color="grey", va="bottom", ha="right", fontsize=8
            )
        ax.set(xscale="log", yscale="log", xlabel="ε", title=title)
        ax.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        ax.xaxis.minorticks_off()
        ax.grid(visible=True, axis="y", color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
    axes[0].set_ylabel("squared error over baseline")
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    return figure


# Proposition 1 ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrderRow:
    """One mechanism on one population.

    Args:
        users: number of users n.
        sigma: standard deviation of the noise of a count.
        printed: the threshold γ of Proposition 1 as printed.
        loss_printed: L_order with that γ; the proposition promises at most t².
        corrected: the threshold with the slips of its proof mended.
        measured: the smallest γ with L_order of at most t².
    """

    users: int
    held: int
    mechanism: str
    sigma: float
    printed: float
    loss_printed: float
    corrected: float
    loss_corrected: float
    measured: float
    promise: float


# Noise for: the element of one item; a user removed, with sensitivity √m, as in the paper; a user
# replaced, with √(2m), as the paper's relation requires.
ORDER_UNITS: dict[str, tuple[bool, Any]] = {
    "element": (False, "zero_out"),
    "user, removed": (True, "zero_out"),
    "user, exchanged": (True, "replace"),
}


def run_order(
    *,
    users: Sequence[int] = (1000, 20_000),
    held: Sequence[int] = (30, 60, 120, 300),
    spread: int = 4,
    epsilon: float = 1.0,
    repetitions: int = 5,
) -> list[OrderRow]:
    """Measure the loss L_order of mechanism (7), at element and at user level.

    Args:
        held: numbers of items m that each user draws.
        spread: there are d = spread·m items, at least 2m, since p₁ = 1/(2m).
        repetitions: number of repetitions with fresh data and noise.

    The loss counts pairs j < l with p_j ≥ p_l + γ and Ĥ_j < Ĥ_l, as bounded by the paper's proof;
    its display (8) has the second sign reversed. t² is d/10.
    """
    rows = []
    for n in users:
        for m in track(held, f"Proposition 1, n = {n:,}"):
            items = spread * m
            p = ramp(items, 1 / (2 * m))
            wrong = {name: np.zeros(0) for name in ORDER_UNITS}
            for repetition in range(repetitions):
                seed = np.random.default_rng([n, m, repetition])
                table = multinomial_table(seed, n, m, p)
                for name in ORDER_UNITS:
                    counts = holders(table, items, m, epsilon, name, seed)
                    wrong[name] = np.append(wrong[name], misordered_gaps(p, counts))
            for name, gaps in wrong.items():
                rows.append(_order_row(n, m, items, epsilon, name, gaps, repetitions))
    return rows


def ramp(items: int, largest: float) -> FloatArray:
    """(d,) falling probabilities p_j ∝ (1 − j/d)^a with p_0 = ``largest`` and the sum 1."""
    if not 1 / items <= largest < 1:
        raise ValueError(f"the largest probability must lie in [1/{items}, 1), not {largest}.")
    base = 1 - np.arange(items) / items
    total = 1 / largest
    power = 0.0 if total >= items else brentq(lambda a: (base**a).sum() - total, 0.0, 1e6)
    return np.asarray(largest * base**power)


def multinomial_table(
    generator: np.random.Generator, users: int, held: int, p: FloatArray
) -> dg.UserTable:
    """Users with Multinomial(m, p) counts, as rows (user, item, count)."""
    counts = generator.multinomial(held, p / p.sum(), size=users)
    user, item = np.nonzero(counts)
    columns = {"user": user, "item": item, "count": counts[user, item]}
    return dg.read(pa.table(columns), user="user", n_users=users)


def holders(
    table: dg.UserTable,
    items: int,
    held: int,
    epsilon: float,
    mechanism: str,
    seed: np.random.Generator,
) -> FloatArray:
    """(d,) mechanism (7): noisy number of users per item."""
    by_user, relation = ORDER_UNITS[mechanism]
    unit = dg.User(max_elements=held) if by_user else dg.Element("item")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.DeltaWarning)
        histogram = dg.histogram(
            table,
            "item",
            unit=unit,
            epsilon=epsilon,
            delta=DELTA,
            relation=relation,
            # A pair (user, item) counts 1: the indicator.
            clip=1.0,
            domain=range(items),
            random_state=seed,
            progress=False,
        )
    return np.asarray(histogram.estimate[np.argsort(histogram.items.to_numpy())])


def holders_sd(items: int, held: int, epsilon: float, mechanism: str) -> float:
    """Standard deviation of the noise of :func:`holders`, by the exact Gaussian curve."""
    by_user, relation = ORDER_UNITS[mechanism]
    bound = held if by_user else None
    contribution = Contribution(coordinates="one", max_elements=bound, cells=items)
    unit = dg.User(max_elements=held) if by_user else dg.Element()
    event = calibrate_gaussian(
        epsilon, DELTA, contribution=contribution, relation=relation, unit=unit
    )
    return event.noise_multiplier


def misordered_gaps(p: FloatArray, estimate: FloatArray) -> FloatArray:
    """The gaps p_j − p_l > 0 of the pairs that an estimate puts in the wrong order.

    Args:
        p: (d,) not increasing.
        estimate: (d,) what the items are ordered by.

    >>> misordered_gaps(np.array([0.5, 0.3, 0.2]), np.array([5.0, 1.0, 2.0])).round(6)
    array([0.1])
    """
    first, second = np.nonzero(np.triu(estimate[:, None] < estimate[None, :], k=1))
    gaps = p[first] - p[second]
    return np.asarray(gaps[gaps > 0])


def order_thresholds(
    users: int, held: int, largest: float, sigma: float, log_ratio: float
) -> tuple[float, float]:
    """The threshold γ of Proposition 1, as printed and with its proof's slips mended.

    Args:
        log_ratio: log(d/t).

    In the proof v ≤ 3mp₁ loses its m, so that √p₁/(m√n) replaces √(p₁/(mn)); and exp(−a/(b+c)) is
    bounded by the larger of exp(−a/b) and exp(−a/c), but a/(2b) and a/(2c) are
    due: √2 in the last two terms.
    """
    n, m = users, held
    first, root = 32 / (n * m) * log_ratio, math.sqrt(log_ratio)
    noise, sampling = 4 * math.sqrt(2) * sigma / (n * m), 12 * math.sqrt(2 / 5)
    printed = max(first, noise * root, sampling * math.sqrt(largest / n) / m * root)
    mended = max(first, noise * root, sampling * math.sqrt(largest / (n * m)) * root)
    return printed, max(first, math.sqrt(2) * mended)


def _order_row(
    users: int,
    held: int,
    items: int,
    epsilon: float,
    mechanism: str,
    gaps: FloatArray,
    repetitions: int,
) -> OrderRow:
    sigma = holders_sd(items, held, epsilon, mechanism)
    promise = items / 10
    thresholds = order_thresholds(
        users, held, 1 / (2 * held), sigma, math.log(items / math.sqrt(promise))
    )
    printed, corrected = (
        (gamma, float((gaps >= gamma).sum() / repetitions)) for gamma in thresholds
    )
    allowed = int(promise * repetitions)
    measured = float(np.sort(gaps)[-allowed - 1]) if gaps.size > allowed else 0.0
    return OrderRow(users, held, mechanism, sigma, *printed, *corrected, measured, promise)


def draw_order(rows: Sequence[OrderRow]) -> Figure:
    """The smallest γ with few misordered pairs, compared with the proposition's."""
    import matplotlib.pyplot as plt

    users = sorted({row.users for row in rows})
    figure, axes = plt.subplots(
        1,
        len(users),
        figsize=(4.8 * len(users), 4.4),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    for ax, n in zip(axes[0], users, strict=True):
        for colour, name in zip(("#1f77b4", "#ff7f0e", "#d62728"), ORDER_UNITS, strict=True):
            chosen = [row for row in rows if row.users == n and row.mechanism == name]
            held = [row.held for row in chosen]
            ax.plot(
                held, [r.measured for r in chosen], "o-", color=colour, label=f"{name}: measured"
            )
            ax.plot(held, [r.corrected for r in chosen], "--", color=colour, linewidth=1)
        element = [row for row in rows if row.users == n and row.mechanism == "element"]
        ax.plot(
            [r.held for r in element],
            [r.printed for r in element],
            ":",
            color="#1f77b4",
            linewidth=2,
            label="element: Proposition 1 as printed",
        )
        ax.plot([], [], "--", color="grey", linewidth=1, label="Proposition 1, mended")
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="items drawn by each user, m",
            title=f"n = {n:,} users",
        )
        ax.set_xticks(held, [str(m) for m in held])
        ax.xaxis.minorticks_off()
    axes[0, 0].set_ylabel("separation γ with L_order ≤ t²")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


# Proposition 2 ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ErrorRow:
    """Mechanism (9) on multinomial data, compared with the expressions of Proposition 2.

    Args:
        cells: number of cells K.
        rho: the clipping bound.
        slack: the t of ρ = max over cells of 3mP(c) + 3 log m + t; infinite for ρ ≥ m; if negative
            the proposition does not apply.
        measured: the sum over items of the mean squared error.
        upper: the same plus the sum of 2^(−2t)·P(c)², the most that 2^(−2t)·q_j² can come to.
        over_lower: measured ÷ lower; above some C₀ if the proposition is true.
        over_upper: measured ÷ upper; below some C₁.
        least: the smallest measured ÷ lower of a tenth of the items, by frequency.
    """

    held: int
    cells: int
    rho: float
    slack: float
    measured: float
    lower: float
    upper: float
    over_lower: float
    over_upper: float
    least: float
    most: float

    @property
    def covered(self) -> bool:
        """Whether the proposition speaks of this clipping bound."""
        return self.slack >= 0


def run_errors(
    *,
    users: int = 1000,
    held: Sequence[int] = (100, 1000),
    items: int = 1000,
    cells: Sequence[int] = (1, 10, 100, 1000),
    epsilon: float = 1.0,
    repetitions: int = 10,
) -> list[ErrorRow]:
    """Measure E|M_j − m·p_j|² of mechanism (9) over partitions and clipping bounds.

    Args:
        users: number of users n.
        held: numbers of items m that each user draws.
        items: number of items d; item j has probability ∝ 1/(j + 10).
        cells: numbers of cells K, of items drawn at random.
        repetitions: number of repetitions with fresh data and noise.
    """
    p = 1 / (np.arange(items) + 10.0)
    p /= p.sum()
    rows = []
    for m in held:
        tables = []
        for repetition in range(repetitions):
            tables.append(multinomial_table(np.random.default_rng([m, repetition]), users, m, p))
        for count in track(cells, f"Proposition 2, m = {m:,}"):
            shuffled = np.random.default_rng(count).permutation(items)
            cell_of = np.empty(items, dtype=np.int64)
            cell_of[shuffled] = np.arange(items) * count // items
            least = 3 * m * np.bincount(cell_of, p).max() + 3 * math.log(m)
            chosen = {factor * min(least, m) for factor in (0.03, 0.06, 0.1, 0.18, 0.3, 0.55, 1.0)}
            chosen |= {float(m), min(least + 5, m), min(3 * least, m)}
            for rho in sorted(chosen):
                errors = np.zeros(items)
                for repetition, table in enumerate(tables):
                    seed = np.random.default_rng([m, count, repetition])
                    estimate = clipped_sums(table, cell_of, rho, epsilon, seed) / users
                    errors += (estimate - m * p) ** 2 / repetitions
                rows.append(_error_row(users, m, count, cell_of, rho, epsilon, p, errors))
    return rows


def clipped_sums(
    table: dg.UserTable,
    cell_of: IntArray,
    rho: float,
    epsilon: float,
    seed: np.random.Generator,
) -> FloatArray:
    """(d,) mechanism (9) times n: the sum of the users' clipped counts, with noise."""
    mapping = dict(enumerate(cell_of.tolist()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.DeltaWarning)
        histogram = dg.histogram(
            table,
            "item",
            unit=dg.Element(mapping),
            epsilon=epsilon,
            delta=DELTA,
            clip=rho,
            weight="count",
            random_state=seed,
            progress=False,
        )
    return np.asarray(histogram.estimate[np.argsort(histogram.items.to_numpy())])


def _error_row(
    users: int,
    held: int,
    cells: int,
    cell_of: IntArray,
    rho: float,
    epsilon: float,
    p: FloatArray,
    errors: FloatArray,
) -> ErrorRow:
    share = np.bincount(cell_of, p)
    slack = rho - 3 * held * float(share.max()) - 3 * math.log(held)
    # Rounded, since bounds are chosen for slacks such as 0 (and + 0.0, for one zero).
    slack = math.inf if rho >= held else round(slack, 9) + 0.0
    sigma = calibrate_gaussian(epsilon, DELTA).noise_multiplier
    expression = held * p / users + (sigma * rho / users) ** 2
    # If the proposition does not apply, its bias at t = 0.
    bias = 2.0 ** (-2 * max(slack, 0.0)) * (share**2).sum()
    measured, lower = float(errors.sum()), float(expression.sum())
    upper = lower + float(bias)
    parts = min(10, p.size)
    tenths = [
        float(e.sum() / x.sum())
        for e, x in zip(
            np.array_split(errors, parts), np.array_split(expression, parts), strict=True
        )
    ]
    return ErrorRow(
        held,
        cells,
        rho,
        slack,
        measured,
        lower,
        upper,
        measured / lower,
        measured / upper,
        min(tenths),
        max(tenths),
    )


def draw_errors(rows: Sequence[ErrorRow]) -> Figure:
    """Measured error and the expression without bias, against the clipping bound."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    held = sorted({row.held for row in rows})
    figure, axes = plt.subplots(
        1, len(held), figsize=(4.8 * len(held), 4.4), layout="constrained", squeeze=False
    )
    cells = sorted({row.cells for row in rows})
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(cells)))
    for ax, m in zip(axes[0], held, strict=True):
        for count, colour in zip(cells, colours, strict=True):
            chosen = [row for row in rows if (row.held, row.cells) == (m, count)]
            ax.plot([r.rho for r in chosen], [r.measured for r in chosen], color=colour)
            for row in chosen:
                face = colour if row.covered else "white"
                ax.plot(row.rho, row.measured, "o", color=colour, markerfacecolor=face)
        line = sorted({(row.rho, row.lower) for row in rows if row.held == m})
        ax.plot(*zip(*line, strict=True), "k--", linewidth=1)
        ax.set(
            xscale="log", yscale="log", xlabel="clipping bound ρ", title=f"m = {m:,} items a user"
        )
    axes[0, 0].set_ylabel("mean squared error, all items")
    handles = [
        Line2D([], [], color=c, marker="o", label=f"K = {k:,}")
        for k, c in zip(cells, colours, strict=True)
    ]
    handles += [
        Line2D([], [], color="black", linestyle="--", label="Σ m·p/n + σ²ρ²/n²"),
        Line2D(
            [], [], color="grey", marker="o", markerfacecolor="white", linestyle="", label="t < 0"
        ),
    ]
    axes[0, -1].legend(handles=handles, frameon=False, fontsize=8)
    return figure


# Tables ----------------------------------------------------------------------------------------


def report_words(out: Path, splits: int) -> None:
    """Part (a): the word counts."""
    try:
        data = WordCounts.read(data_folder(*FILES))
    except DataError as error:
        sys.exit(f"{error} What is simulated needs none: --only order, --only errors.")
    cells = (1, 10, 100, 1000, 10_000, len(data.words))
    result = run_words(data, cells=cells, splits=splits)
    print(show(result.rows))
    print("\n".join(targets(result.rows)))
    print(f"single ρ: computed error within {result.check:.1%} of that of a release with clip=rho")
    write(out, "word_frequency", result.rows, draw_words(result.rows))


def report_order(out: Path, _: int) -> None:
    """Part (b): Proposition 1."""
    rows = run_order()
    print(show(rows))
    for name in ("loss_printed", "loss_corrected"):
        over = sum(getattr(row, name) > row.promise for row in rows)
        print(f"{name}: above t² in {over} of {len(rows)} rows")
    write(out, "order", rows, draw_order(rows))


def report_errors(out: Path, _: int) -> None:
    """Part (c): Proposition 2."""
    rows = run_errors()
    print(show(rows))
    covered = [row for row in rows if row.covered]
    for name in ("over_lower", "over_upper"):
        found = [getattr(row, name) for row in covered]
        print(f"{name}, where t >= 0: {min(found):.3f} to {max(found):.3f}")
    write(out, "errors", rows, draw_errors(rows))


PARTS: dict[str, Callable[[Path, int], None]] = {
    "words": report_words,
    "order": report_order,
    "errors": report_errors,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the requested parts."""
    import matplotlib as mpl

    mpl.use("Agg")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--splits", type=int, default=20, help="random halves of the users")
    parser.add_argument("--out", type=Path, default=Path("experiments/out"), help="output folder")
    parser.add_argument("--only", choices=list(PARTS), help="run one part")
    given = parser.parse_args(arguments)
    if given.splits < 2:
        parser.error("--splits must be at least 2, for standard errors.")
    for name, part in PARTS.items():
        if given.only in (None, name):
            began = time.perf_counter()
            print(f"\n# {name}", flush=True)
            part(given.out, given.splits)
            print(f"({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
