"""Breaking changes since the last tag are reported, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("griffe", reason="griffe is not installed: pip install 'dpgrain[dev]'")

from shipping import api

FACE = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from dpgrain import part
    from dpgrain.inner import Kept, used
__all__ = ["Kept", "part", "used"]
"""
INNER = """
class Kept:
    def shown(self, digits: int = 1) -> str: ...
    def _own(self) -> int: ...
def used(table: str, by: str = "") -> int: ...
def inside(table: str) -> int: ...
"""
PART = "__all__ = ['also']\ndef also(x: int) -> int: ...\n"


def commit(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        (root / "src" / "dpgrain" / f"{name}.py").write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "add", "--all"], cwd=root, check=True)
    subprocess.run(["git", *who, "commit", "--quiet", "--message", "x"], cwd=root, check=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "src" / "dpgrain").mkdir(parents=True)
    commit(tmp_path, __init__=FACE, inner=INNER, part=PART)
    return tmp_path


def test_tree_without_tags_has_no_comparison(root: Path) -> None:
    assert api.compare(root) == (None, [])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"inner": INNER.replace("def inside", "def outside")}, []),
        ({"inner": INNER.replace("_own", "_other")}, []),
        ({"inner": INNER.replace('by: str = ""', 'by: str = "", of: int = 0')}, []),
        ({"inner": INNER.replace("digits", "places")}, ["Kept.shown(digits)"]),
        ({"inner": INNER.replace("def shown", "def told")}, ["Kept.shown"]),
        ({"inner": INNER.replace('by: str = ""', "by: str")}, ["used(by)"]),
        ({"part": PART.replace("x: int", "x: int, y: int")}, ["also(y)"]),
        ({"part": PART.replace("['also']", "[]")}, ["dpgrain.part.also: it is gone"]),
        ({"__init__": FACE.replace('"Kept", ', "")}, ["dpgrain.Kept: it is gone"]),
    ],
)
def test_only_breaking_changes_are_reported(
    changes: dict[str, str], told: list[str], root: Path
) -> None:
    subprocess.run(["git", "tag", "v1"], cwd=root, check=True)
    for name, text in changes.items():
        (root / "src" / "dpgrain" / f"{name}.py").write_text(text)
    tag, lines = api.compare(root)
    assert tag == "v1"
    assert bool(lines) == bool(told)
    assert all(any(one in line for line in lines) for one in told)
    assert "\x1b" not in "".join(lines)


def test_it_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, api.__file__], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1)
    assert "since" in done.stdout or "No version is tagged yet" in done.stdout
