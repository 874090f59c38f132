"""Too long CSV rows are dropped individually; DuckDB decides where rows end."""

from __future__ import annotations

import functools
import gzip
import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.effort import Effort
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.sources.csv_files import csv_reader
from dpgrain.tables.sources.csv_rows import (
    MAX_ROW_BYTES,
    MalformedLines,
    QuoteNormalizer,
    RowSplitter,
    drop_spans,
    find_malformed,
)

#: Everything that determines the end of a row; and some text that does not.
MATTERS, STRANGE = b'",\n\r x', b'",\n\0\xff'
Read = dict[bytes, list[tuple[Any, ...]]]


def words_of(alphabet: bytes, most: int) -> list[bytes]:
    lengths = range(most + 1)
    return [bytes(word) for n in lengths for word in itertools.product(alphabet, repeat=n)]


def as_read(words: list[bytes], columns: list[str], folder: Path) -> Read:
    """DuckDB's result for files with a header and one word."""
    paths = []
    for place, word in enumerate(words):
        paths.append(folder / f"{place}.csv")
        paths[-1].write_bytes(",".join(columns).encode() + b"\n" + word)
    found: Read = {word: [] for word in words}
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET enable_progress_bar = false")
        for start in range(0, len(paths), 2000):
            names = [str(path) for path in paths[start : start + 2000]]
            query = csv_reader(columns, names, options=", filename=true")
            for *values, path in connection.execute(f"SELECT * FROM {query}").fetchall():
                found[words[int(Path(path).stem)]].append(tuple(values))
    return found


def split(word: bytes, delimiter: str = ",") -> list[bytes]:
    """Its rows with their ends, found letter by letter."""
    splitter = RowSplitter(delimiter)
    ends = [i + 1 for i in range(len(word)) if splitter.ends(word[i : i + 1]) == (0, 0)]
    cuts = [0, *ends, len(word)]
    return [word[low:high] for low, high in itertools.pairwise(cuts) if low < high]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [["a"], ["a", "b"]], ids=["one column", "two columns"])
@pytest.mark.parametrize(
    ("alphabet", "most"),
    [(MATTERS, 5), (STRANGE, 5), pytest.param(MATTERS, 6, marks=pytest.mark.slow(full=True))],
)
def test_rows_end_as_in_duckdb(
    alphabet: bytes, most: int, columns: list[str], tmp_path: Path
) -> None:
    """For all short words: each row is read the same with and without others, and is one row."""
    read = as_read(words_of(alphabet, most), columns, tmp_path)
    for word, values in read.items():
        rows = split(word)
        assert b"".join(rows) == word
        assert values == [value for row in rows for value in read[row]], (word, rows)
        assert all(len(read[row]) <= 1 for row in rows), (word, rows)


@pytest.mark.slow
@pytest.mark.parametrize("delimiter", [",", "\t", " "])
@pytest.mark.parametrize("odd", [0.0, 0.02, 1.0])
def test_pieces_do_not_matter(odd: float, delimiter: str) -> None:
    """First and last ends of rows are the same, cut anywhere, in long texts of all kinds."""
    chance = random.Random(1)
    kinds = [b"word", b'"quoted"', b'"a ""b"""', b'"with\nend"', b"", b' "spaced"']
    for _ in range(12):
        text = b""
        while len(text) < 2000:
            letters = bytes(chance.choices(MATTERS, k=5))
            text += letters if chance.random() < odd else chance.choice(kinds)
            text += chance.choice([delimiter.encode()] * 5 + [b"\n"] * chance.randint(0, 1))
        ends = list(itertools.accumulate(map(len, split(text, delimiter))))
        ends = [end - 1 for end in ends if end < len(text)]
        cuts = sorted(chance.sample(range(len(text)), k=4))
        splitter = RowSplitter(delimiter)
        for low, high in itertools.pairwise([0, *cuts, len(text) - 1]):
            inside = [end - low for end in ends if low <= end < high]
            expected = (inside[0], inside[-1]) if inside else (-1, -1)
            assert splitter.ends(text[low:high]) == expected


