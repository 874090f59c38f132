"""Names of the package on pages exist."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT

import dpgrain as dg

PAGES = [ROOT / "docs" / "tutorials" / name for name in ("moving.md", "warehouse.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_of_the_package_are_there(page: object) -> None:
    text = page.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    named = set(re.findall(r"\bdg\.([A-Za-z_]+)", text)) - {"torch"}
    assert named
    assert {name for name in named if not hasattr(dg, name)} == set()
