"""Two actors in a forced interleaving: one pauses at a line of the library, while the other runs.

One of the two runs at a time, so the outcome follows from the line. An actor that finds a lock
waits, and the other one continues. Lines cover whole packages: new code meets the other actor
without a new test.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any, TypeAlias

_FRUITLESS_TURNS = 20
_PATIENCE_SECONDS = 60.0

Act: TypeAlias = Callable[[], Any]


@dataclass(frozen=True)
class Answer:
    """The end of an actor.

    Args:
        value: its return value; None if it raised.
        raised: the type and message of its error; empty if it returned.
    """

    value: Any = None
    raised: str = ""


@dataclass(frozen=True)
class Seam:
    """A point for an actor to pause.

    Args:
        ran: how many lines are run up to it, this one included; 0 where touches are counted.
        touched: how many times what is shared is touched up to it, this time included; 0 where lines
            are counted.
        asks: the store's statement there; empty at locks and lines.
    """

    line: str
    ran: int = 0
    touched: int = 0
    asks: str = ""

    def __str__(self) -> str:
        return f"{self.line} ({self.touched} touches, {self.ran} lines)"


class Interleaving:
    """A run of two actors, with the second begun where the first pauses.

    Args:
        rooms: the names of packages and modules with traced lines and known locks.

    Raises:
        AssertionError: from :meth:`run`, if both wait for each other.

    >>> def add(room):
    ...     before = room.total
    ...     room.total = before + 1
    >>> room, pair = SimpleNamespace(total=0), Interleaving(__name__)
    >>> _ = pair.run(lambda: add(room), lambda: add(room))
    >>> room.total
    2
    """

    def __init__(self, *rooms: str) -> None:
        self._rooms = rooms
        self._files = tuple(_folder(import_module(room)) for room in rooms)
        self._pid = os.getpid()
        self._actors: dict[int, _Actor] = {}

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Make the packages' locks show who waits; create objects with separate locks inside."""
        changed: list[tuple[Any, str, Any]] = []
        for module in self._modules():
            made = [value for value in vars(module).values() if not isinstance(value, ModuleType)]
            for holder in (module, *made):
                for name, value in list(getattr(holder, "__dict__", {}).items()):
                    if isinstance(value, type(threading.Lock())):
                        changed.append((holder, name, _Lock(self, value)))
                    elif value is threading and holder is module:
                        changed.append((holder, name, self._threading()))
        before = [(holder, name, getattr(holder, name)) for holder, name, _ in changed]
        for each in changed:
            setattr(*each)
        try:
            yield
        finally:
            for each in before:
                setattr(*each)

    def seams(self, act: Act) -> list[Seam]:
        """Return the points of a single actor's requests for a lock or a store, in order."""
        touches = enumerate(self._alone(act).touches_made, 1)
        return [Seam(line, touched=place, asks=asks) for place, (line, asks) in touches]

    def lines(self, act: Act) -> list[Seam]:
        """Return each line of the packages that an actor runs, the first and the last time."""
        ran = [Seam(line, place) for place, line in enumerate(self._alone(act).lines, 1)]
        first = {seam.line: seam for seam in reversed(ran)}
        last = {seam.line: seam for seam in ran}
        return sorted({*first.values(), *last.values()}, key=lambda seam: seam.ran)

    def _alone(self, act: Act) -> _Actor:
        """Run an actor and record every line."""
        actor = _Actor(act, self._files)
        self._actors = {}
        actor.goes_on(self._actors)
        assert actor.done, f"an actor that is alone waits, at {actor.lines[-1:]}"
        return actor

    def run(self, first: Act, second: Act, at: Seam | None = None) -> tuple[Answer, Answer]:
        """Run two actors: the first up to a seam, then the second as far as it gets, then both.

        Args:
            at: the seam; None to run the first one whole before the second begins.
        """
        lined = at is not None and at.ran > 0
        one, two = _Actor(first, self._files if lined else (), at), _Actor(second)
        self._actors = {}
        one.goes_on(self._actors)
        fruitless = 0
        while not (one.done and two.done):
            before = one.touched + two.touched
            for actor in (two, one):
                if not actor.done:
                    actor.goes_on(self._actors)
            rests = not (one.done or two.done) and one.touched + two.touched == before
            fruitless = fruitless + 1 if rests else 0
            assert fruitless < _FRUITLESS_TURNS, f"both wait for each other, after a pause at {at}"
        return one.answer, two.answer

    def touch(self, asks: str = "") -> None:
        """Record that the running actor is about to touch shared state, and its statement."""
        if (actor := self._mine()) is not None:
            actor.touches(asks)

    def wait(self) -> bool:
        """Let the other actor continue; False if no actor runs, so no one can wait."""
        if (actor := self._mine()) is None:
            return False
        actor.pauses()
        return True

    def _mine(self) -> _Actor | None:
        """Return the actor of the current thread; a forked process has none."""
        here = os.getpid() == self._pid
        return self._actors.get(threading.get_ident()) if here else None

    def _modules(self) -> list[ModuleType]:
        return [
            module
            for name, module in list(sys.modules.items())
            if any(name == room or name.startswith(f"{room}.") for room in self._rooms)
        ]

    def _threading(self) -> SimpleNamespace:
        """Return the library of threads with locks that show who waits."""
        made = SimpleNamespace(**vars(threading))
        made.Lock = lambda: _Lock(self, threading.Lock())
        made.RLock = lambda: _Lock(self, threading.RLock())
        return made


