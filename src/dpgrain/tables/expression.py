"""A small closed language for columns that are made of others, row by row: its grammar.

=============  ====================================================================================
columns        ``amount``; one with other signs in its name in backquotes, ```` `paid in` ````
constants      ``12``, ``2.5``, ``'er'`` or ``"er"``, ``true``, ``false``
sums           ``a + b``, ``a - b``, ``a * b``, ``a / b``, ``-a``; also ``−``, ``×`` and ``÷``
comparisons    ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``kind in ('er', 'gp')``
conditions     ``not``, ``and``, ``or``
functions      ``month(at)``, ``bins(amount, 0, 10, 100)``; :mod:`dpgrain.tables.engines.functions`
=============  ====================================================================================

A text is read into a tree once, here; what its parts mean, and of which types they are, is said where
they become SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dpgrain import _validate
from dpgrain.errors import ParameterError

#: Signs and words of the longest expression, and how deep its parts may lie in one another.
LONGEST, DEEPEST = 200, 12
# Characters of an expression that a message shows, and digits of a whole number, at most.
_SHOWN_CHARACTERS, _MOST_DIGITS = 200, 40
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)
  | (?P<name>[^\W\d]\w*)
  | `(?P<quoted>[^`]+)`
  | '(?P<single>[^']*)'
  | "(?P<double>[^"]*)"
  | (?P<sign><=|>=|!=|<>|==|[-−+*×/÷=<>(),])
  )""",
    re.VERBOSE,
)
_OTHER_SIGNS = {"−": "-", "×": "*", "÷": "/", "==": "=", "<>": "!="}
_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_WORDS = ("and", "or", "not", "in", "true", "false")
_NAME = re.compile(r"[^\W\d]\w*")
_QUOTES = ("'", '"', "`")
# Remedies for words and signs of other languages.
_WORDS_INSTEAD = {
    "is": "; use known(x) or not known(x)",
    "not": "; write not (x in ('a', 'b'))",
    "between": "; write x >= 1 and x <= 2",
    "like": "; compare prefix(x, 3)",
}
_INSTEAD = {"&": "; write and", "|": "; write or", "!": "; write not", "%": "; use floor(x / n)"}


@dataclass(frozen=True)
class ColumnNode:
    """A column of the table."""

    # Its name.
    name: str

    def __str__(self) -> str:
        plain = _NAME.fullmatch(self.name) and self.name.casefold() not in _WORDS
        return self.name if plain else f"`{self.name}`"


@dataclass(frozen=True)
class ConstantNode:
    """A constant."""

    # A number, a text or a truth.
    value: bool | int | float | str

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, str):
            mark = '"' if "'" in self.value else "'"
            return f"{mark}{self.value}{mark}"
        return repr(self.value)


@dataclass(frozen=True)
class CallNode:
    """A function, or an operator, of parts."""

    # The name of the function, or the sign of the operator.
    function: str
    # What it is of.
    parts: tuple[Node, ...]

    def __str__(self) -> str:
        # Each part is written once: twice at each level would be without end.
        if _NAME.fullmatch(self.function) and self.function not in _WORDS:
            return f"{self.function}({', '.join(map(str, self.parts))})"
        first, *others = self.parts
        if self.function == "in":
            return f"{_held(first)} in ({', '.join(map(str, others))})"
        if self.function == "not":
            return f"not {_held(first)}"
        if not others:
            return f"{self.function}{_held(first)}"
        return f" {self.function} ".join(map(_held, self.parts))


Node: TypeAlias = ColumnNode | ConstantNode | CallNode


def _held(node: Node) -> str:
    """Return the text of a part of an operator, in parentheses where it is one itself."""
    own = isinstance(node, CallNode) and (
        node.function in _WORDS or not _NAME.fullmatch(node.function)
    )
    return f"({node})" if own else str(node)


def parsed(text: str) -> Node:
    """Read an expression.

    >>> print(parsed("bins(amount, 0, 10)  "), "|", parsed("a + b*2 > 3 and not kind in ('x')"))
    bins(amount, 0, 10) | ((a + (b * 2)) > 3) and (not (kind in ('x')))
    """
    if not isinstance(text, str) or not text.strip():
        raise ParameterError(
            "an expression must be text such as 'month(at)' or 'a + b', not "
            f"{_validate.describe(text)}."
        )
    parser = _Parser(text)
    node = parser.any(0)
    parser.end()
    return node


def stated(text: str) -> str:
    """Return an expression, or a part of it, in quotes for a message: the beginning of a long one."""
    return _validate.describe(text, most=_SHOWN_CHARACTERS)


def is_expression(text: str) -> bool:
    """Return whether a text can be read as more than the name of a column.

    >>> is_expression("month(at)"), is_expression("month"), is_expression("month of at")
    (True, False, False)
    """
    try:
        return isinstance(parsed(text), CallNode)
    except ParameterError:
        return False


def columns_of(node: Node) -> Iterator[str]:
    """Yield the names of the columns that an expression is made of, each as often as it stands there.

    >>> list(columns_of(parsed("a + lower(b) * 2")))
    ['a', 'b']
    """
    if isinstance(node, ColumnNode):
        yield node.name
    elif isinstance(node, CallNode):
        for part in node.parts:
            yield from columns_of(part)


