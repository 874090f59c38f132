"""Mistakes are told together, each on a line of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.releases.mistakes import Mistakes


def test_none_is_told_where_there_is_none() -> None:
    mistakes = Mistakes(Path("releases.toml"))
    assert not mistakes
    mistakes.tell()


def test_all_are_told_once_and_in_order() -> None:
    mistakes = Mistakes(Path("releases.toml"))
    mistakes.unknown("[a]", "itm", ["item", "by"], "a key")
    mistakes.unknown("[a]", 7, ["item", "by"], "a key")
    assert mistakes.caught("[b]", ParameterError("clip must be above 0.", name="clip")) == "clip"
    assert mistakes.caught("[b]", SchemaError("by is text.", name="by")) == "by"
    assert mistakes.caught("[b]", DataError("it is gone.")) == ""
    mistakes.add("[b]", "it is gone.")
    assert mistakes
    with pytest.raises(ParameterError) as told:
        mistakes.tell()
    assert str(told.value).splitlines() == [
        "'releases.toml' has 5 mistakes; nothing was read or charged:",
        "  [a] 'itm' is not a key; did you mean item?",
        "  [a] 7 is not a key; use one of item, by.",
        "  [b] clip must be above 0.",
        "  [b] by is text.",
        "  [b] it is gone.",
    ]


def test_a_long_name_is_cut() -> None:
    mistakes = Mistakes(Path("releases.toml"))
    mistakes.add(f"[release.{'9' * 5000}]", "clip must be above 0.")
    with pytest.raises(ParameterError, match=r"\[release\.9+… clip must be above 0\.$") as told:
        mistakes.tell()
    assert len(str(told.value)) < 300


def test_the_error_is_of_the_file_unless_only_a_table_or_its_columns_are_wrong() -> None:
    kinds = (SchemaError("by is text."), DataError("it is gone."), ParameterError("clip is 0."))
    for last, error in enumerate(kinds):
        mistakes = Mistakes(Path("releases.toml"))
        for each in kinds[: last + 1]:
            mistakes.caught("[a]", each)
        with pytest.raises(type(error)):
            mistakes.tell()
    mistakes = Mistakes(Path("releases.toml"))
    mistakes.no_column("[a]", "minuets", ["minutes"])
    with pytest.raises(SchemaError, match="'minuets' is not a column of the table; did you mean"):
        mistakes.tell()
    mistakes = Mistakes(Path("releases.toml"))
    mistakes.caught("[a]", DataError("it is gone."))
    with pytest.raises(
        DataError, match=r"'releases.toml' cannot be run; nothing was read or charg"
    ):
        mistakes.tell()
