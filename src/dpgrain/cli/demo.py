"""The demonstration: which words do members of the House use, without telling any one topic of any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dpgrain as dg
from dpgrain._files import check_writable, data_folder
from dpgrain._later import later
from dpgrain.cli.command import command
from dpgrain.cli.printing import say, tell_release
from dpgrain.errors import DataError
from dpgrain.units import Element

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pyarrow as pa

    from dpgrain.tables.engines import sql
else:
    duckdb, np, pa = later("duckdb"), later("numpy"), later("pyarrow")
    sql = later("dpgrain.tables.engines.sql")

_EPSILON, _DELTA, _CLUSTERS = 1.0, 1e-8, 1000
_FILES = (
    "congress_word_counts.parquet",
    "congress_vocab.parquet",
    "glove_twitter_25d_12k.npz",
)


@command("dpgrain demo --folder demo", name="demo")
def demo(
    folder: Annotated[Path, typer.Option(help="Where the report is written.")] = Path("demo"),
) -> None:
    """Run the main job on data at hand and write a report."""
    result = run(folder, say=say)
    tell_release(result.release, 15)
    say(f"Report: {result.report}")


@dataclass(frozen=True)
class DemoResult:
    """The results of the demonstration.

    Args:
        release: the histogram.
        report: the path of its report.
    """

    release: dg.Histogram
    report: Path


def run(folder: Path, *, say: Callable[[str], Any] = print) -> DemoResult:
    """Run the demonstration and write ``report.html`` to a folder.

    Args:
        folder: the folder, which is made if it is missing.
        say: a function that is called with each line for the reader.

    Raises:
        DataError: if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"The folder {str(folder)!r} cannot be made; choose another.") from error
    report = folder / "report.html"
    check_writable(report)
    try:
        data = data_folder(*_FILES)
    except DataError as error:
        say(f"Data: a generated table. {error}")
        table, words = generated()
    else:
        say(f"Data: words of members of the US House, 2001-2021, from {data}.")
        table, words = _congress(data)
    say(f"One element is all that one person said in one of {_CLUSTERS:,} clusters of words.")
    release = dg.histogram(
        table,
        "word",
        weight="count",
        unit=Element(words),
        epsilon=_EPSILON,
        delta=_DELTA,
    )
    return DemoResult(release, release.report(report))


def _congress(data: Path) -> tuple[dg.UserTable, dg.Elements]:
    """Read how often each member of the House said each word; cluster words by public vectors."""
    counts, vocabulary = data / "congress_word_counts.parquet", data / "congress_vocab.parquet"
    rows = duckdb.connect(":memory:").sql(
        f"SELECT user_id, word, counts.count FROM {sql.text(str(counts))} counts "
        f"JOIN {sql.text(str(vocabulary))} USING (word_id)"
    )
    glove = np.load(data / "glove_twitter_25d_12k.npz")
    clusters = dg.Elements.kmeans(
        glove["vectors"], _CLUSTERS, items=glove["words"].tolist(), random_state=0
    )
    return dg.read(rows, user="user_id", n_users=1113), clusters


def generated(users: int = 1000, vocabulary: int = 5000) -> tuple[dg.UserTable, dg.Elements]:
    """Make a table of the same form: few people say much, few words are frequent, topics differ.

    Args:
        users: the number of users.
        vocabulary: the number of words.

    >>> table, words = generated(users=20, vocabulary=300)
    >>> table.n_users
    20
    """
    generator = np.random.default_rng(7)
    syllables = [c + v for c in "bdfgklmnprstv" for v in "aeiou"]
    names = [
        "".join(syllables[i // len(syllables) ** j % len(syllables)] for j in range(3))
        for i in range(vocabulary)
    ]
    topic = generator.integers(0, 20, vocabulary)
    frequency = 1 / (np.arange(vocabulary) + 3.0) ** 1.1
    parts = []
    for user in range(users):
        taste = generator.gamma(0.3, size=20)[topic] + 0.05
        share = frequency * taste / (frequency * taste).sum()
        count = generator.multinomial(int(generator.lognormal(9, 1.2)) + 20, share)
        said = np.flatnonzero(count)
        parts.append((np.full(said.size, user), said, count[said]))
    who, word, count = (np.concatenate(part) for part in zip(*parts, strict=True))
    rows = pa.table({"user_id": who, "word": pa.array(names).take(word), "count": count})
    vectors = np.eye(20)[topic] + generator.normal(0, 0.3, (vocabulary, 20))
    clusters = dg.Elements.kmeans(vectors, min(_CLUSTERS, vocabulary), items=names, random_state=0)
    return dg.read(rows, user="user_id", n_users=users), clusters
