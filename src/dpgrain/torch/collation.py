"""Collation of records into padded batches, in which no record can stop the training.

A record is blank if it cannot be read or collated, or does not match the schema. A blank record is
only padding, with ignored labels. Errors in the schema itself are detected in advance, with a
synthetic record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from dpgrain.errors import ParameterError, reraise_keyboard_interrupt
from dpgrain.torch.library import torch

#: Marker of a record that cannot be read.
UNREADABLE = object()
# Entries of a synthetic list.
_SYNTHETIC_ENTRIES = 3
# Row of a record: tensors by name, (1, …) each.
_Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False)
class ReadableDataset:
    """Data set with a marker instead of each unreadable record."""

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


def synthetic_record(dataset: Any) -> dict[str, Any] | None:
    """Return a synthetic record from a data set's schema; None without a known schema."""
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping) or dataset.format["type"] == "custom":
        return None
    try:
        return {name: _synthetic_value(feature) for name, feature in features.items()}
    except LookupError:
        return None


def _synthetic_value(feature: Any) -> Any:
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
        return [_synthetic_value(feature.feature)] * (
            _SYNTHETIC_ENTRIES if entries < 0 else entries
        )
    raise LookupError(kind)


@dataclass(frozen=True, eq=False)
class RecordCollator:
    """Collation of records into a batch, row by row.

    Without a mask (``masks``), a model would read the padding. ``most`` limits the tokens of a
    record, and ``template`` is a row that matches the schema, or None.
    """

    collator: Callable[[list[Any]], Any]
    padding: int
    labels: Labels = "tokens"
    masks: bool = True
    most: int | None = None
    fixed: bool = False
    template: _Row | None = None

    def __call__(self, records: Sequence[Any]) -> dict[str, Any] | None:
        """Return a batch with a row for each record; None if no record can be read."""
        rows = [self._row(record) for record in records]
        template = next((row for row in rows if row is not None), None)
        if template is None:
            return None
        return self.padded_batch([_blank(template) if row is None else row for row in rows])

    def with_template(self, record: Any, needed: str) -> RecordCollator:
        """Try the collator on a synthetic record, and use the result as the reference row."""
        try:
            row = self._collated(record)
        except Exception as error:
            raise _no_row(record, f"failed ({type(error).__name__}) to build a row") from error
        if not row.keys() - {needed, "label"}:
            raise _no_row(record, "returned nothing that a model reads")
        self.padded_batch([row])
        if needed not in row and "label" not in row:
            raise ParameterError(
                "train_dataset (or data_collator) must provide labels, because the loss needs "
                "them.",
                name="train_dataset",
            )
        return replace(self, template=row)

    def padded_batch(self, rows: Sequence[_Row]) -> dict[str, Any]:
        """Return rows, (1, …) each, as one batch."""
        length = self.most if self.fixed else None
        return padded_batch(rows, self.padding, labels=self.labels, length=length)

    def padded(self, records: list[Any]) -> dict[str, Any]:
        """Return a batch of public records without blanks, padded if necessary."""
        try:
            return dict(self.collator(records))
        except (ValueError, RuntimeError):
            return self.padded_batch([self._collated(record) for record in records])

    def _row(self, record: Any) -> _Row | None:
        """Return the row of a record; None for a blank record."""
        if record is UNREADABLE:
            return None
        try:
            row = self._collated(record)
            fits = _is_one_row(row) and (self.template is None or _matches(row, self.template))
            return row if fits else None
        except BaseException as error:
            reraise_keyboard_interrupt(error)
            return None

    def _collated(self, record: Any) -> _Row:
        row = dict(self.collator([record]))
        # Without a mask a model would read the padding, which depends on other records.
        if "input_ids" in row and self.masks:
            row.setdefault("attention_mask", torch.ones_like(row["input_ids"]))
        if self.most is None:
            return row
        return {
            name: value[:, : self.most] if is_per_token(name, value, self.labels) else value
            for name, value in row.items()
        }


def _no_row(record: Mapping[str, Any], what: str) -> ParameterError:
    return ParameterError(
        f"data_collator {what} from a synthetic record with the columns of train_dataset, which "
        f"are {', '.join(map(repr, record))}; store the inputs of the model in columns, such as "
        "input_ids with the numbers of tokens, or pass a collator that computes them.",
        name="data_collator",
    )


