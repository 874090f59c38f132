"""Verdicts follow from claims, bounds and the power of the audit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dpgrain.auditing.verdict import Audit, AuditLine, Bound

NONE = Bound(None)


@pytest.mark.parametrize(
    ("free", "named", "verdict"),
    [
        (Bound(0.7, 1.5), NONE, "kept"),
        (Bound(0.7, 3.0), Bound(0.6, 2.0), "kept"),
        (Bound(0.7, 3.0), NONE, "weak"),
        (Bound(0.7, None), NONE, "weak"),
        (Bound(1.01, 1.0), Bound(0.5, 1.5), "violated"),
        (Bound(0.5, 1.5), Bound(1.01, 1.0), "violated"),
        (Bound(float("inf"), 1.0), NONE, "violated"),
        (NONE, NONE, "not audited"),
    ],
)
def test_a_line_has_a_verdict(free: Bound, named: Bound, verdict: str) -> None:
    assert AuditLine(1, "zero_out", 1.0, free, named).verdict == verdict


def audit(*lines: AuditLine, **how: Any) -> Audit:
    return Audit("user", 1e-6, 0.99, lines, **how)


KEPT = AuditLine(1, "zero_out", 1.0, Bound(0.7, 1.5), NONE)
WEAK = AuditLine(2, "zero_out", 1.0, Bound(0.1, float("inf")), NONE)
BROKEN = AuditLine(1, "replace", 1.0, Bound(float("inf"), 1.0), NONE)
STILL = AuditLine(1, "replace", 1.0, NONE, NONE)


def test_an_audit_is_as_good_as_its_worst_line() -> None:
    assert audit(KEPT, STILL).verdict == "kept"
    assert audit(KEPT, WEAK).verdict == "weak"
    assert audit(KEPT, WEAK, BROKEN).verdict == "violated"
    assert audit(STILL, WEAK).verdict == "weak"
    assert audit(STILL).verdict == audit().verdict == "not audited"


def test_audit_prints_claim_bound_and_power() -> None:
    said = str(audit(KEPT, WEAK, BROKEN, STILL, notes=("A note.",), draws=4000))
    assert "confidence 0.99: violated." in said
    assert "0.7" in said
    assert "1.5×" in said
    assert "none tried" in said
    assert "not audited" in said
    assert said.endswith(
        "\nA note.\n4,000 draws on each neighbour of a line; 0 whole runs. "
        "What the columns mean: .explain()"
    )
    assert not said.startswith("For the curator")
    assert str(audit(KEPT, curator=True)).startswith("For the curator, NOT PRIVATE")


def test_json_has_no_infinite_number() -> None:
    told = audit(KEPT, WEAK, BROKEN, STILL).to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert [line["free"] for line in told["lines"]] == [0.7, 0.1, "inf", None]
    assert told["verdict"] == "violated"
