"""A bar on the terminal that shows the progress of work of more than two seconds, and keeps no record.

It names stages and counts them. The number of rows that were read is private and is not shown.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType

_PATIENCE_SECONDS = 2.0


class Progress:
    """A bar of named stages that appears after two seconds, if standard error is a terminal.

    Args:
        stages: the number of stages that there will be.
        show: False never shows the bar, and True shows it at once; None shows it after two seconds if
            standard error is a terminal.

    >>> with Progress(1, show=False) as progress:
    ...     progress.stage("Adding up")
    """

    def __init__(self, stages: int, show: bool | None = None) -> None:
        self._stages, self._done, self._text = stages, 0, ""
        self._wanted = sys.stderr.isatty() if show is None else show
        self._patience = _PATIENCE_SECONDS if show is None else 0.0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if self._wanted:
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def stage(self, text: str) -> None:
        """Begin a stage, which ends the one before."""
        self._done += bool(self._text)
        self._text = text

    def _draw(self) -> None:
        if self._closed.wait(self._patience):
            return
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(self._text, total=self._stages)
            while not self._closed.wait(0.1):
                bar.update(task, completed=self._done, description=self._text)
