"""A page loads nothing, runs nothing, and is written whole or not at all."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from tests.report import cases

import dpgrain as dg
from dpgrain.report import write_report


def test_it_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    page = cases.page(cases.histogram(cases.NASTY), tmp_path)
    found = cases.Loads()
    found.feed(page)
    assert not {"script", "img", "link", "iframe", "object", "base"} & set(found.tags)
    assert found.handlers == []
    assert all(reference.startswith("#") for reference in found.references)
    assert "url(http" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


@pytest.mark.parametrize("place", ["missing/report.html", "folder"])
def test_no_file_is_left_where_it_cannot_be_written(place: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(dg.DataError, match="cannot be written"):
        write_report(cases.histogram(["yo"]), tmp_path / place)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_a_failure_while_drawing_leaves_the_old_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def broken(release: dg.Release, holdings: dg.Holdings | None) -> str:
        raise RuntimeError(release)

    monkeypatch.setattr("dpgrain.report.release.release_page", broken)
    with pytest.raises(RuntimeError):
        write_report(cases.histogram(["yo"]), path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_guarantee_can_be_read_back_from_the_page(tmp_path: Path) -> None:
    release = cases.histogram(["yo"])
    page = cases.page(release, tmp_path)
    text = re.search(r"for an audit</summary>\s*<pre>(.*?)</pre>", page, re.DOTALL)
    assert text is not None
    read = dg.Guarantee.from_dict(json.loads(html.unescape(text[1])))
    assert read == release.guarantee
