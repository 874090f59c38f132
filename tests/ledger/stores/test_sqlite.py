"""A ledger in a file after kills, cut-off writes, full disks and damage."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ledger import cases

import dpgrain as dg
from dpgrain.ledger.stores import sqlite

ROOT = Path(__file__).parents[3]


def python(code: str, *words: Any, before: tuple[str, ...] = (), **more: Any) -> Any:
    """A process of its own that runs some code."""
    command = [*before, sys.executable, "-c", code, *map(str, words)]
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    return subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path}, **more,
    )  # fmt: skip


# -- kills ---


def killed(folder: Path, kills: int, seed: int) -> tuple[int, int, int]:
    code = (
        "import runpy, sys; runpy.run_module('tests.ledger.stores.crashing', run_name='__main__')"
    )
    done = python(code, folder, kills, seed)
    assert done.returncode == 0, done.stderr
    published, recorded, begun = map(int, done.stdout.split())
    return published, recorded, begun


def test_a_killed_publisher_leaves_no_release_unrecorded(tmp_path: Path) -> None:
    published, recorded, begun = killed(tmp_path, 20, 1)
    assert begun == 2
    assert 0 < published <= recorded


@pytest.mark.search(keep=0)
def test_publishers_killed_at_200_points_leave_no_release_unrecorded(tmp_path: Path) -> None:
    published, recorded, _ = killed(tmp_path, 200, 2)
    # Some were killed between the charge and the release: what was charged counts.
    assert 20 < published < recorded


# -- prefixes ---


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, str]]]:
    """A ledger with its log, and the length of the log when each release was published."""
    folder = tmp_path_factory.mktemp("written")
    made = cases.made(folder / "l")
    log, lengths = folder / "l-wal", []
    with made:
        for _ in range(2):
            receipt = made.charge(cases.of_users())
            lengths.append((log.stat().st_size, receipt.hash))
        for name in ("l", "l-wal"):
            shutil.copy(folder / name, folder / f"copy-{name}")
    return folder, lengths


def opens(
    folder: Path, database: bytes, log: bytes | None, *, verified: bool = True
) -> set[str] | None:
    """The hashes of the lines of a ledger made of these bytes; None if it is refused."""
    for old in folder.glob("p*"):
        old.unlink()
    (folder / "p").write_bytes(database)
    if log is not None:
        (folder / "p-wal").write_bytes(log)
    try:
        # Opening checks the chain of all lines.
        opened = dg.Ledger(folder / "p")
        found = {entry.line.hash for entry in opened.entries}
        if verified:
            opened.verify()
        opened.close()
    except dg.DataError:
        return None
    return found


def prefixes(length: int, step: int) -> Iterator[int]:
    pages = {place + near for place in range(0, length, 4096 + 24) for near in (31, 32, 33, 56)}
    yield from sorted({*range(0, length, step), *pages, length} & set(range(length + 1)))


def check_prefixes_of_the_log(written: Any, folder: Path, step: int) -> None:
    source, lengths = written
    database, log = (source / "copy-l").read_bytes(), (source / "copy-l-wal").read_bytes()
    held = set()
    for end in prefixes(len(log), step):
        found = opens(folder, database, log[:end], verified=step > 1)
        assert found is not None
        published = {digest for length, digest in lengths if length <= end}
        assert published <= found
        held.add(len(found))
    # A cut-off transaction is left out as a whole.
    assert held == {2, 3, 4}


def check_prefixes_of_the_database(written: Any, folder: Path, step: int) -> None:
    source, lengths = written
    shutil.copy(source / "copy-l", folder / "whole")
    shutil.copy(source / "copy-l-wal", folder / "whole-wal")
    dg.Ledger(folder / "whole").close()
    database = (folder / "whole").read_bytes()
    published = {digest for _, digest in lengths}
    assert not (folder / "whole-wal").exists()
    # The first bytes of the last page say how the rest of it, which is empty, is to be read.
    last = range(len(database) - 4096, len(database) - 4080)
    for end in sorted({*prefixes(len(database), step), *last}):
        found = opens(folder, database[:end], None)
        assert found is None or published <= found
        # Zeros at the end of the last page are the same whether they are there or not.
        assert (found is None) == bool(database[end:].strip(b"\0"))


def test_prefixes_of_the_log_hold_what_was_published(written: Any, tmp_path: Path) -> None:
    check_prefixes_of_the_log(written, tmp_path, 997)


@pytest.mark.search(keep=0)
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 11])
def test_every_prefix_of_the_log_holds_what_was_published(
    step: int, written: Any, tmp_path: Path
) -> None:
    check_prefixes_of_the_log(written, tmp_path, step)


def test_prefixes_of_the_database_are_refused(written: Any, tmp_path: Path) -> None:
    check_prefixes_of_the_database(written, tmp_path, 997)


@pytest.mark.search(keep=0)
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 11])
def test_every_prefix_of_the_database_is_refused(step: int, written: Any, tmp_path: Path) -> None:
    check_prefixes_of_the_database(written, tmp_path, step)


def test_a_prefix_of_the_database_with_its_log_is_whole_or_refused(
    written: Any, tmp_path: Path
) -> None:
    """As a crash leaves it that cuts off what is being copied from the log to the database."""
    source, lengths = written
    database, log = (source / "copy-l").read_bytes(), (source / "copy-l-wal").read_bytes()
    published = {digest for _, digest in lengths}
    for end in prefixes(len(database), 501):
        found = opens(tmp_path, database[:end], log)
        assert found is None or published <= found


# -- what a trace of system calls shows ---

TRACED = """
import os, sys
import dpgrain as dg
from importlib import import_module
from tests.ledger import cases
from tests.publishing import cases as tables

