"""Ledgers of version 0.1 with events that no mechanism charges any more."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import Command

import dpgrain as dg
from dpgrain.accounting import StatisticallyClose
from dpgrain.shuffle import VectorSum

# A ledger that version 0.1 wrote: one round of a sum through a shuffler that only mixes.
BLIND_SUM = Path(__file__).parent / "blind_sum_of_version_0_1.sql"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "phones.ledger"
    with sqlite3.connect(path) as old:
        old.execute("PRAGMA journal_mode = WAL")
        old.executescript(BLIND_SUM.read_text())
    old.close()
    return path


def test_version_0_1_blind_sum_opens_and_verifies(book: Path) -> None:
    opened = dg.Ledger(book)
    assert opened.verify() == opened.entries[-1].receipt
    (guarantee,) = opened.entries[-1].guarantees
    assert isinstance(guarantee.event, StatisticallyClose)
    assert guarantee.event.variation > 0
    # The promise of the sum was ε = 1 at δ = 10⁻⁶.
    assert 0.99 < guarantee.epsilon() <= 1.0
    assert dg.Guarantee.from_json(guarantee.to_json()) == guarantee


def test_a_blind_sum_of_version_0_1_adds_up(book: Path) -> None:
    opened = dg.Ledger(book)
    (old,) = opened.entries[-1].guarantees
    with opened:
        # The price in version 0.1.
        opened.charge(old)
        before, after = opened.entries[-2:]
        assert after.charged == before.charged
        VectorSum(n_users=40, dim=3, epsilon=1.0, delta=1e-7, honest_fraction=0.9).simulate(
            [[1.0] * 3]
        )
    assert len(opened.entries) == 5
    opened.verify()
    new = opened.entries[-1].guarantees[0]
    together = replace(old, delta=1e-5) + old + new
    promise = opened.entries[1].promise
    assert promise is not None
    assert 1.5 < together.epsilon(1e-5) <= promise.epsilon


def test_a_blind_sum_of_version_0_1_is_shown(book: Path, command: Command, tmp_path: Path) -> None:
    for told in ("show", "verify"):
        assert "line 2 of ledger 'phones'" in command("ledger", told, book).stdout
    dg.Ledger(book).report(tmp_path / "page.html")
    assert "shuffler that mixes all messages" in (tmp_path / "page.html").read_text()
