"""Injected bugs (mutants), one at a time, and the tests that kill them.

    python -m shipping.mutants            # or: make mutants

``tests/mutants`` keeps small, plausible bugs as function, property and edit. For each bug, the
tests that run its line are run for half a minute of a processor: the fastest first, one per file
before a second of any file, and every second test from the module's own file. One process collects
tests and is forked for each bug (``shipping/forked.py``); a bug that cannot be injected into a fork
is written into a copy of the package. One run of the sampled suite records which tests run which
lines (``shipping/probes.py``); ``build/mutants`` caches this until a file changes.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from importlib.util import find_spec
from itertools import zip_longest
from operator import or_
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shipping.chosen import CHOSEN

from shipping import forked, probes

ROOT = Path(__file__).parents[1]
KINDS = ("promise", "number", "other")
ORIGINS = ("module", "tests")
# Keys of an entry of a file, in the order of the fields of a mutant; ``event`` is optional.
_KEYS = ("function", "property", "kind", "origin", "seen_by", "old", "new")

# Tests that are not run: pages, golden releases, wording, other programs, and Spark, which takes
# longer than the time limit of a mutant.
_BLIND = re.compile(
    r"tests/(docs|experiments|benchmarks|shipping|typing)/"
    r"|tests/claims/test_goldens|test_outlines|wording|test_words|test_printed|test_docstrings|test_mutants"
    r"|tests/test_(rooms|public_api|startup|later)|test_spark"
)
# A test in a file, with or without a case.
_TEST = re.compile(r"tests/.+\.py(::\w+)+(\[.+\])?", re.DOTALL)
# Wall-clock seconds per processor second, and for starting and collecting, before a run is killed.
# Both are generous because other work may use the machine.
_CLOCK, _GRACE = 4.0, 120.0
# Least wall-clock limit of a fork in seconds, because a busy machine gives it little processor
# time.
_LEAST_CLOCK = 120.0
# Ratio of a test's processor seconds with a mutant to its seconds without one above which it counts
# as hanging.
_HANG = 5.0


class EditError(ValueError):
    """An edit does not apply to the present source."""


@dataclass(frozen=True)
class Mutant:
    """A bug: a required property (``property`` in its file), and the edit that breaks it.

    ``seen_by`` is a test that kills the mutant and always runs. If the bug breaks the promise of an
    accounting event, ``event`` names it, and the test is a search or an audit
    (``shipping/proof.py``).
    """

    function: str
    holds: str
    kind: str
    origin: str
    seen_by: str
    old: str
    new: str
    event: str = ""

    def __post_init__(self) -> None:
        for name, known in (("kind", KINDS), ("origin", ORIGINS)):
            if getattr(self, name) not in known:
                raise EditError(f"{self.function}: {name} must be one of {', '.join(known)}.")
        if self.function.count(":") != 1:
            raise EditError(f"{self.function}: it must be module:name.")

    @property
    def file(self) -> str:
        """The file of the function, below ``src``."""
        return self.function.split(":")[0].replace(".", "/") + ".py"

    @property
    def room(self) -> str:
        """Package of the function; "alone" for top-level modules."""
        parts = self.function.split(":")[0].split(".")
        return parts[1] if len(parts) > 2 else "alone"

    def place(self, text: str) -> tuple[int, int]:
        """Return the line before the function, and the offset of the edit in its file."""
        lines = text.splitlines(keepends=True)
        first, last = _extent(_parsed(text), self.function)
        source = "".join(lines[first - 1 : last])
        if source.count(self.old) != 1:
            count = source.count(self.old)
            raise EditError(f"{self.function}: its source has {count} times, not once: {self.old}")
        return first, len("".join(lines[: first - 1])) + source.index(self.old)

    def edited(self, text: str) -> str:
        """Return the file with the bug."""
        at = self.place(text)[1]
        # The statement of the module around the edit is parsed faster than the file.
        start, end = next((a, b) for a, b in _statements_of(text) if a <= at < b)
        bad = text[start:at] + self.new + text[at + len(self.old) : end]
        try:
            same = ast.dump(ast.parse(bad)) == ast.dump(ast.parse(text[start:end]))
        except SyntaxError as error:
            raise EditError(f"{self.function}: the edit is no Python: {self.new}") from error
        if same:
            raise EditError(f"{self.function}: the edit changes nothing.")
        return text[:start] + bad + text[end:]

    def lines(self, text: str) -> range:
        """Return the lines that the edit changes."""
        at = self.place(text)[1]
        same = _alike(self.old, self.new)
        end = _alike(self.old[same:][::-1], self.new[same:][::-1])
        changed = self.old[same : len(self.old) - end].strip("\n")
        first = text.count("\n", 0, at + same + (self.old[same:].startswith("\n"))) + 1
        return range(first, first + changed.count("\n") + 1)


def _alike(one: str, other: str) -> int:
    """Length of the common prefix of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


