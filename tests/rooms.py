"""Which module of the package imports which, read from the source without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import dpgrain as dg

SOURCE = Path(dg.__file__).parents[1]
# The only upward import of the report.
DOOR = "dpgrain._report_mixins"

Graph = dict[str, set[str]]
# Expressions, which are most of a tree, contain none.
_MAY_HOLD_IMPORTS = (ast.stmt, ast.excepthandler, ast.match_case)


def modules_of(source: Path) -> dict[str, Path]:
    """The file of each module of the package."""
    names = {}
    for path in (source / "dpgrain").rglob("*.py"):
        name = ".".join(path.relative_to(source).with_suffix("").parts)
        names[name.removesuffix(".__init__")] = path
    return names


@cache
def tree_of(path: Path) -> ast.Module:
    """The parsed contents of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_in(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports that may run, also inside functions; not imports only for types."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _MAY_HOLD_IMPORTS):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from imports_in(child)


def pairs_of(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """The module and the name of each import; the name is empty where the module itself is meant."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
    else:
        assert node.level == 0, "imports are absolute"
        yield from ((node.module or "", alias.name) for alias in node.names)


def imported(source: Path) -> tuple[Graph, list[tuple[str, str]]]:
    """The imports between modules, and the imported private names."""
    modules = modules_of(source)
    graph: Graph = {name: set() for name in modules}
    private = []
    for importer, path in modules.items():
        for node in imports_in(tree_of(path)):
            for module, name in pairs_of(node):
                whole = f"{module}.{name}"
                target = whole if whole in modules else module
                if target in modules and target != importer:
                    graph[importer].add(target)
                    if target == module and name.startswith("_") and not name.endswith("__"):
                        private.append((importer, whole))
    return graph, private


def homes_of(source: Path) -> dict[str, str]:
    """The modules that the public names of packages come from."""
    homes: dict[str, str] = {}
    for package, path in modules_of(source).items():
        for block in tree_of(path).body:
            if path.stem == "__init__" and isinstance(block, ast.If):
                for node in block.body:
                    if isinstance(node, ast.ImportFrom):
                        names = ((alias.asname or alias.name) for alias in node.names)
                        homes |= {f"{package}.{name}": node.module or "" for name in names}
    return homes


def needed(source: Path) -> Graph:
    """The modules that each module needs, with re-exports resolved to their modules."""
    modules, homes = modules_of(source), homes_of(source)
    graph: Graph = {name: set() for name in modules}
    for importer, path in modules.items():
        for node in imports_in(tree_of(path)):
            for module, name in pairs_of(node):
                whole = f"{module}.{name}"
                target = whole if whole in modules else homes.get(whole, module)
                if target in modules and target != importer:
                    graph[importer].add(target)
    return {**graph, DOOR: set()}