class Rows:
    name = title = "The table"
    untyped = False
    def columns(self): raise AssertionError
    def attach(self, connection):
        os.path.exists("/rows-are-read")
        raise OSError

if sys.argv[2] == "unsafe":
    import_module("dpgrain.ledger.stores.sqlite")._SAFELY = ("PRAGMA synchronous = OFF",)
place = sys.argv[1]
os.path.exists("/begun")
cases.made(place)
os.path.exists("/made")
import dataclasses
rows = dataclasses.replace(tables.table(), source=Rows())
with dg.Ledger(place):
    os.path.exists("/open")
    try:
        dg.count(rows, unit=dg.User(), clip=5.0, epsilon=0.1, delta=1e-8)
    except (dg.DpgrainError, OSError, AssertionError):
        pass
"""


def traced(place: Path, how: str) -> list[str]:
    log = place.with_suffix(".trace")
    calls = "trace=fsync,fdatasync,pwrite64,write,openat,stat,newfstatat"
    done = python(TRACED, place, how, before=("strace", "-f", "-y", "-e", calls, "-o", str(log)))
    assert done.returncode == 0, done.stderr
    return log.read_text(errors="replace").splitlines()


def between(lines: list[str], first: str, last: str) -> list[str]:
    places = [
        next(i for i, line in enumerate(lines) if f'"{name}"' in line) for name in (first, last)
    ]
    return lines[places[0] : places[1]]


def is_on_the_disk(lines: list[str], name: str) -> bool:
    """Whether a file was written, and synchronised after it was last written."""
    writes = [i for i, line in enumerate(lines) if re.search(rf"write\w*\(\d+<[^>]*/{name}>", line)]
    syncs = [
        i for i, line in enumerate(lines) if re.search(rf"sync\(\d+<[^>]*/{name}>\) += 0", line)
    ]
    return bool(writes) and bool(syncs) and syncs[-1] > writes[-1]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("how", ["safe", "unsafe"])
def test_a_charge_is_on_the_disk_before_the_first_row_is_read(how: str, tmp_path: Path) -> None:
    place = tmp_path / "visits.ledger"
    lines = traced(place, how)
    charged = between(lines, "/open", "/rows-are-read")
    assert any("visits.ledger-wal>" in line and "write" in line for line in charged)
    assert is_on_the_disk(charged, "visits.ledger-wal") == (how == "safe")
    made = between(lines, "/begun", "/made")
    folder = re.escape(str(tmp_path))
    assert any(re.search(rf"fsync\(\d+<{folder}>\) += 0", line) for line in made)


# -- disks ---

FULL = """
import resource, signal, sys
import dpgrain as dg
from tests.ledger import cases

place = sys.argv[1]
made, held, size = cases.made(place), [], 40_000
with made:
    while True:
        try:
            held.append(made.charge(cases.of_users()).hash)
        except dg.DataError as error:
            said = str(error)
            break
        if len(held) == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(said)
