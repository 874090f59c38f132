"""Messages of the library with the names of options instead of parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from shlex import quote
from typing import Any

from dpgrain.releases.toml_names import toml_spelling

#: Options of the running command, by the names of their parameters.
options: ContextVar[Mapping[str, str]] = ContextVar("options")

# Python's remedy before the same remedy as an option; only the option is kept.
_EITHER = re.compile(r"\b[a-z_]+=(?:(?:\{[^}]*\}|'[^']*'|\S+) in dg\.read|,|) or (?=--)")
# A remedy in Python, and the option or key of a release file with the same effect.
_SCALED = "divide each feature by a public number, so that it is between −1 and 1"
_RANGED = "pass --range COLUMN=LOW:HIGH, which scales a feature to [0, 1]"
_RANGED_IN_FILE = "set range, which scales a feature to [0, 1]"
# Names of columns, which are not parameters.
_COLUMNS = re.compile(r"; (?:it has|(?:none )?of its) .*", re.DOTALL)
# A parameter with a text, or without a value.
_TEXT = re.compile(r"\b(?P<name>[a-z_]+)=(?:(?P<text>'[^']*'|\"'\")|(?=[\s,;.]|$))")
_LONG_NAME = re.compile(r"(?<![\w'\"./-])(?P<name>[a-z]+(?:_[a-z]+)+)(?![\w'\"(/.]|\.\w)")


def flags_of(built: Any) -> dict[str, str]:
    """Return the options of a command by the names of their parameters."""
    flags = {one.name: one.opts[0] for one in built.params if one.opts[0].startswith("--")}
    if not any(getattr(one, "metavar", None) == "TABLE" for one in built.params):
        return flags
    # The parameter of --table has another name, because ``table`` is the table itself.
    return {**flags, "source": "TABLE", "source_env": "TABLE", "table": "--table"}


def spelled(error: str) -> str:
    """Return an error message with options of the running command, not parameters."""
    # The first word is always a parameter, even if it is an ordinary word.
    first, space, rest = spelled_inside(error).partition(" ")
    return f"{options.get({}).get(first, first)}{space}{rest}"


def spelled_inside(text: str) -> str:
    """Return a text with options for words with an underscore or an equals sign."""
    known = options.get({})
    if "where" in known and "types" not in known:
        # A command with regions but without types of columns reads a release file.
        text = toml_spelling(text).replace(_SCALED, _RANGED_IN_FILE)

    def option(found: re.Match[str]) -> str:
        name = known.get(found["name"])
        if name is None:
            return found[0]
        value = found.groupdict().get("text")
        if value is None:
            return name
        text = value if value[0] == '"' else quote(value[1:-1])
        return f"{name} {text}"

    columns = _COLUMNS.search(text)
    end = len(text) if columns is None else columns.start()
    start = _EITHER.sub("", text[:end])
    if "ranges" in known:
        start = start.replace(_SCALED, _RANGED)
    return _LONG_NAME.sub(option, _TEXT.sub(option, start)) + text[end:]
