"""Files are written completely or not at all, and never over a command's input."""

from __future__ import annotations

import errno
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests import killed
from tests.refusals import refuses

from dpgrain import _files
from dpgrain.errors import DataError, ParameterError, RefusedError


def test_a_file_is_replaced_only_if_all_went_well(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    path.write_text("old")

    def fail_halfway() -> None:
        with _files.atomic_write(path) as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with _files.atomic_write(path) as part:
        part.write_text("new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o644


OLD, NEW = "1.0", "2.0"


def pair(path: Path, numbers: str) -> None:
    """Write numbers with a guarantee that names them."""
    with _files.atomic_write(path, promise={"about": numbers}) as part:
        part.write_text(numbers)


def alone(path: Path, numbers: str) -> None:
    """Write numbers without a guarantee."""
    with _files.atomic_write(path) as part:
        part.write_text(numbers)


def check_pair(path: Path) -> str:
    """Check that no guarantee is next to other numbers; return the contents."""
    beside = _files.guarantee_path(path)
    numbers = path.read_text() if path.exists() else ""
    promised = ""
    if beside.exists():
        promised = json.loads(beside.read_text())["about"]
    if numbers and promised:
        assert _files.read_guarantee(path) == {"about": numbers}
    return f"{numbers} {promised}".strip()


@pytest.mark.slow
@pytest.mark.parametrize("write", [pair, alone])
@pytest.mark.parametrize("before", [pair, alone, None])
def test_killed_writer_leaves_no_guarantee_with_other_numbers(
    before: Callable[[Path, str], None] | None, write: Callable[[Path, str], None], tmp_path: Path
) -> None:
    """Killed before it opens, removes or renames a file, each in its turn."""
    seen = set()
    for number in itertools.count():
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "pages.csv"
        if before is not None:
            before(path, OLD)
        if killed.at(number, partial(write, path, NEW)):
            seen.add(check_pair(path))
        else:
            break
    assert number > 3
    assert check_pair(path) == (f"{NEW} {NEW}" if write is pair else NEW)
    # The old files remain until all of their replacements are written.
    assert ("" if before is None else f"{OLD} {OLD}" if before is pair else OLD) in seen


def test_full_disk_is_named_with_the_needed_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DataError, match=r"is full; free 4 MiB\.$"):
        _files.check_writable(tmp_path / "pages.csv")


def test_delayed_replacements_are_ordered_and_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{number}.csv" for number in range(3)]
    for path in paths:
        pair(path, OLD)
    made, replace = [], _files._replace

    def recorded(path: Path, *new: Any) -> None:
        made.append(path)
        replace(path, *new)

    monkeypatch.setattr(_files, "_replace", recorded)

    def write_all() -> None:
        with _files.replaced_together():
            for path in paths:
                pair(path, NEW)
            assert {check_pair(path) for path in paths} == {f"{OLD} {OLD}"}
            next(tmp_path.glob(".1.csv.*.csv")).unlink()

    with pytest.raises(DataError, match=r"1\.csv'? cannot be written"):
        write_all()
    assert made == paths
    assert [check_pair(path) for path in paths] == [f"{NEW} {NEW}", f"{OLD} {OLD}", f"{NEW} {NEW}"]
    assert len([*tmp_path.iterdir()]) == 6


@pytest.mark.slow
def test_full_disk_preserves_existing_numbers_and_guarantee(tmp_path: Path) -> None:
    path = tmp_path / "pages.csv"
    pair(path, OLD)
    code = (
        "import resource, sys; from pathlib import Path; from tests import test_files; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
        "test_files.pair(Path(sys.argv[1]), sys.argv[2])"
    )
    # The numbers do not fit in, or they do and the guarantee does not.
    for numbers in ("3" * 200, "4" * 90):
        command = [sys.executable, "-c", code, str(path), numbers]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "cannot be written" in done.stderr
        assert check_pair(path) == f"{OLD} {OLD}"
        assert len(list(tmp_path.iterdir())) == 2


def test_guarantee_of_other_numbers_is_rejected(tmp_path: Path) -> None:
    path, other = tmp_path / "pages.csv", tmp_path / "other.csv"
    pair(path, OLD)
    pair(other, NEW)
    path.write_text(NEW)
    with pytest.raises(DataError, match="has a guarantee file for other numbers"):
        _files.read_guarantee(path)
    _files.guarantee_path(other).rename(_files.guarantee_path(path))
    assert _files.read_guarantee(path) == {"about": NEW}
    assert _files.read_guarantee(other) is None
    for broken in ("", "[]", '"text"'):
        _files.guarantee_path(path).write_text(broken)
        with pytest.raises(DataError, match="cannot be read"):
            _files.read_guarantee(path)


def test_outputs_differ_from_inputs_and_each_other(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    _files.check_outputs([one, None, two], [tmp_path / "rows.csv", None])
    for outputs, inputs in ([one, one], []), ([tmp_path / "folder" / ".." / "one"], [one]):
        with pytest.raises(ParameterError, match="already used"):
            _files.check_outputs(outputs, inputs)
    with pytest.raises(DataError, match="cannot be written"):
        _files.check_outputs([tmp_path / "missing" / "one"], [])
    assert list(tmp_path.iterdir()) == []


def test_file_is_identified_under_any_name(tmp_path: Path) -> None:
    one, two, linked = (tmp_path / name for name in ("one", "two", "linked"))
    for path in (one, two):
        path.write_text("as long")
    linked.hardlink_to(one)
    _files.check_outputs([two], [one])
    with pytest.raises(ParameterError, match="already used"):
        _files.check_outputs([linked], [one])


def test_named_folder_of_tables_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPGRAIN_DATA", raising=False)
    with pytest.raises(DataError, match=r"folder that contains words\.csv"):
        _files.data_folder("words.csv")
    monkeypatch.setenv("DPGRAIN_DATA", str(tmp_path))
    with refuses("folder", "lacks", kind=DataError):
        _files.data_folder("words.csv")
    (tmp_path / "words.csv").touch()
    assert _files.data_folder("words.csv") == tmp_path


def test_special_files_and_invalid_names_are_rejected(tmp_path: Path) -> None:
    pipe, name = tmp_path / "pipe.csv", tmp_path / "\udcff.csv"
    os.mkfifo(pipe)
    for path, reason in ((pipe, "not a regular file"), (name, "choose a name in UTF-8")):
        with pytest.raises(DataError, match=reason):
            _files.check_writable(path)
    assert not _files.exists(tmp_path / ("x" * 5000))


def test_a_locked_file_rejects_tests_and_runs(tmp_path: Path) -> None:
    with _files.reserved_space(tmp_path, "r.toml", 0):
        for uses in (
            partial(_files.reject_locked, tmp_path, "r.toml"),
            _files.reserved_space(tmp_path, "r.toml", 0).__enter__,
        ):
            with pytest.raises(RefusedError, match="another process is publishing"):
                uses()
    _files.reject_locked(tmp_path, "r.toml")
    assert list(tmp_path.iterdir()) == []


def test_a_test_of_the_lock_does_not_reject_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / ".r.toml.lock"
    lock.touch()
    held, released = threading.Event(), threading.Event()
    normal = _files.lock

    def slow(handle: int, **options: bool) -> bool | None:
        result = normal(handle, **options)
        if threading.current_thread() is dry_run:
            held.set()
            released.wait(0.2)
        return result

    monkeypatch.setattr(_files, "lock", slow)
    dry_run = threading.Thread(target=_files.reject_locked, args=(tmp_path, "r.toml"))
    dry_run.start()
    held.wait()
    with _files.reserved_space(tmp_path, "r.toml", 0):
        assert lock.exists()
    dry_run.join()


def test_run_waits_briefly_for_a_suspended_test_of_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    normal, attempts = _files.lock, []

    def counted(handle: int, **options: bool) -> bool | None:
        attempts.append(handle)
        return normal(handle, **options)

    monkeypatch.setattr(_files, "lock", counted)
    monkeypatch.setattr(_files, "_PATIENCE_SECONDS", 0.2)
    lock = tmp_path / ".r.toml.lock"
    lock.touch()
    with lock.open("rb") as tested:
        assert normal(tested.fileno(), shared=True)
        with pytest.raises(RefusedError, match="another process is publishing"):
            _files.reserved_space(tmp_path, "r.toml", 0).__enter__()
    # Two attempts per pause of 10 ms.
    assert len(attempts) < 50


def test_an_unusable_lock_is_an_error_about_the_file(tmp_path: Path) -> None:
    (tmp_path / ".r.toml.lock").mkdir()
    for uses in (
        partial(_files.reject_locked, tmp_path, "r.toml"),
        _files.reserved_space(tmp_path, "r.toml", 0).__enter__,
    ):
        with pytest.raises(DataError, match=r"\.r\.toml\.lock"):
            uses()


def test_a_replaced_folder_hides_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with _files.reserved_space(folder, "r.toml", 10):
        (folder / ".r.toml.lock").unlink()
        folder.rmdir()
        folder.write_text("")
    assert folder.read_text() == ""
