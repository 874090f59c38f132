"""What ``make test`` runs of each long search, and what it leaves to ``make audit``.

A search is one test of many cases, marked ``@pytest.mark.search``; or it tries many examples that
hypothesis draws; or it has a loop of its own, over what the fixture ``some_of`` gives it, over a
product of options, of which the fixture ``strength`` says how many meet, or over odd inputs, whose
number the fixture ``inputs`` says. A test of any kind that
takes long is listed with its seconds in ``seconds.txt``, and the sample has as many of its cases as
fit in 0.7 seconds, or in those of its mark. What the sample tries is the same in every run: it
follows from the names of the tests and that list. The noise of a test follows from its name, in the
sample and in the rest of it; where everything runs, noise is new each time.
"""

from __future__ import annotations

import hashlib
import os
import random
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pytest
from hypothesis import is_hypothesis_test, settings
from numpy.typing import NDArray

from dpgrain.noise import SeededSource, SystemSource

#: The sample of each search, the rest of it, or everything.
Part = Literal["sample", "rest", "all"]
PARTS: tuple[Part, ...] = ("sample", "rest", "all")
#: Odd inputs that all tests of them share in each part.
INPUTS: dict[Part, int] = {"sample": 250, "rest": 10_000, "all": 1_000_000}

# File of the tests that take long, each with the processor seconds of one of its cases.
SECONDS = Path(__file__).with_name("seconds.txt")
# Folder of the mutants, some of which name a test that sees them.
MUTANTS = Path(__file__).with_name("mutants")
# Seconds of the sample for all cases of a test whose mark does not say others.
_ON_EACH = 0.7
# Seconds of all cases of a test together from which on it is listed.
_LISTED = 0.4

# Of examples and of turns of a loop a part tries one in this many, and no fewer than are worth a start.
_ONE_IN: dict[str, int] = {"sample": 5, "rest": 3, "all": 1}
_FEWEST_EXAMPLES = 15
_FEWEST_TURNS = 4

# Fixtures that tell a test how much it tries.
_SHORTENED = {"some_of", "strength", "inputs"}

# The sample and its rest draw the same examples in every run: what is red is what was changed.
# Where everything runs, examples are new each time.
settings.register_profile("sample", derandomize=True, deadline=None)
settings.register_profile("rest", derandomize=True, deadline=None)
settings.register_profile("all", deadline=None)


def load(part: Part) -> None:
    """Tell hypothesis how to draw; before modules of tests are imported."""
    settings.load_profile(part)


def examples(most: int) -> settings:
    """Hypothesis tries at most this many examples where everything runs, and fewer in a part."""
    few = most // _ONE_IN[settings.get_current_profile_name()]
    return settings(max_examples=min(most, max(few, _FEWEST_EXAMPLES)))


def sparse(many: int) -> int:
    """Return the number of cases for each that an audit tries; 1 elsewhere."""
    return many if settings.get_current_profile_name() == "rest" else 1


class Some(Protocol):
    """What shortens a loop."""

    def __call__(self, turns: Iterable[Any], audit: int | None = None) -> list[Any]:
        """Draw some turns of a loop, in their order; in an audit at most so many, or a third."""


