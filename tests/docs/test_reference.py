"""The site's reference and the public names are one list."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import dpgrain as dg
from dpgrain import testing

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
_DIRECTIVE = re.compile(r"^\.\. auto(module|class|function):: dpgrain\.([\w.]+)$", re.M)


def _described(text: str) -> list[str]:
    """The names that a page of the reference describes, without `dpgrain.` before them."""
    return [name for _, name in _DIRECTIVE.findall(text)]


def _pages() -> dict[str, str]:
    return {page.stem: page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md")}


def test_every_public_name_is_described_once() -> None:
    described = [name for text in _pages().values() for name in _described(text)]
    contracts = [f"testing.{name}" for name in testing.__all__]
    # Argument and return types of public functions.
    contracts += [f"auditing.{name}" for name in ("Canaries", "Mechanism", "TrainingAudit")]
    assert sorted(described) == sorted(
        [*set(dg.__all__) - {"__version__"}, "datasets", "testing", *contracts]
    )


def test_packages_are_described_as_a_whole() -> None:
    """An ``automodule`` documents the package's ``__all__``, if it has one."""
    for text in _pages().values():
        for kind, name in _DIRECTIVE.findall(text):
            if kind == "module" and name not in ("torch", "testing"):
                assert import_module(f"dpgrain.{name}").__all__, name
                assert ":members:" in text, name


def test_every_page_is_in_the_contents() -> None:
    pages = _pages()
    contents = re.findall(r"^(\w+)$", pages.pop("index").split(":maxdepth: 1\n")[1], re.M)
    assert sorted(contents) == sorted(pages)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (".. autoclass:: dpgrain.User\n   :members:\n", ["User"]),
        ("`dpgrain.User` is in no directive\n", []),
    ],
)
def test_directives_are_seen(text: str, names: list[str]) -> None:
    assert _described(text) == names
