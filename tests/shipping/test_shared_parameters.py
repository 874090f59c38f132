"""Descriptions of shared parameters are written out, and identical in all publishing functions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from shipping.shared_parameters import SHARED, main, undescribed, with_shared

from dpgrain.publishing.parameters import arguments
from shipping import shared_parameters

SOURCE = '''
@publishes
def of(table: int, item: str, *, {names}) -> None:
    """Count.

    Args:
        item: the column.

            A paragraph about it.
        epsilon: another
            text.

    Returns:
        A number.
    """


def other(epsilon: float) -> None:
    """Count.

    Args:
        epsilon: not shared.
    """
'''
GIVEN = SOURCE.format(names="epsilon: float, progress: bool, **options: int")


def test_shared_descriptions_match_the_table() -> None:
    fixed = with_shared(GIVEN)
    before, _, after = fixed.partition("    Returns:")
    texts = arguments(before)
    assert list(texts) == ["table", "item", "epsilon", "progress"]
    assert all(texts[name] == SHARED[name] for name in ("table", "epsilon", "progress"))
    assert "        item: the column.\n\n            A paragraph about it.\n" in fixed
    assert after == GIVEN.partition("    Returns:")[2]
    assert with_shared(fixed) == fixed


def test_an_exempted_function_keeps_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_parameters, "OWN", {"epsilon": ("of",), "progress": ("of",)})
    fixed = with_shared(GIVEN)
    assert "        epsilon: another\n            text.\n" in fixed
    assert "progress: show" not in fixed
    assert undescribed(fixed) == [
        "of has a parameter 'progress' without a description.",
        "of has a parameter 'options' without a description.",
        "of needs no exemption for 'progress'.",
    ]


def test_the_program_reports_and_fixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.py"
    path.write_text(SOURCE.format(names="epsilon: float"))
    monkeypatch.setattr(shared_parameters, "SOURCE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["shared_parameters"])
    with pytest.raises(SystemExit, match=r"one\.py: run this program with --fix"):
        main()
    monkeypatch.setattr(sys, "argv", ["shared_parameters", "--fix"])
    main()
    assert path.read_text() == with_shared(SOURCE.format(names="epsilon: float"))
    monkeypatch.setattr(sys, "argv", ["shared_parameters"])
    main()


def test_descriptions_of_this_tree_are_identical(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["shared_parameters"])
    main()
