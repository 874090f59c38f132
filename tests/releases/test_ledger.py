"""A file is one line of a ledger, written before anything is read, and known again."""

from __future__ import annotations

import datetime
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.releases import cases

import dpgrain as dg

DAYS = pa.table(
    {
        **{name: cases.ROWS.column(name) for name in ("who", "page", "seconds")},
        "day": pa.array(
            datetime.date(2026, 1, 1) + datetime.timedelta(days=int(i))
            for i in np.random.default_rng(5).integers(0, 59, cases.SIZE)
        ),
    }
)
FILE = """
[budget]
element = "day"
epsilon = 1.0
delta = 1e-6
[release.visits]
statistic = "count"
share = 0.5
output = "visits.csv"
[release.time]
statistic = "mean"
value = "seconds"
bounds = [0, 200]
share = 0.5
"""
WEEK = FILE.replace(
    "share = 0.5\noutput", 'where = {day = "2026-01-01..2026-01-07"}\nshare = 0.5\noutput'
)
JANUARY, FEBRUARY = {"day": "2026-01"}, {"day": "2026-02"}


def days(**options: Any) -> dg.UserTable:
    table: dg.UserTable = dg.read(DAYS, user="who", n_users=600, threads=1, **options)
    return table


@pytest.fixture
def place(tmp_path: Path) -> Path:
    promise = dg.LastingPromise.of(dg.Element("day"), 2.0, 1e-5)
    dg.Ledger.create(tmp_path / "visits.ledger", name="visits", promises=[promise]).close()
    return tmp_path / "visits.ledger"


def test_run_is_one_line_with_a_shared_receipt(place: Path, tmp_path: Path) -> None:
    path = cases.written(tmp_path, FILE)
    with dg.Ledger(place) as ledger:
        made = dg.releases(path, days(), where=JANUARY)
        (line,) = [entry for entry in ledger.entries if entry.guarantees]
        assert len(line.guarantees) == 2
        for release in made.values():
            assert release.guarantee.receipts == made.guarantee.receipts == (line.receipt,)
        left = ledger.left(1)
        # Another month adds nothing to any day's cost.
        dg.releases(path, days(), where=FEBRUARY, again=True)
        assert ledger.left(1) == pytest.approx(left)
        assert ledger.verify().number == line.number + 1
    assert str(made.guarantee.scope) == "day from 2026-01-01 to 2026-01-31"
    assert 0.99 < made.guarantee.epsilon() <= 1.0


def test_repeated_window_is_rejected_unless_requested(place: Path, tmp_path: Path) -> None:
    path = cases.written(tmp_path, FILE.replace('output = "visits.csv"', ""))
    with dg.Ledger(place) as ledger:
        dg.releases(path, days(), where=JANUARY)
        before = ledger.left(1)
        with pytest.raises(dg.ParameterError, match="was charged before, in line 2"):
            dg.releases(path, days(engine=cases.Counted), where=JANUARY)
        assert ledger.left(1) == before
        dg.releases(path, days(), where=FEBRUARY)
        dg.releases(path, days(), where=JANUARY, again=True)
        assert ledger.left(1) < before


@pytest.mark.slow
def test_one_of_two_concurrent_runs_is_rejected_before_reading(place: Path, tmp_path: Path) -> None:
    """Both begin to charge at the same moment, and have seen the same ledger."""
    path = cases.written(tmp_path, FILE.replace('output = "visits.csv"', ""))
    code = f"""
        import sys
        import dpgrain as dg
        from tests.releases import test_ledger

        with dg.Ledger({str(place)!r}) as ledger:
            plan = dg.plan_releases({str(path)!r}, test_ledger.days(), where=test_ledger.JANUARY)
            print("ready", flush=True)
            sys.stdin.readline()
            try:
                plan.run()
                print("made")
            except dg.ParameterError as error:
                print(error)
    """
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for run in runs:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
    for run in runs:
        assert run.stdin is not None
        run.stdin.write("go\n")
        run.stdin.flush()
    said = sorted(run.communicate(timeout=120)[0].strip() for run in runs)
    assert "was charged before, in line 2 of the ledger" in said[0]
    assert said[1] == "made"
    assert dg.Ledger(place).verify().number == 2


def test_run_beyond_the_ledger_reads_nothing(place: Path, tmp_path: Path) -> None:
    path = cases.written(tmp_path, FILE.replace("epsilon = 1.0", "epsilon = 3.0"))
    cases.counted()
    with dg.Ledger(place) as ledger:
        with pytest.raises(dg.ParameterError, match=r"visits"):
            dg.releases(path, days(engine=cases.Counted), where=JANUARY)
        assert cases.Counted.opened == 0
        assert ledger.left(1) == 1.0
        # Nothing of the file was charged, so it may be run when it fits.
        cases.written(tmp_path, FILE)
        dg.releases(path, days(), where=JANUARY)


