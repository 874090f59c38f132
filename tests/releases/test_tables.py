"""Several tables in one release file: one budget, one charge and one report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.releases import cases

import dpgrain as dg

PEOPLE = pa.table({"who": list(range(600)), "sex": ["f", "m"] * 300, "age": [40.0] * 600})
TABLES = """
[tables.visits]
source = "visits.parquet"
user = "who"
n_users = 600
[tables.people]
source = "people.parquet"
user = "who"
"""
RELEASES = """
[release.seconds]
table = "visits"
statistic = "sum"
value = "seconds"
bounds = [0, 200]
share = 0.5
output = "seconds.json"
[release.people]
table = "people"
statistic = "count"
by = "sex"
domain = ["f", "m"]
share = 0.5
output = "people.json"
"""


def _written(folder: Path, text: str = TABLES + cases.BUDGET + RELEASES) -> Path:
    cases.parquet(folder)
    pq.write_table(PEOPLE, folder / "people.parquet")
    return cases.written(folder, text)


def _mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(dg.DpgrainError) as raised:
        dg.plan_releases(_written(folder, text))
    return [line.strip() for line in str(raised.value).splitlines()[1:]]


def test_releases_read_their_tables_and_are_one_charge(tmp_path: Path) -> None:
    path = _written(tmp_path)
    promise = dg.LastingPromise.of(dg.User(), 3.0, 1e-5)
    with dg.Ledger.create(tmp_path / "l.ledger", name="l", promises=[promise]) as ledger:
        made = dg.releases(path, random_state=1)
        (line,) = [each for each in ledger.entries if each.guarantees]
    assert len(line.guarantees) == 2
    assert made["seconds"].value == pytest.approx(np.sum(cases.ROWS["seconds"]), rel=0.2)
    assert made["people"].largest(2).estimate == pytest.approx([300, 300], abs=60)
    assert made.guarantee.epsilon() == pytest.approx(2.0, rel=1e-3)
    assert (tmp_path / "people.json.guarantee.json").exists()


def test_two_tables_cost_like_two_releases_of_one(tmp_path: Path) -> None:
    several = dg.plan_releases(_written(tmp_path))
    text = cases.TABLE + cases.BUDGET + RELEASES.replace('table = "visits"', "")
    text = text.replace('table = "people"', "").replace('"sex"', '"topic"')
    one = dg.plan_releases(cases.written(tmp_path, text))
    assert [each.epsilon for each in several.releases] == [each.epsilon for each in one.releases]
    together = [each.guarantee.event for each in (several, one)]
    assert together[0] == together[1]


def test_a_region_of_a_run_restricts_all_tables(tmp_path: Path) -> None:
    plan = dg.plan_releases(_written(tmp_path), where={"who": ["1", "2"]})
    scopes = {each.guarantee.scope for each in plan.releases}
    assert len(scopes) == 1
    assert not scopes.pop().everything


def test_region_errors_name_the_table_and_a_working_remedy(tmp_path: Path) -> None:
    where = {"topic": "t1"}
    joined = '[tables.people.join_public.topics]\nsource = "topics.csv"\non = "sex"\n'
    (tmp_path / "topics.csv").write_text("sex,topic\nf,t1\nm,t2\n")
    for more, told in (
        ("", "[tables.people] lacks the column 'topic' of --where, which restricts every table; add "
             "it to this table, or use where in [tables.NAME] of the tables that have it."),
        (joined, "[tables.people] where must use columns of the source, but 'topic' is computed "
                 "(topic of topics.csv by sex"),
    ):  # fmt: skip
        text = f"{TABLES}{more}{cases.BUDGET}{RELEASES}"
        with pytest.raises(dg.DpgrainError) as raised:
            dg.plan_releases(_written(tmp_path, text), where=where)
        (line,) = str(raised.value).splitlines()[1:]
        assert line.strip().startswith(told)
    # The remedy works.
    one = TABLES.replace("[tables.people]", 'where = {topic = "t1"}\n[tables.people]')
    plan = dg.plan_releases(_written(tmp_path, f"{one}{cases.BUDGET}{RELEASES}"))
    assert [each.guarantee.scope.everything for each in plan.releases] == [False, True]


def test_the_report_names_all_tables(tmp_path: Path) -> None:
    dg.releases(_written(tmp_path, f'report = "r.html"\n{TABLES}{cases.BUDGET}{RELEASES}'))
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "visits.parquet" in page
    assert "people.parquet" in page


WRONG: dict[str, tuple[Any, str]] = {
    "other users": (
        ('user = "who"\nn_users', 'user = "page"\nn_users'),
        "[tables] user must be the same column in all tables, because it identifies the same "
        "people, not 'page' and 'who'.",
    ),
    "unknown": (
        ('table = "people"', 'table = "peple"'),
        "[release.people] table: 'peple' is not a table of the file; did you mean people?",
    ),
    "missing": (
        ('table = "people"\n', ""),
        "[release.people] table is required: one of visits, people.",
    ),
    "both": (
        ("[tables.visits]", '[table]\nsource = "visits.parquet"\n[tables.visits]'),
        "the file: must have [table] or tables such as [tables.visits], not both.",
    ),
    "a key": (
        ('user = "who"\nn_users', 'usr = "who"\nn_users'),
        "[tables.visits] 'usr' is not a key of [tables.visits]; did you mean user?",
    ),
    "a place": (
        ("[tables.people]", '[tables.visits.days.d]\nof = "x"\n[tables.people]'),
        "[tables.visits.days.d] of 'x' is not a column of the table",
    ),
    "no table": (("[tables.people]", "[tables]\npeople = 3\n[ignored]"), "people must be a table"),
    "a column": (('by = "sex"', 'by = "topic"'), "[release.people] by: 'topic' is not a column"),
    "an element": (
        ('unit = "user"', 'element = "topic"'),
        "[budget] element: 'topic' is not a column of [tables.people] or a file",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_name_their_table(case: str, tmp_path: Path) -> None:
    (old, new), line = WRONG[case]
    text = (TABLES + cases.BUDGET + RELEASES).replace(old, new, 1)
    assert any(line in each for each in _mistakes(tmp_path, text)), _mistakes(tmp_path, text)


def test_a_passed_table_replaces_a_single_one_only(tmp_path: Path) -> None:
    with pytest.raises(dg.ParameterError, match=r"\[tables\] must be omitted if a table is passed"):
        dg.plan_releases(_written(tmp_path), cases.table())


def test_single_named_table_serves_all_releases(tmp_path: Path) -> None:
    text = cases.TABLE.replace("[table]", "[tables.visits]") + cases.BUDGET
    named = dg.plan_releases(_written(tmp_path, text + cases.releases("share = 0.1", ["count"])))
    assert [each.entry.table for each in named.releases] == ["visits"]
