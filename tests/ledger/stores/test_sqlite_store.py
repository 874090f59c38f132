"""A ledger in a file after kills, cut-off writes, full disks and damage."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.effort import Effort
from tests.ledger import cases

import dpgrain as dg
from dpgrain.ledger.stores import sqlite_store

ROOT = Path(__file__).parents[3]


def surroundings() -> dict[str, Any]:
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    return {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": path}}


def python(code: str, *words: Any, before: tuple[str, ...] = (), **more: Any) -> Any:
    command = [*before, sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False, **surroundings(), **more
    )


def killed(folder: Path, kills: int, seed: int) -> tuple[int, int, int]:
    code = (
        "import runpy, sys; runpy.run_module('tests.ledger.stores.crashing', run_name='__main__')"
    )
    done = python(code, folder, kills, seed)
    assert done.returncode == 0, done.stderr
    published, recorded, begun = map(int, done.stdout.split())
    return published, recorded, begun


@pytest.mark.slow
def test_a_killed_publisher_leaves_no_release_unrecorded(tmp_path: Path) -> None:
    published, recorded, begun = killed(tmp_path, 20, 1)
    assert begun == 2
    assert 0 < published <= recorded


@pytest.mark.slow
def test_publishers_killed_at_many_points_leave_no_release_unrecorded(
    tmp_path: Path, effort: Effort
) -> None:
    kills = len(effort.some(range(200)))
    published, recorded, _ = killed(tmp_path, kills, 2)
    # Some were killed between the charge and the release: they are charged.
    assert kills / 10 < published < recorded


# -- seams ---


@pytest.fixture(params=["of this version", "of an earlier version"])
def left(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, set[str]]:
    """A folder with a ledger and all its files, and the confirmed hashes."""
    folder = tmp_path / "left"
    folder.mkdir()
    if request.param == "of this version":
        with cases.made(tmp_path / "l") as opened:
            confirmed = {opened.charge(cases.of_users()).hash for _ in range(2)}
        shutil.copy(tmp_path / "l", folder)
    else:
        held = cases.with_log(tmp_path / "l", 0)
        confirmed = set(cases.charged_to_log(tmp_path / "l", 2))
        for name in ("l", "l-wal"):
            shutil.copy(tmp_path / name, folder)
        held.close()
    return folder, confirmed


class Dying(sqlite3.Connection):
    """A connection that kills its process before the statement with a given number."""

    left: int | None = None

    def execute(self, *words: Any) -> sqlite3.Cursor:
        if Dying.left is not None:
            if Dying.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            Dying.left -= 1
        return super().execute(*words)


def charged_and_killed(place: Path, statement: int) -> str | None:
    """Charge a ledger in a process killed before a statement; return its confirmed hashes."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            connect = sqlite3.connect
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sqlite3, "connect", lambda *w, **o: connect(*w, factory=Dying, **o))
                opened = dg.Ledger(place)
                Dying.left = statement
                receipt = opened.charge(cases.of_users())
                os.write(writes, receipt.hash.encode())
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told or None


def hashes(place: Path) -> set[str]:
    opened = dg.Ledger(place)
    opened.verify()
    found = {entry.line.hash for entry in opened.entries}
    opened.close()
    return found


@pytest.mark.slow
def test_a_charge_killed_before_any_statement_loses_nothing_confirmed(
    left: tuple[Path, set[str]], tmp_path: Path
) -> None:
    """After BEGIN, after the line, before and after COMMIT, before the reply; and while it converts."""
    folder, confirmed = left
    lengths = []
    for statement in itertools.count():
        place = shutil.copytree(folder, tmp_path / str(statement)) / "l"
        told = charged_and_killed(place, statement)
        moved = shutil.copytree(place.parent, tmp_path / f"{statement}-moved") / "l"
        found = hashes(place)
        assert confirmed | ({told} if told else set()) <= found
        # If all files move together it is the same ledger.
        assert hashes(moved) == found
        lengths.append(len(found))
        if told:
            break
    assert len(lengths) > 5
    # Nothing is there of a line until its transaction is committed.
    assert lengths == sorted(lengths)
    assert set(lengths) == {4, 5}


