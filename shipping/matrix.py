"""Which tests kill which mechanical bugs: the evidence for removing a test.

    python -m shipping.matrix --each 10        # ten bugs of each module, after those already tried
    python -m shipping.matrix --report         # how many are killed, and which tests repeat others
    python -m shipping.matrix --candidates FILE --tests 'means|claims|fuzz'

Comparisons, arithmetic, constants, conditions, returns, checks and statements are changed one at a
time. With each mutant, every test that runs the changed line is run, up to some processor seconds.
With ``--candidates``, a file with one test per line, mutants are in lines that these tests run: all
removed checks, and a sample of the others. Other tests are run until one fails, and all candidates
only if none does. The matrix is stored in ``build/mutants/matrix.jsonl``, outside version control;
a run continues an earlier one.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from shipping.mutants import (
    ROOT,
    Coverage,
    EditError,
    Late,
    Mutant,
    Outcome,
    Test,
    covered,
    every_kill,
    tried_together,
)

MATRIX = ROOT / "build" / "mutants" / "matrix.jsonl"
_COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.MatMult: ast.Mult,
}  # fmt: skip
# Only readers see these, no number depends on them: text in f-strings, types.
_SKIPPED = (ast.JoinedStr, ast.Assert)
# Name of the line with the tests that fail in a fork without a bug.
_WITHOUT = "without"


@dataclass(frozen=True)
class Mechanical(Mutant):
    """A mechanical bug at one place of a file.

    Args:
        at: the offset of the old text in its file.
    """

    at: int = 0
    checks: bool = False

    def place(self, text: str) -> tuple[int, int]:
        """Return the place of the edit; its function does not matter."""
        if not text.startswith(self.old, self.at):
            raise EditError(f"{self.function}: the file has changed.")
        return 0, self.at

    def words(self) -> dict[str, str]:
        """Return the row of the bug in the matrix."""
        return {"function": self.function, "old": self.old, "new": self.new}

    def key(self, text: str) -> str:
        """Return a name of the bug that changes with its file."""
        whole = json.dumps([text, self.at, self.old, self.new])
        return hashlib.sha256(whole.encode()).hexdigest()[:20]


def mechanical(file: Path, source: Path) -> list[Mechanical]:
    """Return all mechanical bugs of a module."""
    text = file.read_text(encoding="utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()
    module = ".".join(file.relative_to(source).with_suffix("").parts)

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found = []
    for name, node in _inside_functions(ast.parse(text)):
        for new in _edits(node):
            first = offset(node.lineno, node.col_offset)
            last = offset(node.end_lineno, node.end_col_offset)
            old, checks = (
                text[first:last],
                isinstance(node, ast.Raise) or _validated(node) is not None,
            )
            bug = Mechanical(
                f"{module}:{name}", "", "other", "module", "", old, new, at=first, checks=checks
            )
            found.append(bug)
    return found


def _inside_functions(node: ast.AST, name: str = "", inside: bool = False) -> Iterator[Any]:
    """Every expression and statement of the bodies of functions, with the name of its function."""
    if isinstance(node, _SKIPPED):
        return
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        name = f"{name}.{node.name}".lstrip(".")
        inside, children = inside or isinstance(node, ast.FunctionDef), node.body
    elif inside and isinstance(node, ast.expr | ast.stmt):
        yield name, node
    if isinstance(node, ast.Raise):
        return
    for child in children:
        yield from _inside_functions(child, name, inside)


def _edits(node: Any) -> Iterator[str]:
    """The texts that make a bug of a node."""
    changed = copy.deepcopy(node)
    if isinstance(node, ast.Compare):
        changed.ops[0] = _COMPARISONS[type(node.ops[0])]()
        yield f"({ast.unparse(changed)})"
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        changed.op = _OPERATORS[type(node.op)]()
        yield f"({ast.unparse(changed)})"
    elif isinstance(node, ast.BoolOp):
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"({ast.unparse(changed)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.IfExp):
        changed.body, changed.orelse = node.orelse, node.body
        yield f"({ast.unparse(changed)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield f"({node.value + 1})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, float):
        yield f"({2 * node.value})"
    elif isinstance(node, ast.Call) and _name(node.func) in ("min", "max"):
        changed.func = ast.Name("max" if _name(node.func) == "min" else "min")
        yield ast.unparse(changed)
    elif (value := _validated(node)) is not None:
        yield f"({ast.unparse(value)})"
    elif isinstance(node, ast.Return) and node.value is not None:
        yield "return None"
    elif isinstance(node, ast.AugAssign | ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "pass"


def _validated(node: ast.AST) -> ast.expr | None:
    """The value of a call such as ``_validate.positive(clip=value)``; None for other nodes."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.keywords:
        return node.keywords[-1].value if _name(node.func.value) == "_validate" else None
    return None


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def drawn(source: Path, each: int, only: str = "") -> list[Mechanical]:
    """Draw mechanical bugs of each module, the same in every run.

    Args:
        each: how many of a module, or all if it has fewer.
    """
    found: list[Mechanical] = []
    for file in sorted(source.rglob("*.py")):
        name = file.relative_to(source).as_posix()
        if re.search(only, name):
            bugs, text = mechanical(file, source), file.read_text(encoding="utf-8")
            shuffled = random.Random(name).sample(bugs, len(bugs))
            found += islice((bug for bug in shuffled if _changes(bug, text)), each)
    return found


