"""How a process ends: exit codes, the remaining charge, and its output."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest
from tests.conftest import Command
from tests.releases import cases

import dpgrain as dg

FILE = """
[table]
source = "visits.parquet"
user = "who"
[budget]
unit = "user"
epsilon = 1.0
delta = 1e-6
[release.visits]
statistic = "count"
by = "topic"
domain = ["t0", "t1", "t2"]
share = 1.0
output = "visits.csv"
"""
COUNT = ("--user", "who", "--unit", "user", "--epsilon", "0.5", "--delta", "1e-7", "--clip", "5")
STAYS = "Line 2 of the ledger 'visits' stays charged: its reservation counts as released.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cases.parquet(tmp_path)
    cases.written(tmp_path, FILE)
    promise = dg.LastingPromise.of(dg.User(), 1.1, 1.1e-6)
    dg.Ledger.create(tmp_path / "visits.ledger", name="visits", promises=[promise]).close()
    return tmp_path


def lines(folder: Path) -> int:
    return len([entry for entry in dg.Ledger(folder / "visits.ledger").entries if entry.guarantees])


def run(process: Command, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return process("run", folder / "releases.toml", "--ledger", folder / "visits.ledger", *more)


def count(process: Command, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    table, place = folder / "visits.parquet", folder / "visits.ledger"
    return process("count", table, *COUNT, "--ledger", place, *more)


@pytest.mark.slow
def test_run_exits_with_0_and_rejection_with_3(
    folder: Path, process: Command, command: Command
) -> None:
    done = run(process, folder)
    assert (done.returncode, done.stderr) == (0, "")
    before = "was charged before, in line 2 of the ledger"
    for more, told in (((), before), (("--again",), "has no room for this release")):
        refused = run(command, folder, *more)
        assert refused.returncode == 3
        assert told in refused.stderr
        assert "stays charged" not in refused.stderr
        # A second run does not fit, so it is not suggested.
        assert "--again" not in refused.stderr
        assert "renew the promise that has no room (dpgrain ledger renew)" in refused.stderr
        assert "would fit." not in refused.stderr
    (folder / "visits.csv").unlink()
    (folder / "visits.csv.guarantee.json").unlink()
    refused = run(process, folder)
    assert refused.returncode == 5
    assert "was charged before, in line 2 of the ledger" in refused.stderr
    assert "Its missing outputs: " in refused.stderr
    assert lines(folder) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("visits.parquet", "none.parquet", 2),
        ("visits.parquet", "releases.toml", 2),
        ('by = "topic"', 'by = "topik"', 2),
        ('"visits.csv"', '"none/visits.csv"', 2),
        ('"visits.csv"\n', '"none/visits.csv"\nwhere = {dya = 1}\n', 2),
        ('"topic"', '"topic"\nitm = 3', 2),
        ("epsilon = 1.0", "epsilon = -1.0", 2),
        ("epsilon = 1.0", "epsilon = 9.0", 3),
    ],
)
def test_unusable_file_error_names_the_culprit(
    before: str, after: str, code: int, folder: Path, process: Command
) -> None:
    assert before in FILE
    cases.written(folder, FILE.replace(before, after))
    done = run(process, folder)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("Error: ")
    assert not lines(folder)


@pytest.mark.parametrize(
    "words",
    [
        ("--ledger", "none.ledger"),
        ("--ledger", "empty"),
        ("--folder", "visits.ledger"),
        ("--folder", "visits.ledger/out"),
        ("--report", "empty"),
    ],
)
def test_wrong_path_exits_with_2(words: tuple[str, str], folder: Path, command: Command) -> None:
    (folder / "empty").mkdir()
    option, name = words
    done = command("run", folder / "releases.toml", option, folder / name)
    assert done.returncode == 2, done.stderr
    assert str(folder / name) in done.stderr
    assert not lines(folder)


def test_unreadable_table_exits_with_2(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    normal = os.access
    table = str(folder / "visits.parquet")
    monkeypatch.setattr(os, "access", lambda path, mode: path != table and normal(path, mode))
    done = command("run", folder / "releases.toml")
    assert done.returncode == 2
    assert f"The file {table!r} cannot be read; check its permissions." in done.stderr


@pytest.mark.slow
def test_damaged_file_exits_with_1(folder: Path, process: Command) -> None:
    place = folder / "visits.ledger"
    told = process("ledger", "verify", place, "--expected", "0" * 64)
    assert told.returncode == 1
    assert "expected must be a hash that the ledger contains" in told.stderr.replace("--", "")
    (folder / "visits.parquet").write_bytes(b"PAR1 and no more")
    assert run(process, folder).returncode == 1
    place.write_bytes(b"no ledger")
    assert run(process, folder).returncode == 1


# The program with an engine that acts when rows are read, after the charge.
PROGRAM = """
import os, signal, sys
from dpgrain.cli import main
from dpgrain.errors import DataError
from dpgrain.tables.engines.duckdb import DuckDB

