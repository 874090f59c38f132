"""Values of options: a unit, and columns with a comma in their name."""

from __future__ import annotations

from typing import Any

import pytest

from dpgrain.cli.options import columns_of, level_of, types_of
from dpgrain.errors import ParameterError


def test_a_column_may_have_a_comma_in_its_name() -> None:
    assert columns_of(["a, b", "c,d"], ["a", "b", "c,d"]) == ["a", "b", "c,d"]


def test_a_comma_inside_an_expression_separates_no_columns() -> None:
    for expression in ("if(a > 1, a, b)", "kind in ('er', 'gp')", "bin(a, [1, 2])", "kind = 'a,b'"):
        assert columns_of([expression], ["a", "b", "kind"]) == [expression]
    assert columns_of(["a (kg),b"], ["a (kg)", "b"]) == ["a (kg)", "b"]


@pytest.mark.parametrize(
    ("stated", "level"),
    [
        ((None, "week", None), "element"),
        (("user", None, 3), "user"),
        (("record", None, None), "record"),
    ],
)
def test_privacy_unit_follows_the_options(stated: Any, level: str) -> None:
    assert level_of(*stated) == level


@pytest.mark.parametrize("stated", [(None, None, None), ("record", None, 2), (None, "week", 2)])
def test_missing_or_needlessly_bounded_unit_is_rejected(stated: Any) -> None:
    with pytest.raises(ParameterError, match="--unit user"):
        level_of(*stated)


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("a=double", {"a": "double"}),
        ("a=double,b=date", {"a": "double", "b": "date"}),
        ("a, b=double,c d=date", {"a": "double", "b": "double", "c d": "date"}),
        ("a=decimal(10,2),b=date", {"a": "decimal(10,2)", "b": "date"}),
        ("x=1,y=date", {"x=1,y": "date"}),
    ],
)
def test_types_are_split_after_each_type(text: str, types: dict[str, str]) -> None:
    assert types_of([text], ["a", "x=1,y"]) == types


@pytest.mark.parametrize(
    ("text", "wrong"), [("b=double,c", "c"), ("", ""), (",", ","), ("a=", "a="), ("=date", "=date")]
)
def test_columns_without_a_type_are_rejected(text: str, wrong: str) -> None:
    with pytest.raises(ParameterError, match=f"--type must be COLUMN=TYPE, .* not '{wrong}'"):
        types_of(["a=date", text], ["a"])
