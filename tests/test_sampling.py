"""Of each long search `make test` runs a sample, and `make audit` all that the sample leaves out."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from tests.sampling import PARTS, SECONDS, load, seconds, shortened, sparse, spread

CASES = {
    f"{word}-{number}-{last}": frozenset({("word", word), ("number", number), ("last", last)})
    for word, number, last in itertools.product("abcd", range(3), (True, False))
}

SEARCHES = """
import pytest
from hypothesis import given, strategies as st
from tests.sampling import examples

@pytest.mark.search
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("word", ["a", "b"])
@pytest.mark.parametrize("kind", [int, float])
def test_product(word, number, kind): pass

def test_expensive(): pass

@pytest.mark.proof("search", "Gaussian")
@pytest.mark.parametrize("number", range(3))
def test_of_a_proof(number): pass

@pytest.mark.parametrize("number", range(3))
def test_that_sees_a_mutant(number): pass

@pytest.mark.search(seconds=20)
@pytest.mark.parametrize("number", range(9))
def test_contract(number): pass

@pytest.mark.parametrize("number", range(3))
def test_plain(number): pass

class TestOne:
    @pytest.mark.parametrize("number", range(5))
    def test_in_class(self, number): pass

    @pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)])
    def test_other_in_class(self, number): pass

class TestTwo(TestOne): pass

@pytest.mark.search(seconds=0)
def test_elsewhere(): pass

def test_loop(some_of): pass

@pytest.mark.search
@pytest.mark.parametrize("number", range(4))
def test_loops(some_of, number): pass

@given(st.integers())
@examples(50)
def test_random(number): pass
"""


LONG = """
import time, pytest

@pytest.mark.parametrize("number", range(4))
def test_long(number):
    began = time.process_time()
    while time.process_time() < began + 0.2: pass

def test_longer(strength):
    began = time.process_time()
    while time.process_time() < began + 0.3 * strength: pass
