"""The evidence for each accounting event: mechanism, theorem, search, audit, and detected bugs.

    python -m shipping.proof          # the chains; ends with 1 where a piece is missing
    python -m shipping.proof --bugs   # and sees that each injected bug turns its test red (make proof)

Nothing is listed here. The events are the classes of ``accounting/events``; a mechanism is a module
that imports an event, or a function that builds one, from ``dpgrain.accounting``; the theorem is
the section of docs/theory in the event's docstring. A test names its events in
``@pytest.mark.proof("search", "Gaussian")``, or ``"audit"``; a bug of ``tests/mutants`` has
``event`` and the test that detects it (``seen_by``).
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from shipping.mutants import ROOT, Mutant, pytest_on, read, seeded

#: The page of the chains.
PAGE = Path("docs", "proof.md")
# Packages that publish nothing: they account for events, plan or describe them.
_SPEAK_OF_EVENTS = {"accounting", "auditing", "cli", "ledger", "planning", "report", "testing"}
# Events of mechanisms that callers run: the package charges none of them.
_OF_CALLERS = ("Participation", "RDP", "StatisticallyClose", "ZCDP")
# `docs/theory, "One" and "Two"`: sections that a docstring names.
_NAMED = re.compile(r'docs/theory,((?:(?:,|;| and)? "[^"]+")+)')
_SEARCH, _AUDIT = "search", "audit"


@dataclass(frozen=True)
class Section:
    """A section of the theory.

    Args:
        anchor: the anchor in that page; empty for all of it.
    """

    title: str
    page: str
    anchor: str

    @property
    def link(self) -> str:
        """The link from the page of the chains."""
        return f"[{self.title}](theory/{self.page}{self.anchor and '#'}{self.anchor})"


@dataclass(frozen=True)
class Chain:
    """The evidence for one event.

    Args:
        theorems: the sections of the theory with its proof.
        audits: the tests that compare outcomes on neighbours with it.
        bugs: the injected bugs of its mechanisms, and of itself.
    """

    event: str
    says: str
    mechanisms: tuple[str, ...]
    theorems: tuple[Section, ...]
    searches: tuple[str, ...]
    audits: tuple[str, ...]
    bugs: tuple[Mutant, ...]

    @property
    def of_callers(self) -> bool:
        """Whether callers run the mechanism themselves."""
        return self.event in _OF_CALLERS

    @property
    def missing(self) -> tuple[str, ...]:
        """The pieces that it lacks, each with where it is to be put."""
        marked = f'mark a test with @pytest.mark.proof("{{}}", "{self.event}")'
        pieces = (
            (self.mechanisms or self.of_callers, "mechanism", "no module publishes under it"),
            (self.theorems, "theorem", 'name it in its docstring: docs/theory, "…"'),
            (self.searches, "search", marked.format(_SEARCH)),
            (self.audits, "audit", marked.format(_AUDIT)),
            (self.bugs, "injected bug", f'add one with event = "{self.event}" to tests/mutants'),
        )
        lost = [
            f"{self.event} has no {name}: {where}." for there, name, where in pieces if not there
        ]
        if self.mechanisms and self.of_callers:
            lost.append(f"{self.event} has a mechanism here: it is no event of callers alone.")
        tests = (*self.searches, *self.audits)
        lost += [
            f"{bug.function}: its seen_by must be a search or an audit of {self.event}, "
            f"not {bug.seen_by!r}."
            for bug in self.bugs
            if bug.seen_by.partition("[")[0] not in tests
        ]
        return tuple(lost)

    def __str__(self) -> str:
        said = [self.event]
        rows = (
            ("mechanism", self.mechanisms or ("of callers",)),
            ("theorem", [f'docs/theory/{one.page}, "{one.title}"' for one in self.theorems]),
            ("search", self.searches),
            ("audit", self.audits),
            ("bug", [f"{bug.holds} [{bug.function}]" for bug in self.bugs]),
        )
        said += [f"  {name:9}  {line}" for name, lines in rows for line in lines]
        return "\n".join(said)


def chains(root: Path) -> list[Chain]:
    """Return the chain of each event, in the order of the files and of their classes."""
    events, sections = _events(root), _sections(root)
    mechanisms, tests = _mechanisms(root, set(events)), _tests(root)
    bugs = defaultdict(list)
    for bug in read(root / "tests" / "mutants"):
        if bug.event:
            bugs[bug.event].append(bug)
    unknown = {event for event, _ in tests} | bugs.keys()
    if lost := sorted(unknown - events.keys()):
        raise ValueError(f"No such event, of which a test or a bug says that it is: {lost}.")
    return [
        Chain(
            event,
            _first_sentence(docstring),
            tuple(mechanisms[event]),
            tuple(sections[title] for title in _titles(docstring) if title in sections),
            tuple(tests[event, _SEARCH]),
            tuple(tests[event, _AUDIT]),
            tuple(bugs[event]),
        )
        for event, docstring in events.items()
    ]


# -- the source tree ---


def _modules(folder: Path, said: str = "") -> Iterator[tuple[Path, ast.Module]]:
    """The modules of a folder that contain a word."""
    for path in sorted(folder.rglob("*.py")):
        if said in (text := path.read_text(encoding="utf-8")):
            yield path, ast.parse(text)


def _events(root: Path) -> dict[str, str]:
    """The closed list of events, each with its docstring."""
    return {
        node.name: ast.get_docstring(node) or ""
        for _, tree in _modules(root / "src" / "dpgrain" / "accounting" / "events")
        for node in tree.body
        if isinstance(node, ast.ClassDef) and "Event" in map(ast.unparse, node.bases)
    }


def _titles(docstring: str) -> list[str]:
    plain = " ".join(docstring.split())
    return [name for named in _NAMED.findall(plain) for name in re.findall('"([^"]+)"', named)]


def _first_sentence(docstring: str) -> str:
    return docstring.partition("\n\n")[0].replace("\n", " ").rstrip(".")


def _sections(root: Path) -> dict[str, Section]:
    """The sections of the theory, by the names that docstrings call them by."""
    found = {}
    for page in sorted((root / "docs" / "theory").glob("*.md")):
        for marks, line in re.findall(r"^(#+) (.*)$", page.read_text(encoding="utf-8"), re.M):
            name = re.sub(r"^\d\. ", "", line)
            anchor = re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-")
            for title in (name, name.partition(":")[0]):
                found[title] = Section(title, page.name, anchor if len(marks) > 1 else "")
    return found


def _mechanisms(root: Path, events: set[str]) -> dict[str, list[str]]:
    """The modules that import an event, or a function that builds one, from the accountant."""
    source = root / "src" / "dpgrain"
    made_of = {event: {event} for event in events}
    for _, tree in _modules(source / "accounting"):
        for name, node in _public(tree):
            for event in events & set(_names(node)):
                made_of[event].add(name)
    found = defaultdict(list)
    for path, tree in _modules(source, "accounting"):
        inside = path.relative_to(source)
        if inside.parts[0] in _SPEAK_OF_EVENTS:
            continue
        taken = set(_taken(tree))
        for event in events:
            if taken & made_of[event]:
                found[event].append(".".join(("dpgrain", *inside.with_suffix("").parts)))
    return found


def _public(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The public functions and constants of a module; not its classes, which are events or bases."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) if not name.startswith("_"):
                yield name, node
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                yield name, node


def _names(node: ast.AST) -> Iterator[str]:
    return (child.id for child in ast.walk(node) if isinstance(child, ast.Name))


def _taken(tree: ast.Module) -> Iterator[str]:
    """The names that a module takes from the accountant."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith("dpgrain.accounting"):
                yield from (alias.name for alias in node.names)
            case ast.Attribute(value=ast.Name(id="accounting"), attr=name):
                yield name