# A process that loads all modules before it forks children, which charge. strace counts the calls
# of each child separately, because each first makes some that change nothing.
FORKING = """
import os, sys
from contextlib import suppress
import dpgrain as dg
from tests.ledger import cases

place, name, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
asked = cases.of_users()

def change_nothing():
    if name == "unlink":
        with suppress(FileNotFoundError):
            os.unlink(f"{place}-shm")
        return
    own = os.open(place, os.O_RDWR)
    if name == "pwrite64":
        os.pwrite(own, b"", 0)
    elif name != "openat":
        os.fdatasync(own)
        os.fsync(own)
    os.close(own)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            for _ in range(last - int(line)):
                change_nothing()
            opened = dg.Ledger(place)
            opened.charge(asked)
            os._exit(0)
        finally:
            os._exit(1)
    print(os.waitpid(child, 0)[1], flush=True)
"""
CALLS = ("pwrite64", "fdatasync,fsync", "unlink", "openat")
# Number of system calls with a name on a ledger's files, beyond any charge's.
LAST = 120


@contextmanager
def killing(place: Path, name: str) -> Iterator[Callable[[int], bool]]:
    """Charge in processes killed at a ledger's system calls; False if one ends normally."""
    files = [word for end in ("", "-journal", "-wal", "-shm") for word in ("-P", f"{place}{end}")]
    rule = f"inject={name}:signal=KILL:when={LAST}"
    words = ("strace", "-f", *files, "-P", str(place.parent), "-e", rule, "-o", os.devnull)
    command = (*words, sys.executable, "-c", FORKING, str(place), name, str(LAST))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **surroundings()
    ) as forking:
        assert forking.stdin is not None
        assert forking.stdout is not None
        asks, answers = forking.stdin, forking.stdout

        def killed_at(number: int) -> bool:
            assert number < LAST, "a charge makes more system calls than that"
            print(number, file=asks, flush=True)
            status = int(answers.readline())
            assert status in (0, signal.SIGKILL), "a charge ended otherwise"
            return bool(status)

        yield killed_at
        asks.close()


def check_a_charge_killed_at(name: str, numbers: Iterable[int], left: Any, tmp_path: Path) -> int:
    folder, confirmed = left
    place, journals = tmp_path / "charged" / "l", 0
    with killing(place, name) as killed_at:
        for number in numbers:
            shutil.rmtree(place.parent, ignore_errors=True)
            shutil.copytree(folder, place.parent)
            if not killed_at(number):
                break
            journals += (place.parent / "l-journal").exists()
            moved = shutil.copytree(place.parent, tmp_path / f"{number}-moved") / "l"
            found = hashes(place)
            assert confirmed <= found
            assert hashes(moved) == found
    return journals


needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize("left", ["of this version"], indirect=True)
def test_journal_of_a_killed_process_belongs_to_the_ledger(
    left: tuple[Path, set[str]], tmp_path: Path
) -> None:
    assert check_a_charge_killed_at("unlink", [1], left, tmp_path) == 1


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize("name", CALLS)
def test_charge_killed_at_any_call_loses_nothing_confirmed(
    name: str, left: tuple[Path, set[str]], tmp_path: Path
) -> None:
    journals = check_a_charge_killed_at(name, itertools.count(1), left, tmp_path)
    assert journals > 0 or name == "openat"


def test_copy_of_the_file_contains_all_confirmed_lines(
    left: tuple[Path, set[str]], tmp_path: Path
) -> None:
    """Between charges there is no other file, however many have the ledger open."""
    folder, confirmed = left
    first, second = dg.Ledger(folder / "l"), dg.Ledger(folder / "l")
    for number in range(6):
        confirmed.add((first, second)[number % 2].charge(cases.of_users()).hash)
        assert confirmed <= {entry.line.hash for entry in first.entries}
        assert [each.name for each in folder.iterdir()] == ["l"]
        shutil.copy(folder / "l", tmp_path / "copy")
        assert confirmed <= hashes(tmp_path / "copy")


