"""Make a version ready to be tagged: build it, check it, run it in clean environments.

    python -m shipping.build --python python3.11 --python python3.13      # or: make release

It ends with the next commands; nothing is tagged or uploaded. It needs the extra ``release``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

from shipping import api

ROOT = Path(__file__).parents[1]
#: The minor versions that the package is for.
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
# Required contents of the wheel, and the additional files of the other archive.
_IN_WHEEL = ("dpgrain/py.typed", "dpgrain/__init__.py", "dpgrain/report/templates/_base.html")
_BESIDE_SOURCE = {
    *("CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md"),
    *("PKG-INFO", "pyproject.toml", ".gitignore"),
}


def versions(root: Path) -> dict[str, str]:
    """Return the version that each file states."""
    with (root / "pyproject.toml").open("rb") as file:
        found = {"pyproject.toml": str(tomllib.load(file)["project"]["version"])}
    for name, pattern in (
        ("CITATION.cff", r"^version: (\S+)$"),
        ("docs/cite.md", r"\bVersion[\s>]+(\d[\w.]*\w)"),
    ):
        told = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.M)
        found[name] = told[1] if told else "none"
    return found


def described(root: Path, version: str) -> bool:
    """Return whether the changelog has a part for a version."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.search(rf"^## \[?{re.escape(version)}(?![\w.])", text, re.M) is not None


def unlinked(readme: str) -> list[str]:
    """Return the pictures and links of a description that a package index cannot follow.

    An index shows only the page, without other files.
    """
    return [place for place in re.findall(r"\]\(([^)\s]+)\)", readme) if "://" not in place]


def lacking(wheel: Path, source: Path) -> list[str]:
    """Return the errors in the contents of both archives, one line each."""
    inside = zipfile.ZipFile(wheel).namelist()
    lines = [f"the wheel lacks {name}" for name in _IN_WHEEL if name not in inside]
    if not any(name.endswith("licenses/LICENSE") for name in inside):
        lines.append("the wheel lacks LICENSE")
    lines += [f"the wheel has {name}" for name in inside if not name.startswith("dpgrain")]
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    beside = {name for name in names if not name.startswith("src/dpgrain/")}
    lines += [f"the source lacks {name}" for name in sorted(_BESIDE_SOURCE - beside)]
    return [*lines, *(f"the source has {name}" for name in sorted(beside - _BESIDE_SOURCE))]


def build(root: Path, folder: Path) -> tuple[Path, Path]:
    """Build the archive of the source, and the wheel from that.

    Args:
        folder: the target of both; its contents are removed.

    Returns:
        The wheel and the archive of the source.
    """
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", folder, root)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def found(python: str) -> bool:
    """Return whether there is such an interpreter, which runs."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0


def smoke(python: str, archive: Path) -> None:
    """Install an archive into a clean environment with its declared dependencies only, and run it
    there.

    Args:
        archive: the wheel, or the archive of the source.
    """
    with tempfile.TemporaryDirectory() as folder:
        _run(python, "-m", "venv", folder)
        own = Path(folder) / "bin" / "python"
        _run(
            own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{archive}[all]"
        )
        _run(own, "-m", "pip", "check")
        _run(own, "-W", "error", ROOT / "shipping" / "smoke.py")


def typed(wheel: Path) -> None:
    """Check the typed examples as a caller does, who has the wheel and pyright."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        own = Path(folder) / "bin" / "python"
        _run(own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        # PyTorch is of an extra, and not there.
        examples = (path for path in sorted((ROOT / "examples").glob("*.py")) if _plain(path))
        _run("pyright", "--pythonpath", own, ROOT / "tests" / "typing", *examples)


def _plain(example: Path) -> bool:
    return "import torch\n" not in example.read_text(encoding="utf-8")


def _run(*command: str | Path) -> None:
    """Run a command, and end where it fails."""
    print("$", *(Path(word).name if isinstance(word, Path) else word for word in command))
    sys.stdout.flush()
    subprocess.run(command, check=True)


def _refuse(lines: Sequence[str]) -> None:
    if lines:
        sys.exit("\n".join(lines))


def main() -> None:
    """Do all of it in turn, and end with the next commands."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--python", action="append", default=[], help="an interpreter to run it in")
    pythons: Sequence[str] = asked.parse_args().python or PYTHONS
    told = versions(ROOT)
    version = told["pyproject.toml"]
    _refuse(
        [
            f"{name} says version {own}, not {version}"
            for name, own in told.items()
            if own != version
        ]
    )
    tag, changes = api.compare(ROOT)
    print(
        "\n".join(changes) or f"Public names compared with {tag or 'no tag, as there is none yet'}."
    )
    wheel, source = build(ROOT, ROOT / "dist")
    _run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    _refuse(lacking(wheel, source))
    typed(wheel)
    there = [python for python in pythons if found(python)]
    for python in there:
        smoke(python, wheel)
    if there:
        smoke(there[0], source)
    missing = [python for python in pythons if python not in there]
    if missing:
        print(f"Not run, as there is no such interpreter here: {', '.join(missing)}.")
    if not described(ROOT, version):
        print(f"CHANGELOG.md has no part {version} yet: rename its Unreleased.")
    if places := unlinked((ROOT / "README.md").read_text(encoding="utf-8")):
        print(
            f"A package index cannot follow {len(places)} links of README.md, {places[0]} among them: "
            "write the address of the public repository before each."
        )
    print(f"\ndpgrain {version} is built and checked. What is next:")
    print(f"    git tag --annotate v{version} --message 'dpgrain {version}'")
    print(f"    git push origin v{version}")
    print("    twine upload dist/*")


if __name__ == "__main__":
    main()
