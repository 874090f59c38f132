"""A private step of a network by each library, compared with PyTorch's plain step on the same rows.

The problems come from ``torch_problems.py``. Each library waits in a separate process with one
thread; in every window each makes one step in turn. Figures are medians over windows of processor
time divided by PyTorch's plain step in the same window, and the megabytes that the first step adds
to the peak memory of its process. The allocator retains memory that a step frees
(``GLIBC_TUNABLES``), which favours the libraries with most allocations.

- *Opacus*: its gradients of records, added up by block and clipped.
- *Opacus, ghost clipping*: **of records**, a weaker guarantee: it has no blocks.
- *vmap*, *Opake*, *jax_privacy*: one gradient for each block; blocks of each size separately.
- *JAX, not private*: JAX's own step.
"""

from __future__ import annotations

import json
import statistics
from contextlib import ExitStack
from typing import Any

from .environments import asked, serving

#: The columns of the table, with the environment and the method of each.
METHODS = {
    "PyTorch, not private": ("dpgrain_torch", "plain"),
    "dpgrain": ("dpgrain_torch", "ours"),
    "PyTorch, vmap": ("dpgrain_torch", "vmap"),
    "Opacus": ("opacus", "hooks"),
    "Opacus, ghost clipping": ("opacus", "ghost"),
    "Opake": ("opake", "opake"),
    "jax_privacy": ("jax_privacy", "jax_privacy"),
    "JAX, not private": ("jax_privacy", "jax plain"),
}
PLAIN = next(iter(METHODS))
BLOCKS = ("1", "5", "20", "ragged")
KEPT = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296"


def run(runs: int) -> dict[str, Any]:
    """The convolutional network with blocks of each size."""
    found = {}
    for block in BLOCKS:
        found[block] = _by_all("cnn", block, min(runs, 5))
        print(block, json.dumps(found[block]), flush=True)
    return found


def _by_all(name: str, block: str, windows: int) -> dict[str, Any]:
    """Ratios to the plain step and megabytes of each method, or why there are none."""
    told: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
    with ExitStack() as opened:
        running = {
            method: opened.enter_context(serving(environment, GLIBC_TUNABLES=KEPT))
            for method, (environment, _) in METHODS.items()
        }
        for _ in range(windows):
            for method, (_, word) in METHODS.items():
                told[method].append(asked(running[method], word, name, block))
    return {method: _figures(answers, told[PLAIN]) for method, answers in told.items()}


def _figures(answers: list[dict[str, Any]], plain: list[dict[str, Any]]) -> dict[str, Any]:
    failed = [answer["failed"] for answer in answers if "failed" in answer]
    if failed:
        return {"failed": failed[0]}
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(answers, plain, strict=True)]
    return {"ratio": statistics.median(ratios), "megabytes": answers[0]["memory"]}
