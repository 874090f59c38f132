"""Journal of a run: a file with a dot per step, written before noise is drawn.

The journal also counts steps lost in a crash. A process that resumes from a checkpoint therefore
knows how many steps may have been seen.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from dpgrain._files import flush_to_disk
from dpgrain.errors import DataError, ParameterError

_FIRST = "Steps of the run {run}, one dot for each, before its noise is drawn.\n"
# Line with a hash that identifies the records of the run; only the checkpoint has its key.
_PEOPLE = "Its records: {people}\n"
# Readable by the owner only: with a checkpoint, the journal confirms a guess of all records.
_MODE = 0o600


class Journal:
    """Journal of one run, shared by all processes that resume from its checkpoints."""

    def __init__(self, path: Path, run: str, people: str = "") -> None:
        self.path, self.run = path, run
        self._file = _opened(path)
        weakref.finalize(self, os.close, self._file)
        first = _first_line(self._file, path, run)
        second = _PEOPLE.format(people=people).encode()
        if os.pread(self._file, len(second), len(first)) != second:
            raise records_changed()
        self._before, self._known = len(first) + len(second), 0

    @staticmethod
    def path_for(checkpoint: Path, run: str) -> Path:
        """Return the path of the journal of a run, in the folder of its checkpoints."""
        return checkpoint.parent.resolve() / f"{run}.steps"

    @staticmethod
    def check(path: Path, run: str) -> None:
        """Reject a file that is not the journal of this run, regardless of records."""
        file = _opened(path)
        try:
            _first_line(file, path, run)
        finally:
            os.close(file)

    @staticmethod
    def create(path: Path, run: str, steps_started: int, people: str = "") -> Journal:
        """Create the journal of a run durably."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write((_FIRST.format(run=run) + _PEOPLE.format(people=people)).encode())
                file.write(b"." * steps_started)
            flush_to_disk(path)
            flush_to_disk(path.parent)
        except OSError as error:
            raise _unwritable(path) from error
        return Journal(path, run, people)

    @property
    def steps_started(self) -> int:
        """Number of steps begun by all processes; never decreases in a truncated file."""
        self._known = max(self._known, os.fstat(self._file).st_size - self._before)
        return self._known

    def note(self, steps: int = 1) -> int:
        """Record begun steps durably, and return their total number.

        If it raises DataError, no noise may be drawn.
        """
        self._known = self.steps_started + steps
        try:
            written = os.write(self._file, b"." * steps)
            os.fsync(self._file)
        except OSError as error:
            raise _unwritable(self.path) from error
        if written < steps:
            raise _unwritable(self.path)
        return self.steps_started


def _opened(path: Path) -> int:
    """Open a journal for reading and appending, and return the file descriptor."""
    try:
        # Appends of several processes are ordered, and a missing file is not created.
        return os.open(path, os.O_RDWR | os.O_APPEND)
    except OSError as error:
        raise DataError(
            f"the journal {str(path)!r} of the run cannot be opened, so the number of steps after "
            "the checkpoint is unknown; put the journal next to the checkpoint, or train again."
        ) from error


def _first_line(file: int, path: Path, run: str) -> bytes:
    """Return the first line that the journal of this run must have."""
    first = _FIRST.format(run=run).encode()
    if os.pread(file, len(first), 0) != first:
        raise DataError(
            f"{str(path)!r} is not the journal of the run {run}, so the number of steps after the "
            "checkpoint is unknown; train again."
        )
    return first


def records_changed() -> ParameterError:
    """Return the error about records that differ from the original ones of a run."""
    return ParameterError(
        "users, elements and the number of records must be the same as when the run began, in "
        "the same order, because a user with other blocks would count twice; pass the same, or "
        "train again.",
        name="users",
    )


def _unwritable(path: Path) -> DataError:
    return DataError(
        f"the journal {str(path)!r} cannot be written, and every step requires it; check the "
        "folder, its permissions and free space, and resume from the last checkpoint."
    )
