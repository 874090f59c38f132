"""A progress line for work of more than two seconds; it is not logged.

It shows stages, their number and their steps. The number of rows read so far is private and is not
shown.
"""

from __future__ import annotations

import sys
import threading
import time
from contextvars import ContextVar, Token
from types import TracebackType

from dpgrain import _validate
from dpgrain._lazy_import import is_installed

_PATIENCE_SECONDS, _REDRAW_SECONDS = 2.0, 0.1

_in_force: ContextVar[Progress | None] = ContextVar("_in_force", default=None)


class Progress:
    """A line of named stages, shown after two seconds on a terminal or in a notebook.

    Nested work is shown as a step of the outer line.
    """

    def __init__(self, stages: int, show: bool | None = None) -> None:
        if show is not None:
            _validate.boolean(progress=show)
        self._stages, self._done, self._text, self._step = stages, 0, "", ""
        self._wanted = sys.stderr.isatty() or _in_notebook() if show is None else show
        self._patience = _PATIENCE_SECONDS if show is None else 0.0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._token: Token[Progress | None] | None = None
        self._outer: Progress | None = None

    def __enter__(self) -> Progress:
        self._outer = _in_force.get()
        self._token = _in_force.set(self)
        if self._wanted and self._outer is None:
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token is not None:
            _in_force.reset(self._token)
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def stage(self, text: str) -> None:
        """Start a stage, and end the previous one."""
        self._done += bool(self._text)
        self._text = text
        self.step("")

    def step(self, text: str) -> None:
        """Start a step of the stage."""
        self._step = text
        if self._outer is not None:
            self._outer.step(self.text)

    @property
    def turn(self) -> str:
        """Number of the next stage and of all stages."""
        return f"{self._done + bool(self._text) + 1:,} of {self._stages:,}"

    @property
    def text(self) -> str:
        """Current stage and step."""
        return f"{self._text}: {self._step}" if self._step else self._text

    def _draw(self) -> None:
        if self._closed.wait(self._patience):
            return
        if _in_notebook() or not is_installed("rich"):
            self._write_over()
        else:
            self._draw_bar()

    def _write_over(self) -> None:
        """Rewrite one line, without widgets."""
        began, length = time.monotonic() - self._patience, 0
        while not self._closed.wait(_REDRAW_SECONDS):
            line = f"{self.text} ({time.monotonic() - began:.0f} s)"
            print(f"\r{line:{length}}", end="", file=sys.stderr, flush=True)
            length = len(line)
        print(f"\r{'':{length}}\r", end="", file=sys.stderr, flush=True)

    def _draw_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(self.text, total=self._stages)
            while not self._closed.wait(_REDRAW_SECONDS):
                bar.update(task, completed=self._done, description=self.text)


def step(text: str) -> None:
    """Show the current step on the progress line, if there is one."""
    progress = _in_force.get()
    if progress is not None:
        progress.step(text)


def _in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_shell is not None and type(get_shell()).__name__ == "ZMQInteractiveShell"
