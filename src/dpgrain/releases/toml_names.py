"""Error messages with the keys of a release file instead of parameters and options."""

from __future__ import annotations

import re

# A parameter of dg.read with its value, and the option for it.
_READ = re.compile(
    r"\b(?P<key>[a-z_]+)=(?:(?P<table>\{[^}]*\})|(?P<text>'[^']*')|(?=\s)) ?in dg\.read"
    r"(?: or --type .*?=(?:date|timestamp|double)\b'?| or --[a-z-]+ (?:'[^']*'|\S+))?"
)
# Remedies in Python and on the command line that precede one for files.
_DAYS = re.compile(r"table\.with_days\([^)]*\), --days \S+, or (?=\[table\.days)")
_OPTION = re.compile(r"= or --[a-z-]+\b")
# A parameter without a value.
_BARE = re.compile(r"\b([a-z_]+)=(?=[\s,;.]|$)")


def toml_spelling(sentence: str) -> str:
    """Replace parameters and options in a message by the keys of a release file."""
    plain = _OPTION.sub("", _DAYS.sub("", _READ.sub(_key, sentence)))
    return _BARE.sub(r"\1", plain)


def _key(found: re.Match[str]) -> str:
    """Return a key with its value in TOML."""
    table, text = found["table"], found["text"]
    if table:
        return f"{found['key']} = {table.replace(': ', ' = ')} in [table]"
    if text:
        # TOML interprets a backslash in double quotes only.
        return f"{found['key']} = {_quoted(text)} in [table]"
    return f"{found['key']} in [table]"


def _quoted(text: str) -> str:
    return f'"{text[1:-1]}"' if "\\" in text else text
