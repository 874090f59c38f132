"""The number of awkward shapes in a file may only fall."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shipping import prose

WORSE = "Whoever asks for what is no number is told so, too.\n"
PLAIN = "The release contains noisy counts. Rows without a user are dropped.\n"


def test_plain_sentences_have_no_hit() -> None:
    assert prose.found(Path("a.md"), PLAIN) == ([], 11)


@pytest.mark.parametrize("shape", prose.SHAPES)
def test_each_shape_is_found(shape: str) -> None:
    examples = {
        "a preposition and 'which'": "the table in which it is",
        "'what …' for a noun": "a list of what follows",
        "'whoever', 'whatever'": "Whoever reads it",
        "'so many', 'as many'": "at most so many rows",
        "a sentence that begins with 'Of'": "Of CSV all columns are text",
        "'that is …ed'": "a bound that is chosen or a value that is clipped",
        "'Where' for if": "Where n is unknown, pass it",
        "'is no …'": "a label that is no class",
        "'that of', 'those of'": "those of other users",
        "'whose'": "a user whose rows",
        "', as it …'": "no error, as it may be a row",
        "'tell', 'say', 'ask'": "the page says",
        "'stand', 'lie'": "it stands here",
        "'hold', 'kept'": "users hold items",
        "'beside', 'alone'": "beside the table",
        "'nobody', 'somebody'": "nobody sees it",
        "', too', 'anew', 'alike'": "counts elements, too",
    }
    hits, _ = prose.found(Path("a.md"), examples[shape])
    assert [hit for hit in hits if hit.startswith(f"{shape}: ")]


def test_code_and_links_are_not_prose() -> None:
    text = "```\nwhoever\n```\nSee [the page](whoever.md) and `told`.\n"
    assert prose.found(Path("a.md"), text)[0] == []


def test_docstrings_and_comments_are_read() -> None:
    module = f'"""{WORSE}"""\n# Nobody is told.\ntold = "whoever"\n'
    hits, words = prose.found(Path("a.py"), module)
    assert len(hits) == len(prose.found(Path("a.md"), WORSE)[0]) + 2
    assert words == 14


def test_assigned_texts_and_code_are_not_prose() -> None:
    module = f'"""Two texts."""\n\nONE = """\n{WORSE}"""\n\nwhoever = told\n\nTWO = """\n"""\n'
    assert prose.found(Path("a.py"), module) == ([], 2)


@pytest.mark.parametrize(
    ("name", "hits"),
    [
        ("test_a_b_c_d_e_f_g_h_i", 0),
        ("test_a_b_c_d_e_f_g_h_i_j", 1),
        ("test_rows_that_are_dropped", 1),
        ("test_whole_users", 0),
    ],
)
def test_long_names_of_tests_are_found(name: str, hits: int) -> None:
    found, _ = prose.found(Path("a.py"), f"def {name}() -> None:\n    pass\n")
    assert found == [f"a test name: {name}"] * hits


def test_a_file_above_its_limit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = tmp_path / "prose.json"
    monkeypatch.setattr(prose, "LIMITS", limits)
    monkeypatch.setattr(prose, "files", lambda: {"a.md": prose.found(Path("a.md"), WORSE)})
    limits.write_text("{}")
    assert prose.main([]) == 1
    assert capsys.readouterr().out.startswith("a.md: ")
    limits.write_text('{"a.md": 1000}')
    assert prose.main([]) == 0
    prose.main(["--write"])
    assert json.loads(limits.read_text())["a.md"] == len(prose.found(Path("a.md"), WORSE)[0])
    limits.write_text('{"a.md": 1}')
    prose.main(["--write"])
    assert json.loads(limits.read_text())["a.md"] == 1