#: Rows of one person with the requested length, without their line ends.
OWN_ROWS = {
    "plain": lambda size: b"eve,b," + b"x" * (size - 6),
    "rows of others": lambda size: b'eve,b,"' + (b"u1,a,1\n" * (size // 7))[: size - 8] + b'"',
    "returns": lambda size: b'eve,b,"' + (b"u1,a,1\r" * (size // 7))[: size - 8] + b'"',
    "letters that are quotes": lambda size: b"eve,b," + (b'x"' * size)[: size - 6],
    "doubled quotes": lambda size: (
        b'eve,b,"' + (b'""\nu1,a,1\n' * (size // 9))[: size - 10] + b'zz"'
    ),
}
OTHERS = [b'u%d,a,"%d\n"' % (number % 1000, number) for number in range(40_000)]


def counted(paths: list[Path], threads: int) -> dict[tuple[str, str], int]:
    with DuckDB(dg.read(paths, user="who", threads=threads)) as engine:
        found = engine.query("SELECT who, item, count(*) AS n FROM source GROUP BY ALL")
    return {(row["who"], row["item"]): row["n"] for row in found.to_pylist()}


@pytest.mark.slow
@pytest.mark.parametrize("own", OWN_ROWS)
@pytest.mark.parametrize(
    ("ending", "place"),
    [("csv", "start"), ("csv", "middle"), ("csv", "end"), ("csv.gz", "middle")],
)
def test_long_row_is_dropped_individually(
    ending: str, own: str, place: str, tmp_path: Path
) -> None:
    """Up to the largest length it is read, above it is not, and no other row changes."""
    others = Counter(row.split(b",", 1)[0].decode() for row in OTHERS)
    cut = {"start": 0, "middle": len(OTHERS) // 3, "end": len(OTHERS)}[place]
    lengths = [MAX_ROW_BYTES - 1, MAX_ROW_BYTES, MAX_ROW_BYTES + 1, 2 * MAX_ROW_BYTES + 7]
    paths = []
    for size in [*lengths, 5 * MAX_ROW_BYTES + 3]:
        row = OWN_ROWS[own](size)
        assert len(row) == size
        end = b"\r\n" if size % 2 else b"\n"
        raw = end.join([b"who,item,x", *OTHERS[:cut], row, *OTHERS[cut:]])
        paths.append(tmp_path / f"{size}.{ending}")
        paths[-1].write_bytes(gzip.compress(raw, 1) if ending == "csv.gz" else raw)
    for path, size in zip(paths, lengths, strict=False):
        counts = counted([path], threads=1)
        assert counts.pop(("eve", "b"), 0) == (size <= MAX_ROW_BYTES), size
        assert counts == {(who, "a"): n for who, n in others.items()}, size
    counts = counted(paths, threads=2)
    assert counts.pop(("eve", "b")) == 2
    assert counts == {(who, "a"): len(paths) * n for who, n in others.items()}


@pytest.mark.slow
def test_curator_sees_dropped_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    long = OWN_ROWS["rows of others"](MAX_ROW_BYTES + 1)
    # The last quote is left open.
    path.write_bytes(b"\n".join([b"who,item,x", *OTHERS, long, b'1,b,"', b"u1,a,1\n" * 2_000_000]))
    told = dg.read(path, user="who").check("item")
    for line in (
        "40,000  rows",
        f"2  CSV rows dropped: longer than {MAX_ROW_BYTES:,} bytes",
        "0  CSV lines that are empty or part of an unclosed quote",
    ):
        assert f" {line}\n" in f"{told}\n"


def test_copy_is_private_and_removed_with_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "spill"))
    (tmp_path / "spill").mkdir()
    path = tmp_path / "rows.csv"
    path.write_bytes(b"who,item\n1,a\n2," + b"b" * (MAX_ROW_BYTES + 1) + b"\n3,c\n")
    with DuckDB(dg.read(path, user="who")) as engine:
        assert engine.query("SELECT who FROM source").to_pydict() == {"who": ["1", "3"]}
        (copy,) = tmp_path.glob("spill/*/rows*")
        assert copy.read_bytes() == b"who,item\n1,a\n3,c\n"
        assert copy.parent.stat().st_mode & 0o777 == 0o700
    assert not [*(tmp_path / "spill").iterdir()]


MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize("row", ["", '3,5" disk', "3," + "x" * (MAX_ROW_BYTES + 1)])
@pytest.mark.parametrize("header", ["who,item", '"who","item"', 'who,"item"'])
def test_byte_order_mark_belongs_to_no_value(
    header: str, row: str, ending: str, tmp_path: Path
) -> None:
    """A file reads the same with and without a mark before its first name."""
    read = []
    for mark in (b"", MARK):
        raw = mark + "\n".join([header, "1,a", row, "2,b"]).encode()
        path = tmp_path / f"{len(mark)}.{ending}"
        path.write_bytes(gzip.compress(raw) if ending == "csv.gz" else raw)
        read.append(dg.read(path, user="who"))
    assert read[1].source.columns() == {"who": "VARCHAR", "item": "VARCHAR"}
    plain, marked = (rows_of(table) for table in read)
    assert plain == marked
    assert len(plain) == 2 + ("disk" in row)


def rows_of(table: dg.UserTable) -> list[dict[str, Any]]:
    with DuckDB(table) as engine:
        rows: list[dict[str, Any]] = engine.query("SELECT * FROM source ORDER BY who").to_pylist()
    return rows


@pytest.mark.parametrize("delimiter", ["", ",,", "¦", '"', "\n", "\r", "\0"])
def test_invalid_text_between_values_is_rejected(delimiter: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"who,item\n1,a\n")
    with refuses("delimiter", "character"):
        dg.read(tmp_path / "rows.csv", delimiter=delimiter)


def mended(text: bytes, cuts: tuple[int, ...] = ()) -> tuple[bytes, int]:
    """The text with regular quotes, and how many rows were left out."""
    normalizer = QuoteNormalizer(",")
    pieces = [text[low:high] for low, high in itertools.pairwise([0, *cuts, len(text)])]
    return b"".join(normalizer.rows(pieces)), normalizer.dropped


@pytest.mark.slow
@pytest.mark.parametrize("columns", [["a"], ["a", "b"]], ids=["one column", "two columns"])
def test_repaired_row_has_its_original_values(columns: list[str], tmp_path: Path) -> None:
    """For all short words: each row is dropped, or its repair reads like the original."""
    words = words_of(MATTERS, 5)
    rows = sorted({row for word in words for row in split(word)})
    fixed = {row: mended(row) for row in rows}
    (tmp_path / "mended").mkdir()
    before = as_read(rows, columns, tmp_path)
    after = as_read(sorted({text for text, _ in fixed.values()}), columns, tmp_path / "mended")
    told = 0
    for row, (text, left_out) in fixed.items():
        assert left_out == (not text), row
        assert not odd_of(text)
        if text:
            assert after[text] == before[row], row
            told += text != row
    assert told > 100


def odd_of(text: bytes, cuts: tuple[int, ...] = ()) -> bool:
    splitter = RowSplitter(",")
    for low, high in itertools.pairwise([0, *cuts, len(text)]):
        splitter.ends(text[low:high])
    # The text after the last quote is known only at the end.
    splitter.ends(b"\n")
    return splitter.irregular or splitter.open


@pytest.mark.slow
def test_odd_quotes_are_seen_wherever_a_file_is_cut(effort: Effort) -> None:
    """A text is odd if and only if mending changes it; and it is mended row by row."""
    chance = random.Random(2)
    # Rows of many words are the same few.
    alone = functools.cache(mended)
    for word in effort.some(words_of(MATTERS, 5)):
        text = word + b"\n"
        cuts = tuple(sorted(chance.sample(range(len(text)), k=min(2, len(text)))))
        whole = mended(text)
        assert odd_of(text, cuts) == (whole[0] != text), text
        assert mended(text, cuts) == whole
        found = split(text)
        rows = [alone(row) for row in found]
        if not found[-1].endswith((b"\n", b"\r")):
            # A quote that is open to the end.
            assert whole[1] > 0
            continue
        assert whole == (b"".join(row for row, _ in rows), sum(count for _, count in rows)), text


def test_malformed_lines_are_long_rows_and_irregular_quotes() -> None:
    long = [b"who,item\n1,", b'"' + b"2,a\n" * MAX_ROW_BYTES, b'"\n3,a\n']
    assert find_malformed(long, ",") == MalformedLines(long_rows=((9, 33554446),))
    assert find_malformed([b'who,item\n1,5" disk\n'], ",") == MalformedLines(irregular_quotes=True)


def test_dropped_spans_may_cross_pieces() -> None:
    assert b"".join(drop_spans([b"abc", b"def", b"ghi"], [(1, 2), (4, 8)])) == b"acdi"