def test_read_only_opening_leaves_an_earlier_ledger_unchanged(tmp_path: Path) -> None:
    held = cases.with_log(tmp_path / "l", 0)
    confirmed = set(cases.charged_to_log(tmp_path / "l", 2))
    before = (tmp_path / "l").read_bytes()
    assert confirmed <= hashes(tmp_path / "l")
    assert (tmp_path / "l").read_bytes() == before
    # While it is open elsewhere nothing can be charged, and the reason is stated.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[sqlite_store.SqliteStore.__module__], "_PATIENCE_SECONDS", 0.2)
        with pytest.raises(dg.DataError, match="open in a process of an earlier version"):
            dg.Ledger(tmp_path / "l").charge(cases.of_users())
    held.close()
    dg.Ledger(tmp_path / "l").charge(cases.of_users())
    assert confirmed < hashes(tmp_path / "l")
    assert has_no_log(tmp_path / "l")


def has_no_log(place: Path) -> bool:
    with closing(sqlite3.connect(place)) as connection:
        return bool(connection.execute("PRAGMA journal_mode").fetchone() == ("delete",))


def test_many_users_of_an_earlier_ledger_charge_at_once(tmp_path: Path) -> None:
    cases.with_log(tmp_path / "l", 2).close()
    children = []
    for _ in range(4):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                opened = dg.Ledger(tmp_path / "l")
                for _ in range(3):
                    opened.charge(cases.of_users())
                opened.close()
                os._exit(0)
            finally:
                os._exit(1)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len(hashes(tmp_path / "l")) == 16
    assert has_no_log(tmp_path / "l")


# -- names ---


def replaced(place: Path) -> None:
    shutil.copy(place, place.with_name("copy"))
    place.with_name("copy").rename(place)


def folder_moved(place: Path) -> None:
    place.parent.rename(place.parent.with_name("elsewhere"))


@pytest.mark.parametrize("linked", [False, True], ids=["file", "symbolic link"])
@pytest.mark.parametrize(
    "used",
    [
        lambda opened: opened.charge(cases.of_users()),
        lambda opened: opened.rehearse(cases.of_users()),
        lambda opened: opened._store.writing().__enter__(),
    ],
    ids=["charge", "rehearse", "begin"],
)
@pytest.mark.parametrize(
    "change",
    [Path.unlink, lambda place: place.rename(place.with_name("other")), replaced, folder_moved],
    ids=["deleted", "moved", "replaced", "folder moved"],
)
def test_removed_open_file_charges_nothing(
    change: Callable[[Path], Any], used: Callable[[Any], Any], linked: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    place = folder / "l"
    if linked:
        place = tmp_path / "link"
        place.symlink_to(folder / "l")
    with cases.made(place) as opened:
        opened.charge(cases.of_users())
        change(folder / "l")
        with pytest.raises(dg.DataError, match="was deleted, moved or replaced while it was open"):
            used(opened)
        for left in tmp_path.rglob("*"):
            if left.is_file() and not left.is_symlink():
                assert len(dg.Ledger(left).entries) == 3


def test_restored_file_is_charged_again(tmp_path: Path) -> None:
    with cases.made(tmp_path / "l") as opened:
        opened.charge(cases.of_users())
        (tmp_path / "l").rename(tmp_path / "other")
        with pytest.raises(dg.DataError, match="was deleted, moved or replaced"):
            opened.charge(cases.of_users())
        (tmp_path / "other").rename(tmp_path / "l")
        opened.charge(cases.of_users())
    assert len(hashes(tmp_path / "l")) == 4


def test_file_with_two_names_is_rejected(tmp_path: Path) -> None:
    """The other name does not find the files that a killed process leaves next to one name."""
    opened = cases.made(tmp_path / "l")
    (tmp_path / "m").hardlink_to(tmp_path / "l")
    for use in (lambda: opened.charge(cases.of_users()), lambda: dg.Ledger(tmp_path / "m")):
        with pytest.raises(dg.DataError, match=r"has 2 hard links"):
            use()
    (tmp_path / "m").unlink()
    opened.charge(cases.of_users())


def test_a_symbolic_link_has_the_journal_of_its_file(
    left: tuple[Path, set[str]], tmp_path: Path
) -> None:
    folder, confirmed = left
    link = tmp_path / "link"
    link.symlink_to(folder / "l")
    confirmed.add(dg.Ledger(link).charge(cases.of_users()).hash)
    assert confirmed <= hashes(folder / "l")


# -- prefixes ---


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, str]]]:
    folder = tmp_path_factory.mktemp("written")
    held = cases.with_log(folder / "l", 0)
    log, lengths = folder / "l-wal", []
    for _ in range(2):
        (digest,) = cases.charged_to_log(folder / "l", 1)
        lengths.append((log.stat().st_size, digest))
    for name in ("l", "l-wal"):
        shutil.copy(folder / name, folder / f"copy-{name}")
    held.close()
    return folder, lengths