def _is_one_row(row: _Row) -> bool:
    """Return True if a collator returned tensors with one row each."""
    return bool(row) and all(
        isinstance(value, torch.Tensor) and len(value) == 1 for value in row.values()
    )


def _matches(row: _Row, template: _Row) -> bool:
    """Return True if two rows have the same names and numbers of dimensions."""
    return row.keys() == template.keys() and all(
        value.dim() == template[name].dim() for name, value in row.items()
    )


def _blank(template: _Row) -> _Row:
    """Return a row that is only padding; its mask shows one token."""
    return {
        name: value.new_ones((1,) * value.dim())
        if name.endswith("mask")
        else value.new_zeros((1, *(0,) * (value.dim() - 1)))
        if value.dim() > 1
        else value.new_full((1,), -100)
        for name, value in template.items()
    }


# Padding by the suffix of a tensor's name; the caller sets the padding of tokens and others.
_PADDING = {"labels": -100, "mask": 0, "token_type_ids": 0, "position_ids": 0, "values": 0}
# Suffixes of names of integer tensors; others are real, independently of other records.
_WHOLE = ("ids", "mask")
#: Type of labels: a token for each token of a record, other integers, or real numbers.
Labels: TypeAlias = Literal["tokens", "whole", "real"]


def padded_batch(
    records: Sequence[Mapping[str, Any]],
    padding: int,
    *,
    labels: Labels = "tokens",
    length: int | None = None,
) -> dict[str, Any]:
    """Return a batch of records, each of them a batch of one; ``length`` is in tokens.

    Each row, including its type, depends only on its own record; only the amount of padding depends
    on other records.
    """
    names = list(records[0])
    for record in records:
        for name, value in record.items():
            if name not in names or not isinstance(value, torch.Tensor) or len(value) != 1:
                raise ParameterError(
                    "data_collator must return a tensor with one row for one record, but "
                    f"{name!r} has none, because records packed together have no separate loss.",
                    name="data_collator",
                )
    ends = (*_WHOLE, *(() if labels == "real" else ("labels", "label")))
    return {
        name: _padded(
            [record[name] for record in records],
            name,
            padding,
            torch.long if name.endswith(ends) else torch.get_default_dtype(),
            length if is_per_token(name, records[0][name], labels) else None,
        )
        for name in names
    }


def synthetic_rows(
    template: Mapping[str, Any], lengths: Sequence[int], words: int
) -> list[dict[str, Any]]:
    """Return synthetic rows, (1, …) each, with several lengths and a row's structure."""
    generator = torch.Generator().manual_seed(1)

    def resized(name: str, value: Any, length: int, tokens: Any) -> Any:
        if not is_per_token(name, value):
            return value
        if name.endswith(("input_ids", "labels")):
            return tokens
        return torch.full((1, length), int(name.endswith("mask")))

    rows = [torch.randint(0, words, (1, length), generator=generator) for length in lengths]
    return [
        {name: resized(name, value, tokens.shape[1], tokens) for name, value in template.items()}
        for tokens in rows
    ]


def is_per_token(name: str, value: Any, labels: Labels = "tokens") -> bool:
    """Return True if a tensor, (1, …), has an entry for each token of a record."""
    ends = (*_WHOLE, "labels") if labels == "tokens" else _WHOLE
    return isinstance(value, torch.Tensor) and value.dim() == 2 and name.endswith(ends)


def _padded(rows: Sequence[Any], name: str, padding: int, kind: Any, length: int | None) -> Any:
    """Stack rows as one tensor of a type, padded at the end of each dimension."""
    sizes = zip(*(row.shape[1:] for row in rows), strict=True)
    # Models fail on a batch without tokens.
    longest = [max(1, length or 0, *of_rows) for of_rows in sizes]
    value = next((pad for end, pad in _PADDING.items() if name.endswith(end)), padding)
    padded = rows[0].new_full((len(rows), *longest), value, dtype=kind)
    for place, row in enumerate(rows):
        padded[(place, *(slice(size) for size in row.shape[1:]))] = row[0]
    return padded
