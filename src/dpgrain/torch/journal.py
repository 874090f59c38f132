"""The journal of a run: a file with a dot for each step, written before the step's noise is drawn.

Steps that a kill takes from the weights are in the file all the same, so that whoever goes on from a
checkpoint knows how many steps may have been seen.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from dpgrain._files import on_disk
from dpgrain.errors import DataError, ParameterError

_FIRST = "Steps of the run {run}, one dot for each, before its noise is drawn.\n"
# Line for the people whose records the run reads: a hash, whose key is in the checkpoint alone.
_PEOPLE = "Its records: {people}\n"
# The owner alone reads the file, since with a checkpoint it tests a guess of all records.
_MODE = 0o600


class Journal:
    """The journal of one run, for all processes that go on from its checkpoints.

    Args:
        path: the file.
        run: the id of the run.
        people: a keyed hash of the labels and blocks of all records.

    Raises:
        DataError: if the file is missing, or not the journal of this run.
        ParameterError: if it is the journal of a run of other records.
    """

    def __init__(self, path: Path, run: str, people: str = "") -> None:
        self.path, self.run = path, run
        self._file = _opened(path)
        weakref.finalize(self, os.close, self._file)
        first = _first_line(self._file, path, run)
        whose = _PEOPLE.format(people=people).encode()
        if os.pread(self._file, len(whose), len(first)) != whose:
            raise other_people()
        self._before, self._known = len(first) + len(whose), 0

    @staticmethod
    def beside(checkpoint: Path, run: str) -> Path:
        """Return the place of the journal of a run: in the folder of its checkpoints."""
        return checkpoint.parent.resolve() / f"{run}.steps"

    @staticmethod
    def check(path: Path, run: str) -> None:
        """Refuse a file that is not the journal of a run, whosever records the run reads.

        Args:
            path: the file.
            run: the id of the run.

        Raises:
            DataError: if the file is missing, or not the journal of this run.
        """
        file = _opened(path)
        try:
            _first_line(file, path, run)
        finally:
            os.close(file)

    @staticmethod
    def create(path: Path, run: str, begun: int, people: str = "") -> Journal:
        """Make the journal of a run, durably.

        Args:
            path: the file, which must not exist.
            run: the id of the run.
            begun: how many steps were begun by now.
            people: a keyed hash of the labels and blocks of all records.

        Raises:
            DataError: if the file cannot be written.

        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "7f3a.steps"
        >>> journal = Journal.create(place, "7f3a", 2)
        >>> journal.note(), Journal(place, "7f3a").begun
        (3, 3)
        """
        try:
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
            with os.fdopen(made, "wb") as file:
                file.write((_FIRST.format(run=run) + _PEOPLE.format(people=people)).encode())
                file.write(b"." * begun)
            on_disk(path)
            on_disk(path.parent)
        except OSError as error:
            raise _unwritable(path) from error
        return Journal(path, run, people)

    @property
    def begun(self) -> int:
        """The number of steps begun by now, in this process and in others.

        It never falls, also where the file was cut.
        """
        self._known = max(self._known, os.fstat(self._file).st_size - self._before)
        return self._known

    def note(self, steps: int = 1) -> int:
        """Note that steps are begun; when this returns, that is on the disk.

        Args:
            steps: how many of them.

        Returns:
            How many steps were begun by now, these included.

        Raises:
            DataError: if the file cannot be written; no noise may be drawn then.
        """
        self._known = self.begun + steps
        try:
            written = os.write(self._file, b"." * steps)
            os.fsync(self._file)
        except OSError as error:
            raise _unwritable(self.path) from error
        if written < steps:
            raise _unwritable(self.path)
        return self.begun


def _opened(path: Path) -> int:
    """Open a journal to read and to append, and return the number of the open file."""
    try:
        # What several processes append follows each other, and nothing is made that is missing.
        return os.open(path, os.O_RDWR | os.O_APPEND)
    except OSError as error:
        raise DataError(
            f"the journal {str(path)!r} of the run cannot be opened, so the number of steps after "
            "the checkpoint is unknown; put the journal next to the checkpoint, or train again."
        ) from error


def _first_line(file: int, path: Path, run: str) -> bytes:
    """Return the first line of the journal of a run, which the file must begin with."""
    first = _FIRST.format(run=run).encode()
    if os.pread(file, len(first), 0) != first:
        raise DataError(
            f"{str(path)!r} is not the journal of the run {run}, so the number of steps after the "
            "checkpoint is unknown; train again."
        )
    return first


def other_people() -> ParameterError:
    """Return the refusal of records with which a run did not begin."""
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