def opens(
    folder: Path, database: bytes, log: bytes | None, *, verified: bool = True
) -> set[str] | None:
    """The line hashes of a ledger with these bytes; None if it is rejected."""
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


Draw: TypeAlias = Callable[[Iterable[int]], list[int]]


def prefixes(length: int, step: int, some: Draw = list) -> Iterator[int]:
    """The lengths of prefixes: some of all, and those around the beginnings of pages."""
    pages = {place + near for place in range(0, length, 4096 + 24) for near in (31, 32, 33, 56)}
    yield from sorted({*some(range(0, length, step)), *pages, length} & set(range(length + 1)))


def check_prefixes_of_the_log(written: Any, folder: Path, step: int, some: Draw = list) -> None:
    source, lengths = written
    database, log = (source / "copy-l").read_bytes(), (source / "copy-l-wal").read_bytes()
    held = set()
    for end in prefixes(len(log), step, some):
        found = opens(folder, database, log[:end], verified=step > 1)
        assert found is not None
        published = {digest for length, digest in lengths if length <= end}
        assert published <= found
        held.add(len(found))
    # A cut-off transaction is left out as a whole.
    assert held == {2, 3, 4}


def check_prefixes_of_the_database(
    written: Any, folder: Path, step: int, some: Draw = list
) -> None:
    source, lengths = written
    shutil.copy(source / "copy-l", folder / "whole")
    shutil.copy(source / "copy-l-wal", folder / "whole-wal")
    dg.Ledger(folder / "whole").close()
    database = (folder / "whole").read_bytes()
    published = {digest for _, digest in lengths}
    assert not (folder / "whole-wal").exists()
    # The first bytes of the last page define how the rest of it, which is empty, is read.
    last = range(len(database) - 4096, len(database) - 4080)
    for end in sorted({*prefixes(len(database), step, some), *last}):
        found = opens(folder, database[:end], None)
        assert found is None or published <= found
        # Zeros at the end of the last page are the same whether they are there or not.
        assert (found is None) == bool(database[end:].strip(b"\0"))


@pytest.mark.slow
def test_log_prefixes_contain_the_published_releases(written: Any, tmp_path: Path) -> None:
    check_prefixes_of_the_log(written, tmp_path, 997)


@pytest.mark.slow
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow(full=True)), 11])
def test_every_log_prefix_contains_the_published_releases(
    step: int, written: Any, tmp_path: Path, effort: Effort
) -> None:
    check_prefixes_of_the_log(written, tmp_path, step, effort.some)


def test_database_prefixes_are_rejected(written: Any, tmp_path: Path) -> None:
    check_prefixes_of_the_database(written, tmp_path, 997)


@pytest.mark.slow
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow(full=True)), 11])
def test_every_database_prefix_is_rejected(
    step: int, written: Any, tmp_path: Path, effort: Effort
) -> None:
    check_prefixes_of_the_database(written, tmp_path, step, effort.some)


@pytest.mark.slow
def test_database_prefix_with_its_log_is_complete_or_rejected(written: Any, tmp_path: Path) -> None:
    """As after a crash during the copy from the log to the database."""
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
    def attach(self, *words):
        os.path.exists("/rows-are-read")
        raise OSError

if sys.argv[2] == "unsafe":
    store = import_module("dpgrain.ledger.stores.sqlite_store")
    store._SETTINGS, store._REQUIRED = {"synchronous": "OFF"}, {}
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
    calls = "trace=fsync,fdatasync,pwrite64,write,openat,stat,newfstatat,unlink,unlinkat"
    done = python(TRACED, place, how, before=("strace", "-f", "-y", "-e", calls, "-o", str(log)))
    assert done.returncode == 0, done.stderr
    return log.read_text(errors="replace").splitlines()


