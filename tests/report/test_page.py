"""A report loads nothing, runs one script, and is written completely or not at all."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report import cases

import dpgrain as dg
from dpgrain.report import report as write_report
from dpgrain.words.odds import person_sentence


@pytest.mark.slow
def test_it_loads_nothing_and_runs_only_its_script(tmp_path: Path) -> None:
    page = cases.page(cases.histogram(cases.NASTY), tmp_path)
    cases.check_safe(page)


@pytest.mark.parametrize(
    ("place", "reason"),
    [("missing/report.html", "cannot be written"), ("folder", "not a regular file")],
)
def test_unwritable_place_leaves_no_file(place: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(dg.DataError, match=reason):
        write_report(cases.histogram(["yo"]), tmp_path / place)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_a_failure_while_drawing_leaves_the_old_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def broken(release: dg.Release) -> str:
        raise RuntimeError(release)

    monkeypatch.setattr("dpgrain.report.release.release_page", broken)
    with pytest.raises(RuntimeError):
        write_report(cases.histogram(["yo"]), path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_the_guarantee_can_be_read_back_from_the_page(tmp_path: Path) -> None:
    release = cases.histogram(["yo"])
    page = cases.page(release, tmp_path)
    text = re.search(r"for an audit</summary>\s*<pre>(.*?)</pre>", page, re.DOTALL)
    assert text is not None
    read = dg.Guarantee.from_dict(json.loads(html.unescape(text[1])))
    assert read == release.guarantee


@pytest.mark.slow
def test_it_is_whole_without_scripts(tmp_path: Path) -> None:
    release = cases.histogram([f"w{place}" for place in range(40)])
    page = cases.page(release, tmp_path)
    text = " ".join(cases.told(page).split())
    # The page already contains all text that the script shows, sorts or finds.
    for place in range(40):
        assert f'<td class="name">w{place}</td>' in page
    assert text.index("Estimates") < text.index("Guarantee")
    assert text.index("Guarantee") < text.index("What is not guaranteed")
    assert re.search(r'<tr data-units="100"><th scope="row">100</th>', page)
    # Elements that need the script are hidden without it.
    assert re.search(r'<div class="ask"[^>]* hidden>', page)
    assert 'class="find"' not in page.replace(cases.SCRIPT.read_text(encoding="utf-8"), "")


def test_sheet_for_the_privacy_officer(tmp_path: Path) -> None:
    release = cases.histogram(["yo"])
    page = cases.page(release, tmp_path)
    sheet = page[page.index('<section class="sheet" id="sheet">') :]
    assert html.escape(str(release.guarantee), quote=False) in html.unescape(sheet)
    assert "What is <em>not</em> guaranteed" in sheet
    assert f"dpgrain {dg.__version__}" in sheet
    assert re.search(r"Written on</th><td>\d{4}-\d\d-\d\d \(UTC\)", sheet)
    assert release.hash in sheet
    assert release.guarantee.hash in sheet
    assert person_sentence(release.guarantee) in sheet


@pytest.mark.slow
def test_warnings_of_the_release_are_not_folded(tmp_path: Path) -> None:
    release = cases.histogram(["yo"])
    careful = replace(
        release,
        metadata=replace(release.metadata, care=(("stated", "<b>the bound is a guess</b>"),)),
    )
    page = cases.page(careful, tmp_path)
    before = page[: page.index("<details")]
    warning = "&lt;b&gt;the bound is a guess&lt;/b&gt;"
    assert f"<strong>Warning:</strong> {warning}." in before
    assert "Warning:" not in cases.page(release, tmp_path)
