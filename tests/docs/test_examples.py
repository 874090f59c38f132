"""Each example runs, prints something, and is in the site's gallery under its name."""

from __future__ import annotations

import ast
import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Bits

from dpgrain.noise.sources import SystemSource

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
GALLERY = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(
    example: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "import torch\n" in example.read_text(encoding="utf-8") and find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install 'dpgrain[torch]'")
    monkeypatch.chdir(tmp_path)
    bits = Bits()
    monkeypatch.setattr(SystemSource, "words", lambda self, size: bits.words(size))
    runpy.run_path(str(example), run_name="__main__")
    assert re.search(r"ε|is left", capsys.readouterr().out)


def test_the_gallery_has_each_with_its_purpose() -> None:
    shown = re.findall(r"^(.+)\n\n```\{literalinclude\} \.\./examples/(\w+)\.py$", GALLERY, re.M)
    purposes = {
        path.stem: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        for path in EXAMPLES
    }
    assert len(shown) == len(EXAMPLES) > 5
    assert {name: purpose for purpose, name in shown} == purposes
