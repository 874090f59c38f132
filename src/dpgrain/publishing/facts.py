"""Public facts of a guarantee, each a kind and its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.words.fact_sentences import SENTENCES, places, written


@dataclass(frozen=True)
class Fact:
    """A fact that a guarantee assumes to be public and fixed in advance.

    Args:
        kind: the kind of fact, which decides the sentence; ``"stated"`` for custom text.
        numbers: the numbers and names in the sentence; the text of a stated fact.

    Raises:
        ParameterError: if the kind is unknown, or the numbers do not fit its sentence. Counts must be
            integers of at least 0, and all numbers finite.

    >>> fact = Fact("enrolled-users", (1000,))
    >>> str(fact), fact == Fact("enrolled-users", (1000,))
    ('1,000 enrolled users', True)
    >>> str(Fact("stated", ("the list of tariffs",)))
    'the list of tariffs'
    """

    kind: str
    numbers: tuple[int | float | str, ...] = ()

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        if self.kind not in SENTENCES:
            raise ParameterError(
                f"kind {_validate.describe(self.kind)} of a public fact is unknown; use 'stated' for "
                "custom text.",
                name="kind",
            )
        try:
            object.__setattr__(self, "numbers", self._fitting())
            fits = str(self) != ""
        except _validate.MISFIT_ERRORS:
            fits = False
        if not fits:
            raise ParameterError(
                f"numbers do not fit a public fact of kind {self.kind!r}: "
                f"{_validate.describe(SENTENCES[self.kind])}.",
                name="numbers",
            )

    def _fitting(self) -> tuple[int | float | str, ...]:
        """Return the numbers in the types of the sentence, so that equal facts have equal text."""
        if self.kind == "setting":
            kind, *numbers = self.numbers
            if kind == "setting":
                raise ValueError
            return (kind, *Fact(str(kind), tuple(numbers)).numbers)
        if self.kind == "stated":
            (text,) = self.numbers
            if not isinstance(text, str):
                raise ValueError
            return (text,)
        forms = places(SENTENCES[self.kind])
        return tuple(_fitted(*pair) for pair in zip(forms, self.numbers, strict=True))

    def __str__(self) -> str:
        if self.kind == "setting":
            kind, *numbers = self.numbers
            return SENTENCES["setting"].format(Fact(str(kind), tuple(numbers)))
        return written(SENTENCES[self.kind], self.numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return the fact as plain JSON values."""
        return {"kind": self.kind, "numbers": list(self.numbers)}

    @staticmethod
    def from_dict(values: Any) -> Fact:
        """Read the fact from :meth:`to_dict`.

        Raises:
            ParameterError: if a field is missing, unknown or wrong.
        """
        return _validate.read_fields(Fact, values, "a public fact")


def _fitted(form: str, value: int | float | str) -> int | float | str:
    """Return a value in the type of its format."""
    form = form.partition("|")[0]
    if not isinstance(value, str) and not math.isfinite(value):
        raise ValueError
    if not form:
        return value
    if isinstance(value, str):
        raise ValueError
    if form != ",":
        # Adding 0 makes −0 positive.
        return float(value) + 0.0
    if value < 0 or value != int(value):
        raise ValueError
    return int(value)


def unique_facts(facts: Iterable[Fact | str]) -> tuple[Fact, ...]:
    """Remove repeated facts, and stated texts with the sentence of another fact."""
    known = [Fact("stated", (fact,)) if isinstance(fact, str) else fact for fact in facts]
    sentences = {str(fact) for fact in known if fact.kind != "stated"}
    unique = (fact for fact in known if fact.kind != "stated" or str(fact) not in sentences)
    return tuple(dict.fromkeys(unique))
