"""Which tests run which lines of the package, found by one run of the sampled suite.

The package is copied with a probe at the start of each block of statements, which notes that the
block was entered. One run of the tests on the copy (``pytest -p shipping.probes``) records the
seconds of each test, whether it passed, and the blocks that it entered, and also the blocks entered
before the first test. Processes started by a test are not recorded.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from zlib import compress, decompress

import pytest

# Name of the module next to the copied package with the entered blocks, and of the probe in it.
_NOTES = "dpgrain_probes"
_PROBE = "_entered_"
# Environment variable with the result file of a run.
KEPT_IN = "DPGRAIN_PROBES"

# Fixtures that start Spark, which takes longer than all tests of a bug may.
_SPARK = {"spark", "pyspark_and_java"}

_Function = ast.FunctionDef | ast.AsyncFunctionDef
# Statements that may leave a block.
_MAY_LEAVE = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


@dataclass(frozen=True)
class Block:
    """Statements of a function that run one after the other."""

    file: str
    lines: frozenset[int]
    # Names in its statements: functions, constants, attributes.
    names: frozenset[str]


def _own_lines(statement: ast.stmt) -> range:
    """The lines of a statement without the lines of nested statements."""
    inside = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if not inside:
        return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    first = inside[0].pattern if isinstance(inside[0], ast.match_case) else inside[0]
    return range(statement.lineno, max(first.lineno, statement.lineno + 1))


def _own_names(statement: ast.stmt) -> Iterator[str]:
    """The names in a statement without the names in nested statements."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield node.id
        if isinstance(node, ast.Attribute):
            yield node.attr
        children = ast.iter_child_nodes(node)
        waiting += [child for child in children if not isinstance(child, ast.stmt)]


@dataclass
class _Probes:
    """Probes inserted into one file, and their blocks."""

    file: str
    first: int
    blocks: list[Block] = field(default_factory=list)

    def put(self, node: ast.AST, inside: bool = False) -> None:
        """Put a probe before each block of a node; only functions have blocks."""
        inside = inside or isinstance(node, _Function)
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                if inside and not isinstance(node, ast.ClassDef):
                    setattr(node, name, self._probed(statements))
                for statement in statements:
                    self.put(statement, inside)
        for other in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
            self.put(other, inside)

    def _probed(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        probed: list[ast.stmt] = []
        run: list[ast.stmt] = []
        for statement in statements:
            run.append(statement)
            if isinstance(statement, _MAY_LEAVE):
                probed += self._probe(run)
                run = []
        return probed + self._probe(run)

    def _probe(self, run: list[ast.stmt]) -> list[ast.stmt]:
        if not run:
            return []
        lines = frozenset(line for statement in run for line in _own_lines(statement))
        names = frozenset(name for statement in run for name in _own_names(statement))
        number = self.first + len(self.blocks)
        self.blocks.append(Block(self.file, lines, names))
        probe = ast.parse(f"{_PROBE}({number})").body
        declares = isinstance(run[0], ast.Global | ast.Nonlocal)
        return [*run[:1], *probe, *run[1:]] if declares else [*probe, *run]


def probed(file: str, text: str, first: int) -> tuple[str, list[Block]]:
    """Return a file with its probes, and the blocks that they stand for.

    Args:
        file: the file's path below ``src``.
        first: the number of its first probe.
    """
    tree = ast.parse(text)
    probes = _Probes(file, first)
    probes.put(tree)
    at = next((i for i, node in enumerate(tree.body) if not _stays_first(node)), len(tree.body))
    tree.body[at:at] = ast.parse(f"from {_NOTES} import {_PROBE}").body
    return ast.unparse(ast.fix_missing_locations(tree)), probes.blocks


def _stays_first(node: ast.stmt) -> bool:
    """Whether a statement must be at the start of its file."""
    doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return doc or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def blocks_of(source: Path) -> list[Block]:
    """Return the blocks of a package in the order of their numbers."""
    found: list[Block] = []
    for path in sorted(source.rglob("*.py")):
        file = path.relative_to(source).as_posix()
        found += probed(file, path.read_text(encoding="utf-8"), len(found))[1]
    return found


def copy_with_probes(source: Path, to: Path) -> None:
    """Copy a package with a probe in each block."""
    shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
    first = 0
    for path in sorted(source.rglob("*.py")):
        file = path.relative_to(source).as_posix()
        text, blocks = probed(file, path.read_text(encoding="utf-8"), first)
        (to / file).write_text(text, encoding="utf-8")
        first += len(blocks)
    (to / f"{_NOTES}.py").write_text(f"seen = set()\n{_PROBE} = seen.add\n")


def packed(numbers: set[int]) -> str:
    """Return numbers as the bits of a text."""
    bits = bytearray(max(numbers, default=0) // 8 + 1)
    for number in numbers.copy():
        bits[number // 8] |= 1 << number % 8
    return b64encode(compress(bytes(bits))).decode()


def unpacked(text: str) -> int:
    """Return a number that has the numbers in a text as its bits.

    Args:
        text: a result of `packed`.
    """
    return int.from_bytes(decompress(b64decode(text)), "little")


def worked() -> float:
    """Return the processor seconds of this process and of its ended child processes."""
    return sum(os.times()[:4])


class _Notes:
    """The entered blocks and the result of each test."""

    def __init__(self) -> None:
        # Blocks entered before the first test.
        self.collected: str | None = None
        self.tests: dict[str, dict[str, object]] = {}
        self.seconds: dict[str, float] = {}
        self.passed: dict[str, bool] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        yield
        items[:] = [item for item in items if _SPARK.isdisjoint(getattr(item, "fixturenames", ()))]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        seen: set[int] = import_module(_NOTES).seen
        if self.collected is None:
            self.collected = packed(seen)
        seen.clear()
        began = worked()
        try:
            return (yield)
        finally:
            self.tests[item.nodeid] = {
                "work": round(worked() - began, 4),
                "seconds": round(self.seconds.get(item.nodeid, 0.0), 4),
                "passed": self.passed.get(item.nodeid, False),
                "entered": packed(seen),
            }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and report.passed

    def pytest_sessionfinish(self) -> None:
        found = {"tests": self.tests, "collected": self.collected or packed(set())}
        Path(os.environ[KEPT_IN]).write_text(json.dumps(found))


def pytest_configure(config: pytest.Config) -> None:
    """Record the entered blocks if the run requests it."""
    if KEPT_IN in os.environ:
        config.pluginmanager.register(_Notes())