def between(lines: list[str], first: str, last: str) -> list[str]:
    places = [
        next(i for i, line in enumerate(lines) if f'"{name}"' in line) for name in (first, last)
    ]
    return lines[places[0] : places[1]]


def is_on_the_disk(lines: list[str], name: str) -> bool:
    writes = [i for i, line in enumerate(lines) if re.search(rf"write\w*\(\d+<[^>]*/{name}>", line)]
    syncs = [
        i for i, line in enumerate(lines) if re.search(rf"sync\(\d+<[^>]*/{name}>\) += 0", line)
    ]
    return bool(writes) and bool(syncs) and syncs[-1] > writes[-1]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("how", ["safe", "unsafe"])
def test_charge_is_on_disk_before_the_first_row_read(how: str, tmp_path: Path) -> None:
    place = tmp_path / "visits.ledger"
    lines = traced(place, how)
    charged = between(lines, "/open", "/rows-are-read")
    assert any("visits.ledger>" in line and "write" in line for line in charged)
    for name in ("visits.ledger", "visits.ledger-journal"):
        assert is_on_the_disk(charged, name) == (how == "safe")
    folder = re.escape(str(tmp_path))
    for part in (between(lines, "/begun", "/made"), charged):
        # That the journal is gone is on the disk as well: without it, it would be taken back.
        gone = [i for i, line in enumerate(part) if re.search(r"unlink\w*\(.*-journal", line)]
        synced = [
            i for i, line in enumerate(part) if re.search(rf"sync\(\d+<{folder}>\) += 0", line)
        ]
        if part is charged:
            assert len(gone) == 1
            assert any(i > gone[0] for i in synced) == (how == "safe")
        else:
            assert synced


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


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_full_file_system_publishes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """A small file system in memory, visible to only one process."""
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


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("closed", [0o555, 0o755])
def test_read_only_file_can_be_read(closed: int, tmp_path: Path) -> None:
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
        assert all("cannot be written, so nothing can be charged" in each for each in said)
        assert len(said) == 2
    finally:
        shutil.rmtree(folder)


def test_journal_removable_only_by_its_owner_is_named(tmp_path: Path) -> None:
    """A transaction that fills the memory of a connection is on the disk in part, with its journal."""
    cases.made(tmp_path / "l").close()
    code = """
import os, sys
import dpgrain as dg
from tests.ledger import cases
cases.of_users()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try: dg.Ledger(sys.argv[1])
except dg.DataError as error: print(error)
"""
    with closing(sqlite3.connect(tmp_path / "l", isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 2")
        writer.execute("BEGIN IMMEDIATE")
        rows = [(f"{number:064}", number) for number in range(3000)]
        writer.executemany("INSERT INTO marks VALUES (?, ?)", rows)
        folder = Path(tempfile.mkdtemp())
        for name in ("l", "l-journal"):
            shutil.copy(tmp_path / name, folder)
    try:
        folder.chmod(0o755)
        if os.geteuid() == 0:
            (said,) = python(code, folder / "l").stdout.splitlines()
            assert "next to the journal or log of a killed process" in said
        assert len(hashes(folder / "l")) == 2
        assert [each.name for each in folder.iterdir()] == ["l"]
    finally:
        shutil.rmtree(folder)


# -- damage ---


@pytest.mark.slow
def test_damage_anywhere_is_rejected_or_harmless(tmp_path: Path) -> None:
    """A changed byte is reported, or belongs to no content of the ledger."""
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
def test_other_files_are_not_ledgers(made: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "l"
    made(path)
    before = path.read_bytes()
    with pytest.raises(dg.DataError):
        dg.Ledger(path)
    assert path.read_bytes() == before


def test_interrupted_creation_of_a_ledger_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "l").write_bytes(b"")
    assert cases.made(tmp_path / "l").verify().number == 1


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(dg.DataError, match="cannot be opened"):
        cases.made(tmp_path / "no" / "l")


def test_connection_waits_for_commits(tmp_path: Path) -> None:
    store = sqlite_store.SqliteStore(tmp_path / "l")
    cases.made(tmp_path / "l")
    with store.reading():
        connection = store._connections._connection
        assert connection is not None
        names = ("synchronous", "journal_mode")
        settings = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
    assert settings == [3, "delete"]
