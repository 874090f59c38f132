"""How many items are named of whole users: in one round, in two, at the best cap, and by PipelineDP.

``dg.top`` gives weight to items in one round (``method="gaussian"``, 200 items per user), in two
(``"adaptive"``, the default), and in one round at the best limit in hindsight. PipelineDP selects
partitions at the best of its strategies and limits, also in hindsight. Random numbers are seeded.
Run it with

    python experiments/names.py [--repetitions 3] [--peer PYTHON] [--out experiments/out]

with the ``PYTHON`` of an environment with pipeline-dp and pyarrow. Tables are read from the folder
in ``DPGRAIN_DATA``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpgrain as dg
from dpgrain._files import data_folder
from dpgrain.errors import DataError

EPSILONS = (0.3, 1.0, 3.0)
DELTA = 1e-6
CAPS = (1, 5, 20, 50, 100, 200, 500, 2000, 20_000)
PEER_CAPS = (1, 10, 100, 1000)
FILES = ("irc_ubuntu.parquet", "online_retail.parquet", "congress_word_counts.parquet")
_QUERIES = {
    "irc_ubuntu": r"""SELECT DISTINCT user_id, item FROM (SELECT user_id,
        unnest(regexp_extract_all(lower(text), '[a-z]+(?:''[a-z]+)?')) AS item FROM '{}')
        ORDER BY ALL""",
    "online_retail": "SELECT DISTINCT user_id, item_id AS item FROM '{}' ORDER BY ALL",
    "congress": "SELECT user_id, word_id::VARCHAR AS item FROM '{}' ORDER BY ALL",
}
# The most common items, to count how many of them are selected.
_LARGEST = 20
# PipelineDP, in a separate environment: it reads pairs and prints the number of selected items.
_PEER = """
import json, random, sys
import pipeline_dp as p
import pyarrow.parquet as pq
path, epsilons, delta, caps = json.loads(sys.argv[1])
table = pq.read_table(path).to_pydict()
pairs = list(zip(table["user_id"], table["item"]))
told = p.DataExtractors(privacy_id_extractor=lambda r: r[0], partition_extractor=lambda r: r[1])
kinds = p.PartitionSelectionStrategy
for epsilon in epsilons:
    found = {}
    for cap in caps:
        for kind in (kinds.TRUNCATED_GEOMETRIC, kinds.GAUSSIAN_THRESHOLDING):
            random.seed(cap)
            budget = p.NaiveBudgetAccountant(epsilon, delta)
            engine = p.DPEngine(budget, p.LocalBackend())
            asked = p.SelectPartitionsParams(
                max_partitions_contributed=cap, partition_selection_strategy=kind)
            named = engine.select_partitions(pairs, asked, told)
            budget.compute_budgets()
            found[f"{kind.value} {cap}"] = len(list(named))
    print(json.dumps(found), flush=True)
