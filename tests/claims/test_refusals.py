"""Error messages are the same in every public function that publishes, and are compared only here.

A family of errors is a wrong value of one parameter. Other tests check only the topic of an error
(``tests/refusals.py``), so that its text changes in one file of the package, and here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.claims.publishers import PUBLISHERS, PURE
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.errors import SchemaError

# Parameter → its wrong values, each with how the sentence about the parameter goes on.
WRONG: dict[str, dict[Any, str]] = {
    "epsilon": {
        -1.0: "must be positive and finite, not -1.0.",
        float("inf"): "must be positive and finite, not inf.",
        "1": "must be a number, not '1'.",
    },
    "delta": {
        1.0: "must be in [0, 1), not 1.0.",
        -0.1: "must be in [0, 1), not -0.1.",
    },
    "share": {
        2.0: "must be in [0, 1], not 2.0.",
        0.0: "must be above 0 and at most 1, not 0.0.",
    },
    "relation": {"both": "must be one of 'zero_out', 'replace', not 'both'."},
    "n_users": {
        0: "must be an integer of at least 1, not 0.",
        1.5: "must be an integer of at least 1, not 1.5.",
        10**19: "must be at most 10^18.",
    },
    "clip": {0.0: "must be positive and finite, not 0.0."},
    "noise": {"cauchy": "must be one of {}, not 'cauchy'."},
    "method": {"best": "must be one of {}, not 'best'."},
    "sampling": {"half": "must be one of {}, not 'half'."},
    "by": {"colour": "'colour' is not a column of the table; it has who, item, cell, x."},
    "weight": {"colour": "'colour' is not a column of the table; it has who, item, cell, x."},
    "domain": {("a", "a"): "contains item 'a' twice; list each item once."},
    "rounds": {0: "must be an integer of at least 1, not 0."},
    "sampling_rate": {1.5: "must be in [0, 1], not 1.5."},
    "elements_per_user": {0.0: "must be positive and finite, not 0.0."},
    "radius": {-1.0: "must be positive and finite, not -1.0."},
    "k": {0: "must be an integer of at least 1, not 0."},
}


def cases() -> Iterator[Any]:
    """Yield a function, a parameter that it takes, a wrong value of it, and the end of the sentence."""
    for name, publisher in PUBLISHERS.items():
        for parameter, wrong in WRONG.items():
            pure = parameter == "delta" and name in PURE
            if not pure and parameter in {
                "epsilon",
                "delta",
                "share",
                "relation",
                *publisher.options,
            }:
                for value, rest in wrong.items():
                    case = f"{name} {parameter}={value!r}"
                    yield pytest.param(name, parameter, value, rest, id=case)


@pytest.mark.parametrize(("name", "parameter", "value", "rest"), list(cases()))
def test_every_function_rejects_a_wrong_value_with_equal_messages(
    name: str, parameter: str, value: Any, rest: str
) -> None:
    publisher = PUBLISHERS[name]
    asked: dict[str, Any] = {option: values[0] for option, values in publisher.options.items()}
    if len(publisher.units) > 1:
        asked["unit"] = publisher.units[0]
    if parameter == "domain" and "by" in asked:
        asked["by"] = "item"
    asked |= {"share": 0.1} if parameter == "share" else {"epsilon": 1.0}
    if parameter != "share" and name not in PURE:
        asked["delta"] = 1e-6
    asked[parameter] = list(value) if isinstance(value, tuple) else value
    kind = SchemaError if "is not a column" in rest else dg.ParameterError
    with dg.budget(epsilon=3.0, delta=1e-5, pure=0.5), refuses(parameter, kind=kind) as caught:
        publisher.publish(**asked)
    before, _, after = f"{parameter} {rest}".partition("{}")
    assert str(caught.value).startswith(before)
    assert str(caught.value).endswith(after)