"""

LISTED = """\
5.5 tests/test_it.py::test_contract
1.1 tests/test_it.py::test_expensive
2.1 tests/test_it.py::test_of_a_proof
2.2 tests/test_it.py::test_that_sees_a_mutant
0.6 tests/test_it.py::TestOne::test_in_class
0.6 tests/test_it.py::TestOne::test_other_in_class
0.3 tests/test_it.py::TestTwo::test_in_class
"""


def values(names: set[str]) -> set[object]:
    return set().union(*(CASES[name] for name in names))


def test_each_value_is_shown_by_the_fewest_cases() -> None:
    found = spread(CASES, None)
    assert values(found) == values(set(CASES))
    assert len(found) == 4


@pytest.mark.parametrize("keep", [0, 1, 2, 4, 8, 23, 24, 30])
def test_as_many_as_asked_for_are_spread_evenly(keep: int) -> None:
    found = spread(CASES, keep)
    assert len(found) == min(keep, 24)
    if keep == 8:
        # Each word is shown twice, each number two times or three.
        counts = [sum(value in CASES[name] for name in found) for value in values(found)]
        assert min(counts) == 2
    assert spread(CASES, keep) == found


def test_an_audit_runs_so_many_cases_more(searches: Path) -> None:
    sample, rest = _collected(searches), _collected(searches, "--search=rest")
    most = _collected(searches, "--search=rest", "--most=2")
    assert most < rest
    product = {name for name in most if "test_product" in name}
    assert len(product) == 2
    assert not product & sample
    # Of those that are all in the sample, and try more here, so many are run again.
    again = {name for name in most if "test_loops" in name}
    assert len(again) == 2
    assert again < sample & rest
    # What is no product of cases is left whole.
    assert {name for name in rest if "test_random" in name} <= most


def test_the_sample_does_not_depend_on_the_order_of_cases() -> None:
    assert spread(dict(reversed(CASES.items())), 5) == spread(CASES, 5)


def test_a_loop_is_whole_where_everything_runs() -> None:
    some = shortened("a test", "sample")
    first, second = some(range(100)), some(range(100))
    assert len(first) == len(second) == 20
    assert first == sorted(first) != second
    assert shortened("a test", "sample")(range(100)) == first
    assert shortened("another test", "sample")(range(100)) != first
    assert len(some(range(7))) == 4
    assert some("abc") == ["a", "b", "c"]
    assert len(shortened("a test", "rest")(range(100))) == 33
    assert shortened("a test", "all")(range(100)) == list(range(100))


def test_an_audit_alone_is_sparse() -> None:
    now, found = settings.get_current_profile_name(), {}
    try:
        for part in PARTS:
            load(part)
            found[part] = sparse(7)
    finally:
        settings.load_profile(now)
    assert found == {"sample": 1, "rest": 7, "all": 1}


def test_an_audit_draws_other_turns_of_a_long_loop_than_the_sample() -> None:
    sample = shortened("a test", "sample")(range(100), 30)
    audit = shortened("a test", "rest")(range(100), 30)
    assert (len(sample), len(audit)) == (20, 30)
    assert audit == sorted(audit)
    assert not set(audit) & set(sample)
    assert shortened("a test", "rest")(range(100), 30) == audit
    # Where there are too few others, some of the sample's are tried again.
    most = shortened("a test", "rest")(range(100), 90)
    assert len(most) == len(set(most)) == 90
    assert set(range(100)) - set(sample) < set(most)
    assert shortened("a test", "rest")(range(30), 30) == list(range(30))
    assert shortened("a test", "all")(range(100), 30) == list(range(100))


def _collected(folder: Path, *options: str) -> set[str]:
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    words += ["--rootdir", str(folder), "-c", str(folder / "pytest.ini"), *options]
    # Options of the outer run, such as -v, would change what the inner one prints.
    plain = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    found = subprocess.run(
        words, capture_output=True, text=True, cwd=folder, env=plain, check=False
    )
    return {line for line in found.stdout.splitlines() if "::" in line}


@pytest.fixture
def searches(tmp_path: Path) -> Path:
    here = Path(__file__).parent
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "sampling.py"):
        (tmp_path / "tests" / name).write_text((here / name).read_text(encoding="utf-8"))
    (tmp_path / "tests" / "seconds.txt").write_text(LISTED)
    (tmp_path / "tests" / "test_it.py").write_text(SEARCHES)
    (tmp_path / "tests" / "mutants").mkdir()
    (tmp_path / "tests" / "mutants" / "some.toml").write_text(
        '[[mutant]]\nseen_by = "tests/test_it.py::test_that_sees_a_mutant[1]"\n[[mutant]]\n'
    )
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\nmarkers =\n  search(seconds): x\n  proof: x\n  slow: x\n"
        "addopts = --import-mode=importlib -m 'not slow'\n"
    )
    return tmp_path


def test_sample_and_rest_are_everything(searches: Path) -> None:
    sample = _collected(searches)
    rest = _collected(searches, "--search=rest")
    everything = _collected(searches, "--search=all")
    at = "tests/test_it.py::"
    # Of random searches and loops both parts try examples, of slow tests neither.
    loops = {f"{at}test_loops[{number}]" for number in range(4)}
    assert sample & rest == {f"{at}test_random", f"{at}test_loop", *loops}
    assert sample | rest == everything
    assert len(everything) == 16 + 1 + 2 * 3 + 1 + 9 + 3 + 2 * (5 + 1) + 2 + 4
    assert {f"{at}test_expensive", f"{at}test_elsewhere"} <= rest - sample
    # As many cases as fit in a second, or in the seconds of the mark. Each class has a sample of its
    # own, and the case that is not slow is the one to keep.
    for name, many in {
        "test_product": 4,
        "test_contract": 3,
        "test_of_a_proof": 1,
        "test_that_sees_a_mutant": 1,
        "TestOne::test_in_class": 1,
        "TestTwo::test_in_class": 2,
        "TestOne::test_other_in_class": 1,
    }.items():
        assert len({case for case in sample if case.startswith(f"{at}{name}[")}) == many, name


def test_what_is_asked_for_by_name_runs_whole(searches: Path) -> None:
    names = [f"tests/test_it.py::{name}" for name in ("test_product", "test_expensive")]
    assert len(_collected(searches, *names)) == 16 + 1


def test_a_run_lists_what_takes_long(searches: Path) -> None:
    """A test that has become quick leaves the list; one that does not run stays in it."""
    (searches / "tests" / "test_long.py").write_text(LONG)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--note-seconds"]
    words += ["--rootdir", str(searches), "-c", str(searches / "pytest.ini")]
    subprocess.run([*words, "-n", "1"], check=True, cwd=searches, capture_output=True)
    listed = seconds(searches / "tests" / "seconds.txt")
    long = listed.pop("tests/test_long.py::test_long")
    # The mean of the cases, not their sum; a clock that ticks every hundredth may miss two of them.
    assert 0.15 < long < 0.6
    longer = listed.pop("tests/test_long.py::test_longer")
    assert 0.55 <= longer < 0.9
    assert listed == {"tests/test_it.py::test_expensive": 1.1}
    # One case is left to the rest; it takes little, but all four do not.
    words += ["--search=rest", "--most=1"]
    subprocess.run([*words, "-n", "1"], check=True, cwd=searches, capture_output=True)
    listed = seconds(searches / "tests" / "seconds.txt")
    assert "tests/test_long.py::test_long" in listed
    # What it takes to try more says nothing of the sample.
    assert listed["tests/test_long.py::test_longer"] == longer


def test_what_is_listed_is_there() -> None:
    for name in seconds():
        path, *inside = name.split("::")
        text = (SECONDS.parents[1] / path).read_text(encoding="utf-8")
        kind = "class" if len(inside) > 1 else "def"
        assert f"{kind} {inside[0]}" in text, f"{name} moved: move its line of tests/seconds.txt."