class _Actor:
    """One of two, in a separate thread; it runs on request and reports its pauses."""

    def __init__(self, act: Act, files: tuple[str, ...] = (), at: Seam | None = None) -> None:
        self._act, self._files = act, files
        self._stop = Seam("") if at is None else at
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self.lines: list[str] = []
        self.touches_made: list[tuple[str, str]] = []
        self.touched = 0
        self.done = False
        self.answer = Answer()

    def goes_on(self, actors: dict[int, _Actor]) -> None:
        """Let the actor run until it pauses, waits or is done."""
        if self._thread.ident is None:
            self._thread.start()
        assert self._thread.ident is not None
        actors[self._thread.ident] = self
        self._go.release()
        ended = self._back.acquire(timeout=_PATIENCE_SECONDS)
        assert ended, "an actor waits for something that no test knows to be held"

    def pauses(self) -> None:
        """Pause, and return when it may continue."""
        self._back.release()
        self._go.acquire()

    def touches(self, asks: str) -> None:
        """Count an access to shared state, and pause before the selected one."""
        self.touched += 1
        self.touches_made.append((self.lines[-1] if self.lines else "", asks))
        if self.touched == self._stop.touched:
            self.pauses()

    def _live(self) -> None:
        self._go.acquire()
        if self._files:
            sys.settrace(self._called)
        try:
            self.answer = Answer(self._act())
        except BaseException as error:
            self.answer = Answer(raised=f"{type(error).__name__}: {error}")
        finally:
            sys.settrace(None)
            self.done = True
            self._back.release()

    def _called(self, frame: FrameType, event: str, value: Any) -> Any:
        return self._lined if frame.f_code.co_filename.startswith(self._files) else None

    def _lined(self, frame: FrameType, event: str, value: Any) -> Any:
        if event == "line":
            self.lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
            if len(self.lines) == self._stop.ran:
                # The following lines are not traced, because tracing takes as long as they do.
                sys.settrace(None)
                self.pauses()
        return self._lined


class _Lock:
    """A lock that reports waiting actors."""

    def __init__(self, pair: Interleaving, lock: Any) -> None:
        self._pair, self._lock = pair, lock

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._pair.touch()
        while not self._lock.acquire(blocking=False):
            if not blocking or not self._pair.wait():
                return bool(self._lock.acquire(blocking, timeout))
        return True

    def release(self) -> None:
        self._pair.touch()
        self._lock.release()

    def locked(self) -> bool:
        return bool(self._lock.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _folder(module: ModuleType) -> str:
    """Return the prefix of the file names of a package or a module."""
    file = str(module.__file__)
    return file.removesuffix("__init__.py")
