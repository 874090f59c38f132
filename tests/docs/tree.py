"""The tree of packages and modules in docs/architecture.md, from the first lines of docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.rooms import SOURCE

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
_BEGIN, _END = "<!-- tree -->\n", "<!-- end of tree -->\n"


def _summary(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def _lines(folder: Path, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the indented name and the summary of each module; packages first."""
    inner = sorted(path for path in folder.iterdir() if (path / "__init__.py").exists())
    for package in inner:
        yield f"{'  ' * depth}{package.name}/", _summary(package / "__init__.py")
        yield from _lines(package, depth + 1)
    for file in sorted(folder.glob("*.py")):
        if not file.stem.startswith("__"):
            yield f"{'  ' * depth}{file.name}", _summary(file)


def drawn() -> str:
    """Return the tree as a block of text."""
    lines = list(_lines(SOURCE / "dpgrain", 0))
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(
        ["```text", *(f"{name:{width}}{line}".rstrip() for name, line in lines), "```"]
    )


def split(page: str) -> tuple[str, str, str]:
    """Return the page before, inside and after the tree."""
    before, rest = page.split(_BEGIN)
    inside, after = rest.split(_END)
    return before + _BEGIN, inside, _END + after
