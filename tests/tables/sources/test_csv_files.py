"""Files of rows: a malformed line of CSV is dropped, and touches no other."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Command
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.learn.features import FeatureEncoding, NumberColumn, load_rows
from dpgrain.publishing.charge import Curator
from dpgrain.tables.engines.duckdb import DuckDB


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_rows_of_another_encoding_are_dropped_individually(ending: str, tmp_path: Path) -> None:
    good = b"".join(b"u%d,a,1\n" % i for i in range(50))
    raw = b"who,item,x\n" + good + "v,café,1\n".encode("latin-1") + good + "w,é,1\n".encode()
    path = tmp_path / f"rows.{ending}"
    path.write_bytes(gzip.compress(raw) if ending.endswith("gz") else raw)
    table = dg.read(path, types={"x": "DOUBLE"})
    read = load_rows(
        table, FeatureEncoding((NumberColumn("x"),)), Curator(), keep=["item"]
    ).kept.column("item")
    assert read.to_pylist() == ["a"] * 100 + ["é"]
    told = "CSV lines dropped: not UTF-8 text: pass encoding='latin-1' or encoding='windows-1252'"
    assert next(iter(table.check_counts(value="x").items())) == (told, 1)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize(
    ("encoding", "letters"), [("latin-1", "é;ß\x80"), ("windows-1252", "é;ß€")]
)
def test_rows_of_a_stated_encoding_are_read(
    encoding: str, letters: str, ending: str, tmp_path: Path
) -> None:
    rows = ["who,ïtem,x", *(f"u{i},{letters},1" for i in range(300)), f'v,"{letters} ""a""",1']
    raw = "\n".join([*rows, f'w,{letters}"disk,1']).encode(encoding) + b"\ny,\x81,1\nz,b,1\n"
    path = tmp_path / f"rows.{ending}"
    path.write_bytes(gzip.compress(raw) if ending.endswith("gz") else raw)
    table = dg.read(path, encoding=encoding)
    assert list(table.schema) == ["who", "ïtem", "x"]
    with DuckDB(table) as engine:
        found = Counter(engine.query('SELECT "ïtem" FROM source', ["ïtem"]).column(0).to_pylist())
    expected = Counter({letters: 300, f'{letters} "a"': 1, f'{letters}"disk': 1, "b": 1})
    assert found == expected | Counter({"\x81": int(encoding == "latin-1")})


def test_csv_advice_appears_once_for_any_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for folder, row in (("one", b"1,a\n"), ("two", b"1\n\xff,,,\n")):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "rows.csv"
        path.write_bytes(b"who,item\n" + row)
        dg.read(path)
        assert capsys.readouterr().err == ""
        with monkeypatch.context() as patched:
            patched.delenv("DPGRAIN_QUIET")
            dg.read(path)
            dg.read(path)
        told.append(capsys.readouterr().err)
    assert told[0] == told[1]
    assert told[0].startswith("rows.csv: read as UTF-8 (encoding=, --encoding). Lines in another")
    assert told[0].count("dropped silently, and groups that occur only there are missing;") == 1


def test_file_being_checked_prints_no_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    (tmp_path / "rows.csv").write_bytes(b"who,item\n1,a\n")
    monkeypatch.delenv("DPGRAIN_QUIET")
    words = ("count", tmp_path / "rows.csv", "--user", "who")
    checked = command(*words, "--check")
    assert (checked.returncode, checked.stderr) == (0, "")
    published = command(*words, "--unit", "user", "--epsilon", "1", "--delta", "1e-6")
    assert "dropped silently" in published.stderr


@pytest.mark.parametrize("unusual", [0, 1, 2])
def test_error_names_the_file_with_an_unusual_header(unusual: int, tmp_path: Path) -> None:
    for place in range(3):
        header = "who,item" if place == unusual else "who,page"
        (tmp_path / f"{place}.csv").write_text(f"{header}\n1,a\n")
    with refuses("file", f"{unusual}.csv' must have the same columns as", kind=dg.SchemaError):
        dg.read(tmp_path, user="who")


