"""Each page of the site that has code is run, and shows what its code prints."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
from tests.conftest import Command
from tests.docs import pages
from tests.docs.pages import ROOT, Bits, Shown
from tests.tables.sources.databases import database, missing

from dpgrain.noise.sources import SystemSource

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    DOCS / "installation.md",
    DOCS / "start.md",
    DOCS / "concepts.md",
    DOCS / "granularity.md",
    DOCS / "choosing.md",
    DOCS / "output.md",
    DOCS / "how-to.md",
    DOCS / "faq.md",
    DOCS / "accounting.md",
    DOCS / "deployments.md",
    DOCS / "fine-tuning.md",
    *sorted((DOCS / "tutorials").glob("*.md")),
]
# A session of Spark, and a server of PostgreSQL, take long to start.
SPARK = DOCS / "tutorials" / "spark.md"
WAREHOUSE = DOCS / "tutorials" / "warehouse.md"
SLOW = (SPARK, WAREHOUSE)


@pytest.fixture
def visits_there(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The PostgreSQL table of a page, with its address in the environment."""
    if missing():
        pytest.skip(missing())
    pytest.importorskip("adbc_driver_sqlite", reason="needs adbc-driver-sqlite")
    with database() as server:
        server.run(
            "CREATE TABLE visits (person int, page text)",
            "INSERT INTO visits SELECT i % 900, '/' || i % 7 FROM generate_series(1, 9000) i",
        )
        monkeypatch.setenv("VISITS_DB", server.address)
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=[pytest.mark.slow] if page in SLOW else [],
        )
        for page in PAGES
    ],
)
def test_page_shows_the_output_of_its_code(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
    request: pytest.FixtureRequest,
) -> None:
    text = page.read_text(encoding="utf-8")
    if page == SPARK:
        request.getfixturevalue("spark")
    if page == WAREHOUSE:
        request.getfixturevalue("visits_there")
    if "\nimport torch\n" in text and find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install 'dpgrain[torch]'")
    if "\nimport transformers\n" in text and find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install 'dpgrain[transformers]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    bits = Bits()
    monkeypatch.setattr(SystemSource, "words", lambda self, size: bits.words(size))
    monkeypatch.setattr(secrets, "randbits", Random(2025).getrandbits)
    blocks = list(pages.run(text, command))
    if os.environ.get("DPGRAIN_PAGES") == "write":
        page.write_text(pages.renewed(text, blocks), encoding="utf-8")
        pages.keep_pictures(tmp_path)
        return
    for block in blocks:
        if not block.agrees():
            assert block.shown == block.printed


@pytest.mark.parametrize(
    ("shown", "printed", "alike"),
    [
        ("a  1,000\n", "a 1,001\n", True),
        ("a 1,000\n", "b 1,000\n", False),
        ("a 1,000\n", "a 1,100\n", False),
        ("a 0.31\n", "a 0.32\n", True),
        ("a\n…\nz 1\n", "a\nb\nc\nz 1\n", True),
        ("a\n…\nz 1\n", "a\nb\nc\nz 7\n", False),
        ("by (#12ab34cd)\n", "by (#99ab34cd)\n", True),
    ],
)
def test_differences_are_detected(shown: str, printed: str, alike: bool) -> None:
    block = Shown(0, 0, shown, printed)
    assert block.agrees() is alike
    assert Shown(0, 0, block.renewed(), printed).agrees()


def test_blocks_are_found_and_renewed() -> None:
    page = "```python\nprint(1 + 1)\n```\n\n```\n3\n```\n"
    blocks = list(pages.run(page, lambda *words: pytest.fail("no command")))
    assert [block.agrees() for block in blocks] == [False]
    assert pages.renewed(page, blocks) == page.replace("3", "2")
