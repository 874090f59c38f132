"""A callback that fails on one record fails only there, and silently."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses

from dpgrain.inputs.callbacks import check_callback, map_records, slice_records


@pytest.mark.parametrize("failure", [ValueError, SystemExit])
def test_failing_record_does_not_affect_others(failure: type[BaseException]) -> None:
    def call(first: int, last: int) -> Any:
        warnings.warn("somebody's record", stacklevel=1)
        if first <= 5 < last:
            raise failure
        return np.arange(first, last)

    results = map_records(call, 9)
    assert np.isnan(results[5])
    assert np.delete(results, 5).tolist() == [0, 1, 2, 3, 4, 6, 7, 8]


def test_an_interrupt_stops_it() -> None:
    def call(first: int, last: int) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        map_records(call, 3)


def test_results_of_another_shape_are_invalid() -> None:
    assert np.isnan(map_records(lambda first, last: np.zeros(7), 3)).all()
    assert map_records(lambda first, last: np.ones((last - first, 2)), 3, (2,)).shape == (3, 2)


def test_a_function_is_tried_on_public_records_first() -> None:
    rows = np.full((4, 3), np.nan)
    check_callback(lambda x: x.sum(axis=1), (rows,), (), "loss", "one number for each record")
    with refuses("loss", "shape"):
        check_callback(lambda x: x.sum(), (rows,), (), "loss", "one number for each record")
    with refuses("loss", "but raises ZeroDivisionError"):
        check_callback(lambda x: 1 // 0, (rows,), (), "loss", "one number for each record")


def test_parts_keep_their_form() -> None:
    assert slice_records(["a", "b", "c"], 1, 2) == ["b"]
    assert slice_records(np.arange(4), 1, 3).tolist() == [1, 2]
