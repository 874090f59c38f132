"""The script of a report in a browser: sorting, search, curve and intervals."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.report import cases
from tests.report.browser import CHROMIUM, chromium

import dpgrain as dg
from dpgrain.accounting import Gaussian, Selection
from dpgrain.tables.groups import Groups
from dpgrain.words.odds import Odds

# A page with the report in a frame that imitates readers and records the output.
_DRIVER = """<!DOCTYPE html><body><iframe srcdoc="{page}"></iframe><script>
addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentDocument;
  const told = {{}};
  const table = page.querySelector("table.estimates");
  const shown = (column) => [...table.tBodies[0].rows]
    .filter(row => !row.hidden).map(row => row.cells[column].textContent);
  const heads = table.querySelectorAll("button.sort");
  const sorts = () => [...table.tHead.rows[0].cells].map(cell => cell.getAttribute("aria-sort"));
  heads[0].click();
  told.byName = shown(0);
  told.sorts = sorts();
  heads[1].click();
  told.down = shown(1);
  heads[1].click();
  told.up = shown(1);
  const field = page.querySelector(".find input");
  if (field) {{
    field.value = "SCRIPT";
    field.dispatchEvent(new Event("input"));
    told.found = shown(0);
    told.foundWords = page.querySelector(".find output").textContent;
  }}
  const ask = page.querySelector(".ask");
  const answer = () => ask.querySelector(".answer").textContent;
  told.asks = !ask.hidden;
  told.answers = [answer()];
  for (const [units, delta] of {moves}) {{
    ask.querySelector(".units").value = units;
    ask.querySelector(".deltas").value = delta;
    ask.querySelector(".deltas").dispatchEvent(new Event("input"));
    told.answers.push(answer());
  }}
  const row = page.querySelector("g.told");
  row.dispatchEvent(new Event("pointerenter"));
  told.pointed = page.querySelector(".pointed").textContent;
  page.defaultView.dispatchEvent(new Event("beforeprint"));
  told.folded = page.querySelectorAll("details:not([open])").length;
  page.defaultView.dispatchEvent(new Event("afterprint"));
  told.foldedAgain = page.querySelectorAll("details[open]").length;
  told.title = page.title;
  document.body.dataset.told = JSON.stringify(told);
}});
</script></body>"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


def _done(page: str, folder: Path, moves: list[tuple[int, int]]) -> dict[str, Any]:
    """The script's outputs after sorting, searching, moving sliders and pointing."""
    driver = folder / "driver.html"
    driver.write_text(_DRIVER.format(page=html.escape(page), moves=json.dumps(moves)), "utf-8")
    dom = chromium(driver, 1200, folder, "--dump-dom")
    found = re.search(r'<body data-told="([^"]*)"', dom)
    assert found is not None, "the driver did not come to its end"
    done: dict[str, Any] = json.loads(html.unescape(found[1]))
    return done


def _release() -> dg.Histogram:
    names = [*cases.NASTY, "b10", "b9"]
    event = Selection(8.0, 45.0, 1) + Gaussian(4.0)
    made = cases.histogram(names, event)
    return replace(made, estimate=np.array([5, -1.5, 9e4, 1e3, 2, 3, 4, 0, 6, 7, 8.0]))


def _answer(release: dg.Release, units: int, told: int, delta: float, words: str) -> str:
    """The sentence that a reader should see."""
    what = "one element" if units == 1 else f"{units} elements of one person"
    rest = "" if units == told else f" (the value for {told})"
    promise = release.guarantee.epsilon(delta, units=told)
    odds = Odds(promise, delta)
    if odds.is_infinite:
        return f"For {what}, nothing is guaranteed at δ = {words}{rest}."
    return (
        f"For {what}: ε = {odds.text} at δ = {words}{rest}. Starting from even odds, an attacker "
        f"guesses correctly at most {odds.guess} of the time: no outcome is more than {odds.factor} "
        "times as likely in either case, plus δ."
    )


def test_tables_sort_and_search_and_sliders_show_the_guarantee(tmp_path: Path) -> None:
    release = _release()
    page = cases.page(release, tmp_path)
    done = _done(page, tmp_path, [(7, 2), (8, 2), (100, 0), (100, 6)])
    assert done["down"][:3] == ["90,000.0", "1,000.0", "8.0"]
    assert done["down"][-1] == "−1.5"
    assert done["up"] == done["down"][::-1]
    assert done["byName"].index("b9") < done["byName"].index("b10")
    assert done["sorts"][0] == "ascending"
    assert done["sorts"][1] is None
    assert done["found"] == [cases.NASTY[0]]
    assert done["foundWords"] == f"1 of {len(release)} rows"
    assert done["asks"]
    assert done["answers"] == [
        _answer(release, 1, 1, 1e-5, "10⁻⁵"),
        _answer(release, 7, 7, 1e-5, "10⁻⁵"),
        # There is no line for 8: the next one has the same guarantee.
        _answer(release, 8, 10, 1e-5, "10⁻⁵"),
        _answer(release, 100, 100, 1e-3, "0.001"),
        _answer(release, 100, 100, 1e-9, "10⁻⁹"),
    ]
    assert "nothing is guaranteed" in done["answers"][-1]
    assert "nothing" not in done["answers"][2]
    largest = np.argmax(release.estimate)
    assert done["pointed"].startswith(cases.NASTY[int(largest)][:9])
    assert "95% from 89,98" in done["pointed"]
    assert (done["folded"], done["foldedAgain"]) == (0, 0)


def test_no_other_script_runs(tmp_path: Path) -> None:
    page = cases.page(cases.histogram(["a", "b"]), tmp_path)
    for foreign in ("<script>document.title = 'gone'</script>", "<img src=x onerror='title = 1'>"):
        done = _done(page.replace("</main>", f"{foreign}</main>"), tmp_path, [])
        assert done["title"] == "Histogram of word – dpgrain"
        # A short table needs no search.
        assert "found" not in done


def test_numeric_keys_sort_as_numbers(tmp_path: Path) -> None:
    release = cases.histogram([30, 4, 100])
    release = replace(release, groups=Groups.of(["n"], [pa.array([30, 4, 100])]))
    assert _done(cases.page(release, tmp_path), tmp_path, [])["byName"] == ["4", "30", "100"]
