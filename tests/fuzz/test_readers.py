"""Files with any contents are read or rejected clearly, in time, and no row is quoted."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from tests.effort import Effort
from tests.fuzz.readers import READERS
from tests.fuzz.watch import Fault, left_behind, watched

# The share of files among the inputs of a run; the others are command lines and calls.
SHARE = 0.8
_SHARES = sum(reader.share for reader in READERS.values())
_TOLD = 8


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_readers_return_or_raise_clearly(
    name: str, effort: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault names the number of its input: python -m tests.fuzz NAME NUMBER shows it."""
    reader = READERS[name]
    (folder := tmp_path / "given").mkdir()
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    count = max(round(effort.inputs * SHARE * reader.share / _SHARES), len(reader.seeds) + 3)
    faults, made = [], 0
    for number in range(count):
        act = reader.act(number, folder)
        try:
            found = watched(act, always=reader.always)
        except Fault as fault:
            faults.append(f"{name}, input {number}: {fault}")
            continue
        made += found is not None
        if number < len(reader.seeds) and found is None:
            faults.append(f"{name}, input {number}: a valid file is refused")
    assert not faults, "\n".join(faults[:_TOLD])
    assert made >= len(reader.seeds)
    assert not left_behind(temporary)
