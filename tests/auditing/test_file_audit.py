"""Audits of files of releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpgrain as dg
from dpgrain.auditing import Audit, FileAudit
from dpgrain.auditing.verdict import AuditLine, Bound

FILE = """
[budget]
unit = "user"
epsilon = 2.0
delta = 1e-6
[release.visits]
statistic = "count"
clip = 5.0
share = 0.5
[release.line]
fit = "linear"
features = ["paid"]
target = "y"
clip = 1.0
share = 0.5
"""
ROWS = pa.table({"who": [1, 2], "paid": [1.0, 2.0], "y": [1.0, 2.0]})


@pytest.mark.slow
def test_each_release_is_audited_or_states_why_not(tmp_path: Path) -> None:
    path = tmp_path / "releases.toml"
    path.write_text(FILE, encoding="utf-8")
    found = dg.audit_releases(path, dg.read(ROWS, user="who"), units=[1], seconds=1, random_state=1)
    audited = {*found, *found.by_hand}
    assert audited == {"visits", "line"}
    visits = found["visits"]
    assert visits.lines[0].claim == pytest.approx(
        dg.plan_releases(path, dg.read(ROWS, user="who")).releases[0].guarantee.epsilon()
    )
    # All bounds of both together have the confidence of the whole.
    assert visits.confidence == pytest.approx(0.995)
    assert found.verdict == "not audited"
    assert "visits: Lower bounds on ε of users" in str(found)
    pointer = " What the columns mean: .explain()"
    assert str(found).endswith(f": not audited ({next(iter(found.by_hand))}).{pointer}")
    assert set(found.to_dict()["releases"]) == set(found)


def audit(line: AuditLine) -> Audit:
    return Audit("user", 0.0, 0.99, (line,))


KEPT = audit(AuditLine(1, "zero_out", 1.0, Bound(0.7, 1.5), Bound(None)))
STILL = audit(AuditLine(1, "zero_out", 1.0, Bound(None), Bound(None)))
BROKEN = audit(AuditLine(1, "zero_out", 1.0, Bound(1.7, 1.0), Bound(None)))


@pytest.mark.parametrize(
    ("audits", "by_hand", "verdict"),
    [
        ({"a": KEPT}, {}, "kept"),
        ({"a": KEPT}, {"b": "why"}, "not audited"),
        ({"a": KEPT, "c": BROKEN}, {"b": "why"}, "violated"),
        ({}, {}, "not audited"),
        ({"a": KEPT, "c": STILL}, {}, "not audited"),
    ],
)
def test_a_file_is_as_good_as_its_worst_release(
    audits: dict[str, Audit], by_hand: dict[str, str], verdict: Any
) -> None:
    found = FileAudit(audits, by_hand, 0.99)
    assert found.verdict == verdict
    assert len(found) == len(audits)


def test_the_pointer_is_printed_once_and_exists() -> None:
    found = FileAudit({"a": KEPT, "b": KEPT}, {}, 0.99)
    assert str(found).count(".explain()") == 1
    assert str(found).endswith("Each release was audited separately; their joint ε was not.")
    assert "a: Audit of users" in found.explain()
    assert found.explain().count("seen from") == 2
