"""Numbers of cells: what is none counts as nothing, and changes nobody else."""

from __future__ import annotations

import warnings

import numpy as np

from dpgrain.inputs.numbers import numbers


def test_a_complex_number_is_none_and_not_warned_of() -> None:
    # NumPy would take its real part, with a warning.
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = numbers(np.array([np.complex128(1 + 1j), "2", True, 1j], dtype=object))
    assert np.array_equal(found, [np.nan, 2.0, 1.0, np.nan], equal_nan=True)
    assert not seen


def test_one_complex_number_changes_no_other_of_its_array() -> None:
    for odd in (1j, 1 + 1j, complex(0, np.nan), complex(np.inf, 1)):
        found = numbers(np.array([2, odd, -4.5]))
        assert np.array_equal(found, [2.0, np.nan, -4.5], equal_nan=True), odd
