"""Labels of the records of a data set, read when a run is charged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dpgrain import _validate
from dpgrain.errors import ParameterError, reraise_keyboard_interrupt
from dpgrain.torch.held import of_record

# Bytes of the hash that labels a record without a user column.
_BYTES = 16


@dataclass(frozen=True, eq=False)
class Column:
    """Column of a data set, with one label for each record.

    >>> list(Column({"author": ["ann", None]}, "author"))
    ['ann', None]
    """

    dataset: Any
    name: str

    @staticmethod
    def of(dataset: Any, name: str | None, parameter: str) -> Column | None:
        """Return a column selected by the caller; None if no column is selected."""
        if name is None:
            return None
        if name not in getattr(dataset, "column_names", ()):
            raise ParameterError(
                f"{parameter} must be a column of train_dataset, not {_validate.describe(name)}.",
                name=parameter,
            )
        return Column(dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        return iter(_plain(self.dataset)[self.name])


@dataclass(frozen=True, eq=False)
class Contents:
    """Hash of each record as its label, which distinguishes the records of a user.

    It is a public partition: a record's label does not depend on other records, and equal records
    have equal labels. Transforms of the data set are not applied, because they may draw random
    numbers.

    >>> len(set(Contents([{"text": "a"}, {"text": "b"}, {"text": "a"}])))
    2
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
                yield _hash(rows[place])
            except BaseException as error:
                # All unreadable records have the same label.
                reraise_keyboard_interrupt(error)
                yield ""


def _plain(dataset: Any) -> Any:
    """Return a data set of plain objects, without transforms."""
    return dataset.with_format(None) if hasattr(dataset, "with_format") else dataset


def _hash(record: Any) -> str:
    result = hashlib.blake2b(digest_size=_BYTES)
    for piece in of_record(record):
        result.update(len(piece).to_bytes(8, "big"))
        result.update(piece)
    return result.hexdigest()
