"""Public lists of items in files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.tables.public_lists import read_public_list

ROWS = dg.read(pa.table({"who": [1], "page": ["a"], "year": [2020]}), user="who")


@pytest.mark.parametrize("ending", ["txt", "csv", "parquet"])
@pytest.mark.parametrize(("key", "items"), [("page", ["a", "b"]), ("year", [2020, 2021])])
def test_a_file_lists_the_items_of_one_column(
    ending: str, key: str, items: list[object], tmp_path: Path
) -> None:
    path = tmp_path / f"d.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table({"any": items, "more": items}), path)
    else:
        head = "any\n" if ending == "csv" else ""
        path.write_text(head + "".join(f"{item}\n" for item in items) + "\n" * (ending == "txt"))
    assert read_public_list(path, [key], ROWS) == items


@pytest.mark.parametrize("ending", ["txt", "csv"])
def test_encoding_mark_does_not_belong_to_an_item(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"d.{ending}"
    path.write_text("\ufeffa\nb\n" if ending == "txt" else "\ufeffpage\na\nb\n", encoding="utf-8")
    assert read_public_list(path, ["page"], ROWS) == ["a", "b"]


def test_a_long_item_is_cut_in_a_message(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("x" * 70_000)
    with pytest.raises(dg.ParameterError, match="must contain integers") as caught:
        read_public_list(tmp_path / "d.txt", ["year"], ROWS)
    assert len(str(caught.value)) < 500


def test_rows_are_the_items_of_several_columns(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("year,other,page\n2020,x,a\n2021,y,b\n")
    assert read_public_list(path, ["page", "year"], ROWS) == [("a", 2020), ("b", 2021)]
    with refuses("domain", "column"):
        read_public_list(path, ["page", "who"], ROWS)


def test_unusable_lists_are_named(tmp_path: Path) -> None:
    with refuses("domain", "file", kind=dg.AccessError):
        read_public_list(tmp_path / "none.txt", ["page"], ROWS)
    path = tmp_path / "d.txt"
    path.write_text("2020\nlots\n")
    with refuses("domain", "'lots'"):
        read_public_list(path, ["year"], ROWS)
    path.write_bytes(b"\xff\xfe\x00")
    with refuses("domain", "8", kind=dg.DataError):
        read_public_list(path, ["page"], ROWS)