def opened(engine):
    {does}

normal = DuckDB.__enter__
DuckDB.__enter__ = opened
sys.argv = ["dpgrain", *{words!r}]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "code", "told"),
    [
        ("raise DataError('The disk is on fire; call somebody.')", 5, "Error: The disk is on fire"),
        ("os.kill(os.getpid(), signal.SIGINT)", 130, "Interrupted."),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, ""),
        ("raise RuntimeError", 5, "RuntimeError"),
        ("raise type('HttpError', (Exception,), {'code': 512})", 5, "HttpError"),
    ],
)
def test_failure_after_the_charge_names_the_line(
    does: str, code: int, told: str, folder: Path
) -> None:
    file, place = str(folder / "releases.toml"), str(folder / "visits.ledger")
    program = PROGRAM.format(does=does, words=("run", file, "--ledger", place))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert done.stderr.count(STAYS) == 1
    assert lines(folder) == 1


# The program with a ledger that receives a signal at the end of a commit.
COMMITTED = """
import os, signal, sys
from contextlib import contextmanager
from dpgrain.cli import main
from dpgrain.ledger.stores.sqlite_store import SqliteStore

@contextmanager
def writing(store):
    with normal(store) as page:
        yield page
    os.kill(os.getpid(), signal.{name})

normal = SqliteStore.writing
SqliteStore.writing = writing
sys.argv = ["dpgrain", *{words!r}]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_signal_right_after_the_charge_names_the_line(name: str, code: int, folder: Path) -> None:
    words = ("run", str(folder / "releases.toml"), "--ledger", str(folder / "visits.ledger"))
    program = COMMITTED.format(name=name, words=words)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.endswith(STAYS)
    assert lines(folder) == 1


def started(folder: Path, does: str, *more: str) -> subprocess.Popen[str]:
    """A run that acts when rows are read, after the charge."""
    words = ("run", str(folder / "releases.toml"), "--ledger", str(folder / "visits.ledger"), *more)
    program = PROGRAM.format(does=does, words=words)
    return subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_second_run_does_not_mistake_a_running_one_for_a_crash(
    folder: Path, command: Command
) -> None:
    reading, go = folder / "reading", folder / "go"
    os.mkfifo(go)
    waits = f"open({str(reading)!r}, 'w').close(); open({str(go)!r}).close(); return normal(engine)"
    first = started(folder, waits)
    wait_for(reading)
    for more in ((), ("--again",), ("--dry-run",)):
        second = run(command, folder, *more)
        assert second.returncode == 3, second.stderr
        assert "another process is publishing 'releases.toml' into" in second.stderr
        assert "--again" not in second.stderr
        assert "stays charged" not in second.stderr
    first.kill()
    first.communicate()
    # After a crash the lock is free, and the missing outputs are reported.
    lost = run(command, folder)
    assert lost.returncode == 5, lost.stderr
    assert "Its missing outputs: " in lost.stderr
    assert lines(folder) == 1


def test_run_charged_for_another_folder_exits_with_3(folder: Path, command: Command) -> None:
    one, two = folder / "one", folder / "two"
    assert run(command, folder, "--folder", str(one)).returncode == 0
    for more in ((), ("--dry-run",)):
        refused = run(command, folder, "--folder", str(two), *more)
        assert refused.returncode == 3, refused.stderr
        told = f"charged before, in line 2 of the ledger, by a run into {str(one)!r}, whether"
        assert told in refused.stderr
        assert "missing outputs" not in refused.stderr
    for written in one.iterdir():
        written.unlink()
    refused = run(command, folder, "--folder", str(one))
    assert refused.returncode == 5
    assert f"Its missing outputs: {str(one / 'visits.csv')!r}" in refused.stderr
    assert lines(folder) == 1


@pytest.mark.slow
def test_two_runs_at_once_end_with_0_and_3(folder: Path) -> None:
    words = ("run", "releases.toml", "--ledger", "visits.ledger", "--folder", "out")
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "dpgrain", *words],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert sorted(each.wait(timeout=300) for each in both) == [0, 3]
    assert sorted(each.name for each in (folder / "out").iterdir()) == [
        "visits.csv",
        "visits.csv.guarantee.json",
    ]


@pytest.mark.slow
def test_outputs_without_space_prevent_the_charge(folder: Path) -> None:
    labels = ", ".join(f'"t{i}"' for i in range(9000))
    cases.written(folder, FILE.replace('"t0", "t1", "t2"', labels))
    count = ("count", "visits.parquet", *COUNT, "--output", "count.csv")
    for words in (("run", "releases.toml"), count):
        done = subprocess.run(
            [sys.executable, "-m", "dpgrain", *words, "--ledger", "visits.ledger"],
            cwd=folder,
            # Enough for the ledger, and too little for the output.
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, 2**17)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        assert "cannot be written; check the folder, its permissions and free space." in done.stderr
        assert lines(folder) == 0
    assert not list(folder.glob(".*"))


@pytest.mark.slow
def test_lost_output_after_the_charge_is_5_at_once(folder: Path) -> None:
    out = str(folder / "out")
    does = f"import shutil; shutil.rmtree({out!r}); return normal(engine)"
    lost = started(folder, does, "--folder", out)
    _, told = lost.communicate(timeout=300)
    assert lost.returncode == 5, told
    assert "cannot be written" in told
    assert told.endswith(STAYS)


@pytest.mark.slow
def test_a_retry_removes_no_files_but_its_lock(folder: Path, command: Command) -> None:
    killed = started(folder, "os.kill(os.getpid(), signal.SIGKILL)")
    killed.communicate(timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert [each.name for each in folder.glob(".*")] == [".releases.toml.lock"]
    others = {".visits.csv.guarantee.json.hzay454h.json", ".visits.csv.original"}
    for name in others:
        (folder / name).write_text("mine")
    assert run(command, folder).returncode == 5
    (folder / "visits.ledger").unlink()
    promise = dg.LastingPromise.of(dg.User(), 1.1, 1.1e-6)
    dg.Ledger.create(folder / "visits.ledger", name="visits", promises=[promise]).close()
    assert run(command, folder).returncode == 0
    assert {each.name for each in folder.glob(".*")} == others


@pytest.mark.slow
def test_full_output_is_reported_in_one_message(folder: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs a device that is full")
    words = ("count", folder / "visits.parquet", *COUNT, "--ledger", folder / "visits.ledger")
    with full.open("w") as output:
        done = _into(output, *words, "--json")
    assert done.returncode == 5
    assert done.stderr == (
        "Error: Standard output cannot be written (No space left on device): the output not printed is "
        f"lost, and the published results still count; --output writes it to a file.\n{STAYS}"
    )


def test_unread_pipe_is_reported_in_one_message(folder: Path) -> None:
    words = ("ledger", "show", folder / "visits.ledger")
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as output:
        done = _into(output, *words)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: Standard output cannot be written (Broken pipe): the output not printed is lost.\n"
    )


def _into(output: IO[str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dpgrain", *map(str, words)],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
