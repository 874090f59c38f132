"""Private steps of other libraries beside ours, each in an environment of its own.

Run ``python benchmarks/torch_peers.py --make`` once, which installs them into ``build/peers`` (some
gigabytes), and then ``python benchmarks/torch_peers.py [--windows 5] [--only WORDS] [--blocks 1 5]``.

The problems are those of ``torch_step.py``. Each library waits in a process of its own with one thread;
in every window each makes one step in turn. Figures are medians over windows of CPU time divided by
that of PyTorch's plain step in the same window. Memory that a step frees is kept by the allocator
(``GLIBC_TUNABLES``), which favours the libraries that take most of it.

- *hooks*: Opacus' gradients of records, added up by block and clipped.
- *ghost*: Opacus' ghost clipping **of records**, which is less than is asked for: it knows no blocks.
- *vmap*, *opake*, *jax_privacy*: one gradient for each block; blocks of each size by themselves.
- *jax plain*: JAX's own step without privacy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / "build" / "peers"
#: What each environment installs; None is the one that runs this.
NEEDS: dict[str, tuple[str, ...] | None] = {
    "dpgrain": None,
    "opacus": ("torch==2.13.0", "opacus==1.6.0"),
    "opake": ("torch==2.13.0", "opake==0.16.1"),
    "jax_privacy": ("jax-privacy==2.0.0", "jax==0.10.2"),
}
#: The columns of the table, with the environment of each.
METHODS = {
    "plain": "dpgrain",
    "ours": "dpgrain",
    "vmap": "dpgrain",
    "hooks": "opacus",
    "ghost": "opacus",
    "opake": "opake",
    "jax_privacy": "jax_privacy",
    "jax plain": "jax_privacy",
}
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296",
}


def python_of(environment: str) -> str:
    """The interpreter of an environment."""
    if NEEDS[environment] is None:
        return sys.executable
    return str(ENVIRONMENTS / environment / "bin" / "python")


def make() -> None:
    """Install each library into an environment of its own."""
    for environment, needs in NEEDS.items():
        if needs is not None:
            venv.create(ENVIRONMENTS / environment, with_pip=True)
            command = [python_of(environment), "-m", "pip", "install", "--quiet", *needs]
            subprocess.run(command, check=True)


@contextmanager
def serving(environment: str) -> Iterator[Any]:
    """A process of one library, which is sent lines and answers with lines."""
    with subprocess.Popen(
        [python_of(environment), str(HERE / "peers" / f"of_{environment}.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **ONE_THREAD},
    ) as process:
        yield process
        process.communicate()


def asked(process: Any, *words: str) -> float | str:
    """The seconds of one step, or why there are none."""
    process.stdin.write(json.dumps(words) + "\n")
    process.stdin.flush()
    answer: float | str = json.loads(process.stdout.readline() or '"the process ended"')
    return answer


def row(name: str, block: str, windows: int, methods: Sequence[str]) -> str:
    """One line: medians of ratios to the plain step, and what failed."""
    ratios: dict[str, list[float]] = {method: [] for method in methods}
    failed: dict[str, str] = {}
    with ExitStack() as opened:
        running = {m: opened.enter_context(serving(METHODS[m])) for m in methods}
        for _ in range(windows):
            taken = {m: asked(running[m], name, block, m) for m in methods if m not in failed}
            failed |= {m: answer for m, answer in taken.items() if isinstance(answer, str)}
            plain = taken["plain"]
            for method, seconds in taken.items():
                if isinstance(seconds, float) and isinstance(plain, float):
                    ratios[method].append(seconds / plain)
    figures = (f"{statistics.median(of):12.2f}" if of else f"{'–':>12}" for of in ratios.values())
    reasons = "".join(f"\n  {method}: {why}" for method, why in failed.items())
    return f"{name:12}{block:>7}" + "".join(figures) + reasons


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line for each network and size of blocks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--make", action="store_true", help="install the libraries")
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--only", choices=("cnn", "transformer"))
    parser.add_argument("--blocks", nargs="+", default=["1", "5", "20", "ragged"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args(arguments)
    if options.make:
        make()
        return
    print(f"{'network':12}{'block':>7}" + "".join(f"{method:>12}" for method in options.methods))
    for name in ("cnn", "transformer"):
        if options.only in (None, name):
            for block in options.blocks:
                print(row(name, block, options.windows, options.methods), flush=True)


if __name__ == "__main__":
    main()
