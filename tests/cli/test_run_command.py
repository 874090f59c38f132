"""`dpgrain run`, as a person runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command
from tests.releases import cases

import dpgrain as dg


@pytest.fixture
def file(tmp_path: Path) -> Path:
    cases.parquet(tmp_path)
    kinds = ["histogram", "count", "mean_of_users", "fit"]
    listed = "\n".join(
        cases.releases(f'share = 0.25\noutput = "{name}.json"', [name]) for name in kinds
    )
    return cases.written(tmp_path, 'report = "all.html"\n' + cases.TABLE + cases.BUDGET + listed)


@pytest.mark.slow
def test_a_dry_run_prints_the_plan_and_leaves_nothing(file: Path, command: Command) -> None:
    before = sorted(file.parent.iterdir())
    done = command("run", file, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert str(dg.plan_releases(file)) in done.stdout
    assert done.stdout.endswith("Dry run: nothing was read, charged or written.\n")
    assert sorted(file.parent.iterdir()) == before


def test_report_option_replaces_the_page_of_the_file(tmp_path: Path, command: Command) -> None:
    cases.parquet(tmp_path)
    text = 'report = "all.html"\n' + cases.TABLE + cases.BUDGET
    file = cases.written(tmp_path, text + cases.releases("share = 1.0", ["count"]))
    done = command("run", file, "--report", tmp_path / "other.html")
    assert done.returncode == 0, done.stderr
    assert f"Written: {tmp_path / 'other.html'}\n" in done.stdout
    assert (tmp_path / "other.html").exists()
    assert not (tmp_path / "all.html").exists()


@pytest.mark.slow
def test_a_run_writes_all_and_is_not_repeated_unasked(file: Path, command: Command) -> None:
    done = command("run", file)
    assert done.returncode == 0, done.stderr
    assert "All releases together: ε = 2, δ = 10⁻⁶ per user" in done.stdout
    assert "User-level differential privacy with ε = 2 and δ = 10⁻⁶" in done.stdout or (
        "ε = 1.999" in done.stdout
    )
    for name in ("histogram", "count", "mean_of_users", "fit"):
        path = file.parent / f"{name}.json"
        assert f"Written: {path}\n" in done.stdout
        told = Path(f"{path}.guarantee.json").read_text(encoding="utf-8")
        assert dg.Guarantee.from_json(told).private
    page = (file.parent / "all.html").read_text(encoding="utf-8")
    assert "4 releases of" in page
    refused = command("run", file)
    assert refused.returncode == 3
    assert "exists already" in refused.stderr
    assert (file.parent / "all.html").read_text(encoding="utf-8") == page
    again = command("run", file, "--again")
    assert again.returncode == 0, again.stderr
    assert (file.parent / "all.html").read_text(encoding="utf-8") != page


@pytest.mark.slow
def test_guarantee_is_shown_only_with_its_numbers(file: Path, command: Command) -> None:
    command("run", file)
    shown = command("guarantee", file.parent / "count.json")
    assert shown.returncode == 0, shown.stderr
    assert str(dg.Guarantee.read_for_output(file.parent / "count.json")) in shown.stdout
    (file.parent / "count.json").write_bytes((file.parent / "histogram.json").read_bytes())
    refused = command("guarantee", file.parent / "count.json")
    assert refused.returncode == 1
    assert "has a guarantee file for other numbers" in refused.stderr


def test_all_mistakes_are_printed(file: Path, command: Command) -> None:
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("item =", "itm =").replace("bound =", "bond ="), encoding="utf-8")
    done = command("run", file)
    assert done.returncode == 2
    assert "has 4 mistakes; nothing was read or charged:\n" in done.stderr
    for said in (
        "did you mean item?",
        "did you mean bound?",
        "item is required",
        "bound is required",
    ):
        assert said in done.stderr
    assert not done.stdout


def test_missing_file_is_reported(tmp_path: Path, command: Command) -> None:
    done = command("run", tmp_path / "none.toml")
    assert done.returncode == 2
    assert "does not exist; pass a release file" in done.stderr


@pytest.mark.slow
def test_a_ledger_a_window_and_a_folder(file: Path, tmp_path: Path, command: Command) -> None:
    place = tmp_path / "visits.ledger"
    promise = dg.LastingPromise.of(dg.User(), 5.0, 1e-5)
    dg.Ledger.create(place, name="visits", promises=[promise]).close()
    words = ("run", file, "--where", "topic=t1", "--folder", tmp_path / "t1", "--ledger", place)
    done = command(*words, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "At least 100% remains; these releases need at most " in done.stdout
    assert "was charged" not in done.stdout
    assert not (tmp_path / "t1").exists()
    done = command(*words)
    assert done.returncode == 0, done.stderr
    numbers = r"[−0-9.,]+, 95% interval .* to .*, at least .*"
    estimates = rf"\d+ estimates, largest .*: (clipped )?total {numbers}|none passed .*"
    for name, told in (("count", estimates), ("histogram", estimates), ("fit", "a fitted model"),
                       ("mean_of_users", "a mean of users")):  # fmt: skip
        assert re.search(rf"{name} +│ +({told}) │ +{name}.json ", done.stdout), done.stdout
    assert "Only these records are read: topic t1." in done.stdout
    assert "line 2 of ledger 'visits'" in done.stdout
    assert (tmp_path / "t1" / "count.json").exists()
    assert "was charged before, in line 2 of the ledger" in command(*words).stderr
    for written in (tmp_path / "t1").iterdir():
        written.unlink()
    for dry in ((), ("--dry-run",)):
        refused = command(*words, *dry)
        assert refused.returncode == 5
        assert "was charged before, in line 2 of the ledger" in refused.stderr
    assert command(*words, "--again", "--dry-run").returncode == 0
    left = dg.Ledger(place).left(1)
    assert command(*words, "--again").returncode == 0
    assert dg.Ledger(place).left(1) < left


@pytest.mark.slow
def test_dry_run_reports_the_capacity_of_a_small_ledger(
    file: Path, tmp_path: Path, command: Command
) -> None:
    place = tmp_path / "visits.ledger"
    promise = dg.LastingPromise.of(dg.User(), 1.0, 1e-6)
    dg.Ledger.create(place, name="visits", promises=[promise]).close()
    done = command("run", file, "--ledger", place, "--dry-run")
    assert done.returncode == 3
    assert "would fit" in done.stderr
    assert "these releases need at most" in done.stdout
    assert len(dg.Ledger(place).entries) == 2
    assert command("run", file, "--ledger", place).stderr == done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_spark_table_in_a_file_is_read(file: Path, tmp_path: Path, command: Command) -> None:
    here = str(dg.plan_releases(file))
    file.write_text(file.read_text().replace("[table]", '[table]\nengine = "spark"'))
    place = tmp_path / "visits.ledger"
    promise = dg.LastingPromise.of(dg.User(), 5.0, 1e-5)
    dg.Ledger.create(place, name="visits", promises=[promise]).close()
    words = ("run", file, "--where", "topic=t1", "--folder", tmp_path / "t1", "--ledger", place)
    rows = (tmp_path / "visits.parquet").read_bytes()
    cases.without_its_rows(tmp_path / "visits.parquet")
    # The plan is the same on any engine, and no row is read.
    done = command("run", file, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert here in done.stdout
    done = command(*words, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert dg.Ledger(place).left(1) == 1
    (tmp_path / "visits.parquet").write_bytes(rows)
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert "Only these records are read: topic t1." in done.stdout
    assert dg.Ledger(place).left(1) < 1
    for name in ("histogram", "count", "mean_of_users", "fit"):
        told = (tmp_path / "t1" / f"{name}.json.guarantee.json").read_text(encoding="utf-8")
        assert dg.Guarantee.from_json(told).private


@pytest.mark.slow
def test_run_reports_warnings_of_fits_and_means(tmp_path: Path, command: Command) -> None:
    rng = np.random.default_rng(1)
    rows = {"who": np.arange(6000), "a": rng.uniform(-9, 9, 6000), "b": rng.uniform(-9, 9, 6000)}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    (tmp_path / "releases.toml").write_text(
        "[table]\nsource = 'rows.parquet'\nuser = 'who'\nn_users = 6000\n"
        "[budget]\nunit = 'user'\nepsilon = 8.0\ndelta = 1e-6\n"
        "[release.middle]\nstatistic = 'mean_of_users'\ncolumns = ['a', 'b']\nbound = 20.0\n"
        "radius = 0.01\nmethod = 'softcore'\nshare = 0.5\n"
        "[release.line]\nfit = 'linear'\ntarget = 'a'\nfeatures = ['b']\nclip = 1e-9\nshare = 0.5\n"
        "output = 'line.json'\n",
        encoding="utf-8",
    )
    done = command("run", tmp_path / "releases.toml")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "middle: warning: no mean: too few users" in said


def test_a_run_states_the_share_beyond_stated_bounds(tmp_path: Path, command: Command) -> None:
    rows = {"who": np.arange(3000), "x": np.arange(3000) % 10 + 0.5}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    release = (
        "statistic = 'mean'\nvalue = 'x'\nbounds = [0, 9]\nshare = 0.5\noutput = '{name}.csv'\n"
    )
    (tmp_path / "releases.toml").write_text(
        "[table]\nsource = 'rows.parquet'\nuser = 'who'\n"
        "[budget]\nunit = 'user'\nepsilon = 2.0\ndelta = 1e-6\n"
        f"[release.one]\n{release.format(name='one')}"
        f"[release.two]\n{release.format(name='two')}estimate_clipping = true\n",
        encoding="utf-8",
    )
    done = command("run", tmp_path / "releases.toml")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "one: share beyond the stated bounds: not estimated." in said
    assert "two: share beyond the stated bounds: at most 1" in said
    assert "two: warning: values outside of the bounds were clamped (at least " in said
    assert "not estimated" in (tmp_path / "one.csv").read_text(encoding="utf-8")


def test_a_chosen_range_is_in_the_files_and_on_the_terminal(
    tmp_path: Path, command: Command
) -> None:
    rows = {"who": np.arange(3000), "x": np.arange(3000) % 10 + 0.5}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    release = "statistic = 'sum'\nvalue = 'x'\nshare = 0.3\noutput = '{0}'\n"
    endings = ("csv", "json", "parquet")
    (tmp_path / "releases.toml").write_text(
        "[table]\nsource = 'rows.parquet'\nuser = 'who'\n"
        "[budget]\nunit = 'user'\nepsilon = 2.0\ndelta = 1e-6\n"
        + "".join(f"[release.{end}]\n{release.format(f'x.{end}')}" for end in endings),
        encoding="utf-8",
    )
    done = command("run", tmp_path / "releases.toml")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    chosen = {
        end: re.search(rf"{end}: numbers are clamped to (.*? to .*? privately)\.", said)
        for end in endings
    }
    texts = {end: found[1] for end, found in chosen.items() if found is not None}
    assert texts.keys() == set(endings)
    assert texts["csv"] in (tmp_path / "x.csv").read_text(encoding="utf-8")
    (row,) = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert row["clamped_to"] == texts["json"]
    metadata = pq.read_table(tmp_path / "x.parquet").schema.metadata
    assert metadata[b"clamped_to"].decode() == texts["parquet"]


def test_check_names_tables_and_separates_missing_from_invalid_numbers(
    tmp_path: Path, command: Command
) -> None:
    (tmp_path / "visits.csv").write_text('who,paid\nann,1\nann,\nbob,""\nbob,x\n')
    (tmp_path / "people.csv").write_text("who,sex\nann,f\n")
    path = cases.written(
        tmp_path,
        '[tables.visits]\nsource = "visits.csv"\nuser = "who"\n'
        '[tables.people]\nsource = "people.csv"\nuser = "who"\n'
        '[budget]\nunit = "user"\nepsilon = 1.0\ndelta = 1e-6\n'
        '[release.spent]\ntable = "visits"\nstatistic = "sum"\nvalue = "paid"\n'
        "bounds = [0, 3]\nshare = 0.5\n"
        '[release.people]\ntable = "people"\nstatistic = "count"\nshare = 0.5\n',
    )
    text = path.read_text().replace('"visits.csv"', '"visits.csv"\ntypes = {paid = "double"}')
    path.write_text(text)
    done = command("run", path, "--check")
    assert done.returncode == 0, done.stderr
    assert "spent (table visits): For internal use only" in done.stdout
    assert "people (table people): For internal use only" in done.stdout
    assert " 2  missing cells of 'paid' (dropped)" in done.stdout
    assert " 1  non-numeric cells of 'paid' (dropped)" in done.stdout


def test_check_reports_a_region_without_rows(tmp_path: Path, command: Command) -> None:
    cases.parquet(tmp_path)
    text = cases.TABLE + cases.BUDGET + cases.releases("share = 1.0", ["count"])
    file = cases.written(tmp_path, text)
    said = "There are no rows: a release would be charged, and publish only noise."
    for topic, count in (("t1", 0), ("t99", 1)):
        done = command("run", file, "--check", "--where", f"topic={topic}")
        assert done.stdout.count(said) == count, done.stdout


def test_check_counts_faults_of_each_release_without_publishing(
    tmp_path: Path, command: Command
) -> None:
    (tmp_path / "visits.csv").write_text(
        'who,page,paid,age\nann,a,"1,5",x\nann,,2.5,1\nbob,c,3.5,1\n,a,4.5,1\n', encoding="utf-8"
    )
    path = cases.written(
        tmp_path,
        'report = "all.html"\n[table]\nsource = "visits.csv"\nuser = "who"\n'
        'types = {paid = "double", age = "double"}\n'
        '[budget]\nunit = "user"\nepsilon = 1.0\ndelta = 1e-6\n'
        '[release.pages]\nstatistic = "count"\nby = "page"\ndomain = ["a", "b"]\nshare = 0.5\n'
        '[release.spent]\nstatistic = "sum"\nvalue = "paid"\nbounds = [0, 3]\nshare = 0.25\n'
        'output = "spent.json"\n'
        '[release.model]\nfit = "linear"\ntarget = "paid"\nfeatures = ["age"]\nshare = 0.25\n'
        'target_bound = 3\nrange = {age = [0, 3]}\nrounds = 2\nwhere = {page = "a"}\n',
    )
    place, before = tmp_path / "visits.ledger", sorted(tmp_path.iterdir())
    dg.Ledger.create(
        place, name="visits", promises=[dg.LastingPromise.of(dg.User(), 5.0, 1e-5)]
    ).close()
    ledger = place.read_bytes()
    done = command("run", path, "--check", "--ledger", place)
    assert done.returncode == 0, done.stderr
    pages, spent, model = re.split(r"^(?:pages|spent|model): For internal use only.*\n", done.stdout,
                                   flags=re.MULTILINE)[1:]  # fmt: skip
    for text, lines in (
        (pages, ["1  rows without a user", "1  rows without an item", "1  rows with page outside"]),
        (spent, ["1  non-numeric cells of 'paid' (dropped)", "2  cells of 'paid' beyond the bounds"]),
        (model, ["2  rows\n", "1  non-numeric cells of 'paid' (dropped)",
                 "1  non-numeric cells of 'age' (treated as 0)"]),
    ):  # fmt: skip
        for line in lines:
            assert f" {line}" in text, (line, text)
    assert "Together" not in done.stdout
    assert [each for each in sorted(tmp_path.iterdir()) if "ledger" not in each.name] == before
    assert place.read_bytes() == ledger
    document = json.loads(command("run", path, "--check", "--json").stdout)
    assert document["private"] is False
    assert document["counts"]["model"]["rows"] == 2
