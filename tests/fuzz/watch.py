"""One call under watch: it ends in time, in a result or an error of the library, and quotes no row."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import signal
import struct
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from tests.conftest import shown

import dpgrain
from dpgrain.errors import DpgrainError

CANARY = "Kanarie7f3"
NUMBER = 86_420_975_313
_WRITTEN = (CANARY, str(NUMBER), f"{NUMBER:,}", f"{NUMBER / 1e10:.6f}", f"{NUMBER:.4e}")
_STORED = (
    *(each.encode() for each in _WRITTEN),
    struct.pack("<q", NUMBER),
    struct.pack("<d", NUMBER),
)
#: Seconds of the processor that one call may take; it may wait for this many times as long.
SECONDS, WAITS = 20.0, 6.0
# Characters of a line of an error, at most.
_LONGEST = 1000
# scikit-learn's warnings if features have names and the model has none, or vice versa.
_OF_NAMES = "X has feature names"
_PACKAGE = str(Path(dpgrain.__file__).parent)


class Hangs(BaseException):
    """A call has taken longer than it may; no handler of errors stops this."""


class OwnError(Exception):
    """The error of a function of the caller's, which may come through."""


class Fault(AssertionError):  # noqa: N818 - what is found is a fault of the library
    """A forbidden effect of a call; it names the place, and shows no input."""


@contextlib.contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """End what takes longer than it may, in the main thread.

    Args:
        seconds: of the processor, which others may use as well; a call that waits has longer.
    """

    def ring(signum: int, frame: FrameType | None) -> None:
        raise Hangs

    bells = {
        (signal.SIGPROF, signal.ITIMER_PROF): seconds,
        (signal.SIGALRM, signal.ITIMER_REAL): WAITS * seconds,
    }
    before = {number: signal.signal(number, ring) for number, _ in bells}
    for (_, timer), most in bells.items():
        signal.setitimer(timer, most)
    try:
        yield
    finally:
        for (number, timer), _ in bells.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def place_of(trace: TracebackType | None) -> str:
    """The last line of the library that an error came through."""
    frames = [f for f in traceback.extract_tb(trace) if f.filename.startswith(_PACKAGE)]
    if not frames:
        return "a line outside the library"
    last = frames[-1]
    return f"{Path(last.filename).relative_to(_PACKAGE)}:{last.lineno}"


def quotes(told: str | bytes) -> bool:
    """Whether contents of rows appear in a text, or in the bytes of a file."""
    if isinstance(told, bytes):
        return any(each in told for each in _STORED)
    return any(each in told for each in _WRITTEN)


def watched(act: Callable[[], Any], *, always: bool = False) -> Any:
    """Make a call, and return its result; None if the library raises.

    Args:
        always: True if no error is allowed.

    Raises:
        Fault: if the call raises anything but a one-sentence error of the library, emits a foreign
            warning, takes too long, or quotes a row.
    """
    said, log, result = io.StringIO(), io.StringIO(), None
    handler, logger = logging.StreamHandler(log), logging.getLogger()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    told = ""
    try:
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            warnings.filterwarnings("error", category=RuntimeWarning)
            with in_time(SECONDS):
                result = act()
    except Hangs as error:
        raise Fault(f"takes longer than {SECONDS:g} s at {place_of(error.__traceback__)}") from None
    except DpgrainError as error:
        if always:
            raise Fault(f"refuses at {place_of(error.__traceback__)}") from None
        if not _is_plain(str(error)):
            raise Fault(f"no plain sentence at {place_of(error.__traceback__)}") from error
        told = shown(error)
    except (KeyboardInterrupt, SystemExit):
        raise
    except OwnError:
        return None
    except BaseException as error:
        kind = type(error).__name__
        raise Fault(f"raises {kind} at {place_of(error.__traceback__)}") from error
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    foreign = [
        each
        for each in warned
        if not str(each.category.__module__).startswith("dpgrain")
        and not str(each.message).startswith(_OF_NAMES)
    ]
    if foreign:
        raise Fault(f"warns of {foreign[0].category.__name__} at {foreign[0].lineno}")
    everything = {
        "an error": told,
        "what is printed": said.getvalue(),
        "a log": log.getvalue(),
        "a warning": " ".join(str(w.message) for w in warned),
    }
    for what, text in everything.items():
        if quotes(text):
            raise Fault(f"quotes a row in {what}")
    return result


def _is_plain(said: str) -> bool:
    """Whether an error is one sentence of a few lines at most; a file's errors have one each."""
    return all(
        line.rstrip().endswith((".", "?", ":")) and len(line) <= _LONGEST
        for line in said.split("\n")
    ) and not re.search(r"Traceback|object at 0x", said)


def left_behind(folder: Path) -> list[str]:
    """The files below a folder, and environment variables, that contain a row."""
    held = [name for name, value in os.environ.items() if quotes(value)]
    files = [path for path in folder.rglob("*") if path.is_file() and quotes(path.read_bytes())]
    return held + [path.name for path in files]
