"""The commands that write the page of a ledger, and its entry for a registry."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from tests.conftest import Command
from tests.ledger import cases


def test_a_page_and_an_entry_are_written(tmp_path: Path, command: Command) -> None:
    place, page, entry = (
        tmp_path / name for name in ("visits.ledger", "visits.html", "entry.yaml")
    )
    cases.made(place).charge(cases.of_users())
    done = command("ledger", "report", place, "--output", page)
    assert done.returncode == 0, done.stderr
    assert "Ledger “visits”" in page.read_text(encoding="utf-8")
    asked = ("ledger", "export", place, "--registry", "--decided-by", "the office")
    done = command(*asked, "--output", entry)
    assert done.returncode == 0, done.stderr
    written = entry.read_text(encoding="utf-8")
    told = yaml.safe_load(written)
    basic = told["deployment"]["basic"]
    assert basic["name"] == "visits"
    assert basic["data_curators"][0]["data_curator_name"] == "the office"
    assert command(*asked).stdout == written
    document = json.loads(command(*asked, "--json").stdout)
    assert {name: document[name] for name in told} == told


def test_decision_maker_applies_only_to_an_entry(tmp_path: Path, command: Command) -> None:
    done = command("ledger", "export", tmp_path / "no.ledger", "--decided-by", "the office")
    assert done.returncode == 2
    assert done.stderr.strip() == "Error: --decided-by requires --registry."
