"""Messages of commands about an unexpected table, in the terms of the command line."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command

import dpgrain as dg
from dpgrain import _formatting
from dpgrain.cli import printing
from dpgrain.tables.sources import parquet_files

ROWS = pa.table(
    {
        "who": [number % 40 for number in range(200)],
        "page": [f"page {number % 5}" for number in range(200)],
        "amount": np.linspace(1, 9, 200),
    }
)
EPSILON = ("--epsilon", "1")
DELTA = ("--delta", "1e-6")
USERS = ("--user", "who", "--unit", "user")
PEOPLE = ("mean", *USERS, *EPSILON, *DELTA, "--value", "spent", "--per-user")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(ROWS, path)
    return path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("quantiles", *USERS, *EPSILON, "--value", "amount"),
            "Pass --delta, such as --delta 1e-6; or --noise laplace, which needs none.",
        ),
        (
            ("count", *USERS, *EPSILON, "--by", "page"),
            "Pass --delta, such as --delta 1e-6, for selecting groups; or --domain, the public list "
            "of groups.",
        ),
        (
            ("count", "--by", "page"),
            "Choose what to protect: pass --element COLUMN, --unit user or --unit record; also pass "
            "--epsilon, such as --epsilon 1, and --delta, such as --delta 1e-6, and --user COLUMN, "
            "unless you protect records.",
        ),
        (
            ("count", "--user", "who", "--by", "page", *EPSILON),
            "Choose what to protect: pass --element COLUMN, --unit user or --unit record; also pass "
            "--delta, such as --delta 1e-6.",
        ),
        (
            ("count", *USERS, "--by", "page"),
            "Pass --epsilon, such as --epsilon 1, and --delta, such as --delta 1e-6.",
        ),
        (("top", *USERS, *EPSILON, "--item", "page"), "Pass --delta, such as --delta 1e-6."),
        (
            ("count", "--unit", "user", *EPSILON),
            "--unit user requires --user, the user id column; or use --unit record.",
        ),
        (
            ("count", "--element", "page", *EPSILON),
            "--unit element requires --user, the user id column; or use --unit record.",
        ),
        (
            ("count", *USERS, "--max-elements", "3", *EPSILON),
            "Pass --element, the column of cells, such as --element page.",
        ),
        (
            ("elements-per-user", *USERS, *EPSILON, *DELTA),
            "--by is required; pass the column of the elements, such as --by page.",
        ),
        (
            ("count", "--user", "who", "--element", "no.csv", *EPSILON),
            "--element 'no.csv' must be a column of the table or a file; it has who, page, amount.",
        ),
        (
            ("count", "--user", "who", "--element", __file__, *EPSILON),
            f"--element {__file__!r} maps items to cells, and there are no items here; add a column "
            "with --cells NAME=COLUMN:FILE, and pass --element NAME.",
        ),
        (
            (*PEOPLE, "spent=amount:total"),
            "--per-user must be NAME=EXPRESSION, such as 'spent=total(paid)', NAME=count or "
            "NAME=COLUMN:FUNCTION, with unique names and a function "
            "of size, count, sum, mean, min, max, nunique, not 'spent=amount:total'.",
        ),
        (
            (*PEOPLE, "spent=amounts:sum"),
            "--per-user 'amounts' is not a column of the table; it has who, page, amount.",
        ),
        (
            ("mean", "--user", "who", "--unit", "record", *PEOPLE[5:], "spent=amount:sum"),
            "--per-user requires --unit user, not record, because each row is derived from all of a "
            "person's data; or use elements by a column of --per-user-by.",
        ),
        (
            ("count", "--unit", "user", *EPSILON, "--per-user", "n=count"),
            "--per-user requires --user, the user id column.",
        ),
        (
            ("count", *USERS, *EPSILON, *DELTA, "--by", "page", "--domain", "no.csv"),
            "The domain 'no.csv' is not a file; write its items to a text file, one per line, and "
            "pass its path.",
        ),
        (
            ("quantiles", *USERS, *EPSILON, *DELTA, "--value", "amount", "--q", "0.5,half"),
            "--q must be numbers such as 0.25,0.5,0.75, not 'half'.",
        ),
    ],
)
def test_errors_speak_of_options(
    words: tuple[str, ...], sentence: str, path: Path, command: Command
) -> None:
    name, *rest = words
    done = command(name, path, *rest)
    assert (done.returncode, done.stderr) == (2, f"Error: {sentence}\n")


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize(("mark", "shown"), [(";", ";"), ("\t", r"\t"), ("|", "|")])
def test_header_with_another_delimiter_is_reported(
    mark: str, shown: str, quoted: bool, tmp_path: Path, command: Command
) -> None:
    path = tmp_path / "rows.csv"
    names = (f'"{name}"' if quoted else name for name in ROWS.column_names)
    lines = [mark.join(names), *(mark.join(map(str, row.values())) for row in ROWS.to_pylist())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("count", path, *USERS, *EPSILON)
    assert f"--delimiter '{shown}'" in command(*words).stderr
    typed = (*words, "--type", f"{ROWS.column_names[0]}=text")
    assert f"--delimiter '{shown}'" in command(*typed).stderr
    assert command(*words, "--delimiter", shown).returncode == 0


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 20,001 columns, as wide.parquet and wide.csv."""
    folder = tmp_path_factory.mktemp("wide")
    columns = {"amount": [1.0], **{f"column_{number}": [0] for number in range(20_000)}}
    pq.write_table(pa.table(columns), folder / "wide.parquet")
    (folder / "wide.csv").write_text(f"{','.join(columns)}\n1.0{',0' * 20_000}\n", encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("amout", "the nearest is amount"),
        ("AMOUNTS", "the nearest is amount"),
        ("column2000", "the nearest are column_2000, column_12000, column_200, "),
        ("!", "none of its 20,001 columns is like it; the first are amount, column_0, column_1."),
    ],
)
def test_of_many_columns_the_nearest_are_named(
    name: str, near: str, wide: Path, command: Command
) -> None:
    words = ("--unit", "record", *EPSILON, "--value", name)
    done = command("mean", wide / "wide.csv", *words)
    assert done.stderr.startswith(f"Error: --value {name!r} is not a column of the table; ")
    assert near in done.stderr
    assert done.stderr.count(",") < 8
    typed = command("mean", wide / "wide.csv", *words, "--type", f"{name}=double")
    assert near in typed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("file", "plans"), [("wide.csv", 0), ("wide.parquet", 1)])
