"""The slot of the ledger that is open, which another kind of ledger can fill."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

import pytest
from tests.publishing import cases

import dpgrain as dg
from dpgrain.publishing import ledgers
from dpgrain.publishing.receipt import Receipt


@dataclass
class Listed:
    place: str = "listed"
    charged: list[dg.Guarantee] = field(default_factory=list)

    def charge(self, *guarantees: dg.Guarantee, mark: str = "", again: bool = True) -> Receipt:
        self.charged += guarantees
        return Receipt("id", "listed", len(self.charged), mark)

    def contains(self, receipt: Receipt) -> bool:
        return receipt.ledger == "id"


def count() -> dg.Histogram:
    return dg.count(cases.table(), unit=dg.User(), clip=5.0, epsilon=0.1, delta=1e-8)


def test_releases_are_charged_in_every_thread() -> None:
    ledger = Listed()
    ledgers.enter(ledger)
    try:
        assert os.environ["DPGRAIN_LEDGER"] == "listed"
        worker = threading.Thread(target=count)
        worker.start()
        worker.join()
        found = count()
        with pytest.raises(dg.ParameterError, match="a ledger is already open"):
            ledgers.enter(Listed())
        ledgers.leave(Listed())
        assert ledgers.open_ledger() is ledger
    finally:
        ledgers.leave(ledger)
    assert len(ledger.charged) == 2
    assert found.guarantee.receipts == (Receipt("id", "listed", 2, ""),)
    assert "DPGRAIN_LEDGER" not in os.environ
    assert count().guarantee.receipts == ()


def test_inherited_place_is_opened_and_reused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("DPGRAIN_LEDGER", "nowhere")
    with pytest.raises(dg.DataError, match="is not a file"):
        count()
    # The same place may be entered, and stays with the process when it is left.
    same = Listed("nowhere")
    ledgers.enter(same)
    count()
    ledgers.leave(same)
    assert os.environ["DPGRAIN_LEDGER"] == "nowhere"
    with pytest.raises(dg.ParameterError, match="DPGRAIN_LEDGER points to another ledger"):
        ledgers.enter(Listed())
