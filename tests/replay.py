"""Recorded noise draws, replayed: one run's noisy answers are forced upon other rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

import dpgrain.publishing.draws  # noqa: F401 - its names are replaced
from dpgrain.noise.exponential import permute_and_flip
from dpgrain.noise.gumbel import gumbel_order
from dpgrain.noise.noisy_sums import with_gaussian, with_laplace, with_truncated_geometric

# Noise distributions of sums, and choices with only their outcome visible.
_LAWS: tuple[Any, ...] = (
    with_gaussian,
    with_laplace,
    with_truncated_geometric,
    gumbel_order,
    permute_and_flip,
)


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw of noise."""

    law: str
    scale: tuple[Any, ...]
    sums: Any
    answer: Any

    def __str__(self) -> str:
        scale = ", ".join(str(np.asarray(part).tolist()) for part in self.scale)
        return f"{self.law} of {scale} on {np.shape(self.sums)}"

    def lost(self, other: Draw) -> tuple[float, float]:
        """Return how far two runs' sums differ: (move ÷ sd)² of normal noise, and ε of other laws.

        Args:
            other: the same draw of a run on other rows.
        """
        moved = np.asarray(self.sums, dtype=float) - np.asarray(other.sums, dtype=float)
        scale = np.asarray(self.scale[0], dtype=float)
        if scale.size == moved.size:
            scale = scale.reshape(moved.shape)
        if self.law == with_gaussian.__name__:
            return float(((moved / scale) ** 2).sum()), 0.0
        if self.law == with_laplace.__name__:
            return 0.0, float((np.abs(moved) / scale).sum())
        if self.law == with_truncated_geometric.__name__:
            return 0.0, float((np.abs(moved) * scale).sum())
        # Choices: by the range of the numbers added to scores; one of them may be 0.
        wide = max(0.0, float(moved.max(initial=0))) - min(0.0, float(moved.min(initial=0)))
        best = self.scale[1] if self.law == gumbel_order.__name__ else 1
        return 0.0, wide * best / float(scale)


@contextmanager
def recorded() -> Iterator[list[Draw]]:
    """Record the draws of a run, in their order.

    Modules that bind a distribution must be loaded before; only ``publishing/draws.py`` does.

    >>> from dpgrain.noise import SystemSource
    >>> from dpgrain.noise.noisy_sums import add_gaussian_noise
    >>> with recorded() as draws:
    ...     first = add_gaussian_noise(np.zeros(2), 1.0, 1.0, SystemSource())
    >>> with replayed(draws) as again:
    ...     second = add_gaussian_noise(np.ones(2), 1.0, 1.0, SystemSource())
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
    """Give the answers of one run to another, for any sums; yield its draws.

    Raises:
        AssertionError: if a draw has another distribution, scale or size, or the number of draws
            differs.
    """
    again: list[Draw] = []

    def give(law: str, scale: tuple[Any, ...], sums: Any, noise: Callable[[], Any]) -> Any:
        assert len(again) < len(draws), f"draws {law}, where another run had drawn all"
        given = draws[len(again)]
        again.append(Draw(law, scale, sums, given.answer))
        assert str(again[-1]) == str(given), f"draws {again[-1]} where another run drew {given}"
        return given.answer

    with _drawn_by(give):
        yield again
    more = ", ".join(map(str, draws[len(again) :]))
    assert not more, f"does not draw {more}"


#: From distribution, scale, sums, and the function that draws the answer, to the answer.
Give: TypeAlias = Callable[[str, tuple[Any, ...], Any, Callable[[], Any]], Any]


@contextmanager
def _drawn_by(give: Give) -> Iterator[None]:
    """Have all draws in the package go through a function."""

    def given(law: Any) -> Any:
        def draw(sums: Any, *scale: Any, source: Any = None) -> Any:
            before = np.array(sums)
            return give(law.__name__, scale, before, lambda: law(sums, *scale, source=source))

        return draw

    made = {law: given(law) for law in _LAWS}
    before = frozenset(sys.modules)
    changed = _bound(before)
    for module, name, law in changed:
        setattr(module, name, made[law])
    try:
        yield
    finally:
        for module, name, law in changed:
            setattr(module, name, law)
    assert not (late := _bound(frozenset(sys.modules) - before)), late


def _bound(paths: Iterable[str]) -> list[tuple[ModuleType, str, Any]]:
    """The names of distributions in modules of the package: module, name, distribution."""
    own = [sys.modules[path] for path in paths if path.startswith("dpgrain.")]
    return [
        (module, name, law)
        for module in own
        for name, value in list(vars(module).items())
        for law in _LAWS
        if value is law
    ]
