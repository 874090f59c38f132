"""Check that no file's English gets worse: the number of awkward shapes in it may only fall.

    python -m shipping.prose            # in make check: name the files above their limit
    python -m shipping.prose --write    # lower the limits in shipping/prose.json

Docstrings, comments, pages and names of tests are read; code, links and inline code are not. Every
file may have two hits, or 8 per 1,000 words; ``prose.json`` lists the files with more.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = Path(__file__).with_suffix(".json")
# Limit of an unlisted file, in hits per 1,000 words; comparable projects have 2 to 4.
USUAL = 8
# Hits that every file may have, because a short file has no meaningful rate.
FREE = 2

_PARTICIPLE = (
    r"(?:\w+ed|found|drawn|given|known|made|kept|held|told|shown|left|taken|written|read|sent)"
)
_PREPOSITION = r"(?:of|in|by|at|from|for|to|on|with|after|before|than)"
_NOT_ONE = r"(?! longer| more\b| less\b| need| way| reason| difference| other\b| one\b)"
_BEFORE_WHAT = r"(?:of|from|by|than|as|with|in|for|on|and|but|or|not|all|only|is|are|Return|return)"
# Shapes and words that read translated, and what to write instead.
SHAPES = {
    "a preposition and 'which'": rf"\b{_PREPOSITION} wh(?:ich|om)\b",
    "'what …' for a noun": rf"(?:^What (?=.*[^?]$)|(?:\b{_BEFORE_WHAT} |[,;:(] )what (?!if\b|to\b))",
    "'whoever', 'whatever'": r"\b[Ww](?:hoever|hatever|hichever)\b|^Who (?=.*[^?]$)",
    "'so many', 'as many'": r"\b[Ss]o (?:many|much|few|often)\b(?! that\b)|(?<!times )\b[Aa]s many\b",
    "a sentence that begins with 'Of'": r"^Of (?!course\b)",
    "'that is …ed'": rf"\b(?:that|which|who) (?:is|are|was|were) (?:not )?{_PARTICIPLE}\b",
    "'Where' for if": r"^Where ",
    "'is no …'": rf"(?<![Tt]here )\b(?:is|are|was|were|be) (?:no|none)\b{_NOT_ONE}",
    "'that of', 'those of'": r"\b(?:[Tt]hat of|[Tt]hose (?:of|that|who|whose))\b",
    "'whose'": r"\b[Ww]hose\b",
    "', as it …'": r", as (?:it|they|the|an?|one|no|there|nobody) (?!result|rule|matter)",
    "'tell', 'say', 'ask'": r"\b(?:[Tt]ells?|[Tt]old|[Ss]ays?|[Ss]aid|[Aa]sks?|[Aa]sked)\b",
    "'stand', 'lie'": r"\b(?:[Ss]tands?|[Ss]tood|[Ll]ies?|[Ll]ay)\b(?! for\b| out\b| by\b)",
    "'hold', 'kept'": r"\b(?:[Hh]olds?|[Hh]eld|[Kk]ept)\b(?![- ]?out\b)",
    "'beside', 'alone'": r"\b(?:[Bb]esides?|[Aa]lone|by itself|of (?:its|their) own)\b",
    "'nobody', 'somebody'": r"\b(?:[Nn]o|[Ss]ome|[Ee]very)body\b",
    "', too', 'anew', 'alike'": r", too\b|\b(?:anew|beforehand|seldom|hardly|meanwhile|alike)\b",
}
_SHAPES = {name: re.compile(shape, re.M) for name, shape in SHAPES.items()}
_CODE = re.compile(
    r"^(`{3,}|:{3,}).*?^\1\s*$|``.+?``|`[^`\n]+`|\$\$.*?\$\$|\$[^$\n]+\$", re.S | re.M
)
# A docstring begins the file, or follows a line that ends with a colon; other texts are code.
_DOCSTRING = re.compile(r'(?:\A|:(?:  #[^\n]*)?\n) *r?"""(.*?)(?:^ *>>> .*?)?"""', re.S | re.M)
# Comments in consecutive lines are one text.
_COMMENTS = re.compile(r"((?:^ *#:? .*\n)+)", re.M)
# A test name has at most nine words after "test", and no relative pronoun.
_TEST = re.compile(r"^ *def (test_\w+)", re.M)
_LONG_NAME = re.compile(r"(?:_[^_]+){10}|_(?:that|which|who|whose|whom|what)(?:_|$)")
_LINK = re.compile(r"\]\([^)]*\)")
_SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z\"'(*])|\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) )")
_WORD = re.compile(r"[A-Za-z][\w'’-]*")


def prose(path: Path, text: str) -> Iterator[str]:
    """Yield the sentences of a page, or of the docstrings and comments of a module."""
    parts = [text] if path.suffix == ".md" else _DOCSTRING.findall(text) + _COMMENTS.findall(text)
    for part in parts:
        plain = _LINK.sub("]", _CODE.sub(" ", part))
        plain = re.sub(r"^ *#:? ?", "", plain, flags=re.M) if path.suffix == ".py" else plain
        for sentence in _SENTENCE.split(plain):
            yield " ".join(sentence.strip(" #*|-").split())


def found(path: Path, text: str) -> tuple[list[str], int]:
    """Return the hits of a file, each with its sentence, and the number of its words."""
    hits, words = [], 0
    for sentence in prose(path, text):
        words += len(_WORD.findall(sentence))
        hits += [
            f"{name}: {sentence}"
            for name, shape in _SHAPES.items()
            for _ in shape.findall(sentence)
        ]
    tests = _TEST.findall(text) if path.suffix == ".py" else []
    return [*hits, *(f"a test name: {name}" for name in tests if _LONG_NAME.search(name))], words


def allowed(words: int) -> int:
    """Return the number of hits that a file with this number of words may have."""
    return max(FREE, USUAL * words // 1000)


def files() -> dict[str, tuple[list[str], int]]:
    """Return hits and words of each page and module under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    paths = {name: ROOT / name for name in listed if (ROOT / name).exists()}
    return {name: found(path, path.read_text(encoding="utf-8")) for name, path in paths.items()}


def main(arguments: list[str] | None = None) -> int:
    """Name the files that are above their limit, or lower the limits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--write", action="store_true", help="lower the limits to the present numbers"
    )
    write = parser.parse_args(arguments).write
    limits = json.loads(LIMITS.read_text(encoding="utf-8")) if LIMITS.exists() else {}
    worse, listed = [], {}
    for name, (hits, words) in files().items():
        usual, limit = allowed(words), limits.get(name, 0)
        if len(hits) > max(usual, limit):
            worse.append(f"{name}: {len(hits)} hits in {words} words, limit {max(usual, limit)}")
            worse += [f"    {hit[:150]}" for hit in hits[-3:]]
        if len(hits) > usual:
            listed[name] = min(len(hits), limit) if limits else len(hits)
    if write:
        LIMITS.write_text(json.dumps(listed, indent=0, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    print("\n".join(worse), end="\n" if worse else "")
    return min(len(worse), 1)


if __name__ == "__main__":
    sys.exit(main())
