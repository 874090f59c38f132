"""The command line, as a person runs it: processes, exit codes, one sentence for an error."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command

import dpgrain as dg


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(0)
    size = 5000
    table = pa.table(
        {
            "person": generator.integers(0, 300, size),
            "page": pa.array([f"page {i}" for i in generator.integers(0, 8, size)]),
            "topic": pa.array([f"topic {i}" for i in generator.integers(0, 3, size)]),
            "seconds": generator.normal(30, 20, size),
        }
    )
    path = tmp_path_factory.mktemp("cli") / "visits.parquet"
    pq.write_table(table, path)
    return path


def test_histogram_prints_estimates_and_the_promise(
    visits: Path, tmp_path: Path, command: Command
) -> None:
    output, saved = tmp_path / "out.csv", tmp_path / "saved.parquet"
    done = command(
        "histogram", visits, "--user", "person", "--item", "page", "--element", "page",
        "--epsilon", "1", "--delta", "1e-6", "--top", "3", "--output", output, "--save", saved,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (
        "8 rows, 3 largest by clipped total shown; all: --output FILE, or a larger --top"
        in done.stdout
    )
    assert "ε = 1, δ = 10⁻⁶ per element ('page'; users 'person'; zero_out" in done.stdout
    assert f"Full guarantee: {saved}" in done.stdout
    assert not done.stderr
    rows = pyarrow.csv.read_csv(output)
    own = ["estimate", "std_error", "low", "high"]
    more = ["at_least", "clipped_share", "warning", "notes", "covers"]
    assert rows.column_names == ["page", *own, *more]
    assert set(rows["covers"].to_pylist()) == {"clipped total"}
    assert "to at most a bound per " in done.stdout
    assert "95% interval (low to high) for the clipped total" in done.stdout
    assert rows.num_rows == 8
    again = command("guarantee", saved)
    assert again.returncode == 0
    assert "5 elements" in again.stdout
    assert "zero_out" in again.stdout


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_output_formats(visits: Path, tmp_path: Path, ending: str, command: Command) -> None:
    output = tmp_path / f"out.{ending}"
    done = command(
        "histogram", visits, "--user", "person", "--item", "page", "--unit", "user",
        "--epsilon", "2", "--delta", "1e-6", "--clip", "10", "--output", output,
        "--relation", "replace", "--weight", "seconds",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    read = json.loads(output.read_text()) if ending == "json" else pq.read_table(output).to_pylist()
    own = {"page", "estimate", "std_error", "low", "high", "at_least"}
    assert set(read[0]) == own | ({"notes", "covers"} if ending == "json" else set())
    assert str(dg.Guarantee.read_for_output(output)) in done.stdout
    assert all(row["at_least"] >= 0 for row in read)


def test_a_domain_and_a_partition_in_files(visits: Path, tmp_path: Path, command: Command) -> None:
    domain, partition = tmp_path / "domain.txt", tmp_path / "cells.csv"
    domain.write_text("page 0\npage 1\npage 99\n")
    partition.write_text("page,cell\npage 0,a\npage 1,a\n")
    done = command(
        "histogram", visits, "--user", "person", "--item", "page", "--element", partition,
        "--domain", domain, "--epsilon", "1", "--noise", "laplace", "--clip", "3", "--top", "9",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "page 99" in done.stdout
    assert "δ = 0" in done.stdout


def test_check_is_for_the_curator(visits: Path, command: Command) -> None:
    done = command("histogram", visits, "--user", "person", "--item", "page", "--check")
    assert done.returncode == 0
    assert "NOT private" in done.stdout
    assert "users with a record" in done.stdout


WRONG = [
    (["--user", "nobody"], 2, "'nobody' is not a column"),
    (["--item", "nothing"], 2, "'nothing' is not a column"),
    (["--epsilon", "0"], 2, "epsilon must be positive and finite, not 0.0."),
    (["--epsilon", "inf"], 2, "epsilon must be positive and finite"),
    (["--delta", "0"], 2, "--noise laplace, which needs none"),
    (["--delta", "1"], 2, "delta must be in [0, 1)"),
    (["--clip", "0"], 2, "clip must be positive and finite"),
    (["--clip", "nan"], 2, "clip must be positive and finite"),
    (["--clip", "much"], 2, "--clip must be a number or 'auto', not 'much'."),
    (["--element", "nothing"], 2, "'nothing' is not a column"),
    (
        ["--element", "missing.csv"],
        2,
        "--element 'missing.csv' must be a column of the table or a file",
    ),
    (["--max-elements", "3"], 2, "--max-elements requires --unit user."),
    (["--output", "/no/such/folder/x.csv"], 2, "cannot be written"),
    (["--memory", "lots"], 2, "memory must be a size such as"),
    (["--noise", "laplace"], 2, "domain is required with Laplace noise"),
]


@pytest.mark.parametrize(("words", "code", "sentence"), WRONG, ids=lambda v: str(v)[:30])
def test_errors_are_one_sentence(
    visits: Path, words: list[str], code: int, sentence: str, command: Command
) -> None:
    options = {"--user": "person", "--item": "page", "--element": "page", "--epsilon": "1",
               "--delta": "1e-6"}  # fmt: skip
    options |= dict(zip(words[::2], words[1::2], strict=True))
    done = command("histogram", visits, *[word for pair in options.items() for word in pair])
    assert done.returncode == code
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "estimate" not in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("damage", ["cut", "zeroed", "missing"])
def test_broken_files_release_nothing(
    visits: Path, tmp_path: Path, damage: str, command: Command
) -> None:
    broken, output = tmp_path / "broken.parquet", tmp_path / "out.csv"
    content = bytearray(visits.read_bytes())
    if damage == "cut":
        broken.write_bytes(content[: len(content) // 2])
    elif damage == "zeroed":
        content[200 : len(content) // 3] = bytes(len(content) // 3 - 200)
        broken.write_bytes(content)
    done = command(
        "histogram", broken, "--user", "person", "--item", "page", "--element", "page",
        "--epsilon", "1", "--delta", "1e-6", "--output", output,
    )  # fmt: skip
    assert done.returncode == (2 if damage == "missing" else 1)
    assert done.stderr.startswith("Error: The file")
    assert not output.exists()
    assert list(tmp_path.glob(".*")) == []


def test_guarantee_from_parameters(command: Command) -> None:
    done = command("guarantee", "--noise-multiplier", "4.2247", "--delta", "1e-6")
    assert done.returncode == 0
    row = next(line for line in done.stdout.splitlines() if "1 element " in line)
    assert "1" in row.split("│")[2]
    assert command("guarantee").returncode == 2


PROMISE = ("--user", "person", "--epsilon", "2", "--delta", "1e-4")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("count", "--unit", "user"), ", chosen privately\n"),
        (("count", "--unit", "user", "--by", "topic", "--by", "page"), "topic"),
        (("sum", "--unit", "user", "--value", "seconds"), ", chosen privately\n"),
        (
            (
                "mean",
                "--unit",
                "user",
                "--value",
                "seconds",
                "--bounds",
                "0",
                "90",
                "--by",
                "topic",
            ),
            "Mean of seconds clamped to [0, 90] per topic",
        ),
        (("variance", "--element", "topic", "--value", "seconds"), "per element ('topic'; "),
        (
            ("quantiles", "--unit", "user", "--value", "seconds", "--q", "0.1", "--q", "0.9"),
            "95% interval (low to high) for the clipped quantile",
        ),
        (
            ("top", "--element", "page", "--item", "page", "--k", "3"),
            "Number of users with each page (the 3 largest, chosen",
        ),
        (
            ("elements-per-user", "--element", "topic"),
            "Number of users by how many values of topic, and how many records, each has",
        ),
    ],
    ids=lambda value: "-".join(value[:3]) if isinstance(value, tuple) else "",
)
def test_each_statistic_has_a_command(
    words: tuple[str, ...], said: str, visits: Path, tmp_path: Path, command: Command
) -> None:
    name, *options = words
    output, saved = tmp_path / "out.csv", tmp_path / "saved.parquet"
    done = command(name, visits, *options, *PROMISE, "--output", output, "--save", saved)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    # Releases above an integer cutoff may cost slightly less than requested. Laplace noise, if
    # known to be smaller, needs no δ.
    assert re.search(r"ε = (2|1\.9\d+), δ = (10⁻⁴|0) per ", done.stdout)
    assert pyarrow.csv.read_csv(output).num_rows > 0
    assert command("guarantee", saved).returncode == 0


def test_page_with_another_suffix_is_rejected_before_publishing(
    visits: Path, tmp_path: Path, command: Command
) -> None:
    output, page = tmp_path / "out.csv", tmp_path / "page.csv"
    done = command(
        "count", visits, "--unit", "user", *PROMISE, "--output", output, "--report", page
    )
    assert done.returncode != 0
    assert "--report 'page.csv' is written as an HTML page" in " ".join(done.stderr.split())
    assert not output.exists()


@pytest.mark.parametrize("columns", ["topic,page", "topic, page"])
def test_groups_may_be_listed_with_a_comma(columns: str, visits: Path, command: Command) -> None:
    done = command("count", visits, "--by", columns, "--unit", "user", *PROMISE, "--json")
    assert done.returncode == 0, done.stderr
    assert {"topic", "page"} < set(json.loads(done.stdout)["estimates"][0])
    wrong = command("count", visits, "--by", "topic,pages", "--unit", "user", *PROMISE)
    assert "--by 'pages' is not a column of the table" in wrong.stderr


@pytest.mark.parametrize(
    "bounds", [("--bounds", "0,90"), ("--bounds=0,90",), ("--bounds", "0", "90")]
)
def test_bounds_may_be_listed_with_a_comma(
    bounds: tuple[str, ...], visits: Path, command: Command
) -> None:
    for words in ((*bounds, visits), (visits, *bounds)):
        done = command("mean", *words, "--value", "seconds", "--unit", "user", *PROMISE)
        assert done.returncode == 0, done.stderr
        assert "Mean of seconds clamped to [0, 90]" in done.stdout


def test_number_that_may_have_groups_is_rejected(visits: Path, command: Command) -> None:
    words = ("mean", visits, "--value", "seconds", "--unit", "user", "--decimal", ",", *PROMISE)
    for text, number in (("5.000", "5"), ("5.125", "5.1250")):
        done = command(*words, "--bounds", "0", text)
        assert done.returncode == 2
        grouped = text.replace(".", "")
        assert f"--bounds must not be {text} with --decimal ," in done.stderr
        assert f"write {grouped} or {number}." in " ".join(done.stderr.split())
    assert "may mean 1500 or 1.5" in " ".join(command(*words, "--clip", "1.500").stderr.split())
    for text in ("5000", "0.125", "12.5", "12.5000"):
        done = command(*words, "--bounds", "0", text)
        assert "--bounds must not be" not in done.stderr


def test_help_covers_every_command(command: Command) -> None:
    shown = command("--help").stdout
    for name in ("histogram", "top", "count", "sum", "mean", "variance", "quantiles", "guarantee"):
        assert name in shown
        assert "Example" in command(name, "--help").stdout


def test_cells_and_domains_come_from_files(visits: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "cells.csv").write_text(
        "page,area\n" + "".join(f"page {i},a{i % 2}\n" for i in range(8))
    )
    (tmp_path / "areas.txt").write_text("a0\na1\n")
    (tmp_path / "topics.txt").write_text("topic 0\ntopic 1\n")
    cells = f"area=page:{tmp_path / 'cells.csv'}"
    done = command(
        "count", visits, "--cells", cells, "--by", "area", "--by", "topic", "--element", "area",
        "--domain", f"area={tmp_path / 'areas.txt'}", "--domain", f"topic={tmp_path / 'topics.txt'}",
        *PROMISE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(4 public groups)" in done.stdout
    (tmp_path / "pairs.csv").write_text("topic,page\ntopic 0,page 1\ntopic 2,page 3\n")
    done = command(
        "count", visits, "--by", "page", "--by", "topic", "--unit", "user",
        "--domain", tmp_path / "pairs.csv", *PROMISE,
    )  # fmt: skip
    assert "(2 public groups)" in done.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--cells", "area"), "--cells must be NAME=COLUMN:FILE"),
        (("--by", "page", "--by", "topic", "--domain", "missing.csv"), "missing.csv"),
        (("--by", "nobody"), "'nobody' is not a column"),
        (("--value", "page"), "--type page=double"),
    ],
    ids=["cells", "domain", "by", "value"],
)
def test_one_sentence_reports_a_mistake(
    options: tuple[str, ...], sentence: str, visits: Path, command: Command
) -> None:
    done = command("count", visits, "--unit", "user", *PROMISE, *options)
    assert done.returncode in (1, 2)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


PEOPLE = ["--user", "person", "--unit", "user", "--epsilon", "2", "--delta", "1e-6"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["mean", "--value", "n", "--n-users", "400"], "over all 400 enrolled people"),
        (["variance", "--value", "spent"], "over people with a record"),
        (["quantiles", "--value", "n"], "uantiles of n (each person's number of records), over"),
        (["distribution", "--value", "n", "--at", "1,10,20"], "records) at or above each value"),
        (["histogram", "--item", "n", "--edges", "5,10,20"], "umber of people by n"),
        (["histogram", "--item", "spent", "--edges", "auto"], "umber of people by spent"),
        (["top", "--item", "topics"], "count of users with each topics"),
    ],
)
def test_statistics_of_people(visits: Path, asked: list[str], said: str, command: Command) -> None:
    numbers = ["n=count", "spent=seconds:sum", "topics=topic:nunique"]
    options = [part for number in numbers for part in ("--per-user", number)]
    done = command(asked[0], visits, *asked[1:], *options, *PEOPLE)
    assert done.returncode == 0, done.stderr
    assert said in " ".join(done.stdout.split())
    assert "one row per person, with n (rows), spent (sum of seconds)" in " ".join(
        done.stdout.split()
    )


@pytest.mark.slow
def test_a_distribution_by_group(visits: Path, tmp_path: Path, command: Command) -> None:
    page, output = tmp_path / "page.html", tmp_path / "out.csv"
    done = command(
        "distribution", visits, "--per-user", "n=count", "--per-user-by", "topic", "--by", "topic",
        "--value", "n", "--at", "1,5,10", *PEOPLE, "--output", output, "--report", page,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = pyarrow.csv.read_csv(output)
    assert rows.column_names[:3] == ["topic", "from", "estimate"]
    assert rows.num_rows == 9
    assert "at once" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--per-user-filter", "n > 1"], "--per-user-filter requires --per-user"),
        (["--per-user", "n"], "--per-user must be NAME=EXPRESSION, such as"),
        (["--per-user", "n=count", "--per-user", "n=size"], "with unique names"),
        (["--per-user", "n=seconds:median"], "and a function of size, count, sum"),
        (["--per-user", "n=none:sum"], "--per-user 'none' is not a column of the table"),
        (["--per-user-by", "topic"], "--per-user-by requires --per-user"),
        (
            ["--per-user", "n=count"],
            "--per-user requires --unit user, not record",
        ),
    ],
)
def test_wrong_numbers_of_people_are_one_sentence(
    visits: Path, options: list[str], said: str, command: Command
) -> None:
    unit = "record" if said.endswith("not record") else "user"
    promise = ["--user", "person", "--unit", unit, "--epsilon", "2", "--delta", "1e-6"]
    done = command("mean", visits, "--value", "n", *promise, *options)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_columns_of_other_files(visits: Path, tmp_path: Path, command: Command) -> None:
    rows = pq.read_table(visits)
    topics = sorted(set(rows["topic"].to_pylist()) - {None})
    areas, people = tmp_path / "areas.csv", tmp_path / "people.csv"
    areas.write_text(
        "topic,side\n"
        + "".join(f"{topic},{'ab'[place % 2]}\n" for place, topic in enumerate(topics))
    )
    users = sorted(set(rows["person"].to_pylist()) - {None})
    people.write_text("id,born\n" + "".join(f"{user},{1950 + user % 50}\n" for user in users))
    joins = ["--join-public", f"topic={areas}", "--join", f"id={people}", "--type", "id=bigint",
             "--type", "born=bigint"]  # fmt: skip
    done = command(
        "mean", visits, *joins, "--per-user", "side=most(side)", "--per-user", "born=max(born)",
        "--by", "side", "--value", "born", "--bounds", "1900", "2000", *PEOPLE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "are paired with one row of the same person in people.csv" in said
    assert "the column 'side' is side of areas.csv by topic" in said
    for wrong, sentence in (
        (["--join-public", str(areas)], "--join-public must be COLUMN=FILE"),
        (["--join", "=x.csv"], "--join must be FILE or USER=FILE"),
        (["--join-public", f"topics={areas}"], "'topics' is not a column"),
    ):
        done = command("count", visits, *wrong, "--user", "person", "--epsilon", "1")
        assert done.returncode != 0
        assert sentence in " ".join(done.stderr.split())
