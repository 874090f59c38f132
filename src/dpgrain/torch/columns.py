"""Labels of records of a data set, which are read when a run is charged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dpgrain import _validate
from dpgrain.errors import ParameterError, only_interrupts
from dpgrain.torch.held import of_record

# Bytes of the hash that is a record's own label.
_BYTES = 16


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a data set, one label for each record.

    Args:
        dataset: the data set.
        name: the name of the column.

    >>> list(Column({"author": ["ann", None]}, "author"))
    ['ann', None]
    """

    dataset: Any
    name: str

    @staticmethod
    def of(dataset: Any, name: str | None, parameter: str) -> Column | None:
        """Return a column that a caller names; None where none is named.

        Args:
            dataset: the data set.
            name: the name of the column.
            parameter: the parameter that names it.

        Raises:
            ParameterError: if the data set has no such column.
        """
        if name is None:
            return None
        if name not in getattr(dataset, "column_names", ()):
            raise ParameterError(
                f"{parameter} must be a column of train_dataset, not {_validate.said(name)}.",
                name=parameter,
            )
        return Column(dataset, name)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        """Yield the labels, as plain objects."""
        return iter(_plain(self.dataset)[self.name])


@dataclass(frozen=True, eq=False)
class Contents:
    """The contents of each record as its label, so that records of one user are told apart.

    Args:
        dataset: the data set. Its own transforms, which may draw, are left out.

    It is a public partition: whatever others hold, and in which order, the label of a record stays, and
    records that are the same in all columns have the same one.

    >>> len(set(Contents([{"text": "a"}, {"text": "b"}, {"text": "a"}])))
    2
    """

    dataset: Any
    name: str = "the contents of a record"

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.dataset)

    def __iter__(self) -> Iterator[str]:
        """Yield the hash of each record."""
        rows = _plain(self.dataset)
        for place in range(len(rows)):
            try:
                yield _hash(rows[place])
            except BaseException as error:
                # A record that cannot be read is one like any other that cannot.
                only_interrupts(error)
                yield ""


def _plain(dataset: Any) -> Any:
    """Return a data set whose records are plain objects, without transforms."""
    return dataset.with_format(None) if hasattr(dataset, "with_format") else dataset


def _hash(record: Any) -> str:
    result = hashlib.blake2b(digest_size=_BYTES)
    for piece in of_record(record):
        result.update(len(piece).to_bytes(8, "big"))
        result.update(piece)
    return result.hexdigest()
