"""The checks on errors distinguish them from others: another name, a subclass, half a message."""

from __future__ import annotations

import pytest
from tests.refusals import refuses

from dpgrain.errors import DpgrainError, ParameterError


def fail(error: DpgrainError) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        ParameterError("epsilon must be above 0, not -1."),
        ParameterError("epsilon must be above 0, not -1.", name="epsilon"),
        ParameterError("The 'epsilon' of a price must be above 0, not -1."),
    ],
)
def test_error_is_about_its_name(error: DpgrainError) -> None:
    with refuses("epsilon", "not -1") as caught:
        fail(error)
    assert caught.value is error
    for other in ("delta", "epsilo", "price"):
        with pytest.raises(AssertionError, match="not about"), refuses(other):
            fail(error)
    with pytest.raises(AssertionError, match="without"), refuses("epsilon", "not -2"):
        fail(error)
