"""Each claim of the security page has a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.rooms import SOURCE, modules_of, tree_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")
# Modules that may execute code from files that they read.
_RUNNING = {"pickle", "cloudpickle", "dill", "marshal", "joblib", "torch"}
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_each_named_test_is_there(file: str, name: str) -> None:
    path = ROOT / file
    assert path.exists()
    tests = {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert name in tests if name else tests


@pytest.mark.parametrize("part", PAGE.split("\n## ")[2:], ids=lambda part: part.split("\n")[0])
def test_each_part_names_a_test(part: str) -> None:
    assert "`tests/" in part


def _loads(path: Path) -> set[str]:
    """Calls that may execute code from their input, as written in the source."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            whose = ast.unparse(node.func.value).rpartition(".")[2]
            safe = any(
                word.arg == "weights_only" and ast.unparse(word.value) == "True"
                for word in node.keywords
            )
            if node.func.attr in ("load", "loads") and whose in _RUNNING and not safe:
                found.add(ast.unparse(node))
    return found


def test_no_pickle_is_read(tmp_path: Path) -> None:
    assert not {name: calls for name, path in modules_of(SOURCE).items() if (calls := _loads(path))}
    file = tmp_path / "reads.py"
    file.write_text("pickle.load(a)\ntorch.load(b)\ntorch.load(c, weights_only=True)\njson.load(d)")
    assert _loads(file) == {"pickle.load(a)", "torch.load(b)"}
