"""Each mistake in a file is found separately and with others, and reported with its remedy."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.releases import cases

import dpgrain as dg
from dpgrain.releases.file import read_file
from dpgrain.releases.validation_errors import ValidationErrors

TABLE = '[table]\nsource = "visits.parquet"\nuser = "who"\n'
# A file that is right; each mistake changes one line of it, or adds lines.
RIGHT = f"""
report = "all.html"
{TABLE}
[budget]
unit = "user"
epsilon = 2.0
delta = 1e-6

[release.pages]
statistic = "histogram"
item = "page"
share = 0.5
output = "pages.csv"

[release.time]
statistic = "mean"
value = "seconds"
bounds = [0, 200]
clip = 5.0
share = 0.25

[release.bought]
fit = "logistic"
target = "bought"
features = ["age"]
range = {{age = [0, 100]}}
classes = [0, 1]
rounds = 5
share = 0.25
"""
MISTAKES: dict[str, tuple[str, str, str]] = {
    "table": ("[table]", "[tabel]", "'tabel' is not a table of a release file; did you mean"),
    "key of a table above the tables": (
        "report =",
        'unit = "user"\nreport =',
        "the file: 'unit' is a key of [budget]; move it there.",
    ),
    "path of a table": (
        "source =",
        "path =",
        "[table] 'path' is not a key of [table]; did you mean source?",
    ),
    "report": ('"all.html"', "5", "the file: report must be text, not 5."),
    "ending of the report": (
        '"all.html"',
        '"all.csv"',
        "all.csv' is written as an HTML page (.html): choose that ending.",
    ),
    "key of table": (
        "user =",
        "usr =",
        "[table] 'usr' is not a key of [table]; did you mean user?",
    ),
    "key of the command line": (
        'user = "who"',
        'user = "who"\nderive = {x = "month(at)"}',
        "[table] 'derive' is not a key of [table]; did you mean columns?",
    ),
    "source": ("visits.parquet", "none.parquet", "none.parquet"),
    "no user": ('user = "who"', "", "[table] user is required for unit"),
    "user": ('user = "who"', 'user = "whom"', "user 'whom' is not a column"),
    "unit": ('unit = "user"', 'unit = "usr"', "unit must be 'record' or 'element' or 'user'"),
    "no unit": ('unit = "user"', "", "[budget] unit is required"),
    "element": ('unit = "user"', 'element = "topik"', "'topik' is not a column of the table or"),
    "max_elements": (
        'unit = "user"',
        'unit = "record"\nmax_elements = 3',
        "requires unit = 'user'",
    ),
    "epsilon": ("epsilon = 2.0", "epsilon = -2.0", "[budget] epsilon must be positive and finite"),
    "delta": ("delta = 1e-6", "delta = 1.5", "[budget] delta must be in [0, 1), not 1.5."),
    "leak": ("delta = 1e-6", "delta = 1e-6\nleak = 0.5", "leak must be at most delta = 1e-06"),
    "statistic": ('"histogram"', '"histogramm"', "is not a statistic; did you mean histogram?"),
    "fit": ('"logistic"', '"logistik"', "'logistik' is not a fit; did you mean logistic?"),
    "both": ('fit = "log', 'statistic = "count"\nfit = "log', "must have one statistic"),
    "key": ('item = "page"', 'itm = "page"', "'itm' is not a key of a statistic 'histogram'; did"),
    "needed": (
        'item = "page"',
        "",
        "[release.pages] item is required: text or a list of texts",
    ),
    "type": (
        "clip = 5.0",
        "clip = true",
        "[release.time] clip must be a number or 'auto', not True.",
    ),
    "value": (
        "clip = 5.0",
        "clip = -1.0",
        "[release.time] clip must be positive and finite, not -1",
    ),
    "bounds": ("[0, 200]", "[200, 0]", "[release.time] bounds must be finite and increasing"),
    "column": (
        '"seconds"',
        '"secnds"',
        "value: 'secnds' is not a column of the table; did you mean",
    ),
    "target": ('"bought"', '"bougt"', "target: 'bougt' is not a column of the table; did you mean"),
    "feature": (
        '["age"]',
        '["aeg"]',
        "features: 'aeg' is not a column of the table; did you mean age",
    ),
    "range": ("[0, 100]", "[100, 0]", "[release.bought] the range of 'age' must be two finite"),
    "rounds": ("rounds = 5", "rounds = 0", "[release.bought] rounds must be an integer of at"),
    "share": ("share = 0.5", "share = 0.6", "[release] share must add up to at most 1 over all"),
    "no share": ("share = 0.5", "", "[release.pages] must have a budget; set share, such"),
    "share and ε": (
        "share = 0.5",
        "share = 0.5\nepsilon = 1.0",
        "share replaces epsilon and delta; omit",
    ),
    "negative share": ("share = 0.5", "share = -0.5", "share must be above 0 and at most 1, not"),
    "of all": (
        "share = 0.5",
        'share = 0.5\nunit = "user"',
        "unit applies to all releases; set it in",
    ),
    "ending": ('"pages.csv"', '"pages.xls"', "output must end in .parquet, .csv, .json, not"),
    "folder": ('"pages.csv"', '"no/pages.csv"', "cannot be written; check the folder"),
    "twice": ('"all.html"', '"pages.csv"', "is already used in this command; choose another file"),
    "overwrites": ('"pages.csv"', '"visits.parquet"', "is already used in this command; choose"),
}
# These change different lines, so that they can all be made at once.
TOGETHER = (
    *(
        "report",
        "key of table",
        "epsilon",
        "delta",
        "statistic",
        "key",
        "column",
        "bounds",
        "value",
    ),
    *("target", "feature", "range", "rounds", "share", "ending"),
)


def _told(folder: Path, text: str) -> str:
    cases.parquet(folder)
    with pytest.raises(dg.DpgrainError) as error:
        dg.plan_releases(cases.written(folder, text))
    return str(error.value)


def test_wrong_delimiter_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("who;page;day;paid\nann;a;2025-01-01;1\n")
    path = cases.written(
        tmp_path,
        '[table]\nsource = "visits.csv"\nuser = "who"\ntypes = {day = "date"}\n'
        'where = {day = "2025-01-01"}\n[table.columns]\nmonth = "month(day)"\n'
        + cases.BUDGET
        + '[release.paid]\nstatistic = "sum"\nvalue = "paid"\nshare = 0.5\n',
    )
    with pytest.raises(dg.SchemaError) as told:
        dg.plan_releases(path, where={"page": "a"})
    (line,) = str(told.value).splitlines()[1:]
    assert "its one column 'who;page;day;paid' looks like several: pass delimiter = ';'" in line


def test_valid_file_has_none(tmp_path: Path) -> None:
    cases.parquet(tmp_path)
    plan = dg.plan_releases(cases.written(tmp_path, RIGHT))
    assert [each.entry.name for each in plan.releases] == ["pages", "time", "bought"]
    assert plan.file.report == tmp_path / "all.html"
    assert plan.file.entries[0].output == tmp_path / "pages.csv"


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_reported(name: str, tmp_path: Path) -> None:
    before, after, said = MISTAKES[name]
    assert before in RIGHT
    assert said in _told(tmp_path, RIGHT.replace(before, after, 1))


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = RIGHT
    for name in TOGETHER:
        before, after, _ = MISTAKES[name]
        assert before in text
        text = text.replace(before, after, 1)
    told = _told(tmp_path, text).splitlines()
    missed = [name for name in TOGETHER if not any(MISTAKES[name][2] in line for line in told)]
    assert missed == []
    # The only other report is that an item is missing if its key is misspelt.
    assert len(told) - 1 == len(TOGETHER) + 1
    assert sum("item is required" in line for line in told) == 1
    assert told[0].endswith(f"has {len(told) - 1} mistakes; nothing was read or charged:")
    assert all(line.startswith(("  [", "  the file:")) for line in told[1:])


def test_errors_rejecting_everything_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(dg.ParameterError, match="is not valid TOML: Expected"):
        dg.plan_releases(cases.written(tmp_path, "[table"))
    for text, why in {
        "a" + ".a" * 2000 + " = 1": "a name with more than 1000 parts",
        "a = " + "[" * 100_000: "nested too deeply",
        "a = " + "9" * 5000: "digits",
    }.items():
        with pytest.raises(dg.ParameterError, match=f"is not valid TOML: .*{why}"):
            dg.plan_releases(cases.written(tmp_path, text))
    long = cases.TABLE.replace("visits", "v" * 70_000)
    assert len(told := _told(tmp_path, long + cases.BUDGET)) < 500, told
    with pytest.raises(dg.DataError, match="does not exist; pass a release file"):
        dg.plan_releases(tmp_path / "none.toml")
    assert "must have releases" in _told(tmp_path, TABLE + cases.BUDGET)
    told = _told(tmp_path, "table = 3\nrelease = [1]\n" + cases.BUDGET)
    assert "table must be a table, as in [table], not 3." in told


def test_passed_table_is_the_only_one(tmp_path: Path) -> None:
    text = cases.BUDGET + cases.releases("share = 0.1", ["count"])
    path = cases.written(tmp_path, text)
    table = cases.unread()
    assert dg.plan_releases(path, table).file.tables == {"": table}
    with pytest.raises(dg.ParameterError, match="must be omitted if a table is passed"):
        dg.plan_releases(cases.written(tmp_path, TABLE + text), cases.unread())
    with pytest.raises(dg.ParameterError, match=r"\[table\] source is required"):
        dg.plan_releases(cases.written(tmp_path, text))


def test_cells_and_partitions_in_files(tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text("page,cell\np1,a\np2,a\np3,b\n")
    cases.parquet(tmp_path)
    cells = '[table.cells.group]\nof = "page"\nby = "cells.csv"\n'
    for budget, more in (('element = "group"', cells), ('element = "cells.csv"', "")):
        text = f"{TABLE}{more}[budget]\n{budget}\nepsilon = 1.0\ndelta = 1e-6\n"
        path = cases.written(tmp_path, text + cases.releases("share = 0.5", ["histogram"]))
        (planned,) = dg.plan_releases(path).releases
        assert planned.guarantee.level == "element"
    wrong = cells.replace("of =", "off =").replace("cells.csv", "none.csv")
    told = _told(tmp_path, TABLE + wrong + cases.BUDGET)
    assert "[table.cells.group] 'off' is not a key of [table.cells.group]; did you mean of?" in told


def test_days_of_times_in_files(tmp_path: Path) -> None:
    moments = pa.array([0, 1, 2], pa.int64()).cast(pa.timestamp("s", "UTC"))
    pq.write_table(pa.table({"who": [1, 2, 2], "at": moments}), tmp_path / "moments.parquet")
    table = '[table]\nsource = "moments.parquet"\nuser = "who"\n'
    days = '[table.days.day]\nof = "at"\nzone = "Europe/Paris"\n'
    weeks = '[budget]\nelement = "day"\nepsilon = 1.0\ndelta = 1e-6\n'
    count = '[release.count]\nstatistic = "count"\nshare = 0.5\n'
    path = cases.written(tmp_path, table + days + weeks + count)
    (planned,) = dg.plan_releases(path, where={"day": "2026-03-29"}).releases
    assert str(planned.guarantee.partition) == "the day of 'at' (Europe/Paris)"
    assert str(planned.guarantee.scope).startswith("at from 2026-03-28 23:00:00")
    wrong = days.replace("Paris", "Pari").replace("of =", "off =", 1)
    told = _told(tmp_path, table + wrong + cases.BUDGET)
    assert "[table.days.day] 'off' is not a key of [table.days.day]; did you mean of?" in told
    told = _told(tmp_path, table + days.replace("Paris", "Pari") + cases.BUDGET)
    assert "[table.days.day] zone must be a zone such as" in told


def test_a_file_is_known_again_by_its_text(tmp_path: Path) -> None:
    def mark(text: str) -> str:
        found = read_file(cases.written(tmp_path, text), cases.unread(), ValidationErrors(tmp_path))
        assert found is not None
        return found.mark

    text = cases.BUDGET + cases.releases("share = 0.1", ["count"])
    assert mark(text) == mark(text) != mark(text + "\n")


def test_no_output_replaces_an_input(tmp_path: Path) -> None:
    said = _told(tmp_path, RIGHT.replace('"pages.csv"', '"visits.parquet"', 1))
    assert "visits.parquet" in said


def test_no_output_replaces_a_file_of_a_passed_table(tmp_path: Path) -> None:
    cases.parquet(tmp_path)
    table = dg.read(tmp_path / "visits.parquet", user="who", n_users=600)
    output = '\noutput = "visits.parquet"'
    path = cases.written(tmp_path, cases.BUDGET + cases.releases("share = 0.1", ["count"]) + output)
    with pytest.raises(dg.DpgrainError, match=r"visits\.parquet' is already used"):
        dg.plan_releases(path, table)


def test_table_columns_filters_and_people_errors_show_positions(tmp_path: Path) -> None:
    rows = "who,at,paid\n1,2025-01-03 10:00,3\n2,2025-02-03 10:00,4\n"
    (tmp_path / "rows.csv").write_text(rows, encoding="utf-8")
    told = """
        [table]
        source = "rows.csv"
        user = "who"
        filter = "paid"
        [table.columns]
        m = "mont(at)"
        [budget]
        unit = "user"
        epsilon = 1
        delta = 1e-6
        [release.a]
        statistic = "count"
        by = "bins(paid, 0, 5)"
        share = 0.2
        [release.b]
        statistic = "count"
        by = "mnth"
        share = 0.2
        """
    path = tmp_path / "releases.toml"
    path.write_text(told, encoding="utf-8")
    with pytest.raises(dg.ParameterError) as refused:
        dg.plan_releases(path)
    lines = str(refused.value).splitlines()
    for line, place in zip(
        lines[1:],
        ("[table.columns]", "[table] filter:", "[release.a] by:", "[release.b] by:"),
        strict=True,
    ):
        assert line.strip().startswith(place)
    right = told.replace(
        'user = "who"', 'user = "who"\n        types = {at = "TIMESTAMP", paid = "DOUBLE"}'
    )
    right = (
        right.replace('"paid"\n', '"paid > 0"\n').replace("mont(", "month(").replace("mnth", "m")
    )
    path.write_text(right, encoding="utf-8")
    made = dg.releases(path)
    assert "only rows where paid > 0 are used" in str(made.guarantee)
    path.write_text(
        right.replace("[budget]", "[table.per_user]\n        n = 'count()'\n        [budget]")
        .replace('user = "who"', 'user = "who"\n        per_user_filter = "n > 0"')
        .replace('"bins(paid, 0, 5)"', '"n > 1"')
        .replace('by = "m"', 'by = "n"'),
        encoding="utf-8",
    )
    assert "n > 1 (n > 1), where n > 0" in str(dg.releases(path)["a"].guarantee)


def test_a_file_joins_tables(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("who,zip,paid\n1,8001,3\n1,99,4\n2,1200,5\n")
    (tmp_path / "areas.csv").write_text("plz,canton,heads\n8001,ZH,7\n1200,GE,6\n")
    (tmp_path / "people.csv").write_text("id,born\n1,1950\n2,1980\n")
    told = """
        [table]
        source = "rows.csv"
        user = "who"
        types = {paid = "DOUBLE"}
        [table.join_public.areas]
        source = "areas.csv"
        on = "zip"
        key = "plz"
        types = {heads = "BIGINT"}
        [table.join.people]
        source = "people.csv"
        user = "id"
        types = {born = "BIGINT"}
        pairs = 2
        [table.columns]
        big = "heads > 6"
        [budget]
        unit = "user"
        epsilon = 1
        delta = 1e-6
        [release.a]
        statistic = "sum"
        by = "canton"
        value = "born"
        bounds = [1900, 2000]
        share = 0.2
        [release.b]
        statistic = "count"
        by = "big"
        share = 0.2
        """
    path = tmp_path / "releases.toml"
    path.write_text(told, encoding="utf-8")
    made = dg.releases(path)
    assert made["a"].items.to_pylist() == ["GE", "ZH"]
    assert "at most 2 rows of the same person in people.csv" in str(made.guarantee)
    wrong = told.replace('on = "zip"', "").replace('user = "id"', 'user = "idd"')
    path.write_text(wrong.replace("pairs = 2", 'pairs = "x"'), encoding="utf-8")
    with pytest.raises(dg.ParameterError) as refused:
        dg.plan_releases(path)
    for place in ("[table.join_public.areas]", "[table.join.people]"):
        assert place in str(refused.value)
    path.write_text(told.replace('unit = "user"', 'unit = "record"'), encoding="utf-8")
    with pytest.raises(dg.ParameterError, match="user"):
        dg.plan_releases(path)


def test_source_without_a_file_name_is_rejected(tmp_path: Path) -> None:
    text = cases.TABLE + cases.BUDGET + cases.releases("share = 1.0", ["count"])
    path = cases.written(tmp_path, text.replace("visits.parquet", "visits\\u0000.parquet"))
    with pytest.raises(dg.DataError, match="is not a file name"):
        dg.plan_releases(path)
