"""The demonstration: a generated table, a file of releases, one report, and what to try next."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.conftest import Command

from dpgrain.cli import demo_command


@pytest.mark.slow
def test_demonstration_ends_with_working_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setattr(demo_command, "_READERS", 400)
    monkeypatch.chdir(tmp_path)
    done = command("demo", "--folder", "my demo")
    assert done.returncode == 0, done.stderr
    assert "The table is synthetic." in done.stdout
    # It begins with rows that look like loans, and shows the fit as `dpgrain fit` does.
    assert re.search(r"│ The loans|reader .* title .* subject .* branch .* day ", done.stdout)
    assert re.search(r"│ \d+ .*│ .*│ 2025-\d\d-\d\d │", done.stdout)
    assert "LogisticRegression: 2 coefficients" in done.stdout
    assert "49 rows, 5 largest by clipped total shown" in done.stdout
    page = (tmp_path / "my demo" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!")
    assert all(name in page for name in ("titles", "branches", "days_kept", "late"))
    _, _, after = done.stdout.partition("Try next:\n")
    lines = after.strip().splitlines()
    assert len(lines) == 3
    for line in lines:
        words = shlex.split(line)
        tried = command(*words[words.index("-m") + 2 if "-m" in words else 1 :])
        assert tried.returncode == 0, tried.stderr
    # A second run publishes again.
    assert command("demo", "--folder", "my demo").returncode == 0


def test_the_demonstration_needs_a_folder(tmp_path: Path, command: Command) -> None:
    (tmp_path / "file").write_text("")
    done = command("demo", "--folder", tmp_path / "file" / "demo")
    assert done.returncode == 1
    assert "cannot be created" in done.stderr
