"""The page of recipes shows the recorded run, and cheap cells repeat it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.programs import experiment

which = experiment("which_recipe")
PAGE = Path(__file__).parents[2] / "docs" / "papers" / "which-recipe.md"
BEGIN, END = "<!-- table of experiments/which_recipe.json -->\n", "<!-- end of table -->"


def test_the_page_shows_the_recorded_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    shown, after = rest.split(END)
    table = "\n" + "\n".join(which.table(which.recorded())) + "\n\n"
    if os.environ.get("DPGRAIN_PAGES") == "write":
        PAGE.write_text(before + BEGIN + table + END + after, encoding="utf-8")
        return
    assert shown == table


def test_the_papers_recipes_never_win() -> None:
    cells = which.recorded()
    default = {(c.problem, c.users): c.excess for c in cells if c.recipe == which.DEFAULT}
    papers = [c for c in cells if c.recipe not in (which.DEFAULT, "Concentrated")]
    assert len(papers) >= 9
    assert all(c.excess > default[c.problem, c.users] for c in papers)
    # Plans that warn: most of their fits are no better than the start, and the others all are.
    warned = [c for c in papers if c.warned]
    assert sum(c.excess > 0.95 * c.start for c in warned) > len(warned) / 2
    assert all(c.excess < c.start for c in cells if not c.warned)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [which.DEFAULT, "WinsorizedErm", "PhasedErmSco"])
def test_a_cheap_cell_repeats_the_recorded_one(recipe: str) -> None:
    (recorded,) = (
        cell
        for cell in which.recorded()
        if (cell.recipe, cell.problem, cell.users) == (recipe, "logistic", 1000)
    )
    again = which.measured(recipe, "logistic", 1000, 2)
    assert again.excess == pytest.approx(recorded.excess, rel=1e-6)
    assert (again.start, again.warned) == (recorded.start, recorded.warned)
