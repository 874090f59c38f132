"""The lines of a ledger, for readers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.ledger import cases

from dpgrain.ledger.entries import LedgerEntry
from dpgrain.ledger.lines import StoredLine


def test_entries_show_the_contents_of_each_line(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l", cases.USERS)
    with made:
        receipt = made.charge(cases.of_users(), mark="first")
        made.renew(1, cases.USERS)
    begun, promise, release, renewal = made.entries
    assert [entry.number for entry in made.entries] == [0, 1, 2, 3]
    assert (begun.promise, begun.guarantees, begun.charged, begun.renews) == (None, (), (), None)
    assert (promise.promise, promise.renews) == (cases.USERS, None)
    assert (renewal.promise, renewal.renews) == (cases.USERS, 1)
    assert (release.receipt, release.mark, promise.mark) == (receipt, "first", "")
    assert release.guarantees == (cases.of_users(),)
    (charged,) = release.charged
    assert (charged.promise, charged.price.mu) == (1, 0.01)
    assert all(entry.at.endswith("Z") for entry in made.entries)


def test_a_line_is_plain_json(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l", cases.OF_DAYS)
    with made:
        made.charge(cases.of_days(50.0, cases.on("2026-01-01")))
    told = made.entries[-1].to_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["hash"] == made.entries[-1].line.hash
    assert told["charged"][0]["region"] == cases.on("2026-01-01").to_dict()


def test_a_line_of_several_is_private_if_each_is() -> None:
    def entry(*private: bool) -> LedgerEntry:
        told = [{"private": each} for each in private]
        return LedgerEntry(
            "id", "name", StoredLine.after(None, "2026-01-01T00:00:00Z", "release", releases=told)
        )

    assert entry(True, True).private
    assert not entry(True, False).private
    assert not entry(False).private
