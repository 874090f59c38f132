"""A per-user mean is written with a statement of its coverage, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq

import dpgrain as dg
from dpgrain.releases.outputs import write_mean


def test_mean_states_its_coverage(tmp_path: Path) -> None:
    mean = dg.mean_of_users(
        np.full((200, 2), 0.5), users=np.arange(200), bound=1.0, epsilon=1.0, delta=1e-6
    )
    paths = {ending: tmp_path / f"mean.{ending}" for ending in ("json", "csv", "parquet")}
    for path in paths.values():
        write_mean(mean, ["a", "b"], path)
    table = pyarrow.csv.read_csv(paths["csv"])
    assert table.column_names == ["column", "estimate", "std_error", "covers"]
    assert set(table["covers"].to_pylist()) == {mean.covers}
    stored = pq.read_table(paths["parquet"])
    assert stored.schema.metadata[b"covers"].decode() == mean.covers
    assert stored["estimate"].to_pylist() == mean.value.tolist()
    told = json.loads(paths["json"].read_text(encoding="utf-8"))
    assert told["columns"] == ["a", "b"]
    assert told["estimate"] == mean.value.tolist()
