"""Sentences of the library in the words of the command line: parameters go by their options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from shlex import quote
from typing import Any

from dpgrain.releases.toml_names import toml_spelling

#: The options of the command that runs, by the names of their parameters.
options: ContextVar[Mapping[str, str]] = ContextVar("options")

# What Python takes and an option takes as well: only the option is left.
_EITHER = re.compile(r"\b[a-z_]+=(?:(?:\{[^}]*\}|'[^']*'|\S+) in dg\.read|,|) or (?=--)")
# Names of columns, which are nobody's parameters.
_COLUMNS = re.compile(r"; (?:it has|(?:none )?of its) .*", re.DOTALL)
# A parameter with a text, or with what is not told.
_TEXT = re.compile(r"\b(?P<name>[a-z_]+)=(?:(?P<text>'[^']*')|(?=[\s,;.]|$))")
_LONG_NAME = re.compile(r"(?<![\w'\"./-])(?P<name>[a-z]+(?:_[a-z]+)+)(?![\w'\"(/.]|\.\w)")


def options_of(made: Any) -> dict[str, str]:
    """Return the options of a command by the names of their parameters; a table is an argument."""
    named = {one.name: one.opts[0] for one in made.params if one.opts[0].startswith("--")}
    reads = any(getattr(one, "metavar", None) == "TABLE" for one in made.params)
    if not reads:
        return named
    # An option --table is called otherwise in code, where it would be taken for the table itself.
    return {**named, "source": "TABLE", "source_env": "TABLE", "table": "--table"}


def spelled(error: str) -> str:
    """Return the sentence of an error with options in place of parameters of the command that runs.

    An error begins with what it is about, also where that is a word that means other things as well.

    >>> token = options.set({"n_users": "--n-users", "bounds": "--bounds", "noise": "--noise"})
    >>> spelled("bounds must be given beside n_users; or noise='laplace', or bounds= of your own.")
    '--bounds must be given beside --n-users; or --noise laplace, or --bounds of your own.'
    >>> options.reset(token)
    """
    first, space, rest = spelled_inside(error).partition(" ")
    return f"{options.get({}).get(first, first)}{space}{rest}"


def spelled_inside(text: str) -> str:
    """Return a text with options in place of what can be nothing but a parameter.

    Those are words with an underscore or before an equals sign.

    >>> token = options.set({"n_users": "--n-users", "noise": "--noise"})
    >>> spelled_inside("noise hides them: give n_users, or noise='laplace'")
    'noise hides them: give --n-users, or --noise laplace'
    >>> options.reset(token)
    """
    known = options.get({})
    if "where" in known and "types" not in known:
        # A command that cuts a table, and has no option for its types, reads a file of releases.
        text = toml_spelling(text)

    def option(found: re.Match[str]) -> str:
        name = known.get(found["name"])
        if name is None:
            return found[0]
        value = found.groupdict().get("text")
        return name if value is None else f"{name} {quote(value[1:-1])}"

    columns = _COLUMNS.search(text)
    end = len(text) if columns is None else columns.start()
    said = _EITHER.sub("", text[:end])
    return _LONG_NAME.sub(option, _TEXT.sub(option, said)) + text[end:]
