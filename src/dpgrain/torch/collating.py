"""Collation of records into batches, in which no record can stop the training.

A record is blank if it cannot be read or collated, or does not match the schema. A blank record is
only padding, with ignored labels. Errors in the schema itself are detected in advance, with a
synthetic record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from dpgrain.errors import ParameterError, reraise_keyboard_interrupt
from dpgrain.torch.library import torch
from dpgrain.torch.padding import Labels, is_of_tokens, together

#: Marker of a record that cannot be read.
UNREADABLE = object()
# Entries of a synthetic list.
_MADE_UP = 3
# Row of a record: tensors by name, (1, …) each.
_Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Readable:
    """Data set with a marker instead of each unreadable record.

    >>> Readable([3, 4])[1], Readable([3])[7] is UNREADABLE
    (4, True)
    """

    dataset: Any

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, place: int) -> Any:
        """Return a record, or :data:`UNREADABLE`."""
        try:
            return self.dataset[place]
        except BaseException as error:
            reraise_keyboard_interrupt(error)
            return UNREADABLE


def made_up(dataset: Any) -> dict[str, Any] | None:
    """Return a synthetic record from a data set's schema; None without a schema.

    A data set with a custom transform has an unknown schema.
    """
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping) or dataset.format["type"] == "custom":
        return None
    try:
        return {name: _made_up(feature) for name, feature in features.items()}
    except LookupError:
        return None


def _made_up(feature: Any) -> Any:
    """Return a synthetic number, text or list; LookupError for other types."""
    kind = type(feature).__name__
    if kind == "ClassLabel":
        return 0
    if kind == "Value":
        types = {
            "int": 1,
            "uint": 1,
            "float": 1.0,
            "bool": True,
            "string": "a",
            "large_string": "a",
        }
        return types[str(feature.dtype).rstrip("0123456789")]
    if kind in ("Sequence", "List", "LargeList") and not isinstance(feature.feature, dict):
        entries = getattr(feature, "length", -1)
        return [_made_up(feature.feature)] * (_MADE_UP if entries < 0 else entries)
    raise LookupError(kind)


@dataclass(frozen=True, eq=False)
class Collating:
    """Collation of records into a batch, row by row.

    Without a mask (``masks``), a model would read the padding. ``most`` limits the tokens of a
    record, and ``like`` is a row that matches the schema, or None.

    >>> batch = Collating(lambda rows: {"input_ids": torch.tensor([rows[0]])}, 0)([[5, 6], UNREADABLE])
    >>> batch["input_ids"].tolist(), batch["attention_mask"].tolist()
    ([[5, 6], [0, 0]], [[1, 1], [1, 0]])
    """

    collator: Callable[[list[Any]], Any]
    padding: int
    labels: Labels = "tokens"
    masks: bool = True
    most: int | None = None
    fixed: bool = False
    like: _Row | None = None

    def __call__(self, records: Sequence[Any]) -> dict[str, Any] | None:
        """Return a batch with a row for each record; None if no record can be read."""
        rows = [self._row(record) for record in records]
        like = next((row for row in rows if row is not None), None)
        if like is None:
            return None
        return self.together([_blank(like) if row is None else row for row in rows])

    def tried(self, record: Any, needed: str) -> Collating:
        """Try the collator on a synthetic record, and use the result as the reference row."""
        try:
            row = self._collated(record)
        except Exception as error:
            raise _no_row(record, f"failed ({type(error).__name__}) to build a row") from error
        if not row.keys() - {needed, "label"}:
            raise _no_row(record, "returned nothing that a model reads")
        self.together([row])
        if needed not in row and "label" not in row:
            raise ParameterError(
                "train_dataset (or data_collator) must provide labels, because the loss needs "
                "them.",
                name="train_dataset",
            )
        return replace(self, like=row)

    def together(self, rows: Sequence[_Row]) -> dict[str, Any]:
        """Return rows, (1, …) each, as one batch."""
        length = self.most if self.fixed else None
        return together(rows, self.padding, labels=self.labels, length=length)

    def padded(self, records: list[Any]) -> dict[str, Any]:
        """Return a batch of public records without blanks, padded if necessary."""
        try:
            return dict(self.collator(records))
        except (ValueError, RuntimeError):
            return self.together([self._collated(record) for record in records])

    def _row(self, record: Any) -> _Row | None:
        """Return the row of a record; None for a blank record."""
        if record is UNREADABLE:
            return None
        try:
            row = self._collated(record)
            fits = _is_one(row) and (self.like is None or _alike(row, self.like))
            return row if fits else None
        except BaseException as error:
            reraise_keyboard_interrupt(error)
            return None

    def _collated(self, record: Any) -> _Row:
        row = dict(self.collator([record]))
        # Without a mask a model would read the padding, which depends on other records.
        if "input_ids" in row and self.masks:
            row.setdefault("attention_mask", torch.ones_like(row["input_ids"]))
        return {name: self._cut(name, value) for name, value in row.items()}

    def _cut(self, name: str, value: Any) -> Any:
        of_tokens = is_of_tokens(name, value, self.labels)
        return value[:, : self.most] if self.most is not None and of_tokens else value


def _no_row(record: Mapping[str, Any], what: str) -> ParameterError:
    return ParameterError(
        f"data_collator {what} from a synthetic record with the columns of train_dataset, which "
        f"are {', '.join(map(repr, record))}; store the inputs of the model in columns, such as "
        "input_ids with the numbers of tokens, or pass a collator that computes them.",
        name="data_collator",
    )


def _is_one(row: _Row) -> bool:
    """Return True if a collator returned tensors with one row each."""
    return bool(row) and all(
        isinstance(value, torch.Tensor) and len(value) == 1 for value in row.values()
    )


def _alike(row: _Row, like: _Row) -> bool:
    """Return True if two rows have the same names and numbers of dimensions."""
    return row.keys() == like.keys() and all(
        value.dim() == like[name].dim() for name, value in row.items()
    )


def _blank(like: _Row) -> _Row:
    """Return a row that is only padding; its mask shows one token."""
    return {
        name: value.new_ones((1,) * value.dim())
        if name.endswith("mask")
        else value.new_zeros((1, *(0,) * (value.dim() - 1)))
        if value.dim() > 1
        else value.new_full((1,), -100)
        for name, value in like.items()
    }
