"""A budget is valid only in its process; child processes publish nothing independently."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap

import pytest

import dpgrain as dg

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