print(*held)
"""


def test_a_full_disk_publishes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    # A limit that is only lowered softly can be raised again.
    code = FULL.replace("(size, size)", "(size, resource.RLIM_INFINITY)")
    done = python(code, tmp_path / "l")
    assert done.returncode == 0, done.stderr
    said, held = done.stdout.splitlines()
    assert "could not be written to the disk" in said
    assert "nothing is published" in said
    assert len(held.split()) >= 3
    opened = dg.Ledger(tmp_path / "l")
    opened.verify()
    assert set(held.split()) <= {entry.line.hash for entry in opened.entries}
    opened.charge(cases.of_users())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_full_file_system_publishes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """A small file system in memory, seen by one process alone."""
    code = f"""
import os, subprocess, sys
folder = {str(tmp_path)!r}
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", folder]).returncode:
    print("no mount"); sys.exit()
import dpgrain as dg
from tests.ledger import cases
made, held = cases.made(folder + "/l"), []
with made:
    try:
        while len(held) < 2000:
            held.append(made.charge(cases.of_users()).hash)
    except dg.DataError as error:
        print(error)
opened = dg.Ledger(folder + "/l")
assert set(held) <= {{entry.line.hash for entry in opened.entries}}
opened.verify()
print(len(held))
"""
    done = python(code, before=("unshare", "--mount"))
    if "unshare: " in done.stderr or "no mount" in done.stdout:
        pytest.skip("this machine mounts nothing")
    assert done.returncode == 0, done.stderr
    said, held = done.stdout.splitlines()
    assert "could not be written to the disk" in said
    assert int(held) > 10


READ_ONLY = """
import os, sys, tempfile
import dpgrain as dg
from tests.ledger import cases
# Another user may not be allowed to read what Python loads.
cases.made(tempfile.mkdtemp() + "/l").verify()
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
made = dg.Ledger(sys.argv[1])
print(made.verify().number)
for _ in range(2):
    try:
        made.charge(cases.of_users())
    except dg.DataError as error:
        print(error)
print(len(made.entries))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("closed", [0o555, 0o755])
def test_a_file_that_must_not_be_written_can_be_read(closed: int, tmp_path: Path) -> None:
    folder = Path("/tmp") / f"dpgrain-{os.getpid()}-{closed}"
    folder.mkdir()
    try:
        made = cases.made(folder / "l")
        made.charge(cases.of_users())
        made.close()
        (folder / "l").chmod(0o444)
        folder.chmod(closed)
        done = python(READ_ONLY, folder / "l")
        assert done.returncode == 0, done.stderr
        number, *said, lines = done.stdout.splitlines()
        assert (number, lines) == ("2", "3")
        assert all("cannot be written, so that nothing can be charged" in each for each in said)
        assert len(said) == 2
    finally:
        shutil.rmtree(folder)


# -- damage ---


def test_damage_anywhere_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    """A byte that is changed is told, or it belongs to nothing that a ledger holds."""
    made = cases.made(tmp_path / "l")
    for _ in range(3):
        made.charge(cases.of_users())
    entries = [entry.line for entry in made.entries]
    made.close()
    database = (tmp_path / "l").read_bytes()
    told = 0
    for place in itertools.chain(range(0, 100, 7), range(100, len(database), 311)):
        broken = bytearray(database)
        broken[place] ^= 0x55
        (tmp_path / "p").write_bytes(broken)
        try:
            opened = dg.Ledger(tmp_path / "p")
            opened.verify()
            assert [entry.line for entry in opened.entries] == entries
            opened.close()
        except (dg.DataError, dg.ParameterError):
            told += 1
    assert told > 10


@pytest.mark.parametrize(
    "made",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not a database, but some text of another kind"),
        lambda path: sqlite3.connect(path).execute("CREATE TABLE t (a)").connection.close(),
    ],
    ids=["empty", "text", "another"],
)
def test_other_files_are_no_ledgers(made: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "l"
    made(path)
    before = path.read_bytes()
    with pytest.raises(dg.DataError):
        dg.Ledger(path)
    assert path.read_bytes() == before


def test_a_ledger_whose_making_was_cut_off_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "l").write_bytes(b"")
    assert cases.made(tmp_path / "l").verify().number == 1


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(dg.DataError, match="cannot be opened"):
        cases.made(tmp_path / "no" / "l")


def test_a_connection_waits_for_what_is_committed(tmp_path: Path) -> None:
    store = sqlite.SqliteStore(tmp_path / "l")
    cases.made(tmp_path / "l")
    with store.reading():
        connection = store._connections._connection
        assert connection is not None
        names = ("synchronous", "journal_mode")
        settings = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
    assert settings == [2, "wal"]
