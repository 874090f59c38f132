"""How often totals before clipping are no less than a release states, on public tables.

The guaranteed coverage of ``at_least``, measured. Run it with ``python experiments/limits.py``;
tables are read from the folder in ``DPGRAIN_DATA``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import dpgrain as dg
from dpgrain._files import data_folder
from dpgrain.errors import DataError

EPSILONS = (0.3, 1.0, 3.0)
DELTA = 1e-8
FILES = (
    "congress_word_counts.parquet",
    "irc_ubuntu.parquet",
    "online_retail.parquet",
    "oulad_assessments.parquet",
    "baseball_plate_appearances.parquet",
)
_WORDS = "SELECT user_id, word_id AS item, count::DOUBLE AS x FROM '{}' WHERE word_id < 1000"
_CHAT = r"""
    WITH words AS (SELECT user_id, unnest(regexp_extract_all(lower(text), '[a-z]+')) AS item
                   FROM '{}' WHERE NOT is_bot),
    most AS (SELECT item FROM words GROUP BY item ORDER BY count(*) DESC, item LIMIT 1000)
    SELECT user_id, item, count(*)::DOUBLE AS x FROM words SEMI JOIN most USING (item)
    GROUP BY user_id, item"""
_SHOP = """
    SELECT user_id, {} AS item, least(quantity, 100)::DOUBLE AS x FROM '{}' WHERE quantity > 0"""
_SCORES = "SELECT user_id, {} AS item, score::DOUBLE AS x FROM '{}' WHERE score IS NOT NULL"
_BATTERS = "SELECT user_id, {} AS item, 1::DOUBLE AS x FROM '{}'"


@dataclass(frozen=True)
class Case:
    """One table: its item, unit and file."""

    name: str
    query: str
    unit: dg.Element | dg.User


@dataclass(frozen=True)
class Row:
    """Coverage of the limits in one table at one ε, over the cells of all releases.

    Args:
        cells: the number of cells.
        least: the share of cells with a total of at least ``at_least``.
        capped: the share of cells with the unclipped total in the interval of the clipped one.
    """

    case: str
    epsilon: float
    cells: int
    least: float
    capped: float


def cases(folder: Path) -> Iterator[Case]:
    """The tables, each with the SQL that reads it."""
    words, chat, shop, scores, batters = (str(folder / name) for name in FILES)
    own, user = dg.Element("item"), dg.User()
    yield Case("words of congress", _WORDS.format(words), own)
    yield Case("words of a chat", _CHAT.format(chat), own)
    yield Case("a shop's items", _SHOP.format("item_id", shop), own)
    yield Case("a shop's countries", _SHOP.format("country", shop), own)
    yield Case("scores by assessment", _SCORES.format("id_assessment", scores), own)
    yield Case("scores by region", _SCORES.format("region", scores), own)
    yield Case("batters by pitcher", _BATTERS.format("pitcher", batters), own)
    yield Case("batters by outcome", _BATTERS.format("outcome", batters), own)
    yield Case("chat, whole users", _CHAT.format(chat), user)
    yield Case("batters by outcome, whole users", _BATTERS.format("outcome", batters), user)


def limits(case: Case, epsilon: float, repetitions: int) -> Row:
    """Publish a table some times, and compare its limits with the totals."""
    rows = pa.Table.from_pandas(duckdb.connect().execute(case.query).df())
    truth = totals(rows)
    table = dg.read(rows, user="user_id", threads=1)
    held: list[NDArray[np.float64]] = []
    for seed in range(repetitions):
        release = dg.histogram(
            table, "item", weight="x", unit=case.unit, domain=list(truth), epsilon=epsilon,
            delta=DELTA, random_state=seed,
        )  # fmt: skip
        least, total = release.more["at_least"], np.array(list(truth.values()))
        inside = (release.low <= total) & (total <= release.high)
        held.append(np.stack([least <= total, inside]).astype(float))
    above, capped = np.concatenate(held, axis=1).mean(axis=1)
    return Row(case.name, epsilon, len(truth), float(above), float(capped))


def totals(rows: pa.Table) -> dict[Any, float]:
    """The total of each item before clipping."""
    found = rows.group_by("item").aggregate([("x", "sum")])
    keys = found.column("item").to_pylist()
    return dict(zip(keys, found.column("x_sum").to_pylist(), strict=True))


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Print the table of README.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    repetitions = parser.parse_args(arguments).repetitions
    try:
        folder = data_folder(*FILES)
    except DataError as error:
        raise SystemExit(str(error)) from None
    print("| table | cells | ε | at least | in the interval |")
    print("| --- | ---: | ---: | ---: | ---: |")
    found = []
    for case in cases(folder):
        for epsilon in EPSILONS:
            row = limits(case, epsilon, repetitions)
            told = f"{row.least:.1%} | {row.capped:.1%}"
            print(f"| {row.case} | {row.cells:,} | {epsilon:g} | {told} |", flush=True)
            found.append(row)
    return found


if __name__ == "__main__":
    main()
