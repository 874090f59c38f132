"""The release file of docs/releases.md is valid and does what the page states."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")


def _blocks(page: str, language: str) -> list[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.S | re.M)
    return [text for named, text in fences if named == language]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    generator = np.random.default_rng(0)
    size = 50_000
    rows = {
        "person": generator.integers(0, 5000, size),
        "page": generator.choice(["/news", "/sport", "/jobs"], size),
        "topic": generator.choice(["news", "sport", "jobs"], size),
        "minutes": generator.gamma(2.0, 5.0, size),
        "bought": generator.integers(0, 2, size),
    }
    pq.write_table(pa.table(rows), tmp_path / "visits.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_page_matches_the_actual_behaviour(folder: Path, command: Command) -> None:
    (text,) = _blocks(PAGE, "toml")
    (folder / "releases.toml").write_text(text, encoding="utf-8")
    planned, mistaken = _blocks(PAGE, "")
    done = command("run", "releases.toml", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert planned in done.stdout
    names: dict[str, object] = {}
    exec(_blocks(PAGE, "python")[0], names)
    for name in ("pages.csv", "minutes.json", "bought.json"):
        assert (folder / name).exists()
        assert (folder / f"{name}.guarantee.json").exists()
    assert (folder / "releases.html").exists()
    wrong = text.replace("item =", "itm =").replace("[0, 60]\nshare", "[60, 0]\nshare")
    (folder / "releases.toml").write_text(wrong, encoding="utf-8")
    assert command("run", "releases.toml").stderr == mistaken
