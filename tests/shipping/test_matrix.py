"""The matrix has each mechanical bug with all tests that kill it."""

from __future__ import annotations

import json
from pathlib import Path

from shipping.matrix import drawn, fill, known, mechanical, redundant
from shipping.mutants import Coverage

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
    } <= found
    # A constant outside of functions would need a process of its own.
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
    [line] = matrix.read_text().splitlines()
    [row] = known(matrix).values()
    assert row == json.loads(line)
    killers = {name.split("::")[1] for name in row["killed_by"]}
    assert killers == {"test_doubled", "test_doubled_again"}
    [gone] = redundant([{**row, "ran": row["killed_by"]}])
    assert gone in row["killed_by"]


def test_a_test_whose_kill_is_unique_stays() -> None:
    rows = [{"ran": ["a", "b"], "killed_by": ["a"]}, {"ran": ["b", "c"], "killed_by": ["b", "c"]}]
    assert redundant(rows) == ["b"]
