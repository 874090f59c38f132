"""Mutants change the stated lines, and tests that run these lines catch them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from shipping.mutants import (
    Coverage,
    EditError,
    Mutant,
    Outcome,
    covered,
    read,
    table,
    tried,
    tried_together,
)
from tests.shipping.sample import MODULE


def mutant(function: str, old: str, new: str) -> Mutant:
    test = "tests/room/test_sums.py::test_large"
    return Mutant(f"dpgrain.room.sums:{function}", "It holds.", "number", "module", test, old, new)


def names(coverage: Coverage, of: Mutant) -> list[str]:
    return [name.split("::")[1] for name in coverage.of(of)]


@pytest.mark.slow
def test_tests_of_a_line_come_first_and_failing_never(coverage: Coverage) -> None:
    found = names(coverage, mutant("once", "return x + 1", "return x"))
    assert found[0] == "test_large"
    # Tests of the mirrored file follow; tests that fail without a mutant, or start Spark, cannot
    # catch one.
    assert set(found[1:]) == {"test_doubled", "test_doubled_again", "test_waits"}


def test_shared_request_is_run_by_its_first_caller(coverage: Coverage) -> None:
    assert names(coverage, mutant("once", "y = x", "y = 0"))[0] == "test_doubled"


def test_constant_is_run_by_its_users(coverage: Coverage) -> None:
    found = names(coverage, mutant("FACTOR", "2", "3"))
    assert set(found[:2]) == {"test_doubled", "test_doubled_again"}


def test_results_are_cached_until_a_file_changes(root: Path, coverage: Coverage) -> None:
    kept = root / "build" / "mutants" / "room.json"
    before = kept.stat().st_mtime_ns
    assert covered(root).tests == coverage.tests
    assert kept.stat().st_mtime_ns == before


SEEDED = [
    ("once", "return x + 1", "return x", "test_large"),
    ("Sum.doubled", "FACTOR *", "", "test_doubled"),
    ("FACTOR", "2", "3", "test_doubled"),
    ("once", "x > 5", "x > 6", ""),
    ("Sum", "left -= 1", "left += 0", "test_waits"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("function", "old", "new", "caught_by"), SEEDED)
def test_a_bug_is_caught_or_survives(
    root: Path, coverage: Coverage, function: str, old: str, new: str, caught_by: str
) -> None:
    outcome = tried(root, mutant(function, old, new), coverage, seconds=2.0, grace=20.0)
    assert outcome.caught_by.split("::")[-1].startswith(caught_by)
    assert bool(outcome.caught_by) == bool(caught_by)
    assert (outcome.note == "time-out") == (new == "left += 0")


@pytest.mark.slow
def test_a_fork_has_the_verdict_of_a_copy(root: Path, coverage: Coverage) -> None:
    seeded = {mutant(*edit): caught_by for *edit, caught_by in SEEDED}
    told: list[Outcome] = []
    inside = [m for m in seeded if coverage.forks(m)]
    assert [m.function.split(":")[1] for m in seeded if m not in inside] == ["FACTOR"]
    outcomes = tried_together(root, inside, coverage, 1.5, 2, told.append)
    assert {o.mutant for o in outcomes} == {o.mutant for o in told} == set(inside)
    for outcome in outcomes:
        caught_by = seeded[outcome.mutant]
        assert outcome.caught_by.split("::")[-1].startswith(caught_by)
        assert bool(outcome.caught_by) == bool(caught_by)
        assert (outcome.note == "time-out") == (caught_by == "test_waits")


def test_code_run_during_collection_is_not_forked(root: Path, coverage: Coverage) -> None:
    assert not coverage.forks(mutant("early", "x + 2", "x + 3"))
    assert coverage.forks(mutant("early", "2\n    return x", "2\n    return x + 1"))


@pytest.mark.slow
def test_failures_without_a_bug_catch_nothing(root: Path, coverage: Coverage) -> None:
    red = replace(coverage.tests[0], name="tests/room/test_sums.py::test_red", entered=-1, work=0.0)
    known = replace(coverage, tests=[red])
    seeded = mutant("once", "return x + 1", "return x")
    told: list[Outcome] = []
    assert not tried_together(root, [seeded], known, 1.0, 1, told.append)
    assert [outcome.caught_by for outcome in told] == [red.name]


@pytest.mark.slow
def test_incomplete_map_is_not_stored(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tests" / "room").mkdir(parents=True)
    (tmp_path / "src").mkdir()
    ends = "import os\n\ndef test_end():\n    os.kill(os.getpid(), 2)\n"
    (tmp_path / "tests" / "room" / "test_ends.py").write_text(ends)
    (tmp_path / "pyproject.toml").write_text((root / "pyproject.toml").read_text())
    with pytest.raises(RuntimeError, match="status 2"):
        covered(tmp_path)
    assert not [*(tmp_path / "build" / "mutants").iterdir()]


def test_package_is_unchanged(root: Path) -> None:
    assert (root / "src/dpgrain/room/sums.py").read_text("utf-8") == MODULE


@pytest.mark.parametrize(
    ("function", "old", "new", "message"),
    [
        ("gone", "x", "y", "no such name"),
        ("once", "x + 2", "x", "0 times"),
        ("once", "x", "y", "times, not once"),
        ("once", "return y", "return (", "no Python"),
        ("once", "return y", "return (y)", "changes nothing"),
    ],
)
def test_inapplicable_edit_is_an_error(function: str, old: str, new: str, message: str) -> None:
    with pytest.raises(EditError, match=message):
        mutant(function, old, new).edited(MODULE)


def test_edit_changes_only_one_function() -> None:
    bad = mutant("Sum.waits", "return left", "return 1").edited(MODULE)
    assert bad == MODULE.replace("return left", "return 1")
    assert mutant("Sum.waits", "left -= 1", "left -= 2").lines(MODULE) == range(15, 16)


def test_entries_are_checked(tmp_path: Path) -> None:
    entry = (
        '[[mutant]]\nfunction = "dpgrain.room.sums:once"\nproperty = "It holds."\n'
        'kind = "number"\norigin = "tests"\nseen_by = "tests/room/test_sums.py::test_large"\n'
        "old = '''y = x'''\nnew = '''y = 0'''\n"
    )
    (tmp_path / "room.toml").write_text(entry)
    (found,) = read(tmp_path)
    assert (found.room, found.kind, found.old) == ("room", "number", "y = x")
    assert found.seen_by == "tests/room/test_sums.py::test_large"
    for wrong in (
        entry.replace("number", "large"),
        entry.replace("property", "what"),
        entry.replace("dpgrain.room", "dpgrain.hall"),
        entry.replace("seen_by", "# seen_by"),
        entry.replace("::test_large", ""),
        entry.replace("tests/room", "tests/docs"),
    ):
        (tmp_path / "room.toml").write_text(wrong)
        with pytest.raises(EditError):
            read(tmp_path)


def test_rate_is_reported_by_type_and_origin() -> None:
    one, two = mutant("once", "y = x", "y = 0"), mutant("FACTOR", "2", "3")
    said = table([Outcome(one, "tests/a.py::test", 3, 1.0), Outcome(two, "", 5, 1.0)])
    assert "number" in said
    assert "origin module      1 of   2 caught" in said
    assert "of 5 tests. It holds." in said