def _tests(root: Path) -> dict[tuple[str, str], list[str]]:
    """The tests of each event and kind, by their marks; none that only the longest run has."""
    found = defaultdict(list)
    for path, tree in _modules(root / "tests", "pytest.mark.proof("):
        for name, node in _functions(tree):
            marks = [ast.unparse(decorator) for decorator in node.decorator_list]
            for decorator in node.decorator_list:
                match decorator:
                    case ast.Call(func=function, args=[ast.Constant(str(kind)), *events]):
                        if ast.unparse(function) != "pytest.mark.proof":
                            continue
                        test = f"{path.relative_to(root).as_posix()}::{name}"
                        if kind not in (_SEARCH, _AUDIT):
                            raise ValueError(f"{test}: it is a search or an audit, not {kind!r}.")
                        if "pytest.mark.slow(full=True)" in marks:
                            raise ValueError(f"{test}: it is slow, so only make test-all runs it.")
                        for event in events:
                            found[ast.literal_eval(event), kind].append(test)
    return found


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}::{inner.name}", inner


# -- the page ---

_HEAD = """\
# Mechanisms, proofs and injected bugs

For each event of the [accountant](accounting.md), this page lists the modules that publish under
it, the section of the [theory](theory/index.md) with the proof of its formula, the tests that
search for neighbours that violate it, the audits that compare outcomes on neighbours with it, and
bugs injected into the code, each with a test that detects it. The page is generated from the
source. `make proof` generates it and runs each bug against its test; it names missing parts.
"""


