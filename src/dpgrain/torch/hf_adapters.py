"""Adapters to Hugging Face's trainer: labels of records, shared rows, steps, and model card."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from operator import length_hint
from pathlib import Path
from typing import Any

import numpy as np

from dpgrain import _validate
from dpgrain._files import atomic_write
from dpgrain.errors import DataError, ParameterError, reraise_keyboard_interrupt
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.torch.library import torch
from dpgrain.torch.local_data import record_bytes
from dpgrain.torch.optimizer import PrivateOptimizer

# Bytes of the hash that labels a record without a user column.
_BYTES = 16


@dataclass(frozen=True, eq=False)
class DatasetColumn:
    """Column of a data set, with one label for each record."""

    dataset: Any
    name: str

    @staticmethod
    def of(dataset: Any, name: str | None, parameter: str) -> DatasetColumn | None:
        """Return a column selected by the caller; None if no column is selected."""
        if name is None:
            return None
        if name not in getattr(dataset, "column_names", ()):
            raise ParameterError(
                f"{parameter} must be a column of train_dataset, not {_validate.describe(name)}.",
                name=parameter,
            )
        return DatasetColumn(dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        return iter(_plain(self.dataset)[self.name])


@dataclass(frozen=True, eq=False)
class RecordHashes:
    """Hash of each record as its label, which distinguishes the records of a user.

    It is a public partition: a label does not depend on other records. Transforms of the data set
    are not applied, because they may draw random numbers.
    """

    dataset: Any
    name: str = "the contents of a record"

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[str]:
        """Yield the hash of each record."""
        rows = _plain(self.dataset)
        for place in range(len(rows)):
            try:
                yield _record_hash(rows[place])
            except BaseException as error:
                # All unreadable records have the same label.
                reraise_keyboard_interrupt(error)
                yield ""


def _plain(dataset: Any) -> Any:
    """Return a data set of plain objects, without transforms."""
    return dataset.with_format(None) if hasattr(dataset, "with_format") else dataset


def _record_hash(record: Any) -> str:
    result = hashlib.blake2b(digest_size=_BYTES)
    for piece in record_bytes(record):
        result.update(len(piece).to_bytes(8, "big"))
        result.update(piece)
    return result.hexdigest()


# Identity of a row: the object or memory that contains it, and its index there.
_ROW = np.dtype([("holder", np.int64), ("index", np.int64)])


def shares_rows(one: Any, other: Any) -> bool:
    """Return True if two data sets share rows; copied rows are not recognized.

    Lists and selected, shuffled, filtered, concatenated or extended ``datasets.Dataset`` are
    supported.
    """
    names = [set(table.column_names) for part in (one, other) for table in _tables(part)]
    common = sorted(set.intersection(*names)) if names else []
    column = common[0] if common else ""
    return bool(np.intersect1d(_row_ids(one, column), _row_ids(other, column)).size)


def _tables(dataset: Any) -> Iterator[Any]:
    """Yield the underlying ``datasets.Dataset`` objects of a data set."""
    if _is_table(dataset):
        yield dataset
    for part in _wrapped(dataset):
        yield from _tables(part)


def _is_table(dataset: Any) -> bool:
    return hasattr(dataset, "column_names") and hasattr(getattr(dataset, "data", None), "column")


def _wrapped(dataset: Any) -> list[Any]:
    """Return the data sets wrapped by a data set."""
    if isinstance(dataset, torch.utils.data.Subset):
        return [dataset.dataset]
    return list(dataset.datasets) if isinstance(dataset, torch.utils.data.ConcatDataset) else []


def _row_ids(dataset: Any, column: str) -> Any:
    """Return the identity of each row; for a table, of its cell in a column."""
    parts = [_row_ids(part, column) for part in _wrapped(dataset)]
    if isinstance(dataset, torch.utils.data.Subset):
        return parts[0][np.asarray(list(dataset.indices), dtype=np.int64)]
    if parts:
        return np.concatenate(parts)
    if _is_table(dataset):
        return _table_row_ids(dataset, column)
    if isinstance(dataset, list):
        return _row_id_array([id(row) for row in dataset], np.zeros(len(dataset), dtype=np.int64))
    return _row_id_array(id(dataset), np.arange(length_hint(dataset)))


def _table_row_ids(dataset: Any, column: str) -> Any:
    """Return the memory of each row's cell, which selecting and slicing preserve."""
    if column not in dataset.column_names:
        return np.zeros(0, _ROW)
    chunks = [_chunk_row_ids(chunk) for chunk in dataset.data.column(column).chunks]
    ids = np.concatenate([np.zeros(0, _ROW), *chunks])
    indices = getattr(dataset, "_indices", None)
    return ids if indices is None else ids[indices.column(0).to_numpy()]


