"""A version is ready only if its files agree and its archives are complete."""

from __future__ import annotations

import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("griffe", reason="griffe is not installed: pip install 'dpgrain[dev]'")

from shipping import build

ROOT = Path(__file__).parents[2]
IN_WHEEL = [
    "dpgrain/__init__.py",
    "dpgrain/py.typed",
    "dpgrain/report/templates/_base.html",
    "dpgrain-1.dist-info/licenses/LICENSE",
]
IN_SOURCE = [
    *("LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "PKG-INFO", "pyproject.toml"),
    *(".gitignore", "src/dpgrain/__init__.py"),
]


def archives(folder: Path, wheel: list[str], source: list[str]) -> list[str]:
    paths = folder / "a.whl", folder / "a.tar.gz"
    with zipfile.ZipFile(paths[0], "w") as packed:
        for name in wheel:
            packed.writestr(name, "")
    with tarfile.open(paths[1], "w:gz") as archive:
        for name in source:
            archive.addfile(tarfile.TarInfo(f"dpgrain-1/{name}"))
    return build.lacking(*paths)


def test_every_file_has_the_same_version() -> None:
    told = build.versions(ROOT)
    assert len(told) == 3
    assert len(set(told.values())) == 1, told
    assert re.fullmatch(r"\d+\.\d+\.\d+", told["pyproject.toml"])
    cited = (ROOT / "docs" / "cite.md").read_text(encoding="utf-8")
    assert re.findall(r"version = \{(.*)\}", cited) == [told["pyproject.toml"]]


def test_the_changelog_has_a_part_for_a_version(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 (2026-11-30)\n")
    assert build.described(tmp_path, "0.1.0")
    assert not build.described(tmp_path, "0.1.1")
    assert not build.described(tmp_path, "0.1")


def test_links_unusable_on_a_package_index_are_reported() -> None:
    page = "![A](docs/a.png) [b](https://example.org/b_(c)) [a long\nname](docs/c.md#d) [e]: (f)"
    assert build.unlinked(page) == ["docs/a.png", "docs/c.md#d"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    with (ROOT / "pyproject.toml").open("rb") as file:
        named = "urls" in tomllib.load(file)["project"]
    assert named != bool(build.unlinked(readme))


def test_archives_have_their_required_contents(tmp_path: Path) -> None:
    assert archives(tmp_path, IN_WHEEL, IN_SOURCE) == []


@pytest.mark.parametrize("name", IN_WHEEL)
def test_missing_wheel_files_are_reported(name: str, tmp_path: Path) -> None:
    found = archives(tmp_path, [other for other in IN_WHEEL if other != name], IN_SOURCE)
    assert found == [f"the wheel lacks {'LICENSE' if 'LICENSE' in name else name}"]


@pytest.mark.parametrize("name", IN_SOURCE[:-1])
def test_missing_source_files_are_reported(name: str, tmp_path: Path) -> None:
    found = archives(tmp_path, IN_WHEEL, [other for other in IN_SOURCE if other != name])
    assert found == [f"the source lacks {name}"]


def test_superfluous_files_are_reported(tmp_path: Path) -> None:
    found = archives(
        tmp_path, [*IN_WHEEL, "tests/data.csv"], [*IN_SOURCE, "tests/claims/goldens.json"]
    )
    assert found == ["the wheel has tests/data.csv", "the source has tests/claims/goldens.json"]


def test_interpreters_are_found(tmp_path: Path) -> None:
    assert build.found(sys.executable)
    assert not build.found(str(tmp_path / "python3.99"))
