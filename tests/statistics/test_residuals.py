"""Residuals against explicit matrices on small domains."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpgrain.statistics.residuals import Columns, Residuals, closure, contrasts, subsets

DOMAINS: list[tuple[list[int], list[Columns]]] = [
    ([3, 4, 2], [(0, 1), (0, 2), (1, 2)]),
    ([5], [(0,)]),
    ([2, 3, 1, 2], [(0, 1, 3), (1, 2)]),
    ([2, 2, 3], [(0, 1, 2), (0,)]),
]


def cells(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, sizes)))


def marginal_matrix(sizes: Sequence[int], marginal: Columns) -> Any:
    """The matrix from counts of all cells to the cells of a marginal."""
    columns = cells([sizes[i] for i in marginal])
    return np.array(
        [[float(all(cell[i] == at for i, at in zip(marginal, row, strict=True)))
          for cell in cells(sizes)] for row in columns]
    )  # fmt: skip


def residual_matrix(sizes: Sequence[int], part: Columns) -> Any:
    """ResidualPlanner's matrix: differences from the first value, or sums, column by column."""
    matrix: Any = np.ones((1, 1))
    for i, size in enumerate(sizes):
        differences = np.hstack([np.ones((size - 1, 1)), -np.eye(size - 1)])
        matrix = np.kron(matrix, differences if i in part else np.ones((1, size)))
    return matrix


def noise_matrix(sizes: Sequence[int], part: Columns) -> Any:
    """The covariance of a residual's noise for precision 1, in ResidualPlanner's coordinates."""
    matrix: Any = np.ones((1, 1))
    for i in part:
        differences = np.hstack([np.ones((sizes[i] - 1, 1)), -np.eye(sizes[i] - 1)])
        matrix = np.kron(matrix, differences @ differences.T)
    return matrix


def tables(sizes: Sequence[int], workload: Sequence[Columns], counts: Any) -> dict[Columns, Any]:
    cube = np.asarray(counts).reshape(sizes)
    return {
        one: cube.sum(axis=tuple(i for i in range(len(sizes)) if i not in one)) for one in workload
    }


def squared_norm(sizes: Sequence[int], residuals: Residuals, counts: Any) -> float:
    """The squared norm by explicit matrices."""
    total = 0.0
    for part, precision in residuals.precisions.items():
        moved = residual_matrix(sizes, part) @ counts
        total += float(precision) * moved @ np.linalg.solve(noise_matrix(sizes, part), moved)
    return float(total)


@pytest.mark.parametrize("values", [1, 2, 3, 5, 12, 49, 101])
def test_contrasts_are_an_orthogonal_basis_of_integers(values: int) -> None:
    basis = contrasts(values).apply(np.eye(values, dtype=np.int64), 0)
    assert basis.shape == (values - 1, values)
    assert np.array_equal(basis @ basis.T, np.diag(contrasts(values).squares))
    assert (basis.sum(axis=1) == 0).all()
    assert contrasts(values).squares.max(initial=0) <= values**2


@pytest.mark.parametrize(("sizes", "workload"), DOMAINS)
def test_answers_are_the_marginals_without_noise(sizes: list[int], workload: list[Columns]) -> None:
    counts = np.random.default_rng(1).integers(0, 50, math.prod(sizes))
    exact = tables(sizes, workload, counts)
    residuals = Residuals.create(sizes, workload)
    found = residuals.split(residuals.measure(exact))
    for one in workload:
        assert np.allclose(residuals.answer(found, one), exact[one], atol=1e-9)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize(("sizes", "workload"), DOMAINS)
def test_norm_agrees_with_explicit_matrices(
    sizes: list[int], workload: list[Columns], nonnegative: bool
) -> None:
    residuals = Residuals.create(sizes, workload, nonnegative=nonnegative)
    rng = np.random.default_rng(2)
    for _ in range(5):
        counts = rng.integers(0, 4, math.prod(sizes))
        vector = residuals.measure(tables(sizes, workload, counts))
        scaled = vector / residuals.radius(1.0, 0)
        right = squared_norm(sizes, residuals, counts)
        assert float(scaled @ scaled) == pytest.approx(right)
        squares = {
            part: int((marginal_matrix(sizes, part) @ counts).astype(int) @ (
                marginal_matrix(sizes, part) @ counts).astype(int))
            for part in residuals.kernel
        }  # fmt: skip
        exact = sum(residuals.kernel[part] * squares[part] for part in squares)
        assert float(exact) == pytest.approx(right)
        bound = sum(residuals.coefficients[part] * squares[part] for part in squares)
        assert 0 <= Fraction(bound, 1 << residuals.norm_bits) - exact < Fraction(1, 10**6)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize(
    ("sizes", "workload"),
    [
        *DOMAINS,
        ([2] * 12, list(itertools.combinations(range(12), 2))),
        ([2] * 6, [tuple(range(6))]),
    ],
)
def test_record_has_norm_one_and_bounded_coefficient_sums(
    sizes: list[int], workload: list[Columns], nonnegative: bool
) -> None:
    residuals = Residuals.create(sizes, workload, nonnegative=nonnegative)
    one, coefficients = 1 << residuals.norm_bits, residuals.coefficients.values()
    assert one * (1 - 1e-4) < sum(coefficients) <= one
    assert sum(map(abs, coefficients)) < 1 << 35
    assert min(residuals.precisions.values()) > 0
    assert residuals.is_nonnegative >= nonnegative


