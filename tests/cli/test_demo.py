"""The demonstration: a generated table, a file of releases, one report, and what to try next."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.conftest import Command

from dpgrain.cli import demo


def test_the_demonstration_ends_with_commands_that_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setattr(demo, "_READERS", 400)
    monkeypatch.chdir(tmp_path)
    done = command("demo")
    assert done.returncode == 0, done.stderr
    assert "nobody is in it" in done.stdout
    assert "Largest 5 of 49 estimates" in done.stdout
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!")
    assert all(name in page for name in ("titles", "branches", "days_kept", "late"))
    _, _, after = done.stdout.partition("Try next:\n")
    lines = after.strip().splitlines()
    assert len(lines) == 3
    for line in lines:
        tried = command(*shlex.split(line)[1:])
        assert tried.returncode == 0, tried.stderr
    # To run it again publishes anew.
    assert command("demo").returncode == 0


def test_the_demonstration_needs_a_folder(tmp_path: Path, command: Command) -> None:
    (tmp_path / "file").write_text("")
    done = command("demo", "--folder", tmp_path / "file" / "demo")
    assert done.returncode == 1
    assert "cannot be made" in done.stderr
