"""Grammar of expressions: a small closed language for columns derived row by row.

=============  ====================================================================================
columns        ``amount``; names with other symbols in backquotes, ```` `paid in` ````
constants      ``12``, ``2.5``, ``'er'`` or ``"er"``, ``true``, ``false``
sums           ``a + b``, ``a - b``, ``a * b``, ``a / b``, ``-a``; also ``−``, ``×`` and ``÷``
comparisons    ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``kind in ('er', 'gp')``
conditions     ``not``, ``and``, ``or``
functions      ``month(at)``, ``bins(amount, 0, 10, 100)``; :mod:`dpgrain.tables.engines.functions`
=============  ====================================================================================

A text is parsed into a tree here; :mod:`dpgrain.tables.engines.functions` defines the types and
meanings of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dpgrain import _validate
from dpgrain.errors import ParameterError

#: Maximum tokens of an expression, and maximum depth of its tree.
LONGEST, DEEPEST = 200, 12
# Maximum characters of an expression in a message, and maximum digits of an integer.
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
# Remedies for words and symbols of other languages.
_WORDS_INSTEAD = {
    "is": "; use known(x) or not known(x)",
    "not": "; write not (x in ('a', 'b'))",
    "between": "; write x >= 1 and x <= 2",
    "like": "; compare prefix(x, 3)",
}
_INSTEAD = {"&": "; write and", "|": "; write or", "!": "; write not", "%": "; use floor(x / n)"}


def backquoted_hint(text: str, names: Iterable[str]) -> str:
    """Return the advice to put a column's name in backquotes; empty if not needed."""
    for name in names:
        if _NAME.fullmatch(name) is None and name in text and f"`{name}`" not in text:
            return f"put the column's name in backquotes: `{name}`"
    return ""


@dataclass(frozen=True)
class ColumnNode:
    """A column of the table."""

    name: str

    def __str__(self) -> str:
        plain = _NAME.fullmatch(self.name) and self.name.casefold() not in _WORDS
        return self.name if plain else f"`{self.name}`"


@dataclass(frozen=True)
class ConstantNode:
    """A constant."""

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
    """A function or an operator with its arguments."""

    # Name of the function, or symbol of the operator.
    function: str
    parts: tuple[Node, ...]

    def __str__(self) -> str:
        # Format each part once: twice per level would be exponential.
        if _NAME.fullmatch(self.function) and self.function not in _WORDS:
            return f"{self.function}({', '.join(map(str, self.parts))})"
        first, *others = self.parts
        if self.function == "in":
            return f"{_operand(first)} in ({', '.join(map(str, others))})"
        if self.function == "not":
            return f"not {_operand(first)}"
        if not others:
            return f"{self.function}{_operand(first)}"
        return f" {self.function} ".join(map(_operand, self.parts))


Node: TypeAlias = ColumnNode | ConstantNode | CallNode


def _operand(node: Node) -> str:
    """Return the text of an operand, in parentheses if it is an operator."""
    own = isinstance(node, CallNode) and (
        node.function in _WORDS or not _NAME.fullmatch(node.function)
    )
    return f"({node})" if own else str(node)


def parsed(text: str) -> Node:
    """Parse an expression; raise ParameterError with the position of an error."""
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
    """Return the beginning of an expression in quotes for a message."""
    return _validate.describe(text, most=_SHOWN_CHARACTERS)


def is_expression(text: str) -> bool:
    """Return True if a text is an expression other than a column name."""
    try:
        return isinstance(parsed(text), CallNode)
    except ParameterError:
        return False


def columns_of(node: Node) -> Iterator[str]:
    """Yield the names of columns in an expression, with repetitions."""
    if isinstance(node, ColumnNode):
        yield node.name
    elif isinstance(node, CallNode):
        for part in node.parts:
            yield from columns_of(part)


