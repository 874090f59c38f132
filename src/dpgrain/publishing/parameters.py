"""The parameters of doors: what Python, the command line and files of releases ask for alike.

A door's signature states names, types and defaults, and its docstring describes what is its own. What
several doors share is described here, once, and stands in the docstring of each.
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

# A line of a docstring that begins the description of an argument.
_ARGUMENT = re.compile(r"(?P<margin> +)(?P<name>\w+): (?P<text>.*)")
# Marks of docstrings around words of code.
_CODE = re.compile(r"(?::\w+:)?`+~?(?:dpgrain\.)?([^`]*)`+")
# Characters of a line of a docstring.
_WIDTH = 104


@dataclass(frozen=True)
class Parameter:
    """One parameter of a door.

    Args:
        name: the name.
        hint: the type.
        default: the default; ``inspect.Parameter.empty`` where it must be given.
        text: the description, as docstrings have it.
    """

    name: str
    hint: Any
    default: Any
    text: str = ""

    @property
    def needed(self) -> bool:
        """True if it must be given."""
        return self.default is inspect.Parameter.empty

    @property
    def names_columns(self) -> bool:
        """True if its value names columns."""
        return self.name in COLUMNS

    @property
    def help(self) -> str:
        """The first sentence of the description, without marks of docstrings.

        >>> Parameter("k", int, None, "the number of items, ``k``; all without it. See there.").help
        'The number of items, k; all without it.'
        """
        return re.split(r"(?<=\.) ", self.described, maxsplit=1)[0]

    @property
    def described(self) -> str:
        """The whole description, without marks of docstrings."""
        said = _CODE.sub(r"\1", self.text)
        return said[:1].upper() + said[1:]


def parameters_of(door: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a door, a function or a class, by name.

    Args:
        door: the door.

    >>> from dpgrain import count
    >>> parameters_of(count)["by"].help
    'Column or columns to group by; if omitted, one answer for all rows.'
    """
    hints, texts = get_type_hints(door), arguments(door.__doc__ or "")
    return {
        name: Parameter(name, hints.get(name, Any), one.default, texts.get(name, ""))
        for name, one in inspect.signature(door).parameters.items()
        if one.kind is not inspect.Parameter.VAR_KEYWORD
    }


def arguments(docstring: str) -> dict[str, str]:
    """Return the descriptions of the arguments that a docstring lists, by name.

    >>> arguments("Count.\\n\\nArgs:\\n    a: one\\n        thing.\\n    b: two.\\n\\nMore: of it.")
    {'a': 'one thing.', 'b': 'two.'}
    """
    texts: dict[str, str] = {}
    for name, lines in _listed(docstring.splitlines()).items():
        texts[name] = " ".join(line.strip() for line in lines).partition(": ")[2]
    return texts


def described(docstring: str | None, names: Sequence[str]) -> str | None:
    """Return a docstring with descriptions of the shared parameters that it does not describe itself.

    Args:
        docstring: the docstring; None where Python runs without them.
        names: the parameters, in their order.
    """
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
    """Return the lines of each argument that a docstring lists, by name."""
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