def test_many_columns_are_scanned_once_for_schema_and_names(
    file: str, plans: int, wide: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each plan of so wide a table takes half a second, and so does each search for near names.
    calls: Counter[str] = Counter()

    def counted(module: ModuleType, name: str) -> None:
        function = getattr(module, name)

        def call(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return function(*args, **options)

        monkeypatch.setattr(module, name, call)

    counted(parquet_files, "describe_columns")
    counted(_formatting, "get_close_matches")
    command("mean", wide / file, "--unit", "record", *EPSILON, "--value", "amout")
    assert calls == Counter(describe_columns=plans, get_close_matches=1)


def test_several_ranks_are_one_text(path: Path, command: Command) -> None:
    words = ("quantiles", path, *USERS, *EPSILON, *DELTA, "--value", "amount", "--bounds", "0", "9")
    shown = command(*words, "--q", "0.25,0.5", "--q", "0.9").stdout
    assert re.findall(r"^│ +(\S+) ", shown, re.MULTILINE) == ["0.25", "0.5", "0.9"]


def test_unneeded_delta_is_reported(path: Path, command: Command) -> None:
    words = ("count", path, "--unit", "record", *EPSILON)
    said = "--delta 1e-06 was not needed: with this noise, the guarantee has δ = 0."
    assert said in command(*words, *DELTA).stdout
    assert "not needed" not in command(*words).stdout


def test_a_release_is_json_for_programs(path: Path, command: Command) -> None:
    words = ("count", path, *USERS, "--epsilon", "20", *DELTA, "--by", "page", "--json")
    told = json.loads(command(*words).stdout)
    assert set(told["estimates"][0]) >= {"page", "estimate", "std_error", "at_least"}
    assert told["guarantee"]["delta"] == 1e-6
    assert "differential privacy" in told["sentence"]


def test_a_distribution_is_drawn(path: Path, tmp_path: Path, command: Command) -> None:
    words = ("distribution", path, *USERS, *EPSILON, *DELTA, "--value", "amount", "--at", "2,5")
    picture = tmp_path / "shares.svg"
    done = command(*words, "--plot", picture)
    assert f"Written: {picture}" in done.stdout
    assert "<svg" in picture.read_text(encoding="utf-8")
    done = command(*words, "--plot", tmp_path / "shares.gif")
    assert "--plot must end in .png, .svg or .pdf, not" in done.stderr
    assert not (tmp_path / "shares.gif").exists()


@pytest.mark.slow
def test_curator_sees_the_format_of_numbers(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('who;paid\na;"1.234,50"\nb;3,5\nc;"1,234.50"\nd;7\n', encoding="utf-8")
    comma = "cells of 'paid' that would be readable with --decimal ,"
    words = ("sum", path, "--delimiter", ";", "--user", "who", "--unit", "user", "--epsilon", "1",
             "--value", "paid")  # fmt: skip
    double = ("--type", "paid=double")

    def counts(*more: str) -> dict[str, int]:
        told: dict[str, int] = json.loads(command(*words, *more, "--check", "--json").stdout)[
            "counts"
        ]
        return told

    assert counts(*double)["non-numeric cells of 'paid' (dropped)"] == 3
    assert counts(*double)[comma] == 3
    assert counts()[f"{comma} and --type paid=double"] == 3
    remedied = counts("--decimal", ",", *double)
    assert remedied["non-numeric cells of 'paid' (dropped)"] == 1
    assert not any("readable" in text for text in (*remedied, *counts("--decimal", ",", *double)))
    assert f"3  {comma}\n" in command(*words, *double, "--check").stdout
    assert "or check the number format (--check)" in command(*words, *double).stdout


def test_empty_selection_is_not_an_empty_table(path: Path, command: Command) -> None:
    done = command("count", path, *USERS, "--by", "page", "--epsilon", "0.001", *DELTA)
    assert "unreadable values (--check), or pass --domain or a larger --epsilon." in done.stdout
    assert "--check shows" in done.stdout
    assert "┃" not in done.stdout


def test_no_number_or_heading_of_an_estimate_is_truncated(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = dg.read(path, user="who")
    for seed in (0, 25, 34):
        release = dg.sum(
            table, "amount", bounds=(0, 1e12), clip=1.0, unit=dg.User(), epsilon=1.0,
            random_state=seed,
        )  # fmt: skip
        printing.print_estimates(release, 1)
        shown = capsys.readouterr().out
        assert re.search(r"│ +−?[\d,]{13,} │ +[\d,]{13,} │", shown)
        # For the last two seeds a 0 is below "at least".
        assert "…" not in shown


def test_elements_are_counted_of_users(path: Path, command: Command) -> None:
    words = ("elements-per-user", path, "--element", "page", "--unit", "record", *EPSILON, *DELTA)
    done = command(*words)
    assert done.stderr == (
        "Error: --user is required, because elements are counted per user; pass the user id column.\n"
    )


def test_days_of_dates_are_rejected_in_option_terms(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("who,day\na,2026-01-31\n", encoding="utf-8")
    done = command(
        "count", path, *EPSILON, "--unit", "record", "--type", "day=date", "--days", "w=day"
    )
    assert done.stderr.startswith("Error: --days 'day' must contain timestamps, not have type DATE")


def test_text_range_is_rejected_before_any_charge(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("who,visits\na,1\nb,3\n", encoding="utf-8")
    words = ("count", path, "--unit", "record", *EPSILON, "--where", "visits=1..3")
    done = command(*words, "--ledger", tmp_path / "none")
    assert done.returncode == 2
    assert "--where visits=1..3 is a range, but 'visits' is text" in done.stderr
    assert command(*words, "--type", "visits=bigint").returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--domain", "no.txt"), "--domain lists the groups of --by; pass --by, or omit --domain."),
        (
            ("--by", "page", "--domain", "who=no.txt"),
            "--domain 'who' must be a column to group by, one of page.",
        ),
    ],
)
def test_domain_of_other_columns_is_rejected(
    words: tuple[str, ...], sentence: str, path: Path, command: Command
) -> None:
    done = command("count", path, *USERS, *EPSILON, *DELTA, *words)
    assert done.stderr.strip().removeprefix("Error: ") == sentence


def test_rows_of_people_in_groups_are_not_called_people(path: Path, command: Command) -> None:
    words = (
        "count",
        path,
        *USERS,
        *EPSILON,
        *DELTA,
        "--per-user",
        "n=count",
        "--per-user-by",
        "page",
    )
    assert "Clipped count of records" in command(*words).stdout
    assert "lipped count of people per page" in command(*words, "--by", "page").stdout


def test_curator_sees_zero_and_dropped_counts(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("who,y,x\na,1,2\nb,none,none\n", encoding="utf-8")
    words = ("--target", "y", "--features", "x", "--type", "x,y=double", "--check")
    said = command("fit", "linear", path, *words).stdout
    assert "1  non-numeric cells of 'x' (treated as 0)" in said
    assert "1  non-numeric cells of 'y' (dropped)" in said