class _Parser:
    """A recursive-descent parser of one text, with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self.text, self.place, self.read = text, 0, 0
        self.kind, self.token = "", ""
        self.next()

    def next(self) -> str:
        """Advance to the next token, and return the previous one."""
        before = self.token
        self.read += 1
        if self.read > LONGEST:
            raise self.wrong(f"it has more than {LONGEST} symbols and words")
        if not self.text[self.place :].strip():
            self.kind = self.token = ""
            return before
        match = _TOKEN.match(self.text, self.place)
        if match is None:
            sign = self.text[self.place :].strip()[0]
            if sign in _QUOTES:
                raise self.wrong(
                    f"the quote {sign} is not closed; put a text that contains it in other quotes"
                )
            instead = _INSTEAD.get(sign, "")
            raise self.wrong(f"{sign!r} is not a supported symbol{instead}")
        self.kind = match.lastgroup or ""
        token = match[self.kind]
        self.token = _OTHER_SIGNS.get(token, token) if self.kind == "sign" else token
        self.place = match.end()
        return before

    def wrong(self, why: str) -> ParameterError:
        """Return the error about the current position."""
        return ParameterError(f"the expression {stated(self.text)} cannot be read: {why}.")

    def takes(self, *tokens: str) -> str:
        """Return the token and advance if it is one of these; else return an empty text."""
        word = self.token.lower() if self.kind == "name" else self.token
        if self.kind in ("sign", "name") and word in tokens:
            self.next()
            return word
        return ""

    def needs(self, sign: str) -> None:
        """Skip a symbol, or raise ParameterError if another token follows."""
        if not self.takes(sign):
            token = stated(self.token) if self.kind else "its end"
            raise self.wrong(f"{sign!r} is missing before {token}")

    def within(self, depth: int) -> None:
        """Raise ParameterError if parts are nested too deeply."""
        if depth > DEEPEST:
            raise self.wrong(f"it is nested more than {DEEPEST} levels deep")

    def end(self) -> None:
        """Raise ParameterError unless the whole text was parsed."""
        if self.kind:
            instead = _WORDS_INSTEAD.get(self.token.lower(), "")
            raise self.wrong(f"{stated(self.token)} is not allowed at this position{instead}")

    def any(self, depth: int) -> Node:
        """Parse conditions joined by ``or``."""
        self.within(depth)
        node = self.both(depth)
        while self.takes("or"):
            node = CallNode("or", (node, self.both(depth)))
        return node

    def both(self, depth: int) -> Node:
        """Parse conditions joined by ``and``."""
        node = self.negated(depth)
        while self.takes("and"):
            node = CallNode("and", (node, self.negated(depth)))
        return node

    def negated(self, depth: int) -> Node:
        """Parse a condition or its negation."""
        if self.takes("not"):
            self.within(depth)
            return CallNode("not", (self.negated(depth + 1),))
        return self.compared(depth)

    def compared(self, depth: int) -> Node:
        """Parse a comparison."""
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
        """Parse a sum."""
        node = self.multiplied(depth)
        while sign := self.takes("+", "-"):
            node = CallNode(sign, (node, self.multiplied(depth)))
        return node

    def multiplied(self, depth: int) -> Node:
        """Parse a product."""
        node = self.signed(depth)
        while sign := self.takes("*", "/"):
            node = CallNode(sign, (node, self.signed(depth)))
        return node

    def signed(self, depth: int) -> Node:
        """Parse a part or its negative."""
        if not self.takes("-"):
            return self.part(depth)
        self.within(depth)
        node = self.signed(depth + 1)
        if isinstance(node, ConstantNode) and not isinstance(node.value, bool | str):
            return ConstantNode(-node.value)
        return CallNode("-", (node,))

    def part(self, depth: int) -> Node:
        """Parse a constant, a column, a function or an expression in parentheses."""
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
            text = repr(self.token) if self.kind else "nothing"
            raise self.wrong(f"expected a column or a constant, not {text}")
        name = self.next()
        return CallNode(name.lower(), self.listed(depth)) if self.takes("(") else ColumnNode(name)

    def listed(self, depth: int) -> tuple[Node, ...]:
        """Parse arguments after an opening parenthesis."""
        if self.takes(")"):
            return ()
        parts = [self.any(depth + 1)]
        while self.takes(","):
            parts.append(self.any(depth + 1))
        self.needs(")")
        return tuple(parts)
