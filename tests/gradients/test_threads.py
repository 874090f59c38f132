"""Work side by side: results in order, and BLAS has its threads back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dpgrain.gradients.linear import LinearGradients, parallel_map
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.optimize import Logistic


def of_blas() -> set[int]:
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


@pytest.mark.parametrize("threads", [1, 3])
def test_work_comes_back_in_order(threads: int) -> None:
    with threadpool_limits(threads):
        seen: list[set[int]] = []

        def work(item: int) -> int:
            seen.append(of_blas())
            return item * item

        assert parallel_map(work, range(7)) == [item * item for item in range(7)]
        assert seen == [{1}] * 7
        assert of_blas() == {threads}


def test_threads_are_given_back_after_an_error() -> None:
    def fail(item: int) -> None:
        raise ZeroDivisionError

    with threadpool_limits(2):
        with pytest.raises(ZeroDivisionError):
            parallel_map(fail, range(3))
        assert of_blas() == {2}


def test_sums_do_not_depend_on_the_number_of_threads() -> None:
    rng: Any = np.random.default_rng(0)
    X = rng.normal(size=(300_000, 20)).astype(np.float32)
    blocks = LinearBlocks.arrange(
        X, rng.integers(0, 2, len(X)), np.arange(len(X)) // 3, intercept=True
    )
    found = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads):
            gradients = LinearGradients(blocks, Logistic(), np.full(21, 0.1))
            found.append(gradients.clipped_sum(0.5))
    assert len(blocks.cuts(None, several=False)) > 8
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