@lru_cache(maxsize=1)  # Bugs are sorted by file.
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


@lru_cache(maxsize=1)
def _statements_of(text: str) -> list[tuple[int, int]]:
    """Return the first and last offset of each statement of a module, with its decorators."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return [
        (starts[_first_line(each) - 1], starts[each.end_lineno or each.lineno])
        for each in _parsed(text).body
    ]


def _extent(tree: ast.AST, function: str) -> tuple[int, int]:
    """First and last line of the definition of a name."""
    node: Any = tree
    for name in function.split(":")[1].split("."):
        inside = [child for child in _statements(node) if name in _defined(child)]
        if not inside:
            raise EditError(f"{function}: there is no such name.")
        node = inside[-1]
    first = _first_line(node)
    return first, node.end_lineno or first


def _first_line(node: Any) -> int:
    """The first line of a statement, or of its first decorator."""
    lines: list[int] = [part.lineno for part in (node, *getattr(node, "decorator_list", []))]
    return min(lines)


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a node and its branches, without functions and classes in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _statements(child)


def _defined(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def read(folder: Path) -> list[Mutant]:
    """Return the mutants of a folder, one file a room.

    Args:
        folder: the folder, ``tests/mutants``.
    """
    mutants = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", []):
            mutant = _mutant(path, entry)
            if path.stem != mutant.room:
                raise EditError(f"{path.name}: {mutant.function} is of another room.")
            mutants.append(mutant)
    return mutants


def _mutant(path: Path, entry: dict[str, Any]) -> Mutant:
    if wrong := set(_KEYS) ^ (entry.keys() - {"event"}):
        what = ", ".join(sorted(wrong))
        raise EditError(f"{path.name}: keys are missing from an entry, or unknown: {what}.")
    mutant = Mutant(*(entry.get(key, "") for key in (*_KEYS, "event")))
    if not _TEST.fullmatch(mutant.seen_by) or _BLIND.search(mutant.seen_by.partition("::")[0]):
        raise EditError(f"{mutant.function}: seen_by must name a test that may kill a mutant.")
    return mutant


@contextmanager
def seeded(root: Path, mutant: Mutant) -> Iterator[Path]:
    """A folder with a copy of the package that has the bug, in ``src``."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(root / "src", folder / "src")
        file = folder / "src" / mutant.file
        file.write_text(mutant.edited(file.read_text(encoding="utf-8")), encoding="utf-8")
        yield folder


# -- which tests run which lines ---


@dataclass(frozen=True)
class Test:
    """A test of the sampled suite without bugs."""

    name: str
    work: float
    seconds: float
    entered: int

    @property
    def file(self) -> str:
        """The file of the test."""
        return self.name.split("::")[0]


