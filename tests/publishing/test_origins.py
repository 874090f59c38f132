"""A copy sent to an earlier process reports the budgets that were open at copying."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import dpgrain as dg
from dpgrain.learn import LinearRegression
from dpgrain.publishing.origins import PickleOrigin

X = np.random.default_rng(0).normal(size=(30, 2))


def model() -> LinearRegression:
    return LinearRegression(epsilon=50.0, clip=1.0, rounds=1, n_users=30, unit=dg.Record())


def fitted(sent: bytes, copies: int = 0) -> str:
    found: Any = pickle.loads(sent)
    for _ in range(copies):
        found = clone(pickle.loads(pickle.dumps(found)))
    try:
        return str(found.fit(X, X[:, 0]).guarantee_)
    except dg.ParameterError as error:
        return str(error)


@pytest.fixture(scope="module")
def earlier() -> Iterator[ProcessPoolExecutor]:
    """A process started before any budget was opened, like a pool's."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(abs, -1).result() == 1
        yield pool


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_fit_without_the_charged_budget_is_rejected(
    earlier: ProcessPoolExecutor, copies: int
) -> None:
    with dg.budget(1.0, 1e-6) as spent:
        sent = pickle.dumps(model())
        said = earlier.submit(fitted, sent, copies).result()
    assert "sent here while a budget was open in another process" in said
    assert spent.guarantee is None


@pytest.mark.slow
def test_fit_without_the_open_ledger_is_rejected(
    earlier: ProcessPoolExecutor, tmp_path: Path
) -> None:
    promises = [dg.LastingPromise.of(dg.Record(), 1.0, 1e-6)]
    ledger = dg.Ledger.create(tmp_path / "ledger", name="visits", promises=promises)
    with ledger:
        sent = pickle.dumps(model())
        assert str(ledger.place) not in sent.decode("latin-1")
        said = earlier.submit(fitted, sent).result()
        # A process started now charges it.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            charged = pool.submit(fitted, sent).result()
    assert "sent here while a ledger was open in another process" in said
    assert (
        "the ledger 'visits' (promise on line 1: ε = 1, δ = 10⁻⁶ per record (zero_out)) has no room"
        in charged
    )


def test_local_query_is_fitted_locally() -> None:
    with dg.budget(100.0, 1e-3) as spent:
        sent = pickle.dumps(model())
        assert "Record-level" in fitted(sent, copies=1)
    assert spent.guarantee is not None
    assert "Record-level" in fitted(sent)
    assert PickleOrigin.current() is None


@pytest.mark.slow
def test_nothing_is_reported_without_open_budgets(earlier: ProcessPoolExecutor) -> None:
    assert "Record-level" in earlier.submit(fitted, pickle.dumps(model()), 1).result()
