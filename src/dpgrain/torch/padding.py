"""Records that were collated one by one, as one batch that is padded to its longest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch

# What pads tensors, by the end of their names; tokens and others are padded by the caller's number.
_PADDING = {"labels": -100, "mask": 0, "token_type_ids": 0, "position_ids": 0, "values": 0}
# Ends of names of whole numbers; all else is real, whatever another record of the batch holds.
_WHOLE = ("ids", "mask")
#: What labels are: a token for each token of a record, other whole numbers, or numbers.
Labels: TypeAlias = Literal["tokens", "whole", "real"]


def together(
    records: Sequence[Mapping[str, Any]],
    padding: int,
    *,
    labels: Labels = "tokens",
    length: int | None = None,
) -> dict[str, Any]:
    """Return a batch of records, each of which is a batch of one.

    Args:
        records: tensors by name, (1, …) each.
        padding: the token that pads tokens.
        labels: what labels are.
        length: the number of tokens to which all records are padded; None for the longest's, and one
            at least.

    Raises:
        ParameterError: if a collator has made something else of a record than a row in each tensor.

    So each row follows from what the collator makes of its record, and so does its type: tokens and
    masks are whole numbers, and all else is real. How far a row is padded follows from others.

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
    """Return made-up rows of several lengths, (1, …) each, in the form of another one.

    Args:
        like: a row.
        lengths: the number of tokens of each.
        words: tokens are below this number.
    """
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
    """Return whether a tensor has an entry for each token of a record.

    Args:
        name: its name.
        value: (1, …) the tensor.
        labels: what labels are.
    """
    ends = (*_WHOLE, "labels") if labels == "tokens" else _WHOLE
    return isinstance(value, torch.Tensor) and value.dim() == 2 and name.endswith(ends)


def _padded(rows: Sequence[Any], name: str, padding: int, kind: Any, length: int | None) -> Any:
    """Return rows as one tensor of a type, padded at the end of each dimension."""
    sizes = zip(*(row.shape[1:] for row in rows), strict=True)
    # A batch without any token would be one that models fail on.
    longest = [max(1, length or 0, *of_rows) for of_rows in sizes]
    value = next((pad for end, pad in _PADDING.items() if name.endswith(end)), padding)
    made = rows[0].new_full((len(rows), *longest), value, dtype=kind)
    for place, row in enumerate(rows):
        made[(place, *(slice(size) for size in row.shape[1:]))] = row[0]
    return made
