"""A process that is killed at a change of files."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_CHANGES = ("open", "os.remove", "os.rename")


def at(number: int, work: Callable[[], Any]) -> bool:
    """Work in a process that is killed before change n; False if it ends normally."""
    child = os.fork()
    if child == 0:
        left = number

        def kill(event: str, words: Any) -> None:
            nonlocal left
            # Files opened for reading do not change anything.
            if event not in _CHANGES or (
                event == "open" and not words[2] & (os.O_WRONLY | os.O_RDWR)
            ):
                return
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        try:
            sys.addaudithook(kill)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)
