"""A process of one library, which runs work on request and reports its cost.

This file runs in the environments of all peers, so it needs only the standard library.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

#: Prepared work; its result is reported if JSON can represent it.
Step = Callable[[], Any]
MB = 1024


def serve(methods: Mapping[str, Callable[..., Step]]) -> None:
    """Answer lines of ``[method, *arguments]`` with cost and result of one run.

    Imports and caches of a library's first use are not its work: a method is prepared and run once
    on request, and each answer describes a later run. An answer has seconds of processor time (of
    this process and its children), of the clock, the megabytes that the first run added to the peak
    memory of this process, and the value; or why there is none.

    Args:
        methods: by name, a function that prepares a step from the arguments.
    """
    held: tuple[list[Any], Step, float] | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if held is None or held[0] != asked:
                held = (asked, *_prepared(methods[asked[0]](*asked[1:])))
            answer = {**_timed(held[1]), "memory": held[2]}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        print(json.dumps(answer), file=ANSWERS, flush=True)


# Output printed by libraries is not an answer.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def _prepared(step: Step) -> tuple[Step, float]:
    """The step after its first run, and the megabytes that this added to the peak."""
    before = _peak()
    step()
    return step, _peak() - before


def _peak() -> float:
    """Peak memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MB


def _timed(step: Step) -> dict[str, Any]:
    """One run of a step: its cost and its result."""
    processor, clock = _processor(), time.perf_counter()
    value = step()
    found = {"seconds": _processor() - processor, "clock": time.perf_counter() - clock}
    return found | {"value": value if isinstance(value, dict | float) else None}


def _processor() -> float:
    """Seconds of processor time of this process and of all that it started and that still run."""
    return time.process_time() + sum(map(_ticks, _children(os.getpid())))


def _children(process: int) -> list[int]:
    """The children of a process, and their children."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *_children(child)]
    return found


def _ticks(process: int) -> float:
    """Seconds of processor time of another process, ended children included."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
