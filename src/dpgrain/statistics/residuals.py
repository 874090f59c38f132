"""Residuals of marginals: noise scales, the norm of a unit, and answers that agree.

The marginal of columns A is a sum of *residuals*, one for each subset B of A: the part of the
marginal of B that no smaller marginal determines. Each residual is measured once, by integer
contrasts with independent noise, and every marginal is computed from the residuals of its subsets.
Source: docs/theory, "Marginals".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import FloatArray, IntArray
from dpgrain.noise.distributions import MAX_SCALE

#: Indices of columns, ascending.
Columns: TypeAlias = tuple[int, ...]
# Largest noise scale, in grid steps: scales are rounded up later.
_LARGEST_SCALE = MAX_SCALE / 2
# Bits below the number 1 of the coefficients of norms; their absolute sum is below 2^35.
_NORM_BITS = 34
# Bits of the weight 1, and the fewest that a bound may need.
_WEIGHT_BITS, _LEAST_BITS = 20, 4


def subsets(columns: Columns) -> list[Columns]:
    """Return all subsets of some columns, smaller ones first."""
    sizes = range(len(columns) + 1)
    return [part for size in sizes for part in itertools.combinations(columns, size)]


def closure(workload: Sequence[Columns], sizes: Sequence[int]) -> list[Columns]:
    """Return all subsets of marginals with a residual, smaller ones first."""
    every = {part for marginal in workload for part in subsets(marginal)}
    return sorted(
        (part for part in every if all(sizes[i] > 1 for i in part)),
        key=lambda part: (len(part), part),
    )


@dataclass(frozen=True)
class _Contrasts:
    """Orthogonal integer contrasts of n values; with the total they determine all.

    Contrast i has ``left`` at positions first … middle − 1, and −``right`` at middle … last − 1.
    """

    first: IntArray
    middle: IntArray
    last: IntArray
    left: IntArray
    right: IntArray

    @property
    def squares(self) -> IntArray:
        """Squared norm of each contrast, (n − 1,)."""
        return (self.middle - self.first) * self.left**2 + (self.last - self.middle) * self.right**2

    def apply(self, table: IntArray, axis: int) -> IntArray:
        """Return the contrasts of integers along an axis, modulo 2^64."""
        rows = np.moveaxis(table, axis, 0)
        below = np.concatenate([np.zeros_like(rows[:1]), np.cumsum(rows, axis=0)])
        shape = (-1,) + (1,) * (rows.ndim - 1)
        before, after = (
            below[self.middle] - below[self.first],
            below[self.last] - below[self.middle],
        )
        made = self.left.reshape(shape) * before - self.right.reshape(shape) * after
        return np.moveaxis(made, 0, axis)

    def invert(self, contrasts: FloatArray, axis: int) -> FloatArray:
        """Return the values with mean 0 of contrasts along an axis."""
        rows = np.moveaxis(contrasts, axis, 0)
        shape = (-1,) + (1,) * (rows.ndim - 1)
        rows = rows / self.squares.reshape(shape)
        steps = np.zeros((len(rows) + 2, *rows.shape[1:]))
        left, right = self.left.reshape(shape) * rows, self.right.reshape(shape) * rows
        np.add.at(steps, self.first, left)
        np.subtract.at(steps, self.middle, left + right)
        np.add.at(steps, self.last, right)
        return np.moveaxis(np.cumsum(steps, axis=0)[:-1], 0, axis)


@cache
def contrasts(values: int) -> _Contrasts:
    """Return the contrasts of a number of values, a tree of splits."""
    rows, parts = [], [(0, values)]
    while parts:
        first, last = parts.pop()
        size = last - first
        if size < 2:
            continue
        factor = next((f for f in range(2, math.isqrt(size) + 1) if size % f == 0), size)
        middle = first + size // factor
        # Both sides have the same sum of coefficients.
        rows.append((first, middle, last, factor - 1, 1))
        parts += [(middle, last), (first, middle)]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return _Contrasts(*columns)


@dataclass(frozen=True)
class Residuals:
    """Measured residuals of a workload of marginals, from public sizes only."""

    sizes: tuple[int, ...]  # number of values of each column
    workload: tuple[Columns, ...]
    precisions: Mapping[Columns, Fraction]  # 1/variance in clipping bounds; a record has norm 1

    @staticmethod
    def create(
        sizes: Sequence[int], workload: Sequence[Columns], *, nonnegative: bool = False
    ) -> Residuals:
        """Return the residuals with the least total variance of answers for their norm."""
        shared = _shares(workload, sizes)
        weights = {}
        for part in shared:
            cost = math.prod(1 - 1 / sizes[i] for i in part)
            variance = shared[part] * math.prod(sizes[i] - 1 for i in part)
            weights[part] = Fraction(float(f"{math.sqrt(variance / cost):.6g}"))
        if nonnegative:
            kept = {part: max(one, Fraction(0)) for part, one in _kernel(weights, sizes).items()}
            weights = _precisions(kept, sizes)
        kernel = _kernel(weights, sizes).values()
        whole = sum(kernel)
        # Rounding up the coefficients of norms must not move the norm of a record above 1.
        whole /= 1 - Fraction(len(shared), 1 << _coefficient_bits(one / whole for one in kernel))
        precisions = {part: one / whole for part, one in weights.items()}
        return Residuals(tuple(sizes), tuple(workload), precisions)

    @cached_property
    def kernel(self) -> Mapping[Columns, Fraction]:
        """Coefficients κ: records have inner product Σ κ_B over all B where they agree."""
        return _kernel(self.precisions, self.sizes)

    @property
    def is_nonnegative(self) -> bool:
        """True if no two records have a negative inner product, because no coefficient is."""
        return all(one >= 0 for one in self.kernel.values())

    @cached_property
    def norm_bits(self) -> int:
        """Bits below the number 1 of the coefficients of squared norms."""
        return _coefficient_bits(self.kernel.values())

    @cached_property
    def coefficients(self) -> dict[Columns, int]:
        """Coefficients κ in units of 2^−norm_bits, rounded up."""
        scale = 1 << self.norm_bits
        return {part: math.ceil(one * scale) for part, one in self.kernel.items()}

    @cached_property
    def _scales(self) -> FloatArray:
        """Norm of each contrast ÷ root of its precision, (d,), not below the exact number."""
        parts = []
        for part, precision in self.precisions.items():
            squares = np.ones(())
            for i in part:
                squares = np.multiply.outer(squares, contrasts(self.sizes[i]).squares.astype(float))
            parts.append(np.sqrt(squares / float(precision)).ravel())
        return np.concatenate(parts) * (1 + 2.0**-40)

    def weight_bits(self, bound: float, noise_multiplier: float) -> int:
        """Return the bits of a unit's weight 1, so that no noise scale exceeds its limit."""
        most = float(self._scales.max()) * bound * noise_multiplier
        return min(_WEIGHT_BITS, math.floor(math.log2(_LARGEST_SCALE / most)))

    def largest_bound(self, noise_multiplier: float) -> float:
        """Return the largest clipping bound with noise scales within the limit."""
        return _LARGEST_SCALE / 2.0**_LEAST_BITS / noise_multiplier / float(self._scales.max())

    def radius(self, bound: float, bits: int) -> FloatArray:
        """Return each contrast's noise radius, (d,), for a bound in weights 2^−bits."""
        return self._scales * bound * 2.0**bits

    def measure(self, tables: Mapping[Columns, IntArray]) -> IntArray:
        """Return all contrasts, (d,), of tables of counts, one per marginal of the workload."""
        vectors = []
        for part in self.precisions:
            marginal = next(one for one in self.workload if set(part) <= set(one))
            dropped = tuple(at for at, i in enumerate(marginal) if i not in part)
            table = tables[marginal].sum(axis=dropped, dtype=np.int64)
            for axis, i in enumerate(part):
                table = contrasts(self.sizes[i]).apply(table, axis)
            vectors.append(table.ravel())
        return np.concatenate(vectors)

    def split(self, vector: NDArray[Any]) -> dict[Columns, FloatArray]:
        """Return each residual as a table, from all contrasts, (d,)."""
        residuals, start = {}, 0
        for part in self.precisions:
            shape = [self.sizes[i] - 1 for i in part]
            size = math.prod(shape)
            table = vector[start : start + size].astype(np.float64).reshape(shape)
            for axis, i in enumerate(part):
                table = contrasts(self.sizes[i]).invert(table, axis)
            residuals[part], start = table, start + size
        return residuals

    def answer(self, residuals: Mapping[Columns, FloatArray], marginal: Columns) -> FloatArray:
        """Return the table of a marginal from the residuals of its subsets."""
        table = np.zeros([self.sizes[i] for i in marginal])
        for part in subsets(marginal):
            if part in residuals:
                shape = [self.sizes[i] if i in part else 1 for i in marginal]
                others = math.prod(self.sizes[i] for i in marginal if i not in part)
                table = table + residuals[part].reshape(shape) / others
        return table

    def variance(self, marginal: Columns) -> float:
        """Return the variance of each cell of a marginal, for noise of one clipping bound."""
        return self.covariance(marginal, marginal, marginal)

    def covariance(self, one: Columns, two: Columns, equal: Columns) -> float:
        """Return the covariance of two marginals' cells that agree in columns ``equal``."""
        total = 0.0
        for part in subsets(tuple(i for i in one if i in two)):
            if part in self.precisions:
                near = math.prod((i in equal) - 1 / self.sizes[i] for i in part)
                others = math.prod(
                    1 / self.sizes[i] for columns in (one, two) for i in columns if i not in part
                )
                total += near * others / float(self.precisions[part])
        return total

    @cached_property
    def shares(self) -> dict[Columns, float]:
        """Squared error of all answers per squared error of each residual."""
        return _shares(self.workload, self.sizes)

    def noise_energy(self) -> FloatArray:
        """Return the mean and sd of all answers' squared noise for bound 1, (2,)."""
        each = np.array([one / float(self.precisions[part]) for part, one in self.shares.items()])
        free = np.array([math.prod(self.sizes[i] - 1 for i in part) for part in self.shares])
        return np.array([each @ free, math.sqrt(2 * (each**2 @ free))])

    def energy(self, vector: NDArray[Any]) -> float:
        """Return the sum of squares of all answers, from all contrasts, (d,)."""
        residuals = self.split(vector)
        return math.fsum(
            share * float((residuals[part] ** 2).sum()) for part, share in self.shares.items()
        )