def page(found: Sequence[Chain]) -> str:
    """Return the page of the chains."""
    parts = [_HEAD]
    for chain in found:
        rows = [
            ("mechanism", [f"`{name}`" for name in chain.mechanisms] or ["of callers"]),
            ("theorem", [one.link for one in chain.theorems]),
            ("search", [_as_code(name) for name in chain.searches]),
            ("audit", [_as_code(name) for name in chain.audits]),
        ]
        lines = [f"## {chain.event}", "", chain.says + ".", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {', '.join(cells)} |" for name, cells in rows]
        for bug in chain.bugs:
            test = bug.seen_by.partition("[")[0]
            lines.append(f"| injected bug | {bug.holds} `{bug.function}`; {_as_code(test)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _as_code(test: str) -> str:
    return f"`{test.removeprefix('tests/')}`"


# -- bugs and their tests ---


def unseen(
    root: Path, bugs: Sequence[Mutant], workers: int = 2, seconds: float = 300.0
) -> Iterator[tuple[Mutant, str]]:
    """Run the test of each mutant on a copy of the package; return undetected ones, and why.

    Args:
        seconds: how long the tests of one bug may take by the clock.
    """
    tests = list(dict.fromkeys(bug.seen_by for bug in bugs))
    with TemporaryDirectory() as folder:
        status, output = pytest_on(root, root / "src", Path(folder), tests, {}, None)
    if status:
        raise RuntimeError(f"The tests are red without a bug: {output[-2000:]}")
    why = {0: "its test stays green", 1: "", -1: "its test does not end"}

    def tried(bug: Mutant) -> str:
        with seeded(root, bug) as folder:
            words = ["-x", bug.seen_by]
            status, output = pytest_on(root, folder / "src", folder, words, {}, seconds)
        return why.get(status, output.strip()[-500:])

    with ThreadPoolExecutor(workers) as pool:
        yield from (
            (bug, said) for bug, said in zip(bugs, pool.map(tried, bugs), strict=True) if said
        )


def main(words: Sequence[str] | None = None) -> None:
    """Print the chains, and end with 1 where a piece is missing or a bug is not seen.

    Args:
        words: the options, from the command line where None.
    """
    parser = argparse.ArgumentParser(prog="python -m shipping.proof")
    parser.add_argument("--bugs", action="store_true", help="run each bug against its test")
    parser.add_argument("--only", default="", help="of the bugs, those of one event")
    asked = parser.parse_args(words)
    found = chains(ROOT)
    print("\n".join(map(str, found)))
    lost = [line for chain in found for line in chain.missing]
    if asked.bugs and not lost:
        bugs = [bug for chain in found for bug in chain.bugs if asked.only in ("", chain.event)]
        for bug, why in unseen(ROOT, bugs):
            lost.append(f"{bug.event}, {bug.function}: {why}.")
    print("\n".join(lost) or f"\n{len(found)} events; nothing is missing.")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
