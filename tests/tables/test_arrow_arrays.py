"""Arrow arrays equal pyarrow's, and pandas objects are unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpgrain.tables.arrow_arrays import boolean_array, number_array, text_array

FIRST_RELEASE = """
import sys
import dpgrain as dg
items = dg.Elements.from_mapping({{i: i % 30 for i in range(300)}})
for clip in (5.0, "auto"):
    dg.histogram(
        dg.read({path!r}, user="who"), "item", unit=dg.Element(items), epsilon=1.0, delta=1e-6,
        clip=clip,
    )
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("size", [0, 1, 8, 1000])
def test_arrays_agree_with_pyarrow(size: int) -> None:
    values = np.random.default_rng(size).integers(-(2**63), 2**63 - 1, size)
    odd = values % 2 == 1
    for made, expected in (
        (number_array(values), pa.array(values)),
        (number_array(values[::-1]), pa.array(values[::-1])),
        (number_array(values.astype(np.float64)), pa.array(values.astype(np.float64))),
        (number_array(values, odd), pa.array(values, mask=odd)),
        (boolean_array(odd), pa.array(odd)),
    ):
        made.validate(full=True)
        assert made.equals(expected)


def test_texts_of_any_language_but_not_broken_ones() -> None:
    words = ["", "a", "é", "日本", "\0", "🙂" * 1000]
    made = text_array(words)
    made.validate(full=True)
    assert made.equals(pa.array(words, pa.string()))
    assert text_array([]).equals(pa.array([], pa.string()))
    with pytest.raises(UnicodeEncodeError):
        text_array(["a", "\ud800"])


@pytest.mark.slow
def test_a_first_release_does_not_load_pandas(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.parquet")
    rows = {"who": np.arange(1000) % 100, "item": np.arange(1000) % 300}
    pyarrow.parquet.write_table(pa.table(rows), path)
    code = FIRST_RELEASE.format(path=path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