@dataclass(frozen=True)
class Coverage:
    """The tests that pass without a bug, and the blocks of the package that they enter."""

    source: Path
    tests: Sequence[Test]
    # Blocks entered while tests were collected.
    collected: int = 0

    @cached_property
    def _blocks(self) -> list[probes.Block]:
        return probes.blocks_of(self.source)

    def of(self, mutant: Mutant) -> list[str]:
        """Return the names of the tests of a mutant, in running order.

        Every second one is of the file that mirrors the mutant's.
        """
        lines = set(mutant.lines((self.source / mutant.file).read_text(encoding="utf-8")))
        wanted = self._running(mutant, lines)
        own = [test for test in self.tests if test.file == _mirror(mutant.file)]
        near = [test for test in own if test.entered & wanted]
        far = [
            test
            for test in self.tests
            if test.entered & wanted and test.file != _mirror(mutant.file)
        ]
        # A central line is run by more tests than there is time for.
        by_turns = zip_longest(_in_turns(near), _in_turns(far))
        # Code that runs at import, or is skipped by a cache, is not recorded as run.
        unseen = [test for test in own if not test.entered & wanted]
        ordered = [test for turn in by_turns for test in turn if test is not None]
        return [test.name for test in [*ordered, *_in_turns(unseen)]]

    def forks(self, mutant: Mutant) -> bool:
        """Whether a process that has collected tests can be given a mutant: nothing has run it."""
        text = (self.source / mutant.file).read_text(encoding="utf-8")
        if _outside_functions(text) != _outside_functions(mutant.edited(text)):
            return False
        return not self.collected & self._direct(mutant, set(mutant.lines(text)))

    @cached_property
    def _by_file(self) -> dict[str, list[tuple[int, probes.Block]]]:
        found: dict[str, list[tuple[int, probes.Block]]] = {}
        for number, block in enumerate(self._blocks):
            found.setdefault(block.file, []).append((number, block))
        return found

    def _direct(self, mutant: Mutant, lines: set[int]) -> int:
        """The blocks that run some lines."""
        blocks = self._by_file.get(mutant.file, ())
        return _bits(number for number, block in blocks if block.lines & lines)

    def _running(self, mutant: Mutant, lines: set[int]) -> int:
        """The blocks that run some lines, or else that name what the lines define."""
        name = mutant.function.split(":")[1].split(".")[-1]
        direct = self._direct(mutant, lines)
        if any(test.entered & direct for test in self.tests):
            return direct
        return _bits(number for number, block in enumerate(self._blocks) if name in block.names)


class Late(Coverage):
    """Only tests that run a mutant's lines; the bug is injected after collection."""

    @cached_property
    def _union(self) -> int:
        return reduce(or_, (test.entered for test in self.tests), 0)

    def lines_of(self, file: str) -> set[int]:
        """Return the lines of a file that some test runs.

        Args:
            file: the file, below the folder of the package.
        """
        blocks = self._by_file.get(file, ())
        return {
            line for number, block in blocks if self._union >> number & 1 for line in block.lines
        }

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the lines of a mutant, alternating between their files."""
        lines = mutant.lines((self.source / mutant.file).read_text(encoding="utf-8"))
        wanted = self._direct(mutant, set(lines)) & self._union
        tests = (test for test in self.tests if test.entered & wanted) if wanted else ()
        return [test.name for test in _in_turns(tests)]

    def forks(self, mutant: Mutant) -> bool:
        """Return whether a fork can have the mutant."""
        text = (self.source / mutant.file).read_text(encoding="utf-8")
        return _outside_functions(text) == _outside_functions(mutant.edited(text))


class Named(Late):
    """Only the test that each mutant names, instead of all tests that run its lines."""

    def of(self, mutant: Mutant) -> list[str]:
        """Return the test in ``seen_by``."""
        return [mutant.seen_by]


def _bits(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)


def _outside_functions(text: str) -> str:
    """The content of a file without the bodies of its functions."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = []
    return ast.dump(tree)


def _mirror(file: str) -> str:
    """The file of tests of a file of the package."""
    path = Path("tests", *Path(file).parts[1:])
    return path.with_name(f"test_{path.stem.lstrip('_')}.py").as_posix()


def _in_turns(tests: Iterable[Test]) -> list[Test]:
    """The fastest tests first, and one per file before a second of any file."""
    turns: dict[str, int] = {}
    ordered = []
    for test in sorted(tests, key=lambda test: test.work):
        turn = turns[test.file] = turns.get(test.file, -1) + 1
        ordered.append((turn, test.work, test))
    return [test for _, _, test in sorted(ordered, key=lambda item: item[:2])]


