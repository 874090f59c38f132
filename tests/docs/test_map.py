"""The package map shows the current imports, and lines lead down."""

from __future__ import annotations

import os

import pytest
from tests.docs import map as drawing
from tests.docs import tree
from tests.docs.map import MAP, Place
from tests.rooms import SOURCE


@pytest.mark.slow
def test_map_shows_the_current_imports() -> None:
    if os.environ.get("DPGRAIN_PAGES") == "write":
        MAP.write_text(drawing.drawn(), encoding="utf-8")
    assert MAP.read_text(encoding="utf-8") == drawing.drawn()


@pytest.mark.slow
def test_every_room_is_on_the_map() -> None:
    packages = {path.parent.name for path in (SOURCE / "dpgrain").glob("*/__init__.py")}
    graph = drawing.rooms()
    assert set(graph) == packages
    assert "noise" in graph["accounting"]


def test_lines_lead_down_and_one_is_enough() -> None:
    graph = {"high": {"middle", "low"}, "middle": {"low"}, "low": set(), "beside": {"low"}}
    assert drawing.direct(graph) == {**graph, "high": {"middle"}}
    assert drawing.floors(graph) == {"high": 2, "middle": 1, "low": 0, "beside": 1}
    assert drawing.reached(graph, "high") == {"middle", "low"}


def test_a_long_line_passes_the_floors_between() -> None:
    graph = {"high": {"middle"}, "middle": {"low"}, "low": set(), "far": {"high", "deep"}}
    graph["deep"] = set()
    (way,) = [way for way in drawing.ways(graph) if way[-1].name == "deep"]
    assert way == [Place(3, "far"), Place(2, "far>deep"), Place(1, "far>deep"), Place(0, "deep")]
    assert len(drawing.across(graph)) == 5 + 2


def test_the_tree_shows_the_first_sentence_of_each_module() -> None:
    before, inside, after = tree.split(tree.PAGE.read_text(encoding="utf-8"))
    if os.environ.get("DPGRAIN_PAGES") == "write":
        tree.PAGE.write_text(f"{before}{tree.drawn()}\n{after}", encoding="utf-8")
    else:
        assert inside == f"{tree.drawn()}\n"