def _shares(workload: Sequence[Columns], sizes: Sequence[int]) -> dict[Columns, float]:
    """Return the squared error of all answers per squared error of each residual."""
    shares = dict.fromkeys(closure(workload, sizes), 0.0)
    for marginal in workload:
        for part in subsets(marginal):
            if part in shares:
                shares[part] += 1 / math.prod(sizes[i] for i in marginal if i not in part)
    return shares


def _coefficient_bits(coefficients: Iterable[Fraction]) -> int:
    """Return the bits of coefficients, for an absolute sum of at most 2^_NORM_BITS."""
    return _NORM_BITS - max(math.ceil(sum(map(abs, coefficients))) - 1, 0).bit_length()


def _kernel(
    precisions: Mapping[Columns, Fraction], sizes: Sequence[int]
) -> dict[Columns, Fraction]:
    """Return the coefficients of the inner product of records, by Möbius inversion."""
    kernel = dict.fromkeys(precisions, Fraction(0))
    for whole, one in precisions.items():
        for part in subsets(whole):
            others = [sizes[i] for i in whole if i not in part]
            kernel[part] += one * (-1) ** len(others) / math.prod(others)
    return kernel


def _precisions(
    kernel: Mapping[Columns, Fraction], sizes: Sequence[int]
) -> dict[Columns, Fraction]:
    """Return the precisions of coefficients: the inverse of :func:`_kernel`."""
    precisions = dict.fromkeys(kernel, Fraction(0))
    for whole, one in kernel.items():
        for part in subsets(whole):
            precisions[part] += one / math.prod(sizes[i] for i in whole if i not in part)
    return precisions
