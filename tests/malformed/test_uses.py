"""Every statistic is used in every role that its parameters have, and as its plain reference is."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
from tests.malformed.systems import SYSTEMS
from tests.malformed.uses import FUNCTIONS, ROLES, Use, outcome, uses


@pytest.mark.slow
def test_every_statistic_is_used() -> None:
    """Every statistic of the registry is published by a function in this list."""
    # In a separate process: tests also register statistics.
    code = "\n".join(
        [
            "import dpgrain as dg",
            "from dpgrain.statistics.statistic import STATISTICS",
            "public = [getattr(dg, name) for name in dg.__all__]",
            "print(*STATISTICS, sep=chr(10))",
        ]
    )
    process = [sys.executable, "-c", code]
    paths = {"PYTHONPATH": ":".join(sys.path)}
    told = subprocess.run(process, check=True, capture_output=True, text=True, env=paths).stdout
    named = {name.replace("_", " ") for name in FUNCTIONS} | {"binned histogram"}
    assert {"count", "top"} <= set(told.splitlines()) <= named
    assert {use.role for use in uses()} == set(ROLES)


@pytest.mark.parametrize(
    ("name", "role"), [("int8", "key"), ("double", "number"), ("bool", "cell")]
)
def test_use_is_requested_without_reading_and_matches_the_reference(name: str, role: str) -> None:
    arrow, use = SYSTEMS["Arrow"], Use("sum", role)
    kind = arrow.kinds[name]
    rows = arrow.rows([kind], odd=True)
    found = use.of(arrow.make(rows), kind)
    assert found.published
    assert found.charged
    assert found.numbers == use.expected(rows, kind).numbers
    refused = use.of(arrow.make(rows), kind, most=1e-3)
    assert refused.suited
    assert not refused.charged


def test_unsuitable_type_is_rejected_by_the_schema() -> None:
    arrow, use = SYSTEMS["Arrow"], Use("sum", "number")
    kind = arrow.kinds["string"]
    assert not use.suits(kind)
    assert use.of(arrow.make(arrow.rows([kind], odd=True)), kind).refused


def test_a_warning_is_an_outcome() -> None:
    def warns() -> None:
        warnings.warn("somebody", stacklevel=1)

    assert outcome(warns).said == "UserWarning: somebody"