"""


@dataclass(frozen=True)
class Row:
    """How many items are named of one table at one ε, means over repetitions.

    Args:
        largest: of the 20 items that most people have, how many in one round and in two.
        counted: in two rounds, if counts get 30% of the budget.
        peer: by PipelineDP; None where it was not run.
    """

    case: str
    epsilon: float
    one: float
    two: float
    best: float
    cap: int
    largest: tuple[float, float]
    counted: tuple[float, float]
    peer: int | None = None


def pairs(folder: Path) -> Iterator[tuple[str, pa.Table]]:
    """The tables, each as its different pairs of a user and an item."""
    for (name, query), file in zip(_QUERIES.items(), FILES, strict=True):
        yield name, duckdb.connect().sql(query.format(folder / file)).to_arrow_table()


def named(rows: pa.Table, epsilon: float, repetitions: int) -> Row:
    """Name the items of a table some times."""
    table = dg.read(rows, user="user_id", threads=2)
    counts = (
        rows.group_by("item")
        .aggregate([("item", "count")])
        .sort_by([("item_count", "descending"), ("item", "ascending")])
    )
    largest = {*counts["item"].to_pylist()[:_LARGEST]}

    def ask(times: int, **options: Any) -> tuple[float, float]:
        sizes, known = [], []
        for seed in range(times):
            release = dg.top(
                table, "item", unit=dg.User(), epsilon=epsilon, delta=DELTA, random_state=seed,
                progress=False, **options,
            )  # fmt: skip
            items = release.items.to_pylist()
            sizes.append(len(items))
            known.append(len(largest & {*items}))
        return float(np.mean(sizes)), float(np.mean(known))

    one, two = (
        ask(repetitions, method=method, counts=False) for method in ("gaussian", "adaptive")
    )
    counted = (ask(1, method="gaussian")[0], ask(1, method="adaptive")[0])
    at_caps = {cap: ask(1, method="gaussian", counts=False, max_items=cap)[0] for cap in CAPS}
    cap = max(at_caps, key=lambda cap: at_caps[cap])
    return Row("", epsilon, one[0], two[0], at_caps[cap], cap, (one[1], two[1]), counted)


def by_peer(python: str, rows: pa.Table) -> list[dict[str, int]]:
    """How many items PipelineDP names, at each ε: by strategy and cap."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.parquet"
        pq.write_table(rows, path)
        asked = json.dumps([str(path), EPSILONS, DELTA, PEER_CAPS])
        done = subprocess.run(
            [python, "-c", _PEER, asked], capture_output=True, text=True, check=True
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def draw(found: Sequence[Row], path: Path) -> None:
    """Draw the table as bars."""
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys(row.case for row in found))
    figure: Any = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, len(cases), squeeze=False)[0]
    bars: dict[str, Callable[[Row], float | None]] = {
        "PipelineDP, best cap": lambda row: row.peer,
        "one round": lambda row: row.one,
        "one round, best cap": lambda row: row.best,
        "two rounds": lambda row: row.two,
    }
    colours = ("#bbbbbb", "#9ecae1", "#4292c6", "#d95f02")
    for axis, case in zip(axes, cases, strict=True):
        rows = [row for row in found if row.case == case]
        for place, (label, of) in enumerate(bars.items()):
            heights = [of(row) or 0 for row in rows]
            x = np.arange(len(rows)) + 0.2 * (place - 1.5)
            drawn = axis.bar(x, heights, 0.19, label=label, color=colours[place])
            axis.bar_label(drawn, fmt=" {:,.0f}", fontsize=7, rotation=90)
        axis.set_yscale("log")
        axis.set_ylim(1, 3 * axis.get_ylim()[1])
        axis.set_xticks(range(len(rows)), [f"ε = {row.epsilon:g}" for row in rows])
        axis.set_title(case)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("items named")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Print the table of README.md, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--peer", help="a Python with pipeline-dp")
    parser.add_argument("--only", help="one of the tables", choices=tuple(_QUERIES))
    parser.add_argument("--out", type=Path, default=Path("experiments/out"))
    given = parser.parse_args(arguments)
    try:
        folder = data_folder(*FILES)
    except DataError as error:
        raise SystemExit(str(error)) from None
    print(
        "| table | ε | one round | best cap | two rounds | PipelineDP | of the 20 largest | counted |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    found = []
    for case, rows in pairs(folder):
        if given.only not in (None, case):
            continue
        peers = by_peer(given.peer, rows) if given.peer else [{}] * len(EPSILONS)
        for epsilon, peer in zip(EPSILONS, peers, strict=True):
            best = max(peer, key=lambda way: peer[way]) if peer else None
            row = named(rows, epsilon, given.repetitions)
            row = replace(row, case=case, peer=peer[best] if best else None)
            told = f"{row.peer:,} ({best})" if best else "–"
            print(
                f"| {case} | {epsilon:g} | {row.one:,.0f} | {row.best:,.0f} ({row.cap:,}) | "
                f"{row.two:,.0f} | {told} | {row.largest[0]:.0f} → {row.largest[1]:.0f} | "
                f"{row.counted[0]:,.0f} → {row.counted[1]:,.0f} |",
                flush=True,
            )
            found.append(row)
    draw(found, given.out / "names.png")
    return found


if __name__ == "__main__":
    main()
