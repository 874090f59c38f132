"""A small repository, and which of its tests run which lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from shipping.mutants import Coverage, covered
from tests.shipping.sample import FIXTURES, MODULE, TESTS


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    files = {
        "src/dpgrain/__init__.py": "",
        "src/dpgrain/room/__init__.py": "",
        "src/dpgrain/room/sums.py": MODULE,
        "tests/room/test_sums.py": TESTS,
        "tests/conftest.py": FIXTURES,
        "tests/room/test_other.py": "def test_nothing():\n    assert True\n",
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n',
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def coverage(root: Path) -> Coverage:
    return covered(root)