def _changes(bug: Mutant, text: str) -> bool:
    """Return whether an edit gives valid Python that differs."""
    try:
        bug.edited(text)
    except EditError:
        return False
    return True


def known(file: Path = MATRIX) -> dict[str, dict[str, Any]]:
    """Return the recorded rows by their keys."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {line["key"]: line for line in map(json.loads, lines)}


def fill(
    root: Path,
    bugs: Sequence[Mechanical],
    coverage: Coverage,
    seconds: float,
    workers: int,
    matrix: Path = MATRIX,
) -> None:
    """Try the bugs not yet tried, and add the tests that kill each to the matrix.

    Args:
        seconds: the processor seconds for the tests of each.
    """
    texts = {bug.file: (root / "src" / bug.file).read_text(encoding="utf-8") for bug in bugs}
    done = known(matrix)
    keys = {bug: bug.key(texts[bug.file]) for bug in bugs}
    left = [bug for bug in bugs if keys[bug] not in done and coverage.forks(bug)]
    print(f"{len(bugs)} bugs, {len(left)} to try", flush=True)
    matrix.parent.mkdir(parents=True, exist_ok=True)
    with matrix.open("a", encoding="utf-8") as file:
        for bug, ran, killers in every_kill(root, left, coverage, seconds, workers):
            line: dict[str, Any] = {"key": _WITHOUT, "ran": ran, "killed_by": killers}
            if bug is not None:
                line |= {"key": keys[bug], **bug.words()}
            file.write(f"{json.dumps(line)}\n")
            file.flush()


def drawn_for(
    source: Path, each: int, candidates: Late, only: str = "", after: int = 0
) -> list[Mechanical]:
    """Draw mechanical bugs of lines that candidates run: all removed checks, and some others.

    Args:
        after: how many others of a module are left out.
    """
    found: list[Mechanical] = []
    for file in sorted(source.rglob("*.py")):
        name, text = file.relative_to(source).as_posix(), file.read_text(encoding="utf-8")
        lines = candidates.lines_of(name)
        if lines and re.search(only, name):
            every = mechanical(file, source)
            shuffled = random.Random(name).sample(every, len(every))
            bugs = [bug for bug in shuffled if text.count("\n", 0, bug.at) + 1 in lines]
            found += [] if after else [bug for bug in bugs if bug.checks and _changes(bug, text)]
            others = (bug for bug in bugs if not bug.checks and _changes(bug, text))
            found += islice(others, after, after + each)
    return found


def fill_restricted(
    root: Path,
    bugs: Sequence[Mechanical],
    stays: Coverage,
    candidates: Coverage,
    seconds: float,
    workers: int,
    matrix: Path = MATRIX,
) -> None:
    """Add a test that stays and kills each bug; if there is none, all candidates that kill it.

    Args:
        seconds: the processor seconds for the tests of each.
    """
    texts = {bug.file: (root / "src" / bug.file).read_text(encoding="utf-8") for bug in bugs}
    done, keys = known(matrix), {bug.key(texts[bug.file]): bug for bug in bugs}
    left = [bug for key, bug in keys.items() if key not in done and stays.of(bug)]
    print(f"{len(bugs)} bugs, {len(left)} for tests that stay", flush=True)
    matrix.parent.mkdir(parents=True, exist_ok=True)
    with matrix.open("a", encoding="utf-8") as file:

        def note(outcome: Outcome) -> None:
            bug, killers = outcome.mutant, [outcome.caught_by]
            if outcome.caught_by and isinstance(bug, Mechanical):
                line = {"key": bug.key(texts[bug.file]), **bug.words(), "ran": killers}
                file.write(f"{json.dumps({**line, 'killed_by': killers})}\n")
                file.flush()

        if left:
            tried_together(root, left, stays, seconds, workers, note)
    done = known(matrix)
    survive = [bug for key, bug in keys.items() if key not in done]
    fill(root, survive, candidates, seconds, workers, matrix)


def by_function(row: Mapping[str, Any], red: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return a row with tests instead of their cases, without tests that fail without a bug."""
    killers = {*row["killed_by"]} - {*red}
    return {
        "ran": sorted({name.split("[")[0] for name in row["ran"]}),
        "killed_by": sorted({name.split("[")[0] for name in killers}),
    }


