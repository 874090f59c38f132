"""``make test`` tries a few cases of each test, ``make nightly`` more; both repeat themselves."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from tests.effort import LEVELS, Effort, Level, cases_of, load, named_by_mutants, spread
from tests.effort import test_of as name_of

CASES = {
    f"{word}-{number}-{last}": frozenset({("word", word), ("number", number), ("last", last)})
    for word, number, last in itertools.product("abcd", range(3), (True, False))
}

TESTS = """
import pytest
from hypothesis import given, strategies as st

@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("word", ["a", "b"])
@pytest.mark.parametrize("kind", [int, float])
def test_product(word, number, kind): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.slow
@pytest.mark.proof("search", "Gaussian")
@pytest.mark.parametrize("number", range(3))
def test_of_a_proof(number): pass

@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_kills_a_mutant(number): pass

@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("number", range(9))
def test_contract(number): pass

@pytest.mark.parametrize("number", [0, 1, pytest.param(2, marks=pytest.mark.slow(full=True))])
def test_plain(number): pass

class TestOne:
    @pytest.mark.parametrize("number", range(5))
    def test_in_class(self, number): pass

@pytest.mark.slow(full=True)
class TestTwo(TestOne): pass
"""


def values(names: set[str]) -> Counter[object]:
    return Counter(value for name in names for value in CASES[name])


@pytest.mark.parametrize("times", [1, 2, 3])
def test_spread_shows_each_value_n_times(times: int) -> None:
    found = spread(CASES, times)
    assert min(values(found).values()) >= times
    assert values(found).keys() == values(set(CASES)).keys()
    assert len(found) <= 5 * times


def test_spread_stops_at_a_number_of_cases() -> None:
    assert [len(spread(CASES, 1, most)) for most in range(4)] == [0, 1, 2, 3]


def test_spread_ignores_the_order_of_cases() -> None:
    assert spread(dict(reversed(CASES.items())), 1) == spread(CASES, 1)


def test_loops_grow_with_effort() -> None:
    few, more, every = (Effort(level, "a test") for level in LEVELS.values())
    assert len(few.some(range(100))) == 20
    assert len(more.some(range(100))) == 60
    assert every.some(range(100)) == list(range(100))
    assert few.some(range(100)) == sorted(few.some(range(100)))
    assert few.some(range(100)) != Effort(1, "another test").some(range(100))
    assert few.some("abc") == ["a", "b", "c"]
    assert [each.strength for each in (few, more, every)] == [2, 3, None]
    assert few.inputs < more.inputs < every.inputs


@pytest.mark.parametrize("level", LEVELS.values())
def test_examples_grow_with_effort_and_are_equal_below_full(level: Level) -> None:
    now = settings.get_current_profile_name()
    before = settings.get_profile(now)
    try:
        load(level)
        found = settings.default
        assert found is not None
        assert found.derandomize == (level is not None)
        assert found.max_examples == {1: 20, 3: 60, None: 300}[level]
    finally:
        settings.register_profile(now, before)
        settings.load_profile(now)


def _collected(folder: Path, *runs: list[str]) -> list[Counter[str]]:
    """The tests of runs with these options, by their names; one process imports the package."""
    words = ["--collect-only", "-q", "-p", "no:cacheprovider"]
    words += ["--rootdir", str(folder), "-c", str(folder / "pytest.ini")]
    code = f"import pytest\nfor options in {runs!r}:\n    print('RUN', flush=True)\n"
    code += f"    pytest.main([*{words!r}, *options])"
    # Options of the outer run, such as -v, would change what the inner one prints.
    plain = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env=plain,
        check=False,
    )  # fmt: skip
    names = [
        [line for line in part.splitlines() if "::" in line] for part in found.stdout.split("RUN")
    ]
    return [Counter(name.split("::", 1)[1].split("[")[0] for name in each) for each in names[1:]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    here = Path(__file__).parent
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "effort.py", "reused_databases.py"):
        (tmp_path / "tests" / name).write_text((here / name).read_text(encoding="utf-8"))
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    (tmp_path / "tests" / "mutants").mkdir()
    (tmp_path / "tests" / "mutants" / "some.toml").write_text(
        '[[mutant]]\nseen_by = "tests/test_it.py::test_kills_a_mutant[1]"\n'
    )
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\nmarkers =\n  proof: x\n  slow: x\n"
        "addopts = --import-mode=importlib\n"
    )
    return tmp_path


@pytest.mark.slow(cases=1)
def test_a_run_tries_the_cases_of_its_effort(folder: Path) -> None:
    always = {"test_of_a_proof": 1, "test_kills_a_mutant": 1, "test_plain": 2}
    few, more, whole, by_name = _collected(
        folder,
        [],
        ["--effort=3"],
        ["--effort=full"],
        ["tests/test_it.py::test_product", "tests/test_it.py::test_slow"],
    )
    assert few == always | {
        "test_product": 4,
        "test_contract": 2,
        "TestOne::test_in_class": 5,
    }
    assert 8 <= more.pop("test_product") <= 12
    assert more == {
        "test_slow": 1,
        "test_of_a_proof": 3,
        "test_kills_a_mutant": 3,
        "test_contract": 9,
        "test_plain": 2,
        "TestOne::test_in_class": 5,
    }
    assert whole.total() == 16 + 1 + 3 + 3 + 9 + 3 + 5 + 5
    assert by_name == {"test_product": 16, "test_slow": 1}


def test_case_named_by_a_mutant_is_tried() -> None:
    assert named_by_mutants()
    marks = (None, *(pytest.mark.slow(cases=count).mark for count in (0, 2)))
    for (test, named), slow in itertools.product(named_by_mutants().items(), marks):
        others = {f"{test}[{number}]": frozenset({"x"}) for number in ["other", "more"]}
        cases = {**dict.fromkeys(named, frozenset({"x"})), **others}
        found = cases_of(test, slow, cases, 1)
        assert named <= found
        assert {name_of(name) for name in named} == {test}


def test_named_case_does_not_replace_the_number_of_cases() -> None:
    test, named = next((test, names) for test, names in named_by_mutants().items() if names)
    cases = {name: frozenset({name}) for name in (*named, *(f"{test}[{n}]" for n in range(20)))}
    found = cases_of(test, pytest.mark.slow(cases=9).mark, cases, 1)
    assert named <= found
    assert len(found) >= 9
