"""The page on the evidence for each event matches the current tree, and is complete."""

from __future__ import annotations

import os

import pytest
from shipping.mutants import ROOT
from shipping.proof import PAGE, Chain, chains, page

from dpgrain.accounting.events import base


@pytest.fixture(scope="module")
def found() -> list[Chain]:
    return chains(ROOT)


@pytest.mark.slow
def test_nothing_is_missing(found: list[Chain]) -> None:
    assert [line for chain in found for line in chain.missing] == []


def test_every_event_of_the_package_has_a_chain(found: list[Chain]) -> None:
    every = base.event_kinds()
    known = {name for name, kind in every.items() if kind.__module__.startswith("dpgrain.")}
    assert {chain.event for chain in found} == known


def test_page_matches_the_current_tree(found: list[Chain]) -> None:
    if os.environ.get("DPGRAIN_PAGES") == "write":
        (ROOT / PAGE).write_text(page(found), encoding="utf-8")
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(found)
