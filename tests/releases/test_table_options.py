"""Each option of a table is a key of files and an option of commands, which have the same effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pytest
from tests.conftest import Command

import dpgrain as dg
from dpgrain.releases.table_options import OPTIONS

ROWS = {
    "who": [number % 30 for number in range(120)],
    "page": ["abc"[number % 3] for number in range(120)],
    "at": [f"2026-01-{1 + number % 9:02} 12:00:00" for number in range(120)],
    "paid": [number % 7 for number in range(120)],
}
# Values of an option on the command line, and its table in a file.
CASES: dict[str, tuple[list[str], str]] = {
    "days": (["day=at"], '[table.days.day]\nof = "at"'),
    "cells": (["day=page:pages.csv"], '[table.cells.day]\nof = "page"\nby = "pages.csv"'),
    "where": (["page=a", "page=b"], '[table.where]\npage = ["a", "b"]'),
    "join_public": (["page=pages.csv"], '[table.join_public.x]\nsource = "pages.csv"\non = "page"'),
    "join": (["id=people.csv"], '[table.join.x]\nsource = "people.csv"\nuser = "id"'),
    "columns": (["day=lower(page)"], '[table.columns]\nday = "lower(page)"'),
    "filter": (["page <> 'c'"], "filter = \"page <> 'c'\""),
    "distinct": (["page", "paid"], 'distinct = ["page", "paid"]'),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    csv.write_csv(pa.table(ROWS), "rows.csv")
    Path("pages.csv").write_text("page,area\na,x\nb,y\nc,y\n")
    Path("people.csv").write_text("id,area\n" + "".join(f"{who},z\n" for who in range(30)))
    return tmp_path


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: str(option.key))
def test_an_option_of_commands_is_a_key_of_files(
    option: Any, folder: Path, command: Command
) -> None:
    texts, key = CASES[option.key]
    by = "day" if option.key in ("days", "cells", "columns") else "page"
    if option.key.startswith("join"):
        by = "area"
    (folder / "releases.toml").write_text(
        f"""
[table]
source = "rows.csv"
user = "who"
types = {{ at = "timestamp" }}
{key}
[budget]
unit = "user"
[release.one]
statistic = "count"
by = "{by}"
epsilon = 100.0
clip = 5.0
noise = "gaussian"
delta = 1e-6
"""
    )
    from_file = dg.releases(folder / "releases.toml", random_state=1)["one"]
    words = [word for text in texts for word in (option.flag, text)]
    done = command(
        "count", "rows.csv", "--user", "who", "--type", "at=timestamp", *words, "--unit", "user",
        "--by", by, "--clip", "5", "--noise", "gaussian", "--epsilon", "100", "--delta", "1e-6",
        "--save", "command.parquet",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    from_command = dg.Estimates.load("command.parquet")
    assert from_command.guarantee.event == from_file.guarantee.event
    assert str(from_command.guarantee.scope) == str(from_file.guarantee.scope)
    facts = [fact for fact in from_file.guarantee.public if fact.kind != "with-each"]
    assert [str(fact) for fact in from_command.guarantee.public] == [str(fact) for fact in facts]
    command_keys, file_keys = (
        sorted(map(str, release.to_arrow()[by].to_pylist()))
        for release in (from_command, from_file)
    )
    assert command_keys == file_keys != []
    assert option.key not in ("where", "filter") or command_keys == ["a", "b"]


def test_each_option_has_a_case() -> None:
    assert list(CASES) == [option.key for option in OPTIONS]


def test_text_parameter_of_read_is_option_and_key(folder: Path, command: Command) -> None:
    (folder / "cafes.csv").write_bytes("page,area\na,Café\nb,Café\nc,y\n".encode("latin-1"))
    (folder / "releases.toml").write_text(
        """
[table]
source = "rows.csv"
user = "who"
[table.join_public.x]
source = "cafes.csv"
on = "page"
encoding = "latin-1"
[budget]
unit = "user"
[release.one]
statistic = "count"
by = "area"
epsilon = 100.0
delta = 1e-6
"""
    )
    from_file = dg.releases(folder / "releases.toml", random_state=1)["one"]
    assert sorted(from_file.to_arrow()["area"].to_pylist()) == ["Café", "y"]
    words = ("count", "rows.csv", "--user", "who", "--unit", "user", "--by", "area",
             "--join-public", "page=cafes.csv", "--epsilon", "100", "--delta", "1e-6")  # fmt: skip
    done = command(*words, "--encoding", "latin-1")
    assert "Café" in done.stdout, done.stderr
    done = command(*words, "--encoding", "utf-7")
    assert done.stderr.startswith("Error: --encoding must be")
