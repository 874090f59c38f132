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
    names: dict[str, Any] = {"folder": tmp_path_factory.mktemp("how-to")}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(names["folder"])
        exec(SETUP, names)
    return names


def test_the_tables_have_calls() -> None:
    assert len(CALLS) > 20


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("call", CALLS)
def test_call_runs(call: str, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(names["folder"])
    assert str(eval(call, names))


def test_a_stored_query_runs(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(names["folder"])
    own = dict(names)
    exec(STORED, own)
    assert own["again"] == own["query"]
    assert own["release"].query == {
        **own["stored"],
        "parameters": own["release"].query["parameters"],
    }