class _Parser:
    """The reading of one text from left to right, with one token of foresight."""

    def __init__(self, text: str) -> None:
        self.text, self.place, self.read = text, 0, 0
        self.kind, self.token = "", ""
        self.next()

    def next(self) -> str:
        """Go to the next token, and return the one before."""
        before = self.token
        self.read += 1
        if self.read > LONGEST:
            raise self.wrong(f"it has more than {LONGEST} symbols and words")
        if not self.text[self.place :].strip():
            self.kind = self.token = ""
            return before
        found = _TOKEN.match(self.text, self.place)
        if found is None:
            sign = self.text[self.place :].strip()[0]
            if sign in _QUOTES:
                raise self.wrong(
                    f"the quote {sign} is not closed; put a text that contains it in other quotes"
                )
            instead = _INSTEAD.get(sign, "")
            raise self.wrong(f"{sign!r} is not a supported symbol{instead}")
        self.kind = found.lastgroup or ""
        token = found[self.kind]
        self.token = _OTHER_SIGNS.get(token, token) if self.kind == "sign" else token
        self.place = found.end()
        return before

    def wrong(self, why: str) -> ParameterError:
        """Return the error for what stands at this place."""
        return ParameterError(f"the expression {stated(self.text)} cannot be read: {why}.")

    def takes(self, *tokens: str) -> str:
        """Return the token and go on, if it is a sign or a word of these; else an empty text."""
        word = self.token.lower() if self.kind == "name" else self.token
        if self.kind in ("sign", "name") and word in tokens:
            self.next()
            return word
        return ""

    def needs(self, sign: str) -> None:
        """Pass over a sign."""
        if not self.takes(sign):
            there = stated(self.token) if self.kind else "its end"
            raise self.wrong(f"{sign!r} is missing before {there}")

    def within(self, depth: int) -> None:
        """Raise if parts lie too deep in one another."""
        if depth > DEEPEST:
            raise self.wrong(f"it is nested more than {DEEPEST} levels deep")

    def end(self) -> None:
        """Raise unless all has been read."""
        if self.kind:
            instead = _WORDS_INSTEAD.get(self.token.lower(), "")
            raise self.wrong(f"{stated(self.token)} is not allowed at this position{instead}")

    def any(self, depth: int) -> Node:
        """Read alternatives."""
        self.within(depth)
        node = self.both(depth)
        while self.takes("or"):
            node = CallNode("or", (node, self.both(depth)))
        return node

    def both(self, depth: int) -> Node:
        """Read conditions that all hold."""
        node = self.negated(depth)
        while self.takes("and"):
            node = CallNode("and", (node, self.negated(depth)))
        return node

    def negated(self, depth: int) -> Node:
        """Read a condition, or one that does not hold."""
        if self.takes("not"):
            self.within(depth)
            return CallNode("not", (self.negated(depth + 1),))
        return self.compared(depth)

    def compared(self, depth: int) -> Node:
        """Read a comparison."""
        node = self.added(depth)
        if sign := self.takes(*_COMPARISONS):
            node = CallNode(sign, (node, self.added(depth)))
            if self.token in _COMPARISONS and self.kind == "sign":
                raise self.wrong("comparisons cannot be chained; join them with 'and'")
        elif self.takes("in"):
            self.needs("(")
            node = CallNode("in", (node, *self.listed(depth)))
        return node

    def added(self, depth: int) -> Node:
        """Read a sum."""
        node = self.multiplied(depth)
        while sign := self.takes("+", "-"):
            node = CallNode(sign, (node, self.multiplied(depth)))
        return node

    def multiplied(self, depth: int) -> Node:
        """Read a product."""
        node = self.signed(depth)
        while sign := self.takes("*", "/"):
            node = CallNode(sign, (node, self.signed(depth)))
        return node

    def signed(self, depth: int) -> Node:
        """Read a part, or its negative."""
        if not self.takes("-"):
            return self.part(depth)
        self.within(depth)
        node = self.signed(depth + 1)
        if isinstance(node, ConstantNode) and not isinstance(node.value, bool | str):
            return ConstantNode(-node.value)
        return CallNode("-", (node,))

    def part(self, depth: int) -> Node:
        """Read a constant, a column, a function or what stands in parentheses."""
        if self.kind == "number":
            token = self.next()
            if not token.isdigit():
                return ConstantNode(float(token))
            if len(token) > _MOST_DIGITS:
                raise self.wrong(f"a number has more than {_MOST_DIGITS} digits")
            return ConstantNode(int(token))
        if self.kind in ("single", "double"):
            return ConstantNode(self.next())
        if self.kind == "quoted":
            return ColumnNode(self.next())
        if self.takes("("):
            node = self.any(depth + 1)
            self.needs(")")
            return node
        if word := self.takes("true", "false"):
            return ConstantNode(word == "true")
        if self.kind != "name" or self.token.lower() in _WORDS:
            there = repr(self.token) if self.kind else "nothing"
            raise self.wrong(f"expected a column or a constant, not {there}")
        name = self.next()
        return CallNode(name.lower(), self.listed(depth)) if self.takes("(") else ColumnNode(name)

    def listed(self, depth: int) -> tuple[Node, ...]:
        """Read parts between parentheses, of which the first is passed."""
        if self.takes(")"):
            return ()
        parts = [self.any(depth + 1)]
        while self.takes(","):
            parts.append(self.any(depth + 1))
        self.needs(")")
        return tuple(parts)
