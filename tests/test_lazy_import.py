"""Modules are loaded when they are first used, and not before."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from dpgrain._lazy_import import lazy_import, loaded_types


def test_a_module_is_loaded_at_its_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "used_at_last.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = lazy_import("used_at_last")
    assert "used_at_last" not in sys.modules
    assert module.answer == 42
    assert "used_at_last" in sys.modules
    del sys.modules["used_at_last"]


def test_missing_package_is_reported_as_usual() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = lazy_import("fractions").nothing_of_the_kind
    with pytest.raises(ModuleNotFoundError):
        _ = lazy_import("no_module_of_this_name").answer


def test_inspection_imports_no_missing_package() -> None:
    module = lazy_import("no_module_of_this_name")
    assert inspect.unwrap(module) is module


def test_no_value_has_a_type_of_an_unloaded_package() -> None:
    package = loaded_types("a_package")
    assert not isinstance(1, package.Series | package.Index)
