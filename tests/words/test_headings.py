"""Headings of pages: names in any key, and numbers without a negative zero."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.report import cases

from dpgrain._formatting import format_number, one_line, shorten
from dpgrain.tables.groups import Groups
from dpgrain.words.headings import label


@pytest.mark.slow
@pytest.mark.parametrize("column", [0, 1])
def test_names_in_any_key_are_text(column: int, tmp_path: Path) -> None:
    release = cases.histogram(cases.NASTY)
    keys = [pa.array(["plain"] * len(cases.NASTY))] * 2
    keys[column] = release.items
    names = ["<i>a</i>", "<script>b</script>"]
    page = cases.page(replace(release, groups=Groups.of(names, keys)), tmp_path)
    cases.check_safe(page)
    found = cases.Loads()
    found.feed(page)
    assert "i" not in found.tags
    assert "&lt;script&gt;alert(1)" in page
    assert "&lt;i&gt;a&lt;/i&gt;</th>" in page
    assert "\u202e" not in page


@pytest.mark.slow
def test_names_of_items_are_text(tmp_path: Path) -> None:
    page = cases.page(cases.histogram(cases.NASTY), tmp_path)
    cases.check_safe(page)
    assert "onerror=alert(2)>" not in page
    # In the table, and in both drawings as a label and as the description of a row.
    assert page.count("&lt;script&gt;alert(1)") == 5
    assert "<!--" not in page
    assert "{{ 7 * 7 }} $\\alpha_{$ &amp;amp;" in page
    assert "\u202e" not in page
    assert "x" * 121 not in page


@pytest.mark.slow
def test_integer_items(tmp_path: Path) -> None:
    page = cases.page(cases.histogram([17, -3]), tmp_path)
    assert '<td class="name">17</td>' in page
    assert '<td class="name">-3</td>' in page


def test_no_negative_zero() -> None:
    assert format_number(-0.001, 1) == "0.0"
    assert format_number(-1234.56, 1) == "−1,234.6"


def test_names() -> None:
    assert one_line("a\tb\x00\u202ec") == "a\\tb\\x00\\u202ec"
    assert one_line("") == "''"
    assert [one_line(name) for name in ("er", "er ", " er")] == ["er", "'er '", "' er'"]
    assert one_line(7) == "7"
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"
    assert shorten("漢字漢字", 6) == "漢字…"


def test_keys_share_the_letters_of_a_label() -> None:
    assert label(["North Western Region", "0-35"], 40) == "North Western Region · 0-35"
    assert label(["North Western Region", "0-35"], 19) == "North Weste… · 0-35"
    assert label(["0-35", "North Western Region"], 19) == "0-35 · North Weste…"
    assert label(["a" * 30, "b" * 30], 19) == "aaaaaaa… · bbbbbbb…"
    assert label(["a" * 30], 19) == "a" * 18 + "…"
