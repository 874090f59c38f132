"""Draws of noise, recorded, and replayed: one run's noisy answers are forced upon other rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from dpgrain.noise.exponential import permute_and_flip
from dpgrain.noise.gumbel import gumbel_order
from dpgrain.noise.laws import discrete_laplace, rounded_gaussian, truncated_geometric

# Laws whose draws are added to sums, and choices whose outcome is all that is seen.
_ADDED = (rounded_gaussian, discrete_laplace, truncated_geometric)
_CHOSEN = (gumbel_order, permute_and_flip)


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw of noise.

    Args:
        law: the name of the law.
        scale: its scale, and what else is public of it.
        sums: what noise is added to, or chosen among; private.
        answer: what comes of it.
    """

    law: str
    scale: tuple[Any, ...]
    sums: Any
    answer: Any

    def __str__(self) -> str:
        scale = ", ".join(str(np.asarray(part).tolist()) for part in self.scale)
        return f"{self.law} of {scale} on {np.shape(self.sums)}"

    def lost(self, other: Draw) -> tuple[float, float]:
        """Return what two runs' sums tell apart: (move ÷ sd)² of normal noise, and ε of other laws.

        Args:
            other: the same draw of a run on other rows.
        """
        moved = np.asarray(self.sums, dtype=float) - np.asarray(other.sums, dtype=float)
        scale = np.asarray(self.scale[0], dtype=float)
        if scale.size == moved.size:
            scale = scale.reshape(moved.shape)
        if self.law == rounded_gaussian.__name__:
            return float(((moved / scale) ** 2).sum()), 0.0
        if self.law == discrete_laplace.__name__:
            return 0.0, float((np.abs(moved) / scale).sum())
        if self.law == truncated_geometric.__name__:
            return 0.0, float((np.abs(moved) * scale).sum())
        # Choices: by the range of what is added to scores, of which one may be 0.
        wide = max(0.0, float(moved.max(initial=0))) - min(0.0, float(moved.min(initial=0)))
        best = self.scale[1] if self.law == gumbel_order.__name__ else 1
        return 0.0, wide * best / float(scale)


@contextmanager
def recorded() -> Iterator[list[Draw]]:
    """Record the draws of a run, in their order.

    Modules that a release loads must be loaded before: run it once.

    >>> from dpgrain.noise import SystemSource
    >>> from dpgrain.noise.sums import noised
    >>> with recorded() as draws:
    ...     first = noised(np.zeros(2), 1.0, 1.0, SystemSource())
    >>> with replayed(draws) as again:
    ...     second = noised(np.ones(2), 1.0, 1.0, SystemSource())
    >>> bool((first == second).all()), len(again)
    (True, 1)
    """
    draws: list[Draw] = []

    def give(law: str, scale: tuple[Any, ...], sums: Any, noise: Callable[[], Any]) -> Any:
        draws.append(Draw(law, scale, sums, noise()))
        return draws[-1].answer

    with _drawn_by(give):
        yield draws


@contextmanager
def replayed(draws: Sequence[Draw]) -> Iterator[list[Draw]]:
    """Give the answers of one run to another, whatever its sums are; yield its draws.

    Args:
        draws: those of the other run.

    Raises:
        AssertionError: if a draw has another law, scale or size, or fewer or more draws are made.
    """
    again: list[Draw] = []

    def give(law: str, scale: tuple[Any, ...], sums: Any, noise: Callable[[], Any]) -> Any:  # noqa: ARG001
        assert len(again) < len(draws), f"draws {law}, where another run had drawn all"
        given = draws[len(again)]
        again.append(Draw(law, scale, sums, given.answer))
        assert str(again[-1]) == str(given), f"draws {again[-1]} where another run drew {given}"
        return given.answer

    with _drawn_by(give):
        yield again
    more = ", ".join(map(str, draws[len(again) :]))
    assert not more, f"does not draw {more}"


#: From law, scale, sums, and what makes the answer by drawing, to the answer.
Give: TypeAlias = Callable[[str, tuple[Any, ...], Any, Callable[[], Any]], Any]


class _Noise(np.ndarray[Any, Any]):
    """Noise that asks for the answer where it is added to sums."""

    give: Give
    law: str
    scale: Any

    def __array_finalize__(self, other: Any) -> None:
        for name in ("give", "law", "scale"):
            setattr(self, name, getattr(other, name, None))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(one) for one in inputs]
        if ufunc is not np.add or method != "__call__":
            raise AssertionError(f"noise goes into {ufunc.__name__}, which is not replayed")
        (sums,) = (
            one for one, is_ in zip(plain, inputs, strict=True) if not isinstance(is_, _Noise)
        )
        noise = np.asarray(self)
        return self.give(self.law, self.scale, sums, lambda: sums + noise)


@contextmanager
def _drawn_by(give: Give) -> Iterator[None]:
    """Have all draws in the package go through a function."""

    def adding(law: Any) -> Any:
        def draw(scale: Any, *rest: Any, **options: Any) -> Any:
            noise = law(scale, *rest, **options).view(_Noise)
            noise.give, noise.law, noise.scale = give, law.__name__, (scale, *rest)
            return noise

        return draw

    def choosing(law: Any) -> Any:
        def draw(scores: Any, *rest: Any, **options: Any) -> Any:
            return give(law.__name__, rest, scores, lambda: law(scores, *rest, **options))

        return draw

    made: dict[Any, Any] = {law: adding(law) for law in _ADDED}
    made |= {law: choosing(law) for law in _CHOSEN}
    changed = [
        (module, name, law)
        for module in _callers()
        for name, value in list(vars(module).items())
        for law in made
        if value is law
    ]
    for module, name, law in changed:
        setattr(module, name, made[law])
    try:
        yield
    finally:
        for module, name, law in changed:
            setattr(module, name, law)


def _callers() -> list[ModuleType]:
    """Return the modules of the package that are loaded, but for those that define laws."""
    laws = {law.__module__ for law in (*_ADDED, *_CHOSEN)}
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("dpgrain.") and name not in laws
    ]
