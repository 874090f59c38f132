"""One person's rows of CSV do not change how rows of others are read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import dpgrain as dg
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.sources import csv_rows


def items_of_others(path: Path, raw: bytes, user: str = "who") -> Counter[str]:
    path.write_bytes(raw)
    with DuckDB(dg.read(path, user=user)) as engine:
        found = engine.query("SELECT item, count(*) AS n FROM source WHERE who <> 'eve' GROUP BY 1")
    return Counter({row["item"]: row["n"] for row in found.to_pylist()})


@pytest.mark.parametrize("surplus", [b"note", b'"note"', b'"a ""note"""', b'"a"note', b'x,""""'])
def test_a_value_too_many_changes_no_row_of_others(surplus: bytes, tmp_path: Path) -> None:
    """The rest of a line is dropped, and a doubled quote there does not affect the next row."""
    others = [b'5" vinyl,u%d\n' % number for number in range(50)]
    hers = b"pen,eve," + surplus + b"\n"
    without = b"".join(others)
    with_hers = b"".join(hers + row for row in others)
    found = [
        items_of_others(tmp_path / "rows.csv", b"item,who\n" + rows)
        for rows in (without, with_hers)
    ]
    assert found[0] == found[1] == Counter({'5" vinyl': 50})


@pytest.mark.slow
def test_row_position_in_the_file_has_no_effect(tmp_path: Path) -> None:
    """Rows across the end of a chunk are read like all others, wherever it ends."""
    kinds = b'u%07d,"a"zz\n', b'v%07d,5"c\n', b'w%07d,"d\nd"\n'
    several = 8 * csv_rows._PIECE_BYTES // sum(len(kind % 0) for kind in kinds)
    others = b"".join(kind % number for number in range(several) for kind in kinds)
    for hers in (b'eve,"b"\n', b'eve,"bbbbbb"\n'):
        found = items_of_others(tmp_path / "rows.csv", b"who,item\n" + hers + others)
        # Rows with certain contents are read; rows of the first type are not.
        assert found == Counter({'5"c': several, "d\nd": several})


@pytest.mark.parametrize("header", ['who,"item', 'who, "item', 'who,"item" "'])
def test_header_ends_with_its_line(header: str, tmp_path: Path) -> None:
    """A quote left open by the header is never closed by a user's row: the file is rejected."""
    said = []
    for hers in ("", '3,z"\n'):
        path = tmp_path / "rows.csv"
        path.write_text(f"{header}\n1,a\n2,secret\n{hers}4,d\n")
        try:
            with DuckDB(dg.read(path)) as engine:
                said.append(
                    str(engine.query("SELECT who FROM source WHERE who <> '3'").to_pylist())
                )
        except dg.DpgrainError as refused:
            said.append(str(refused))
    assert "secret" not in "".join(said)
    assert said[0] == said[1]
    with pytest.raises(dg.DpgrainError) as told:
        dg.read(path, user="nobody")
    assert "secret" not in str(told.value)
