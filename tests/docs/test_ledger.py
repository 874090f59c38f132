"""The code of docs/ledger.md runs unchanged, with the shown output."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import dpgrain as dg

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S))
    exec(code, {})
    said = capsys.readouterr().out
    assert "line 12 of ledger 'visits'" in said
    ledger = dg.Ledger("visits.ledger")
    assert ledger.verify().number == 12
    # A day was charged once, seven days seven times.
    day, week = ledger.promises.values()
    once, other = (each.price.mu for each in ledger.entries[-1].charged)
    assert ledger.left(1) == pytest.approx(1 - (once / day.caps.mu) ** 2)
    assert ledger.left(2) == pytest.approx(1 - 7 * (other / week.caps.mu) ** 2)
