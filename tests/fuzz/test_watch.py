"""The watcher of calls detects each fault, and passes results and valid errors."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fuzz import watch
from tests.fuzz.watch import CANARY, NUMBER, Fault, OwnError, left_behind, quotes, watched

from dpgrain.errors import CareWarning, DataError, ParameterError


def fail(error: BaseException, cause: BaseException | None = None) -> Any:
    raise error from cause


def suppress(inner: BaseException) -> Any:
    try:
        raise inner
    except ValueError:
        raise DataError("it cannot be read.") from None


def noted(error: BaseException, note: str) -> Any:
    error.add_note(note)
    raise error


FAULTS: dict[str, Callable[[], Any]] = {
    "raises TypeError": lambda: fail(TypeError(CANARY)),
    "raises RecursionError": lambda: fail(RecursionError()),
    "raises RuntimeWarning": lambda: np.float64(1e308) * 10,
    "warns of UserWarning": lambda: warnings.warn("more", UserWarning, stacklevel=1),
    "no plain sentence": lambda: fail(ParameterError("epsilon")),
    "no plain sentence at a line": lambda: fail(ParameterError("x" * 5000 + ".")),
    "quotes a row in an error": lambda: fail(DataError(f"it holds {CANARY}.")),
    "quotes a row in an error at its cause": lambda: fail(
        DataError("it cannot be read."), ValueError(CANARY)
    ),
    "quotes a row in an error at what is suppressed": lambda: suppress(ValueError(CANARY)),
    "quotes a row in an error at a note": lambda: noted(DataError("it cannot be read."), CANARY),
    "quotes a row in an error at a number": lambda: fail(DataError(f"it holds {NUMBER:,}.")),
    "quotes a row in what is printed": lambda: print(CANARY),
    "quotes a row in a log": lambda: logging.getLogger("dpgrain.any").debug(CANARY),
    "quotes a row in a warning": lambda: warnings.warn(CANARY, CareWarning, stacklevel=1),
}


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_detected_without_showing_the_input(what: str) -> None:
    with pytest.raises(Fault, match=what.partition(" at ")[0]) as seen:
        watched(FAULTS[what])
    assert not quotes(str(seen.value))


def _waits() -> None:
    try:
        time.sleep(30)
    except Exception:
        time.sleep(30)


def _works() -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        pass


@pytest.mark.parametrize("hang", [_waits, _works])
def test_hanging_call_is_ended(hang: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SECONDS", 0.05)
    began = time.monotonic()
    with pytest.raises(Fault, match="takes longer than"):
        watched(hang)
    assert time.monotonic() < began + 20


def test_results_and_callback_errors_are_passed_through() -> None:
    assert watched(lambda: 3) == 3
    assert watched(lambda: fail(ParameterError("epsilon must be above 0, not -1."))) is None
    assert watched(lambda: fail(OwnError())) is None
    with pytest.raises(Fault, match="refuses"):
        watched(lambda: fail(DataError("it cannot be read.")), always=True)


def test_contents_in_files_and_environment_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clean").write_bytes(b"nothing")
    assert left_behind(tmp_path) == []
    (tmp_path / "spill").write_bytes(b"\0" + CANARY.encode())
    (tmp_path / "sums").write_bytes(np.array([1.5, NUMBER]).tobytes())
    monkeypatch.setenv("ROWS", f"a {CANARY}")
    assert sorted(left_behind(tmp_path)) == ["ROWS", "spill", "sums"]
