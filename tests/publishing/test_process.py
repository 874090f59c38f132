"""A budget is valid only in its process; child processes publish nothing independently."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass, field

import pytest
from tests.publishing import cases

import dpgrain as dg
from dpgrain.publishing import process
from dpgrain.publishing.receipt import Receipt

CHILD = """
import os, sys
import numpy as np, pyarrow as pa
import dpgrain as dg
table = dg.read(pa.table({"who": np.arange(40), "page": ["a"] * 40}), user="who", threads=1)

def refused():
    try:
        dg.count(table, unit=dg.User(), clip=1.0, epsilon=1.0, delta=1e-6)
    except dg.ParameterError as error:
        return "was started while a budget was open" in str(error)
    return False
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CHILD + textwrap.dedent(code), CHILD], capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_forked_children_publish_nothing_independently() -> None:
    """The child is a copy of the budget; leaving the block in it does not make it free."""
    said = run(
        """
        with dg.budget(1.0, 1e-6) as b:
            dg.count(table, unit=dg.User(), clip=1.0, share=0.1)
            child = os.fork()
            if child == 0:
                inside = refused()
                b.__exit__(None, None, None)
                os._exit(0 if inside and refused() else 1)
            print(os.waitpid(child, 0)[1])
            print(refused(), round(b.left, 3))
        child = os.fork()
        if child == 0:
            os._exit(1 if refused() else 0)
        print(os.waitpid(child, 0)[1])
        """
    )
    assert said.split() == ["0", "False", "0.9", "0"]


@pytest.mark.slow
def test_budget_is_valid_only_in_its_process() -> None:
    """Also if it was not open when the process was forked, or its environment was cleared."""
    said = run(
        """
        b = dg.budget(1.0, 1e-6)
        with b:
            dg.count(table, unit=dg.User(), clip=1.0, share=0.5)

        def in_child(ask):
            child = os.fork()
            if child == 0:
                os._exit(0 if ask() else 1)
            return os.waitpid(child, 0)[1]

        def enters():
            try:
                with b:
                    return False
            except dg.ParameterError as error:
                return "is a copy from another process" in str(error)

        print(in_child(enters))
        with b:
            os.environ.pop("DPGRAIN_BUDGET_OPEN")

            def leaves():
                b.__exit__(None, None, None)
                return refused()

            print(in_child(leaves))
            dg.count(table, unit=dg.User(), clip=1.0, share=0.5)
        print(b)
        """
    )
    assert said == "0\n0\nBudget of ε = 1 and δ = 10⁻⁶: 100% spent, 0% left\n"


def test_notes_are_not_written() -> None:
    b = dg.budget(1.0, 1e-6)
    for name in ("spent", "caps", "guarantee", "epsilon", "delta", "left"):
        with pytest.raises(AttributeError):
            setattr(b, name, None)


@pytest.mark.slow
def test_spawned_children_publish_nothing_independently() -> None:
    """A mark in their environment stops them, even if the budget is closed by then."""
    said = run(
        """
        import subprocess
        code = sys.argv[1] + "print(refused())"
        ask = lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        with dg.budget(1.0, 1e-6):
            print(ask().stdout.strip())
        print(ask().stdout.strip())
        with dg.budget(1.0, 1e-6):
            try:
                os.environ["DPGRAIN_BUDGET_OPEN"] = "1-abc"
                print(refused())
            finally:
                del os.environ["DPGRAIN_BUDGET_OPEN"]
        """
    )
    assert said.split() == ["True", "False", "True"]


def test_a_budget_is_not_copied() -> None:
    """A copy would not know what is charged to the other."""
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(dg.ParameterError, match="cannot be copied"):
            copied(dg.budget(1.0, 1e-6))


@dataclass
class Listed:
    place: str = "listed"
    charged: list[dg.Guarantee] = field(default_factory=list)

    def charge(self, *guarantees: dg.Guarantee, mark: str = "", again: bool = True) -> Receipt:
        self.charged += guarantees
        return Receipt("id", "listed", len(self.charged), mark)

    def rehearse(self, *guarantees: dg.Guarantee, mark: str = "", again: bool = True) -> None:
        """Accept every charge."""

    def contains(self, receipt: Receipt) -> bool:
        return receipt.ledger == "id"


def count() -> dg.Histogram:
    return dg.count(cases.table(), unit=dg.User(), clip=5.0, epsilon=0.1, delta=1e-8)


def test_releases_are_charged_in_every_thread() -> None:
    ledger = Listed()
    process.enter(ledger)
    try:
        assert os.environ["DPGRAIN_LEDGER"] == "listed"
        worker = threading.Thread(target=count)
        worker.start()
        worker.join()
        found = count()
        with pytest.raises(dg.ParameterError, match="a ledger is already open"):
            process.enter(Listed())
        process.leave(Listed())
        assert process.open_ledger() is ledger
    finally:
        process.leave(ledger)
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
    process.enter(same)
    count()
    process.leave(same)
    assert os.environ["DPGRAIN_LEDGER"] == "nowhere"
    with pytest.raises(dg.ParameterError, match="DPGRAIN_LEDGER points to another ledger"):
        process.enter(Listed())
