"""Each store of ledgers, for tests that apply to all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ledger import cases


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    if not cases.has_server():
        pytest.skip("PostgreSQL is not installed")
    with cases.server() as address:
        yield address


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "visits.ledger")
    return cases.schema_of(request.getfixturevalue("server"))