@pytest.mark.parametrize(("sizes", "workload"), DOMAINS)
def test_no_radius_is_below_the_exact_one(sizes: list[int], workload: list[Columns]) -> None:
    residuals = Residuals.create(sizes, workload)
    radius, start = residuals.radius(3.7, 11), 0
    for part, precision in residuals.precisions.items():
        for at in itertools.product(*(range(sizes[i] - 1) for i in part)):
            square = math.prod(
                int(contrasts(sizes[i]).squares[j]) for i, j in zip(part, at, strict=True)
            )
            least = Fraction(3.7) ** 2 * 4**11 * square / precision
            assert least <= Fraction(float(radius[start])) ** 2 < least * (1 + Fraction(1, 10**9))
            start += 1
    assert start == radius.size


@pytest.mark.parametrize(("sizes", "workload"), DOMAINS)
def test_covariances_agree_with_explicit_matrices(
    sizes: list[int], workload: list[Columns]
) -> None:
    residuals = Residuals.create(sizes, workload)
    size = residuals.radius(1.0, 0).size
    from_contrasts = {
        one: np.stack(
            [residuals.answer(residuals.split(unit), one).ravel() for unit in np.eye(size)], axis=1
        )
        for one in workload
    }
    noise = np.diag(residuals.radius(1.0, 0) ** 2)
    energy = 0.0
    for one, two in itertools.product(workload, repeat=2):
        right = from_contrasts[one] @ noise @ from_contrasts[two].T
        common = [i for i in one if i in two]
        for (a, u), (b, v) in itertools.product(
            enumerate(cells([sizes[i] for i in one])), enumerate(cells([sizes[i] for i in two]))
        ):
            equal = tuple(i for i in common if u[one.index(i)] == v[two.index(i)])
            assert residuals.covariance(one, two, equal) == pytest.approx(right[a, b])
        energy += np.trace(right) * (one == two)
    mean, spread = residuals.noise_energy()
    assert mean == pytest.approx(energy)
    joint = np.vstack(list(from_contrasts.values()))
    assert spread == pytest.approx(math.sqrt(2) * np.linalg.norm(joint @ noise @ joint.T))


@pytest.mark.parametrize(("sizes", "workload"), DOMAINS)
def test_energy_is_the_sum_of_squared_answers(sizes: list[int], workload: list[Columns]) -> None:
    residuals = Residuals.create(sizes, workload)
    exact = tables(sizes, workload, np.random.default_rng(3).integers(0, 9, math.prod(sizes)))
    right = sum(int((one**2).sum()) for one in exact.values())
    assert residuals.energy(residuals.measure(exact)) == pytest.approx(right)


@pytest.mark.parametrize(("sizes", "workload"), DOMAINS)
def test_precisions_have_the_least_squared_error(sizes: list[int], workload: list[Columns]) -> None:
    residuals = Residuals.create(sizes, workload)

    def error(precisions: dict[Columns, float]) -> float:
        cost = sum(
            one * math.prod(1 - 1 / sizes[i] for i in part) for part, one in precisions.items()
        )
        free = {part: math.prod(sizes[i] - 1 for i in part) for part in precisions}
        return cost * sum(
            residuals.shares[part] * free[part] / one for part, one in precisions.items()
        )

    best = {part: float(one) for part, one in residuals.precisions.items()}
    rng = np.random.default_rng(4)
    for _ in range(20):
        moved = {part: one * math.exp(rng.normal(0, 0.2)) for part, one in best.items()}
        assert error(moved) >= error(best) * (1 - 1e-9)


def test_closure_has_all_subsets_without_columns_of_one_value() -> None:
    assert closure([(0, 2), (1, 2)], [2, 1, 3]) == [(), (0,), (2,), (0, 2)]
    assert subsets((1, 4)) == [(), (1,), (4,), (1, 4)]


def test_weights_have_few_bits_only_for_large_noise() -> None:
    residuals = Residuals.create([3, 4], [(0, 1)])
    assert residuals.weight_bits(10.0, 5.0) == 20
    most = residuals.largest_bound(5.0)
    assert residuals.weight_bits(most * 0.999, 5.0) == 4
    assert float(residuals.radius(most * 0.999, 4).max()) * 5.0 <= 2.0**40
