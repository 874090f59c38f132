"""Arrays without valid noisy values are rejected."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dpgrain.errors import ParameterError
from dpgrain.statistics.consistency import consistent, reconcile
from dpgrain.statistics.shrinkage import shrink


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shrink([math.nan], [1.0]), "estimate must be finite everywhere, not nan"),
        (lambda: shrink([math.inf], [1.0]), "estimate must be finite everywhere, not inf"),
        (lambda: shrink([1.0], [math.inf]), "std_error must be finite and at least 0"),
        (lambda: shrink([1.0], [-1.0]), "std_error must be finite and at least 0"),
        (lambda: shrink([1.0], [1.0, 2.0]), "std_error must be an array of length 1"),
        (lambda: shrink([[1.0]], [1.0]), "estimate must be an array one-dimensional"),
        (lambda: shrink(["a"], [1.0]), "estimate must be an array of numbers"),
        (lambda: shrink([10**400], [1.0]), "estimate must be an array of numbers"),
        (lambda: shrink([1.0], [1.0], [0.0]), "prior must be above 0"),
        (lambda: shrink([1.0], [1.0], [math.nan]), "prior must be finite"),
        (lambda: shrink([1.0], [1.0], groups=[0.5]), "groups must be 1 integers"),
        (lambda: shrink([1.0], [1.0], groups=[-1]), "groups must be at least 0, not -1"),
        (lambda: shrink([1.0], [1.0], noise="uniform"), "noise must be one of"),
        (lambda: consistent([1.0], [1.0], -1.0), "total must be finite and at least 0"),
        (lambda: consistent([1.0], [1.0], math.nan), "total must be finite and at least 0"),
        (lambda: consistent([1.0], [1.0], [1.0], [1]), "total must have one number per group"),
        (lambda: consistent([5.0, 1.0], [0.0, 1.0], 4.0), "total must be consistent"),
        (lambda: consistent([5.0], [0.0], 6.0), "total must be consistent"),
        (lambda: consistent([], [], 6.0), "total must be consistent"),
        (lambda: reconcile([1.0], [0.0], [2.0], [0.0], [0]), "totals must equal"),
        (lambda: reconcile([1.0], [1.0], [2.0], [1.0], [1]), "totals must have one number"),
        (lambda: reconcile([1.0], [1.0], [math.inf], [1.0], [0]), "totals must be finite"),
    ],
)
def test_invalid_arrays_are_rejected_with_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as raised:
        call()
    assert str(raised.value).endswith(".")
    assert "\n" not in str(raised.value)