def test_error_names_the_truncated_compressed_file(tmp_path: Path) -> None:
    # Long enough that the header can still be read.
    rows = "".join(f"1,{random.randbytes(40).hex()}\n" for _ in range(9_999))
    for name in ("0.csv.gz", "1.csv.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"who,page\n" + rows.encode()))
    table = dg.read(tmp_path, user="who")
    (tmp_path / "1.csv.gz").write_bytes((tmp_path / "1.csv.gz").read_bytes()[:-9])
    with refuses("file", "1.csv.gz' cannot be read completely", kind=dg.DataError):
        dg.count(table, unit=dg.User(), epsilon=1.0, delta=1e-6)


def test_an_unknown_encoding_raises(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"who\n1\n")
    with pytest.raises(dg.ParameterError, match="encoding must be one of 'utf-8', 'latin-1'"):
        dg.read(tmp_path / "rows.csv", encoding="utf-16")


#: Lines that a user may have written; none of them is a row with item b.
ODD = [
    b"1,a\n", b"1,a,2,3,4\n", b"\n", b'1,a"b"c,2\n', b'1,"a"b,2\n', b"1,\xe9,2\n", b"1,a,\x00\n",
    b'1,"x\ny",2\n', b"1,\xc3,2\n", b"\x00\xff\xfe\n", b"1,a,2\r", b"\r\n", b'1,"a""b",2\n',
    b"1,\xed\xa0\x80,2\n", b'"\n"\n', b"1,a,1e999\n", b'1,a,"1,5"\n', b"1,\x80\x9f,2\n",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_odd_lines_do_not_touch_others(seed: int, tmp_path: Path) -> None:
    """With any lines between them, all good rows are read, by any number of threads."""
    chance = random.Random(seed)
    # For some files, each thread reads a part.
    size = chance.choice([50, 50, 50, 400_000])
    good = b"".join(b"%d,b,1\n" % i for i in range(size))
    raw = b"who,item,x\n"
    for _ in range(chance.randint(1, 6)):
        cut = good.rfind(b"\n", 0, chance.randint(0, len(good))) + 1
        raw += good[:cut] + chance.choice(ODD)
        good = good[cut:]
    (tmp_path / "rows.csv").write_bytes(raw + good)
    table = dg.read(tmp_path / "rows.csv", types={"x": "DOUBLE"}, threads=chance.choice([1, 4]))
    rows = load_rows(table, FeatureEncoding((NumberColumn("x"),)), Curator(), keep=["item"])
    there = np.asarray(rows.kept.column("item").to_pylist()) == "b"
    assert there.sum() == size
    assert rows.X["x"][there].sum() == size


@pytest.mark.parametrize("types", [None, {"x": "DOUBLE"}])
def test_dropped_lines_are_reported_to_the_curator(types: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(
        b'who,item,x\n1,a,1\n2,b\n3,c,1,5\n\n4,"d\ne",2\n,f,3\n5,g,9\n6,\xe9,1\n7,"h,1\n8,i,1\n'
    )
    told = dg.read(path, user="who", types=types).check("item", value="x", bounds=(0, 5))
    for line in (
        "5  rows",
        "1  rows without a user (dropped)",
        "0  non-numeric cells of 'x' (dropped)",
        "1  cells of 'x' beyond the bounds (clamped)",
        "12  lines of CSV, including headers",
        "1  CSV lines dropped: not UTF-8 text",
        "1  CSV lines dropped: too few values",
        "1  CSV rows dropped: characters after the quotes of a value, or an unclosed quote",
        "1  CSV lines with more values than columns (the rest is ignored)",
        "1  CSV lines that are empty or part of an unclosed quote",
    ):
        assert f" {line}" in told


# -- rows that others' buffers cut ---

#: Bytes between possible restart points of a reader; DuckDB's buffers are all multiples of it.
STEP = 1 << 20
#: Well-formed rows of one person; each is one row, whatever its contents.
OWN_ROWS: dict[str, bytes] = {
    "none": b"",
    "plain": b"eve,b,x\n",
    "line ends": b'eve,b,"x\ny\n\nz"\n',
    "rows of others": b'eve,b,"%s"\n' % (b"u1,a,1\nv,b,1\n" * 100_000),
    "of many buffers": b'eve,b,"%s"\n' % (b"u1,a,1\nv,b,1\n" * 590_000),
    "doubled quotes": b'eve,b,"%s"\n' % (b'""\nu1,a,""1\n' * 120_000),
    "plain and long": b"eve,b,%s\n" % (b"x" * 3_000_000),
    "returns": b'eve,b,"x\r"\r',
    "return in the middle": b"eve,b,x\r",
    "two returns": b"eve,b,x\r\r\n",
}


def with_quotes_at_each_step(end: bytes, size: int) -> list[bytes]:
    """Rows with line ends in quotes wherever a buffer may end, and in between."""
    rows, told, number = [], 0, 0
    while told < size:
        near = min(told % STEP, -told % STEP) < 5000
        cell = b'"' + b"x\nu1,b,2\n" * 400 + b'"' if near else b'"p\nq"' if number % 7 else b"1"
        rows.append(b"u%d,a,%s%s" % (number % 1000, cell, end))
        told, number = told + len(rows[-1]), number + 1
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("own", OWN_ROWS)
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_no_row_is_read_otherwise_for_another(
    own: str, end: bytes, ending: str, tmp_path: Path
) -> None:
    """In files longer than several buffers, with quoted line ends at each boundary."""
    size = 20 * STEP if own in ("none", "of many buffers") else 3 * STEP
    rows = with_quotes_at_each_step(end, size)
    expected = Counter(row.split(b",", 1)[0].decode() for row in rows)
    body = [*rows[: len(rows) // 9], OWN_ROWS[own], *rows[len(rows) // 9 :]]
    raw = b"who,item,x" + end + b"".join(body)
    for path in (tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"):
        path.write_bytes(gzip.compress(raw, 1) if ending.endswith("gz") else raw)
    for threads, files in ((1, 1), (2, 2)):
        paths = [tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"][:files]
        table = dg.read(paths, user="who", threads=threads)
        with DuckDB(table) as engine:
            found = engine.query("SELECT who, item, count(*) AS n FROM source GROUP BY ALL")
        counts = {(row["who"], row["item"]): row["n"] for row in found.to_pylist()}
        own_rows = counts.pop(("eve", "b"), 0)
        assert own_rows == (0 if own == "none" else files)
        assert counts == {(who, "a"): files * n for who, n in expected.items()}