def redundant(
    rows: Iterable[Mapping[str, Any]], candidates: Iterable[str] | None = None
) -> list[str]:
    """Return tests that can be deleted together, because staying tests kill the same bugs.

    Args:
        candidates: tests that may go; all, if None.

    >>> redundant([{"ran": "abc", "killed_by": "ab"}, {"ran": "bc", "killed_by": "b"}])
    ['a', 'c']
    """
    rows = list(rows)
    kills: dict[str, set[int]] = defaultdict(set)
    for number, row in enumerate(rows):
        for test in row["ran"]:
            kills[test]
        for test in row["killed_by"]:
            kills[test].add(number)
    times = Counter(number for bugs in kills.values() for number in bugs)
    gone = []
    may_go = kills if candidates is None else kills.keys() & set(candidates)
    for test in sorted(may_go, key=lambda name: (len(kills[name]), name)):
        if all(times[number] > 1 for number in kills[test]):
            gone.append(test)
            times.subtract(kills[test])
    return sorted(gone)


def main(words: Sequence[str] | None = None) -> None:
    """Fill the matrix, or report its content.

    Args:
        words: the options, from the command line if None.
    """
    parser = argparse.ArgumentParser(prog="python -m shipping.matrix")
    parser.add_argument("--each", type=int, default=10, help="bugs of each module")
    parser.add_argument("--only", default="", help="modules whose file has this pattern")
    parser.add_argument("--seconds", type=float, default=20.0, help="processor seconds for a bug")
    parser.add_argument("--workers", type=int, default=2, help="how many are tried side by side")
    parser.add_argument(
        "--report", action="store_true", help="print what is known, and try nothing"
    )
    parser.add_argument("--candidates", type=Path, help="file of tests that may go, one a line")
    parser.add_argument("--tests", default="", help="folders of tests that are run, as a pattern")
    asked = parser.parse_args(words)
    may_go = asked.candidates.read_text().split() if asked.candidates else None
    if not asked.report:
        coverage = covered(ROOT, asked.workers, asked.tests)
        if may_go is None:
            bugs = drawn(ROOT / "src", asked.each, asked.only)
            fill(ROOT, bugs, coverage, asked.seconds, asked.workers)
        else:
            groups: dict[bool, list[Test]] = {True: [], False: []}
            for test in coverage.tests:
                groups[test.name.split("[")[0] in may_go].append(test)
            candidates, stays = (Late(coverage.source, groups[goes]) for goes in (True, False))
            bugs = drawn_for(ROOT / "src", asked.each, candidates, asked.only)
            fill_restricted(ROOT, bugs, stays, candidates, asked.seconds, asked.workers)
    every = known()
    red = every.pop(_WITHOUT, {}).get("killed_by", ())
    rows = [by_function(row, red) for row in every.values()]
    killed = sum(bool(row["killed_by"]) for row in rows)
    tests = {test for row in rows for test in row["ran"]}
    print(f"{killed} of {len(rows)} bugs are killed by {len(tests)} tests")
    print("\n".join(["Tests whose kills others repeat:", *redundant(rows, may_go)]))


if __name__ == "__main__":
    main()
