"""Invalid sources raise a one-sentence error, before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpgrain as dg
from dpgrain.errors import DataError, ParameterError
from dpgrain.tables.sources.frames import ArrowSource
from dpgrain.tables.sources.read_arguments import is_address, is_stream, resolve_source
from dpgrain.tables.sources.streams import StreamSource


@pytest.mark.parametrize("data", [None, 7, [], [1], {"who": [1]}, object(), b"rows.parquet", True])
def test_invalid_source_is_named(data: Any) -> None:
    with pytest.raises(ParameterError, match=f"source must be a path.*not {type(data).__name__}"):
        dg.read(data, user="who")
    assert not is_stream(data)


@pytest.mark.parametrize("delimiter", ["", ",,", "é", '"', "\n"])
def test_a_delimiter_is_one_plain_letter(delimiter: str) -> None:
    with pytest.raises(ParameterError, match="delimiter must be one ASCII character"):
        resolve_source("rows.csv", delimiter=delimiter)


def test_tables_stay_in_memory_and_streams_do_not() -> None:
    rows = pa.table({"who": [1]})
    assert isinstance(resolve_source(rows), ArrowSource)
    assert isinstance(resolve_source(rows.to_reader()), StreamSource)
    assert isinstance(resolve_source(rows.to_batches()[0]), StreamSource)


def test_path_is_not_an_address(tmp_path: Path) -> None:
    assert not is_address(str(tmp_path))
    assert not is_address("s3:/bucket")
    with pytest.raises(DataError, match="does not exist"):
        dg.read(tmp_path / "s3:" / "rows.parquet")
