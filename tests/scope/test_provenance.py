"""Guarantees state the origin of rows: the weakest of several, and none for old ones."""

from __future__ import annotations

import itertools
import json
import sqlite3
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.conftest import Command
from tests.ledger.cases import made, of_users
from tests.publishing import cases
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.scope.provenance import StatedProvenance, after_derivation, combine
from dpgrain.words.guarantee_text import PROVENANCE

STATED: tuple[StatedProvenance, ...] = get_args(StatedProvenance)
AS_GIVEN = "The rows come from a query, frame or array that dpgrain did not build"
OLD = Path(__file__).parents[1] / "ledger" / "of_version_0_1.sql"


def test_combined_provenance_has_the_stronger_assumption() -> None:
    order = ("table", "checked", "", "as given")
    assert set(order) == set(STATED) == set(PROVENANCE)
    for one, other in itertools.product(STATED, repeat=2):
        assert combine(one, other) == order[max(order.index(one), order.index(other))]
    assert [after_derivation(each) for each in ("table", "checked", "as given")] == [
        "checked",
        "checked",
        "as given",
    ]


@pytest.mark.parametrize("stated", STATED)
def test_guarantee_stores_known_provenance(stated: StatedProvenance) -> None:
    guarantee = of_users(provenance=stated)
    written = guarantee.to_dict()
    assert ("provenance" in written) == bool(stated)
    assert dg.Guarantee.from_json(guarantee.to_json()) == guarantee
    assert (AS_GIVEN in str(guarantee)) == (stated == "as given")
    for other in STATED:
        assert (guarantee + of_users(provenance=other)).provenance == combine(stated, other)
    assert len({of_users(provenance=each).hash for each in STATED}) == len(STATED)


def test_no_other_provenance_is_read() -> None:
    written = {**of_users().to_dict(), "provenance": "a friend"}
    with refuses("provenance"):
        dg.Guarantee.from_json(json.dumps(written))


@pytest.mark.parametrize("stated", STATED)
def test_the_page_states_it(stated: StatedProvenance, tmp_path: Path) -> None:
    of_users(provenance=stated).report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    words = PROVENANCE[stated]
    assert f"<td>{words[0].upper()}{words[1:]}</td>" in page
    assert ("People who determine which rows of others are included" in page) == (
        stated == "as given"
    )


@pytest.mark.slow
def test_a_budget_and_a_ledger_state_it(tmp_path: Path, command: Command) -> None:
    book = tmp_path / "visits.ledger"
    opened = made(book, dg.LastingPromise.of(dg.User(), 9.0, 1e-5))
    with opened, dg.budget(2.0, 1e-6) as budget:
        release = dg.count(cases.table(), unit=dg.User(), clip=5.0, share=0.5)
    assert release.guarantee.provenance == "as given"
    assert budget.guarantee is not None
    assert budget.guarantee.provenance == "as given"
    (line,) = (entry for entry in opened.entries if entry.guarantees)
    assert line.to_dict()["releases"][0]["provenance"] == "as given"
    opened.report(tmp_path / "page.html")
    assert "that dpgrain did not build" in (tmp_path / "page.html").read_text()
    told = command("ledger", "show", book)
    assert "from the caller (unverified)" in told.stdout
    document = json.loads(command("ledger", "show", book, "--json").stdout)
    assert document["id"] == opened.id


def test_files_state_it(tmp_path: Path) -> None:
    guarantee = cases.fitted(epsilon=1.0, delta=1e-6, random_state=1)
    assert guarantee.provenance == "as given"
    model: Any = dg.learn.LogisticRegression(
        classes=[0, 1], rounds=2, epsilon=1.0, delta=1e-6, random_state=1
    ).fit(cases.VECTORS, cases.LABELS, users=cases.OWNERS)
    model.save(tmp_path / "model.json")
    assert dg.learn.load(tmp_path / "model.json").guarantee_.provenance == "as given"
    release = dg.count(cases.table(), unit=dg.User(), epsilon=1.0, delta=1e-6, random_state=1)
    release.save(tmp_path / "count.parquet")
    read = dg.Release.load(tmp_path / "count.parquet")
    assert read.guarantee.provenance == "as given"
    assert read.hash == release.hash


def test_a_file_on_the_command_line_is_a_table(tmp_path: Path, command: Command) -> None:
    import pyarrow.parquet as pq

    pq.write_table(cases.ROWS, tmp_path / "visits.parquet")
    words = ["count", tmp_path / "visits.parquet", "--user", "who", "--unit", "user", "--json"]
    promise = ["--epsilon", "1", "--delta", "1e-6"]
    for more, expected in (([], "table"), (["--where", "page=p0"], "checked")):
        told = json.loads(command(*words, *promise, *more).stdout)
        assert told["guarantee"]["provenance"] == expected
        assert "caller" not in told["sentence"]


def test_version_0_1_ledger_opens_and_continues(tmp_path: Path) -> None:
    book = tmp_path / "visits.ledger"
    with sqlite3.connect(book) as old:
        old.execute("PRAGMA journal_mode = WAL")
        old.executescript(OLD.read_text())
    old.close()
    opened = dg.Ledger(book)
    opened.verify()
    before = [one for entry in opened.entries for one in entry.guarantees]
    assert [one.provenance for one in before] == ["", ""]
    assert "provenance" not in before[0].to_dict()
    with opened:
        after = dg.count(cases.table(), unit=dg.User(), clip=5.0, epsilon=0.1, delta=1e-7)
    assert after.guarantee.provenance == "as given"
    opened.verify()
    assert [one.provenance for entry in opened.entries for one in entry.guarantees] == [
        "",
        "",
        "as given",
    ]