def shortened(name: str, part: Part) -> Some:
    """How a test of this name shortens its loops.

    An audit has other turns than the sample, as far as there are.
    """
    draw = random.Random(name)

    def some(turns: Iterable[Any], audit: int | None = None) -> list[Any]:
        every = list(turns)
        sample, many = (max(len(every) // _ONE_IN[of], _FEWEST_TURNS) for of in ("sample", part))
        order = draw.sample(range(len(every)), len(every))
        if part != "sample":
            order = order[sample:] + order[:sample]
        if part == "rest" and audit is not None:
            many = audit
        return [every[i] for i in sorted(order[:many])]

    return some


def same_draws(name: str) -> Callable[[SystemSource, int], NDArray[np.uint64]]:
    """Return draws for a test of this name, the same in each run, in place of the operating system's.

    Among thousands of tests some would fail by chance, with nothing broken. Other processes that a
    test starts draw from the operating system.
    """
    source, process = SeededSource(int(hashlib.sha256(name.encode()).hexdigest(), 16)), os.getpid()
    draw = SystemSource.words

    def words(self: SystemSource, size: int) -> NDArray[np.uint64]:
        return source.words(size) if os.getpid() == process else draw(self, size)

    return words


def spread(cases: Mapping[str, frozenset[Hashable]], keep: int | None) -> set[str]:
    """Choose cases that show the values of all parameters, as evenly as they can.

    Args:
        cases: The values that each case shows, by the case's name.
        keep: How many to choose; as many as show each value once, if None.
    """
    left = sorted(cases, key=lambda name: hashlib.sha256(name.encode()).digest())
    chosen: set[str] = set()
    shown: set[Hashable] = set()
    while left and (keep is None or len(chosen) < keep):
        best = max(left, key=lambda name: len(cases[name] - shown))
        if not cases[best] - shown:
            # Each value is shown: a second time, if more cases are asked for.
            if keep is None or not shown:
                break
            shown.clear()
            continue
        left.remove(best)
        chosen.add(best)
        shown |= cases[best]
    return chosen


def _values(item: pytest.Function) -> frozenset[Hashable]:
    """The values of a case's parameters; those that are no plain words or numbers by their identity."""
    if not hasattr(item, "callspec"):
        return frozenset({item.nodeid})
    plain = (str, int, float, bool, type(None))
    return frozenset(
        (name, repr(value) if isinstance(value, plain) else id(value))
        for name, value in item.callspec.params.items()
    )


def seconds(file: Path = SECONDS) -> dict[str, float]:
    """The processor seconds of a case of each test that is listed."""
    if not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    return {name: float(number) for number, name in (line.split(" ", 1) for line in lines)}


class Search:
    """The cases of one test.

    Args:
        mark: the mark of a search, if it has one.
        a_case: the seconds of a case; None if the test is not listed.
        is_evidence: whether a proof or a mutant names the test, so that the sample has a case of it.
    """

    def __init__(
        self, mark: pytest.Mark | None, a_case: float | None, *, is_evidence: bool = False
    ) -> None:
        self.cases: dict[str, frozenset[Hashable]] = {}
        #: Cases that try more in the rest than in the sample, for themselves: odd inputs are shared.
        self.again: set[str] = set()
        self._mark = mark
        self._a_case = a_case
        self._fewest = int(is_evidence)

    def sample(self) -> set[str]:
        """The names of the cases that the sample runs."""
        on_each = self._mark.kwargs.get("seconds", _ON_EACH) if self._mark else _ON_EACH
        if self._a_case is None:
            # Each value once, or nothing of what has no seconds.
            return spread(self.cases, None) if on_each else set()
        return spread(self.cases, max(self._fewest, int(on_each / self._a_case)))

    def beyond(self, most: int) -> set[str]:
        """The names of the cases that are not among so many beside the sample.

        Where the sample has all of them, so many of those are left that try more in the rest.
        """
        sample = self.sample()
        rest, again = self.cases.keys() - sample, sample & self.again
        return (rest | again) - spread({name: self.cases[name] for name in rest or again}, most)


def searches(items: Iterable[pytest.Item]) -> list[Search]:
    """The tests that are marked as searches, or listed for the seconds that they take."""
    listed, named = seconds(), named_by_mutants()
    found: dict[str, Search] = {}
    for item in items:
        mark, name = item.get_closest_marker("search"), test_of(item.nodeid)
        if isinstance(item, pytest.Function) and (mark is not None or name in listed):
            is_evidence = name in named or item.get_closest_marker("proof") is not None
            search = found.setdefault(name, Search(mark, listed.get(name), is_evidence=is_evidence))
            search.cases[item.nodeid] = _values(item)
            if _tries_more(item) and "inputs" not in item.fixturenames:
                search.again.add(item.nodeid)
    return list(found.values())


def named_by_mutants(folder: Path = MUTANTS) -> set[str]:
    """The names of the tests that mutants are recorded to be seen by."""
    records = (tomllib.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.toml"))
    return {
        test_of(mutant["seen_by"])
        for record in records
        for mutant in record["mutant"]
        if "seen_by" in mutant
    }


def test_of(nodeid: str) -> str:
    """The name of a test without the parameters of a case."""
    return nodeid.split("[", 1)[0]


def left_out(items: Sequence[pytest.Item], part: Part, most: int | None) -> set[str]:
    """The names of the cases that a part of all tests does not run.

    Args:
        items: all cases.
        part: the part.
        most: the number of cases, apart from those in the sample, that are run of a search; all if
            None.
    """
    found = searches(items)
    rest = {name for search in found for name in search.cases.keys() - search.sample()}
    out = {
        item.nodeid for item in items if not _belongs(item, part, in_sample=item.nodeid not in rest)
    }
    return out if most is None else out.union(*(search.beyond(most) for search in found))


def _belongs(item: pytest.Item, part: Part, *, in_sample: bool) -> bool:
    """Whether a part has the case; two have one that tries fewer examples in the sample."""
    if part == "rest" and in_sample:
        return _tries_more(item)
    return part != "sample" or in_sample


def _tries_more(item: pytest.Item) -> bool:
    """Whether a case tries more in the rest than in the sample."""
    return is_hypothesis_test(getattr(item, "obj", None)) or not _SHORTENED.isdisjoint(
        getattr(item, "fixturenames", ())
    )


class Clock:
    """A plugin that measures the processor seconds of tests, and lists those that take long.

    Args:
        file: the list; what it holds of tests that do not run stays.
    """

    def __init__(self, file: Path = SECONDS) -> None:
        self._file = file
        self._spent: dict[str, list[float]] = defaultdict(list)
        self._cases: dict[str, int] = {}
        self._longer: set[str] = set()
        self._began = 0.0

    def count(self, items: Sequence[pytest.Item], part: Part) -> None:
        """Note how many cases each test has, of which a part of all tests runs a few.

        A test that tries more than it does in the sample tells nothing of its seconds there.
        """
        self._cases = Counter(test_of(item.nodeid) for item in items)
        if part != "sample":
            self._longer = {test_of(item.nodeid) for item in items if _tries_more(item)}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        """Note when a case begins."""
        self._began = _processor()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Write what a case took into its last report, which the first process gets."""
        report = yield
        name = test_of(report.nodeid)
        if call.when == "teardown" and name not in self._longer:
            report.user_properties.append(("seconds", _processor() - self._began))
            report.user_properties.append(("cases", self._cases[name]))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the seconds of a case."""
        noted: dict[str, Any] = dict(report.user_properties)
        if "seconds" in noted:
            name = test_of(report.nodeid)
            self._spent[name].append(noted["seconds"])
            self._cases[name] = noted["cases"]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the list, in the first process."""
        if hasattr(session.config, "workerinput"):
            return
        listed = seconds(self._file)
        for name, spent in self._spent.items():
            listed.pop(name, None)
            a_case = sum(spent) / len(spent)
            if a_case * self._cases[name] >= _LISTED:
                listed[name] = a_case
        lines = [f"{listed[name]:.2g} {name}\n" for name in sorted(listed)]
        self._file.write_text("".join(lines), encoding="utf-8")


def _processor() -> float:
    """The processor seconds of this process, and of those that it has waited for."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system
