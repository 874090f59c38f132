"""The console for results: where standard output takes no more, one sentence says so."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

from rich.console import Console

from dpgrain.cli.spelling import options
from dpgrain.errors import DataError


class Results(Console):
    """A console that raises this library's error where what it prints cannot be written."""

    def print(self, *objects: Any, **how: Any) -> None:
        """Print, as rich does.

        Raises:
            DataError: if standard output is full, or nobody reads it any more.
        """
        try:
            super().print(*objects, **how)
        except OSError as error:
            # What waits to be written would fail once more when the process ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            raise DataError(_lost(error)) from error

    def on_broken_pipe(self) -> None:
        """Raise what ended the writing; rich would end the process without a word."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _lost(error: OSError) -> str:
    """Say what is lost, and how the command that runs writes it to a file."""
    known = options.get({})
    counts = ", and the published results still count" if "ledger" in known else ""
    file = f"; {known['output']} writes it to a file" if "output" in known else ""
    full = f"Standard output cannot be written ({error.strerror})"
    return f"{full}: the output not printed is lost{counts}{file}."
