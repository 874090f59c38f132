"""The demonstration, on the generated table."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgrain.cli import demo
from dpgrain.errors import DataError


def test_demo_without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPGRAIN_DATA", raising=False)
    small = demo.generated(users=200, vocabulary=1200)
    monkeypatch.setattr(demo, "generated", lambda: small)
    said: list[str] = []
    result = demo.run(tmp_path / "demo", say=said.append)
    assert "generated table" in said[0]
    assert "DPGRAIN_DATA is not set" in said[0]
    assert result.report.read_text(encoding="utf-8").startswith("<!")
    assert len(result.release) == 1200
    assert result.release.guarantee.epsilon() <= 1.0


def test_demo_needs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be made"):
        demo.run(tmp_path / "file" / "demo", say=lambda text: None)
