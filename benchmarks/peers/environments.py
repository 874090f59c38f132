"""Each library in a separate environment, with the version named on the page."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import time
import venv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / "build" / "peers"
MADE = ENVIRONMENTS / "made.json"
#: The packages of each environment. Pyarrow reads the table if a library has no reader.
NEEDS: dict[str, tuple[str, ...]] = {
    "dpgrain": ("--editable", "."),
    "opendp": ("opendp[polars]==0.16.0",),
    "pipeline_dp": ("pipeline-dp==0.3.1", "pyarrow==26.0.1"),
    "tumult": ("tmlt.analytics==0.21.0",),
    # pip's own choice, scikit-learn 1.9, lacks imports of 0.6.6.
    "diffprivlib": ("diffprivlib==0.6.6", "scikit-learn==1.7.2", "pyarrow==26.0.1"),
    "dp_accounting": ("dp-accounting==0.6.0",),
    "dpgrain_torch": ("--editable", ".[torch]", "torch==2.13.0"),
    "opacus": ("opacus==1.6.0", "torch==2.13.0"),
    "opake": ("opake==0.16.1", "torch==2.13.0"),
    "jax_privacy": ("jax-privacy==2.0.0", "jax==0.10.2"),
}
#: The packages with reported versions, by environment.
TOLD: dict[str, tuple[str, ...]] = {
    "dpgrain": ("dpgrain", "duckdb"),
    "opendp": ("opendp", "polars"),
    "pipeline_dp": ("pipeline-dp", "python-dp"),
    "tumult": ("tmlt.analytics", "tmlt.core", "pyspark"),
    "diffprivlib": ("diffprivlib", "scikit-learn"),
    "dp_accounting": ("dp-accounting",),
    "dpgrain_torch": ("dpgrain", "torch"),
    "opacus": ("opacus", "torch"),
    "opake": ("opake", "torch"),
    "jax_privacy": ("jax_privacy", "jax"),
}
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def python_of(environment: str) -> Path:
    """The interpreter of an environment."""
    return ENVIRONMENTS / environment / "bin" / "python"


def make(environments: Iterable[str]) -> None:
    """Rebuild environments, and record the cost of each: seconds, megabytes and versions."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    made = json.loads(MADE.read_text()) if MADE.exists() else {}
    for environment in environments:
        made[environment] = _made(environment)
        MADE.write_text(json.dumps(made, indent=1), encoding="utf-8")


def _made(environment: str) -> dict[str, Any]:
    """Make one environment; or why it cannot be had here."""
    folder = ENVIRONMENTS / environment
    if folder.exists():
        shutil.rmtree(folder)
    before, began = _of_children(), time.perf_counter()
    venv.create(folder, with_pip=True)
    done = _pip(environment, "install", "--quiet", *NEEDS[environment])
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    seconds, clock = _of_children() - before, time.perf_counter() - began
    listed = json.loads(_pip(environment, "list", "--format", "json").stdout)
    found = {package["name"].lower(): package["version"] for package in listed}
    return {
        "seconds": round(seconds, 1),
        "clock": round(clock, 1),
        "megabytes": round(_bytes(folder) / 2**20),
        "versions": {name: found[name.lower()] for name in TOLD[environment]},
    }


def _pip(environment: str, *words: str) -> Any:
    command = [str(python_of(environment)), "-m", "pip", *words]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=_own(), check=False
    )


def _own() -> dict[str, str]:
    """The variables of this process, without search paths of Python packages."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def _of_children() -> float:
    """Seconds of processor time of all processes that this one started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def serving(
    environment: str, *arguments: str, program: str = "", **variables: str
) -> Iterator[Any]:
    """A process of one library, which receives lines and answers with lines.

    Args:
        program: the end of its name, by default the environment's.
    """
    with subprocess.Popen(
        [python_of(environment), HERE / f"of_{program or environment}.py", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ENVIRONMENTS,  # Spark leaves folders where it runs
        env={**_own(), **ONE_THREAD, **variables},
    ) as process:
        yield process
        process.communicate()


def asked(process: Any, *words: Any) -> dict[str, Any]:
    """The answer of a process: cost and result of one run, or why there is none."""
    try:
        process.stdin.write(json.dumps(words) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return {"failed": "the process ended"}
    answer: dict[str, Any] = json.loads(
        process.stdout.readline() or '{"failed": "the process ended"}'
    )
    return answer


def ran(environment: str, program: Path, folder: Path) -> dict[str, Any]:
    """Run a program from a folder, and return its seconds and output."""
    before, began = _of_children(), time.perf_counter()
    done = subprocess.run(
        [python_of(environment), program],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**_own(), **ONE_THREAD},
        check=False,
    )
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1][:200]}
    return {
        "seconds": round(_of_children() - before, 1),
        "clock": round(time.perf_counter() - began, 1),
        "printed": done.stdout,
    }


def made() -> dict[str, Any]:
    """The cost of creating each environment, if it was created here."""
    found: dict[str, Any] = json.loads(MADE.read_text()) if MADE.exists() else {}
    return found