def covered(root: Path, workers: int = 1, only: str = "") -> Coverage:
    """Return which tests run which lines, from the cache if no file has changed.

    Args:
        workers: how many parts of the tests are run side by side.
        only: a pattern of the folders of tests; all, if empty.
    """
    kept = root / "build" / "mutants"
    kept.mkdir(parents=True, exist_ok=True)
    parts = _parts(root)
    with TemporaryDirectory() as folder:
        copy = Path(folder, "src")
        probes.copy_with_probes(root / "src", copy)

        def note(part: str) -> dict[str, Any]:
            file = kept / f"{part}.json"
            of_part = [*root.glob(f"tests/{part}/**/*.py"), *parts[part]]
            key = _hash([*root.glob("src/**/*.py"), *of_part, Path(probes.__file__)])
            found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
            if found.get("key") != key:
                print(f"Which lines the tests of {part} run is found …", flush=True)
                found = {"key": key, **_noted(root, copy, parts[part])}
                file.write_text(json.dumps(found))
            return found

        with ThreadPoolExecutor(workers) as pool:
            every = list(
                pool.map(note, [part for part in parts if re.fullmatch(only or ".*", part)])
            )
    tests = [
        Test(name, test["work"], test["seconds"], probes.unpacked(test["entered"]))
        for found in every
        for name, test in found["tests"].items()
        if test["passed"]
    ]
    collected = reduce(or_, (probes.unpacked(found["collected"]) for found in every), 0)
    return Coverage(root / "src", tests, collected)


def _parts(root: Path) -> dict[str, list[Path]]:
    """The files of tests that may catch something, by the folder in ``tests``."""
    parts: dict[str, list[Path]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        inside = path.relative_to(root / "tests")
        if not _BLIND.search(path.relative_to(root).as_posix()):
            part = inside.parts[0] if len(inside.parts) > 1 else "alone"
            parts.setdefault(part, []).append(path)
    return parts


def _hash(paths: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for path in sorted(set(paths)):
        total.update(str(path).encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _noted(root: Path, source: Path, files: Sequence[Path]) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        kept = Path(folder, "kept.json")
        words = ["-p", "shipping.probes", *map(str, files)]
        more = {probes.KEPT_IN: str(kept)}
        status, output = pytest_on(root, source, Path(folder), words, more, None)
        if status not in (0, 1, 5):
            # The result of a part of the tests must not be cached as the result of all.
            raise RuntimeError(f"The tests ended with status {status}: {output[-2000:]}")
        found: dict[str, Any] = json.loads(kept.read_text())
        return found


def pytest_on(
    root: Path,
    source: Path,
    folder: Path,
    words: Sequence[str],
    more: dict[str, str],
    timeout: float | None,
) -> tuple[int, str]:
    """Run tests on a copy of the package; return the exit status (-1 after a timeout) and the
    output.

    Args:
        folder: a folder for the files of the run.
        timeout: the wall-clock limit in seconds; None for no limit.
    """
    words = [f"--basetemp={folder / 'tmp'}", *words]
    with _started(root, source, folder, words, more) as process:
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = -1
    return status, (folder / "output").read_text(errors="replace")


@contextmanager
def _started(
    root: Path,
    source: Path,
    folder: Path,
    words: Sequence[str],
    more: dict[str, str],
    handed: Sequence[int] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """A run of tests that ends with the block; its output is stored in the folder."""
    base = ["-q", "-p", "no:cacheprovider", "--tb=line"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)]),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        "OMP_NUM_THREADS": "1",
        **more,
    }
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *base, *words],
            cwd=root,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=handed,
        )
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


# -- one mutant ---


@dataclass(frozen=True)
class Outcome:
    """Outcome of a mutant: the test that killed it; empty if it survived."""

    mutant: Mutant
    caught_by: str
    tests: int
    seconds: float
    note: str = ""


def tried(
    root: Path, mutant: Mutant, coverage: Coverage, seconds: float, *, grace: float = _GRACE
) -> Outcome:
    """Run the tests of a mutant on a copy of the package that has it.

    Args:
        grace: the seconds by the clock for starting and collecting.
    """
    began = time.monotonic()
    limit = _CLOCK * seconds
    names = _within(coverage, coverage.of(mutant), seconds)
    with seeded(root, mutant) as folder:
        chosen = folder / "chosen.json"
        chosen.write_text(json.dumps({"tests": names, "seconds": seconds}))
        words = ["-x", "-p", "shipping.chosen", *dict.fromkeys(n.split("::")[0] for n in names)]
        status, output = 5, ""
        if names:
            status, output = pytest_on(
                root, folder / "src", folder, words, {CHOSEN: str(chosen)}, limit + grace
            )
        outcome = chosen.with_suffix(".outcome")
        last = json.loads(outcome.read_text()) if outcome.exists() else {}
    caught, note = _caught(status, last, output, limit)
    return Outcome(mutant, caught, len(names), time.monotonic() - began, note)