@pytest.mark.slow
@pytest.mark.parametrize("opened", [1, 2])
def test_a_killed_run_was_charged_for_all(opened: int, place: Path, tmp_path: Path) -> None:
    path = cases.written(tmp_path, FILE)
    code = f"""
        import os, signal
        import dpgrain as dg
        from tests.releases import cases, test_ledger

        class Killed(cases.Counted):
            def __enter__(self):
                if cases.Counted.opened == {opened} - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().__enter__()

        with dg.Ledger({str(place)!r}):
            dg.releases({str(path)!r}, test_ledger.days(engine=Killed), where=test_ledger.JANUARY)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "visits.csv").exists() == (opened == 2)
    with dg.Ledger(place) as ledger:
        (line,) = [entry for entry in ledger.entries if entry.guarantees]
        assert len(line.guarantees) == 2
        for written in tmp_path.glob("visits.csv*"):
            written.unlink()
        missing = f"Its missing outputs: {str(tmp_path / 'visits.csv')!r}, "
        with pytest.raises(dg.RefusedError, match="was charged before") as told:
            dg.releases(path, days(), where=JANUARY)
        assert missing in str(told.value)
        assert told.value.line == 2
        killed = ledger.left(1)
        dg.releases(path, days(), where=FEBRUARY, again=True)
        assert ledger.left(1) == pytest.approx(killed)


def test_renewal_permits_a_changed_file_but_not_the_same(tmp_path: Path) -> None:
    place, path = tmp_path / "visits.ledger", cases.written(tmp_path, FILE)
    promise = dg.LastingPromise.of(dg.Element("day"), 1.1, 1.1e-6)
    with dg.Ledger.create(place, name="visits", promises=[promise]) as ledger:
        plan = dg.plan_releases(path, days(), where=JANUARY)
        ledger.charge(*plan.guarantees, mark=plan.mark)
        with pytest.raises(dg.RefusedError, match="renew the promise that has no room"):
            ledger.rehearse(*plan.guarantees, mark=plan.mark, again=False)
        ledger.renew(1, promise)
        with pytest.raises(dg.RefusedError, match=r"pass again=True \(--again\)"):
            ledger.rehearse(*plan.guarantees, mark=plan.mark, again=False)
        changed = dg.plan_releases(cases.written(tmp_path, f"{FILE}\n"), days(), where=JANUARY)
        ledger.rehearse(*changed.guarantees, mark=changed.mark, again=False)


def test_releases_of_parts_are_charged_to_their_regions(place: Path, tmp_path: Path) -> None:
    path = cases.written(tmp_path, WEEK)
    plan = dg.plan_releases(path, days(), where=JANUARY)
    scopes = [str(each.guarantee.scope) for each in plan.releases]
    assert scopes == ["day from 2026-01-01 to 2026-01-07", "day from 2026-01-01 to 2026-01-31"]
    with dg.Ledger(place) as ledger:
        plan.run()
        week, rest = (
            ledger.left(1, dg.read(DAYS, user="who").where(day=day).scope)
            for day in ("2026-01-03", "2026-01-20")
        )
    assert week < rest < 1.0


def test_disjoint_regions_do_not_share(tmp_path: Path) -> None:
    """A day pays for one of two months, so that each of them may have nearly all of the budget."""
    text = FILE + 'where = {day = "2026-02"}\n'
    path = cases.written(
        tmp_path,
        text.replace("share = 0.5\noutput", 'where = {day = "2026-01"}\nshare = 0.5\noutput'),
    )
    plan = dg.plan_releases(path, days())
    assert plan.guarantee.epsilon() <= 1.0
    whole = dg.plan_releases(cases.written(tmp_path, FILE), days())
    apart, together = (each.releases[0].guarantee.epsilon(1e-6) for each in (plan, whole))
    assert together < 0.75
    assert 0.95 < apart <= 1.0


def test_invalid_regions_are_reported(tmp_path: Path) -> None:
    text = FILE + 'where = {dya = "2026-02", seconds = 3}\n'
    with pytest.raises(dg.ParameterError) as told:
        dg.plan_releases(cases.written(tmp_path, text), days(), where={"day": "soon"})
    lines = str(told.value).splitlines()[1:]
    assert len(lines) == 3
    assert lines[0].startswith("  where must use dates or timestamps for 'day'")
    assert lines[1].startswith(
        "  [release.time] where: 'dya' is not a column of the table; did you"
    )
    assert lines[2].startswith("  [release.time] where 'seconds' has type DOUBLE")


def test_outputs_go_to_a_folder(tmp_path: Path) -> None:
    path = cases.written(tmp_path, FILE)
    folder = tmp_path / "months" / "2026-01"
    plan = dg.plan_releases(path, days(), where=JANUARY, folder=folder)
    assert not folder.parent.exists(), "a plan writes nothing"
    plan.run()
    assert (folder / "visits.csv").exists()
    assert not (tmp_path / "visits.csv").exists()
    for wrong, told in ((path, "is not a folder"), (path / "in a file", "cannot be written")):
        with pytest.raises(dg.DataError, match=f"the folder: .*{told}"):
            dg.plan_releases(path, days(), where=JANUARY, folder=wrong)
