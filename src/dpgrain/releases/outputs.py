"""Output files of releases: tables of estimates, models and per-user means."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpgrain._files import atomic_write, write_table
from dpgrain.learn.model import LinearModel
from dpgrain.means.user_mean import MeanOfUsers


def write(release: Any, own: Mapping[str, Any], path: Path) -> None:
    """Write a release in the format of the file extension; ``own`` has the columns of a mean."""
    if isinstance(release, LinearModel):
        release.save(path)
    elif isinstance(release, MeanOfUsers):
        write_mean(release, own["columns"], path)
    else:
        release.write(path)


def write_mean(mean: MeanOfUsers, columns: Sequence[str], path: Path) -> None:
    """Write a per-user mean as JSON, CSV or Parquet."""
    if path.suffix.lower() == ".json":
        values = {"columns": list(columns), **mean.to_dict()}
        with atomic_write(path) as part:
            part.write_text(
                json.dumps(values, ensure_ascii=False, allow_nan=False), encoding="utf-8"
            )
        return
    table = pa.table(
        {
            "column": list(columns),
            "estimate": mean.value,
            "std_error": [mean.std_error] * len(columns),
        },
        metadata={"covers": mean.covers},
    )
    if path.suffix.lower() == ".csv":
        table = table.append_column("covers", pa.repeat(mean.covers, len(table)))
    write_table(table, path)