def tried_together(
    root: Path,
    mutants: Sequence[Mutant],
    coverage: Coverage,
    seconds: float,
    workers: int,
    told: Callable[[Outcome], None],
) -> list[Outcome]:
    """Run the tests of mutants in forks of one process; return the outcomes.

    Args:
        seconds: how long the tests of each may run.
    """
    by_name = {str(number): mutant for number, mutant in enumerate(mutants)}
    limit = max(_CLOCK * seconds, _LEAST_CLOCK)
    chosen = {
        name: _within(coverage, coverage.of(mutant), seconds) for name, mutant in by_name.items()
    }
    outcomes: dict[str, Outcome] = {}
    red: list[str] = []
    with TemporaryDirectory() as temporary:
        for line in _told(root, Path(temporary), by_name, chosen, seconds, limit, workers):
            name, last, status = line["name"], line["last"], line["status"]
            if name == forked.WITHOUT:
                red = last.get("failed", [])
            elif last.keys() & {"failed", "hangs", "over"} or status in (0, -1, 5):
                caught, note = _caught(status, last, "", limit)
                outcome = Outcome(by_name[name], caught, len(chosen[name]), line["seconds"], note)
                outcomes[name] = outcome
                told(outcome)
    # A test that also fails in a fork without a bug has killed nothing.
    return [outcome for outcome in outcomes.values() if outcome.caught_by not in red]


def every_kill(
    root: Path, mutants: Sequence[Mutant], coverage: Coverage, seconds: float, workers: int
) -> Iterator[tuple[Any, list[str], list[str]]]:
    """Run all tests of each mutant, not only until one fails; at last, failed tests without a bug.

    Args:
        seconds: how long the tests of each may run.

    Yields: a mutant, its tests and the failing ones; at the end, None and the tests that also fail
        without a mutant.
    """
    by_name = {str(number): mutant for number, mutant in enumerate(mutants)}
    chosen = {
        name: _within(coverage, coverage.of(mutant), seconds) for name, mutant in by_name.items()
    }
    limit = max(_CLOCK * seconds, _LEAST_CLOCK)
    untested = [name for name, tests in chosen.items() if not tests]
    for name in untested:
        yield by_name.pop(name), [], []
        del chosen[name]
    with TemporaryDirectory() as temporary:
        told = _told(root, Path(temporary), by_name, chosen, seconds, limit, workers, every=True)
        for line in told:
            last = line["last"]
            if line["name"] == forked.WITHOUT:
                yield None, [], last.get("failed", [])
            else:
                hangs = [last["hangs"]] if "hangs" in last else []
                killers = sorted({*last.get("failed", ()), *hangs})
                yield by_name[line["name"]], list(chosen[line["name"]]), killers


def _told(
    root: Path,
    folder: Path,
    mutants: dict[str, Mutant],
    chosen: dict[str, dict[str, float]],
    seconds: float,
    limit: float,
    workers: int,
    *,
    every: bool = False,
) -> Iterator[dict[str, Any]]:
    """Results of the fork of each mutant, as they arrive."""
    source = root / "src"
    bugs = {
        name: {
            "module": mutant.function.split(":")[0],
            "file": mutant.file,
            "bad": mutant.edited((source / mutant.file).read_text(encoding="utf-8")),
            "tests": chosen[name],
        }
        for name, mutant in mutants.items()
    }
    files = sorted({test.split("::")[0] for tests in chosen.values() for test in tests})
    ours, theirs = os.pipe()
    asked = {
        "bugs": bugs,
        "source": str(source),
        "seconds": seconds,
        "limit": limit,
        "workers": workers,
        "every": every,
        "told": theirs,
    }
    file = folder / "asked.json"
    file.write_text(json.dumps(asked))
    words = ["-x", "-p", "shipping.forked", *files]
    with (
        os.fdopen(ours, encoding="utf-8") as lines,
        _started(root, source, folder, words, {forked.FORKED: str(file)}, [theirs]),
    ):
        os.close(theirs)
        for line in lines:
            yield json.loads(line)


def _within(coverage: Coverage, names: Sequence[str], seconds: float) -> dict[str, float]:
    """The first tests that fit into a number of seconds, and the seconds after which each hangs."""
    takes = {test.name: test.work for test in coverage.tests}
    chosen, total = {}, 0.0
    for name in names:
        if total + takes[name] <= seconds:
            chosen[name] = _HANG * max(takes[name], 1.0)
            total += takes[name]
    return chosen


