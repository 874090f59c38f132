"""Check of an installed dpgrain: import every module, run the demonstration.

It is run by the interpreter of a clean environment, and needs only the packages installed there:

    python shipping/smoke.py
"""

from __future__ import annotations

import importlib
import pkgutil
import resource
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

# Modules that need one of these are of an extra, which a clean environment has not.
OF_EXTRAS = ("polars", "psycopg", "pyspark", "pytest", "torch", "transformers")
_RUN_BY_ITSELF = "dpgrain.__main__"


def imported(package: str) -> tuple[list[str], dict[str, str]]:
    """Import every module of a package.

    Returns:
        The imported modules, and the modules that need an extra, with its name.

    Raises:
        ImportError: if a module needs a package outside the extras.
    """
    here: list[str] = [package]
    extra: dict[str, str] = {}
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, f"{package}.", onerror=lambda _: None):
        if module.name == _RUN_BY_ITSELF:
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            needed = (error.name or "").partition(".")[0]
            if needed not in OF_EXTRAS:
                raise
            extra[module.name] = needed
        else:
            here.append(module.name)
    return here, extra


def demonstration(folder: Path) -> None:
    """Run the demonstration as a newcomer does, and see that its report is there.

    Raises:
        CalledProcessError: if it fails.
        FileNotFoundError: if it leaves no report.
    """
    program = Path(sys.executable).with_name("dpgrain")
    subprocess.run([program, "demo", "--folder", folder], check=True, stdout=subprocess.DEVNULL)
    (folder / "report.html").stat()


def main() -> None:
    """Run both, and print the result."""
    here, extra = imported("dpgrain")
    with tempfile.TemporaryDirectory() as folder:
        demonstration(Path(folder) / "demo")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    needs = ", ".join(sorted(set(extra.values()))) or "nothing"
    print(
        f"Python {sys.version.split()[0]}, dpgrain {version('dpgrain')}: {len(here)} modules are "
        f"imported, {len(extra)} wait for an extra ({needs}); the demonstration took {seconds:.0f} s "
        "of processor time."
    )


if __name__ == "__main__":
    main()
