"""The journal counts steps before their noise is drawn, in every process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.refusals import refuses
from tests.torch import library

# isort: split
from dpgrain.errors import DataError
from dpgrain.torch.journal import Journal

assert library


def test_every_reader_counts_the_same_steps(tmp_path: Path) -> None:
    place = Journal.path_for(tmp_path / "last.pt", "7f3a")
    one = Journal.create(place, "7f3a", 2)
    other = Journal(place, "7f3a")
    assert [one.note(), other.note(), one.note()] == [3, 4, 5]
    assert one.steps_started == other.steps_started == Journal(place, "7f3a").steps_started == 5
    assert place.parent == tmp_path
    assert place.read_text().endswith("\n.....")
    assert place.stat().st_mode & 0o777 == 0o600


def test_missing_journal_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="put the journal next to the checkpoint"):
        Journal(tmp_path / "7f3a.steps", "7f3a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "Steps of the run 7f3", "Steps of the run 11, one dot for"])
def test_another_file_is_rejected(tmp_path: Path, text: str) -> None:
    place = tmp_path / "7f3a.steps"
    place.write_text(text)
    with pytest.raises(DataError, match="is not the journal of the run 7f3a"):
        Journal(place, "7f3a")


def test_journal_of_other_records_is_rejected(tmp_path: Path) -> None:
    place = tmp_path / "7f3a.steps"
    Journal.create(place, "7f3a", 3, "aa" * 32).note()
    assert Journal(place, "7f3a", "aa" * 32).steps_started == 4
    for other in ("", "aa" * 31, "ab" * 32):
        with refuses("users", "the same"):
            Journal(place, "7f3a", other)


def test_journal_is_never_recreated(tmp_path: Path) -> None:
    place = tmp_path / "7f3a.steps"
    Journal.create(place, "7f3a", 0).note()
    with pytest.raises(DataError, match="cannot be written"):
        Journal.create(place, "7f3a", 0)
    assert Journal(place, "7f3a").steps_started == 1


def test_step_is_on_disk_when_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.create(tmp_path / "7f3a.steps", "7f3a", 0)
    sizes, real = [], os.fsync

    def synced(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    before = journal.path.stat().st_size
    journal.note()
    assert sizes == [before + 1]


@pytest.mark.parametrize("broken", ["write", "fsync"])
def test_failing_disk_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    journal = Journal.create(tmp_path / "7f3a.steps", "7f3a", 0)

    def fail(*_: Any) -> NoReturn:
        raise OSError("no space")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(DataError, match="every step requires it"):
        journal.note()


def test_nearly_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.create(tmp_path / "7f3a.steps", "7f3a", 0)
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, dots: real(file, dots[:3]))
        with pytest.raises(DataError, match="every step requires it"):
            journal.note(8)
    # A process that has tried it counts all of them.
    assert journal.steps_started == 8
    assert Journal(journal.path, "7f3a").steps_started == 3


def test_begun_steps_never_decrease(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "7f3a.steps", "7f3a", 0)
    assert journal.note(5) == 5
    os.truncate(journal.path, journal.path.stat().st_size - 4)
    assert journal.steps_started == 5
    assert journal.note() == 6