def _caught(status: int, last: dict[str, Any], output: str, limit: float) -> tuple[str, str]:
    """The test that caught a mutant, and a note."""
    if "failed" in last:
        return last["failed"][0], ""
    if "hangs" in last:
        return last["hangs"], "time-out"
    if "over" in last:
        return "", "its time was over"
    if status == -1 and "running" in last:
        # A test that waits for an event that never comes uses no processor time.
        waits = time.time() - last["since"] > limit / 2
        return (last["running"], "time-out") if waits else ("", "its time was over")
    if status in (0, 5):
        return "", "" if status == 0 else "no test runs its line"
    last_line = output.strip().splitlines()[-1] if output.strip() else ""
    return "(tests are not collected)", last_line


# -- all of them ---


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes of mutants, and the rate of each kind and origin."""
    lines = []
    for outcome in sorted(outcomes, key=lambda o: (bool(o.caught_by), o.mutant.function)):
        mutant = outcome.mutant
        ended = f"caught    {outcome.caught_by}" if outcome.caught_by else "SURVIVED "
        lines.append(f"{mutant.kind:8} {mutant.origin:7} {mutant.function}")
        lines.append(f"         {ended} {outcome.note}".rstrip())
        if not outcome.caught_by:
            lines.append(f"         of {outcome.tests} tests. {mutant.holds}")
    lines.append("")
    rooms = sorted({outcome.mutant.room for outcome in outcomes})
    for title, names in (("room", rooms), ("kind", KINDS), ("origin", ORIGINS)):
        for name in names:
            some = [o for o in outcomes if getattr(o.mutant, title) == name]
            lines.append(_rate(f"{title} {name}", some))
    return "\n".join([*lines, _rate("all", outcomes)])


def _rate(title: str, outcomes: Sequence[Outcome]) -> str:
    caught = sum(bool(outcome.caught_by) for outcome in outcomes)
    return f"{title:16} {caught:3} of {len(outcomes):3} caught"


def _runs_here(mutant: Mutant) -> bool:
    return mutant.room != "torch" or find_spec("torch") is not None


def main(words: Sequence[str] | None = None) -> None:
    """Run the mutants, print what became of them, and end with 1 where one survived.

    Args:
        words: the options, from the command line where None.
    """
    parser = argparse.ArgumentParser(prog="python -m shipping.mutants")
    parser.add_argument("--only", default="", help="mutants whose function has this pattern")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each one's tests run")
    parser.add_argument("--workers", type=int, default=2, help="how many are tried side by side")
    parser.add_argument("--named", action="store_true", help="run only the test in seen_by")
    asked = parser.parse_args(words)
    every = read(ROOT / "tests" / "mutants")
    for mutant in every:
        mutant.edited((ROOT / "src" / mutant.file).read_text(encoding="utf-8"))
    chosen = [m for m in every if re.search(asked.only, m.function) and _runs_here(m)]
    if asked.named:
        tests = [Test(name, 1.0, 1.0, 0) for name in sorted({m.seen_by for m in chosen})]
        coverage: Coverage = Named(ROOT / "src", tests)
    else:
        coverage = covered(ROOT, asked.workers)

    def tell(outcome: Outcome) -> None:
        what = f"caught by {outcome.caught_by}" if outcome.caught_by else "SURVIVED"
        print(f"{outcome.seconds:5.0f} s  {outcome.mutant.function}: {what} {outcome.note}")
        sys.stdout.flush()

    def alone(mutant: Mutant) -> Outcome:
        outcome = tried(ROOT, mutant, coverage, asked.seconds)
        tell(outcome)
        return outcome

    together = [mutant for mutant in chosen if coverage.forks(mutant)]
    outcomes = tried_together(ROOT, together, coverage, asked.seconds, asked.workers, tell)
    if asked.named:
        # A fork does not have a bug in code that ran while tests were collected.
        outcomes = [outcome for outcome in outcomes if outcome.caught_by]
    decided = [outcome.mutant for outcome in outcomes]
    with ThreadPoolExecutor(asked.workers) as pool:
        outcomes += pool.map(alone, [mutant for mutant in chosen if mutant not in decided])
    print(f"\n{table(outcomes)}")
    sys.exit(any(not outcome.caught_by for outcome in outcomes))


if __name__ == "__main__":
    main()
