"""Sentences of the library in the words of a file of releases: parameters go by their keys."""

from __future__ import annotations

import re

# A parameter of dg.read with its value, and what the command line has for it.
_READ = re.compile(
    r"\b(?P<key>[a-z_]+)=(?:(?P<table>\{[^}]*\})|(?P<text>'[^']*')|(?=\s)) ?in dg\.read"
    r"(?: or --type .*?=(?:date|timestamp|double)\b| \(--type .*?=date\)"
    r"| or --[a-z-]+ (?:'[^']*'|\S+))?"
)
# Other remedies of Python and of the command line, where a file has one of its own.
_DAYS = re.compile(r"table\.with_days\([^)]*\), --days \S+, or (?=\[table\.days)")
_OPTION = re.compile(r"= or --[a-z-]+\b")


def toml_spelling(sentence: str) -> str:
    """Return a sentence with the keys of a file of releases in place of Python's and of options.

    >>> print(toml_spelling("state types={'paid': 'DOUBLE'} in dg.read or --type paid=double."))
    state types = {'paid' = 'DOUBLE'} in [table].
    >>> print(toml_spelling("name its values, in categories= or --categories."))
    name its values, in categories.
    """
    return _OPTION.sub("", _DAYS.sub("", _READ.sub(_key, sentence)))


def _key(found: re.Match[str]) -> str:
    """Return a key of the file with its value, as TOML has them."""
    table, text = found["table"], found["text"]
    if table:
        return f"{found['key']} = {table.replace(': ', ' = ')} in [table]"
    if text:
        # TOML reads a backslash between double quotes only.
        return f"{found['key']} = {_quoted(text)} in [table]"
    return f"{found['key']} in [table]"


def _quoted(text: str) -> str:
    return f'"{text[1:-1]}"' if "\\" in text else text
