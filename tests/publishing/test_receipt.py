"""Receipts are passed to every collector, whichever thread publishes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.publishing import cases

import dpgrain as dg
from dpgrain.ledger.stores.sqlite_store import SqliteStore
from dpgrain.publishing.receipt import Receipt, collected_receipts


def count() -> None:
    dg.count(cases.table(), unit=dg.User(), clip=5.0, epsilon=0.1, delta=1e-8)


def test_receipt_collectors_see_concurrent_charges(tmp_path: Path) -> None:
    promise = dg.LastingPromise.of(dg.User(), 5.0, 1e-5)
    with dg.Ledger.create(tmp_path / "l", name="visits", promises=[promise]) as ledger:
        with collected_receipts() as seen:
            count()
            with collected_receipts() as inner:
                worker = threading.Thread(target=count)
                worker.start()
                worker.join()
            count()
        count()
        receipts = [entry.receipt for entry in ledger.entries if entry.guarantees]
    assert seen == receipts[:3]
    assert inner == receipts[1:2]


def test_rejected_release_has_no_receipt(tmp_path: Path) -> None:
    promise = dg.LastingPromise.of(dg.User(), 0.01, 1e-9)
    ledger = dg.Ledger.create(tmp_path / "l", name="visits", promises=[promise])
    with ledger, collected_receipts() as seen, pytest.raises(dg.RefusedError):
        count()
    assert seen == []


def unreadable(ledger: dg.Ledger, receipt: Receipt) -> bool:
    raise dg.DataError("ledger cannot be read")


@pytest.mark.parametrize(("after", "is_readable"), [(False, True), (True, True), (True, False)])
def test_interrupted_charge_has_a_receipt_once_it_is_written(
    after: bool, is_readable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_readable:
        monkeypatch.setattr(dg.Ledger, "_is_written", unreadable)
    promise = dg.LastingPromise.of(dg.User(), 5.0, 1e-5)
    ledger = dg.Ledger.create(tmp_path / "l", name="visits", promises=[promise])
    normal = SqliteStore.writing

    @contextmanager
    def interrupted(store: SqliteStore) -> Iterator[Any]:
        with normal(store) as page:
            yield page
            if not after:
                raise KeyboardInterrupt
        raise KeyboardInterrupt

    monkeypatch.setattr(SqliteStore, "writing", interrupted)
    with ledger, collected_receipts() as seen, pytest.raises(KeyboardInterrupt):
        count()
    receipts = [entry.receipt for entry in ledger.entries if entry.guarantees]
    assert seen == receipts
    assert len(receipts) == after
