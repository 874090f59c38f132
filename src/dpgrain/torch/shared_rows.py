"""Detection of rows shared by two data sets, based on their construction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpgrain.torch.library import torch

# Identity of a row: the object or memory that contains it, and its index there.
_ROW = np.dtype([("holder", np.int64), ("index", np.int64)])


def shares_rows(one: Any, other: Any) -> bool:
    """Return True if two data sets share rows; copied rows are not recognized.

    Lists and ``datasets.Dataset`` are supported, as well as selected, shuffled, filtered,
    concatenated or extended ones. Contents are not compared, so copies, such as by ``map``, remain
    undetected.

    >>> rows = [{"x": 1}, {"x": 2}, {"x": 3}]
    >>> shares_rows(rows, rows[1:]), shares_rows(rows[:1], rows[1:])
    (True, False)
    """
    names = [set(table.column_names) for part in (one, other) for table in _tables(part)]
    common = sorted(set.intersection(*names)) if names else []
    column = common[0] if common else ""
    return bool(np.intersect1d(_rows(one, column), _rows(other, column)).size)


def _tables(dataset: Any) -> Iterator[Any]:
    """Yield the underlying ``datasets.Dataset`` objects of a data set."""
    if _is_table(dataset):
        yield dataset
    for part in _parts(dataset):
        yield from _tables(part)


def _is_table(dataset: Any) -> bool:
    return hasattr(dataset, "column_names") and hasattr(getattr(dataset, "data", None), "column")


def _parts(dataset: Any) -> list[Any]:
    """Return the data sets wrapped by a data set."""
    if isinstance(dataset, torch.utils.data.Subset):
        return [dataset.dataset]
    return list(dataset.datasets) if isinstance(dataset, torch.utils.data.ConcatDataset) else []


def _rows(dataset: Any, column: str) -> Any:
    """Return the identity of each row; for a table, of its cell in a column."""
    parts = [_rows(part, column) for part in _parts(dataset)]
    if isinstance(dataset, torch.utils.data.Subset):
        return parts[0][np.asarray(list(dataset.indices), dtype=np.int64)]
    if parts:
        return np.concatenate(parts)
    if _is_table(dataset):
        return _of_table(dataset, column)
    if isinstance(dataset, list):
        return _identities([id(row) for row in dataset], np.zeros(len(dataset), dtype=np.int64))
    size = len(dataset) if hasattr(dataset, "__len__") else 0
    return _identities(id(dataset), np.arange(size))


def _of_table(dataset: Any, column: str) -> Any:
    """Return the memory of each row's cell, which selecting and slicing preserve."""
    if column not in dataset.column_names:
        return np.zeros(0, _ROW)
    chunks = [_of_chunk(chunk) for chunk in dataset.data.column(column).chunks]
    found = np.concatenate([np.zeros(0, _ROW), *chunks])
    indices = getattr(dataset, "_indices", None)
    return found if indices is None else found[indices.column(0).to_numpy()]


def _of_chunk(chunk: Any) -> Any:
    buffers = [buffer for buffer in reversed(chunk.buffers()[:2]) if buffer is not None]
    address = buffers[0].address if buffers else id(chunk)
    return _identities(address, chunk.offset + np.arange(len(chunk)))


def _identities(holder: Any, indices: Any) -> Any:
    result = np.zeros(len(indices), _ROW)
    result["holder"], result["index"] = holder, indices
    return result
