"""Every call in the tables of docs/how-to.md runs after the setup of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "how-to.md").read_text(encoding="utf-8")
SETUP, STORED = re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M)
CALLS = re.findall(r"^\|[^|]*\| `([^`]*\(.*\))` \|", PAGE, re.M)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("how-to"))
        # An absolute path, because each test has its own working folder.
        exec(SETUP.replace('"loans.parquet"', f'"{Path.cwd() / "loans.parquet"}"'), names)
    return names


def test_the_tables_have_calls() -> None:
    assert len(CALLS) > 20


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("call", CALLS)
def test_call_runs(call: str, names: dict[str, Any]) -> None:
    assert str(eval(call, names))


def test_a_stored_query_runs(
    names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = dict(names)
    exec(STORED, own)
    assert own["again"] == own["query"]
    assert own["release"].query == {
        **own["stored"],
        "parameters": own["release"].query["parameters"],
    }
