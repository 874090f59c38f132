"""A process that makes steps of one library when it is asked to, and says how long each took."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any


def serve(methods: Mapping[str, Callable[[str, str], Callable[[], Any]]]) -> None:
    """Answer lines of ``[network, block, method]`` with seconds of CPU time, or why there are none.

    Args:
        methods: by name, what makes a step from the name of a network and the size of blocks.
    """
    held: tuple[tuple[str, ...], Callable[[], Any]] | None = None
    for line in sys.stdin:
        name, block, method = json.loads(line)
        try:
            if held is None or held[0] != (name, block, method):
                held = ((name, block, method), methods[method](name, block))
                held[1]()
            began = time.process_time()
            held[1]()
            answer: Any = time.process_time() - began
        except Exception as error:
            answer = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        print(json.dumps(answer), flush=True)
