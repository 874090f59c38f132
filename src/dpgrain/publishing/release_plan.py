"""Plans of releases, made before anything is read, with the error to expect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from dpgrain.accounting import Event
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import PLAIN_UNITS
from dpgrain.words import plan_text as words
from dpgrain.words.notes import Note

Part = TypeVar("Part", bound=Event)
Times = Literal["", "bounds", "range", "records", "ranks"]


@dataclass(frozen=True)
class Expected:
    """Expected noise of each number of a release, without the effect of clipping."""

    std_error: float  # of one number, in multiples of ``times``
    times: tuple[Times, ...] = ()  # factors and divisors unknown before the release
    threshold: float | None = None  # noisy count from which an item is published
    unit: str = ""  # of the sum, such as euros; empty if it is not shown

    def __str__(self) -> str:
        return words.expected_text(self)


def present(parts: Mapping[str, Part | None]) -> dict[str, Part]:
    """Return the parts that are not None."""
    return {name: part for name, part in parts.items() if part is not None}


def compose(parts: Mapping[str, Event]) -> Event:
    """Return the composition of the parts of a plan, in their order."""
    first, *rest = parts.values()
    return sum(rest, start=first)


@dataclass(frozen=True)
class Plan:
    """The plan of a query: its guarantee and the expected error, from public numbers only.

    Printed, it shows the expected error, warnings and the guarantee in short.

    Args:
        guarantee: the guarantee; each part of its event is a ticket for one draw.
        n_users: the stated number of users; None if unknown.
        cells: the public number of cells, or 1 if it is unknown.
        expected: the expected error; None if public numbers do not determine it.
        care: warnings of unreliable results, shown before the charge, each a kind and its numbers.
        parts: the parts of the event by name, whose composition it is.
        groups: the public number of groups, or 1 if it is unknown.

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who", rows="as given")
    >>> print(count.query(visits, unit=User(), epsilon=1.0, delta=1e-6, clip=5.0).plan)
    Standard error of the noise: ±7.07
    ε = 1, δ = 0 per user (users 'who'; zero_out; external rows, unverified).
    Full guarantee: print(.guarantee)
    """

    guarantee: Guarantee
    n_users: int | None = None
    cells: int = 1
    expected: Expected | None = None
    care: tuple[Note, ...] = ()
    parts: Mapping[str, Event] = field(default_factory=dict)
    groups: int = 1

    @property
    def shares(self) -> dict[str, float]:
        """Share of each part in the budget: in μ² of Gaussian noise, or in ε of Laplace noise.

        It is empty if the plan has parts of other mechanisms, because their costs do not add up.

        >>> import pyarrow as pa
        >>> from dpgrain import User, count, read
        >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
        >>> plan = count.query(visits, unit=User(), epsilon=1.0, delta=1e-6).plan
        >>> {part: round(share, 2) for part, share in plan.shares.items()}
        {'bounds': 0.28, 'clipped units': 0.05, 'sums': 0.67}
        """
        relation, unit = self.guarantee.relation, PLAIN_UNITS[self.guarantee.level]
        losses = {name: part.loss(1, relation, unit) for name, part in self.parts.items()}
        gaussian = {name: loss.mu**2 for name, loss in losses.items()}
        pure = {name: loss.pure for name, loss in losses.items()}
        spent = pure if all(pure.values()) else gaussian
        whole = sum(spent.values())
        return {name: one / whole for name, one in spent.items()} if all(spent.values()) else {}

    def __str__(self) -> str:
        return words.plan_text(self)
