"""Public facts, fixed beforehand: a kind of sentence, and the numbers in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """One public fact of a promise; two are the same if kind and numbers are.

    Args:
        kind: the sentence, with places for the numbers as :meth:`str.format` has them.
        numbers: the numbers, or names, in it.

    >>> fact = Fact("a roster of {:,} users", (1000,))
    >>> str(fact), fact == Fact("a roster of {:,} users", (1000,))
    ('a roster of 1,000 users', True)
    """

    kind: str
    numbers: tuple[float | str, ...] = ()

    def __str__(self) -> str:
        return self.kind.format(*self.numbers)
