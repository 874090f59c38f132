"""Mistakes are reported together, each on a separate line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.releases.validation_errors import ValidationErrors


def test_valid_input_reports_nothing() -> None:
    errors = ValidationErrors(Path("releases.toml"))
    assert not errors
    errors.raise_all()


def test_all_are_reported_once_in_order() -> None:
    errors = ValidationErrors(Path("releases.toml"))
    errors.add_unknown("[a]", "itm", ["item", "by"], "a key")
    errors.add_unknown("[a]", 7, ["item", "by"], "a key")
    assert errors.add_error("[b]", ParameterError("clip must be above 0.", name="clip")) == "clip"
    assert errors.add_error("[b]", SchemaError("by is text.", name="by")) == "by"
    assert errors.add_error("[b]", DataError("it is gone.")) == ""
    errors.add("[b]", "it is gone.")
    assert errors
    with pytest.raises(ParameterError) as told:
        errors.raise_all()
    assert str(told.value).splitlines() == [
        "'releases.toml' has 5 mistakes; nothing was read or charged:",
        "  [a] 'itm' is not a key; did you mean item?",
        "  [a] 7 is not a key; use one of item, by.",
        "  [b] clip must be above 0.",
        "  [b] by is text.",
        "  [b] it is gone.",
    ]


def test_a_long_name_is_cut() -> None:
    errors = ValidationErrors(Path("releases.toml"))
    errors.add(f"[release.{'9' * 5000}]", "clip must be above 0.")
    with pytest.raises(ParameterError, match=r"\[release\.9+… clip must be above 0\.$") as told:
        errors.raise_all()
    assert len(str(told.value)) < 300


def test_error_concerns_the_file_unless_only_tables_are_wrong() -> None:
    schema, data, wrong = (
        SchemaError("by is text."),
        DataError("gone."),
        ParameterError("clip is 0."),
    )
    for kinds, raised in (
        ((schema,), SchemaError),
        # A retry does not repair a missing column.
        ((schema, data), ParameterError),
        ((data, wrong), ParameterError),
    ):
        errors = ValidationErrors(Path("releases.toml"))
        for each in kinds:
            errors.add_error("[a]", each)
        with pytest.raises(raised) as told:
            errors.raise_all()
        assert type(told.value) is raised
    errors = ValidationErrors(Path("releases.toml"))
    errors.add_missing_column("[a]", "minuets", ["minutes"])
    with pytest.raises(SchemaError, match="'minuets' is not a column of the table; did you mean"):
        errors.raise_all()
    errors = ValidationErrors(Path("releases.toml"))
    errors.add_error("[a]", DataError("it is gone."))
    with pytest.raises(
        DataError, match=r"'releases.toml' cannot be run; nothing was read or charg"
    ):
        errors.raise_all()
