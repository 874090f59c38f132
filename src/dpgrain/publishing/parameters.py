"""Parameters of publishing functions, for Python, the command line and release files.

The signature has names, types and defaults, and the docstring has descriptions.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

#: The parameters whose values name columns.
COLUMNS = (
    "target",
    "features",
    "categories",
    "range",
    "columns",
    "item",
    "weight",
    "value",
    "other",
    "by",
)

# First line of the description of an argument.
_ARGUMENT = re.compile(r"(?P<margin> +)(?P<name>\w+): (?P<text>.*)")
# Docstring markup around code.
_CODE = re.compile(r"(?::\w+:)?`+~?(?:dpgrain\.)?([^`]*)`+")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a publishing function.

    Args:
        name: the name.
        hint: the type.
        default: the default; ``inspect.Parameter.empty`` if the parameter is required.
        text: the description, in docstring markup.
    """

    name: str
    hint: Any
    default: Any
    text: str = ""

    @property
    def required(self) -> bool:
        """True if the parameter is required."""
        return self.default is inspect.Parameter.empty

    @property
    def names_columns(self) -> bool:
        """True if its values are names of columns."""
        return self.name in COLUMNS

    @property
    def help(self) -> str:
        """The first sentence of the description, as plain text.

        >>> Parameter("k", int, None, "the number of items, ``k``; all without it. See there.").help
        'The number of items, k; all without it.'
        """
        return re.split(r"(?<=\.) ", self.full_help, maxsplit=1)[0]

    @property
    def full_help(self) -> str:
        """The whole description, as plain text."""
        text = _CODE.sub(r"\1", self.text)
        return text[:1].upper() + text[1:]


def parameters_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a publishing function or a class, by name.

    >>> from dpgrain import count
    >>> parameters_of(count)["by"].help
    'Column or columns to group by; if omitted, one answer for all rows.'
    """
    hints, texts = get_type_hints(function), arguments(function.__doc__ or "")
    return {
        name: Parameter(name, hints.get(name, Any), one.default, texts.get(name, ""))
        for name, one in inspect.signature(function).parameters.items()
        if one.kind is not inspect.Parameter.VAR_KEYWORD
    }


def arguments(docstring: str) -> dict[str, str]:
    """Return the descriptions of the arguments in a docstring, by name.

    >>> arguments("Count.\\n\\nArgs:\\n    a: one\\n        thing.\\n    b: two.\\n\\nMore: of it.")
    {'a': 'one thing.', 'b': 'two.'}
    """
    texts: dict[str, str] = {}
    for name, lines in argument_lines(docstring.splitlines()).items():
        texts[name] = " ".join(line.strip() for line in lines).partition(": ")[2]
    return texts


def argument_lines(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return the lines of each argument in a docstring, by name."""
    listed: dict[str, list[str]] = {}
    places = [place for place, line in enumerate(lines) if line.strip() == "Args:"]
    margin, name, blank = "", "", list[str]()
    for line in lines[places[0] + 1 :] if places else ():
        begins = _ARGUMENT.fullmatch(line)
        if not line.strip():
            blank.append(line)
        elif begins and not blank and margin in ("", begins["margin"]):
            margin, name = begins["margin"], begins["name"]
            listed[name] = [line]
        elif name and line.startswith(f"{margin} "):
            listed[name] += [*blank, line]
            blank = []
        else:
            break
    return listed