def _chunk_row_ids(chunk: Any) -> Any:
    buffers = [buffer for buffer in reversed(chunk.buffers()[:2]) if buffer is not None]
    address = buffers[0].address if buffers else id(chunk)
    return _row_id_array(address, chunk.offset + np.arange(len(chunk)))


def _row_id_array(holder: Any, indices: Any) -> Any:
    result = np.zeros(len(indices), _ROW)
    result["holder"], result["index"] = holder, indices
    return result


# Folder of the run's own files, which stay with the data; uploads exclude such names.
RUN_FOLDER = "_run"


#: File with the guarantee, next to a saved model; for :meth:`Guarantee.from_json`.
GUARANTEE_FILE = "guarantee.json"
_CARD = "README.md"
_HEADING = "## Privacy"


def write_guarantee(folder: Path, guarantee: Guarantee) -> None:
    """Write a guarantee to the model card and to a separate file."""
    folder.mkdir(parents=True, exist_ok=True)
    card = folder / _CARD
    text = card.read_text(encoding="utf-8") if card.exists() else f"# {folder.name}\n"
    text = text.split(f"\n{_HEADING}\n")[0].rstrip()
    text = (
        f"{text}\n\n{_HEADING}\n\n{guarantee}\n\nThe guarantee covers the whole fine-tuning: this "
        f"model together with all checkpoints of the run. `{GUARANTEE_FILE}` contains it in "
        "machine-readable form (`dpgrain.Guarantee.from_json`).\n"
    )
    for file, content in ((card, text), (folder / GUARANTEE_FILE, guarantee.to_json())):
        with atomic_write(file) as part:
            part.write_text(content, encoding="utf-8")


def run_file(checkpoint: Path) -> Path:
    """Return the run's file for a Hugging Face checkpoint folder."""
    step = checkpoint.name.removeprefix("checkpoint-")
    file = checkpoint.parent / RUN_FOLDER / f"run-{step}.pt"
    if not file.exists():
        raise DataError(
            f"{str(file)!r} is missing, and the run of {str(checkpoint)!r} cannot be resumed "
            "without it; put it and its journal next to the folder of the checkpoint."
        )
    return file


class PrivateStep:
    """Step of the loop that reads its batches lazily."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.batches = batches

    def __contains__(self, name: object) -> bool:
        """Return False, so that the loop counts no labels."""
        return False


class StepLoader:
    """Loader of the remaining steps for Hugging Face's loop."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.dataset, self.batch_size = trainer.train_dataset, 1

    def __len__(self) -> int:
        return int(self._trainer.args.max_steps)

    def __iter__(self) -> Iterator[Any]:
        steps: Iterator[Any] = self._trainer.remaining_steps()
        return steps


class SteppedOptimizer(PrivateOptimizer):
    """Optimizer for a loop that makes its steps while it reads batches."""

    def __init__(self, own: PrivateOptimizer) -> None:
        super().__init__(own._run)

    def step(self, closure: Any = None) -> bool:  # type: ignore[override, unused-ignore]  # noqa: ARG002
        """Do nothing, because the step has already been made."""
        return True
