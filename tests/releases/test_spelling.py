"""Sentences that speak to Python and to the command line speak of keys in a file of releases."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command
from tests.releases import cases

import dpgrain as dg
from dpgrain.releases.toml_names import toml_spelling

TABLE = '[table]\nsource = "rows.{}"\nuser = "who"\n'
FILE = '[budget]\nunit = "user"\nepsilon = 1.0\ndelta = 1e-6\n[release.paid]\nshare = 1.0\n'


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        (
            "state its type, as types={'my day': 'DATE'} in dg.read or --type my day=date, or list.",
            "state its type, as types = {'my day' = 'DATE'} in [table], or list.",
        ),
        (
            "with types={'at': 'DATE'} in dg.read or --type at=date, and the format in dates= or "
            "--dates if it is not 2025-12-31",
            "with types = {'at' = 'DATE'} in [table], and the format in dates if it is not 2025-12-31",
        ),
        (
            "state delimiter=';' in dg.read or --delimiter ';'",
            "state delimiter = ';' in [table]",
        ),
        (
            r"state delimiter='\t' in dg.read or --delimiter '\t'",
            r'state delimiter = "\t" in [table]',
        ),
        (
            "state its type, as types={'my day': 'DATE'} in dg.read or --type 'my day=date', or list.",
            "state its type, as types = {'my day' = 'DATE'} in [table], or list.",
        ),
        ("pass clip= or a larger epsilon=.", "pass clip or a larger epsilon."),
        ("raise memory= in dg.read, or free disk", "raise memory in [table], or free disk"),
        (
            "name its days: table.with_days('day', of='at'), --days day=at, or [table.days.day] in it",
            "name its days: [table.days.day] in it",
        ),
    ],
)
def test_a_remedy_is_a_key(sentence: str, said: str) -> None:
    assert toml_spelling(sentence) == said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = {"who": [1, 2], "paid": ["1.5", "2"], "day": ["2026-01-01", "2026-01-02"]}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("who;paid\n1;2\n")
    return tmp_path


def told(folder: Path, table: str, more: str) -> str:
    with pytest.raises(dg.DpgrainError) as error:
        dg.plan_releases(cases.written(folder, table + FILE + more))
    return str(error.value)


def test_mistakes_name_the_correct_keys(folder: Path) -> None:
    mean = 'statistic = "mean"\nvalue = "paid"\nbounds = [0, 5]\n'
    parquet = TABLE.format("parquet")
    said = told(folder, parquet, mean)
    assert "declare its type, such as types = {'paid' = 'DOUBLE'} in [table]." in said
    path = cases.written(folder, parquet + "types = {'paid' = 'DOUBLE'}\n" + FILE + mean)
    assert len(dg.plan_releases(path).releases) == 1
    fit = 'fit = "linear"\ntarget = "who"\nfeatures = ["paid"]\n'
    assert "--" not in told(folder, parquet, fit)
    days = 'statistic = "count"\nwhere = {day = "2026-01-01..2026-01-02"}\n'
    assert "types = {'day' = 'DATE'} in [table]" in told(folder, parquet, days)
    said = told(folder, TABLE.format("csv"), mean)
    assert "pass delimiter = ';' in [table]" in said


def test_a_warning_of_a_run_names_the_key(folder: Path, command: Command) -> None:
    path = cases.written(folder, TABLE.format("parquet") + FILE + 'statistic = "count"\n')
    done = command("run", path, "--where", "day=2026-01", "--dry-run")
    assert "declare its type, such as types = {'day' = 'DATE'} in [table], and" in done.stderr
    words = ("--user", "who", "--unit", "user", "--epsilon", "1", "--where", "day=2026-01")
    done = command("count", folder / "rows.parquet", *words)
    assert "declare its type, such as --type day=date, and" in done.stderr
