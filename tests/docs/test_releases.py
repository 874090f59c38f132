"""The file of docs/releases.md is right, does what the page says, and so does the README's."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command

ROOT = Path(__file__).parents[2]
NIGHT = "2026-03-01"
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


def test_the_page_says_what_happens(folder: Path, command: Command) -> None:
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


def test_the_readme_has_a_file_that_runs(folder: Path, command: Command) -> None:
    (text,) = _blocks((ROOT / "README.md").read_text(encoding="utf-8"), "toml")
    (folder / "releases.toml").write_text(text, encoding="utf-8")
    done = command("run", "releases.toml")
    assert done.returncode == 0, done.stderr
    assert (folder / "pages.csv").exists()
    assert (folder / "visits.json").exists()


@pytest.fixture
def nightly(folder: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """A shell in a folder with what "Every night" speaks of, which knows the program by its name."""
    rows = pq.read_table(folder / "visits.parquet")
    days = pa.array([NIGHT] * len(rows)).cast(pa.date32())
    pq.write_table(rows.append_column("day", days), folder / "visits.parquet")
    (folder / "releases.toml").write_text(_blocks(PAGE, "toml")[0], encoding="utf-8")
    program = folder / "dpgrain"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dpgrain "$@"\n')
    program.chmod(0o755)
    # A test that runs past midnight shall not have two yesterdays.
    asked = folder / "date"
    asked.write_text(f'#!/bin/sh\n[ "$*" = "-d yesterday +%F" ] && echo {NIGHT}\n')
    asked.chmod(0o755)
    path = ":".join(each for each in sys.path if each)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": path}

    def run(words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", words], capture_output=True, text=True, check=False, env=env
        )

    return run


def test_what_is_run_every_night(
    folder: Path, nightly: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    script, cron, init = _blocks(PAGE, "sh")
    made = nightly(init)
    assert made.returncode == 0, made.stderr
    (folder / "nightly.sh").write_text(script)
    (folder / "nightly.sh").chmod(0o755)
    place = folder / "nightly.sh"
    line = cron.removeprefix("15 3 * * * ").replace("/srv/visits", str(folder))
    assert line.startswith(str(place)), "the page's own line of cron is run"
    done = nightly(line)
    log = folder / "nightly.log"
    assert done.returncode == 0, log.read_text()
    assert {path.name for path in (folder / NIGHT).glob("*.csv")} == {"pages.csv"}
    # The same again is refused, with what is missing, and so is `--again` for want of room.
    (folder / NIGHT / "minutes.json").unlink()
    refused = nightly(str(place))
    assert refused.returncode == 3
    assert f"Missing of its outputs: '{NIGHT}/minutes.json'." in refused.stderr
    again = nightly(script.strip().replace('"$0"', str(place)) + " --again")
    assert again.returncode == 3
    assert "does not hold this release" in again.stderr
    shown = nightly("dpgrain ledger show visits.ledger")
    assert f"day {NIGHT}" in shown.stdout
    # A table that is not there is told apart, and a file that is wrong.
    (folder / "visits.parquet").rename(folder / "late.parquet")
    assert nightly(str(place)).returncode == 1
    (folder / "late.parquet").rename(folder / "visits.parquet")
    (folder / "releases.toml").write_text("[table", encoding="utf-8")
    assert nightly(str(place)).returncode == 2
