"""The matrix has each mechanical bug with all tests that kill it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shipping.matrix import (
    by_function,
    drawn,
    drawn_for,
    fill,
    fill_restricted,
    known,
    mechanical,
    redundant,
)
from shipping.mutants import Coverage, Late

SUMS = "src/dpgrain/room/sums.py"


def edits(root: Path) -> set[tuple[str, str, str]]:
    found = mechanical(root / SUMS, root / "src")
    return {(bug.function.split(":")[1], bug.old, bug.new) for bug in found}


def test_operators_constants_comparisons_and_statements_are_changed(root: Path) -> None:
    found = edits(root)
    assert {
        ("Sum.doubled", "FACTOR * once(1)", "(FACTOR / once(1))"),
        ("Sum.waits", "left > 0", "(left >= 0)"),
        ("Sum.waits", "left -= 1", "pass"),
        ("once", "5", "(6)"),
        ("once", "return y", "return None"),
    } <= found
    # A constant outside of functions would need a separate process.
    assert not [edit for edit in found if edit[1] == "2" and edit[0] == "FACTOR"]


def test_the_same_bugs_are_drawn_in_every_run(root: Path) -> None:
    assert drawn(root / "src", 4) == drawn(root / "src", 6)[:4]


def test_every_killer_of_a_bug_is_recorded_once(
    root: Path, coverage: Coverage, tmp_path: Path
) -> None:
    matrix = tmp_path / "matrix.jsonl"
    every = mechanical(root / SUMS, root / "src")
    bugs = [bug for bug in every if bug.function.endswith("Sum.doubled") and bug.old == "1"]
    for _ in range(2):
        fill(root, bugs, coverage, 2.0, 1, matrix)
    [line] = [json.loads(line) for line in matrix.read_text().splitlines() if "ran" in line][:1]
    row = known(matrix)[line["key"]]
    assert row == line
    killers = {name.split("::")[1] for name in row["killed_by"]}
    assert killers == {"test_doubled", "test_doubled_again"}
    [gone] = redundant([{**row, "ran": row["killed_by"]}])
    assert gone in row["killed_by"]


def test_test_with_a_unique_kill_stays() -> None:
    rows = [{"ran": ["a", "b"], "killed_by": ["a"]}, {"ran": ["b", "c"], "killed_by": ["b", "c"]}]
    assert redundant(rows) == ["b"]


def parts_of(coverage: Coverage, *may_go: str) -> tuple[Late, Late]:
    groups: tuple[list[Any], list[Any]] = ([], [])
    for test in coverage.tests:
        groups[test.name.split("::")[1] in may_go].append(test)
    stay, go = (Late(coverage.source, group) for group in groups)
    return stay, go


def test_candidates_run_only_with_bugs_surviving_all_others(
    root: Path, coverage: Coverage, tmp_path: Path
) -> None:
    stay, go = parts_of(coverage, "test_doubled_again", "test_large")
    bugs = drawn_for(root / "src", 100, go)
    assert {bug.function.split(":")[1] for bug in bugs} == {"Sum.doubled", "once"}
    matrix = tmp_path / "matrix.jsonl"
    fill_restricted(root, bugs, stay, go, 2.0, 1, matrix)
    rows = known(matrix)
    red = rows.pop("without")["killed_by"]
    assert not red
    found = [by_function(row, red) for row in rows.values()]
    killers = {name for row in found for name in row["killed_by"]}
    assert {name.split("::")[1] for name in killers} == {"test_doubled", "test_large"}
    gone = redundant(found, [test.name for test in go.tests])
    assert "test_large" not in {name.split("::")[1] for name in gone}


def test_removed_checks_are_all_drawn(tmp_path: Path) -> None:
    text = """from dpgrain import _validate

def twice(x):
    if x < 0:
        raise ValueError(f"not {x + 1}")
    return 2 * _validate.positive(x=x)
"""
    file = tmp_path / "sums.py"
    file.write_text(text)
    checks = {(bug.old, bug.new) for bug in mechanical(file, tmp_path) if bug.checks}
    assert checks == {
        ('raise ValueError(f"not {x + 1}")', "pass"),
        ("_validate.positive(x=x)", "(x)"),
    }
