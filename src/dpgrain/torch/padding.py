"""Batches of separately collated records, padded to the longest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch

# Padding by the suffix of a tensor's name; the caller sets the padding of tokens and others.
_PADDING = {"labels": -100, "mask": 0, "token_type_ids": 0, "position_ids": 0, "values": 0}
# Suffixes of names of integer tensors; others are real, independently of other records.
_WHOLE = ("ids", "mask")
#: Type of labels: a token for each token of a record, other integers, or real numbers.
Labels: TypeAlias = Literal["tokens", "whole", "real"]


def together(
    records: Sequence[Mapping[str, Any]],
    padding: int,
    *,
    labels: Labels = "tokens",
    length: int | None = None,
) -> dict[str, Any]:
    """Return a batch of records, each of them a batch of one; ``length`` is in tokens.

    Each row, including its type, depends only on its own record: tokens and masks are integers,
    others are real. Only the amount of padding depends on other records.

    >>> rows = [{"input_ids": torch.ones(1, 2)}, {"input_ids": torch.ones(1, 3)}]
    >>> together(rows, 7)["input_ids"].tolist()
    [[1, 1, 7], [1, 1, 1]]
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
            length if is_of_tokens(name, records[0][name], labels) else None,
        )
        for name in names
    }


def of_lengths(like: Mapping[str, Any], lengths: Sequence[int], words: int) -> list[dict[str, Any]]:
    """Return synthetic rows, (1, …) each, with several lengths and a row's structure."""
    generator = torch.Generator().manual_seed(1)

    def of(name: str, value: Any, length: int, tokens: Any) -> Any:
        if not is_of_tokens(name, value):
            return value
        if name.endswith(("input_ids", "labels")):
            return tokens
        return torch.full((1, length), int(name.endswith("mask")))

    made = [torch.randint(0, words, (1, length), generator=generator) for length in lengths]
    return [
        {name: of(name, value, tokens.shape[1], tokens) for name, value in like.items()}
        for tokens in made
    ]


def is_of_tokens(name: str, value: Any, labels: Labels = "tokens") -> bool:
    """Return True if a tensor, (1, …), has an entry for each token of a record."""
    ends = (*_WHOLE, "labels") if labels == "tokens" else _WHOLE
    return isinstance(value, torch.Tensor) and value.dim() == 2 and name.endswith(ends)


def _padded(rows: Sequence[Any], name: str, padding: int, kind: Any, length: int | None) -> Any:
    """Stack rows as one tensor of a type, padded at the end of each dimension."""
    sizes = zip(*(row.shape[1:] for row in rows), strict=True)
    # Models fail on a batch without tokens.
    longest = [max(1, length or 0, *of_rows) for of_rows in sizes]
    value = next((pad for end, pad in _PADDING.items() if name.endswith(end)), padding)
    made = rows[0].new_full((len(rows), *longest), value, dtype=kind)
    for place, row in enumerate(rows):
        made[(place, *(slice(size) for size in row.shape[1:]))] = row[0]
    return made
