"""Parameters of publishing functions, for Python, the command line and release files.

The signature has names, types and defaults, and the docstring describes parameters of one function.
Parameters of several functions are described here, once, and inserted into each docstring.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, get_type_hints

#: The descriptions of shared parameters, by name.
SHARED: Mapping[str, str] = {
    "table": "table from :func:`dpgrain.read`.",
    "unit": "privacy unit: ``Record()``, ``Element(by)`` or ``User()``.",
    "epsilon": "privacy parameter ε, such as 1; smaller protects more. Omit it if you pass ``share``.",
    "delta": "privacy parameter δ, in (0, 1), such as 1e-6. Use 0 only with Laplace noise.",
    "share": "share of the open budget, such as 0.5, instead of ε and δ; see :func:`dpgrain.budget`.",
    "relation": "neighbouring relation: a unit is removed, ``zero_out``, or replaced by another, "
    "``replace``.",
    "value": "column of numbers. Rows without a finite value are dropped.",
    "by": "column or columns to group by; if omitted, one answer for all rows.",
    "bounds": "public range (low, high) to which numbers are clamped; if omitted, chosen privately. "
    "That takes 15% of the budget.",
    "clip": "clipping bound of a unit's data, a number or ``auto``. It bounds the l2 norm, or the l1 "
    "norm under Laplace noise; by default, one for each cell is chosen privately with a share of the "
    "budget.",
    "domain": "public list of groups, all of which are published. By default, groups are selected "
    "privately. For several columns, pass a mapping from columns to values (other columns are "
    "selected privately) or a list of tuples.",
    "noise": "noise distribution; ``auto`` uses Laplace noise if that is known to be smaller.",
    "max_items": "maximum number of groups or items of one unit used in selection.",
    "random_state": "seed, for tests and research. The release is then *not private*.",
    "progress": "show progress; by default on a terminal, after two seconds.",
}

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
# Line width of docstrings, in characters.
_WIDTH = 104


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
    for name, lines in _listed(docstring.splitlines()).items():
        texts[name] = " ".join(line.strip() for line in lines).partition(": ")[2]
    return texts


def with_shared_parameters(docstring: str | None, names: Sequence[str]) -> str | None:
    """Insert the descriptions of shared parameters into a docstring, in the order of ``names``."""
    if docstring is None or "Args:" not in docstring:
        return docstring
    lines = docstring.splitlines()
    own = _listed(lines)
    start = next(place for place, line in enumerate(lines) if line.strip() == "Args:") + 1
    margin = " " * (len(lines[start - 1]) - len(lines[start - 1].lstrip()) + 4)
    listed: list[str] = []
    for name in [*names, *(other for other in own if other not in names)]:
        if name in own:
            listed += own[name]
        elif name in SHARED:
            listed.append(
                fill(
                    f"{name}: {SHARED[name]}",
                    _WIDTH,
                    initial_indent=margin,
                    subsequent_indent=f"{margin}    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
    end = start + sum(map(len, own.values()))
    return "\n".join([*lines[:start], *listed, *lines[end:]])


def _listed(lines: Sequence[str]) -> dict[str, list[str]]:
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
