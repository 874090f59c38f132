"""A row's numbers depend only on the row: to the last bit, at any position, among any others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpgrain.numerics import row_products

Array = NDArray[Any]
Made = Callable[[Array, Array], Array]

WAYS: dict[str, Made] = {
    "squares": lambda X, _: row_products.squares(X)[:, None],
    "squares in double": lambda X, _: row_products.squares(X, np.float64)[:, None],
    "products": row_products.products,
    "grouped products": row_products.grouped_products,
}
# The kernels of OpenBLAS for other machines, some of which round by the place of a row.
KERNELS = ("Haswell", "Sandybridge", "Nehalem", "Katmai")


def moved(way: Made, X: Array, W: Array, firsts: list[int]) -> list[tuple[int, int]]:
    """Return the ranges of rows that change bits when computed separately."""
    everybody = np.ascontiguousarray(way(X, W))
    found = []
    for rows in range(1, 66):
        for first in firsts:
            own = slice(first, min(first + rows, len(X)))
            if way(np.ascontiguousarray(X[own]), W).tobytes() != everybody[own].tobytes():
                found.append((first, rows))
    return found


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("classes", [1, 3, 10])
@pytest.mark.parametrize("columns", [1, 2, 3, 8, 17, 33, 100, 490, 8192, 9001])
@pytest.mark.parametrize("way", list(WAYS))
def test_row_bits_depend_only_on_the_row(
    way: str, columns: int, classes: int, threads: int, kind: Any
) -> None:
    rng = np.random.default_rng(columns)
    X = (rng.normal(size=(73, columns)) * 10.0 ** rng.uniform(-3, 3, (73, 1))).astype(kind)
    W = rng.normal(size=(classes, columns)).astype(kind)
    # Rows at any offset of a cache line, or in an array with more columns.
    odd = np.empty(X.size + 1, dtype=kind)[1:].reshape(X.shape)
    wide = np.empty((len(X), columns + 1), dtype=kind)[:, :-1]
    odd[:], wide[:] = X, X
    with threadpool_limits(threads, user_api="blas"):
        expected = np.ascontiguousarray(WAYS[way](X, W))
        for stored in (odd, wide):
            assert WAYS[way](stored, W).tobytes() == expected.tobytes()
        assert moved(WAYS[way], X, W, [0, 1, 7]) == []
    exactly = np.einsum("ij,kj->ik", X.astype("f8"), W.astype("f8"))
    if "products" in way:
        size = np.linalg.norm(X.astype("f8"), axis=1)[:, None] * np.linalg.norm(W.astype("f8"))
        assert (np.abs(expected - exactly) <= 1e3 * np.finfo(kind).eps * size).all()


def test_a_plain_product_moves_rows() -> None:
    rng = np.random.default_rng(1)
    X, W = rng.normal(size=(73, 100)), rng.normal(size=(3, 100))
    assert moved(lambda X, W: X @ W.T, X, W, [0])
    assert moved(
        lambda X, _: np.einsum("ij,ij->i", X, X)[:, None], rng.normal(size=(9, 9001)), W, [0]
    )


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_machines_rounding_by_position_multiply_differently(kernel: str) -> None:
    program = (
        "from tests.numerics.test_row_products import of_this_machine; import sys; "
        "sys.exit(of_this_machine())"
    )
    environment = os.environ | {"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert done.returncode == 0


def of_this_machine() -> int:
    """Return how many cases have rows that others move, with the kernel of this process."""
    cases = [(p, c, kind) for p in (8, 20, 130, 490) for c in (1, 3, 16) for kind in ("f4", "f8")]
    rng = np.random.default_rng(0)
    return sum(
        bool(
            moved(
                row_products.grouped_products,
                rng.normal(size=(300, columns)).astype(kind),
                rng.normal(size=(classes, columns)).astype(kind),
                [0, 3],
            )
        )
        for columns, classes, kind in cases
    )


def test_position_dependence_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    real = np.matmul

    def by_place(*args: Any, **options: Any) -> Any:
        found = real(*args, **options)
        found[..., -1, :] = np.nextafter(found[..., -1, :], np.inf)
        return found

    X, W = np.random.default_rng(0).normal(size=(70, 11)), np.ones((3, 11))
    row_products._rounds_equally.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(np, "matmul", by_place)
        found = row_products.grouped_products(X, W)
    row_products._rounds_equally.cache_clear()
    assert found.tobytes() == np.ascontiguousarray(row_products.products(X, W)).tobytes()


@pytest.mark.parametrize("columns", [0, 1, 5])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_empty_input_is_handled(rows: int, columns: int) -> None:
    X, W = np.ones((rows, columns)), np.ones((2, columns))
    for way in (row_products.products, row_products.grouped_products):
        assert np.array_equal(way(X, W), np.full((rows, 2), float(columns)))
    assert np.array_equal(row_products.squares(X), np.full(rows, float(columns)))
