"""An entry for a registry says what a ledger promises, and no more than it knows."""

from __future__ import annotations

import json
from pathlib import Path

from tests.ledger import cases

import dpgrain as dg
from dpgrain.ledger import LastingPromise
from dpgrain.ledger.registry import registry_entry


def test_an_entry_before_and_after_releases(tmp_path: Path) -> None:
    users = LastingPromise.of(dg.User(), 9.0, 1e-6, relation="replace")
    ledger = cases.made(tmp_path / "visits.ledger", cases.USERS, users)
    before = registry_entry(ledger)
    assert (before["releases"], before["first_release"], before["data_curator"]) == (0, None, None)
    ledger.charge(cases.of_users(), cases.of_users(50.0))
    ledger.charge(cases.of_users(60.0, private=False))
    after = registry_entry(ledger, decided_by="the office")
    assert (after["releases"], after["data_curator"], after["seeded"]) == (3, "the office", True)
    assert after["mechanisms"] == ["Gaussian"]
    lines = ledger.entries
    assert (after["first_release"], after["last_release"]) == (lines[-2].at, lines[-1].at)
    assert after["ledger"]["hash"] == ledger.verify().hash
    one, two = after["promises"]
    assert (one["privacy_unit"], one["epsilon"], one["delta"]) == ("user", 1.0, 1e-6)
    assert (two["neighbouring_relation"], two["dp_flavor"]) == ("replace", "approximate")
    assert json.loads(json.dumps(after)) == after


def test_an_entry_names_partition_and_window(tmp_path: Path) -> None:
    window = dg.ledger.AnyDays(30, "day")
    slides = LastingPromise.of(dg.User(), 1.0, window=window)
    ledger = cases.made(tmp_path / "visits.ledger", cases.OF_DAYS, slides)
    days, any_month = registry_entry(ledger)["promises"]
    assert (days["partition"], days["window"]) == (str(cases.DAYS), None)
    assert (any_month["partition"], any_month["window"]) == (None, str(window))
    assert any_month["dp_flavor"] == "pure"
